"""Time of a training on this machine: steps, validations and the test at its end, from the time of one step."""

from __future__ import annotations

from dataclasses import dataclass

from paircaps.paper.step_times import keep_step_time, measure_step
from paircaps.paper.training_length import count_test_images, steps_per_epoch, total_steps
from paircaps.training.evaluation import VIEW_COUNTS
from paircaps.training.recipe import Recipe

_FORWARD = 1 / 3
"""Share of a training step's time that the forward pass takes: the time of an image in evaluation."""


@dataclass(frozen=True)
class TimeEstimate:
    """Seconds of a training on this machine.

    Args:
        growing: seconds in proportion to the training's length.
        fixed: seconds of the test at its end, and of one validation.
    """

    growing: float
    fixed: float

    @property
    def seconds(self) -> float:
        """Seconds of the whole training."""
        return self.growing + self.fixed


def training_time(recipe: Recipe, seconds_per_image: float) -> TimeEstimate:
    """Time of a training, its validations and its test.

    Args:
        recipe: of the training.
        seconds_per_image: time of a training step, divided by the images of its batch.
    """
    batch, test = recipe.train.decided_batch_size, count_test_images(recipe.data)
    steps, an_epoch = total_steps(recipe), steps_per_epoch(recipe)
    # times below are counted in training steps
    views = VIEW_COUNTS[recipe.evaluate.views]
    held_back = recipe.data.validation / (1 - recipe.data.validation) * an_epoch
    settling = min(recipe.evaluate.settle, an_epoch)
    validation = _FORWARD * (views * held_back + settling)
    final_test = _FORWARD * (views * test / batch + settling)
    step = seconds_per_image * batch
    return TimeEstimate(step * (steps + validation * steps / an_epoch), step * (final_test + validation))


def measure_training_time(recipe: Recipe, network: str | None = None) -> TimeEstimate:
    """Time of a training, from a few real steps on noise; good to a factor of about 1.5.

    Args:
        recipe: of the training.
        network: name under which the time of a step is kept in the user's cache; None keeps nothing.
    """
    seconds = measure_step(recipe)
    if network is not None:
        keep_step_time(network, seconds)
    return training_time(recipe, seconds)
