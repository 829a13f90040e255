"""Trainings over two hosts, which are network namespaces of this one."""

import json
import os
import re
import signal
import time
from contextlib import suppress

import pytest
from training.processes import alive, children
from training.small import command
from training.two_hosts import two_hosts

from paircaps.training.checkpoints import newest_checkpoint
from paircaps.training.run_folder import checkpoint_steps

# the fewer sums, the less their order matters; Adam would turn rounding errors into steps
SAME = ("--optimiser.name", "sgd", "--optimiser.lr", 0.02, "--model.options.widths", "[8,8,8]", "--train.epochs", 12)
TIMEOUT = 6


@pytest.fixture
def hosts():
    with two_hosts() as pair:
        yield pair


@pytest.fixture
def start(hosts, tmp_path):
    """Start a command on both hosts, together by torchrun or each alone; what still runs at the end is ended."""
    started = []

    def start_both(*words, alone=False):
        logs = [tmp_path / f"{host.name}-{len(started)}.log" for host in hosts]
        pair = [
            (host.paircaps if alone else host.torchrun)(*words, log=log) for host, log in zip(hosts, logs, strict=True)
        ]
        started.extend(pair)
        return pair, logs

    yield start_both
    for process in started:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def rows(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def wait_until(sign, processes, logs, seconds=120):
    end = time.monotonic() + seconds
    while not sign():
        assert all(process.poll() is None for process in processes), [log.read_text() for log in logs]
        assert time.monotonic() < end, [log.read_text() for log in logs]
        time.sleep(0.02)


def ranks(process):
    """Processes that torchrun started; ``ip netns exec`` becomes torchrun itself."""
    return children(process.pid)


def test_two_hosts_train_what_one_process_does_also_after_their_link_was_cut(subprocesses, hosts, start, tmp_path):
    folder = tmp_path / "two"
    words = command(folder, *SAME, "--run.timeout", TIMEOUT)

    # in the middle the link is cut
    processes, logs = start(*words)
    wait_until(lambda: checkpoint_steps(folder / "checkpoints")[:1] >= [8], processes, logs)
    trainings = [pid for process in processes for pid in ranks(process)]
    assert len(trainings) == 2
    hosts[0].set_link("down")
    begin = time.monotonic()
    while any(alive(pid) for pid in trainings):
        assert time.monotonic() - begin < TIMEOUT + 10, [log.read_text() for log in logs]  # and time to end
        time.sleep(0.05)
    for log in logs:
        assert "lost another process of this training; the next start goes on" in log.read_text()
    found, complaints = newest_checkpoint(folder / "checkpoints")
    assert not complaints
    step = found.facts["counters"]["step"]
    assert not (folder / "model.json").exists()

    # it is restored, which ends the torchrun that had lost the other; the same command goes on to the end
    hosts[0].set_link("up")
    for process, log in zip(processes, logs, strict=True):
        assert process.wait(60) != 0, log.read_text()
    processes, logs = start(*words)
    for process, log in zip(processes, logs, strict=True):
        assert process.wait(180) == 0, log.read_text()
    assert f"going on from step {step}" in logs[0].read_text() + logs[1].read_text()

    # the same losses as one process
    code, said = subprocesses.run(*command(tmp_path / "one", *SAME))
    assert code == 0, said
    for two, one in zip(rows(folder), rows(tmp_path / "one"), strict=True):
        assert two["kind"] == one["kind"]
        for name in {"loss", "train_loss", "validation_loss", "lr"} & one.keys():
            assert two[name] == pytest.approx(one[name], rel=1e-3), (two, one)


def test_two_hosts_divide_the_trainings_of_an_experiment(start, tmp_path):
    """They share a folder and nothing else: the locks of its trainings decide who trains what."""
    out = tmp_path / "results"
    few = ("--limit", 256, "--epochs", 1, "--only", "fm", "--only", "pool", "--seeds", 3)
    processes, logs = start("reproduce", "table5", *few, "--out", out, "--quiet", alone=True)
    for process, log in zip(processes, logs, strict=True):
        assert process.wait(180) == 0, log.read_text()
    trained = [re.findall(r"\] (.*, seed \d): [\d.]+ % in the test", log.read_text()) for log in logs]
    assert all(trained), "each has trained some"
    assert len(trained[0] + trained[1]) == len({*trained[0], *trained[1]}) == 6, "and none twice"
    starts = [path.read_text().count('"start"') for path in out.rglob("timing.jsonl")]
    assert starts == [1] * 6
    assert "another process is training it, so it is skipped here" in logs[0].read_text() + logs[1].read_text()
