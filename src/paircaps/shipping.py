"""A finished run becomes weights that come with the project: measured again as they are stored, with a card.

``paircaps weights add`` is the command.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from paircaps._utils.files import sync_folder, write_whole
from paircaps._utils.model_folder import CARD
from paircaps._utils.words import Say
from paircaps.data.registry import dataset_metadata, folder_path, source_metadata
from paircaps.errors import PaircapsError, RecipeError
from paircaps.explain.kept_poses import SECTION, measure_poses
from paircaps.explain.trace import has_capsules
from paircaps.losses import Objective
from paircaps.model_card import model_card
from paircaps.model_files import METADATA, WEIGHTS, Precision, read_metadata, save_model, write_metadata
from paircaps.models import count_parameters
from paircaps.training.compare.runs import ComparedRun, read_run
from paircaps.training.datasets import open_dataset, own_dataset, require_fitting, tested_name
from paircaps.training.evaluation import Evaluation, evaluate
from paircaps.training.recipe import Recipe, options_of
from paircaps.training.recipe_io import RecipeTree, differing_values, parse_toml, recipe_from_tree, to_toml
from paircaps.training.recipes import list_recipes, load_recipe
from paircaps.training.trained_network import load_objective

MOST_LOST = 0.001
"""Largest accuracy, in 0..1, that storing in fewer bits may cost."""

_BATCH = 256
"""Images in a batch of the evaluation, as ``paircaps evaluate`` has them."""

_POSE_IMAGES = 1024
"""Images that ranges of poses are measured on."""

_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_FILES = (WEIGHTS, METADATA, CARD)

_LIMITS = {
    "mnist": "The digits of its training were written by people in the United States before 1995, with pens, and cut "
    "out of forms one at a time; others write 1, 4, 7 and 9 differently, and a finger draws thicker lines.",
    "glyphs": "It has seen printed digits of a few fonts alone: handwriting is foreign to it.",
    "fashion-mnist": "The articles were photographed by one shop, alone, upright, on an empty ground, and are 28 "
    "pixels wide: a photograph with anything else in it is foreign to it.",
    "cifar10": "Photographs of 32 pixels show one thing of ten kinds in the middle; what is true of these kinds on the "
    "web of 2008 is in the labels, with their errors.",
}
"""What is to be said of the images of a dataset, by the dataset that they are made from."""


@dataclass(frozen=True)
class Shipped:
    """Weights that were written.

    Args:
        folder: where they are.
        accuracy: accuracy in 0..1 as they are stored.
        accuracy_fp32: accuracy in 0..1 of the run's own weights.
        size: bytes of all files together.
    """

    folder: Path
    accuracy: float
    accuracy_fp32: float
    size: int


def ship(run: Path, name: str, to: Path, say: Say, *, precision: Precision = "fp32", replace: bool = False) -> Shipped:
    """Write the network of a finished run as weights that come with the project: all of its files or none.

    Args:
        run: folder of the run.
        name: name of the weights, in small letters, digits and single hyphens.
        to: folder in which a folder of that name is made.
        say: called with each line of progress.
        precision: ``"bf16"`` stores matrices and filters as bfloat16.
        replace: whether weights of that name that are there are replaced.

    Raises:
        PaircapsError: if the run is not finished, its test images are not here, the name is taken or none, or fewer
            bits cost more than 0.1 points of accuracy; nothing is written then.
    """
    target = _require_place(name, to, replace)
    objective, views = load_objective(run)  # raises if the run is not finished
    compared = read_run(name, run)
    portable = _portable(compared.recipe)
    say(f"{run}: evaluating in float32")
    before = _evaluate(objective, run, views)
    partial = to / f".{name}.{secrets.token_hex(4)}"
    partial.mkdir()
    try:
        poses = measure_poses(objective.network, run, _POSE_IMAGES)
        trained = dict(read_metadata(run)["trained"])
        trained |= {"dataset": portable["data"]["name"], "recipe": portable}
        save_model(partial, objective.network, trained, precision=precision)
        stored, after = objective, before
        if precision != "fp32":
            say(f"{run}: evaluating as stored, in {precision}")
            stored, _ = load_objective(partial)
            after = _evaluate(stored, run, views)
            _require_same(before, after, precision)
        card = _card(name, objective, compared, recipe_from_tree(portable), precision)
        card["evaluation"] = _numbers(after, _tested_on(run), views)
        card["accuracy_fp32"] = before.accuracy
        card["also"] = _also(stored, compared.recipe, run, views, say)
        metadata = {**read_metadata(partial), "card": card, SECTION: poses.as_section()}
        write_metadata(partial, metadata)
        write_whole(partial / CARD, model_card(read_metadata(partial)).encode())
        _move(partial, target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    size = sum((target / file).stat().st_size for file in _FILES)
    return Shipped(target, after.accuracy, before.accuracy, size)


# --- where to --------------------------------------------------------------------------------------------------------


def _require_place(name: str, to: Path, replace: bool) -> Path:
    """Folder that the weights will be in; an error if it cannot be made."""
    if not _NAME.fullmatch(name):
        raise PaircapsError(f"--name {name}: a name has small letters, digits and single hyphens, such as digits-pool")
    if not to.is_dir():
        raise PaircapsError(f"--to {to}: {'is a file' if to.exists() else 'no such folder'}")
    target = to / name
    if not target.exists():
        return target
    strangers = sorted({entry.name for entry in target.iterdir()} - {*_FILES}) if target.is_dir() else [name]
    if strangers:
        raise PaircapsError(f"{target}: holds {', '.join(strangers[:5])}, which are no files of weights")
    if not replace:
        raise PaircapsError(f"{target}: is there already; --replace writes it anew")
    return target


def _move(partial: Path, target: Path) -> None:
    """Put a whole new folder in the place of an old one, or of none."""
    old = partial.with_name(f"{partial.name}.old")
    if target.exists():
        os.rename(target, old)
    try:
        os.rename(partial, target)
    except OSError:
        if old.exists():
            os.rename(old, target)
        raise
    sync_folder(target.parent)
    shutil.rmtree(old, ignore_errors=True)


# --- what was reached ------------------------------------------------------------------------------------------------


def _evaluate(objective: Objective, run: Path, views: str) -> Evaluation:
    """Metrics on the test images of the run, as ``paircaps evaluate`` has them."""
    dataset = own_dataset(run)
    require_fitting(objective.network, dataset)
    return evaluate(objective, dataset, batch_size=_BATCH, views=views)


def _require_same(before: Evaluation, after: Evaluation, precision: str) -> None:
    """Refuse fewer bits that cost accuracy."""
    if before.score - after.score > MOST_LOST:
        raise PaircapsError(
            f"--precision {precision}: {100 * before.score:.2f} % become {100 * after.score:.2f} %, and more than "
            f"{100 * MOST_LOST:g} points are too many; --precision fp32 stores them as they are"
        )


def _numbers(evaluation: Evaluation, data: Mapping[str, object], views: str) -> dict[str, object]:
    """Metrics of a card, with what they were measured on."""
    return {**data, "views": views, **evaluation.numbers(), "per_class": evaluation.per_class}


def _tested_on(run: Path) -> dict[str, object]:
    dataset = own_dataset(run)
    return {"data": dataset.info.name, "note": dataset.info.note}


def _also(objective: Objective, recipe: Recipe, run: Path, views: str, say: Say) -> list[dict[str, object]]:
    """Metrics on the test images of the data that it was trained on, where it was tested on others."""
    name = recipe.data.name
    if name == tested_name(recipe.data):
        return []
    say(f"{run}: evaluating on {name}")
    options = {**options_of(recipe.data.options), **({"fresh": False} if "fresh" in recipe.data.options else {})}
    dataset = open_dataset(name, "test", recipe.data.folder, options).limit(recipe.data.limit, recipe.data.seed)
    require_fitting(objective.network, dataset)
    measured = evaluate(objective, dataset, batch_size=_BATCH, views=views)
    return [_numbers(measured, {"data": dataset.info.name, "note": dataset.info.note}, views)]


# --- what is known of the training -----------------------------------------------------------------------------------


def _card(
    name: str, objective: Objective, compared: ComparedRun, recipe: Recipe, precision: Precision
) -> dict[str, object]:
    """Section ``card`` of ``model.json``, without the numbers."""
    network = objective.network
    base, changed = nearest_recipe(recipe)
    words = ["paircaps", "train", base, *(word for key, value in changed.items() for word in (f"--{key}", value))]
    return {
        "name": name,
        "recipe": base,
        "changed": {key: value for key, value in changed.items() if key != "train.seed"},
        "command": shlex.join([*words, "--out", f"runs/{name}"]),
        "routing": network.spec.routing if has_capsules(network) else None,
        "parameters": count_parameters(network.model),
        "decoder_parameters": 0 if network.decoder is None else count_parameters(network.decoder),
        "minutes": None if compared.seconds is None else round(compared.seconds.total / 60, 1),
        "stored": precision,
        "data": _data(recipe),
        "limits": _data_limits(recipe),
    }


def nearest_recipe(recipe: Recipe) -> tuple[str, dict[str, str]]:
    """The recipe of the package that a run's recipe differs least from, and the keys that were changed in it.

    Args:
        recipe: recipe of a run.

    Returns:
        name of the recipe, and values as the command line takes them by key, with the seed among them.
    """
    best, fewest = "", None
    for name in list_recipes():
        try:
            found = differing_values(load_recipe(name), recipe)
        except RecipeError:  # of a plug-in that is not here
            continue
        found = {key: value for key, (_, value) in found.items() if key not in ("train.seed", "data.split")}
        if fewest is None or len(found) < len(fewest):
            best, fewest = name, found
    changed = {key: _as_typed(value) for key, value in (fewest or {}).items()}
    return best, {**changed, "train.seed": str(recipe.train.seed)}


def _as_typed(value: str) -> str:
    """A value in TOML as the command line takes it: text without its quotes."""
    return json.loads(value) if value.startswith('"') else "null" if value == "not set" else value


def _data(recipe: Recipe) -> dict[str, object]:
    """What is to be known of the images of the training."""
    metadata = dataset_metadata(recipe.data.name)
    if metadata is None:
        return {
            "name": recipe.data.name,
            "title": "pictures of a folder" if folder_path(recipe.data.name) else "a dataset of one's own",
            "licence": "not recorded",
            "citation": "not recorded",
            "sources": [],
        }
    source = source_metadata(metadata)
    return {
        "name": metadata.name,
        "title": metadata.title,
        "licence": metadata.licence,
        "citation": metadata.citation,
        "sources": [source.name] if source.files else [],
    }


def _data_limits(recipe: Recipe) -> list[str]:
    metadata = dataset_metadata(recipe.data.name)
    source = None if metadata is None else source_metadata(metadata).name
    return [_LIMITS[source]] if source in _LIMITS else []


def _portable(recipe: Recipe) -> RecipeTree:
    """A recipe as sections of keys, without places of this machine: of a folder of pictures its name is left."""
    tree = parse_toml(to_toml(recipe), "the recipe")
    return {**tree, "data": {**_without_places(tree["data"]), "folder": ""}}


def _without_places(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values of a section, and of the tables in it, with paths as :func:`_without_place` has them."""
    return {
        key: _without_places(value) if isinstance(value, Mapping) else _without_place(value)
        for key, value in values.items()
    }


def _without_place(value: Any) -> Any:
    """A path as its last part, in the folder where the reader is; any other value as it is."""
    return f"./{PurePath(value).name}" if isinstance(value, str) and os.sep in value else value
