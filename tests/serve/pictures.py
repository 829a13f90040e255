"""Pictures of every kind that people send, and of those they should not."""

import io
import struct
import zlib

import numpy as np
from PIL import Image, ImageDraw


def seven(size=200, mode="L"):
    picture = Image.new("L", (size, size))
    ImageDraw.Draw(picture).line([(60, 50), (130, 50), (90, 150)], fill=255, width=16)
    return picture.convert(mode)


def as_file(picture, kind="PNG", **options):
    file = io.BytesIO()
    picture.save(file, kind, **options)
    return file.getvalue()


def flat_png(width, height, depth=8, colour=0):
    """A black PNG of any size in a few kilobytes, without ever holding it."""
    channels = {0: 1, 2: 3, 4: 2, 6: 4}[colour]
    row = b"\0" * (1 + width * channels * depth // 8)
    squeeze = zlib.compressobj(9)
    packed = b"".join(squeeze.compress(row) for _ in range(height)) + squeeze.flush()

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", packed) + chunk(b"IEND", b"")


def sixteen_bit():
    return as_file(Image.fromarray(np.asarray(seven()).astype(np.uint16) * 257))


def turned_by_exif():
    """The seven lying on its side, with the note that it has to be turned back."""
    exif = Image.Exif()
    exif[0x0112] = 6
    return as_file(seven().rotate(90, expand=True), "JPEG", exif=exif, quality=95)


def cut_out():
    """The seven in white, the rest transparent."""
    picture = Image.new("RGBA", (200, 200), (255, 255, 255, 0))
    picture.paste((255, 255, 255, 255), mask=seven())
    return as_file(picture)


SVG = b'<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><rect width="9" height="9"/></svg>'
