"""Run ``paircaps evaluate`` and ``paircaps predict``."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from typing import Any

from paircaps.cli.datasets import named_or_own, say_other_fitting
from paircaps.data import ImageDataset
from paircaps.errors import ModelFileError
from paircaps.losses import Loss, Objective
from paircaps.model_files import load, read_metadata
from paircaps.network import Prediction
from paircaps.pictures import find_pictures
from paircaps.training.datasets import require_fitting
from paircaps.training.evaluation import Evaluation, evaluate

_WIDEST_TABLE = 20


def run_evaluate(options: argparse.Namespace) -> int:
    """Evaluate a network on a dataset and print the result."""
    network = load(options.folder)
    trained = read_metadata(options.folder).get("trained", {})
    dataset = named_or_own(network, options.folder, options, options.split).limit(options.limit)
    require_fitting(network, dataset)
    objective = Objective(network, _loss(trained, options))
    views = options.views or _trained_views(trained)
    evaluation = evaluate(objective, dataset, batch_size=options.batch_size, views=views)
    if options.json:
        facts = {"folder": str(options.folder), "data": dataset.info.name, "split": dataset.info.split}
        print(json.dumps({**facts, "note": dataset.info.note, "views": views, **evaluation.as_dict()}))
        return 0
    print(_report(evaluation, dataset))
    return 0


def _trained_views(trained: dict[str, Any]) -> str:
    """The views that the training tested with; earlier versions wrote ``mirror`` for ``flip``."""
    return trained.get("views", "flip" if trained.get("mirror") else "none")


def _loss(trained: dict[str, Any], options: argparse.Namespace) -> Loss:
    try:
        return Loss(**trained["loss"])
    except (KeyError, TypeError, ValueError) as error:
        raise ModelFileError(
            f"{options.folder}: model.json does not say what loss it was trained for: {error}"
        ) from None


def _report(evaluation: Evaluation, dataset: ImageDataset) -> str:
    """Metrics, accuracy of each class and confusion table of an evaluation."""
    lines = [repr(dataset), *evaluation.lines()]
    lines += ["", "class by class"]
    width = max(map(len, dataset.classes))
    for name, value in evaluation.per_class.items():
        lines.append(f"  {name:{width}}  " + ("no image" if value is None else f"{100 * value:6.2f} %"))
    if evaluation.confusion is not None and len(dataset.classes) <= _WIDEST_TABLE:
        lines += [
            "",
            "images of each class (row) taken for each class (column)",
            *_table(evaluation.confusion, dataset.classes),
        ]
    return "\n".join(lines)


def _table(confusion: list[list[int]], classes: tuple[str, ...]) -> list[str]:
    """Lines of the confusion table; a dot stands for 0."""
    first = max(map(len, classes))
    cell = max(len(str(max(map(max, confusion)))), 4) + 1
    names = [name[: cell - 1] for name in classes]
    lines = [" " * (first + 2) + "".join(f"{name:>{cell}}" for name in names)]
    for name, row in zip(classes, confusion, strict=True):
        lines.append(f"  {name:{first}}" + "".join(f"{count if count else '·':>{cell}}" for count in row))
    return lines


def run_predict(options: argparse.Namespace) -> int:
    """Print the class of every picture; the exit code is 1 if one of them could not be read."""
    network = load(options.folder)
    say_other_fitting(network, options)
    bad = 0
    for prediction in network.predict_sources(find_pictures(options.files), fit=options.fit, invert=options.invert):
        bad += bool(prediction.error)
        if options.json:
            print(json.dumps(_as_dict(prediction), ensure_ascii=False), flush=True)
        elif prediction.error:
            print(f"paircaps: {prediction.error}", file=sys.stderr)
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
    others = "  ".join(f"{name} {100 * value:.1f} %" for name, value in ranked if name not in prediction.labels)
    line = f"{prediction.name}: {prediction}  {others}".rstrip()
    fits = not sys.stdout.isatty() or len(line) <= shutil.get_terminal_size().columns
    return line if fits else f"{prediction.name}: {prediction}\n  {others}"
