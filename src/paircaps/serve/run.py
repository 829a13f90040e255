"""The server itself."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import torch
import uvicorn

from paircaps.errors import PaircapsError
from paircaps.serve.app import create_app
from paircaps.serve.networks import Networks

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
    networks = Networks(folders)
    # one picture is too little to share: two threads wait for each other wherever another process is busy
    torch.set_num_threads(1)
    app = create_app(networks, [host, *allowed], any_address=host in EVERYWHERE)
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        timeout_keep_alive=15,
        server_header=False,
        lifespan="off",
        ws="none",
    )
    return uvicorn.Server(config)


def listen(host: str, port: int) -> socket.socket:
    """A socket that hears; who takes it has to close it.

    Raises:
        PaircapsError: if the port is taken, or the host is none of this machine.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(
            family, kind, protocol
        )  # without the protocol asyncio leaves Nagle on: 40 ms an answer
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(128)
    except OSError as error:
        raise PaircapsError(
            f"cannot listen on {host}, port {port}: {error.strerror or error}; another --port may be free, and "
            "--port 0 takes one that is"
        ) from None
    return listening


def _address(listening: socket.socket, host: str) -> str:
    port = listening.getsockname()[1]
    name = "127.0.0.1" if host in EVERYWHERE else f"[{host}]" if ":" in host else host
    return f"http://{name}:{port}"
