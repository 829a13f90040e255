"""Commands in processes of their own, which do not load torch each time.

``Subprocesses`` starts one process that imports paircaps and then forks a child for every command. A child is a
process like any other: it can be killed, signalled, limited. ``KILL_AT`` makes it kill itself at its n-th fsync or
rename.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

READY = "ready"


class Subprocesses:
    """One process that forks others."""

    def __init__(self, folder):
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "XDG_CACHE_HOME": str(folder)}
        self.process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self.folder = folder
        assert self._answer() == READY

    def _answer(self):
        return json.loads(self.process.stdout.readline())

    def start(self, *words, kill_at=0, file_limit=0, name="command"):
        """Start a command and return its process."""
        log = self.folder / f"{name}-{time.monotonic_ns()}.log"
        log.touch()
        request = {"words": [str(w) for w in words], "kill_at": kill_at, "file_limit": file_limit, "log": str(log)}
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return Child(self, self._answer(), log)

    def run(self, *words, timeout=120, **options):
        """Run a command to its end; its exit code (negative for a signal) and its output."""
        child = self.start(*words, **options)
        return child.wait(timeout), child.said()

    def wait(self, pid, timeout):
        self.process.stdin.write(json.dumps({"wait": pid, "timeout": timeout}) + "\n")
        self.process.stdin.flush()
        return self._answer()

    def close(self):
        self.process.stdin.close()
        self.process.wait(20)
        self.process.stdout.close()


class Child:
    """A running command."""

    def __init__(self, subprocesses, pid, log):
        self.subprocesses, self.pid, self.log = subprocesses, pid, log

    def send(self, number):
        os.kill(self.pid, number)

    def wait(self, timeout=60):
        """The exit code; None if it was still running after the timeout and had to be killed."""
        return self.subprocesses.wait(self.pid, timeout)

    def wait_done(self):
        """True if it has ended; does not wait."""
        try:
            with open(f"/proc/{self.pid}/stat") as file:
                return file.read().rsplit(")", 1)[1].split()[0] == "Z"
        except FileNotFoundError:
            return True

    def said(self):
        text = self.log.read_text()
        assert "Traceback" not in text, text
        return text

    def wait_for(self, sign, timeout=60):
        """Wait until a function returns true."""
        end = time.monotonic() + timeout
        while not sign():
            assert time.monotonic() < end, f"never happened: {self.log.read_text()}"
            time.sleep(0.005)


def serve():
    import torch

    sys.path.insert(0, str(Path(__file__).parents[1]))
    from training.small import command

    from paircaps.cli import main

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(None):  # what a first run has to load
        main([*command(folder), "--train.steps", "1", "--quiet"])
    print(json.dumps(READY), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        if "wait" in request:
            print(json.dumps(reap(request["wait"], request["timeout"])), flush=True)
            continue
        pid = os.fork()
        if not pid:
            be_a_command(main, request)
        print(json.dumps(pid), flush=True)


def be_a_command(main, request):
    import resource

    log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    if request["kill_at"]:
        kill_at(request["kill_at"])
    if request["file_limit"]:  # no file may grow beyond: what a full disk looks like to a program
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (request["file_limit"],) * 2)
    try:
        code = main(request["words"])
    except SystemExit as stop:
        code = stop.code
    except BaseException:
        import traceback

        traceback.print_exc()
        code = 99
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code or 0)


def kill_at(count):
    """Kill this process just before its n-th fsync or rename, or just after the last one before it."""
    left = count

    def watched(real):
        def call(*arguments, **options):
            nonlocal left
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **options)

        return call

    for name in ("fsync", "rename", "replace"):
        setattr(os, name, watched(getattr(os, name)))


def reap(pid, timeout):
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return None


if __name__ == "__main__":
    serve()
