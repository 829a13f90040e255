"""The comparison of routings: every registered routing in the same networks, by the same recipe.

- ``design``: tasks, heads and learning rates, and the recipe of a trial.
- ``records``: the outcome of each trial, a small file, from which everything else is made.
- ``trials``: one trial: a training, its test, and how well its poses can be read.
- ``costs``: time of a step and of an image, and memory.
- ``run``: all trials that are missing, in their order.
- ``results`` and ``page``: what the records say, as numbers, and as tables, sentences and a picture.
"""

from __future__ import annotations

from paircaps.paper.comparison.design import NAME, RoutingComparison, describe
from paircaps.paper.comparison.page import write_page
from paircaps.paper.comparison.run import compare_routings

__all__ = ["NAME", "RoutingComparison", "compare_routings", "describe", "write_page"]
