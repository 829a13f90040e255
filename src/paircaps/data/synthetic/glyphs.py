"""Digits drawn from the fonts that Matplotlib ships, which need no download.

Fonts of the test split are not among those of the train split, so a network cannot have memorised them. Glyphs look
like MNIST's digits: white on black, 20 pixels tall, in the middle of 28×28.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np
import torch

from paircaps._utils.checks import require_choice
from paircaps._utils.extras import require_extra
from paircaps.data.dataset import Info, StoredDataset
from paircaps.data.errors import DataError
from paircaps.data.metadata import DIGITS

FONTS = {
    "train": (
        "DejaVuSans",
        "DejaVuSans-Bold",
        "DejaVuSans-BoldOblique",
        "DejaVuSans-Oblique",
        "DejaVuSansMono",
        "DejaVuSansMono-BoldOblique",
        "DejaVuSansMono-Oblique",
        "DejaVuSerif",
        "DejaVuSerif-Bold",
        "DejaVuSerif-BoldItalic",
        "STIXGeneral",
        "STIXGeneralBolIta",
        "STIXGeneralItalic",
        "cmb10",
        "cmmi10",
        "cmr10",
    ),
    "test": ("DejaVuSansMono-Bold", "DejaVuSerif-Italic", "STIXGeneralBol", "cmss10", "cmti10", "cmtt10"),
}
SIZE, HEIGHT = 28, 20


def font_file(name: str) -> Path:
    """Path of a font that Matplotlib ships."""
    require_extra("drawing glyphs", "matplotlib", "PIL")
    import matplotlib

    path = Path(matplotlib.get_data_path(), "fonts", "ttf", f"{name}.ttf")
    if not path.exists():
        raise DataError(f"{path}: a font that Matplotlib ships is not there")
    return path


@lru_cache(maxsize=2)
def upright_glyphs(split: str) -> StoredDataset:
    """Every digit of every font of a split, once, (fonts · 10, 1, 28, 28), font after font; extras: ``font``."""
    require_choice("split", split, tuple(FONTS))
    images = np.stack([_glyph(font_file(name), digit) for name in FONTS[split] for digit in DIGITS])
    labels = torch.arange(10).repeat(len(FONTS[split]))
    font = torch.arange(len(FONTS[split])).repeat_interleave(10)
    info = Info("upright-glyphs", split, DIGITS, f"{len(FONTS[split])} fonts")
    return StoredDataset(info, torch.from_numpy(images).unsqueeze(1), labels, {"font": font})


def _glyph(font: Path, digit: str) -> np.ndarray:
    """Draw one digit, HEIGHT pixels tall, its ink in the middle.

    Fonts disagree on how tall a digit is at a given size, so it is drawn large and scaled down to fit.
    """
    from PIL import Image, ImageDraw, ImageFont

    large = ImageFont.truetype(str(font), 8 * HEIGHT)
    left, top, right, bottom = large.getbbox(digit)
    drawn = Image.new("L", (int(right - left), int(bottom - top)))
    ImageDraw.Draw(drawn).text((-left, -top), digit, fill=255, font=large)
    ink = drawn.getbbox()
    if ink is None:
        raise DataError(f"{font}: has no digit {digit}")
    drawn = drawn.crop(ink)
    scale = min(HEIGHT / drawn.height, HEIGHT / drawn.width)
    size = max(1, round(drawn.width * scale)), max(1, round(drawn.height * scale))
    canvas = Image.new("L", (SIZE, SIZE))
    small = drawn.resize(size, Image.Resampling.LANCZOS)
    canvas.paste(small, ((SIZE - size[0]) // 2, (SIZE - size[1]) // 2))
    return np.asarray(canvas)
