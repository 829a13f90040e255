"""Bytes of a file, taken forward only, and never more of them than there can be.

Every reader of a file format stands on this. A header may claim anything; a claim is compared with what the file can
hold before a byte of memory is spent on it, and what is read grows with what is really there.
"""

from __future__ import annotations

import gzip
import stat
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from paircaps.data.errors import DataError, cannot

DEFLATE_MOST = 1032
"""Deflate cannot shrink anything by more than this."""

_CHUNK = 1 << 20
_GZIP_MAGIC = b"\x1f\x8b"


class ByteStream:
    """Bytes to come, at most ``most`` of them.

    Args:
        name: of the file, for messages.
        read: gives up to so many bytes, none at the end.
        most: how many there can be.
    """

    def __init__(self, name: str, read: Callable[[int], bytes], most: int) -> None:
        self.name = name
        self.most = most
        self._read = read
        self._ahead = b""

    def some(self, size: int) -> bytes:
        """Up to ``size`` bytes, none only at the end."""
        if self._ahead:
            chunk, self._ahead = self._ahead, b""
        elif self.most:
            chunk = self._read(min(size, self.most, _CHUNK))
        elif self.at_end():
            return b""
        else:
            raise self.error("goes on beyond all that can be in it")
        self.most -= len(chunk)
        return chunk

    def take(self, count: int, what: str) -> bytearray:
        """The next ``count`` bytes, exactly; ``what`` they are, for messages."""
        taken = bytearray()
        try:
            for chunk in self._chunks(count, what):
                taken += chunk
        except MemoryError:
            raise self.error(f"{what}: {count:,} bytes are too many for the memory that is left") from None
        return taken

    def skip(self, count: int, what: str) -> None:
        """Pass over ``count`` bytes."""
        for _ in self._chunks(count, what):
            pass

    def rest(self) -> bytearray:
        """All that follows."""
        taken = bytearray()
        while chunk := self.some(_CHUNK):
            taken += chunk
        return taken

    def drain(self) -> None:
        """Pass over all that follows."""
        while self.some(_CHUNK):
            pass

    def expect(self, count: int, what: str) -> None:
        """Refuse a claim of more bytes than can still come."""
        if count > self.most:
            reason = f"{what} should have {count:,} bytes, but no more than {self.most:,} can follow"
            raise self.error(f"incomplete or damaged: {reason}")

    def at_end(self) -> bool:
        """Whether nothing follows; a gzip file's own checksum is compared only here."""
        if not self._ahead:
            self._ahead = self._read(1)
        return not self._ahead

    def require_end(self, what: str) -> None:
        """Refuse bytes after the last one that the header told of."""
        if not self.at_end():
            raise self.error(f"goes on after the end of {what}")

    def part(self, count: int, what: str) -> ByteStream:
        """The next ``count`` bytes as a stream of their own, which ends with them."""
        self.expect(count, what)
        left = count

        def read(size: int) -> bytes:
            nonlocal left
            chunk = self.some(min(size, left)) if left else b""
            left -= len(chunk)
            return chunk

        return ByteStream(self.name, read, count)

    def inflated(self, count: int, what: str) -> ByteStream:
        """The next ``count`` bytes, a zlib stream, unpacked as they are taken."""
        packed, engine = self.part(count, what), zlib.decompressobj()

        def read(size: int) -> bytes:
            while not engine.eof:
                fed = engine.unconsumed_tail or packed.some(_CHUNK)
                try:
                    chunk = engine.decompress(fed, size)
                except zlib.error as error:
                    raise self.error(f"{what} cannot be unpacked: {error}") from None
                if chunk or not fed:
                    return chunk
            packed.drain()
            return b""

        return ByteStream(self.name, read, count * DEFLATE_MOST)

    def error(self, reason: str) -> DataError:
        """A DataError about this file."""
        return DataError(f"{self.name}: {reason}")

    def _chunks(self, count: int, what: str) -> Iterator[bytes]:
        self.expect(count, what)
        left = count
        while left:
            chunk = self.some(left)
            if not chunk:
                raise self.error(f"truncated: {what} should have {count:,} bytes, only {count - left:,} are there")
            left -= len(chunk)
            yield chunk


@contextmanager
def open_stream(path: Path, most: int | None = None) -> Iterator[ByteStream]:
    """A file as a stream, unpacked if it is gzipped, whatever its name says.

    Args:
        path: the file.
        most: refuse more unpacked bytes than this; without it, what the file can hold.
    """
    size = file_size(path)
    try:
        with path.open("rb") as file:
            packed = file.read(2) == _GZIP_MAGIC
            file.seek(0)
            bound = size * DEFLATE_MOST if packed else size
            source = gzip.GzipFile(fileobj=file, mode="rb") if packed else file
            yield ByteStream(str(path), guarded(path, source.read), bound if most is None else min(bound, most))
    except OSError as error:
        raise cannot("read", path, error) from None


def file_size(path: Path) -> int:
    """Size of an ordinary file; a folder, a pipe or a device is refused, for reading one might never end."""
    try:
        status = path.stat()
    except OSError as error:
        raise cannot("read", path, error) from None
    if not stat.S_ISREG(status.st_mode):
        raise DataError(f"{path}: not an ordinary file")
    return status.st_size


def guarded(path: Path, read: Callable[[int], bytes]) -> Callable[[int], bytes]:
    """The same reader, its complaints about damaged archives turned into DataErrors."""

    def safe(size: int) -> bytes:
        try:
            return read(size)
        except EOFError:
            raise DataError(f"{path}: truncated: the compressed data ends early") from None
        except gzip.BadGzipFile as error:
            raise DataError(f"{path}: damaged: {error}") from None
        except (zlib.error, zipfile.BadZipFile) as error:
            raise DataError(f"{path}: damaged: cannot be unpacked: {error}") from None
        except OSError as error:
            raise cannot("read", path, error) from None

    return safe
