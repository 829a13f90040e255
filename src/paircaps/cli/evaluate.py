"""Run ``paircaps evaluate`` and ``paircaps predict``."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Iterator
from dataclasses import Field
from pathlib import Path
from typing import Any

from paircaps._utils.summary import summarise
from paircaps._utils.text_tables import column_widths, text_line
from paircaps._utils.words import visible
from paircaps.cli.datasets import named_or_own, say_other_fitting
from paircaps.cli.mask_output import MaskOutput
from paircaps.data import ImageDataset
from paircaps.errors import PaircapsError
from paircaps.losses import Objective
from paircaps.model_files import METADATA, load, read_metadata
from paircaps.network import Prediction
from paircaps.pictures import find_pictures
from paircaps.training.compare.groups import group_by_recipe
from paircaps.training.datasets import require_fitting
from paircaps.training.evaluation import Evaluation, evaluate, printed_metrics
from paircaps.training.run_folder import RunFolder, find_runs
from paircaps.training.trained_network import load_objective

_WIDEST_TABLE = 20
"""Most classes of a confusion table that is printed."""


def run_evaluate(options: argparse.Namespace) -> int:
    """Evaluate networks and print the result: in full for one, as a table for several."""
    runs = _finished_runs(options.folders)
    several = len(runs) > 1
    # all of several are loaded once before the work, so that one that does not fit shows at once
    datasets = {name: repr(_load(folder, options)[1]) for name, folder in runs.items()} if several else {}
    evaluations = {}
    for name, folder in runs.items():
        if several:
            print(f"evaluating {visible(name)} ...", file=sys.stderr, flush=True)
        objective, dataset, views = _load(folder, options)
        evaluations[name] = evaluate(objective, dataset, batch_size=options.batch_size, views=views)
        if options.json:
            facts = {"folder": str(folder), "data": dataset.info.name, "split": dataset.info.split}
            facts |= {"note": dataset.info.note, "views": views}
            print(json.dumps({**facts, **evaluations[name].as_dict()}), flush=True)
        elif not several:
            print(_report(evaluations[name], dataset))
    if several and not options.json:
        print("\n".join(_comparison(runs, datasets, evaluations)))
    return 0


def _finished_runs(places: list[Path]) -> dict[str, Path]:
    """Folders of trained networks by name; of several runs, those that are not finished are named and left out."""
    for place in places:
        if not place.expanduser().exists():
            read_metadata(place)  # raises, and says which networks there are
    runs = find_runs(places)
    finished = {name: folder for name, folder in runs.items() if (folder / METADATA).exists()}
    if not finished:
        return runs  # loading the first one says what it lacks
    if len(finished) < len(runs):
        others = ", ".join(name for name in runs if name not in finished)
        print(f"paircaps: note: not finished, and left out: {visible(others)}", file=sys.stderr)
    return finished


def _load(folder: Path, options: argparse.Namespace) -> tuple[Objective, ImageDataset, str]:
    """A network with its loss, the dataset to evaluate it on, and the views that are averaged.

    Raises:
        PaircapsError: if they do not fit; the message names the folder.
    """
    objective, views = load_objective(folder)
    network = objective.network
    try:
        dataset = named_or_own(network, folder, options, options.split).limit(options.limit)
        require_fitting(network, dataset)
    except PaircapsError as error:
        name = "" if str(error).startswith(f"{folder}: ") else f"{folder}: "
        elsewhere = "" if options.data is not None else "; --data NAME evaluates on other images"
        raise PaircapsError(*error.lines_between(name, elsewhere)) from None
    return objective, dataset, options.views or views


# --- one network -----------------------------------------------------------------------------------------------------


def _report(evaluation: Evaluation, dataset: ImageDataset) -> str:
    """Metrics, accuracy of each class and confusion table of an evaluation."""
    lines = [repr(dataset), *evaluation.lines()]
    ious = evaluation.iou_per_class
    lines += ["", "class by class" if ious is None else "class by class: accuracy, IoU"]
    classes = tuple(map(visible, dataset.classes))
    width = max(map(len, classes))
    for name, value in evaluation.per_class.items():
        line = f"  {visible(name):{width}}  " + ("no image" if value is None else f"{100 * value:6.2f} %")
        lines.append(line if ious is None else f"{line}  {_iou_text(ious[name])}")
    if evaluation.confusion is not None and len(dataset.classes) <= _WIDEST_TABLE:
        lines += [
            "",
            "images of each class (row) taken for each class (column)",
            *_table(evaluation.confusion, classes),
        ]
    return "\n".join(lines)


def _iou_text(iou: float | None) -> str:
    return "no pixel" if iou is None else f"{100 * iou:6.2f} %"


def _table(confusion: list[list[int]], classes: tuple[str, ...]) -> list[str]:
    """Lines of the confusion table; a dot stands for 0."""
    first = max(map(len, classes))
    cell = max(len(str(max(map(max, confusion)))), 4) + 1
    names = [name[: cell - 1] for name in classes]
    lines = [" " * (first + 2) + "".join(f"{name:>{cell}}" for name in names)]
    for name, row in zip(classes, confusion, strict=True):
        lines.append(f"  {name:{first}}" + "".join(f"{count if count else '·':>{cell}}" for count in row))
    return lines


# --- several networks ------------------------------------------------------------------------------------------------


def _comparison(runs: dict[str, Path], datasets: dict[str, str], evaluations: dict[str, Evaluation]) -> Iterator[str]:
    """Lines of a table: one for each run, and one with the mean of those that differ in their seed alone.

    Args:
        runs: folders by name.
        datasets: description of the dataset of each run.
        evaluations: metrics of each run.
    """
    metrics = [
        part for part in printed_metrics() if any(getattr(each, part.name) is not None for each in evaluations.values())
    ]
    sections: dict[str, list[list[str]]] = {data: [] for data in datasets.values()}
    for data, rows in sections.items():
        for group in _groups([name for name in runs if datasets[name] == data], runs):
            found = [evaluations[name] for name in group]
            rows += [[name, *(_metric_text(part, [evaluations[name]]) for part in metrics)] for name in group]
            if len(group) > 1:
                rows.append([f"  mean, n = {len(group)}", *(_metric_text(part, found) for part in metrics)])
    titles = ["", *(part.metadata["label"] for part in metrics)]
    widths = column_widths([titles, *(row for rows in sections.values() for row in rows)])
    for data, rows in sections.items():
        yield from (data, text_line(titles, widths), *(text_line(row, widths) for row in rows))


def _groups(names: list[str], runs: dict[str, Path]) -> list[list[str]]:
    """Names of runs, together where they differ in their seed alone; a network without a recipe is alone."""
    recipes = {name: RunFolder(runs[name]) for name in names if RunFolder(runs[name]).has_recipe()}
    groups = group_by_recipe(recipes, lambda name: recipes[name].read_recipe())
    return [*groups, *([name] for name in names if name not in recipes)]


def _metric_text(part: Field[Any], evaluations: list[Evaluation]) -> str:
    """A metric of a network, or its mean and deviation over several; a dash if one has none."""
    values = [getattr(evaluation, part.name) for evaluation in evaluations]
    if None in values:
        return "–"
    summary, how = summarise([part.metadata["factor"] * value for value in values]), part.metadata["text"]
    number, *unit = how.format(summary.mean).split()
    deviation = [] if summary.deviation is None else ["±", how.format(summary.deviation).split()[0]]
    return " ".join([number, *deviation, *unit])


# --- pictures --------------------------------------------------------------------------------------------------------


def run_predict(options: argparse.Namespace) -> int:
    """Print the class of every picture; the exit code is 1 if one of them could not be read."""
    network = load(options.folder)
    say_other_fitting(network, options)
    sources = find_pictures(options.files)
    masks = None
    if options.masks is not None:
        sources = list(sources)
        masks = MaskOutput(options.masks, network, [source.name for source in sources])
    elif network.has_masks:
        print("paircaps: note: --masks DIR writes the masks of these pictures", file=sys.stderr)
    bad = 0
    for prediction in network.predict_sources(sources, fit=options.fit, invert=options.invert):
        bad += bool(prediction.error)
        if masks is not None and prediction.mask is not None:
            print(f"paircaps: {visible(str(masks.write(prediction)))}", file=sys.stderr)
        if options.json:
            print(json.dumps(_as_dict(prediction), ensure_ascii=False), flush=True)
        elif prediction.error:
            print(f"paircaps: {visible(prediction.error)}", file=sys.stderr)
        else:
            print(_line(prediction), flush=True)
    return 1 if bad else 0


def _as_dict(prediction: Prediction) -> dict[str, object]:
    """A prediction, or the error of a picture that could not be read, for JSON."""
    if prediction.error:
        return {"file": prediction.name, "error": prediction.error}
    label = {"class": prediction.labels[0]} if len(prediction.labels) == 1 else {"classes": list(prediction.labels)}
    by_class = {"certainty": prediction.certainties, "activations": prediction.activations}
    return {"file": prediction.name, **label, **by_class}


def _line(prediction: Prediction) -> str:
    """Name of a picture, its class with its certainty, and the certainties of the other classes, the highest first."""
    ranked = sorted(prediction.certainties.items(), key=lambda item: -item[1])
    others = "  ".join(
        f"{visible(name)} {100 * value:.1f} %" for name, value in ranked if name not in prediction.labels
    )
    picture = visible(prediction.name)
    line = f"{picture}: {prediction}  {others}".rstrip()
    fits = not sys.stdout.isatty() or len(line) <= shutil.get_terminal_size().columns
    return line if fits else f"{picture}: {prediction}\n  {others}"
