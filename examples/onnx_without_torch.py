"""Classify a picture by an exported network, in a Python without PyTorch and without paircaps.

    python examples/onnx_without_torch.py network.onnx picture.png

``paircaps export runs/pictures -o network.onnx`` writes the network, with its class names and the preparation of
pictures. This file needs numpy, onnxruntime and Pillow alone; its answer is that of ``paircaps predict``.
"""

import argparse
import json
import sys

import numpy as np
import onnxruntime
from PIL import Image, ImageOps


def prepared(file: str, size: tuple[int, int], channels: int, fit: str, background: int, invert: str) -> np.ndarray:
    """Picture of a file as in the training, (1, C, H, W) in 0..1; size is (width, height)."""
    picture = Image.open(file)
    if picture.mode.startswith("I"):
        raise ValueError("sixteen bits a colour; convert the picture to eight")
    picture.draft(None, (4 * size[0], 4 * size[1]))  # a large JPEG is decoded at a fraction of its size
    picture = ImageOps.exif_transpose(picture)
    if picture.has_transparency_data:
        grey = 255 - background if invert == "always" else background
        paper = Image.new("RGBA", picture.size, (grey, grey, grey, 255))
        picture = Image.alpha_composite(paper, picture.convert("RGBA"))
    picture = (picture if picture.mode == "L" else picture.convert("RGB")).convert("L" if channels == 1 else "RGB")
    if picture.width * picture.height > 1 << 20:  # what is still large is averaged first
        picture = picture.reduce(tuple(max(1, side // (4 * max(size))) for side in picture.size))
    edges = np.asarray(picture.convert("L").resize((32, 32), Image.Resampling.BOX), float)
    light = edges.sum() - edges[2:-2, 2:-2].sum() > 127.5 * (32**2 - 28**2)
    if invert == "always" or (invert == "light" and light):
        picture = ImageOps.invert(picture)
    if fit == "pad":
        scale = min(size[0] / picture.width, size[1] / picture.height)
        inner = tuple(max(1, round(side * scale)) for side in picture.size)
        picture = ImageOps.pad(picture.resize(inner, Image.Resampling.BILINEAR), size, Image.Resampling.NEAREST)
    picture = (ImageOps.fit if fit == "crop" else Image.Image.resize)(picture, size, Image.Resampling.BILINEAR)
    return np.asarray(picture, np.float32).reshape(1, *size[::-1], channels).transpose(0, 3, 1, 2) / 255


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Classify a picture by a network that paircaps export has written.")
    parser.add_argument("network")
    parser.add_argument("picture")
    options = parser.parse_args()
    try:
        session = onnxruntime.InferenceSession(options.network)
        about = json.loads(session.get_modelmeta().custom_metadata_map["paircaps"])
        how = about["preparation"]
        image = prepared(options.picture, tuple(how["size"][::-1]), how["channels"], **how["fitting"])
        (probability,) = session.run(["probability"], {"images": image})[0]
    except KeyError as error:
        sys.exit(f"{options.network}: not written by paircaps export: {error} is missing")
    except Exception as error:  # of ONNX Runtime, Pillow or the file system
        sys.exit(f"cannot classify {options.picture} by {options.network}: {error}")
    for number in probability.argsort()[::-1]:
        print(f"{about['classes'][number]}: {probability[number]:.4f}")
