"""A thousand training steps of every routing: `python -m reference.endurance [-o FILE] [--only NAME ...]`, in `tests/`.

Each routing is trained on 1,000 glyphs, in `resnet-caps-small`, with each learning rate of the comparison of routings,
in float32 and in bfloat16, on one thread. What is written says whether a loss was ever not finite, how many of the
1,000 and of 10,000 other glyphs are recognised at the end, and how many seconds of its thread the training took.
Trainings are kept as lines of JSON beside the file, so that the same command goes on where it was stopped;
`--remeasure` forgets them.
"""

import argparse
import json
import tempfile
import time
from itertools import product
from pathlib import Path

from paircaps._utils.machine import describe_machine, machine_line
from paircaps.errors import TrainingError
from paircaps.losses import Loss, Objective
from paircaps.model_files import load
from paircaps.paper.comparison.design import BATCH, LEARNING_RATES
from paircaps.routing import list_routings
from paircaps.training.datasets import own_dataset
from paircaps.training.evaluation import evaluate
from paircaps.training.loop import train
from paircaps.training.recipe_io import merge, recipe_from_tree
from paircaps.training.recipes import read_tree

STEPS = 1000
GLYPHS = 1000
PRECISIONS = ("fp32", "bf16")
GOAL = 95.0


def endure(routing, lr, precision):
    """Train once; the row of the table."""
    changes = {
        "model": {"name": "resnet-caps-small", "routing": routing},
        "data": {"options": {"length": GLYPHS}, "test_options": {"length": 10 * GLYPHS}, "validation": 0.0},
        "optimiser": {"lr": lr},
        "train": {"epochs": None, "steps": STEPS, "batch_size": BATCH, "seed": 0, "precision": precision},
        "evaluate": {"every": 1000},
        "run": {"threads": 1, "checkpoint_every": 100_000},
    }
    recipe = recipe_from_tree(merge(read_tree("glyphs"), changes))
    row = {"routing": routing, "lr": lr, "precision": precision, "machine": describe_machine()}
    with tempfile.TemporaryDirectory() as folder:
        began = time.process_time()
        try:
            result = train(recipe, Path(folder) / "run", quiet=True)
        except TrainingError as error:
            return row | {"failure": str(error).splitlines()[0]}
        seconds = time.process_time() - began
        learned = own_dataset(result.folder, "train", options={"length": GLYPHS})
        found = evaluate(Objective(load(result.folder).eval(), Loss()), learned)
        accuracies = {"learned": 100 * found.accuracy, "others": 100 * result.trained["test_accuracy"]}
        return row | {"seconds": seconds} | accuracies


def as_markdown(rows):
    """The table: a row for each routing, a column for each precision and rate."""
    cases = list(product(PRECISIONS, LEARNING_RATES))
    found = {(row["routing"], row["precision"], row["lr"]): row for row in rows}
    lines = [
        "# A thousand steps of every routing",
        "",
        "`cd tests && python -m reference.endurance -o FILE`",
        "",
        f"`resnet-caps-small` on {GLYPHS:,} glyphs, {STEPS:,} steps of {BATCH} images, Adam with a one-cycle schedule "
        "of the stated highest rate, seed 0, one thread: percent of the learned glyphs that are recognised at the end, "
        f'and of {10 * GLYPHS:,} others. "Not finite" would mark a training that was ended by a loss which is no '
        "number. Seconds are those of the thread, for the whole training and its test, at the median of the six.",
        "",
        f"| routing | {' | '.join(f'{precision}, {lr:g}' for precision, lr in cases)} | seconds |",
        f"|{'---|' * (len(cases) + 2)}",
    ]
    for routing in sorted({row["routing"] for row in rows}):
        of_routing = [found.get((routing, *case)) for case in cases]
        seconds = sorted(row["seconds"] for row in of_routing if row and "seconds" in row)
        cells = [_cell(row) for row in of_routing]
        lines.append(
            f"| `{routing}` | {' | '.join(cells)} | {f'{seconds[len(seconds) // 2]:.0f}' if seconds else ''} |"
        )
    machines = sorted({machine_line(row["machine"]) for row in rows})
    return "\n".join([*lines, "", *(f"{machine}." for machine in machines)]) + "\n"


def _cell(row):
    if row is None:
        return "not run"
    if "failure" in row:
        return "not finite" if "finite" in row["failure"] else row["failure"]
    return f"{row['learned']:.1f} / {row['others']:.1f}"


def main():
    """Train what has no line yet, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", dest="out", type=Path, default=Path("endurance.md"))
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--remeasure", action="store_true")
    options = parser.parse_args()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    kept = options.out.with_suffix(".jsonl")
    if options.remeasure:
        kept.unlink(missing_ok=True)
    rows = [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []
    done = {(row["routing"], row["precision"], row["lr"]) for row in rows}
    for routing, precision, lr in product(options.only or list_routings(), PRECISIONS, LEARNING_RATES):
        if (routing, precision, lr) in done:
            continue
        rows.append(endure(routing, lr, precision))
        with kept.open("a") as file:
            file.write(json.dumps(rows[-1]) + "\n")
        print(routing, precision, lr, _cell(rows[-1]), flush=True)
        options.out.write_text(as_markdown(rows))


if __name__ == "__main__":
    main()
