"""Training: a recipe in, a run folder out; exact to the bit however often it is interrupted."""

from __future__ import annotations

from paircaps.training.evaluation import Evaluation, evaluate
from paircaps.training.loop import TrainingResult, train
from paircaps.training.recipe import Recipe
from paircaps.training.signals import Stopped

__all__ = ["Evaluation", "Recipe", "Stopped", "TrainingResult", "evaluate", "train"]
