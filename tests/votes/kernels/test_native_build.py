"""The C kernel is built where it can be, once; where not, tiles are used, and one line says why."""

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
import torch

from paircaps import kernels
from paircaps.errors import PaircapsError
from paircaps.votes.kernels import native, native_build

ROOT = Path(__file__).parents[3]

LAYER = """
import json, torch, paircaps
torch.manual_seed(0)
layer = paircaps.CapsuleLayer(97, 7, streaming=True)
u = torch.randn(9, 97, 16, requires_grad=True)
layer(u).activation.square().sum().backward()
(kernel,) = [kernel for kernel in paircaps.kernels() if kernel.name == "c"]
print(json.dumps({"runs": kernel.runs, "why": kernel.why, "gradient": u.grad.flatten()[:50].tolist()}))
"""

pytestmark = pytest.mark.skipif(os.name != "posix", reason="the kernel is built on POSIX alone")


@pytest.fixture(autouse=True)
def _forget(monkeypatch, tmp_path):
    """Each test builds anew, in a folder of its own."""
    for name in ("CC", "PAIRCAPS_KERNEL", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PAIRCAPS_CACHE", str(tmp_path / "cache"))
    native_build._library_or_problem.cache_clear()
    yield
    native_build._library_or_problem.cache_clear()


@pytest.fixture(scope="module")
def built():
    """A library that a real compiler has made."""
    native_build._library_or_problem.cache_clear()
    if problem := native.library_problem():
        pytest.skip(f"no C kernel: {problem}")
    return Path(native_build.load_library(native_build.instructions())._name)


@pytest.fixture
def compiler(tmp_path, monkeypatch, built):
    """Makes CC a script that acts as a compiler: it counts its runs and copies a finished library."""

    def make(before_copy="", version="echo fake 1.0"):
        script = tmp_path / "fake-cc"
        script.write_text(
            f"""#!/bin/sh
            if [ "$1" = --version ]; then {version}; exit 0; fi
            echo $$ >> {tmp_path}/runs
            while [ $# -gt 1 ]; do [ "$1" = -o ] && out=$2; shift; done
            {before_copy}
            cp {built} "$out"
            """
        )
        script.chmod(0o700)
        monkeypatch.setenv("CC", str(script))
        return script

    make.runs = lambda: len((tmp_path / "runs").read_text().split()) if (tmp_path / "runs").exists() else 0
    return make


def problem():
    """Why there is no kernel, after another try; None if there is one."""
    native_build._library_or_problem.cache_clear()
    found = native.library_problem()
    (kernel,) = [kernel for kernel in kernels() if kernel.name == "c"]
    assert kernel.runs is (found is None)
    assert found is None or (kernel.why == found and "\n" not in found)
    return found


def files(folder):
    """Names in a folder, those that begin with a point too."""
    return sorted(os.listdir(folder)) if folder.is_dir() else []


def in_a_new_process(**environment):
    """What the layer gives in a process of its own, where every warning is an error."""
    words = [sys.executable, "-W", "error", "-W", "ignore::DeprecationWarning", "-c", LAYER]
    done = subprocess.run(words, capture_output=True, text=True, env={**os.environ, **environment}, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout)


# --- compilers --------------------------------------------------------------------------------------------------------


def test_without_a_compiler_tiles_give_the_same_results(tmp_path, built):
    with_kernel = in_a_new_process(PAIRCAPS_CACHE=str(built.parent))
    without = in_a_new_process(PATH=str(tmp_path))
    assert with_kernel["runs"] is True
    assert (without["runs"], without["why"]) == (False, "no C compiler is installed")
    torch.testing.assert_close(*(torch.tensor(found["gradient"]) for found in (with_kernel, without)))
    assert files(tmp_path / "cache") == []


@pytest.mark.parametrize(
    ("named", "words"),
    [
        ("missing", "the C compiler 'missing' of CC is missing"),
        ("/no/such/gcc -m64", "the C compiler '/no/such/gcc' of CC is missing"),
        ("gcc 'half", 'CC must be a command, got "gcc \'half"'),
    ],
)
def test_a_compiler_that_is_not_there_is_named(named, words, monkeypatch):
    monkeypatch.setenv("CC", named)
    assert problem() == words


def test_a_compiler_that_cannot_be_run_is_named(tmp_path, monkeypatch):
    path = tmp_path / "no-program"
    path.write_bytes(b"\x7fELF, but no program")
    path.chmod(0o700)
    monkeypatch.setenv("CC", str(path))
    assert problem().startswith(f"{path} cannot be run: ")


def test_a_compiler_that_fails_is_quoted(compiler, tmp_path):
    script = compiler("echo warning: old >&2; echo 'votes.c:7: error: no such thing' >&2; exit 1")
    assert problem() == f"{script} failed: votes.c:7: error: no such thing"
    script = compiler("echo error: in $LC_ALL >&2; exit 1")  # in whatever language the user has
    assert problem() == f"{script} failed: error: in C"
    script = compiler("exit 3")
    assert problem() == f"{script} failed: exit code 3"
    assert files(tmp_path / "cache") == []


def test_what_is_no_library_is_not_loaded(compiler):
    compiler("echo no library > $out; exit 0")
    assert "can be kept or loaded nowhere" in problem()
    compiler(f"cp {shutil.which('true')} $out; exit 0")  # or a library of something else
    assert "can be kept or loaded nowhere" in problem()


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def require_to_end(pid):
    for _ in range(100):
        if not is_running(pid):
            return
        time.sleep(0.1)
    raise AssertionError("it runs on")


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are seen by Linux's means")
@pytest.mark.parametrize("stubborn", [False, True])
@pytest.mark.parametrize("when", ["asked for its version", "compiling"])
def test_a_compiler_that_hangs_is_stopped_with_what_it_started(when, stubborn, compiler, tmp_path, monkeypatch):
    monkeypatch.setattr(native_build, "BUILD_SECONDS", 0.5)
    hang = f"{'trap : TERM;' if stubborn else ''} sleep 1000 & echo $! > {tmp_path}/sleeper; while :; do wait; done"
    script = compiler(hang) if when == "compiling" else compiler(version=hang)
    assert problem() == f"{script} took more than 0.5 s"
    require_to_end((tmp_path / "sleeper").read_text().strip())
    assert files(tmp_path / "cache") == []


@pytest.fixture
def _takes_ctrl_c():
    """Ctrl-C reaches this process also where it was started in the background, with the signal ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_takes_ctrl_c")
def test_ctrl_c_leaves_nothing_half_written(compiler, tmp_path):
    started = f"echo half > $out; sleep 1000 & echo $! > {tmp_path}/sleeper"
    compiler(f"{started}; sleep 0.2; kill -INT $PPID; wait; sleep 1000")  # once Popen has returned, on busy cores
    with pytest.raises(KeyboardInterrupt):
        native.library_problem()
    assert files(tmp_path / "cache") == []
    require_to_end((tmp_path / "sleeper").read_text().strip())
    compiler()
    assert problem() is None  # as if nothing had been


# --- folders ----------------------------------------------------------------------------------------------------------


def test_a_library_is_built_once(compiler, tmp_path):
    compiler()
    assert problem() is None
    assert problem() is None
    assert compiler.runs() == 1
    (name,) = files(tmp_path / "cache")
    assert name.startswith(f"votes-{native_build.instructions().lower()}-")
    assert (tmp_path / "cache" / name).stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "cache").stat().st_mode & 0o777 == 0o700


def test_another_compiler_source_or_flag_builds_another_library(compiler, tmp_path, monkeypatch):
    compiler()
    problem()
    compiler(version="echo fake 2.0")
    problem()
    monkeypatch.setattr(native_build, "FLAGS", (*native_build.FLAGS, "-g"))
    problem()
    source = tmp_path / "votes.c"
    source.write_bytes(native_build.SOURCE.read_bytes() + b"\n")
    monkeypatch.setattr(native_build, "SOURCE", source)
    problem()
    assert compiler.runs() == len(files(tmp_path / "cache")) == 4


@pytest.fixture
def without_a_named_folder(monkeypatch, tmp_path):
    """The user's cache cannot be written; the folder of temporary files can."""
    monkeypatch.delenv("PAIRCAPS_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nowhere")  # where root cannot write either
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))


@pytest.mark.usefixtures("without_a_named_folder")
def test_a_home_that_cannot_be_written_gives_way_to_the_folder_of_temporary_files(compiler, tmp_path):
    compiler()
    assert problem() is None
    assert len(files(tmp_path / "temporary" / f"paircaps-{os.getuid()}")) == 1


@pytest.mark.usefixtures("without_a_named_folder")
def test_a_user_without_a_home_has_the_folder_of_temporary_files(compiler, tmp_path, monkeypatch):
    def nobody(self):
        raise RuntimeError("Could not determine home directory.")

    compiler()
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "expanduser", nobody)
    assert problem() is None
    assert len(files(tmp_path / "temporary" / f"paircaps-{os.getuid()}")) == 1
    monkeypatch.setenv("PAIRCAPS_CACHE", "~nobody/cache")
    assert problem() == "PAIRCAPS_CACHE is in the home of nobody: '~nobody/cache'"


@pytest.mark.usefixtures("without_a_named_folder")
@pytest.mark.parametrize("temporary", ["/proc/nowhere", None])
def test_with_no_folder_to_write_to_there_are_tiles_and_a_reason(temporary, compiler, monkeypatch):
    def none():
        raise FileNotFoundError("No usable temporary directory found")

    compiler()
    monkeypatch.setattr(tempfile, "gettempdir", none if temporary is None else lambda: temporary)
    found = problem()
    assert found.startswith("the compiled kernel can be kept or loaded nowhere: ")
    assert "/proc/nowhere" in found
    assert found.endswith("; PAIRCAPS_CACHE names a folder for it")


def test_the_user_is_told_if_there_is_no_folder_at_all(compiler, monkeypatch):
    compiler()
    monkeypatch.setattr(native_build, "cache_folders", list)
    assert "neither the user's home nor a folder of temporary files is known" in problem()


def test_a_file_in_the_way_of_the_folder_is_named(compiler, tmp_path):
    compiler()
    (tmp_path / "cache").write_text("a file")
    assert "File exists" in problem()
    assert str(tmp_path / "cache") in problem()
    assert (tmp_path / "cache").read_text() == "a file"


def test_the_folder_may_be_the_one_that_we_are_in(compiler, tmp_path, monkeypatch):
    compiler()
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("PAIRCAPS_CACHE", ".")
    assert problem() is None
    assert len(files(tmp_path / "here")) == 1


def test_a_source_that_is_missing_is_said(compiler, tmp_path, monkeypatch):
    compiler()
    monkeypatch.setattr(native_build, "SOURCE", tmp_path / "votes.c")
    assert "No such file" in problem()


def test_a_full_disk_is_said(compiler):
    compiler("echo 'ld: final link failed: No space left on device' >&2; exit 1")
    assert "no space left on the device" in problem()


# --- what is in the folder --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", ["truncated", "emptied", "a byte changed"])
def test_a_damaged_library_is_built_again(damage, compiler, tmp_path):
    """Loading a truncated library kills the process with SIGBUS: what it contains is compared before."""
    compiler()
    problem()
    (name,) = files(tmp_path / "cache")
    library = tmp_path / "cache" / name
    whole = library.read_bytes()
    middle = len(whole) // 2
    changed = whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
    library.unlink()  # this process has the old one loaded
    library.write_bytes({"truncated": whole[:8192], "emptied": b"", "a byte changed": changed}[damage])
    library.chmod(0o700)
    assert problem() is None
    assert compiler.runs() == 2
    assert files(tmp_path / "cache") == [name]
    assert library.read_bytes() == whole


@pytest.mark.parametrize("which", ["library", "folder"])
def test_what_others_may_write_is_not_loaded(which, compiler, tmp_path):
    compiler()
    problem()
    (name,) = files(tmp_path / "cache")
    path = tmp_path / "cache" / name if which == "library" else tmp_path / "cache"
    path.chmod(0o777)
    assert f"{path} may be written by others" in problem()
    path.chmod(0o700)
    assert problem() is None


def test_nothing_is_built_in_a_folder_that_others_may_write(compiler, tmp_path):
    compiler()
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(0o777)
    assert "may be written by others" in problem()
    assert files(tmp_path / "cache") == []
    (tmp_path / "cache").chmod(0o1777)  # as /tmp: others may write files there, but not touch ours
    assert problem() is None


@pytest.mark.skipif(os.name != "posix" or os.getuid() != 0, reason="root alone can give a folder away")
@pytest.mark.parametrize("which", ["library", "folder"])
def test_what_belongs_to_others_is_not_loaded(which, compiler, tmp_path):
    compiler()
    problem()
    (name,) = files(tmp_path / "cache")
    os.chown(tmp_path / "cache" / name if which == "library" else tmp_path / "cache", 12345, 12345)
    assert "may be written by others" in problem()


def test_what_a_killed_build_has_left_is_removed_when_no_compiler_can_be_writing_it(compiler, tmp_path):
    compiler()
    folder = tmp_path / "cache"
    folder.mkdir(mode=0o700)
    for name, age in (("old", 2 * native_build.BUILD_SECONDS + 60), ("new", 0)):
        left = folder / f".votes-{name}.so"
        left.touch()
        os.utime(left, (time.time() - age,) * 2)
    assert problem() is None
    assert [name for name in files(folder) if name.startswith(".")] == [".votes-new.so"]


def test_processes_that_build_at_once_leave_one_file(compiler, tmp_path):
    """Each waits in the compiler until both are there."""
    compiler(f"while [ $(wc -l < {tmp_path}/runs) -lt 2 ]; do sleep 0.1; done")
    words = [sys.executable, "-c", LAYER]
    both = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    found = [json.loads(process.communicate()[0]) for process in both]
    assert [one["runs"] for one in found] == [True, True]
    assert found[0] == found[1]
    assert compiler.runs() == 2
    assert len(files(tmp_path / "cache")) == 1


# --- the real compiler ------------------------------------------------------------------------------------------------


def test_the_library_offers_what_it_should(built):
    library = native_build._load(built)
    for name in native_build.FUNCTIONS:
        assert getattr(library, name).argtypes == [ctypes.c_void_p]
    lanes, _ = native_build.INSTRUCTIONS[native_build.instructions()]
    assert library.paircaps_lanes() == lanes


@pytest.mark.parametrize(
    ("capability", "machine", "expected"),
    [
        ("AVX512", "x86_64", "AVX512"),
        ("AVX2", "x86_64", "AVX2"),
        ("AVX2", "AMD64", "AVX2"),
        ("DEFAULT", "x86_64", "portable"),
        ("NO AVX", "x86_64", "portable"),
        ("DEFAULT", "aarch64", "portable"),
        ("SVE256", "aarch64", "portable"),
    ],
)
def test_instructions_are_those_of_pytorch(capability, machine, expected, monkeypatch):
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    monkeypatch.setattr(native_build.platform, "machine", lambda: machine)
    assert native_build.instructions() == expected


# --- the setting ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["off", " OFF "])
def test_the_kernel_can_be_switched_off(value, compiler, monkeypatch):
    compiler()
    monkeypatch.setenv("PAIRCAPS_KERNEL", value)
    (kernel,) = [kernel for kernel in kernels() if kernel.name == "c"]
    assert (kernel.runs, kernel.why) == (False, "PAIRCAPS_KERNEL is off")
    assert compiler.runs() == 0  # nor is it built


@pytest.mark.parametrize("value", ["", "auto", "Auto"])
def test_a_setting_that_changes_nothing(value, compiler, monkeypatch):
    compiler()
    monkeypatch.setenv("PAIRCAPS_KERNEL", value)
    assert problem() is None


def test_a_wrong_setting_is_refused_in_words(monkeypatch):
    monkeypatch.setenv("PAIRCAPS_KERNEL", "on")
    with pytest.raises(PaircapsError, match="PAIRCAPS_KERNEL must be 'auto' or 'off', got 'on'"):
        kernels()


def test_the_command_line_refuses_a_wrong_setting_without_a_traceback(monkeypatch, capsys):
    from paircaps.cli import main

    monkeypatch.setenv("PAIRCAPS_KERNEL", "on")
    assert main(["info"]) != 0
    out, errors = capsys.readouterr()
    assert errors.strip() == "paircaps: PAIRCAPS_KERNEL must be 'auto' or 'off', got 'on'"
    assert "Traceback" not in out + errors
