"""Names that help and shell completion show without importing the rooms that define them.

Importing those rooms imports PyTorch, which takes seconds. ``tests/cli/test_instant.py`` compares every constant with
its origin, so that a new name is added here too.
"""

from __future__ import annotations

from pathlib import Path

DATASETS = (
    *("affine-glyphs", "affine-mnist", "affnist", "cifar10", "fashion-mnist", "glyphs", "mnist", "multi-glyphs"),
    *("multi-mnist", "smallnorb", "svhn", "toys", "translated-glyphs", "translated-mnist"),
)
DOWNLOADS = ("mnist", "fashion-mnist", "cifar10", "svhn", "smallnorb", "affnist")
"""Datasets with published files."""
ROUTINGS = ("attention", "dynamic", "efficient", "em", "fm", "heinsen", "mean", "self", "sum", "vb")
LOSSES = ("auto", "centripetal", "cross-entropy", "margin", "mask", "nll", "spread")
MODELS = (
    *("aff-capsnet", "aff-capsnet-light", "aff-capsnet-pool", "aff-capsnet-pool-light"),
    *("caps-segment", "capsnet", "capsnet-light", "capsnet-pool", "capsnet-pool-light"),
    *("deepcaps", "deepcaps-light", "deepcaps-pool", "deepcaps-pool-light"),
    *("efficient-capsnet", "efficient-capsnet-norb", "efficient-capsnet-pool", "efficient-capsnet-pool-norb"),
    *("em-capsnet", "em-capsnet-pool", "em-capsnet-pool-small", "em-capsnet-small"),
    *("fast-caps", "fast-caps-tiny", "fast-pool", "fast-pool-tiny", "hitnet"),
    *("resnet-caps", "resnet-caps-fine", "resnet-caps-fine-medium", "resnet-caps-fine-small"),
    *("resnet-caps-grid", "resnet-caps-grid-medium", "resnet-caps-grid-small"),
    *("resnet-caps-medium", "resnet-caps-small"),
    *("resnet-pool", "resnet-pool-medium", "resnet-pool-small", "unet-twin"),
)
EXPERIMENTS = ("fig4", "fig5", "table1", "table2", "table2-small", "table3", "table5", "table6")
ALL_EXPERIMENTS = "all"
COMPARISON = "routings"
"""Name of the comparison of routings, beside those of the experiments."""
FITS = ("crop", "pad", "stretch")
"""Ways to fit a picture into the network's image."""
TEST_VIEWS = ("none", "flip", "shift", "flip-shift")
"""Views of an image that ``paircaps evaluate`` can average."""
VIEWS = ("reconstruct", "perturb", "agreement", "tree", "masks")
"""Pictures of ``paircaps explain``."""
PICTURE_FORMATS = ("png", "svg", "pdf")
"""Formats of these pictures."""
PICTURE_WIDTH = 1920
"""Default width of these pictures, in pixels."""
CURVES_OVER = ("epochs", "steps", "minutes")
"""What ``paircaps compare`` can draw curves over."""
EQUIVARIANCE_IMAGES = 4000
"""Default number of warped images of ``paircaps equivariance``."""


def shipped_recipes() -> list[str]:
    """Names of the recipes that come with the package."""
    folder = Path(__file__).parent.parent / "training" / "recipes"
    return sorted(path.stem for path in folder.glob("*.toml"))
