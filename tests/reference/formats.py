"""Small files in the real formats, written by hand from their descriptions, or by SciPy where MATLAB's is meant."""

import gzip
import io
import struct
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import scipy.io


def idx_bytes(array):
    array = np.asarray(array, np.uint8)
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def norb_bytes(array):
    array = np.asarray(array)
    magic, kind = (0x1E3D4C55, "u1") if array.dtype == np.uint8 else (0x1E3D4C54, "<i4")
    sizes = list(array.shape) + [1] * (3 - array.ndim)
    return struct.pack(f"<Ii{len(sizes)}i", magic, array.ndim, *sizes) + array.astype(kind).tobytes()


def cifar_bytes(images, labels):
    rows = np.concatenate(
        [np.asarray(labels, np.uint8)[:, None], np.asarray(images, np.uint8).reshape(len(images), -1)], 1
    )
    return rows.tobytes()


def tar_bytes(files, extra=()):
    """A gzipped tar of {name: content}, and of ready-made TarInfos without content."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
        for member in extra:
            tar.addfile(member)
    return out.getvalue()


def mat_bytes(variables, compressed=True):
    out = io.BytesIO()
    scipy.io.savemat(out, variables, do_compression=compressed)
    return out.getvalue()


def zip_bytes(files, method=zipfile.ZIP_DEFLATED):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return out.getvalue()


def svhn_bytes(images, labels):
    """Images (N, 3, 32, 32) and digits 0 to 9, as MATLAB has them: (32, 32, 3, N) and labels 1 to 10."""
    labels = np.where(np.asarray(labels) == 0, 10, labels).astype(np.uint8)
    return mat_bytes({"X": np.asarray(images).transpose(2, 3, 1, 0), "y": labels[:, None]})


def affnist_bytes(images, labels):
    """Images (N, 40, 40), a column each; with the neighbours that the real file has."""
    columns = np.asarray(images, np.uint8).reshape(len(images), -1).T
    one_hot = np.eye(10)[np.asarray(labels)].T
    fields = {"human_readable_transform": np.zeros((7, len(images))), "image": columns, "label_one_of_n": one_hot}
    fields["label_int"] = np.asarray(labels, np.float64)[None]
    return zip_bytes({"test.mat": mat_bytes({"affNISTdata": fields})})


def write(path, content, gz=False):
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(content) if gz else content)
    return path


def write_mnist(folder, count=20, split="train", gz=True, seed=0):
    """Both idx files of a split, with random pixels."""
    random = np.random.default_rng(seed)
    images, labels = random.integers(256, size=(count, 28, 28)), np.arange(count) % 10
    prefix, end = ("train" if split == "train" else "t10k"), (".gz" if gz else "")
    write(Path(folder) / f"{prefix}-images-idx3-ubyte{end}", idx_bytes(images), gz)
    write(Path(folder) / f"{prefix}-labels-idx1-ubyte{end}", idx_bytes(labels), gz)
    return images, labels


def write_smallnorb(folder, pairs=6, split="train", seed=0):
    """The three files of a split; returns (pairs, 2, 96, 96), categories and (pairs, 4) facts."""
    random = np.random.default_rng(seed)
    part = "46789x9x18x6x2x96x96-training" if split == "train" else "01235x9x18x6x2x96x96-testing"
    pixels = random.integers(256, size=(pairs, 2, 96, 96), dtype=np.uint8)
    categories, facts = np.arange(pairs, dtype=np.int32) % 5, random.integers(9, size=(pairs, 4), dtype=np.int32)
    for kind, array in (("dat", pixels), ("cat", categories), ("info", facts)):
        write(Path(folder) / f"smallnorb-5x{part}-{kind}.mat.gz", norb_bytes(array), gz=True)
    return pixels, categories, facts
