"""A set of ordinary trainings: skipped when done, made again when a file of it is gone, refused when they would mix."""

import pytest
from experiments.results import finished

from paircaps.errors import PaircapsError, TrainingError
from paircaps.experiments import reproduce as room
from paircaps.experiments.budget import Budget
from paircaps.experiments.paper import find_experiments
from paircaps.experiments.plan import Choice
from paircaps.experiments.records import NOT_RUN, read_record
from paircaps.experiments.report import write_report
from paircaps.experiments.reproduce import reproduce, require_choice
from paircaps.training.folder import RunFolder, locked_folder
from paircaps.training.loop import Result
from paircaps.training.recipe_text import to_toml

TINY = Choice(Budget(epochs=1), seeds=1, limit=64, variants=("fm",))

pytestmark = pytest.mark.usefixtures("no_data")


@pytest.fixture
def make(tmp_path):
    """Reproduce experiments in a folder; what was said, and the outcome."""

    def make(*names, choice=TINY, hours=None):
        said = []
        outcome = reproduce(find_experiments(list(names)), tmp_path, choice, hours=hours, say=said.append, quiet=True)
        return said, outcome

    return make


def test_trained_once_and_then_skipped(make, tmp_path):
    said, outcome = make("table3")
    assert "table3: affine-glyphs stands in for affnist, which is not here" in said
    assert (outcome.done, outcome.missing, outcome.failed) == (1, (), ())
    folder = RunFolder(tmp_path / "runs/table3/affine-glyphs/fm/seed-0")
    before = folder.metrics.read_bytes(), folder.metrics.stat().st_mtime_ns
    said, outcome = make("table3")
    assert "was finished already" in said[-1]
    assert outcome.done == 1
    assert (folder.metrics.read_bytes(), folder.metrics.stat().st_mtime_ns) == before


def test_results_without_their_weights_count(make, tmp_path):
    make("table3")
    folder = tmp_path / "runs/table3/affine-glyphs/fm/seed-0"
    (folder / "model.safetensors").unlink()
    assert "was finished already" in make("table3")[0][-1]


@pytest.mark.parametrize("name", ["config.toml", "metrics.jsonl", "model.json", "model.safetensors", "timing.jsonl"])
def test_a_file_that_is_gone_is_made_again_and_the_report_with_it(make, tmp_path, name):
    make("table3")
    write_report(tmp_path)
    report, picture = tmp_path / "report.html", tmp_path / "pictures/table4.png"
    before = report.read_bytes(), (tmp_path / "report.md").read_bytes(), picture.read_bytes()
    (tmp_path / "runs/table3/affine-glyphs/fm/seed-0" / name).unlink()
    for path in (report, tmp_path / "report.md"):
        path.unlink()
    make("table3")
    write_report(tmp_path)
    assert (report.read_bytes(), (tmp_path / "report.md").read_bytes(), picture.read_bytes()) == before


def test_a_picture_that_is_gone_is_drawn_again(make, tmp_path):
    make("table3")
    write_report(tmp_path)
    picture = tmp_path / "pictures/table4.png"
    before = picture.read_bytes()
    picture.unlink()
    write_report(tmp_path)
    assert picture.read_bytes() == before


def test_a_killed_training_goes_on(make, tmp_path, monkeypatch):
    def killed(recipe, folder, **options):
        RunFolder(folder).path.mkdir(parents=True, exist_ok=True)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(room, "train", killed)
        with pytest.raises(KeyboardInterrupt):
            make("table3")
    assert make("table3")[1].done == 1


def test_missing_data_is_told_and_noted(make, tmp_path):
    said, outcome = make("table6", "table3")
    reason = "smallnorb is not here (paircaps data get smallnorb)"
    assert outcome.missing == (f"table6: {reason}",)
    assert f"table6: {reason}" in said
    assert (tmp_path / "runs/table6/smallnorb" / NOT_RUN).read_text() == f"{reason}\n"
    assert outcome.done == 1, "and the others are run"


def test_other_settings_are_refused_before_anything_is_trained(make, tmp_path):
    make("table3")
    other = Choice(Budget(epochs=2), seeds=2, limit=64, variants=("fm",))
    with pytest.raises(TrainingError, match=r"was begun with other settings.*\n  train\.epochs: 1 there, 2 here"):
        make("table3", choice=other)
    assert not (tmp_path / "runs/table3/affine-glyphs/fm/seed-1").exists()
    assert read_record(tmp_path / "runs/table3/affine-glyphs/fm/seed-0"), "what is there stays"


def test_one_failure_does_not_stop_the_others(make, tmp_path, monkeypatch):
    real = room.train

    def train(recipe, folder, **options):
        if recipe.train.seed == 0:
            raise TrainingError("stopped before step 1 changed any weight: the loss is nan\nmore")
        return real(recipe, folder, **options)

    monkeypatch.setattr(room, "train", train)
    _, outcome = make("table3", choice=Choice(Budget(epochs=1), seeds=2, limit=64, variants=("fm",)))
    assert outcome.done == 1
    assert "seed 0: stopped before step 1" in outcome.failed[0]
    write_report(tmp_path)
    assert "seed 0: stopped before step 1 changed any weight: the loss is nan" in (tmp_path / "report.md").read_text()
    monkeypatch.setattr(room, "train", real)
    make("table3", choice=Choice(Budget(epochs=1), seeds=2, limit=64, variants=("fm",)))
    assert not list(tmp_path.rglob(NOT_RUN)), "a later success clears the note"


def test_a_second_process_leaves_a_training_to_the_first(make, tmp_path):
    with locked_folder(tmp_path / "runs/table3/affine-glyphs/fm/seed-0"):
        said, outcome = make("table3")
    assert "another process is training it" in said[-1]
    assert (outcome.done, outcome.failed) == (0, ())


def test_hours_are_a_share_of_the_paper_s_length(make, tmp_path, monkeypatch):
    monkeypatch.setattr(room, "seconds_of", lambda recipe: 3600.0)
    trained = []

    def train(recipe, folder, **options):
        trained.append(recipe)
        RunFolder(folder).path.mkdir(parents=True, exist_ok=True)
        RunFolder(folder).config.write_text(to_toml(recipe))
        return Result(folder, {"test_accuracy": 0.5}, 0)

    monkeypatch.setattr(room, "train", train)
    said, _ = make("table3", choice=Choice(seeds=2, variants=("fm", "pool")), hours=0.4)
    assert len(trained) == 4
    lengths = {recipe.train.steps for recipe in trained}
    assert len(lengths) == 1
    whole = 40_000 / (54_000 // 128) * (9_000 // 128)  # as many epochs, of fewer glyphs
    assert lengths.pop() == round(0.1 * whole)
    assert "about 4.0 hours; taking 10 %" in " ".join(said)
    said, _ = make("table3", choice=Choice(seeds=2, variants=("fm", "pool")), hours=4)
    assert "the others take the same share" in " ".join(said), "a second start keeps the first one's length"
    assert {recipe.train.steps for recipe in trained} == {round(0.1 * whole)}


def test_times_are_measured_once(make, tmp_path):
    make("table1", choice=Choice(Budget(epochs=1), data=("fashion-mnist",), variants=("fm", "pool")))
    file = tmp_path / "runs/table1/fashion-mnist/metrics.jsonl"
    before = file.read_bytes()
    assert make("table1", choice=Choice(Budget(epochs=1), data=("fashion-mnist",)))[0][-1].endswith("measured already")
    assert file.read_bytes() == before


def test_a_choice_of_nothing_is_refused():
    table2 = find_experiments(["table2"])
    require_choice(table2, Choice(data=("cifar10",), variants=("pool",)))
    with pytest.raises(PaircapsError, match="--data: no 'mnist' in these experiments; there is cifar10, fashion-mnist"):
        require_choice(table2, Choice(data=("mnist",)))
    with pytest.raises(
        PaircapsError, match="--only: no 'fm-runs' in these experiments; there is dynamic, em, fm, pool"
    ):
        require_choice(table2, Choice(variants=("fm-runs",)))


def test_made_up_results_are_like_real_ones(make, tmp_path):
    finished(tmp_path, "table3", "affine-glyphs", "fm", 0, 0.5, choice=TINY)
    assert "was finished already, 50.00 %" in make("table3")[0][-1]
