"""The table of contents has every page of the site, once."""

from collections import Counter
from pathlib import PurePosixPath

from docs.site import ROOT, load_extension, setting
from sphinx.util.matching import Matcher

contents = load_extension("contents")
PAGES = (".md", ".ipynb")


def site_pages():
    """Names of the pages of the repository that the settings of the site include, without suffix."""
    includes, excludes = Matcher(setting("include_patterns")), Matcher(setting("exclude_patterns"))
    folders = {pattern.split("/")[0] for pattern in setting("include_patterns") if "/" in pattern}
    files = [*ROOT.iterdir(), *(path for folder in folders for path in (ROOT / folder).rglob("*"))]
    pages = [path.relative_to(ROOT) for path in files if path.suffix in PAGES]
    included = [page for page in pages if includes(page.as_posix()) and not excludes(page.as_posix())]
    return {page.with_suffix("").as_posix() for page in included}


def entries():
    """Names of the pages in the contents, as often as they are there, relative to the repository."""
    found = []
    for page, captions in contents.CONTENTS.items():
        for entry in (entry for group in captions.values() for entry in group):
            target = entry.split("<")[-1].removesuffix(">")  # "Title <page>", or the page alone
            found.append(str(PurePosixPath(page).parent / target))
    return found


def test_every_page_of_the_site_is_in_the_contents():
    missing = site_pages() - set(entries()) - {setting("root_doc")}
    assert missing == set()


def test_no_page_is_in_the_contents_twice():
    twice = [page for page, count in Counter(entries()).items() if count > 1]
    assert twice == []


def test_every_entry_leads_to_a_page_of_the_site():
    assert set(entries()) - site_pages() == set()


def test_contents_are_appended_to_pages_that_have_some():
    page = ["# API reference\n"]
    contents.append_contents(None, "docs/api/README", page)
    assert page[0].startswith("# API reference\n")
    assert "```{toctree}\n:hidden:\n\npaircaps\nfunctional\n" in page[0]


def test_captions_are_those_of_the_contents():
    page = [""]
    contents.append_contents(None, "README", page)
    assert page[0].count("```{toctree}") == len(contents.CONTENTS["README"])
    assert ":caption: Reference\n" in page[0]


def test_a_page_without_contents_is_not_changed():
    page = ["# Data\n"]
    contents.append_contents(None, "docs/data", page)
    assert page == ["# Data\n"]
