"""Signals, full disks and locked folders: a run stops in an orderly way, and its message gives the reason."""

import contextlib
import fcntl
import json
import os
import pty
import signal
import subprocess
import sys
import termios
import threading
import time
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from training.small import checkpoints, command, results

from paircaps.errors import TrainingError
from paircaps.training.assemble import training_loader
from paircaps.training.checkpoints import newest_checkpoint
from paircaps.training.datasets import load_datasets
from paircaps.training.distributed import Processes
from paircaps.training.logging import MetricsFile
from paircaps.training.run_folder import RunFolder
from paircaps.training.signals import Stopped, StopSignals

LONG = ("--train.epochs", 500, "--run.checkpoint_every", 10_000)


def started(subprocesses, folder, *more):
    """A long training that has taken a few steps."""
    child = subprocesses.start(*command(folder, *LONG, *more))
    metrics = folder / "metrics.jsonl"
    child.wait_for(lambda: metrics.exists() and metrics.stat().st_size)
    return child


def size_of(path):
    return path.stat().st_size if path.exists() else 0


def ended_or_grown(child, path, size):
    return child.wait_done() or size_of(path) > size


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_saves_and_ends(subprocesses, tmp_path, number, code):
    child = started(subprocesses, tmp_path / "run")
    begin = time.monotonic()
    child.send(number)
    assert child.wait(10) == code
    assert time.monotonic() - begin < 10
    assert signal.Signals(number).name in child.said()
    found, complaints = newest_checkpoint(tmp_path / "run" / "checkpoints")
    assert not complaints
    assert found.facts["counters"]["step"] >= 3
    last = json.loads((tmp_path / "run" / "timing.jsonl").read_text().splitlines()[-1])
    assert last["end"] == found.facts["counters"]["step"]


def test_under_nohup_a_closed_terminal_changes_nothing():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with StopSignals() as stop:
            os.kill(os.getpid(), signal.SIGHUP)
        assert stop.number == 0
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_closed_terminal_saves_and_ends(tmp_path):
    """Everything that is then written to it fails; a terminal of its own, because a shell's sends the signal itself."""
    ours, its = pty.openpty()

    def take_terminal():
        os.setsid()
        fcntl.ioctl(its, termios.TIOCSCTTY, 0)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests themselves may run under nohup

    words = [sys.executable, "-m", "paircaps", *command(tmp_path / "run", *LONG)]
    process = subprocess.Popen(words, stdin=its, stdout=its, stderr=its, preexec_fn=take_terminal)
    try:
        os.close(its)
        reader = threading.Thread(target=drain, args=(ours, metrics := tmp_path / "run" / "metrics.jsonl"), daemon=True)
        reader.start()
        reader.join(60)
        assert size_of(metrics)
        os.close(ours)
        assert process.wait(20) == 128 + signal.SIGHUP
    finally:
        process.kill()
        process.wait()
    assert newest_checkpoint(tmp_path / "run" / "checkpoints")[0].facts["counters"]["step"] >= 3


def drain(terminal, until):
    """Read what is written to a terminal until a file has content."""
    while not size_of(until):
        with contextlib.suppress(BlockingIOError):
            os.read(terminal, 1000)


def test_signals_by_the_dozen_corrupt_nothing(subprocesses, tmp_path):
    subprocesses.run(*command(tmp_path / "whole"))
    folder, stops = tmp_path / "run", 0
    for _ in range(40):
        child = subprocesses.start(*command(folder))
        child.wait_for(partial(ended_or_grown, child, folder / "metrics.jsonl", size_of(folder / "metrics.jsonl")))
        for _ in range(12):  # the first is heeded, the others come while it saves
            if not child.wait_done():
                child.send(signal.SIGINT)
            time.sleep(0.004)
        code = child.wait(20)
        assert code in (0, 130), child.said()
        # It was saved, not torn off. A later signal of the dozen may come when the model is written and nobody listens
        # any more: it ends a process that had nothing left to do.
        finished = (folder / "model.json").exists()
        assert code == 0 or finished or "stopped by SIGINT at step" in child.said(), child.said()
        stops += code == 130
        if code == 0:
            break
    assert stops >= 2
    assert results(folder) == results(tmp_path / "whole")


def test_a_signal_in_the_middle_of_a_validation_stops_it(subprocesses, tmp_path):
    slow = ("--data.limit", 1500, "--data.validation", 0.9, "--evaluate.batch_size", 1, "--train.log_every", 1)
    child = subprocesses.start(*command(tmp_path / "run", *slow))
    child.wait_for(lambda: "step 4/" in child.said())  # 150 images make four steps
    time.sleep(0.3)
    begin = time.monotonic()
    child.send(signal.SIGTERM)
    assert child.wait(10) == 143
    assert time.monotonic() - begin < 2  # 1,350 images one by one take longer
    counters = newest_checkpoint(tmp_path / "run" / "checkpoints")[0].facts["counters"]
    assert (counters["step"], counters["evaluated"]) == (4, -1)


def test_a_long_operation_cannot_keep_a_stopped_process_alive():
    """Python's own handler waits until the operation returns; the listening thread does not."""
    code = (
        "import hashlib, os, signal; from paircaps.training.signals import StopSignals\n"
        "with StopSignals(patience=0.5):\n"
        "    print('ready', flush=True)\n"
        "    hashlib.pbkdf2_hmac('sha256', b'a', b'b', 400_000_000)\n"  # minutes, without a look at signals
    )
    reset = partial(signal.signal, signal.SIGINT, signal.default_int_handler)
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=reset
    ) as process:
        try:
            process.stdout.readline()
            time.sleep(0.2)
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=8)
        finally:
            process.kill()
    assert process.returncode == 130
    assert b"in the middle of a step; the newest checkpoint stands" in said


def test_a_disk_that_fills_up_while_a_row_is_written(tmp_path):
    metrics = MetricsFile(RunFolder(tmp_path), 0)
    metrics._file.close()
    metrics._file = Path("/dev/full").open("ab", buffering=0)  # noqa: SIM115
    with pytest.raises(TrainingError, match=r"metrics.jsonl: cannot write a row: No space left on device"):
        metrics.add({"step": 1})
    metrics.close()  # leaves nothing that would fail once more


def test_a_full_disk_leaves_the_checkpoint_before_it(subprocesses, tmp_path):
    folder = tmp_path / "run"
    subprocesses.run(*command(tmp_path / "whole"))
    child = subprocesses.start(*command(folder))
    child.wait_for(lambda: "step-00000004" in (checkpoints(folder) if (folder / "checkpoints").exists() else []))
    child.send(signal.SIGKILL)
    child.wait()
    before = checkpoints(folder)
    code, said = subprocesses.run(*command(folder), file_limit=5_000_000)
    assert code == 1
    assert "cannot write the checkpoint: File too large. Earlier checkpoints are as they were" in said
    assert [name for name in checkpoints(folder) if not name.startswith(".")] == [
        name for name in before if not name.startswith(".")
    ]
    code, said = subprocesses.run(*command(folder))
    assert code == 0, said
    assert results(folder) == results(tmp_path / "whole")


def test_a_folder_that_cannot_be_written_is_refused_before_the_first_step(subprocesses, tmp_path):
    folder = tmp_path / "locked"
    folder.mkdir()
    folder.chmod(0o555)
    place = folder / "run" if os.geteuid() else "/proc/paircaps"  # root may write to the former
    code, said = subprocesses.run(*command(place))
    assert code == 1
    assert f"{place}: cannot write to this folder" in said
    assert "step" not in said
    (tmp_path / "file").write_text("")
    code, said = subprocesses.run(*command(tmp_path / "file"))
    assert code == 1
    assert "is a file; --out takes a folder" in said


def test_two_trainings_in_one_folder(subprocesses, tmp_path):
    first = started(subprocesses, tmp_path / "run")
    code, said = subprocesses.run(*command(tmp_path / "run", *LONG))
    assert code == 1
    assert f"another training is writing to this folder, process {first.pid}" in said
    first.send(signal.SIGKILL)  # a dead one's lock does not block
    assert first.wait() == -signal.SIGKILL
    second = subprocesses.start(*command(tmp_path / "run", *LONG))
    second.wait_for(lambda: "going on from step" in second.said())
    second.send(signal.SIGTERM)
    assert second.wait(10) == 143


def test_a_training_whose_lock_was_removed_writes_no_more(subprocesses, tmp_path):
    """A second one then takes the folder; only one of them may go on."""
    folder = tmp_path / "run"
    subprocesses.run(*command(tmp_path / "whole", "--train.epochs", 20))
    first = subprocesses.start(*command(folder, "--train.epochs", 20))
    first.wait_for(lambda: size_of(folder / "metrics.jsonl"))
    (folder / ".lock").unlink()
    second = subprocesses.start(*command(folder, "--train.epochs", 20))
    assert first.wait(60) == 1
    assert f"{folder}: its lock, .lock, was removed while this training held it" in first.said()
    assert second.wait(60) == 0, second.said()
    assert results(folder) == results(tmp_path / "whole")


def test_a_different_recipe_is_refused_and_the_difference_shown(subprocesses, tmp_path):
    folder = tmp_path / "run"
    code, _ = subprocesses.run(*command(folder, "--train.steps", 1))
    assert code == 0
    before = results(folder)
    code, said = subprocesses.run(*command(folder, "--train.steps", 2, "--model.routing", "dynamic"))
    assert code == 1
    assert 'model.routing: "fm" there, "dynamic" here' in said
    assert "train.steps: 1 there, 2 here" in said
    assert "seed" not in said
    assert results(folder) == before
    code, _ = subprocesses.run(*command(folder, "--train.steps", 1, "--run.keep", 5))  # how, not what
    assert code == 0
    code, _ = subprocesses.run(*command(folder, "--train.steps", 2, "--model.routing", "dynamic", "--fresh"))
    assert code == 0
    assert json.loads((folder / "model.json").read_text())["arguments"]["routing"] == "dynamic"


def test_a_folder_with_parts_of_a_run_is_not_taken_over(subprocesses, tmp_path):
    (tmp_path / "metrics.jsonl").write_text("mine\n")
    code, said = subprocesses.run(*command(tmp_path))
    assert code == 1
    assert "holds metrics.jsonl, but not of a run" in said
    assert (tmp_path / "metrics.jsonl").read_text() == "mine\n"


@pytest.mark.parametrize("fresh", [True, False])
def test_what_no_training_wrote_is_never_removed(subprocesses, tmp_path, fresh):
    mine = {"config.toml": '{"other": 1}', "model.json": "{}", "checkpoints/mine.txt": "x", ".config.toml.swp": "x"}
    (tmp_path / "checkpoints").mkdir()
    for name, text in mine.items():
        (tmp_path / name).write_text(text)
    code, said = subprocesses.run(*command(tmp_path, *(["--fresh"] if fresh else [])))
    assert code == 1
    assert "config.toml: no recipe of this version" in said
    assert {name: (tmp_path / name).read_text() for name in mine} == mine
    (tmp_path / "config.toml").unlink()
    code, said = subprocesses.run(*command(tmp_path, *(["--fresh"] if fresh else [])))
    assert code == 1
    assert "holds model.json, checkpoints, but not of a run" in said
    assert (tmp_path / "checkpoints" / "mine.txt").exists()


def test_fresh_removes_a_run_and_nothing_else(subprocesses, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    subprocesses.run(*command(tmp_path, "--train.steps", 1))
    (tmp_path / "checkpoints" / "notes.txt").write_text("mine")
    (tmp_path / ".metrics.jsonl.swp").write_text("mine")
    code, _ = subprocesses.run(*command(tmp_path, "--train.steps", 1, "--train.seed", 1, "--fresh"))
    assert code == 1  # one file of its folders is not its own
    (tmp_path / "checkpoints" / "notes.txt").unlink()
    (tmp_path / "checkpoints").rmdir()
    code, _ = subprocesses.run(*command(tmp_path, "--train.steps", 1, "--train.seed", 1, "--fresh"))
    assert code == 0
    assert (tmp_path / "notes.txt").read_text() == (tmp_path / ".metrics.jsonl.swp").read_text() == "mine"


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_loss_that_is_not_finite_stops_before_the_update(subprocesses, tmp_path, precision):
    folder = tmp_path / "run"
    wild = ("--optimiser.lr", 1e38, "--optimiser.name", "sgd", "--schedule.name", "constant")
    wild += ("--train.precision", precision, "--run.checkpoint_every", 1)
    code, said = subprocesses.run(*command(folder, *wild))
    assert code == 1
    assert "is not finite" in said
    assert f"paircaps replay {folder}" in said
    step = int(said.split("stopped before step ")[1].split()[0])
    found, _ = newest_checkpoint(folder / "checkpoints")
    assert found.facts["counters"]["step"] == step - 1  # nothing was updated
    assert not (folder / "model.json").exists()

    recipe = RunFolder(folder).read_recipe()
    batch = training_loader(recipe, load_datasets(recipe.data), Processes()).batch(0, step - 1)
    saved = load_file(folder / "failure" / "batch.safetensors")
    assert step > 1  # or any batch would do
    assert torch.equal(saved["index"], batch.index)
    assert torch.equal(saved["images"], batch.images)

    code, shown = subprocesses.run("replay", folder, "--json")
    assert code == 0
    shown = json.loads(shown)
    assert shown["step"] == step
    assert shown["shown_again"]
    assert shown["loss"] == shown["reported_loss"]
    assert shown["layers"]
    assert shown["gradients"]

    code, again = subprocesses.run(*command(folder, *wild))  # the same step, the same words
    assert code == 1
    assert f"stopped before step {step}" in again


def test_nothing_to_replay(subprocesses, tmp_path):
    code, said = subprocesses.run("replay", tmp_path)
    assert code == 1
    assert "nothing to replay" in said
    assert subprocesses.run("replay", tmp_path / "nowhere")[0] == 1


def stopped_within(heed):
    """Get a signal in a block that looks for signals, and heeds it or not."""
    with StopSignals() as stop:
        signal.raise_signal(signal.SIGINT)
        if heed:
            raise Stopped(stop.number, 3)


def test_a_signal_that_comes_as_the_block_ends_is_not_lost():
    # `paircaps demo` went on with its next network: the signal came after the training had looked for the last time
    with pytest.raises(KeyboardInterrupt):
        stopped_within(heed=False)


def test_a_signal_that_the_block_has_heeded_is_not_raised_again():
    with pytest.raises(Stopped):
        stopped_within(heed=True)
