"""What newcomers and GitHub read: citation, issue forms, CI, and a page whose commands, files and links exist."""

import re
import shlex
import tomllib
from pathlib import Path

import pytest
import yaml

import paircaps
from paircaps.cli.completion import candidates

ROOT = Path(__file__).parent.parent
GITHUB = ROOT / ".github"
GUIDE = ROOT / "CONTRIBUTING.md"
PULL_REQUEST = GITHUB / "PULL_REQUEST_TEMPLATE.md"
FORMS = sorted(path for path in (GITHUB / "ISSUE_TEMPLATE").glob("*.yml") if path.name != "config.yml")
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
CI, PUBLISH = (GITHUB / "workflows" / name for name in ("ci.yml", "publish.yml"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def read_yaml(path):
    return yaml.safe_load(path.read_text())


def name_of(path):
    return str(path.relative_to(ROOT))


# --- CITATION.cff ----------------------------------------------------------------------------------------------------


@pytest.fixture
def citation():
    return read_yaml(ROOT / "CITATION.cff")


def is_author(author):
    """A person or an entity, as the Citation File Format has them."""
    return "name" in author or {"given-names", "family-names"} <= set(author)


def test_the_citation_has_what_its_format_asks_for(citation):
    assert {"cff-version", "message", "title", "authors"} <= set(citation)
    assert citation["cff-version"] == "1.2.0"
    for work in (citation, *citation["references"]):
        assert work["authors"]
        assert all(map(is_author, work["authors"]))
    assert all({"type", "title", "authors"} <= set(work) for work in citation["references"])


def test_the_citation_is_of_this_version_of_the_package(citation):
    assert (citation["title"], citation["version"]) == ("paircaps", paircaps.__version__)
    assert (citation["license"], citation["abstract"]) == (PROJECT["license"], PROJECT["description"])
    assert citation["keywords"] == PROJECT["keywords"]
    assert citation["authors"][0]["name"] in (ROOT / "LICENSE").read_text()


def test_the_paper_is_cited_beside_the_software_as_the_pages_do(citation):
    assert "preferred-citation" not in citation  # it would take the place of the software
    (paper,) = citation["references"]
    *others, last = [author["family-names"] for author in paper["authors"]]
    quoted = f'"{paper["title"]}" ({", ".join(others)} and {last}, {paper["conference"]["name"]})'
    assert quoted in " ".join((ROOT / "docs" / "equations.md").read_text().split())
    assert paper["conference"]["name"].endswith(str(paper["year"]))


# --- issue forms -----------------------------------------------------------------------------------------------------

FORM_KEYS = {"name", "description", "body", "title", "labels", "assignees", "projects", "type"}
ATTRIBUTES = {
    "markdown": {"value"},
    "textarea": {"label", "description", "placeholder", "value", "render"},
    "input": {"label", "description", "placeholder", "value"},
    "dropdown": {"label", "description", "multiple", "options", "default"},
    "checkboxes": {"label", "description", "options"},
}
"""Attributes of each kind of element that GitHub knows; the first is required."""


def test_there_is_a_form_for_bugs_and_one_for_wishes():
    assert [path.name for path in FORMS] == ["bug.yml", "feature.yml"]
    assert len({read_yaml(path)["name"] for path in FORMS}) == len(FORMS)
    assert read_yaml(GITHUB / "ISSUE_TEMPLATE" / "config.yml") == {"blank_issues_enabled": True}


@pytest.mark.parametrize("path", FORMS, ids=name_of)
def test_a_form_is_one_that_github_accepts(path):
    form = read_yaml(path)
    assert {"name", "description", "body"} <= set(form) <= FORM_KEYS
    assert any(element["type"] != "markdown" for element in form["body"])
    ids = [element["id"] for element in form["body"] if "id" in element]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch(r"[\w-]+", name) for name in ids)


@pytest.mark.parametrize(
    "element",
    [
        pytest.param(element, id=f"{path.stem}-{number}")
        for path in FORMS
        for number, element in enumerate(read_yaml(path)["body"])
    ],
)
def test_an_element_of_a_form_is_one_that_github_accepts(element):
    assert {"type", "attributes"} <= set(element) <= {"type", "id", "attributes", "validations"}
    attributes = element["attributes"]
    assert set(attributes) <= ATTRIBUTES[element["type"]]
    assert attributes["value" if element["type"] == "markdown" else "label"]
    assert set(element.get("validations", {}).items()) <= {("required", True), ("required", False)}
    if element["type"] == "dropdown":
        assert all(isinstance(option, str) for option in attributes["options"])
        assert len(set(attributes["options"])) == len(attributes["options"]) > 0
    if element["type"] == "checkboxes":
        assert attributes["options"]
        assert all({"label"} <= set(option) <= {"label", "required"} for option in attributes["options"])


# --- CI --------------------------------------------------------------------------------------------------------------


def steps(workflow):
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize("path", WORKFLOWS, ids=name_of)
def test_a_workflow_may_do_little_and_not_for_long(path):
    workflow = read_yaml(path)
    assert workflow["permissions"] == {"contents": "read"}
    assert all(0 < job["timeout-minutes"] <= 60 for job in workflow["jobs"].values())
    assert workflow["concurrency"]["group"]
    used = [step["uses"] for step in steps(workflow) if "uses" in step]
    assert used
    foreign = {action for action in used if not re.fullmatch(r"actions/[\w-]+@v\d+", action)}
    assert foreign == ({"pypa/gh-action-pypi-publish@release/v1"} if path == PUBLISH else set())


def test_the_python_versions_that_the_package_names_are_tested():
    tested = read_yaml(CI)["jobs"]["test"]["strategy"]["matrix"]["python"]
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    assert PROJECT["requires-python"] == f">={tested[0]}"
    assert named
    assert set(named) <= set(tested)


@pytest.fixture
def publish():
    return read_yaml(PUBLISH)


def test_tags_alone_are_published_and_one_at_a_time(publish):
    assert publish[True] == {"push": {"tags": ["v*"]}}  # YAML takes the key "on" for true
    assert publish["concurrency"]["cancel-in-progress"] is False


def test_what_is_published_has_been_checked_and_is_of_the_tag(publish):
    jobs = publish["jobs"]
    assert {name: job.get("needs", []) for name, job in jobs.items()} == {
        "build": [],
        "pypi": ["build"],
        "release": ["pypi"],
    }
    assert targets_on(PUBLISH) == {"release-check"}
    assert 'make release-check TAG="$GITHUB_REF_NAME"' in code_on(PUBLISH)
    taken = {
        name: [step["with"] for step in job["steps"] if "-artifact@" in step.get("uses", "")]
        for name, job in jobs.items()
    }
    assert taken["build"] == [{"name": "dist", "path": "build/dist", "if-no-files-found": "error"}]
    assert taken["pypi"] == taken["release"] == [{"name": "dist", "path": "dist"}]


def test_pypi_trusts_one_job_of_the_workflow_and_no_secret_is_stored(publish):
    rights = {name: job["permissions"] for name, job in publish["jobs"].items() if "permissions" in job}
    assert rights == {"pypi": {"id-token": "write"}, "release": {"contents": "write"}}
    assert publish["jobs"]["pypi"]["environment"] == {"name": "pypi", "url": f"https://pypi.org/p/{PROJECT['name']}"}
    (upload,) = [step for step in publish["jobs"]["pypi"]["steps"] if step["uses"].startswith("pypa/")]
    assert set(upload) == {"uses"}  # a password would stand in "with"
    assert "secrets." not in PUBLISH.read_text()
    # code of this repository runs in the job that may publish nothing
    assert not [step for step in publish["jobs"]["pypi"]["steps"] if "run" in step]


# --- make ------------------------------------------------------------------------------------------------------------


def code_on(path):
    """Lines of code of a file: those in backticks and code blocks of a page, those that a workflow or script runs."""
    text = path.read_text()
    if path.suffix == ".yml":
        return "\n".join(step["run"] for step in steps(read_yaml(path)) if "run" in step).splitlines()
    if path.suffix != ".md":
        return text.splitlines()
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", text, flags=re.S | re.M)
    lines = [line for language, block in blocks if language in ("", "sh") for line in block.splitlines()]
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.S | re.M)
    return [*lines, *re.findall(r"`([^`\n]+)`", prose)]


def targets_on(path):
    """Targets that a file calls make with, on lines that begin with it."""
    return {match[1] for line in code_on(path) if (match := re.match(r"\s*make ([\w./-]+)", line))}


@pytest.fixture(scope="module")
def targets():
    """Targets of the Makefile."""
    text = (ROOT / "Makefile").read_text().replace("$(VENV)", ".venv").replace("$(BIN)", ".venv/bin")
    return set(re.findall(r"^([\w./-]+):(?!=)", text, flags=re.M)) - {".PHONY"}


@pytest.mark.parametrize(
    "path", [GUIDE, ROOT / "README.md", PULL_REQUEST, ROOT / ".ci" / "run", *WORKFLOWS], ids=name_of
)
def test_targets_that_are_named_are_in_the_makefile(path, targets):
    assert targets_on(path)
    assert targets_on(path) <= targets


def test_the_guide_names_every_target_that_is_no_file(targets):
    assert targets_on(GUIDE) == {target for target in targets if not target.startswith(".venv/")}


def test_github_runs_what_must_be_green_here():
    called = targets_on(CI)
    assert {target for target in targets_on(ROOT / ".ci" / "run") if "/" not in target} <= called
    assert called == {"lint", "test", "docs"}


# --- the guide -------------------------------------------------------------------------------------------------------


def commands_on(path):
    """Command lines of paircaps that a file names, as words; a form of GitHub has them in any of its texts."""
    if path.suffix == ".yml":
        lines = re.findall(r"`(paircaps [^`]+)`|placeholder: (paircaps .+)", path.read_text())
        lines = [either or other for either, other in lines]
    else:
        lines = [line for line in code_on(path) if re.match(r"paircaps\s", line)]
    return [tuple(shlex.split(line, comments=True)[1:]) for line in lines]


COMMANDS = [
    pytest.param(words, id=f"{path.stem}: {' '.join(words)}")
    for path in (GUIDE, PULL_REQUEST, *FORMS)
    for words in dict.fromkeys(commands_on(path))
]


@pytest.mark.parametrize("words", COMMANDS)
def test_a_command_that_is_named_has_these_options(words):
    groups = [("data",), ("bench",)]
    long = ["--out" if word == "-o" else word for word in words]
    for place, word in enumerate(long):
        if place == 0 or words[:place] in groups or word.startswith("-"):
            offered = [name for name, _ in candidates(long[: place + 1])]
            assert word in offered, f"paircaps {' '.join(words)}: {word} is unknown"


def test_commands_are_found():
    assert {words[0] for words in commands_on(GUIDE)} >= {"data", "train", "compare", "report", "info"}
    assert ("info",) in commands_on(GITHUB / "ISSUE_TEMPLATE" / "bug.yml")


MADE = (".venv", "build", "runs")
"""Folders that are made, and not in the repository."""


def is_there(name):
    """Whether a path, or a pattern of paths, is in the repository, or in the package."""
    return any(any(place.glob(name.rstrip("/"))) for place in (ROOT, ROOT / "src" / "paircaps"))


def test_files_that_the_guide_names_exist():
    words = {word for line in code_on(GUIDE) if not line.startswith(("cp ", "mkdir ")) for word in line.split()}
    paths = {word for word in words if re.fullmatch(r"[\w.*/-]+(/|/[\w.*-]+|\.(md|py|toml|yml|cff))", word)}
    paths = {path for path in paths if path.split("/")[0] not in MADE}
    assert {"tests/routing", "tests/training/test_recipe.py", "training/recipe.py", ".ci/run"} <= paths
    assert sorted(path for path in paths if not is_there(path)) == []


def test_tests_variables_and_names_that_the_guide_names_exist():
    text = GUIDE.read_text()
    tests = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    source = "".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    named = re.findall(r"`(test_\w+)`", text)
    assert named
    assert [name for name in named if f"def {name}(" not in tests] == []
    assert [name for name in re.findall(r"\bPAIRCAPS_\w+", text) if f'"{name}"' not in source] == []
    for module, name in re.findall(r"`paircaps\.(\w+)\.(\w+)`", text):
        assert hasattr(getattr(paircaps, module), name)


def anchors(page):
    """Anchors that GitHub makes of the titles of a page."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(), flags=re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_links_of_the_guide_lead_somewhere():
    links = re.findall(r"\]\(([^)#:]*)(?:#([^)]+))?\)", GUIDE.read_text())
    assert ("docs/architecture.md", "which-file-to-touch") in links
    for target, anchor in links:
        assert (ROOT / target).exists(), target
        assert not anchor or anchor in anchors(ROOT / target), f"{target}#{anchor}"


def test_the_docstring_and_the_notation_of_the_guide_are_those_of_the_code():
    functional = (ROOT / "src" / "paircaps" / "functional.py").read_text()
    (example,) = re.findall(r"^```py\n(.*?)^```$", GUIDE.read_text(), flags=re.S | re.M)
    assert example in functional
    rows = re.findall(r"^\| `(\w+)` \| .* \| (\(.*\)) \|$", GUIDE.read_text(), flags=re.M)
    assert {name for name, _ in rows} == {"u", "weight", "votes", "s", "pose", "activation"}
    for name, shape in rows:
        assert re.search(rf"^ +{name}: .*{re.escape(shape)}\.$", functional, flags=re.M), name
