"""Read a file forwards, in memory bounded by its size; all readers of file formats use this.

The header of a damaged or hostile file may claim any size. A claim is compared with what the file can hold before
memory is taken for it, and memory grows with the bytes that are really read.
"""

from __future__ import annotations

import gzip
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from paircaps._utils.files import file_size
from paircaps.data.errors import DataError, os_data_error

DEFLATE_MOST = 1032
"""Largest factor by which deflate can shrink anything."""

_CHUNK = 1 << 20
_GZIP_MAGIC = b"\x1f\x8b"


class ByteStream:
    """Stream of at most ``most`` bytes.

    Args:
        name: name of the file in messages.
        read: function that returns up to a given number of bytes, none at the end.
        most: most bytes that can follow.
    """

    def __init__(self, name: str, read: Callable[[int], bytes], most: int) -> None:
        self.name = name
        self.most = most
        self._read = read
        self._ahead = b""

    def some(self, size: int) -> bytes:
        """Read up to ``size`` bytes; none means the end."""
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
        """Read exactly ``count`` bytes; ``what`` they are is for messages."""
        taken = bytearray()
        try:
            for chunk in self._chunks(count, what):
                taken += chunk
        except MemoryError:
            raise self.error(f"{what}: {count:,} bytes are too many for the memory that is left") from None
        return taken

    def skip(self, count: int, what: str) -> None:
        """Skip ``count`` bytes."""
        for _ in self._chunks(count, what):
            pass

    def rest(self) -> bytearray:
        """Read all bytes that follow."""
        taken = bytearray()
        while chunk := self.some(_CHUNK):
            taken += chunk
        return taken

    def drain(self) -> None:
        """Skip all bytes that follow."""
        while self.some(_CHUNK):
            pass

    def expect(self, count: int, what: str) -> None:
        """Raise a DataError if ``count`` bytes are more than can follow."""
        if count > self.most:
            reason = f"{what} should have {count:,} bytes, but no more than {self.most:,} can follow"
            raise self.error(f"incomplete or damaged: {reason}")

    def at_end(self) -> bool:
        """True if nothing follows; only here is the checksum inside a gzip file compared."""
        if not self._ahead:
            self._ahead = self._read(1)
        return not self._ahead

    def require_end(self, what: str) -> None:
        """Raise a DataError if bytes follow after the last one that the header announced."""
        if not self.at_end():
            raise self.error(f"goes on after the end of {what}")

    def part(self, count: int, what: str) -> ByteStream:
        """Stream of the next ``count`` bytes alone."""
        self.expect(count, what)
        left = count

        def read(size: int) -> bytes:
            nonlocal left
            chunk = self.some(min(size, left)) if left else b""
            left -= len(chunk)
            return chunk

        return ByteStream(self.name, read, count)

    def inflated(self, count: int, what: str) -> ByteStream:
        """Stream of what the next ``count`` bytes, compressed by zlib, unpack to."""
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
        """DataError about this file."""
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
    """Open a file as a stream, unpacked if it is gzipped, whatever its name says.

    Args:
        path: path of the file.
        most: most unpacked bytes; what the file can hold without it.
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
        raise os_data_error("read", path, error) from None


def guarded(path: Path, read: Callable[[int], bytes]) -> Callable[[int], bytes]:
    """Reader whose errors about damaged archives are DataErrors."""

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
            raise os_data_error("read", path, error) from None

    return safe
