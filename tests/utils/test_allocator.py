import subprocess
import sys

import pytest

from paircaps._utils.allocator import VARIABLES, keep_freed_memory

LARGE = """
import resource, sys, torch
from paircaps._utils.allocator import keep_freed_memory

def touched_first():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.empty(16 << 20).fill_(1)  # 64 MB, 16,384 pages
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

changed = sys.argv[1] == "keep" and keep_freed_memory({})
# the first pieces may lack the few bytes by which the next one is aligned, if something small lies beside them
print(changed, min([touched_first() for _ in range(8)][1:]))
"""


@pytest.mark.parametrize("name", VARIABLES)
def test_what_the_user_has_chosen_stays(name):
    assert not keep_freed_memory({name: "something"})


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc is Linux's")
def test_large_memory_is_cleared_by_the_system_only_once():
    def pages(how):
        words = [sys.executable, "-c", LARGE, how]
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()

    # where the system puts the heap differs from process to process, and with it what lies beside a piece
    kept, returned = [pages("keep") for _ in range(5)], pages("default")
    if kept[0][0] != "True":
        pytest.skip("another library than glibc")
    assert min(int(count) for _, count in kept) < 0.01 * int(returned[1])


def test_other_systems_are_left_alone(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not keep_freed_memory({})
