"""Which cores a process may use and which are free, and the variable that lets idle threads sleep."""

import os
import subprocess
import sys

import pytest

from paircaps._utils import processors
from paircaps._utils.processors import SPIN_VARIABLES, allowed_cores, free_cores, has_fast_bfloat16, limit_spinning


@pytest.fixture(autouse=True)
def _eight_cores(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 16)
    monkeypatch.setattr(processors, "_PAUSE", 0)


def test_spinning_is_limited_where_nobody_chose_otherwise():
    environment = {"HOME": "/root"}
    limit_spinning(environment)
    assert environment == {"HOME": "/root", "GOMP_SPINCOUNT": "20000"}


@pytest.mark.parametrize("name", SPIN_VARIABLES)
@pytest.mark.parametrize("value", ["0", "infinity", ""])
def test_what_the_user_chose_stays(name, value):
    environment = {name: value}
    limit_spinning(environment)
    assert environment == {name: value}


def test_the_command_limits_spinning_before_torch_is_loaded():
    program = (
        "import os, sys, paircaps.__main__ as command\n"
        "assert 'torch' not in sys.modules\n"
        "sys.argv = ['paircaps', '--version']\n"
        "try:\n    command.main()\nexcept SystemExit:\n    pass\n"
        "print(os.environ['GOMP_SPINCOUNT'])\n"
    )
    environment = {name: value for name, value in os.environ.items() if name not in SPIN_VARIABLES}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "20000"


def folder_with(path, **files):
    """A folder of limits; ``cpu_max`` is written to cpu.max, the others to those of version 1."""
    names = {"cpu_max": "cpu.max", "quota": "cpu/cpu.cfs_quota_us", "period": "cpu/cpu.cfs_period_us"}
    for key, text in files.items():
        file = path / names[key]
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    return path


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({"cpu_max": "400000 100000\n"}, 4),
        ({"cpu_max": "250000 100000\n"}, 3),
        ({"cpu_max": "1000 100000\n"}, 1),
        ({"cpu_max": "9900000 100000\n"}, 8),
        ({"cpu_max": "max 100000\n"}, 8),
        ({"cpu_max": "max 100000\n", "quota": "100000", "period": "100000"}, 8),
        ({"quota": "200000\n", "period": "100000\n"}, 2),
        ({"quota": "150000\n", "period": "100000\n"}, 2),
        ({"quota": "-1\n", "period": "100000\n"}, 8),
        ({"quota": "200000\n"}, 8),
        ({"quota": "200000\n", "period": "0\n"}, 8),
        ({"cpu_max": "200000 0\n"}, 8),
        ({"cpu_max": "much\n"}, 8),
        ({"cpu_max": "much more\n"}, 8),
        ({"cpu_max": "", "quota": "200000\n", "period": "100000\n"}, 2),
        ({"quota": "much\n", "period": "100000\n"}, 8),
        ({}, 8),
    ],
    ids=str,
)
def test_allowed_cores_follow_the_limits_of_the_container(tmp_path, files, cores):
    assert allowed_cores(folder_with(tmp_path, **files)) == cores


def test_without_a_folder_of_limits_the_affinity_counts(tmp_path, monkeypatch):
    assert allowed_cores(tmp_path / "none") == 8
    monkeypatch.delattr(os, "sched_getaffinity")
    assert allowed_cores(tmp_path / "none") == 16
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert allowed_cores(tmp_path / "none") == 1


@pytest.mark.parametrize(
    ("running", "free"),
    [(1, 6), (2, 6), (11, 6), (12, 5), (13, 4), (16, 1), (17, 1), (40, 1), (None, 6)],
)
def test_free_cores_are_allowed_and_not_used_by_others(monkeypatch, running, free):
    monkeypatch.setattr(processors, "allowed_cores", lambda: 6)
    assert free_cores(lambda: running) == free


def test_a_moment_does_not_decide_how_many_cores_are_free(monkeypatch):
    monkeypatch.setattr(processors, "allowed_cores", lambda: 16)
    counts = iter([100, 5, 1, 5, 5, 100, 5, 5, 1, 5])
    assert free_cores(lambda: next(counts)) == 12
    assert not list(counts)


def test_free_cores_of_this_machine_are_at_least_one():
    assert 1 <= free_cores() <= 8


FLAGS = "processor\t: 0\nmodel name\t: a processor\nflags\t\t: fpu {} sse4_2\nbugs\t: amx_bf16\n"


@pytest.mark.parametrize(
    ("text", "fast"),
    [
        (FLAGS.format("avx512_bf16"), True),
        (FLAGS.format("amx_bf16 amx_tile"), True),
        (FLAGS.format("avx512f avx2"), False),
        (FLAGS.format("avx512_bf16x"), False),
        ("processor\t: 0\nFeatures\t: fp asimd bf16\n", False),
        ("", False),
    ],
)
def test_flags_tell_of_fast_bfloat16(tmp_path, text, fast):
    (tmp_path / "cpuinfo").write_text(text)
    assert has_fast_bfloat16(tmp_path / "cpuinfo") is fast


def test_without_a_description_bfloat16_is_not_fast(tmp_path):
    assert has_fast_bfloat16(tmp_path / "none") is False
