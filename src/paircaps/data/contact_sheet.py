"""Contact sheet: some images of every class of a dataset on one labelled page."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from paircaps._utils.checks import require_positive
from paircaps._utils.colours import one_colour_each
from paircaps._utils.extras import require_extra
from paircaps._utils.files import write_whole
from paircaps.data.dataset import Batch, ImageDataset
from paircaps.data.errors import DataError, os_data_error
from paircaps.data.randomness import permutation
from paircaps.data.synthetic.glyphs import font_file

if TYPE_CHECKING:
    from PIL import Image, ImageFont

FORMATS = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG", ".webp": "WEBP"}
_ROWS, _ROWS_OF_PAIRS = 12, 5
_TILE, _GAP, _MARGIN, _TEXT, _TITLE = 64, 4, 16, 14, 18
_PAPER, _INK, _PALE = "white", "#222222", "#666666"


def contact_sheet(dataset: ImageDataset, columns: int = 10, rows: int | None = None, seed: int = 0) -> Image.Image:
    """Draw some images of every class, one class per row; or pairs of digits, with both digits in two colours below.

    Args:
        dataset: dataset to show.
        columns: images in a row.
        rows: most rows; without it 12, or 5 of pairs.
        seed: seed that chooses the images.
    """
    if "originals" in dataset.image_extras:
        draw, usual = _sheet_of_pairs, _ROWS_OF_PAIRS
    else:
        draw, usual = _sheet_of_classes, _ROWS
    rows = usual if rows is None else rows
    require_positive(columns=columns, rows=rows)
    return draw(dataset, columns, rows, seed)


def save_picture(picture: Image.Image, path: Path) -> None:
    """Write a picture to a file; an interrupted write leaves no file."""
    require_picture_name(path)
    content = io.BytesIO()
    picture.save(content, FORMATS[path.suffix.lower()])
    try:
        write_whole(path, content.getvalue())
    except OSError as error:
        raise os_data_error("write", path, error) from None


def require_picture_name(path: Path) -> None:
    """Raise a DataError for a name without a known suffix, or in a missing folder, before a picture is drawn."""
    if path.suffix.lower() not in FORMATS:
        raise DataError(f"{path}: the name of a picture must end in {', '.join(FORMATS)}")
    if path.is_dir() or not path.parent.is_dir():
        raise DataError(f"{path}: {'is a folder' if path.is_dir() else f'no such folder: {path.parent}'}")


def _sheet_of_classes(dataset: ImageDataset, columns: int, rows: int, seed: int) -> Image.Image:
    chosen = {name: index for name, index in _some_of_each(dataset, columns, seed).items() if len(index)}
    shown = dict(list(chosen.items())[:rows])
    tiles = [[_tile(dataset.batch([number]).images[0]) for number in index.tolist()] for index in shown.values()]
    note = f"{len(shown)} of {len(dataset.classes)} classes" if len(shown) < len(dataset.classes) else ""
    return _page(dataset, tiles, list(shown), note)


def _sheet_of_pairs(dataset: ImageDataset, columns: int, rows: int, seed: int) -> Image.Image:
    batch = dataset.batch(permutation(seed, 0, len(dataset), "sheet")[: columns * rows].sort().values)
    coloured = _two_colours(batch)
    tiles = []
    for number in range(len(batch)):
        tiles.append(_stacked(_tile(batch.images[number]), _tile(coloured[number]), _names(dataset, batch, number)))
    cut = range(0, len(tiles), columns)
    note = "below each pair its digits: the first orange, the second blue"
    return _page(dataset, [tiles[at : at + columns] for at in cut], [""] * len(cut), note)


def _some_of_each(dataset: ImageDataset, count: int, seed: int) -> dict[str, Tensor]:
    """Indices of a few images of every class, by its name."""
    order = permutation(seed, 0, len(dataset), "sheet")
    labels = dataset.labels.cpu()[order]
    return {name: order[labels == label][:count] for label, name in enumerate(dataset.classes)}


def _two_colours(batch: Batch) -> Tensor:
    """Both digits of each pair (B, 2, 1, H, W) as one colour picture in bytes."""
    return (one_colour_each(batch.extras["originals"].float() / 255) * 255).to(torch.uint8)


def _names(dataset: ImageDataset, batch: Batch, number: int) -> str:
    labels = int(batch.labels[number]), int(batch.extras["second_label"][number])
    return " + ".join(dataset.classes[label] for label in labels)


def _tile(image: Tensor) -> Image.Image:
    """An image at a size that can be looked at; channels that are no colours side by side."""
    require_extra("drawing a contact sheet", "PIL")
    from PIL import Image

    image = image.cpu()
    side = max(image.shape[-2:])
    factor = min(max(side, _TILE), 2 * _TILE) / side
    factor = max(1, round(factor)) if factor > 0.75 else factor
    if image.shape[0] not in (1, 3):
        image = torch.cat(list(image), -1)[None]
    pixels = image.permute(1, 2, 0).squeeze(-1).contiguous().numpy()
    picture = Image.fromarray(pixels)
    smooth = Image.Resampling.NEAREST if factor >= 1 else Image.Resampling.BILINEAR
    return picture.resize((max(1, int(picture.width * factor)), max(1, int(picture.height * factor))), smooth)


def _stacked(above: Image.Image, below: Image.Image, caption: str) -> Image.Image:
    from PIL import Image, ImageDraw

    tile = Image.new("RGB", (above.width, above.height + below.height + _GAP // 2 + 2 * _TEXT), _PAPER)
    tile.paste(above.convert("RGB"), (0, 0))
    tile.paste(below.convert("RGB"), (0, above.height + _GAP // 2))
    place = (tile.width / 2, tile.height - _TEXT)
    ImageDraw.Draw(tile).text(place, caption, fill=_INK, font=_font(_TEXT), anchor="mm")
    return tile


def _page(dataset: ImageDataset, tiles: list[list[Image.Image]], names: list[str], note: str) -> Image.Image:
    """Rows of tiles under a title, each with its name on the left."""
    from PIL import Image, ImageDraw

    # sizes of the title, the names and the tiles
    titles = _titles(dataset, note)
    names = [_shortened(name) for name in names]
    label = max((int(_font(_TEXT).getlength(name)) for name in names), default=0)
    label += 2 * _GAP if label else 0
    height = max(tile.height for row in tiles for tile in row)
    widths = [sum(tile.width + _GAP for tile in row) - _GAP for row in tiles]
    text = max(int(_font(_TITLE if line == 0 else _TEXT).getlength(title)) for line, title in enumerate(titles))
    head = _MARGIN + _TITLE + (len(titles) - 1) * int(1.4 * _TEXT) + _MARGIN
    width = 2 * _MARGIN + max(text, label + max(widths))
    page = Image.new("RGB", (width, head + len(tiles) * (height + _GAP) - _GAP + _MARGIN), _PAPER)
    draw = ImageDraw.Draw(page)
    # title
    for line, title in enumerate(titles):
        place = (_MARGIN, _MARGIN + (0 if line == 0 else _TITLE + int((line - 1) * 1.4 * _TEXT) + _GAP))
        draw.text(place, title, fill=_INK if line == 0 else _PALE, font=_font(_TITLE if line == 0 else _TEXT))
    # rows
    for number, (row, name) in enumerate(zip(tiles, names, strict=True)):
        top, left = head + number * (height + _GAP), _MARGIN + label
        draw.text((left - 2 * _GAP, top + height / 2), name, fill=_INK, font=_font(_TEXT), anchor="rm")
        for tile in row:
            page.paste(tile.convert("RGB"), (left, top))
            left += tile.width + _GAP
    return page


def _titles(dataset: ImageDataset, note: str) -> list[str]:
    channels, height, width = dataset.shape
    contents = f"{len(dataset):,} images of {height}×{width}×{channels}, {len(dataset.classes)} classes"
    more = "; ".join(text for text in (dataset.info.note, note) if text)
    return [f"{dataset.info.name}, {dataset.info.split}", contents, *([more] if more else [])]


def _shortened(name: str, most: int = 32) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"


def _font(size: int) -> ImageFont.FreeTypeFont:
    from PIL import ImageFont

    return ImageFont.truetype(str(font_file("DejaVuSans")), size)
