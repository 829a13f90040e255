"""Compile the C kernel at first use, into the user's cache, and load it.

Nothing is built when the package is installed, so a wheel fits every machine and an install cannot fail. A library is
kept under a name that says what it was made from (source, compiler, flags and the instructions of the processor) and
what is in it. It is written under another name first and renamed, so that processes which build at once do not see half
a file.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

import torch

from paircaps.errors import PaircapsError

SOURCE = Path(__file__).with_name("votes.c")

FLAGS = ("-O3", "-std=gnu11", "-ffp-contract=off", "-shared", "-fPIC", "-pthread")

INSTRUCTIONS = {
    "AVX512": (16, ("-mavx512f", "-mavx512vl", "-mavx512dq", "-mavx512bw", "-mavx2", "-mfma")),
    "AVX2": (8, ("-mavx2", "-mfma")),
    "portable": (4, ()),
}
"""Lanes and flags by the instructions of the processor."""

FUNCTIONS = ("paircaps_sums", "paircaps_gradients", "paircaps_coupled", "paircaps_coupled_gradients")
"""What the library offers: each takes a pointer to a job, and returns 0, or 1 if there was not enough memory."""

BUILD_SECONDS = 120
"""Longest time for the compiler, which takes a few seconds."""


class KernelUnavailableError(PaircapsError):
    """The C kernel cannot run here; the message says why, and the tiles of PyTorch are used."""


def instructions() -> str:
    """The widest instructions that the processor has and PyTorch uses, one of ``INSTRUCTIONS``."""
    capability = torch.backends.cpu.get_cpu_capability()
    return capability if capability in INSTRUCTIONS and platform.machine() in ("x86_64", "AMD64") else "portable"


def load_library(kind: str) -> ctypes.CDLL:
    """The compiled kernel, built now unless it was before.

    Args:
        kind: one of ``INSTRUCTIONS``.

    Raises:
        KernelUnavailableError: if there is no compiler, or it fails, or the result cannot be kept or loaded.
    """
    found = _library_or_problem(kind)
    if isinstance(found, str):
        raise KernelUnavailableError(found)
    return found


@cache
def _library_or_problem(kind: str) -> ctypes.CDLL | str:
    """The compiled kernel, or why there is none: tried once in a process."""
    lanes, flags = INSTRUCTIONS[kind]
    problem = "neither the user's home nor a folder of temporary files is known"
    try:
        compiler = find_compiler()
        command = [*compiler, *FLAGS, *flags, f"-DLANES={lanes}"]
        name = f"votes-{kind.lower()}-{_fingerprint(compiler, command)}"
        for number, folder in enumerate(cache_folders()):
            try:
                return _load(_built(folder, name, command))
            except (OSError, AttributeError) as error:  # read-only, full, or not allowed to run files: the next may do
                problem = problem if number else str(error)
    except (KernelUnavailableError, OSError) as error:
        return str(error)
    return f"the compiled kernel can be kept or loaded nowhere: {problem}; PAIRCAPS_CACHE names a folder for it"


def find_compiler() -> list[str]:
    """The C compiler as words of a command: what CC says, or else cc, gcc or clang.

    Raises:
        KernelUnavailableError: if there is none.
    """
    if os.name != "posix":
        raise KernelUnavailableError(f"it is not built on {platform.system()}")
    named = os.environ.get("CC", "")
    try:
        wanted = shlex.split(named)
    except ValueError:  # a quotation mark without its other half
        raise KernelUnavailableError(f"CC must be a command, got {named!r:.100}") from None
    for words in [wanted] if wanted else [["cc"], ["gcc"], ["clang"]]:
        if shutil.which(words[0]):
            return words
    raise KernelUnavailableError(
        f"the C compiler {wanted[0]!r} of CC is missing" if wanted else "no C compiler is installed"
    )


def cache_folders() -> list[Path]:
    """Folders for compiled kernels, the best first: PAIRCAPS_CACHE, the user's cache, a folder of temporary files.

    Raises:
        KernelUnavailableError: if PAIRCAPS_CACHE is in the home of a user that is not there.
    """
    named = os.environ.get("PAIRCAPS_CACHE")
    if named:
        try:
            return [Path(named).expanduser().absolute()]
        except RuntimeError:
            raise KernelUnavailableError(f"PAIRCAPS_CACHE is in the home of nobody: {named!r:.100}") from None
    folders = []
    with suppress(RuntimeError):  # a user without a home, as in some containers
        folders.append(Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "paircaps")
    with suppress(OSError):  # nowhere to write
        folders.append(Path(tempfile.gettempdir()) / f"paircaps-{os.getuid()}")
    return [folder.absolute() for folder in folders]


def _fingerprint(compiler: list[str], command: list[str]) -> str:
    """Digest of what a library is made from: source, command, and the version of the compiler."""
    _, version = _run([*compiler, "--version"])
    made_from = [SOURCE.read_bytes(), "\0".join(command).encode(), version.encode(), platform.machine().encode()]
    return _digest(b"\0\0".join(made_from))


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def _built(folder: Path, name: str, command: list[str]) -> Path:
    """The library, compiled unless it is in the folder already.

    Its name ends in the digest of its content: loading a damaged library may kill the process, so such a file is never
    loaded but built again.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _require_own(folder)
    for library in folder.glob(f"{name}-*.so"):
        _require_own(library)
        if library.stem == f"{name}-{_digest(library.read_bytes())}":
            return library
    _remove_abandoned(folder)
    handle, path = tempfile.mkstemp(dir=folder, prefix=".votes-", suffix=".so")
    os.close(handle)
    unfinished = Path(path)
    try:
        _compile([*command, "-o", path, str(SOURCE), "-lm"])
        unfinished.chmod(0o700)
        return unfinished.replace(folder / f"{name}-{_digest(unfinished.read_bytes())}.so")
    finally:
        unfinished.unlink(missing_ok=True)


def _remove_abandoned(folder: Path) -> None:
    """Remove what builds that were killed have left: files that no compiler can still be writing."""
    for unfinished in folder.glob(".votes-*.so"):
        with suppress(OSError):  # another process was faster
            if time.time() - unfinished.stat().st_mtime > 2 * BUILD_SECONDS:
                unfinished.unlink()


def _require_own(path: Path) -> None:
    """Refuse a library, or its folder, that someone else could have written: it is about to be run."""
    found = path.stat()
    if found.st_uid not in (0, os.getuid()) or (found.st_mode & 0o022 and not found.st_mode & 0o1000):
        raise PermissionError(f"{path} may be written by others")


def _compile(command: list[str]) -> None:
    code, said = _run(command)
    if "No space left" in said:
        raise OSError("no space left on the device")
    if code:
        lines = [line for line in said.splitlines() if "error" in line] or said.splitlines()
        raise KernelUnavailableError(f"{command[0]} failed: {lines[0].strip() if lines else f'exit code {code}':.200}")


def _run(command: list[str]) -> tuple[int, str]:
    """Exit code of a compiler, and what it said in English.

    Raises:
        KernelUnavailableError: if it cannot be run, or takes more than ``BUILD_SECONDS``.
    """
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env={**os.environ, "LC_ALL": "C"},
            start_new_session=True,
        )
    except OSError as error:
        raise KernelUnavailableError(f"{command[0]} cannot be run: {error.strerror}") from None
    with process:
        try:
            said, _ = process.communicate(timeout=BUILD_SECONDS)
        except BaseException as error:
            _stop(process)
            if isinstance(error, subprocess.TimeoutExpired):
                raise KernelUnavailableError(f"{command[0]} took more than {BUILD_SECONDS} s") from None
            raise
    return process.returncode, said


def _stop(process: subprocess.Popen[str]) -> None:
    """Stop a compiler and what it started: what is left over would hold the pipe open, for which this process waits."""
    for number in (signal.SIGTERM, signal.SIGKILL):  # asked to, gcc removes its temporary files
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(1)


def _load(library: Path) -> ctypes.CDLL:
    loaded = ctypes.CDLL(str(library))
    for name in FUNCTIONS:
        getattr(loaded, name).argtypes = [ctypes.c_void_p]
        getattr(loaded, name).restype = ctypes.c_int
    return loaded
