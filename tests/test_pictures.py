"""One picture of any kind and size: what is large is unpacked strip by strip, and bounded."""

import io

import numpy as np
import pytest
from PIL import Image

from paircaps import pictures
from paircaps.errors import DataError
from paircaps.pictures import decode_picture, find_pictures


def as_file(picture, kind="PNG", **options):
    file = io.BytesIO()
    picture.save(file, kind, **options)
    return file.getvalue()


def landscape(mode, size=(3000, 500)):
    """Something that looks different in every corner, and is much wider than high."""
    across, down = np.meshgrid(np.linspace(0, 255, size[0]), np.linspace(0, 255, size[1]))
    layers = {"L": [across], "RGB": [across, down, 255 - across], "RGBA": [across, down, 255 - across, down]}[mode]
    return Image.fromarray(
        np.stack(layers, -1).squeeze(-1) if mode == "L" else np.stack(layers, -1).astype(np.uint8)
    ).convert(mode)


@pytest.fixture
def strips(monkeypatch):
    """As if every picture were large."""
    monkeypatch.setattr(pictures, "_LARGE", 1)
    monkeypatch.setattr(pictures, "_STRIP", 2000)


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA"])
@pytest.mark.parametrize("channels", [1, 3])
def test_strip_by_strip_is_the_same_picture(mode, channels, monkeypatch):
    content = as_file(landscape(mode))
    monkeypatch.setattr(pictures, "_LARGE", 1 << 40)
    whole = decode_picture(content, "x", (20, 30), channels, "stretch", background=128)
    monkeypatch.setattr(pictures, "_LARGE", 1)
    monkeypatch.setattr(pictures, "_STRIP", 2000)
    parts = decode_picture(content, "x", (20, 30), channels, "stretch", background=128)
    assert (whole.int() - parts.int()).abs().max() <= 3
    assert parts.float().std() > 20


@pytest.mark.parametrize("orientation", range(1, 9))
def test_strip_by_strip_a_picture_is_turned_upright_too(orientation, monkeypatch):
    exif = Image.Exif()
    exif[0x0112] = orientation
    content = as_file(landscape("RGB"), "PNG", exif=exif)
    monkeypatch.setattr(pictures, "_LARGE", 1 << 40)
    whole = decode_picture(content, "x", 20, 3, "stretch")
    monkeypatch.setattr(pictures, "_LARGE", 1)
    monkeypatch.setattr(pictures, "_STRIP", 2000)
    assert (whole.int() - decode_picture(content, "x", 20, 3, "stretch").int()).abs().max() <= 4


def test_sixteen_bits_strip_by_strip(strips):
    grey = np.asarray(landscape("L")).astype(np.uint16) * 257
    seen = decode_picture(as_file(Image.fromarray(grey)), "x", (20, 30), 1, "stretch")
    assert abs(int(seen[0, 10, 2]) - 21) < 5
    assert abs(int(seen[0, 10, 27]) - 234) < 5


@pytest.mark.parametrize("size", [(5000, 3), (3, 5000)])
def test_thin_pictures(strips, size):
    assert decode_picture(as_file(Image.new("L", size, 200)), "x", 28, 1, "stretch").float().mean() == 200


@pytest.mark.parametrize(
    ("kind", "options", "mode", "cost"),
    [
        ("PNG", {}, "L", 1),
        ("PNG", {}, "RGB", 4),
        ("BMP", {}, "RGB", 4),
        ("WEBP", {}, "RGB", 16),
        ("JPEG", {"progressive": True}, "RGB", 6),
    ],
)
def test_what_needs_too_much_memory_is_refused_before_it_is_unpacked(kind, options, mode, cost):
    content = as_file(landscape(mode), kind, **options)
    pixels = 3000 * 500
    decode_picture(content, "x", 28, max_memory=(cost + 5) * pixels)
    with pytest.raises(
        DataError, match=rf"x: 1,500,000 pixels are too many for a {kind} picture here, about [\d,]+ at most"
    ):
        decode_picture(content, "x", 28, max_memory=cost * pixels - 1)


def test_a_photograph_costs_what_is_left_of_it():
    content = as_file(landscape("RGB", (2400, 1600)), "JPEG")
    seen = decode_picture(content, "x", 28, max_memory=1_000_000)
    assert seen.shape == (3, 28, 28)
    assert seen[0, 14, 2] < 60 < 190 < seen[0, 14, 25]


def test_a_picture_can_be_too_long():
    with pytest.raises(DataError, match=r"1×40000 is too long here, a side has 32,768 pixels at most"):
        decode_picture(as_file(Image.new("L", (1, 40_000))), "x", 28, max_memory=1 << 30)


class Endless(io.RawIOBase):
    """Standard input without an end, as of ``< /dev/zero``, that counts what is read of it."""

    read_of_it = 0

    def readable(self):
        return True

    def readinto(self, buffer):
        assert self.read_of_it < 10 << 20, "it is read without bound"
        self.read_of_it += len(buffer)
        return len(buffer)


def test_standard_input_without_end_is_refused(monkeypatch):
    monkeypatch.setattr("paircaps.pictures._FILE_MOST", 1 << 20)
    endless = Endless()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BufferedReader(endless)))
    [source] = find_pictures(["-"])
    with pytest.raises(DataError, match="standard input: more bytes than a picture has, 1,048,576 at most"):
        source.read()
    assert endless.read_of_it < 2 << 20
