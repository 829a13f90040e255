"""ONNX Runtime Web, which runs networks in the browser: fetched once by npm, compared with checksums, and kept."""

from __future__ import annotations

import base64
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from paircaps._utils.files import write_whole
from paircaps.data.files.locate import user_cache
from paircaps.errors import DataError

PACKAGE, VERSION = "onnxruntime-web", "1.22.0"
INTEGRITY = "sha512-Ud/+EBo6mhuaQWt/OjaOk0iNWjXqJoeeMFr6xQEERZdIZH2OWpGzuujz7lfuOBjUa6TEE/sc4nb7Da5dNL34fg=="
"""Checksum of the package, as npm notes it."""

FILES = {
    "ort.js": (
        "package/dist/ort.wasm.min.mjs",
        "6ef726f355b791129f7ddf3f62e7877a16b9b777abe87004b8ab306e6b9cf265",
    ),
    "ort-wasm.js": (
        "package/dist/ort-wasm-simd-threaded.mjs",
        "30dd851d9c00622940500f71ddd2ff8820c5cb65270816080175b958705385a8",
    ),
    "ort-wasm.wasm": (
        "package/dist/ort-wasm-simd-threaded.wasm",
        "71aef04959c5c1b6de461b6538e2058e306610034a85aad2742d0c7fd4533fe4",
    ),
}
"""Files that a page needs, without WebGPU: for each its place in the package and its SHA-256.

Modules end in .js here: not every web server knows the type of .mjs.
"""

LICENCE = """ONNX Runtime Web

MIT License

Copyright (c) Microsoft Corporation

Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated
documentation files (the "Software"), to deal in the Software without restriction, including without limitation the
rights to use, copy, modify, merge, publish, distribute, sublicense, and/or sell copies of the Software, and to permit
persons to whom the Software is furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all copies or substantial portions of the
Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE
WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR
COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR
OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
"""

_SECONDS = 600


def runtime_files(cache: Path | None = None) -> dict[str, bytes]:
    """Content of the files of ONNX Runtime Web by name, from the cache, or fetched by npm if they are not there.

    Args:
        cache: folder of the cache; the user's if None.

    Raises:
        DataError: if they cannot be had.
    """
    folder = (user_cache() if cache is None else cache) / f"{PACKAGE}-{VERSION}"
    kept = {name: _kept(folder / name, checksum) for name, (_, checksum) in FILES.items()}
    found = {name: content for name, content in kept.items() if content is not None}
    if len(found) < len(FILES):
        found = _unpacked(_package(folder))
        _keep(folder, found)
    return {**found, "LICENCE.txt": LICENCE.encode()}


def _kept(path: Path, checksum: str) -> bytes | None:
    """Content of a file of the cache; None if it is not there or is another one."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    return content if hashlib.sha256(content).hexdigest() == checksum else None


def _keep(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files to the cache; where that cannot be written, they are fetched again the next time."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            write_whole(folder / name, content)
    except OSError as error:
        print(f"paircaps: note: {folder}: {error.strerror}; {PACKAGE} is not kept there", file=sys.stderr)


def _package(folder: Path) -> bytes:
    """The package, put into the cache by hand or fetched by npm."""
    by_hand = folder / f"{PACKAGE}-{VERSION}.tgz"
    where, content = str(by_hand), by_hand.read_bytes() if by_hand.is_file() else None
    if content is None:
        where, content = "npm", _fetched(by_hand)
    seen = f"sha512-{base64.b64encode(hashlib.sha512(content).digest()).decode()}"
    if seen != INTEGRITY:
        raise DataError(f"{where}: what came is another {PACKAGE} {VERSION}: {seen}, expected {INTEGRITY}")
    return content


def _fetched(by_hand: Path) -> bytes:
    """Fetch the package by npm, as it is set up on this machine."""
    npm = shutil.which("npm")
    if npm is None:
        raise _missing(by_hand, "npm, which fetches it once, is not installed")
    print(f"fetching {PACKAGE} {VERSION} by npm, once", file=sys.stderr)
    words = [npm, "pack", f"{PACKAGE}@{VERSION}", "--silent", "--ignore-scripts", "--fetch-retries=1"]
    with TemporaryDirectory() as scratch:
        try:
            subprocess.run(
                [*words, "--pack-destination", scratch],
                cwd=scratch,
                env=os.environ | {"npm_config_update_notifier": "false"},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=True,
                timeout=_SECONDS,
            )
            return (Path(scratch) / by_hand.name).read_bytes()
        except subprocess.TimeoutExpired:
            raise _missing(by_hand, f"npm has not fetched it within {_SECONDS} s") from None
        except (subprocess.CalledProcessError, OSError):
            raise _missing(by_hand, "npm could not fetch it: is there a network connection?") from None


def _missing(by_hand: Path, why: str) -> DataError:
    return DataError(
        f"a page needs {PACKAGE} {VERSION}, and {why}; or run `npm pack {PACKAGE}@{VERSION}` elsewhere and put the "
        f"file at {by_hand}"
    )


def _unpacked(package: bytes) -> dict[str, bytes]:
    """Files of the package that a page needs."""
    found = {}
    with tarfile.open(fileobj=io.BytesIO(package), mode="r:gz") as archive:
        for name, (place, checksum) in FILES.items():
            member = archive.extractfile(place)
            found[name] = b"" if member is None else member.read()
            if hashlib.sha256(found[name]).hexdigest() != checksum:
                raise DataError(f"{PACKAGE} {VERSION}: {place} is another file than expected")
    return found
