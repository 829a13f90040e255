"""Bounds of what clients may take from a server: time, connections, memory and disk."""

from __future__ import annotations

from dataclasses import dataclass

_OTHER_DESCRIPTORS = 64


@dataclass(frozen=True)
class Limits:
    """Bounds of a server.

    Args:
        largest: most bytes of a request with a picture.
        small: most bytes of any other request.
        first_byte_seconds: seconds that a new connection may send nothing.
        header_seconds: seconds from the first byte of a request to the end of its headers.
        keep_alive_seconds: seconds that a connection may rest after a response.
        pause_seconds: longest pause within the body of a request.
        body_seconds: seconds that the body of a request may take as a whole.
        grace_seconds: first seconds of a body, in which it may come as slowly as it likes.
        least_rate: bytes a second of a body after that, on average since its beginning.
        response_seconds: seconds that a client may take to read a response.
        connections: most connections at the same time; see :func:`allow_connections`.
        connections_per_address: most connections of one address. Above either number, the connection that has waited
            the longest is dropped.
        fresh_seconds: age below which a connection counts as new: older ones are dropped before it.
        small_at_once: requests of at most ``small`` bytes that are computed at the same time. Larger ones are computed
            one at a time, so that memory is bounded.
        body_memory: bytes of a body that are held in memory; a larger one is in a temporary file.
        all_bodies: bytes of all bodies together, in memory and in files.
    """

    largest: int = 8 << 20
    small: int = 256 << 10
    first_byte_seconds: float = 10.0
    header_seconds: float = 10.0
    keep_alive_seconds: int = 15
    pause_seconds: float = 10.0
    body_seconds: float = 60.0
    grace_seconds: float = 1.0
    least_rate: int = 8 << 10
    response_seconds: float = 60.0
    connections: int = 1024
    connections_per_address: int = 768
    fresh_seconds: float = 1.0
    small_at_once: int = 8
    body_memory: int = 64 << 10
    all_bodies: int = 256 << 20


def allow_connections(wanted: int) -> int:
    """Raise this process's bound of open files for a number of connections, and return how many it can hold.

    Each takes two descriptors: its socket, and the temporary file of a large body. Some are left for everything else.
    Where processes have no such bound, as on Windows, it can hold all.
    """
    try:
        import resource
    except ModuleNotFoundError:
        return wanted
    needed = 2 * wanted + _OTHER_DESCRIPTORS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return wanted
    soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return max(8, min(wanted, (soft - _OTHER_DESCRIPTORS) // 2))
