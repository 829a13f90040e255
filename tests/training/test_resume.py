"""A run that is killed at any moment continues to the same result, bit for bit."""

import json
import random
import shutil
import signal
import time

import pytest
import torch
from safetensors.torch import load_file
from training.small import STEPS, checkpoints, command, fast_command, results
from training.test_old_runs import OLD

from paircaps import load
from paircaps.data import load_dataset
from paircaps.errors import CheckpointError
from paircaps.losses import Loss, Objective
from paircaps.training import evaluate, train
from paircaps.training.checkpoints import Checkpoint, newest_checkpoint, read_checkpoint, write_checkpoint
from paircaps.training.datasets import load_datasets
from paircaps.training.recipe import Data
from paircaps.training.recipes import load_recipe
from paircaps.training.run_folder import checkpoint_path, checkpoint_steps


@pytest.fixture(scope="module")
def whole(subprocesses, tmp_path_factory):
    """A run that nothing interrupted."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    code, said = subprocesses.run(*command(folder))
    assert code == 0, said
    return folder


def unfinished(whole, folder):
    """A copy of the run as it was before its model was saved."""
    shutil.copytree(whole, folder)
    (folder / "model.json").unlink()
    (folder / "model.safetensors").unlink()
    return folder


@pytest.mark.parametrize(("command", "kills"), [(command, 20), (fast_command, 8)], ids=["small", "fast"])
def test_a_chain_of_kills_at_random_moments_changes_nothing(subprocesses, tmp_path, command, kills):
    long = ("--train.epochs", 15, "--run.checkpoint_every", 2)
    begin = time.monotonic()
    code, said = subprocesses.run(*command(tmp_path / "whole", *long))
    seconds = time.monotonic() - begin  # moments follow the speed of the machine, or a busy one never gets far
    assert code == 0, said
    moments, steps_seen, killed = random.Random(0), set(), 0
    for _ in range(200):
        child = subprocesses.start(*command(tmp_path / "run", *long))
        if killed < kills:
            time.sleep(moments.uniform(0.02, 0.3) * seconds)
            child.send(signal.SIGKILL)
        code = child.wait(120)
        assert code in (0, -signal.SIGKILL), child.said()
        killed += code != 0
        steps_seen.update(checkpoint_steps(tmp_path / "run" / "checkpoints")[:1])
        if code == 0:
            assert results(tmp_path / "run") == results(tmp_path / "whole")
            if killed == kills:
                break
            shutil.rmtree(tmp_path / "run")  # a fast machine was done before its time
    assert killed == kills
    assert len(steps_seen) > 3  # it was killed in many places


def test_a_resume_keeps_the_stem_and_every_moment_of_muon(subprocesses, tmp_path):
    """Stopped after each checkpoint, a fast network goes on to the same bits, its stem and momentum included."""
    code, said = subprocesses.run(*fast_command(tmp_path / "whole"))
    assert code == 0, said
    tensors = newest_checkpoint(tmp_path / "whole" / "checkpoints")[0].tensors
    assert "network/model.backbone.stem.weight" in tensors
    assert "optimiser/model.layers.0.votes.weight/momentum_buffer" in tensors
    for kill_at in (12, 14):  # its n-th fsync or rename
        code, said = subprocesses.run(*fast_command(tmp_path / "run"), kill_at=kill_at)
        assert code == -signal.SIGKILL, said
    code, said = subprocesses.run(*fast_command(tmp_path / "run"))
    assert code == 0, said
    assert results(tmp_path / "run") == results(tmp_path / "whole")


def rows_of(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_validation_chooses_and_what_it_chose_is_saved(whole):
    """What is saved is the average of the weights at the epoch that did best in validation, not at the last one."""
    rows = rows_of(whole)
    epochs = [row for row in rows if row["kind"] == "epoch"]
    best = max(epochs, key=lambda row: (row["validation_accuracy"], -row["validation_loss"]))
    assert best is not epochs[-1]  # or this test could not tell
    trained = json.loads((whole / "model.json").read_text())["trained"]
    assert trained["weights_of_step"] == best["step"]
    assert trained["validation_accuracy"] == best["validation_accuracy"]
    saved = load_file(whole / "model.safetensors")
    chosen = read_checkpoint(checkpoint_path(whole / "checkpoints", best["step"])).tensors
    names = [name for name, _ in load(whole).named_parameters()]
    assert names
    for name in names:
        assert torch.equal(saved[name], chosen[f"average/{name}"])
    assert sum(row["kind"] == "test" for row in rows) == 1


def test_validation_is_of_the_images_held_back_and_test_of_the_others(whole):
    network, trained = load(whole), json.loads((whole / "model.json").read_text())["trained"]
    held = load_datasets(Data("glyphs", limit=300)).validation
    assert (network.classify(held.images) == held.labels).double().mean().item() == trained["validation_accuracy"]
    test = load_dataset("glyphs", "test").limit(300)
    assert (network.classify(test.images) == test.labels).double().mean().item() == trained["test_accuracy"]


def test_fewer_validations(subprocesses, tmp_path):
    code, said = subprocesses.run(*command(tmp_path / "run", "--evaluate.every", 2))
    assert code == 0, said
    assert [row["step"] for row in rows_of(tmp_path / "run") if row["kind"] == "epoch"] == [STEPS]


def test_mirrored_evaluation_is_what_is_tested(subprocesses, tmp_path):
    code, said = subprocesses.run(*command(tmp_path / "run", "--evaluate.views", "flip", "--train.steps", 2))
    assert code == 0, said
    found = rows_of(tmp_path / "run")[-1]["loss"]
    network = load(tmp_path / "run")
    judge, test = Objective(network, Loss(decoder="dense")), load_dataset("glyphs", "test").limit(300)
    assert evaluate(judge, test, views="flip").loss == pytest.approx(found, rel=1e-5)
    assert evaluate(judge, test, views="none").loss != pytest.approx(found, rel=1e-5)


def test_tensorboard_events_on_request(subprocesses, whole, tmp_path):
    code, said = subprocesses.run(*command(tmp_path / "run", "--run.tensorboard", "true", "--train.steps", 3))
    assert code == 0, said
    (events,) = (tmp_path / "run" / "tensorboard").iterdir()
    assert b"step/loss" in events.read_bytes()
    assert not (whole / "tensorboard").exists()


def test_half_precision_goes_on_with_its_scale(subprocesses, tmp_path):
    half = ("--train.precision", "fp16", "--train.steps", 6, "--run.checkpoint_every", 3)
    code, said = subprocesses.run(*command(tmp_path / "whole", *half))
    assert code == 0, said
    child = subprocesses.start(*command(tmp_path / "run", *half))
    child.wait_for(lambda: (tmp_path / "run" / "checkpoints" / "step-00000003").exists())
    child.send(signal.SIGKILL)
    child.wait()
    code, said = subprocesses.run(*command(tmp_path / "run", *half))
    assert code == 0, said
    assert results(tmp_path / "run") == results(tmp_path / "whole")


def test_the_margin_of_the_spread_loss_goes_on_where_it_was(subprocesses, tmp_path):
    rising = ("--model.routing", "em", "--loss.name", "spread", "--train.steps", 6, "--run.checkpoint_every", 3)
    code, said = subprocesses.run(*command(tmp_path / "whole", *rising))
    assert code == 0, said
    child = subprocesses.start(*command(tmp_path / "run", *rising))
    child.wait_for(lambda: (tmp_path / "run" / "checkpoints" / "step-00000003").exists())
    child.send(signal.SIGKILL)
    child.wait()
    code, said = subprocesses.run(*command(tmp_path / "run", *rising))
    assert code == 0, said
    assert results(tmp_path / "run") == results(tmp_path / "whole")


def test_the_objective_knows_the_share_of_the_training_that_is_done(tmp_path, monkeypatch):
    told = []
    tell = Objective.set_progress
    monkeypatch.setattr(Objective, "set_progress", lambda self, share: (told.append(share), tell(self, share)))
    short = {"data": {"limit": 80}, "train": {"steps": 4, "batch_size": 16}, "loss": {"decoder": "none"}}
    train(load_recipe("glyphs", short), tmp_path / "run")
    assert told == [0, 0.25, 0.5, 0.75]


def test_no_row_comes_twice(whole):
    rows = rows_of(whole)
    assert [(row["kind"], row["step"]) for row in rows] == [
        ("step", 3),
        ("step", 6),
        ("epoch", 8),
        *(("step", step) for step in (9, 12, 15)),
        ("epoch", STEPS),
        ("test", STEPS),
    ]


def test_a_kill_at_every_rename_and_fsync_leaves_the_run_resumable(subprocesses, tmp_path):
    short = ("--train.steps", 2, "--run.checkpoint_every", 1, "--train.log_every", 1, "--data.limit", 80)
    code, said = subprocesses.run(*command(tmp_path / "whole", *short))
    assert code == 0, said
    expected = results(tmp_path / "whole")
    for kill_at in range(1, 200):
        folder = tmp_path / f"run-{kill_at}"
        code, said = subprocesses.run(*command(folder, *short), kill_at=kill_at)
        if code == 0:
            break
        assert code == -signal.SIGKILL, said
        if any(name.startswith("step-") for name in checkpoints(folder)):
            found, complaints = newest_checkpoint(folder / "checkpoints")
            assert found is not None
            assert not complaints
        code, said = subprocesses.run(*command(folder, *short))
        assert code == 0, said
        assert results(folder) == expected
        assert not [name for name in checkpoints(folder) if name.startswith(".")]
        shutil.rmtree(folder)
    assert kill_at > 30  # of so many fsyncs and renames


def truncate(path):
    path.write_bytes(path.read_bytes()[:-100])


def flip_a_bit(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("damage", [truncate, flip_a_bit, lambda path: path.unlink()])
@pytest.mark.parametrize("name", ["state.safetensors", "state.json", "SHA256SUMS"])
def test_a_damaged_newest_checkpoint_is_named_and_skipped(subprocesses, whole, tmp_path, damage, name):
    folder = unfinished(whole, tmp_path / "run")
    newest = folder / "checkpoints" / f"step-{STEPS:08d}"
    damage(newest / name)
    code, said = subprocesses.run(*command(folder))
    assert code == 0, said
    assert f"{newest}: damaged" in said
    assert "going on from step 12" in said
    assert results(folder) == results(whole)


def test_when_all_are_damaged_nothing_starts_over_by_itself(subprocesses, whole, tmp_path):
    folder = unfinished(whole, tmp_path / "run")
    for place in (folder / "checkpoints").iterdir():
        truncate(place / "state.safetensors")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    code, said = subprocesses.run(*command(folder))
    assert code == 1
    for place in (folder / "checkpoints").iterdir():
        assert str(place) in said
    assert "--fresh" in said
    after = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert after == before
    code, said = subprocesses.run(*command(folder, "--fresh"))
    assert code == 0, said
    assert results(folder) == results(whole)


def test_metrics_without_a_checkpoint_are_no_fresh_start(subprocesses, whole, tmp_path):
    folder = unfinished(whole, tmp_path / "run")
    shutil.rmtree(folder / "checkpoints")
    code, said = subprocesses.run(*command(folder))
    assert code == 1
    assert "no checkpoint to go on from" in said


def test_a_best_checkpoint_that_is_lost_is_said_and_the_last_is_taken(subprocesses, whole, tmp_path):
    folder = unfinished(whole, tmp_path / "run")
    best = json.loads((whole / "model.json").read_text())["trained"]["weights_of_step"]
    flip_a_bit(checkpoint_path(folder / "checkpoints", best) / "state.safetensors")
    code, said = subprocesses.run(*command(folder))
    assert code == 0
    assert "the best weights are lost" in said
    trained = json.loads((folder / "model.json").read_text())["trained"]
    assert trained["weights_of_step"] == STEPS
    assert trained["validation_accuracy"] is None


def test_missing_rows_are_an_error(subprocesses, whole, tmp_path):
    folder = unfinished(whole, tmp_path / "run")
    (folder / "metrics.jsonl").write_text("")
    code, said = subprocesses.run(*command(folder))
    assert code == 1
    assert "rows are missing" in said


def test_a_changed_row_is_an_error_and_checkpoints_of_earlier_versions_know_of_none(subprocesses, whole, tmp_path):
    folder = unfinished(whole, tmp_path / "run")
    content = bytearray((folder / "metrics.jsonl").read_bytes())
    content[content.index(b"0.") + 2] ^= 1
    (folder / "metrics.jsonl").write_bytes(content)
    code, said = subprocesses.run(*command(folder))
    assert code == 1
    assert "metrics.jsonl: damaged or changed since the checkpoint was written" in said
    assert (folder / "metrics.jsonl").read_bytes() == content
    for step in checkpoint_steps(folder / "checkpoints"):
        checkpoint = read_checkpoint(checkpoint_path(folder / "checkpoints", step))
        facts = checkpoint.facts
        del facts["counters"]["metrics_sha256"]
        write_checkpoint(folder / "checkpoints", step, Checkpoint.pack(checkpoint.tensors, facts))
    code, said = subprocesses.run(*command(folder))
    assert code == 0, said


def test_a_finished_run_is_left_alone(subprocesses, whole):
    before = results(whole)
    code, said = subprocesses.run(*command(whole))
    assert code == 0
    assert "was finished already, after 16 steps" in said
    assert results(whole) == before


@pytest.mark.parametrize("name", ["model.json", "model.safetensors"])
@pytest.mark.parametrize("damage", [truncate, lambda path: path.unlink()])
def test_a_damaged_model_is_made_again_from_the_checkpoints(subprocesses, whole, tmp_path, name, damage):
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    damage(folder / name)
    code, said = subprocesses.run(*command(folder))
    assert code == 0
    assert "finished after 16 steps" in said
    assert results(folder) == results(whole)


def test_other_images_are_refused(subprocesses, whole, tmp_path):
    folder = unfinished(whole, tmp_path / "run")
    facts = folder / "checkpoints" / f"step-{STEPS:08d}" / "state.json"
    changed = json.loads(facts.read_text())
    changed["data"]["train"] = 99
    saved = read_checkpoint(facts.parent)
    shutil.rmtree(facts.parent)
    write_checkpoint(folder / "checkpoints", STEPS, Checkpoint.pack(saved.tensors, changed))
    code, said = subprocesses.run(*command(folder))
    assert code == 1
    assert "other images: 99 + 30" in said


# --- state that was written with right checksums, and is wrong ------------------------------------------------------

WRONG_STATES = {
    "nothing": (lambda facts: facts.clear(), "'counters' is missing"),
    "no step": (lambda facts: facts["counters"].pop("step"), "counters has no 'step'"),
    "negative step": (lambda facts: facts["counters"].update(step=-5), "step must be a whole number from 0"),
    "step of text": (lambda facts: facts["counters"].update(step="9"), "step must be a whole number"),
    "far step": (lambda facts: facts["counters"].update(step=1_000_000_000), "it is of step 1,000,000,000"),
    "metrics": (lambda facts: facts["counters"].update(metrics_bytes=-1), "metrics_bytes must be a whole number"),
    "good steps": (lambda facts: facts["counters"].update(good_steps=-1), "good_steps must be a whole number from 0"),
    "digest": (
        lambda facts: facts["counters"].update(metrics_sha256="0" * 63),
        "metrics_sha256 must be 64 hexadecimal",
    ),
    "best after step": (lambda facts: facts["counters"].update(best_step=99), "best_step must be a whole number"),
    "best": (lambda facts: facts["counters"].update(best=[1]), "best must be two numbers"),
    "window": (lambda facts: facts["counters"].update(window=[]), "window must be a table"),
    "sums": (lambda facts: facts["counters"]["epoch"].update(loss=None), "epoch.loss must be a number"),
    "scale": (lambda facts: facts["counters"].update(scale=0), "scale must be a positive number"),
    "more": (lambda facts: facts["counters"].update(evil=1), "counters has 'evil'"),
    "threads": (lambda facts: facts.update(threads=0), "threads must be from 1"),
    "data": (lambda facts: facts.update(data=3), "data is 3"),
}


def rewrite_state(folder, step, change):
    """Change state.json of a checkpoint; its checksums are right."""
    checkpoint = read_checkpoint(checkpoint_path(folder, step))
    facts = checkpoint.facts
    change(facts)
    write_checkpoint(folder, step, Checkpoint(checkpoint.tensors_file, json.dumps(facts).encode()))


@pytest.mark.parametrize(("change", "words"), WRONG_STATES.values(), ids=WRONG_STATES)
def test_a_state_that_no_training_wrote_is_damaged(tmp_path, change, words):
    folder = tmp_path / "checkpoints"
    shutil.copytree(OLD / "checkpoints", folder)
    [step] = checkpoint_steps(folder)
    rewrite_state(folder, step, change)
    with pytest.raises(CheckpointError, match=r"step-.*damaged: state\.json: ") as error:
        newest_checkpoint(folder)
    assert words in str(error.value)


def test_a_checkpoint_beyond_the_end_of_the_run_is_refused(subprocesses, whole, tmp_path):
    folder = unfinished(whole, tmp_path / "run")
    newest = read_checkpoint(checkpoint_path(folder / "checkpoints", STEPS))
    facts = newest.facts
    facts["counters"]["step"] = STEPS + 1
    write_checkpoint(folder / "checkpoints", STEPS + 1, Checkpoint(newest.tensors_file, json.dumps(facts).encode()))
    code, said = subprocesses.run(*command(folder))
    assert code == 1
    assert f"its checkpoint is of step {STEPS + 1}, the run has {STEPS}" in said


@pytest.mark.parametrize("part", ["average", "network"])
def test_a_validation_that_is_not_finite_stops_the_training(subprocesses, whole, tmp_path, part):
    folder = unfinished(whole, tmp_path / "run")
    for step in checkpoint_steps(folder / "checkpoints"):
        if step > 12:
            shutil.rmtree(checkpoint_path(folder / "checkpoints", step))
    checkpoint = read_checkpoint(checkpoint_path(folder / "checkpoints", 12))
    tensors = checkpoint.tensors
    name = next(name for name in tensors if name.startswith(f"{part}/") and name.endswith("weight"))
    tensors[name].view(-1)[0] = torch.nan
    write_checkpoint(folder / "checkpoints", 12, Checkpoint.pack(tensors, checkpoint.facts))
    code, said = subprocesses.run(*command(folder))
    assert code == 1
    assert "is not finite" in said
    if part == "average":
        assert "stopped at step 16: the validation's loss is not finite: nan" in said
        assert name.removeprefix("average/") in said
    else:
        assert "stopped before step 13 changed any weight" in said
    assert not (folder / "model.json").exists()
    assert checkpoint_steps(folder / "checkpoints")[0] == 12
