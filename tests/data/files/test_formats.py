"""The readers of file formats: what is written comes back, and SciPy and MATLAB agree."""

import gzip
import hashlib
import io
import os
import struct
import tarfile
import tracemalloc
import warnings
import zlib
from pathlib import Path

import numpy as np
import pytest
import scipy.io
from reference.formats import cifar_bytes, idx_bytes, mat_bytes, norb_bytes, tar_bytes, write

from paircaps.data.errors import DataError
from paircaps.data.files.arrays import read_idx, read_norb
from paircaps.data.files.cifar import read_cifar, read_cifar_tar
from paircaps.data.files.matlab import read_mat
from paircaps.data.files.stream import open_stream

BATCHES = ["data_batch_1.bin", "test_batch.bin"]


def random_bytes(*shape):
    return np.random.default_rng(0).integers(256, size=shape, dtype=np.uint8)


def mat(path, *wanted, most=1 << 20):
    with open_stream(path) as stream:
        return read_mat(stream, dict.fromkeys(wanted, most))


@pytest.mark.parametrize("gz", [True, False])
@pytest.mark.parametrize("shape", [(7, 5, 3), (4,), (0, 28, 28)])
def test_idx_comes_back(tmp_path, shape, gz):
    array = random_bytes(*shape)
    path = write(tmp_path / "whatever", idx_bytes(array), gz)
    assert np.array_equal(read_idx(path, len(shape)), array)


@pytest.mark.parametrize("gz", [True, False])
@pytest.mark.parametrize(
    "array", [random_bytes(3, 2, 6, 5), np.arange(-3, 4, dtype=np.int32), np.ones((5, 4), np.int32)]
)
def test_norb_comes_back(tmp_path, array, gz):
    path = write(tmp_path / "a.mat", norb_bytes(array), gz)
    read = read_norb(path, array.ndim)
    assert np.array_equal(read, array)
    assert read.dtype.itemsize == array.itemsize


def test_a_norb_vector_has_three_sizes_in_its_header(tmp_path):
    """The format writes at least three sizes; a reader that takes one is off by eight bytes."""
    content = bytes.fromhex("544c3d1e 01000000 02000000 01000000 01000000 07000000 09000000")
    assert read_norb(write(tmp_path / "cat.mat", content), 1).tolist() == [7, 9]


def test_cifar_comes_back_from_bin_and_tar(tmp_path):
    images, labels = random_bytes(6, 3, 32, 32), np.arange(6)
    contents = {name: cifar_bytes(images + number, labels) for number, name in enumerate(BATCHES)}
    path = write(tmp_path / "a.tar.gz", tar_bytes({f"cifar-10-batches-bin/{k}": v for k, v in contents.items()}))
    checksums = {name: hashlib.md5(content).hexdigest() for name, content in contents.items()}
    packed = read_cifar_tar(path, BATCHES, checksums)
    for number, name in enumerate(BATCHES):
        loose = read_cifar(write(tmp_path / name, contents[name]), checksums[name])
        for batch in (loose, packed[number]):
            assert np.array_equal(batch.images, images + number)
            assert np.array_equal(batch.labels, labels)


@pytest.mark.parametrize("compressed", [True, False])
@pytest.mark.parametrize("dtype", ["u1", "i2", "i4", "f4", "f8", "i8"])
def test_mat_arrays_come_back(tmp_path, dtype, compressed):
    array = random_bytes(3, 4, 2, 5).astype(dtype)
    path = write(tmp_path / "a.mat", mat_bytes({"before": np.eye(3), "X": array, "y": array[0, 0]}, compressed))
    read = mat(path, "X", "y")
    assert np.array_equal(read["X"], array)
    assert np.array_equal(read["y"], array[0, 0])


def test_mat_fields_come_back_and_neighbours_are_skipped(tmp_path):
    fields = {"text": "skipped", "image": random_bytes(9, 4), "cells": np.array([1, "a"], object), "n": np.float64(7)}
    path = write(tmp_path / "a.mat", mat_bytes({"data": fields}))
    read = mat(path, "data.image", "data.n")
    assert np.array_equal(read["data.image"], fields["image"])
    assert read["data.n"].item() == 7


MATLAB_FILES = sorted((Path(scipy.io.__file__).parent / "matlab" / "tests" / "data").glob("*.mat"))


@pytest.mark.skipif(not MATLAB_FILES, reason="this SciPy comes without the files that MATLAB wrote for its tests")
def test_files_that_matlab_wrote_are_read_as_scipy_reads_them():
    """Versions 5 to 7.4, big and little endian, plain and compressed: every array of real numbers in every file."""
    same = refused = 0
    for path in MATLAB_FILES:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                variables = scipy.io.loadmat(path)
        except Exception:
            continue  # some are damaged on purpose
        for name, expected in _arrays(variables):
            try:
                read = mat(path, name)[name]
            except DataError:
                refused += 1
            else:
                assert np.array_equal(read, expected), f"{path.name}: {name}"
                same += 1
    assert same >= 40
    assert refused >= 60  # text, cells, objects, sparse and complex numbers, and level 4


def _arrays(variables):
    for name, value in variables.items():
        if name.startswith("__"):
            continue
        if isinstance(value, np.ndarray) and value.dtype.names and value.size == 1:
            yield from ((f"{name}.{field}", value[field].flat[0]) for field in value.dtype.names)
        else:
            yield name, value


READERS = {
    "idx": (lambda path: read_idx(path, 3), idx_bytes(random_bytes(5, 6, 7))),
    "idx.gz": (lambda path: read_idx(path, 3), gzip.compress(idx_bytes(random_bytes(5, 6, 7)))),
    "norb": (lambda path: read_norb(path, 4), norb_bytes(random_bytes(2, 2, 5, 4))),
    "norb.gz": (lambda path: read_norb(path, 4), gzip.compress(norb_bytes(random_bytes(2, 2, 5, 4)))),
    "cifar": (read_cifar, cifar_bytes(random_bytes(2, 3, 32, 32), [1, 2])),
    "tar": (
        lambda path: read_cifar_tar(path, BATCHES[:1]),
        tar_bytes({f"x/{BATCHES[0]}": cifar_bytes(random_bytes(2, 3, 32, 32), [1, 2])}),
    ),
    "mat": (lambda path: mat(path, "X"), mat_bytes({"X": random_bytes(5, 5)})),
    "mat, plain": (lambda path: mat(path, "X"), mat_bytes({"X": random_bytes(5, 5)}, compressed=False)),
}


@pytest.mark.parametrize("kind", READERS)
def test_every_truncation_is_an_error_that_names_the_file(tmp_path, kind):
    read, content = READERS[kind]
    path = tmp_path / "cut.bin"
    whole = read(write(path, content))
    assert whole is not None
    for length in range(0, len(content), max(1, len(content) // 150)):
        write(path, content[:length])
        with pytest.raises(DataError, match=r"cut\.bin"):
            read(path)


@pytest.mark.parametrize("kind", ["idx", "norb", "cifar"])
def test_bytes_after_the_end_are_an_error(tmp_path, kind):
    read, content = READERS[kind]
    with pytest.raises(DataError, match=r"goes on after the end|whole number of images"):
        read(write(tmp_path / "long", content + b"\0"))


@pytest.mark.parametrize("kind", ["idx.gz", "norb.gz"])
def test_a_wrong_gzip_checksum_is_an_error(tmp_path, kind):
    read, content = READERS[kind]
    changed = content[:-8] + bytes([content[-8] ^ 1]) + content[-7:]
    with pytest.raises(DataError, match="damaged: CRC check failed"):
        read(write(tmp_path / "a.gz", changed))


@pytest.mark.parametrize("kind", READERS)
def test_another_kind_of_file_is_an_error(tmp_path, kind):
    read, _ = READERS[kind]
    for content in (
        b"<!DOCTYPE html><html><body>404 not found</body></html>" * 100,
        b"",
        b"\x1f\x8b",
        b"PK\x03\x04" * 9,
    ):
        with pytest.raises(DataError, match="page"):
            read(write(tmp_path / "page", content))


def test_wrong_magic_numbers_are_quoted(tmp_path):
    with pytest.raises(DataError, match="magic number 00000d03 in place of 00000803"):
        read_idx(write(tmp_path / "a", b"\0\0\x0d\x03" + bytes(30)), 3)
    with pytest.raises(DataError, match="magic number 0x00000001"):
        read_norb(write(tmp_path / "b", b"\1\0\0\0" + bytes(30)), 3)
    with pytest.raises(DataError, match="a matrix of double values"):
        read_norb(write(tmp_path / "c", b"\x53\x4c\x3d\x1e" + bytes(30)), 3)
    with pytest.raises(DataError, match="a matrix of 3 axes in place of 4"):
        read_norb(write(tmp_path / "d", norb_bytes(random_bytes(2, 2, 2))), 4)
    with pytest.raises(DataError, match="not a MATLAB file of level 5"):
        mat(write(tmp_path / "e", bytes(200)), "X")


def test_labels_beyond_the_classes_are_an_error(tmp_path):
    with pytest.raises(DataError, match="image 1 has label 10"):
        read_cifar(write(tmp_path / "a.bin", cifar_bytes(random_bytes(2, 3, 32, 32), [9, 10])))


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("../evil", tarfile.REGTYPE, "lead out of the folder"),
        ("/etc/evil", tarfile.REGTYPE, "lead out of the folder"),
        ("link", tarfile.SYMTYPE, "a link, device or sparse file"),
        ("hard", tarfile.LNKTYPE, "a link, device or sparse file"),
        ("hole", tarfile.GNUTYPE_SPARSE, "a link, device or sparse file"),
        ("pipe", tarfile.FIFOTYPE, "a link, device or sparse file"),
    ],
)
def test_a_tar_with_a_way_out_is_refused(tmp_path, name, kind, message):
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, "/etc/passwd"
    files = {BATCHES[0]: cifar_bytes(random_bytes(1, 3, 32, 32), [1])}
    path = write(tmp_path / "a.tar.gz", tar_bytes(files, [member]))
    with pytest.raises(DataError, match=message):
        read_cifar_tar(path, BATCHES[:1])
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.tar.gz"]


def test_a_tar_without_the_batches_is_an_error(tmp_path):
    path = write(tmp_path / "a.tar.gz", tar_bytes({"cifar-10-batches-py/data_batch_1": b"a pickle"}))
    with pytest.raises(DataError, match=r"data_batch_1\.bin not inside"):
        read_cifar_tar(path, BATCHES[:1])


@pytest.mark.parametrize("value", [np.array([1, "a"], object), "text", np.array([1j]), {"f": 1.0}])
def test_a_mat_file_of_objects_is_refused(tmp_path, value):
    with pytest.raises(DataError, match=r"X is .*: only those are read"):
        mat(write(tmp_path / "a.mat", mat_bytes({"X": value})), "X")


def test_a_missing_variable_is_named(tmp_path):
    path = write(tmp_path / "a.mat", mat_bytes({"X": np.eye(2), "s": {"a": 1.0}}))
    for wanted in ("y", "s.b", "X.a"):
        with pytest.raises(DataError, match=f"no array {wanted}|X is an array, not a structure"):
            mat(path, wanted)


def test_folders_pipes_and_missing_files_are_no_files(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for name, message in (("pipe", "not an ordinary file"), (".", "not an ordinary file"), ("no", "No such file")):
        with pytest.raises(DataError, match=message):
            read_idx(tmp_path / name, 3)


def test_an_unpacked_stream_never_holds_more_than_asked_for(tmp_path):
    """A gzip bomb of 200 MB in 200 KB, behind a header that fits: memory must stay where it is."""
    buffer = io.BytesIO()
    with gzip.GzipFile(fileobj=buffer, mode="wb") as file:
        file.write(idx_bytes(np.zeros((10, 28, 28))))
        for _ in range(200):
            file.write(bytes(1 << 20))
    path = write(tmp_path / "bomb.gz", buffer.getvalue())
    peak, message = peak_memory(lambda: read_idx(path, 3))
    assert "goes on after the end" in message
    assert peak < 8 << 20


@pytest.mark.parametrize("gz", [True, False])
def test_a_header_that_claims_four_billion_images_is_refused_before_memory_is_spent(tmp_path, gz):
    header = b"\0\0\x08\x03" + b"\xff\xff\xff\xff" + b"\0\0\0\x1c" * 2
    with pytest.raises(DataError, match="should have 3,367,254,359,280 bytes, but no more than"):
        read_idx(write(tmp_path / "a", header + bytes(1000), gz), 3)
    header = norb_bytes(np.zeros((1, 1, 1, 1), np.uint8))[:8] + b"\xff\xff\xff\x7f" * 4
    with pytest.raises(DataError, match="but no more than"):
        read_norb(write(tmp_path / "b", header + bytes(1000), gz), 4)


def test_a_limit_on_what_a_file_unpacks_to_holds(tmp_path):
    path = write(tmp_path / "a.gz", idx_bytes(np.zeros((1000, 28, 28))), gz=True)
    assert read_idx(path, 3, most=784_016).shape == (1000, 28, 28)
    with pytest.raises(DataError, match=r"should have 784,000 bytes, but no more than 783,999 can follow"):
        read_idx(path, 3, most=784_015)


def peak_memory(task):
    """Most bytes that Python took while a task was refused."""
    tracemalloc.start()
    with pytest.raises(DataError) as caught:
        task()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak, str(caught.value)


def test_a_sparse_file_in_a_tar_is_refused_before_it_grows(tmp_path):
    """A tar of 119 bytes can hold a sparse file that tarfile reads as gigabytes of zeros."""
    member = tarfile.TarInfo(BATCHES[0])
    member.pax_headers = {"GNU.sparse.major": "0", "GNU.sparse.minor": "1", "GNU.sparse.size": str(1 << 30)}
    member.pax_headers |= {"GNU.sparse.map": f"{1 << 30},0", "GNU.sparse.numblocks": "1", "GNU.sparse.name": BATCHES[0]}
    path = write(tmp_path / "a.tar.gz", tar_bytes({}, [member]))
    peak, message = peak_memory(lambda: read_cifar_tar(path, BATCHES[:1]))
    assert "sparse file" in message
    assert peak < 8 << 20


def test_a_tar_that_unpacks_without_end_is_cut_off(tmp_path):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz", compresslevel=1) as tar:
        member = tarfile.TarInfo("zeros")
        member.size = 300 << 20
        tar.addfile(member, io.BufferedReader(Zeros()))
    path = write(tmp_path / "a.tar.gz", out.getvalue())
    peak, message = peak_memory(lambda: read_cifar_tar(path, BATCHES[:1]))
    assert "goes on beyond all that can be in it" in message
    assert peak < 16 << 20


class Zeros(io.RawIOBase):
    def readable(self):
        return True

    def readinto(self, buffer):
        buffer[:] = bytes(len(buffer))
        return len(buffer)


def test_an_array_larger_than_it_may_be_is_refused_at_its_header(tmp_path):
    path = write(tmp_path / "a.mat", mat_bytes({"X": np.zeros((1000, 30_000), np.uint8)}))
    assert path.stat().st_size < 100_000
    peak, message = peak_memory(lambda: mat(path, "X", most=29_999_999))
    assert "X claims 30,000,000 bytes, 29,999,999 at most" in message
    assert peak < 4 << 20
    assert mat(path, "X", most=30_000_000)["X"].shape == (1000, 30_000)


def mat_of(*elements):
    """A .mat file whose one compressed array has these (type, claimed size, bytes)."""
    body = b"".join(struct.pack("<II", kind, size) + content for kind, size, content in elements)
    packed = zlib.compress(struct.pack("<II", 14, len(body)) + body)
    return mat_bytes({"X": np.eye(2)})[:128] + struct.pack("<II", 15, len(packed)) + packed


FLAGS = (6, 8, struct.pack("<II", 9, 0))
DIMENSIONS = (5, 8, struct.pack("<ii", 1 << 15, 1 << 16))
NAME = (1, 1, b"X" + bytes(7))


@pytest.mark.parametrize(
    ("elements", "message"),
    [
        ([FLAGS, DIMENSIONS, NAME, (2, 1 << 31, bytes(64))], "X should have 2,147,483,648 bytes, but no more than"),
        ([FLAGS, DIMENSIONS, (1, 1 << 30, bytes(64))], "a name claims 1,073,741,824 bytes, 64 at most"),
        ([FLAGS, (5, 1 << 30, bytes(64))], "dimensions claims 1,073,741,824 bytes, 128 at most"),
        ([(6, 1 << 30, bytes(64))], "array flags claims 1,073,741,824 bytes, 8 at most"),
        ([FLAGS, DIMENSIONS, NAME, (2, 64, bytes(64))], "X has 64 bytes of values for dimensions"),
        ([FLAGS, DIMENSIONS, NAME, (10, 64, bytes(64))], "X has values of type 10"),
    ],
)
def test_claims_inside_a_compressed_array_are_not_believed(tmp_path, elements, message):
    path = write(tmp_path / "a.mat", mat_of(*elements))
    peak, seen = peak_memory(lambda: mat(path, "X", most=1 << 40))
    assert message in seen
    assert peak < 4 << 20
