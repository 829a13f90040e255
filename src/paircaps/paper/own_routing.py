"""Rows for routings that an experiment does not have: those of the user, or others of this package."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from paircaps.errors import RecipeError
from paircaps.paper.experiments import Experiment, TableRow, Variant
from paircaps.paper.plan import candidate_data, study_folder
from paircaps.paper.records import read_times, seed_folders
from paircaps.routing import is_routing, list_routings
from paircaps.training.recipe_io import RecipeTree, parse_toml
from paircaps.training.run_folder import RunFolder


def own_variant(name: str, options: Mapping[str, Any] | None = None) -> Variant:
    """The network of an experiment with another routing; the loss is the one that fits its activations.

    Args:
        name: name of the routing, which is that of the row too.
        options: options of the routing.
    """
    model = {"routing": name, "routing_options": dict(options or {})}
    title = ", ".join([name, *(f"{key} = {value}" for key, value in (options or {}).items())])
    return Variant(name, title, {"model": model, "loss": {"name": "auto"}}, own=True)


def with_rows(experiment: Experiment, variants: Sequence[Variant]) -> Experiment:
    """An experiment with one more row at its end for each variant that it does not have."""
    known = {variant.name for variant in experiment.variants}
    more = len(experiment.labels) - 1  # cells after the name
    rows = [
        TableRow((variant.title, *["not in the paper"] * more), variant, {}, {})
        for variant in variants
        if variant.name not in known
    ]
    return replace(experiment, rows=(*experiment.rows, *rows))


def take_own_routings(
    experiments: Sequence[Experiment], only: Sequence[str], changes: RecipeTree
) -> tuple[list[Experiment], list[str], RecipeTree]:
    """Give experiments a row for the routing of ``--set model.routing=NAME``, and for those that ``--only`` names.

    Args:
        experiments: experiments to reproduce.
        only: names of ``--only``.
        changes: settings of ``--set``.

    Returns:
        The experiments with these rows, the names of the networks to train, and the settings that are left.

    Raises:
        RecipeError: if there is no such routing, or it is a row of all these experiments already.
    """
    model = dict(changes.get("model", {}))
    chosen = model.pop("routing", None)
    known = [{variant.name for variant in experiment.variants} for experiment in experiments]
    names = [name for name in only if not any(name in names for names in known) and is_routing(name)]
    if chosen is not None:
        _require_new_row(chosen, known)
        names = list(dict.fromkeys([*names, chosen]))
    for name in names:
        _require_folder_name(name)
    options = model.pop("routing_options", None) if len(names) == 1 else None
    if names:
        variants = [own_variant(name, options) for name in names]
        experiments = [with_rows(experiment, variants) for experiment in experiments]
        changes = {section: keys for section, keys in {**changes, "model": model}.items() if keys}
    wanted = [*only, chosen] if only and chosen is not None and chosen not in only else list(only)
    return list(experiments), wanted, changes


def _require_new_row(name: object, known: Sequence[set[str]]) -> None:
    """Refuse what is no routing, and a routing that all experiments have a row for."""
    if not isinstance(name, str) or not is_routing(name):
        raise RecipeError(f"--set: model.routing: unknown routing {name!r}; there is {', '.join(list_routings())}")
    if all(name in names for names in known):
        raise RecipeError(f"--set: model.routing: {name} is a row of these experiments already: --only {name}")


def _require_folder_name(name: str) -> None:
    """Refuse a routing whose name cannot be that of a folder."""
    if not re.fullmatch(r"\w[\w.+-]*", name):
        raise RecipeError(
            f"the routing {name!r} cannot be a row: its folder has its name, of letters, digits and . + - _ only"
        )


def found_variants(out: Path, experiment: Experiment) -> list[Variant]:
    """Networks in a folder of results that an experiment does not have itself, sorted by name.

    Args:
        out: folder of all results.
        experiment: experiment as the paper has it.
    """
    known = {variant.name for variant in experiment.variants}
    found: dict[str, Variant] = {}
    for study in experiment.studies:
        for study_data in candidate_data(study):
            folder = study_folder(out, experiment, study_data.dataset)
            for name in read_times(RunFolder(folder).metrics):
                found.setdefault(name, own_variant(name))
            for place in sorted(folder.iterdir()) if folder.is_dir() else []:
                if seed_folders(place):
                    found.setdefault(place.name, own_variant(place.name, _options_in(place)))
    return [variant for name, variant in sorted(found.items()) if name not in known]


def _options_in(place: Path) -> Mapping[str, Any]:
    """Options of the routing in the first training of a network; none if that cannot be read."""
    try:
        config = RunFolder(seed_folders(place)[0]).config
        tree = parse_toml(config.read_text(encoding="utf-8"), str(config))
        return dict(tree["model"].get("routing_options", {}))
    except (OSError, RecipeError, ValueError, KeyError, TypeError, AttributeError):
        return {}
