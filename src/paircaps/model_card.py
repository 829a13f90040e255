"""Model cards: what a trained network is, how it was trained, on what, what it reaches, and what it is not for.

A card is a pure function of ``model.json``, so that the two cannot disagree, in Markdown with the YAML head that
Hugging Face reads. Nothing here imports PyTorch.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from paircaps._utils.model_folder import checksum_line

__all__ = [
    "model_card",
]

_NOT_FOR = (
    "decisions about people, their work, their health or their money, and any use in which a wrong answer does harm",
    "reading what nobody checks: cheques, forms, votes, addresses, medicine",
    "claims about capsule networks in general: this is one training, and the project's tables have several",
)

_METRICS = {
    "accuracy": ("accuracy", 100, "{:.2f} %"),
    "plain_accuracy": ("accuracy without other views of each image", 100, "{:.2f} %"),
    "mean_iou": ("mean IoU", 100, "{:.2f} %"),
    "loss": ("loss", 1, "{:.4f}"),
    "calibration_error": ("calibration error", 100, "{:.2f} %"),
    "drawing_error": ("drawing error (squared, summed over the pixels of an image)", 1, "{:.2f}"),
}
"""Metrics of a card: their words, what they are multiplied by, and their format."""


def model_card(metadata: Mapping[str, Any], name: str = "") -> str:
    """Card of a trained network as Markdown.

    Of a network that was shipped by ``paircaps weights add`` it has everything; of another one, what its ``model.json``
    says.

    Args:
        metadata: content of its ``model.json``.
        name: what to call it; the name in ``model.json``, or that of its model, if empty.
    """
    trained, card = _section(metadata, "trained"), _section(metadata, "card")
    name = _plain(name or str(card.get("name") or metadata.get("model", "network")))
    parts = [
        _head(name, metadata, trained, card),
        f"# {name}",
        _what_it_is(metadata, trained, card),
        _use(name, bool(card)),
        "## Numbers",
        *_numbers(trained, card),
        "## Training",
        *_training(metadata, trained, card),
        "## Data",
        *_data(trained, card),
        "## Limits",
        _bullets([*_limits(metadata), *map(str, card.get("limits", ()))]),
        "## Not for",
        _bullets(_NOT_FOR),
        "## Files",
        _files(metadata, card),
    ]
    return "\n\n".join(parts) + "\n"


# --- the head that Hugging Face reads --------------------------------------------------------------------------------


def _head(name: str, metadata: Mapping[str, Any], trained: Mapping[str, Any], card: Mapping[str, Any]) -> str:
    """YAML between two lines of dashes; text is quoted as in JSON, which YAML reads."""
    evaluation = _evaluation(trained, card)
    task = "image-segmentation" if "mean_iou" in evaluation else "image-classification"
    tags = ["paircaps", "capsule-network", str(metadata.get("model"))]
    lines = [
        "---",
        "license: mit",
        "library_name: paircaps",
        f"pipeline_tag: {task}",
        f"tags: {json.dumps(tags)}",
    ]
    sources = _section(card, "data").get("sources")
    if sources:
        lines.append(f"datasets: {json.dumps(sources)}")
    if "accuracy" in evaluation:
        data = str(evaluation["data"])
        kind = re.sub(r"[^\w.-]+", "-", data).strip("-.") or "data"
        lines += [
            'metrics: ["accuracy"]',
            "model-index:",
            f"- name: {json.dumps(name)}",
            "  results:",
            f"  - task: {{type: {task}}}",
            f"    dataset: {{name: {json.dumps(data)}, type: {json.dumps(kind)}, split: test}}",
            f"    metrics: [{{type: accuracy, value: {evaluation['accuracy']!r}}}]",
        ]
    return "\n".join([*lines, "---"])


# --- sections --------------------------------------------------------------------------------------------------------


def _what_it_is(metadata: Mapping[str, Any], trained: Mapping[str, Any], card: Mapping[str, Any]) -> str:
    classes = [_plain(str(label)) for label in metadata.get("classes", ())]
    seen = ", ".join(classes[:20]) + (f" and {len(classes) - 20} more" if len(classes) > 20 else "")
    height, width = metadata["preparation"]["size"]
    channels = metadata["preparation"].get("channels", 1)
    colours = {1: "grey", 3: "colour"}.get(channels, f"{channels} channels")
    labels = metadata.get("labels_per_image", 1)
    return (
        f"{_about(metadata, trained, card)} It takes pictures of {height}×{width} pixels in {colours}, to which "
        f"others are fitted, and tells {len(classes)} classes apart"
        f"{f', {labels} in each picture' if labels != 1 else ''}: {seen}."
        + ("" if metadata.get("decoder", "none") == "none" else " A decoder redraws the picture from a pose.")
    )


def _about(metadata: Mapping[str, Any], trained: Mapping[str, Any], card: Mapping[str, Any]) -> str:
    """Sentence on the network and what it was trained on."""
    model, data = _plain(str(metadata.get("model"))), _plain(str(trained.get("dataset", "data that is not recorded")))
    routing = card["routing"] if "routing" in card else _section(metadata, "arguments").get("routing")
    kind = f"a capsule network with the routing {_plain(str(routing))}" if routing else "a network without capsules"
    sizes = [f"{card['parameters']:,} parameters"] if isinstance(card.get("parameters"), int) else []
    if isinstance(card.get("decoder_parameters"), int) and card["decoder_parameters"]:
        sizes.append(f"{card['decoder_parameters']:,} more in its decoder")
    return f"`{model}`, {kind}{', with ' + ' and '.join(sizes) if sizes else ''}, trained on `{data}`."


def _use(name: str, shipped: bool) -> str:
    place = name if shipped else "path/of/this/folder"
    commands = [f"paircaps predict {place} picture.png", f"paircaps evaluate {place}", f"paircaps serve {place}"]
    return "\n".join(
        [
            "```python",
            "import paircaps",
            "",
            f'network = paircaps.load("{place}")  # or the path of this folder',
            'print(network.predict("picture.png"))',
            "```",
            "",
            "```sh",
            *commands,
            "```",
        ]
    )


def _numbers(trained: Mapping[str, Any], card: Mapping[str, Any]) -> Iterator[str]:
    """Tables of what the network reaches on each dataset that it was tested on."""
    evaluation = _evaluation(trained, card)
    if trained.get("changed_since"):
        yield "The weights were changed after the training below, and what they reach now is not recorded."
        return
    if not evaluation:
        yield "None are recorded."
        return
    for each in (evaluation, *card.get("also", ())):
        images = f"{each['images']:,} test images of" if isinstance(each.get("images"), int) else "the test images of"
        views = each.get("views", "none")
        how = "" if views == "none" else f", activations averaged over the views `{_plain(str(views))}` of each"
        note = f" ({_plain(str(each['note']))})" if each.get("note") else ""
        yield f"On {images} `{_plain(str(each['data']))}`{note}{how}:"
        found = [(key, each[key]) for key in _METRICS if isinstance(each.get(key), int | float)]
        yield _table({_METRICS[key][0]: _METRICS[key][2].format(_METRICS[key][1] * value) for key, value in found})
        yield from _hardest(each)
    seed = trained.get("seed", "unknown")
    yield f"One training with seed {seed}: its numbers have the luck of one seed in them."
    if card.get("stored") == "bf16":
        yield (
            f"The weights are stored as bfloat16, and the numbers are of these; in float32 the accuracy was "
            f"{100 * card['accuracy_fp32']:.2f} %."
        )


def _hardest(evaluation: Mapping[str, Any]) -> Iterator[str]:
    """Sentence on the class that is found least often."""
    per_class = {
        label: value for label, value in _section(evaluation, "per_class").items() if isinstance(value, int | float)
    }
    if per_class:
        worst = min(per_class, key=lambda label: per_class[label])
        best = max(per_class, key=lambda label: per_class[label])
        yield (
            f"Class by class, accuracy lies between {100 * per_class[worst]:.2f} % ({_plain(worst)}) and "
            f"{100 * per_class[best]:.2f} % ({_plain(best)})."
        )


def _training(metadata: Mapping[str, Any], trained: Mapping[str, Any], card: Mapping[str, Any]) -> Iterator[str]:
    if card.get("command"):
        yield f"```sh\n{card['command']}\n```"
    rows = {
        "recipe": card.get("recipe"),
        "loss": _section(trained, "loss").get("name"),
        "steps": f"{trained['steps']:,}" if isinstance(trained.get("steps"), int) else None,
        "time": f"{card['minutes']:,.3g} minutes" if isinstance(card.get("minutes"), int | float) else None,
        "seed": trained.get("seed"),
        "machine": _machine(trained),
        "commit": _section(trained, "machine").get("commit"),
        "plug-ins": ", ".join(map(str, metadata.get("plugins", ()))) or None,
    }
    yield _table({key: _plain(str(value)) for key, value in rows.items() if value is not None})
    if trained.get("recipe"):
        yield "`model.json` holds the whole recipe, with every key, under `trained.recipe`."


def _machine(trained: Mapping[str, Any]) -> str | None:
    machine = _section(trained, "machine")
    facts = [str(machine["cpu"])] if "cpu" in machine else []
    facts += [f"{key} {machine[key]}" for key in ("cores", "threads", "python", "torch", "paircaps") if key in machine]
    return ", ".join(facts) or None


def _data(trained: Mapping[str, Any], card: Mapping[str, Any]) -> Iterator[str]:
    data = _section(card, "data")
    if not data:
        yield f"`{_plain(str(trained.get('dataset', 'not recorded')))}`. Its licence is not recorded."
        return
    rows = {
        "trained on": f"`{_plain(str(data['name']))}`: {_plain(str(data['title']))}",
        "licence of the data": _plain(str(data["licence"])),
        "to cite": _plain(str(data["citation"])),
        "tested on": f"`{_plain(str(card['evaluation']['data']))}`",
    }
    yield _table(rows)
    yield "The weights are under the licence of the project, MIT; the data keep theirs, and are not among these files."


def _limits(metadata: Mapping[str, Any]) -> Iterator[str]:
    """Limits that every network has."""
    yield "A picture of anything gets one of the classes: there is no answer for none of them."
    yield "Certainties are those of pictures like the ones it was tested on; on others they say little."
    yield "It was trained and tested on one collection of pictures; how much worse it is on others was not measured."
    if metadata.get("decoder", "none") != "none":
        yield "What the decoder redraws is blurred, and looks like the training's pictures whatever the picture was."


def _files(metadata: Mapping[str, Any], card: Mapping[str, Any]) -> str:
    stored = "bfloat16 (vectors in float32)" if card.get("stored") == "bf16" else "float32"
    return "\n".join(
        [
            "| | |",
            "|---|---|",
            f"| `model.safetensors` | weights in {stored}; they contain no code |",
            checksum_line(str(metadata.get("sha256"))),
            "| `model.json` | model, classes, preparation of pictures, recipe, and the numbers above |",
        ]
    )


# --- parts -----------------------------------------------------------------------------------------------------------


def _evaluation(trained: Mapping[str, Any], card: Mapping[str, Any]) -> Mapping[str, Any]:
    """Metrics of the network: those of its card, or those of the test at the end of its training."""
    if card.get("evaluation"):
        return _section(card, "evaluation")
    if not isinstance(trained.get("test_accuracy"), int | float):
        return {}
    known = {"accuracy": "test_accuracy", "loss": "test_loss", "images": "test_images", "mean_iou": "test_mean_iou"}
    numbers = {key: trained[name] for key, name in known.items() if trained.get(name) is not None}
    return {
        **numbers,
        "data": trained.get("tested_on", "its data"),
        "views": trained.get("views", "none"),
        "note": trained.get("note", ""),
    }


def _section(metadata: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = metadata.get(name)
    return section if isinstance(section, Mapping) else {}


def _table(rows: Mapping[str, str]) -> str:
    """A table of two columns without titles."""
    return "\n".join(["| | |", "|---|---|", *(f"| {key} | {value} |" for key, value in rows.items())])


def _bullets(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _plain(text: str) -> str:
    """Text from outside on one line, without what Markdown or HTML would make of it."""
    return re.sub(r"[\s<>|`\x00-\x1f\x7f]+", " ", text).strip()
