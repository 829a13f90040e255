"""HTTP server: listening socket, configuration, and start."""

from __future__ import annotations

import ctypes
import errno
import logging
import platform
import socket
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import torch
import uvicorn

from paircaps.errors import PaircapsError
from paircaps.serve.app import create_app
from paircaps.serve.connections import guarded_protocol
from paircaps.serve.limits import Limits, allow_connections
from paircaps.serve.networks import Networks

_MMAP_THRESHOLD = -3
"""M_MMAP_THRESHOLD of malloc.h."""

_BACKLOG = 128
"""Connections that are accepted at once, before any of them is read; fewer than the fewest that a server may hold."""

EVERYWHERE = ("0.0.0.0", "::")
"""Hosts that mean all addresses of this machine."""


def serve(
    folders: Mapping[str, Path], host: str, port: int, allowed: Iterable[str], ready: Callable[[str], object]
) -> None:
    """Run the server until the process is stopped.

    Args:
        folders: folders of trained networks, by name.
        host: name or address to listen on.
        port: port to listen on; 0 takes a free one.
        allowed: host names of this server that requests may use, besides those of this machine.
        ready: called with the URL of the page once it can be opened.
    """
    with listen(host, port) as listening:  # before the networks are loaded, so that a port in use is reported at once
        http_server = create_server(folders, host, allowed)
        ready(_url(listening, host))
        http_server.run(sockets=[listening])


def create_server(
    folders: Mapping[str, Path],
    host: str,
    allowed: Iterable[str],
    measure: bool = True,
    limits: Limits | None = None,
) -> uvicorn.Server:
    """Load networks and build a server that is ready to run.

    Args:
        folders: folders of trained networks, by name.
        host: name or address that the server will listen on.
        allowed: further host names that requests may use.
        measure: whether to measure the sliders of the page, which takes some seconds between the first requests.
        limits: bounds of what clients may take; the usual ones if None.
    """
    limits = limits or Limits()
    limits = replace(limits, connections=allow_connections(limits.connections))
    logging.getLogger("python_multipart").setLevel(logging.CRITICAL)
    _return_freed_memory()
    networks = Networks(folders)
    # one picture is too little work for two threads, which wait for each other when another process is busy
    torch.set_num_threads(1)
    if measure:
        networks.measure_sliders()
    app = create_app(networks, [host, *allowed], any_address=host in EVERYWHERE, limits=limits)
    config = uvicorn.Config(
        app,
        log_level="error",  # requests, however malformed, are not logged
        access_log=False,
        timeout_keep_alive=limits.keep_alive_seconds,
        server_header=False,
        lifespan="off",
        ws="none",
        timeout_graceful_shutdown=2,
        http=guarded_protocol(limits),
        backlog=_BACKLOG,
    )
    return uvicorn.Server(config)


def listen(host: str, port: int) -> socket.socket:
    """Open a listening socket, which the caller has to close.

    Args:
        host: name or address to listen on.
        port: port to listen on; 0 takes a free one.

    Raises:
        PaircapsError: if the port is in use, or the host is not an address of this machine.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not a name"
        raise PaircapsError(f"--host {host}: no such address: {why or error}") from None
    # without the protocol, asyncio leaves Nagle's algorithm on: 40 ms per response
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(_BACKLOG)
    except OSError as error:
        listening.close()
        advice = "another --port may be free, and --port 0 takes one that is"
        advice = advice if error.errno == errno.EADDRINUSE else "is that an address of this machine?"
        raise PaircapsError(f"cannot listen on {host}, port {port}: {error.strerror or error}; {advice}") from None
    return listening


def _url(listening: socket.socket, host: str) -> str:
    """URL of the page."""
    port = listening.getsockname()[1]
    name = "127.0.0.1" if host in EVERYWHERE else f"[{host}]" if ":" in host else host
    return f"http://{name}:{port}"


def _return_freed_memory() -> None:
    """Make glibc return the memory of an unpacked picture to the system at once.

    By default it keeps blocks of up to 32 MiB for later use once one of them was freed.
    """
    if sys.platform == "linux" and platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, 4 << 20)
