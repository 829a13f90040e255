import json
import shutil
from pathlib import Path

import pytest

from paircaps.training.recipe_io import merge, parse_toml, recipe_from_tree, to_toml, with_keys_of_run

OLD = Path(__file__).parents[1] / "run_of_be29f46"


@pytest.fixture
def make_run(tmp_path):
    """Write the folder of a run that is like an old one, but for its recipe and its result."""

    def make(name, changes=None, accuracy=0.5, *, finished=True, note="", times=1.0):
        folder = tmp_path / name
        folder.mkdir(parents=True)
        old = with_keys_of_run(parse_toml((OLD / "config.toml").read_text(), "config"))
        recipe = recipe_from_tree(merge(old, changes or {}))
        (folder / "config.toml").write_text(to_toml(recipe))
        rows = [json.loads(line) for line in (OLD / "metrics.jsonl").read_text().splitlines()]
        rows[-1]["accuracy"] = accuracy
        rows = rows if finished else [row for row in rows if row["step"] <= 9]
        (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        timing = [json.loads(line) for line in (OLD / "timing.jsonl").read_text().splitlines()]
        timing = [{**row, "time": times * (row["time"] - timing[0]["time"])} for row in timing]
        timing = timing if finished else timing[:10]
        (folder / "timing.jsonl").write_text("".join(json.dumps(row) + "\n" for row in timing))
        if finished:
            shutil.copy(OLD / "model.json", folder)
            facts = json.loads((folder / "model.json").read_text())
            facts["trained"] |= {"note": note, "test_accuracy": accuracy, "seed": recipe.train.seed}
            (folder / "model.json").write_text(json.dumps(facts))
        return folder

    return make


def seed(number):
    return {"train": {"seed": number}}
