"""A small set of pictures as people have them: three shapes in any size, place, colour and light."""

from __future__ import annotations

import math
import random
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

CLASSES = ("circle", "square", "triangle")


def draw_shapes(folder: Path, each: int = 60, seed: int = 0, sides: tuple[int, int] = (40, 160)) -> Path:
    """Draw pictures of circles, squares and triangles into one subfolder each.

    Args:
        folder: new folder.
        each: pictures of each class.
        seed: seed of everything that differs from picture to picture.
        sides: shortest and longest side of a picture, in pixels.

    Returns:
        The folder.
    """
    for name in CLASSES:
        (folder / name).mkdir(parents=True)
        for number in range(each):
            ending = (".png", ".jpg", ".bmp")[number % 3]
            _draw(name, random.Random(f"{seed} {name} {number}"), sides).save(folder / name / f"{number:03d}{ending}")
    return folder


def _draw(name: str, chance: random.Random, sides: tuple[int, int]) -> Image.Image:
    width, height = (chance.randint(*sides) for _ in range(2))
    while max(width, height) > 2 * min(width, height):
        width, height = (chance.randint(*sides) for _ in range(2))
    back = [chance.randrange(256) for _ in range(3)]
    ink = [chance.randrange(256) for _ in range(3)]
    while sum(abs(one - other) for one, other in zip(back, ink, strict=True)) < 150:
        ink = [chance.randrange(256) for _ in range(3)]
    # the background is brighter at one end, and the whole is noisy
    noise = np.random.default_rng(chance.randrange(1 << 30))
    light = np.linspace(-1, 1, width)[None, :, None] * chance.uniform(-40, 40)
    picture = Image.fromarray((np.asarray(back) + light + np.zeros((height, width, 3))).clip(0, 255).astype(np.uint8))
    # the shape lies wholly inside
    radius = min(width, height) * chance.uniform(0.3, 0.48)
    x, y = (chance.uniform(radius, side - radius) for side in (width, height))
    draw = ImageDraw.Draw(picture)
    if name == "circle":
        draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=tuple(ink))
    else:
        corners, upright = (4, math.pi / 4) if name == "square" else (3, -math.pi / 2)
        turn = upright + chance.uniform(-0.4, 0.4)
        angles = [turn + 2 * math.pi * corner / corners for corner in range(corners)]
        draw.polygon(
            [(x + radius * math.cos(angle), y + radius * math.sin(angle)) for angle in angles], fill=tuple(ink)
        )
    pixels = np.asarray(picture) + noise.normal(0, chance.uniform(2, 15), (height, width, 3))
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))
