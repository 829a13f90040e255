"""Training by recipes, in folders that resume exactly after any interruption."""

from __future__ import annotations

from paircaps.training.evaluation import Evaluation, evaluate
from paircaps.training.loop import TrainingResult, train
from paircaps.training.recipe import Recipe
from paircaps.training.signals import Stopped

__all__ = ["Evaluation", "Recipe", "Stopped", "TrainingResult", "evaluate", "train"]
