"""Runs put together by dataset and by what differs."""

import pytest
from training.compare.conftest import OLD, seed

from paircaps.errors import TrainingError
from paircaps.training.compare import compare_runs
from paircaps.training.compare.groups import joined_names


def names(comparison):
    return [group.name for group in comparison.groups]


def test_runs_that_differ_in_seed_and_threads_belong_together(make_run):
    folders = [make_run(f"fm-{number}", seed(number), accuracy) for number, accuracy in ((10, 0.6), (2, 0.4), (0, 0.8))]
    folders.append(make_run("fm-3", {**seed(3), "run": {"threads": 2, "keep": 5}}, 0.6))
    (comparison,) = compare_runs(folders)
    (group,) = comparison.groups
    assert [run.seed for run in group.runs] == [0, 2, 3, 10]
    assert group.name == "fm-{0,2,3,10}"
    summary = group.summary(lambda run: run.accuracy)
    assert (summary.mean, summary.seeds) == (pytest.approx(0.6), 4)
    assert summary.deviation == pytest.approx((0.08 / 3) ** 0.5), "with n − 1"
    assert comparison.differences == {}


@pytest.mark.parametrize(
    "changes", [{"train": {"precision": "fp32"}}, {"data": {"seed": 1}}, {"model": {"options": {"pose_dim": 9}}}]
)
def test_another_precision_or_other_images_are_another_group(make_run, changes):
    (comparison,) = compare_runs([make_run("a"), make_run("b", changes), make_run("c", seed(1))])
    assert names(comparison) == ["{a,c}", "b"]


def test_one_seed_has_no_deviation(make_run):
    (comparison,) = compare_runs([make_run("a")])
    summary = comparison.groups[0].summary(lambda run: run.accuracy)
    assert (summary.deviation, summary.seeds) == (None, 1)


def test_a_folder_that_is_given_twice_counts_once(make_run, monkeypatch):
    folder = make_run("runs/a")
    make_run("runs/b", seed(1))
    monkeypatch.chdir(folder)
    (comparison,) = compare_runs([folder, folder.parent, folder / ".." / "a", folder.relative_to(folder)])
    assert [run.name for run in comparison.groups[0].runs] == ["a", "b"]


def test_a_seed_that_was_run_twice_is_noted(make_run):
    (comparison,) = compare_runs([make_run("a"), make_run("copy"), make_run("b", seed(1))])
    (note,) = comparison.notes()
    assert note.startswith("a, copy: the same seed, 0, so their deviation is not one over seeds")


def test_datasets_are_apart_also_by_the_note_on_their_files(make_run):
    folders = [
        make_run("a"),
        make_run("b", note="a stand-in"),
        make_run("c", {"data": {"name": "mnist"}}, finished=False),
    ]
    comparisons = compare_runs([*folders, make_run("d", seed(1))])
    assert [comparison.data for comparison in comparisons] == ["glyphs", "glyphs (a stand-in)", "mnist"]
    assert [names(comparison) for comparison in comparisons] == [["{a,d}"], ["b"], ["c"]]


def test_an_unfinished_run_belongs_to_its_seeds(make_run):
    (comparison,) = compare_runs([make_run("a", note="n"), make_run("b", seed(1), finished=False)])
    (group,) = comparison.groups
    assert ([run.name for run in group.finished], [run.name for run in group.unfinished]) == (["a"], ["b"])
    assert group.summary(lambda run: run.accuracy).seeds == 1


def test_what_differs_is_there_for_every_group(make_run):
    a = make_run("a")
    b = make_run("b", {"model": {"routing": "dynamic"}, "train": {"batch_size": 32}})
    c = make_run("c", {"optimiser": {"lr": 0.5}, "train": {"steps": 5}})
    (comparison,) = compare_runs([a, b, c])
    assert comparison.differences == {
        "model.routing": ["fm", "dynamic", "fm"],
        "optimiser.lr": ["0.01", "0.01", "0.5"],
        "train.steps": ["not set", "not set", "5"],
        "train.batch_size": ["64", "32", "64"],
    }


def test_figures_name_groups_by_what_differs(make_run):
    a, b = make_run("a"), make_run("b", {"model": {"routing": "dynamic"}, "schedule": {"name": "cosine"}})
    assert compare_runs([a, b])[0].labels == ("fm, schedule one-cycle", "dynamic, schedule cosine")
    em, pool = make_run("em", {"model": {"routing": "em"}}), make_run("pool", {"model": {"name": "resnet-pool-small"}})
    assert compare_runs([em, pool])[0].labels == ("resnet-caps-small, em", "resnet-pool-small"), "it has no routing"
    many = {
        "optimiser": {"lr": 0.5, "eps": 0.1, "beta1": 0.8, "beta2": 0.7, "weight_decay": 0.25},
        "train": {"ema": 0.5},
    }
    assert compare_runs([a, make_run("c", many)])[0].labels == ("a", "c"), "too many differences for a name"


def test_the_old_run_is_comparable(make_run):
    (comparison,) = compare_runs([OLD, make_run("new", seed(1))])
    assert len(comparison.groups) == 1


def test_losses_of_two_kinds_are_noted(make_run):
    (comparison,) = compare_runs([make_run("a"), make_run("b", {"loss": {"name": "margin"}}, finished=False)])
    assert comparison.notes() == ["glyphs: losses of different kinds (cross-entropy, margin) cannot be compared"]


def test_nothing_to_compare(tmp_path):
    with pytest.raises(TrainingError, match="no run of a training"):
        compare_runs([tmp_path])
    with pytest.raises(TrainingError, match="nowhere: no such folder"):
        compare_runs([tmp_path / "nowhere"])


@pytest.mark.parametrize(
    ("given", "joined"),
    [
        (["fm"], "fm"),
        (["fm/seed-0", "fm/seed-1"], "fm/seed-{0,1}"),
        (["a", "b"], "{a,b}"),
        (["fm-0-long", "fm-12-long"], "fm-{0,12}-long"),
        (["run", "run-1"], "run{,-1}"),
    ],
)
def test_names_share_what_they_have_in_common(given, joined):
    assert joined_names(given) == joined
