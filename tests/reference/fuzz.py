"""Damaged files by the hundred, under a memory cap: `python -m reference.fuzz READER COUNT`, run by test_fuzz.

Every mutation must be read, or refused with a PaircapsError; anything else ends the process with a traceback.
"""

import gzip
import io
import json
import random
import resource
import struct
import sys
import tempfile
import zlib
from copy import deepcopy
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from reference.formats import cifar_bytes, idx_bytes, mat_bytes, norb_bytes, svhn_bytes, tar_bytes, zip_bytes

import paircaps
from paircaps.data import decode_picture, load_dataset
from paircaps.data.files.arrays import read_idx, read_norb
from paircaps.data.files.cifar import read_cifar, read_cifar_tar
from paircaps.data.files.matlab import read_mat
from paircaps.data.files.stream import open_stream
from paircaps.errors import PaircapsError
from paircaps.model_files import save_model
from paircaps.network import Network, NetworkSpec, Preparation

MEGABYTES = 96  # beyond what the process has before the first read
EXTREMES = [0, 1, 0x7F, 0xFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0xFFFFFFF0, 0x10000000]


def pixels(*shape):
    return np.random.default_rng(0).integers(256, size=shape, dtype=np.uint8)


def plain(content):
    return content


def zipped(content):
    return zip_bytes({"test.mat": content})


def mat_of_elements(content):
    """A .mat file of one compressed element: the mutations are inside of it."""
    packed = zlib.compress(content)
    return mat_bytes({"X": np.eye(2)})[:128] + struct.pack("<II", 15, len(packed)) + packed


def picture(kind):
    out = io.BytesIO()
    Image.fromarray(pixels(40, 30, 3)).save(out, kind)
    return out.getvalue()


def read_matlab(path):
    with open_stream(path) as stream:
        return read_mat(stream, {"X": 1 << 30})


def load(name, split, file):
    def read(path):
        path.rename(path.with_name(file))
        return load_dataset(name, split, path.parent, verify=False, download=False)

    return read


def decode(path):
    return decode_picture(path.read_bytes(), str(path), (16, 16))


def saved_model():
    """The two files of a small trained network."""
    arguments = {"num_classes": 3, "in_channels": 1, "image_size": [16, 16], "routing": "fm", "widths": [8, 8, 8]}
    arguments |= {"kinds": 2, "pose_dim": 4, "hidden_capsules": [4], "routing_options": {}, "norm_momentum": 0.1}
    spec = NetworkSpec("fast-caps", arguments, ("a", "b", "c"), Preparation((20, 20), (16, 16), True), "dense")
    with tempfile.TemporaryDirectory() as folder:
        save_model(Path(folder), Network(spec), {"loss": {"name": "margin"}, "dataset": "glyphs"})
        return [Path(folder, name).read_bytes() for name in ("model.json", "model.safetensors")]


MODEL, WEIGHTS = saved_model()


def load_model(path):
    """Load a model.json beside its weights, and predict."""
    path.with_name("model.safetensors").write_bytes(WEIGHTS)
    path.replace(path.with_name("model.json"))
    network = paircaps.load(path.parent)
    network.predict(torch.zeros(network.spec.preparation.channels, *network.spec.preparation.size))


VALUES = [None, True, False, 0, 1, -1, 2, 11, 4000, 30_000, 2**31, 2**63, 10**30, 1e-9, 1e308, float("nan")]
VALUES += ["", "a", "auto", "em", "x" * 1000, "\x1b[2J\n", [], {}, [0], [1, 1], [20, 20], [30_000] * 2, [[1]], {"a": 1}]
VALUES += [10**400, [None]]
VALUES += [
    "fast-pool",
    "capsnet",
    "resnet-caps",
    [1_000_000, 1, 1],
    "none",
    "deconv",
    [2**40, 2**40],
    -(10**30),
    [None],
]
OPTIONS = ["transform", "votes", "stem", "streaming", "vote_norm", "primary_norm", "filters", "blocks", "head_width"]
OPTIONS += ["certainty", "fitting", "iterations", "epsilon"]


def mutate_json(content, dice):
    """One to three values of a JSON document replaced, removed, added or moved; sometimes its bytes are damaged."""
    if dice.random() < 0.1:
        return mutate(content, dice)
    document = json.loads(content)
    for _ in range(dice.randint(1, 3)):
        places = list(containers(document))
        place = dice.choice(places)
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        kind = dice.randrange(8)
        if kind == 0 and isinstance(place, dict):
            place[dice.choice(OPTIONS)] = deepcopy(dice.choice(VALUES))
        elif kind == 1 and keys:
            del place[dice.choice(keys)]
        elif kind == 2 and keys:
            place[dice.choice(keys)] = deepcopy(dice.choice(places))
        elif keys:
            key = dice.choice([key for key in keys if key != "sha256"] or keys)
            place[key] = deepcopy(dice.choice(VALUES))
    return json.dumps(document).encode()


def containers(value):
    """All lists and tables of a JSON document."""
    if isinstance(value, dict | list):
        yield value
        for inner in value.values() if isinstance(value, dict) else value:
            yield from containers(inner)


SVHN = svhn_bytes(pixels(5, 3, 32, 32), np.arange(5))
AFFNIST = {"image": pixels(1600, 4), "label_int": np.arange(4.0)[None]}
BATCH = {"a/data_batch_1.bin": cifar_bytes(pixels(2, 3, 32, 32), [1, 2])}
READERS = {  # reader, how the mutated bytes are packed into a file, bytes
    "idx": (lambda path: read_idx(path, 3), plain, idx_bytes(pixels(5, 9, 7))),
    "idx.gz": (lambda path: read_idx(path, 3), gzip.compress, idx_bytes(pixels(5, 9, 7))),
    "norb": (lambda path: read_norb(path, 4), plain, norb_bytes(pixels(3, 2, 8, 8))),
    "norb.gz": (lambda path: read_norb(path, 4), gzip.compress, norb_bytes(pixels(3, 2, 8, 8))),
    "cifar": (read_cifar, plain, cifar_bytes(pixels(2, 3, 32, 32), [1, 2])),
    "cifar tar": (
        lambda path: read_cifar_tar(path, ["data_batch_1.bin"]),
        gzip.compress,
        gzip.decompress(tar_bytes(BATCH)),
    ),
    "mat": (read_matlab, plain, mat_bytes({"y": np.arange(4.0), "X": pixels(4, 5, 3)}, compressed=False)),
    "mat element": (read_matlab, mat_of_elements, mat_bytes({"X": pixels(4, 5, 3)}, compressed=False)[128:]),
    "svhn": (load("svhn", "test", "test_32x32.mat"), plain, SVHN),
    "affnist": (
        load("affnist", "test", "test.mat.zip"),
        zipped,
        mat_bytes({"affNISTdata": AFFNIST}, compressed=False),
    ),
    "PNG": (decode, plain, picture("PNG")),
    "JPEG": (decode, plain, picture("JPEG")),
    "BMP": (decode, plain, picture("BMP")),
    "WEBP": (decode, plain, picture("WEBP")),
    "model.json": (load_model, plain, MODEL),
}
MUTATIONS = {"model.json": 2000}
"""Numbers of mutations, where they are not 500."""


def mutate(content, dice):
    """One to four of the things that happen to files, most of them near the beginning, where the headers are."""
    changed = bytearray(content)
    for _ in range(dice.randint(1, 4)):
        if not changed:
            return bytes(changed)
        at = min(int(len(changed) * dice.random() ** dice.choice([1, 4])), len(changed) - 1)
        kind = dice.randrange(7)
        if kind == 0:
            changed[at] ^= 1 << dice.randrange(8)
        elif kind == 1:
            changed[at] = dice.randrange(256)
        elif kind == 2:
            value = dice.choice(EXTREMES)
            changed[at : at + 4] = struct.pack(dice.choice(["<I", ">I"]), value)
        elif kind == 3:
            del changed[at:]
        elif kind == 4:
            del changed[at : at + dice.randint(1, 64)]
        elif kind == 5:
            changed[at:at] = changed[at : at + dice.randint(1, 64)]
        else:
            changed[at:at] = bytes(dice.randrange(256) for _ in range(dice.randint(1, 16)))
    return bytes(changed)


def main():
    name, count = sys.argv[1], int(sys.argv[2])
    read, pack, content = READERS[name]
    change = mutate_json if name == "model.json" else mutate
    dice = random.Random(name)
    good = refused = 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "file.bin")
        path.write_bytes(pack(content))
        read(path)  # whole, it is read; and everything is imported before memory is capped
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (MEGABYTES << 20),) * 2)
        for _ in range(count):
            # the file itself is damaged, or what is packed into it
            whole = change(pack(content), dice) if dice.random() < 0.5 else pack(change(content, dice))
            path.write_bytes(whole)
            try:
                read(path)
                good += 1
            except PaircapsError as error:
                if folder not in str(error):
                    raise RuntimeError("the file is not named") from error
                refused += 1
    print(good, refused)


if __name__ == "__main__":
    main()
