"""Build the wheel and the sdist, install each into an environment of its own, and try what was installed.

    make release-check

Run by the Python of ``.venv``, which has ``build``. An environment takes nothing from this one: pip installs PyTorch
into it. Files that pass lie in ``build/dist``.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "paircaps"
DIST = ROOT / "build" / "dist"
MOST = 6_000_000
"""Bytes of the wheel, and of the sdist."""

EXTRA = "train"
"""Extra that is installed beside the library: what a training of drawn digits needs."""

BESIDE_SOURCE = {"CHANGELOG.md", "CITATION.cff", "LICENSE", "README.md", "pyproject.toml", ".gitignore", "PKG-INFO"}
"""Files of the sdist beside ``src/`` and ``examples/``; the last two are hatchling's."""

TRAINING = (
    *("--data.limit", "120", "--train.batch_size", "32", "--train.epochs", "1", "--model.options.widths", "[8,8,8]"),
    *("--evaluate.settle", "1", "--run.threads", "1", "--quiet"),
)
"""Options of a training of three steps: 108 images, of which a batch takes 32."""

LIBRARY = """
import torch, paircaps
model = paircaps.create_model("resnet-caps-small", num_classes=3, in_channels=1, image_size=16, widths=(8, 8, 8))
capsules = model(torch.rand(2, 1, 16, 16))
capsules.activation.sum().backward()
assert capsules.activation.shape == (2, 3), capsules.activation.shape
print(paircaps.__file__)
"""

SHIPPED = """
import torch, paircaps
from paircaps.pretrained import list_weights
for weights in list_weights():
    network = paircaps.load(weights.name)
    preparation = network.spec.preparation
    assert network.predict(torch.rand(preparation.channels, *preparation.size)).label in network.classes
    print(weights.name)
"""


def main() -> None:
    """Build, look at the files, and try each."""
    parser = argparse.ArgumentParser(description="Check what a release would publish.")
    parser.add_argument("--tag", help="tag of the release, which must be v and the version")
    tag = parser.parse_args().tag
    version = version_of_source()
    if tag not in (None, f"v{version}"):
        sys.exit(f"the tag of version {version} must be 'v{version}', got {tag!r}")
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        wheel, sdist = built(Path(folder) / "dist")
        for problem in (problems := [*wheel_problems(wheel, version), *sdist_problems(sdist, version)]):
            print(problem, file=sys.stderr)
        if problems:
            sys.exit(1)
        for file in (wheel, sdist):
            say(started, f"{file.name}: {file.stat().st_size:,} bytes")
            try_out(file, Path(folder) / file.name.rpartition("-")[2], version)
            say(started, f"{file.name}: installs and works")
        shutil.rmtree(DIST, ignore_errors=True)
        shutil.copytree(wheel.parent, DIST)
    say(started, f"{DIST.relative_to(ROOT)} may be published")


def say(started: float, text: str) -> None:
    """Print a line with the seconds since the start."""
    print(f"{time.monotonic() - started:5.0f} s  {text}", flush=True)


def run(*words: str | Path, folder: Path) -> str:
    """Output of a program that finds nothing of this repository; it ends this one if it fails."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    environment = {**kept, "PAIRCAPS_CACHE": str(folder / "cache"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        list(map(str, words)), cwd=folder, env=environment, capture_output=True, text=True, timeout=1800
    )
    if done.returncode:
        sys.exit(f"{' '.join(map(str, words))}\n{done.stdout}{done.stderr}exit code {done.returncode}")
    return done.stdout


def version_of_source() -> str:
    """Version in ``__init__.py``, the one place that has it."""
    (line,) = [line for line in (SOURCE / "__init__.py").read_text().splitlines() if line.startswith("__version__")]
    return line.split('"')[1]


def built(folder: Path) -> tuple[Path, Path]:
    """The sdist, and the wheel that is built from it, each by hatchling in an environment that has nothing else."""
    run(sys.executable, "-m", "build", "--outdir", folder, ROOT, folder=ROOT)
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, sdist


def wheel_problems(wheel: Path, version: str) -> list[str]:
    """What is wrong with a wheel: its name, its size, its files."""
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if not name.startswith(f"paircaps-{version}.dist-info/")}
    expected = {f"paircaps/{path.relative_to(SOURCE)}" for path in package_files()}
    named = [] if wheel.name == f"paircaps-{version}-py3-none-any.whl" else [f"{wheel.name}: not of {version}"]
    return [*named, *size_problems(wheel), *differences(wheel, names, expected)]


def sdist_problems(sdist: Path, version: str) -> list[str]:
    """What is wrong with an sdist: its name, its size, its files."""
    top = f"paircaps-{version}"
    with tarfile.open(sdist) as archive:
        names = {name.removeprefix(f"{top}/") for name in archive.getnames()}
    examples = {f"examples/{path.name}" for path in (ROOT / "examples").glob("*.py")}
    expected = {f"src/paircaps/{path.relative_to(SOURCE)}" for path in package_files()} | examples | BESIDE_SOURCE
    named = [] if sdist.name == f"{top}.tar.gz" else [f"{sdist.name}: not of {version}"]
    return [*named, *size_problems(sdist), *differences(sdist, names, expected)]


def package_files() -> list[Path]:
    """Files of the package, without what Python and the C compiler make of them."""
    return [path for path in SOURCE.rglob("*") if path.is_file() and "__pycache__" not in path.parts]


def size_problems(file: Path) -> list[str]:
    """A sentence about a file that is too large."""
    size = file.stat().st_size
    return [f"{file.name}: {size:,} bytes are too many, {MOST:,} at most"] if size > MOST else []


def differences(file: Path, names: set[str], expected: set[str]) -> list[str]:
    """A sentence for each file that an archive lacks, or should not have."""
    lacks = [f"{file.name}: lacks {name}" for name in sorted(expected - names)]
    return [*lacks, *(f"{file.name}: should not have {name}" for name in sorted(names - expected))]


def try_out(file: Path, folder: Path, version: str) -> None:
    """Install a file into a clean environment, and use what was installed."""
    venv.create(folder / "environment", with_pip=True)
    programs = folder / "environment" / "bin"
    python, paircaps = programs / "python", programs / "paircaps"
    run(python, "-m", "pip", "install", "--quiet", f"{file}[{EXTRA}]", folder=folder)
    expect(f"paircaps {version}\n", run(paircaps, "--version", folder=folder))
    require(run(paircaps, "info", folder=folder), f"extra {EXTRA}", "installed")
    require(run(python, "-c", LIBRARY, folder=folder), "site-packages")
    run(paircaps, "train", "glyphs", "--out", "run", *TRAINING, folder=folder)
    require((folder / "run" / "metrics.jsonl").read_text(), '"step": 3')
    require(run(paircaps, "evaluate", "run", folder=folder), "accuracy")
    shipped = sorted(path.parent.name for path in SOURCE.glob("weights/*/model.json"))
    if shipped:
        expect("\n".join([*shipped, ""]), run(python, "-c", SHIPPED, folder=folder))


def expect(expected: str, said: str) -> None:
    """End with both texts if they are not the same."""
    if said != expected:
        sys.exit(f"expected {expected!r}, got {said!r}")


def require(said: str, *parts: str) -> None:
    """End with a text that lacks a part."""
    for part in parts:
        if part not in said:
            sys.exit(f"{part!r} is not in what was said:\n{said}")


if __name__ == "__main__":
    main()
