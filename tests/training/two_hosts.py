"""Two hosts on one machine: network namespaces joined by a pair of virtual Ethernet devices, by Debian's iproute2."""

import os
import secrets
import shutil
import subprocess
import sys
from contextlib import contextmanager

import pytest


class Host:
    """One of two hosts.

    Args:
        number: 1 or 2.
        tag: what the names of this pair of hosts have in common.
    """

    def __init__(self, number, tag):
        self.number, self.address = number, f"10.213.77.{number}"
        self.name, self.device = f"paircaps-{tag}-{number}", f"pc{tag}{number}"

    def start(self, *words, log, **environment):
        """Start a command on this host, in a session of its own; what it prints goes to a file."""
        with log.open("ab") as file:
            return subprocess.Popen(
                ["ip", "netns", "exec", self.name, *map(str, words)],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
                start_new_session=True,
            )

    def paircaps(self, *words, log):
        """Start a command on this host alone, without data but what it draws."""
        nothing = str(log.parent / "no-data")
        return self.start(sys.executable, "-m", "paircaps", *words, log=log, PAIRCAPS_DATA="", XDG_CACHE_HOME=nothing)

    def torchrun(self, *words, log):
        """Start a command as one of two processes of torchrun, whose meeting point is host 1."""
        meeting = ("--rdzv-backend", "c10d", "--rdzv-endpoint", "10.213.77.1:29500", "--local-addr", self.address)
        meeting += ("--rdzv-conf", f"is_host={self.number == 1}")  # the name of this machine leads to no namespace
        torchrun = (sys.executable, "-m", "torch.distributed.run", "--nnodes", 2, "--nproc-per-node", 1, *meeting)
        return self.start(*torchrun, "-m", "paircaps", *words, log=log, GLOO_SOCKET_IFNAME=self.device)

    def set_link(self, state):
        """Cut (``down``) or restore (``up``) the link."""
        ip("-n", self.name, "link", "set", self.device, state)


def ip(*words):
    done = subprocess.run(["ip", *words], capture_output=True, text=True, timeout=20, check=False)
    if done.returncode:
        raise OSError(f"ip {' '.join(words)}: {done.stderr.strip()}")


@contextmanager
def two_hosts():
    """Two hosts with a link between them; a test is skipped where the system does not allow it."""
    if shutil.which("ip") is None:
        pytest.skip("needs the command ip, of Debian's package iproute2")
    tag = secrets.token_hex(3)
    hosts = [Host(number, tag) for number in (1, 2)]
    try:
        try:
            connect(*hosts)
        except OSError as error:
            pytest.skip(f"network namespaces are not allowed here: {error}")
        yield hosts
    finally:
        for host in hosts:  # its devices go with it
            subprocess.run(["ip", "netns", "delete", host.name], capture_output=True, timeout=20, check=False)


def connect(first, second):
    for host in (first, second):
        ip("netns", "add", host.name)
        ip("-n", host.name, "link", "set", "lo", "up")
    peer = ("peer", "name", second.device, "netns", second.name)
    ip("link", "add", first.device, "netns", first.name, "type", "veth", *peer)
    for host in (first, second):
        ip("-n", host.name, "address", "add", f"{host.address}/24", "dev", host.device)
        host.set_link("up")
