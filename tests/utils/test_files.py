import os
import subprocess
import sys
from pathlib import Path

import pytest

from paircaps._utils.files import write_together, write_whole


def test_a_file_is_written_with_the_usual_rights(tmp_path):
    write_whole(tmp_path / "a", b"one")
    write_whole(tmp_path / "a", b"two")
    assert (tmp_path / "a").read_bytes() == b"two"
    (tmp_path / "usual").write_text("")
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "usual").stat().st_mode


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_what_fails_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, error):
    def fail(_):
        raise error

    write_whole(tmp_path / "a", b"old")
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(type(error)):
        write_whole(tmp_path / "a", b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_bytes() == b"old"


def test_a_device_is_written_to_and_kept():
    write_whole(Path("/dev/null"), b"x")
    assert not Path("/dev/null").is_file()
    with pytest.raises(OSError, match="No space left"):
        write_whole(Path("/dev/full"), b"x")


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "target").write_bytes(b"old")
    (tmp_path / "link").symlink_to("target")
    write_whole(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_bytes() == b"new"


def test_a_full_disk_leaves_nothing_of_a_new_file(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space left"):
        write_whole(tmp_path / "new", b"x")
    assert list(tmp_path.iterdir()) == []


KILLED = """
import os, signal, sys
from pathlib import Path
from paircaps._utils import files
os.fsync = lambda _: (print("here", flush=True), signal.pause())
files.write_whole(Path(sys.argv[1]), b"half")
"""


def test_what_a_killed_process_left_is_removed_by_the_next_and_what_a_living_one_writes_is_not(tmp_path):
    path = tmp_path / "table4-a.png"
    words = [sys.executable, "-c", KILLED, str(path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        write_whole(path, b"one")
        left = [other for other in tmp_path.iterdir() if other != path]
        assert len(left) == 1, "it is still being written"
        process.kill()
        process.wait()
    mine = tmp_path / ".table4-a.png.swp"
    mine.write_text("not ours")
    write_whole(path, b"two")
    assert sorted(tmp_path.iterdir()) == [mine, path]
    assert path.read_bytes() == b"two"


def test_files_of_one_export_are_written_all_or_none(tmp_path):
    write_together({tmp_path / "a": b"old"})
    with pytest.raises(OSError, match="No such file"):
        write_together({tmp_path / "a": b"new", tmp_path / "none" / "b": b"new"})
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("a", b"old")]
    write_together({tmp_path / "a": b"new", tmp_path / "b": b"too"})
    assert sorted((path.name, path.read_bytes()) for path in tmp_path.iterdir()) == [("a", b"new"), ("b", b"too")]
