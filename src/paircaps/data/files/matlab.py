"""MATLAB's level 5 .mat format, as far as arrays of numbers go, plain or inside a structure.

Written by hand because files may be hostile. SciPy reads this format too, but takes memory as a file's header asks for
it: 2 GB for a file of 179 bytes. This reader takes no more memory than the caller allows and the file can fill, skips
arrays that were not asked for, and reads no objects, functions or text. Its tests compare it with SciPy. It also saves
users the dependency on SciPy.

A file is a header and elements; an element is a tag (type, size) and a body; an array is an element whose body is
again elements: flags, dimensions, name, values, each padded to eight bytes. A structure has arrays in place of values.
"""

from __future__ import annotations

import math
import struct
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np

from paircaps.data.errors import DataError
from paircaps.data.files.stream import ByteStream, guarded, open_stream

_HEADER, _TEXT, _ENDIAN_AT, _ALIGN = 128, 116, 126, 8
_MATRIX, _COMPRESSED = 14, 15
_VALUES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
_ARRAYS = range(6, 16)  # double, single, and whole numbers of 8 to 64 bits
_STRUCTURE = 2
_REFUSED = {1: "a cell array", 3: "an object", 4: "text", 5: "a sparse matrix", 16: "a function", 17: "an object"}
_RANK_MOST, _NAME_MOST, _FIELDS_MOST = 32, 64, 1 << 16
_COMPLEX = 0x800
_ZIP_MAGIC = b"PK\x03\x04"


class _Tag(NamedTuple):
    kind: int
    size: int
    small: bytes | None  # an element of four bytes or fewer has them inside its tag


def read_mat(stream: ByteStream, wanted: Mapping[str, int]) -> dict[str, np.ndarray]:
    """Read arrays by name, a field of a structure as ``name.field``; axes are in MATLAB's order.

    Args:
        stream: content of the file.
        wanted: names of the arrays, with the most bytes of each; a missing one is an error, other arrays are skipped.
    """
    order = _byte_order(stream)
    found: dict[str, np.ndarray] = {}
    while len(found) < len(wanted) and not stream.at_end():
        tag = _tag(stream, order)
        if tag.kind == _COMPRESSED:
            body = stream.inflated(tag.size, "a compressed variable")
            tag = _tag(body, order)
            if tag.kind != _MATRIX:
                raise stream.error(f"a compressed element of type {tag.kind} in place of an array ({_MATRIX})")
            found.update(_array(body.part(tag.size, "an array"), order, "", wanted))
            body.drain()
        else:
            body = stream.part(tag.size, "an element")
            if tag.kind == _MATRIX:
                found.update(_array(body, order, "", wanted))
            body.drain()
    missing = [name for name in wanted if name not in found]
    if missing:
        raise stream.error(f"no array {', '.join(missing)} inside")
    return found


@contextmanager
def open_mat(path: Path) -> Iterator[ByteStream]:
    """Open a .mat file, by itself or alone in a zip; nothing is unpacked to disk."""
    with open_stream(path) as stream:
        packed = stream.some(len(_ZIP_MAGIC)) == _ZIP_MAGIC
    with ExitStack() as stack:
        yield stack.enter_context(open_stream(path)) if not packed else _open_member(stack, path)


def _open_member(stack: ExitStack, path: Path) -> ByteStream:
    try:
        archive = stack.enter_context(zipfile.ZipFile(path))
        members = [member for member in archive.infolist() if member.filename.endswith(".mat")]
        if len(members) != 1:
            raise DataError(f"{path}: holds {len(members)} .mat files in place of one")
        if members[0].compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise DataError(f"{path}: {members[0].filename} is packed by an unusual method")
        content = stack.enter_context(archive.open(members[0]))
    except (zipfile.BadZipFile, OSError, EOFError, struct.error, RuntimeError, ValueError, OverflowError) as error:
        # damage shows in all these ways; an encrypted member is a RuntimeError
        raise DataError(f"{path}: not a readable zip: {error}") from None
    return ByteStream(f"{path}: {members[0].filename}", guarded(path, content.read), members[0].file_size)


def describe_mat(path: Path) -> str:
    """What the header of a .mat file says of its content; empty where it has only what MATLAB itself writes there."""
    with open_stream(path) as stream:
        header = bytes(stream.take(_HEADER, "the header"))[:_TEXT].decode("ascii", "replace")
    kind, _, text = header.strip(" \0").partition(",")
    return "" if "MAT-file" not in kind or "Platform:" in text or not text.isprintable() else text.strip()


def require_labels(stream: ByteStream, labels: np.ndarray, least: int, most: int) -> None:
    """Refuse labels that are not whole numbers from ``least`` to ``most``; MATLAB stores them as any type."""
    right = (labels >= least) & (labels <= most) & (labels == np.floor(labels))
    if not right.all():
        raise stream.error(f"labels must be {least} to {most}, got {labels[~right][0]}")


def _byte_order(stream: ByteStream) -> str:
    header = bytes(stream.take(_HEADER, "the header"))
    mark = header[_ENDIAN_AT:]
    if mark not in (b"IM", b"MI"):
        raise stream.error("not a MATLAB file of level 5 (a file of version 7.3 is HDF5, an older one level 4)")
    return "<" if mark == b"IM" else ">"


def _tag(stream: ByteStream, order: str) -> _Tag:
    raw = stream.take(_ALIGN, "a tag")
    kind, size = (int(value) for value in np.frombuffer(raw, f"{order}u4"))
    if kind >> 16:
        kind, size = kind & 0xFFFF, kind >> 16
        if size > 4:
            raise stream.error(f"a small element claims {size} bytes, 4 at most")
        return _Tag(kind, size, bytes(raw[4 : 4 + size]))
    return _Tag(kind, size, None)


def _element(stream: ByteStream, order: str, what: str, most: int) -> tuple[int, bytes | bytearray]:
    """Type and body of an element that must be small, padding passed over."""
    tag = _tag(stream, order)
    if tag.small is not None:
        return tag.kind, tag.small
    if tag.size > most:
        raise stream.error(f"{what} claims {tag.size:,} bytes, {most:,} at most")
    body = stream.take(tag.size, what)
    stream.skip(-tag.size % _ALIGN, "padding")
    return tag.kind, body


def _array(stream: ByteStream, order: str, path: str, wanted: Mapping[str, int]) -> dict[str, np.ndarray]:
    """The wanted arrays in the body of an array element: itself, or fields of it."""
    if not stream.most:
        return {}  # MATLAB writes an empty field as an element without a body
    flags = _numbers(stream, order, "array flags", 8)
    sizes = _numbers(stream, order, "dimensions", 4 * _RANK_MOST)
    name = bytes(_element(stream, order, "a name", _NAME_MOST)[1]).decode("latin-1")
    path = path or name  # a field has its name in the structure, none of its own
    is_wanted = path in wanted
    if not is_wanted and not any(other.startswith(f"{path}.") for other in wanted):
        return {}
    if not len(flags) or len(sizes) < 2 or sizes.min() < 0:
        raise stream.error(f"array {path} has dimensions {tuple(sizes.tolist())}")
    kind, shape = int(flags[0]) & 0xFF, tuple(int(size) for size in sizes)
    if kind == _STRUCTURE and not is_wanted:
        return _structure(stream, order, path, shape, wanted)
    if kind not in _ARRAYS or int(flags[0]) & _COMPLEX:
        raise stream.error(f"{path} is {_REFUSED.get(kind, 'no array of real numbers')}: only those are read")
    if not is_wanted:
        raise stream.error(f"{path} is an array, not a structure")
    return {path: _values(stream, order, path, shape, wanted[path])}


def _values(stream: ByteStream, order: str, path: str, shape: tuple[int, ...], most: int) -> np.ndarray:
    """Numbers in MATLAB's order, the first axis fastest, in the type they are stored in: MATLAB packs small numbers."""
    tag = _tag(stream, order)
    if tag.kind not in _VALUES:
        raise stream.error(f"{path} has values of type {tag.kind}, which is none of numbers")
    dtype = np.dtype(order + _VALUES[tag.kind])
    if tag.size != math.prod(shape) * dtype.itemsize:
        raise stream.error(f"{path} has {tag.size:,} bytes of values for dimensions {shape}")
    if tag.size > most:
        raise stream.error(f"{path} claims {tag.size:,} bytes, {most:,} at most")
    raw = stream.take(tag.size, path) if tag.small is None else bytearray(tag.small)
    stream.skip(min(-tag.size % _ALIGN, stream.most) if tag.small is None else 0, "padding")
    return np.frombuffer(raw, dtype).reshape(shape, order="F")


def _numbers(stream: ByteStream, order: str, what: str, most: int) -> np.ndarray:
    """An element of whole numbers."""
    kind, body = _element(stream, order, what, most)
    dtype = np.dtype(order + _VALUES[kind]) if kind in _VALUES else None
    if dtype is None or len(body) % dtype.itemsize:
        raise stream.error(f"{what} of type {kind} and {len(body)} bytes")
    return np.frombuffer(body, dtype).astype(np.int64)


def _structure(
    stream: ByteStream, order: str, path: str, shape: tuple[int, ...], wanted: Mapping[str, int]
) -> dict[str, np.ndarray]:
    """Wanted fields of a structure of one element."""
    if math.prod(shape) != 1:
        raise stream.error(f"{path} is an array of {shape} structures, one is read")
    lengths = _numbers(stream, order, "length of field names", 8)
    if len(lengths) != 1 or not 1 <= lengths[0] <= _NAME_MOST:
        raise stream.error(f"{path} has field names of length {lengths.tolist()}")
    length = int(lengths[0])
    raw = bytes(_element(stream, order, "field names", _FIELDS_MOST)[1])
    names = [raw[at : at + length].split(b"\0")[0].decode("latin-1") for at in range(0, len(raw), length)]
    found: dict[str, np.ndarray] = {}
    for name in names:
        tag = _tag(stream, order)
        if tag.kind != _MATRIX:
            raise stream.error(f"field {path}.{name} is of type {tag.kind} in place of an array ({_MATRIX})")
        field = stream.part(tag.size, f"field {path}.{name}")
        found.update(_array(field, order, f"{path}.{name}", wanted))
        field.drain()
    return found
