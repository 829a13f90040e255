"""Two processes compute what one does; when one dies, all end, and the next start continues."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time

import pytest
import torch
from training.processes import alive, children
from training.small import command, fast_command

from paircaps.training.checkpoints import newest_checkpoint
from paircaps.training.run_folder import checkpoint_steps


def torchrun(folder, *more, command=command):
    """The same command in two processes, in a process group that can be ended at once."""
    words = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "0"]
    words += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", "-m", "paircaps"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [*words, *command(folder, *more)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
        start_new_session=True,
    )


def end(process):
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def rows(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("streaming", ["false", "true"])
def test_two_processes_follow_one_to_float_error(subprocesses, tmp_path, streaming):
    """Batch norm and gradients cover the images of both. With SGD, because Adam turns rounding errors into steps."""
    sgd = ("--optimiser.name", "sgd", "--optimiser.lr", 0.02, "--model.options.streaming", streaming)
    sgd += ("--model.options.widths", "[8,8,8]")  # the fewer sums, the less their order matters
    process = torchrun(tmp_path / "two", *sgd)
    try:
        said, _ = process.communicate(timeout=150)
    finally:
        end(process)
    assert process.returncode == 0, said
    code, said = subprocesses.run(*command(tmp_path / "one", *sgd))
    assert code == 0, said
    for two, one in zip(rows(tmp_path / "two"), rows(tmp_path / "one"), strict=True):
        assert two["kind"] == one["kind"]
        for name in {"loss", "train_loss", "validation_loss", "lr"} & one.keys():
            assert two[name] == pytest.approx(one[name], rel=1e-5), (two, one)
    two, one = (newest_checkpoint(tmp_path / name / "checkpoints")[0].tensors for name in ("two", "one"))
    assert two.keys() == one.keys()
    for name, value in one.items():
        torch.testing.assert_close(two[name], value, rtol=1e-2, atol=1e-3)


def test_two_processes_train_a_fast_network_with_the_same_stem(subprocesses, tmp_path):
    """In float32, and only as far as Muon's bfloat16 lets two orders of summation agree."""
    words = ("--train.precision", "fp32", "--run.threads", 1)
    process = torchrun(tmp_path / "two", *words, command=fast_command)
    try:
        said, _ = process.communicate(timeout=150)
    finally:
        end(process)
    assert process.returncode == 0, said
    code, said = subprocesses.run(*fast_command(tmp_path / "one", *words))
    assert code == 0, said
    two, one = (newest_checkpoint(tmp_path / name / "checkpoints")[0].tensors for name in ("two", "one"))
    assert two.keys() == one.keys()
    stem = "network/model.backbone.stem.weight"
    assert torch.equal(two[stem], one[stem])
    assert not torch.equal(one[stem][:1], one[stem][:1].round()), (
        "it was fitted: filters that pick a pixel have 0 and 1"
    )
    for row, other in zip(rows(tmp_path / "two"), rows(tmp_path / "one"), strict=True):
        for name in {"loss", "train_loss", "lr"} & row.keys():
            assert row[name] == pytest.approx(other[name], rel=0.02), (row, other)
    assert rows(tmp_path / "two")[0]["loss"] == pytest.approx(rows(tmp_path / "one")[0]["loss"], rel=1e-3)


def test_when_the_first_cannot_start_nobody_waits_for_it(subprocesses, tmp_path):
    code, said = subprocesses.run(*command(tmp_path / "run", "--train.steps", 1))
    assert code == 0, said
    process = torchrun(tmp_path / "run", "--train.steps", 2)
    try:
        said, _ = process.communicate(timeout=60)
    finally:
        end(process)
    assert process.returncode != 0
    assert "holds a run of another recipe" in said
    assert "another process could not go on; its message says why" in said


def test_a_killed_rank_ends_all_and_the_next_start_goes_on(tmp_path):
    folder = tmp_path / "run"
    process = torchrun(folder, "--train.epochs", "300")
    try:
        wait_until(lambda: checkpoint_steps(folder / "checkpoints")[:1] >= [4], process)
        victims = children(process.pid)
        assert len(victims) == 2
        os.kill(victims[1], signal.SIGKILL)
        begin = time.monotonic()
        said, _ = process.communicate(timeout=30)
        assert time.monotonic() - begin < 30
        assert process.returncode != 0
        assert not any(alive(pid) for pid in victims)
        step = checkpoint_steps(folder / "checkpoints")[0]

        process = torchrun(folder, "--train.epochs", "300")
        wait_until(lambda: checkpoint_steps(folder / "checkpoints")[0] > step, process)
        for pid in children(process.pid):
            os.kill(pid, signal.SIGTERM)
        said, _ = process.communicate(timeout=30)
        assert f"going on from step {step}" in said
        assert "stopped by SIGTERM at step" in said
    finally:
        end(process)


def test_processes_that_lost_their_torchrun_save_and_end(tmp_path):
    folder = tmp_path / "run"
    process = torchrun(folder, "--train.epochs", "300", "--run.checkpoint_every", "10000", "--evaluate.every", "300")
    try:
        wait_until(lambda: (folder / "metrics.jsonl").exists() and rows(folder), process)
        left = children(process.pid)
        assert len(left) == 2
        process.kill()
        stop = time.monotonic() + 30
        while any(alive(pid) for pid in left):
            assert time.monotonic() < stop, "they train on"
            time.sleep(0.05)
        said, _ = process.communicate(timeout=30)
    finally:
        end(process)
    assert "torchrun, which started this process, has ended" in said
    assert "stopped by SIGTERM at step" in said
    found, complaints = newest_checkpoint(folder / "checkpoints")
    assert not complaints
    assert found.facts["counters"]["step"] >= rows(folder)[-1]["step"] > 0


def wait_until(sign, process, timeout=90):
    stop = time.monotonic() + timeout
    while not sign():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < stop
        time.sleep(0.02)
