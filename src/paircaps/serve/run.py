"""The server itself."""

from __future__ import annotations

import ctypes
import errno
import logging
import platform
import socket
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import torch
import uvicorn

from paircaps.errors import PaircapsError
from paircaps.serve.app import create_app
from paircaps.serve.networks import Networks

_MMAP_THRESHOLD = -3
"""Number of that setting in malloc.h."""

MOST_CLIENTS = 100
"""Connections at a time; further ones are told to come back, since each holds some of what it sent."""

EVERYWHERE = ("0.0.0.0", "::")


def serve(
    folders: Mapping[str, Path], host: str, port: int, allowed: Iterable[str], ready: Callable[[str], object]
) -> None:
    """Answer until the process is told to stop.

    Args:
        folders: of trained networks, by name.
        host: name or address to listen on.
        port: to listen on; 0 takes one that is free.
        allowed: names that the server is known by, beside this machine's own.
        ready: told the address of the page, when it can be opened.
    """
    with listen(host, port) as listening:  # before the networks are loaded: a port that is taken shows at once
        serving = server(folders, host, allowed)
        ready(_address(listening, host))
        serving.run(sockets=[listening])


def server(folders: Mapping[str, Path], host: str, allowed: Iterable[str]) -> uvicorn.Server:
    """A server with its networks loaded, ready to run."""
    logging.getLogger("python_multipart").setLevel(logging.CRITICAL)
    _give_memory_back()
    networks = Networks(folders)
    # one picture is too little to share: two threads wait for each other wherever another process is busy
    torch.set_num_threads(1)
    app = create_app(networks, [host, *allowed], any_address=host in EVERYWHERE)
    config = uvicorn.Config(
        app,
        log_level="error",  # what strangers send is not worth a line in one's terminal
        access_log=False,
        timeout_keep_alive=15,
        server_header=False,
        lifespan="off",
        ws="none",
        timeout_graceful_shutdown=2,
        limit_concurrency=MOST_CLIENTS,
    )
    return uvicorn.Server(config)


def listen(host: str, port: int) -> socket.socket:
    """A socket that hears; who takes it has to close it.

    Raises:
        PaircapsError: if the port is taken, or the host is none of this machine.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not a name"
        raise PaircapsError(f"--host {host}: no such address: {why or error}") from None
    listening = socket.socket(family, kind, protocol)  # without the protocol asyncio leaves Nagle on: 40 ms an answer
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(128)
    except OSError as error:
        listening.close()
        advice = "another --port may be free, and --port 0 takes one that is"
        advice = advice if error.errno == errno.EADDRINUSE else "is that an address of this machine?"
        raise PaircapsError(f"cannot listen on {host}, port {port}: {error.strerror or error}; {advice}") from None
    return listening


def _address(listening: socket.socket, host: str) -> str:
    port = listening.getsockname()[1]
    name = "127.0.0.1" if host in EVERYWHERE else f"[{host}]" if ":" in host else host
    return f"http://{name}:{port}"


def _give_memory_back() -> None:
    """Have the C library return the memory of an unpacked picture at once, where it can be told to.

    Of itself glibc keeps blocks of up to 32 MiB for later, once one of them was freed.
    """
    if sys.platform == "linux" and platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, 4 << 20)
