"""Familiar and new viewpoints: which pictures of a toy a network is trained on, and which it has not seen the like of.

Where every picture knows the elevation of its camera and the azimuth of its toy, as in smallNORB and toys, a network
can be trained on a third of them and tested on the others. The thirds are those of Hinton, Sabour and Frosst (2018).
"""

from __future__ import annotations

import torch
from torch import Tensor

from paircaps._utils.checks import require_choice
from paircaps.data.dataset import ImageDataset

FAMILIAR = {"azimuth": (30, 32, 34, 0, 2, 4), "elevation": (0, 1, 2)}
"""Viewpoints of the training, by the numbers of smallNORB: azimuths in tens of degrees, elevations from 30° in 5°."""

VIEWPOINTS = ("all", *(f"{which}-{what}s" for what in FAMILIAR for which in ("familiar", "new")))
"""Values of ``viewpoints``: all, familiar-azimuths, new-azimuths, familiar-elevations, new-elevations."""


def seen_from(dataset: ImageDataset, viewpoints: str) -> ImageDataset:
    """The images of a dataset that were taken from some viewpoints.

    Args:
        dataset: images with the extras ``azimuth`` and ``elevation``, numbered as in smallNORB.
        viewpoints: one of ``VIEWPOINTS``.
    """
    require_choice("viewpoints", viewpoints, VIEWPOINTS)
    if viewpoints == "all":
        return dataset
    which, _, what = viewpoints.partition("-")
    numbers: Tensor = getattr(dataset, what.removesuffix("s"))
    familiar = torch.isin(numbers, torch.tensor(FAMILIAR[what.removesuffix("s")]))
    return dataset.subset(familiar if which == "familiar" else ~familiar)
