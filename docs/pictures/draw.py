"""The pictures of docs/capsules.md and docs/architecture.md, drawn by the library they explain.

    paircaps train demo --out runs/demo-long --train.steps 2000 --train.epochs 20 --train.seed 0
    python docs/pictures/draw.py [--network runs/demo-long] [NAME ...]

NAME is one or more of capsule, vote, agreement, pose and architecture; without one, all are drawn. Capsule and pose are
of a trained network: the FM network of ``paircaps demo``, trained ten times as long, so that it draws sharply. Every
number in a picture is computed here.
"""

from __future__ import annotations

import argparse
import io
import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from paircaps import load
from paircaps._utils.colours import DIGITS
from paircaps._utils.figures import SLIDE, as_slide, new_figure
from paircaps._utils.files import write_whole
from paircaps.data.synthetic.poses import linear_map
from paircaps.errors import PaircapsError
from paircaps.explain import Dimension, dimension_ranges, measure_dimensions, perturb
from paircaps.explain.plots.panels import COLD, INK, WARM, show
from paircaps.explain.sample_images import load_sample_images, load_upright_images
from paircaps.explain.warps import UprightImages
from paircaps.functional import fm_agreement, matrix_votes
from paircaps.network import Network
from paircaps.routing import FMAgreement

FOLDER = Path(__file__).parent

NETWORK = Path("runs/demo-long")
"""Run folder of the network that the pictures on the page are of."""

WIDTH = 1600
"""Width of every picture in pixels; pages show it at about 700."""

TITLE, TEXT, SMALL = 22, 18, 15
"""Sizes of text in points, on a picture 13⅓ inches wide."""

LETTER = 14.9
"""Width in pixels of a letter of the small text, of those that are equally wide."""

QUIET, TRACK = "#767676", "#ececec"
"""Colours of what is less important, and of the empty part of a bar."""

Result = TypeVar("Result")


# --- what is drawn -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Trained:
    """A trained network with images to show it.

    Args:
        network: network with a decoder.
        samples: images like those of its training, (N, C, H, W), on which ranges of pose dimensions are measured.
        upright: images to warp into known poses.
    """

    network: Network
    samples: Tensor
    upright: UprightImages


def load_trained(folder: Path) -> Trained:
    """Load the network of a run folder with images of its own test dataset."""
    network = load(folder)
    upright = load_upright_images(network, folder)
    if upright is None:
        raise PaircapsError(f"{folder}: there are no images of its classes to warp; take a network of paircaps demo")
    return Trained(network, load_sample_images(network, folder).images, upright)


SHOWN_CLASS = "2"
"""The glyph of the pictures of a trained network."""

GLYPH_POSES = {
    "in the middle": (0.0, 0.0, 0.0, 1.0, 0.0),
    "up and left": (-6.0, -5.0, 0.0, 1.0, 0.0),
    "down and right": (6.0, 5.0, 0.0, 1.0, 0.0),
    "turned by 15°": (0.0, 0.0, 15.0, 1.0, 0.0),
}
"""Poses of that glyph: x and y in pixels, rotation in degrees, scale, shear."""

PARTS = ("left eye", "right eye", "nose", "mouth")

IN_FACE = torch.tensor(
    [
        [-0.34, -0.2, 0.0, 0.30, 0.0],
        [0.34, -0.2, 0.0, 0.30, 0.0],
        [0.0, 0.12, 0.0, 0.30, 0.0],
        [0.0, 0.60, 0.0, 0.40, 0.0],
    ]
)
"""Pose of each part in an upright face whose middle is (0, 0) and whose chin is at y = 1; y points down."""

FACE = torch.tensor([0.0, 0.0, 16.0, 0.95, 0.0])
"""Pose in which the face is shown."""

UNSTEADY = torch.tensor(
    [
        [0.01, 0.01, 1.5, 0.003, 0.0],
        [-0.01, 0.01, -1.5, 0.0, 0.0],
        [0.01, -0.02, 1.0, -0.004, 0.0],
        [-0.01, 0.0, -1.5, 0.004, 0.0],
    ]
)
"""What is added to the poses of the parts in place: found in an image, they are never quite exact."""

OTHER_FACES = torch.tensor(
    [
        [0.50, -0.12, 165.0, 0.95, 0.0],
        [-0.48, 0.28, 105.0, 0.95, 0.0],
        [0.22, 0.26, -75.0, 0.95, 0.0],
        [-0.35, -0.22, -158.0, 0.95, 0.0],
    ]
)
"""Poses of four faces; the scrambled parts are the left eye of the first, the right eye of the second, and so on."""


def pose_matrix(pose: Tensor) -> Tensor:
    """Poses (..., 5) as matrices (..., 3, 3) that take a point (x, y, 1) of the upright thing to its place."""
    matrix = torch.zeros(*pose.shape[:-1], 3, 3)
    matrix[..., :2, :2] = linear_map(pose)
    matrix[..., :2, 2] = pose[..., :2]
    matrix[..., 2, 2] = 1
    return matrix


def parts_in_place() -> Tensor:
    """Poses of the parts of the face, as matrices (4, 3, 3)."""
    return pose_matrix(FACE) @ pose_matrix(IN_FACE + UNSTEADY)


def parts_scrambled() -> Tensor:
    """Poses of the same parts, each somewhere else, as matrices (4, 3, 3)."""
    return pose_matrix(OTHER_FACES) @ pose_matrix(IN_FACE)


def face_votes(parts: Tensor) -> Tensor:
    """Votes of the parts for the pose of the face, as matrices.

    The fixed transform of a part is the inverse of its pose in the face: from the part to the face.

    Args:
        parts: poses of the parts, (4, 3, 3).

    Returns:
        (4, 3, 3).
    """
    transform = torch.linalg.inv(pose_matrix(IN_FACE))
    return matrix_votes(parts.flatten(1), transform.unsqueeze(1)).unflatten(-1, (3, 3)).squeeze(1)


def face_agreement(parts: Tensor) -> float:
    """FM agreement of the parts on the face; the last row of a vote is always 0, 0, 1 and is left out."""
    votes = face_votes(parts)[:, :2].flatten(1)
    return float(fm_agreement(votes.unsqueeze(1)).activation)


ANGLES = {
    "all agree": (20.0, 34.0, 48.0, 62.0),
    "one outlier": (20.0, 34.0, 48.0, 150.0),
    "all scatter": (15.0, 112.0, 197.0, 281.0),
}
"""Directions in degrees of four votes in a plane, three times; products with two decimals add up to their sum."""


def plane_votes() -> dict[str, Tensor]:
    """Four votes of length one in a plane, (4, 1, 2), by how they agree."""
    angles = {name: torch.deg2rad(torch.tensor(each)) for name, each in ANGLES.items()}
    return {name: torch.stack([each.cos(), each.sin()], -1).unsqueeze(1) for name, each in angles.items()}


def pair_products(votes: Tensor) -> Tensor:
    """Share of each pair of votes (I, 1, K) in the activation, (I, I)."""
    return FMAgreement(1).evidence(votes).pairs(torch.tensor(0))


# --- capsule, vote, agreement, pose ------------------------------------------------------------------------------


def draw_capsule(trained: Trained) -> bytes:
    """Draw one glyph in four poses, with the certainty of its class and the pose of its capsule below each."""
    network, upright = trained.network, trained.upright
    label = network.classes.index(SHOWN_CLASS)
    row = (upright.labels == label).nonzero()[0]
    images = upright.warped(row.expand(len(GLYPH_POSES)), torch.tensor(list(GLYPH_POSES.values()))).images
    with torch.no_grad(), network.evaluating():
        capsules = network(images)
    certainty, pose = network.certainty(capsules.activation)[:, label], capsules.pose[:, label]

    height = 6.9
    figure = _figure(height)
    wide = 0.175
    reach = float(pose.min().clamp_max(0)), float(pose.max())
    for column, name in enumerate(GLYPH_POSES):
        left = 0.225 + 0.195 * column
        picture = figure.add_axes((left, 0.58, wide, wide * SLIDE[0] / height))
        show(picture, network.prepare(images)[column])
        picture.set_title(name, fontsize=TEXT, color=INK, pad=10)
        words = f"{100 * certainty[column]:.1f} %"
        figure.text(left + wide / 2, 0.49, words, ha="center", fontsize=TEXT, color=INK)
        _bar(figure.add_axes((left, 0.435, wide, 0.035)), float(certainty[column]), 1.0)
        _pose_bars(figure.add_axes((left, 0.075, wide, 0.285)), pose[column], pose[0], reach)
    _words(figure, 0.78, "an image", f"one {SHOWN_CLASS},\nmoved or turned")
    _words(figure, 0.49, "1 number", "Is it there?\nIt hardly changes.")
    _words(figure, 0.25, f"{pose.shape[-1]} numbers", "How is it there?\nThe pose changes.")
    return _as_png(figure)


def draw_vote() -> bytes:
    """Draw the parts of a face that each predict the whole: one part, all in place, all scrambled."""
    figure = _figure(5.0)
    every = range(len(PARTS))
    panels = [
        ("One part predicts the whole", parts_in_place(), [0], ""),
        ("In place: the votes agree", parts_in_place(), every, "a face"),
        ("Scrambled: they do not", parts_scrambled(), every, "no face"),
    ]
    best = (len(PARTS) - 1) / 2  # agreement of votes that are all equal
    for column, (title, parts, shown, verdict) in enumerate(panels):
        left, middle = column / 3, column / 3 + 1 / 6
        axis = figure.add_axes((left, 0.175, 1 / 3, 0.715))
        axis.set(xlim=(-1.53, 1.53), ylim=(1.22, -1.22), aspect="equal")
        axis.axis("off")
        votes = face_votes(parts)
        for part in shown:
            _outline(axis, votes[part], DIGITS[part])
            _part(axis, part, parts[part], DIGITS[part])
        figure.text(middle, 0.92, title, ha="center", fontsize=TITLE, color=INK)
        if not verdict:
            words = "an eye, and the outline\nof the face it votes for"
            figure.text(middle, 0.085, words, ha="center", va="center", fontsize=TEXT, color=QUIET)
            continue
        agreement = face_agreement(parts)
        words = f"agreement {_signed(agreement)}: {verdict}"
        figure.text(middle, 0.105, words, ha="center", fontsize=TEXT, color=INK)
        _bar(figure.add_axes((left + 0.05, 0.035, 1 / 3 - 0.1, 0.04)), agreement, best)
    return _as_png(figure)


def draw_agreement() -> bytes:
    """Draw votes as arrows in a plane, the products of all pairs of them, and their sum."""
    height = 7.6
    figure = _figure(height)
    for column, (name, votes) in enumerate(plane_votes().items()):
        left, wide = 0.205 + 0.265 * column, 0.25
        middle = left + wide / 2
        _arrows(figure.add_axes((left, 0.475, wide, wide * SLIDE[0] / height)), votes.squeeze(1))
        _table(figure.add_axes((left - 0.02, 0.145, wide, 0.32)), pair_products(votes), 1 / len(votes))
        total = float(fm_agreement(votes).activation)
        colour = WARM if total > 0 else COLD
        figure.text(middle, 0.94, name, ha="center", fontsize=TITLE, color=INK)
        figure.text(middle, 0.045, _signed(total), ha="center", fontsize=TITLE + 4, color=colour, weight="bold")
    _words(figure, 0.72, "votes", "of four children\nfor one parent")
    _words(figure, 0.34, "pairs", "product of each\ntwo, divided by 4")
    _words(figure, 0.075, "their sum", "the activation")
    return _as_png(figure)


NAMES = {
    "x": "mostly left–right",
    "y": "mostly up–down",
    "rotation": "mostly turn",
    "scale": "mostly size",
    "shear": "mostly slant",
}
"""Names of dimensions by what they follow, as the page of ``paircaps serve`` has them."""

POSE_STEPS = 7


def choose_dimensions(dimensions: Sequence[Dimension], count: int = 3) -> list[Dimension]:
    """The dimensions to draw: of each kind the one that changes most, named ones first."""
    kinds: dict[str | None, Dimension] = {}
    for dimension in sorted(dimensions, key=lambda each: (each.follows is None, -each.change)):
        kinds.setdefault(dimension.follows, dimension)
    rest = [dimension for dimension in dimensions if dimension not in kinds.values()]
    return [*kinds.values(), *rest][:count]


def dimension_name(dimension: Dimension) -> str:
    """Name of a dimension as the page of ``paircaps serve`` has it."""
    number = dimension.index + 1
    return f"dimension {number}" if dimension.follows is None else f"{NAMES[dimension.follows]} ({number})"


def draw_pose(trained: Trained) -> bytes:
    """Draw an image, and its reconstructions while one number of its pose moves through its range."""
    network, upright = trained.network, trained.upright
    label = network.classes.index(SHOWN_CLASS)
    ranges = dimension_ranges(network, trained.samples)
    dimensions = choose_dimensions(_finish(measure_dimensions(network, trained.samples, ranges, upright))[label])
    row = (upright.labels == label).nonzero()[0]
    images = upright.warped(row, torch.tensor([GLYPH_POSES["in the middle"]])).images
    moved = perturb(network, images, ranges, label, POSE_STEPS)

    # on the left the image and its reconstruction, on the right a row for each dimension
    height, side, large = 6.2, 0.098, 0.16
    figure = _figure(height)
    tall = SLIDE[0] / height  # of a square, as a multiple of its width
    for image, bottom, title in ((moved.images, 0.567, "input"), (moved.unchanged, 0.05, "reconstruction")):
        axis = figure.add_axes((0.015, bottom, large, large * tall))
        show(axis, image[0])
        axis.set_title(title, fontsize=TEXT, color=INK, pad=8)
    for line, dimension in enumerate(dimensions):
        bottom = 0.70 - 0.325 * line
        figure.text(0.215, bottom + side * tall + 0.02, dimension_name(dimension), fontsize=TEXT, color=INK)
        values = moved.values[0, dimension.index]
        nearest = int((values - moved.pose[0, dimension.index]).abs().argmin())
        for step in range(POSE_STEPS):
            axis = figure.add_axes((0.215 + 0.111 * step, bottom, side, side * tall))
            show(axis, moved.drawings[0, dimension.index, step])
            axis.set_xlabel(_signed(float(values[step])), fontsize=SMALL, color=QUIET, labelpad=4)
            if step == nearest:
                axis.spines[:].set(color=WARM, linewidth=4)
    return _as_png(figure)


# --- architecture ------------------------------------------------------------------------------------------------

UPPER_FLOOR = {
    "data/": "datasets,\nloader",
    "training/": "recipes,\nloop",
    "explain/": "look\ninside",
    "shipping.py": "runs to\nweights",
    "serve/": "a page to\ndraw on",
    "export/": "ONNX,\nprograms",
    "bench/": "time and\nmemory",
    "paper/": "plan and\nreport",
    "cli/": "the\ncommands",
}

GROUND_FLOOR = {
    "errors.py": "for the user",
    "_utils/": "small helpers",
    "pretrained.py": "trained networks",
    "model_card.py": "their cards",
    "functional.py": "the equations",
    "routing/": "votes → parents",
    "votes/": "children → votes",
    "layers/": "capsule layers",
    "models/": "networks, twins",
    "testing.py": "checks a routing",
    "pictures.py": "files → tensors",
    "network.py": "model + classes",
    "model_files.py": "save, load",
    "hub.py": "share them",
    "losses/": "the objective",
}

PATH = [
    ("files", "data/files/"),
    ("tensors", "data/sources/"),
    ("batches", "data/loader.py"),
    ("backbone", "models/resnet.py"),
    ("primary capsules", "layers/primary.py"),
    ("votes", "votes/transforms.py"),
    ("agreement", "routing/fm.py"),
    ("capsules", "functional.py"),
    ("decoder", "models/decoder.py"),
    ("loss", "losses/objective.py"),
]
"""Steps of an image in a training, each with the file that does it."""


def draw_architecture() -> bytes:
    """Draw the two floors with their rooms, and the path of an image with the file of each step."""
    height = 1262
    figure = _figure(SLIDE[0] * height / WIDTH)
    axis = figure.add_axes((0, 0, 1, 1))
    axis.set(xlim=(0, WIDTH), ylim=(height, 0))
    axis.axis("off")
    # the floors, upper one on top, and the direction of imports between them
    _floor(axis, 16, 16, 218, WARM, "Upper floor: everything with a command line")
    _rooms(axis, UPPER_FLOOR, 9, 70, 148, WARM)
    _arrow(axis, (1300, 234), (1300, 292))
    axis.text(1276, 263, "imports, never the other way", ha="right", va="center", fontsize=SMALL, color=QUIET)
    _floor(axis, 16, 292, 438, COLD, "Ground floor: the library (torch, numpy, safetensors)")
    _rooms(axis, GROUND_FLOOR, 5, 346, 116, COLD)
    # the path of an image, in the colours of the floors
    axis.text(30, 798, "The path of an image", fontsize=TEXT, color=INK, va="center", weight="bold")
    _path(axis, 842)
    return _as_png(figure)


def _path(axis: Any, top: float) -> None:
    """Draw the steps of an image in two rows of five, with arrows between them."""
    wide, tall, pitch, below = 290, 124, 319.5, 230
    for number, (step, file) in enumerate(PATH):
        x, y = 16 + pitch * (number % 5), top + below * (number // 5)
        colour = WARM if file.startswith("data/") else COLD
        _box(axis, x, y, wide, tall, colour)
        axis.text(x + wide / 2, y + 40, step, ha="center", va="center", fontsize=TEXT, color=INK)
        axis.text(
            x + wide / 2, y + 88, file, ha="center", va="center", fontsize=SMALL - 1, color=INK, family="monospace"
        )
        if number % 5 < 4:
            _arrow(axis, (x + wide, y + tall / 2), (x + pitch, y + tall / 2))
    # from the end of the first row to the beginning of the second
    turn, middle = top + tall + (below - tall) / 2, 16 + wide / 2
    last = middle + 4 * pitch
    axis.plot([last, last, middle], [top + tall, turn, turn], color=INK, lw=2.5, solid_capstyle="butt")
    _arrow(axis, (middle, turn), (middle, top + below))
    # activations go to the loss directly
    capsules, loss, under = middle + 2 * pitch, middle + 4 * pitch, top + below + tall + 44
    axis.plot([capsules, capsules, loss], [top + below + tall, under, under], color=INK, lw=2.5, solid_capstyle="butt")
    _arrow(axis, (loss, under), (loss, top + below + tall))


def _floor(axis: Any, x: float, y: float, tall: float, colour: str, title: str) -> None:
    """Draw the ground of a floor, with its name."""
    _box(axis, x, y, WIDTH - 2 * x, tall, colour, 0.10)
    axis.text(x + 18, y + 30, title, fontsize=TEXT, color=INK, va="center", weight="bold")


def _rooms(axis: Any, rooms: dict[str, str], columns: int, top: float, tall: float, colour: str) -> None:
    """Draw the rooms of a floor, each with what is in it."""
    pitch = (WIDTH - 64 + 12) / columns
    for number, (name, inside) in enumerate(rooms.items()):
        x, y = 32 + pitch * (number % columns), top + (tall + 10) * (number // columns)
        _box(axis, x, y, pitch - 12, tall, colour, 0.0)
        middle = x + (pitch - 12) / 2
        size = SMALL * min(1, (pitch - 32) / (LETTER * len(name)))
        axis.text(
            middle, y + 34, name, ha="center", va="center", fontsize=size, color=INK, family="monospace", weight="bold"
        )
        lines = inside.split("\n")
        for line, words in enumerate(lines):
            below = y + (tall + 46) / 2 + 30 * (line - (len(lines) - 1) / 2) + 9
            axis.text(middle, below, words, ha="center", va="baseline", fontsize=SMALL, color=INK)


def _box(axis: Any, x: float, y: float, wide: float, tall: float, colour: str, tint: float = 0.12) -> None:
    """Draw a box with round corners, filled with a tint of the colour of its edge; with white if the tint is 0."""
    from matplotlib.colors import to_rgb
    from matplotlib.patches import FancyBboxPatch

    fill = tuple(1 - tint * (1 - part) for part in to_rgb(colour))
    style = "round,pad=0,rounding_size=12"
    axis.add_patch(FancyBboxPatch((x, y), wide, tall, boxstyle=style, facecolor=fill, edgecolor=colour, linewidth=1.8))


def _arrow(axis: Any, start: tuple[float, float], end: tuple[float, float]) -> None:
    """Draw an arrow between two points in pixels."""
    axis.annotate(
        "",
        end,
        start,
        arrowprops={
            "arrowstyle": "-|>,head_width=0.35,head_length=0.7",
            "color": INK,
            "lw": 2.5,
            "shrinkA": 0,
            "shrinkB": 0,
        },
    )


# --- parts of pictures -------------------------------------------------------------------------------------------


def _figure(height: float) -> Any:
    """Empty white figure of a height in inches whose parts are placed by hand."""
    figure = new_figure(SLIDE[0], height)
    figure.set_layout_engine("none")
    return figure


def _words(figure: Any, height: float, title: str, text: str) -> None:
    """Write what a row of a picture is, on its left."""
    figure.text(0.015, height, title, fontsize=TITLE, color=INK, va="bottom", weight="bold")
    figure.text(0.015, height - 0.012, text, fontsize=TEXT, color=QUIET, va="top")


def _bar(axis: Any, value: float, most: float) -> None:
    """Draw a bar of a value on a track from 0 to the most it can be; negative values have an empty track."""
    axis.barh([0], [most], color=TRACK)
    axis.barh([0], [max(value, 0)], color=WARM)
    axis.set(xlim=(0, most), ylim=(-0.4, 0.4))
    axis.axis("off")


def _pose_bars(axis: Any, pose: Tensor, first: Tensor, reach: tuple[float, float]) -> None:
    """Draw the numbers of a pose as bars, with another pose as hollow ones."""
    places = range(1, len(pose) + 1)
    values = pose.tolist()
    axis.bar(places, values, width=0.8, color=[WARM if value >= 0 else COLD for value in values])
    axis.bar(places, first.tolist(), width=0.8, fill=False, edgecolor=INK, linewidth=1.2)
    axis.axhline(0, color=INK, lw=1.2)
    axis.set(ylim=(1.05 * reach[0], 1.05 * reach[1]), yticks=[], xticks=[1, len(pose)])
    axis.tick_params(labelsize=SMALL, labelcolor=QUIET, length=0)
    axis.spines[:].set_visible(False)


def _place(matrix: Tensor, points: Tensor) -> Tensor:
    """Points (N, 2) of an upright thing in the pose of a matrix (3, 3)."""
    return points @ matrix[:2, :2].T + matrix[:2, 2]


def _outline(axis: Any, vote: Tensor, colour: str) -> None:
    """Draw the outline of a face, an egg with two ears, in the pose of a vote."""
    angle = torch.linspace(0, 2 * math.pi, 200)
    head = torch.stack([0.74 * angle.cos() * (1 - 0.13 * angle.sin()), angle.sin()], -1)
    bow = torch.linspace(-0.44, 0.44, 40) * math.pi
    ear = torch.stack([0.74 + 0.13 * bow.cos(), 0.2 * bow.sin() - 0.03], -1)
    for line in (head, ear, ear * torch.tensor([-1.0, 1.0])):
        axis.plot(*_place(vote, line).T, color=colour, lw=2.4, zorder=1, solid_capstyle="round")


def _part(axis: Any, part: int, pose: Tensor, colour: str) -> None:
    """Draw a part of a face in its pose."""
    along = torch.linspace(-1, 1, 60)
    if PARTS[part].endswith("eye"):
        inner = 1 if part == 0 else -1  # the side of the nose, to which the brow rises
        lid = 0.6 * (1 - along**2)
        eye = torch.cat([torch.stack([along, -lid], -1), torch.stack([along, lid], -1).flip(0)])
        axis.fill(*_place(pose, 0.8 * eye).T, facecolor="white", edgecolor=colour, lw=4.5, zorder=3)
        turn = torch.linspace(0, 2 * math.pi, 60)
        axis.fill(*_place(pose, 0.28 * torch.stack([turn.cos(), turn.sin()], -1)).T, color=colour, zorder=4)
        brow = torch.stack([0.85 * along, -0.95 - 0.12 * inner * along + 0.25 * along**2], -1)
        axis.plot(*_place(pose, brow).T, color=colour, lw=7, solid_capstyle="round", zorder=3)
    elif PARTS[part] == "nose":
        nose = torch.tensor([[0.0, -0.75], [-0.42, 0.5], [0.35, 0.5]])
        style = {"lw": 7, "solid_capstyle": "round", "solid_joinstyle": "round"}
        axis.plot(*_place(pose, nose).T, color=colour, zorder=3, **style)
    else:
        upper = torch.stack([along, -0.25 + 0.15 * (1 - along**2)], -1)
        lower = torch.stack([along, -0.25 + 0.75 * (1 - along**2)], -1).flip(0)
        axis.fill(*_place(pose, torch.cat([upper, lower])).T, color=colour, lw=3, joinstyle="round", zorder=3)


def _arrows(axis: Any, votes: Tensor) -> None:
    """Draw votes (4, 2) as arrows from the middle of a circle, numbered."""
    from matplotlib.patches import Circle

    axis.add_patch(Circle((0, 0), 1, facecolor="#fafafa", edgecolor="#d8d8d8", linewidth=1.5))
    for number, (x, y) in enumerate(votes.tolist()):
        style = {
            "arrowstyle": "-|>,head_width=0.45,head_length=0.9",
            "color": DIGITS[number],
            "lw": 4.5,
            "shrinkA": 0,
            "shrinkB": 0,
        }
        axis.annotate("", (x, y), (0, 0), arrowprops=style)
        axis.text(
            1.15 * x,
            1.15 * y,
            str(number + 1),
            ha="center",
            va="center",
            fontsize=SMALL,
            color=DIGITS[number],
            weight="bold",
        )
    axis.set(xlim=(-1.25, 1.25), ylim=(-1.25, 1.25), aspect="equal")
    axis.axis("off")


def _table(axis: Any, products: Tensor, most: float) -> None:
    """Draw the products of the pairs (I, I) as a table, each pair once, orange if they agree and blue if not."""
    from matplotlib.patches import Rectangle

    count = len(products)
    for row in range(count):
        for column in range(row + 1, count):
            value = float(products[row, column])
            tint = min(1.0, abs(value) / most)
            axis.add_patch(
                Rectangle(
                    (column, row),
                    1,
                    1,
                    facecolor=WARM if value >= 0 else COLD,
                    alpha=0.12 + 0.7 * tint,
                    edgecolor="white",
                    linewidth=3,
                )
            )
            axis.text(column + 0.5, row + 0.5, _signed(value), ha="center", va="center", fontsize=SMALL, color=INK)
    for number in range(count):
        if number:
            axis.text(
                number + 0.5,
                -0.3,
                str(number + 1),
                ha="center",
                va="center",
                fontsize=SMALL,
                color=DIGITS[number],
                weight="bold",
            )
        if number < count - 1:
            axis.text(
                number + 0.7,
                number + 0.5,
                str(number + 1),
                ha="center",
                va="center",
                fontsize=SMALL,
                color=DIGITS[number],
                weight="bold",
            )
    axis.set(xlim=(0, count), ylim=(count - 1, -0.5))
    axis.axis("off")


def _signed(value: float) -> str:
    """A number of two decimals with a real minus; none for zero."""
    return f"{value:.2f}".replace("-0.00", "0.00").replace("-", "−")


def _finish(steps: Generator[None, None, Result]) -> Result:
    """Take all steps of a measurement: its result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def _as_png(figure: Any) -> bytes:
    """A picture as PNG of 256 colours, which is enough for these and half as large."""
    from PIL import Image

    picture = Image.open(io.BytesIO(as_slide(figure, width=WIDTH))).convert("RGB")
    buffer = io.BytesIO()
    picture.quantize(256, dither=Image.Dither.NONE).save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


# --- command -----------------------------------------------------------------------------------------------------

OF_A_NETWORK: dict[str, Callable[[Trained], bytes]] = {"capsule": draw_capsule, "pose": draw_pose}
OF_NUMBERS: dict[str, Callable[[], bytes]] = {
    "vote": draw_vote,
    "agreement": draw_agreement,
    "architecture": draw_architecture,
}


def file_name(picture: str) -> str:
    """Name of the file of a picture."""
    return f"{picture}.png" if picture == "architecture" else f"concept-{picture}.png"


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw the pictures that are asked for."""
    every = [*OF_A_NETWORK, *OF_NUMBERS]
    parser = argparse.ArgumentParser(description="Draw the pictures of docs/capsules.md and docs/architecture.md.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(every)}; all without one")
    parser.add_argument(
        "--network", type=Path, default=NETWORK, metavar="DIR", help="run folder (default: %(default)s)"
    )
    parser.add_argument("--out", type=Path, default=FOLDER, metavar="DIR", help="folder of the pictures")
    options = parser.parse_args(arguments)
    names = options.names or every
    if unknown := [name for name in names if name not in every]:
        parser.error(f"no picture is named {', '.join(unknown)}; there are {', '.join(every)}")
    try:
        trained = load_trained(options.network) if any(name in OF_A_NETWORK for name in names) else None
    except PaircapsError as error:
        parser.error(str(error))
    for name in names:
        content = OF_NUMBERS[name]() if trained is None or name in OF_NUMBERS else OF_A_NETWORK[name](trained)
        write_whole(options.out / file_name(name), content)
        print(options.out / file_name(name))


if __name__ == "__main__":
    main()
