"""Values of a recipe that follow from its images: batch size and epochs from their number, flips from their classes.

They are decided once, when a run begins, for the keys that are ``auto``, and kept in its ``config.toml``.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from dataclasses import replace

from paircaps._utils.words import counted
from paircaps.training.recipe import AUTO, Recipe

_BATCHES_PER_EPOCH = 6
"""Batches that an epoch has at least, as long as they are not too small."""

_BATCH_SIZES = (4, 64)
"""Smallest and largest batch size."""

_EPOCHS, _FEWEST_EPOCHS, _MOST_EPOCHS = 1300, 20, 300
"""Epochs for one image; for more they fall with the root of the number, within these bounds."""

_SIDES = {"left", "right", "east", "west", "clockwise", "counterclockwise", "anticlockwise", "cw", "ccw"}
_NUMBERS = {"zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"}


def has_undecided(recipe: Recipe) -> bool:
    """Whether a key of the recipe waits for the images."""
    return AUTO in (recipe.train.batch_size, recipe.train.epochs, recipe.augment.flip)


def decide_as_before(recipe: Recipe, begun: Recipe) -> Recipe:
    """A recipe whose ``auto`` keys have the values of the run that it continues.

    Args:
        recipe: the recipe as the user gave it.
        begun: recipe of the run, with all values decided.
    """
    train, augment = recipe.train, recipe.augment
    if train.batch_size == AUTO:
        train = replace(train, batch_size=begun.train.batch_size)
    if train.epochs == AUTO:
        train = replace(train, epochs=begun.train.epochs)
    if augment.flip == AUTO:
        augment = replace(augment, flip=begun.augment.flip)
    return replace(recipe, train=train, augment=augment)


def decide(recipe: Recipe, images: int, classes: Sequence[str], world_size: int = 1) -> tuple[Recipe, str]:
    """A recipe whose ``auto`` keys are decided, and a sentence on them.

    Args:
        recipe: the recipe as the user gave it.
        images: number of images to train on.
        classes: names of the classes.
        world_size: number of processes, which share each batch.
    """
    train, augment, said = recipe.train, recipe.augment, []
    if train.batch_size == AUTO:
        divisor = math.lcm(train.accumulate, world_size)
        train = replace(train, batch_size=-(-choose_batch_size(images) // divisor) * divisor)
        said.append(f"train.batch_size {train.batch_size}")
    if train.epochs == AUTO:
        train = replace(train, epochs=choose_epochs(images))
        said.append(f"train.epochs {train.epochs}")
    if augment.flip == AUTO:
        reason = reason_against_flips(classes)
        augment = replace(augment, flip=reason is None, alternate=augment.alternate and reason is None)
        why = reason or "no class is named after a character or a side"
        said.append(f"augment.flip {'true' if reason is None else 'false'} ({why})")
    return replace(recipe, train=train, augment=augment), f"{counted(images, 'image')} to train on: {', '.join(said)}"


def choose_batch_size(images: int) -> int:
    """Batch size for so many images: a power of two that makes several batches of them."""
    least, most = _BATCH_SIZES
    return min(most, max(least, 2 ** int(math.log2(max(1, images / _BATCHES_PER_EPOCH)))))


def choose_epochs(images: int) -> int:
    """Epochs for so many images: few are seen more often, and all of them together less often than many."""
    return min(_MOST_EPOCHS, max(_FEWEST_EPOCHS, round(_EPOCHS / math.sqrt(images))))


def reason_against_flips(classes: Sequence[str]) -> str | None:
    """Why a mirror image may be of another class, by the names of the classes; None if nothing speaks against it.

    Characters and numbers (``b`` beside ``d``, ``digit-6`` beside ``digit-9``) and names with a side in them
    (``arrow-left``) do.
    """
    # what the names have in common, up to the end of a word, says nothing of the class
    shared = len(re.sub(r"[^\W_]*$", "", os.path.commonprefix(list(classes))))  # noqa: RUF071 (no paths)
    for name in classes:
        own = name[shared:].lower()
        if own.isdigit() or (len(own) == 1 and own.isalnum()) or own in _NUMBERS:
            return f"class {name!r} is named after a character"
        words = {word.lower() for word in re.findall(r"[A-Z]?[^\W\d_A-Z]+|[A-Z]+", name)}
        if words & _SIDES:
            return f"class {name!r} is named after a side"
    together = " ".join(classes).lower()
    if "left" in together and "right" in together:  # "turnleft" beside "turnright"
        return "classes are named after the sides left and right"
    return None
