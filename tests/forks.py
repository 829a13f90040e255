"""Python code in processes of its own that do not load PyTorch each time.

One process loads PyTorch, and forks for each piece of code. The library is imported by the fork, so that it finds the
plug-ins and variables of its own environment.
"""

import json
import os
import subprocess
import sys

SERVER = """
import json, os, sys, torch, torch._dynamo, torch.optim
for line in sys.stdin:
    asked = json.loads(line)
    child = os.fork()
    if not child:
        for name, number in (("out", 1), ("errors", 2)):
            os.dup2(os.open(asked[name], os.O_WRONLY | os.O_CREAT), number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.chdir(asked["folder"])
        os.environ.clear()
        os.environ.update(asked["environment"])
        sys.path[:0] = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
        exec(asked["code"], {"__name__": "__main__"})
        sys.exit()
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Forks:
    """One process that forks others, one at a time.

    Args:
        folder: for the files that they print to.
    """

    def __init__(self, folder):
        words = [sys.executable, "-P", "-c", SERVER]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.folder = folder

    def run(self, code, folder=None):
        """Run code to its end: exit code, output, errors."""
        files = {name: self.folder / name for name in ("out", "errors")}
        for file in files.values():
            file.unlink(missing_ok=True)
        asked = {"code": code, "folder": str(folder or os.getcwd()), "environment": dict(os.environ)}
        asked |= {name: str(file) for name, file in files.items()}
        print(json.dumps(asked), file=self.process.stdin, flush=True)
        return int(self.process.stdout.readline()), *(file.read_text() for file in files.values())

    def close(self):
        """End the process."""
        self.process.communicate(timeout=20)
