"""The report: from made-up results to cells, sentences and pages."""

import json
import re
import shutil

import pytest
from paper.results import MACHINE, finished, variant_of

from paircaps._utils.figures import new_figure
from paircaps._utils.summary import Summary
from paircaps.errors import PaircapsError
from paircaps.paper.experiments import PaperNumber, experiments
from paircaps.paper.plan import Choice
from paircaps.paper.records import read_cell
from paircaps.paper.report import write_report
from paircaps.paper.report.cells import paper_cell, result_cell, share_in_words
from paircaps.paper.report.curves import _draw_panel, _means_over_seeds, _values_by_epoch
from paircaps.paper.report.document import ColumnGroup, Section, Table, TableCell
from paircaps.paper.report.ranking import order_sentences
from paircaps.paper.report.sections import experiment_section
from paircaps.paper.report.significance import critical
from paircaps.paper.report.write import as_html, as_markdown
from paircaps.paper.training_length import Budget

PAPER = experiments()


def cell_of(out, name, data, variant):
    experiment = PAPER[name]
    study = next(study for study in experiment.studies if study.data == data)
    return read_cell(out, experiment, study, variant_of(experiment, variant))


def findings(out, name):
    experiment = PAPER[name]
    cells = [cell_of(out, name, study.data, v.name) for study in experiment.studies for v in experiment.variants]
    return order_sentences(experiment, cells)


# --- cells ------------------------------------------------------------------------------------------------------------


def test_a_cell_says_how_it_was_run(tmp_path):
    for seed, accuracy in enumerate((0.90, 0.91, 0.92)):
        finished(tmp_path, "table3", "affine-mnist", "fm", seed, accuracy)
    entry = result_cell(cell_of(tmp_path, "table3", "affnist", "fm"), "test")
    assert entry.text == "91.00 ± 1.00"
    assert entry.notes == (
        "3 seeds: 0, 1, 2",
        "affine-mnist stands in for affnist",
        "842 of 40,000 steps: 2.1 % of the paper's",
        "one-cycle, rate 0.003",
    )


def test_a_system_published_by_others_is_measured_by_its_own_recipe_and_not_ranked(tmp_path):
    finished(tmp_path, "table3", "affine-mnist", "fm", 0, 0.9)
    finished(tmp_path, "table3", "affine-mnist", "sabour", 0, 0.95, choice=Choice(Budget(epochs=2)))
    entry = result_cell(cell_of(tmp_path, "table3", "affnist", "sabour"), "test")
    own = "2 of 50 epochs: 3.6 % of its own recipe's"
    assert (entry.text, entry.notes) == ("95.00", ("one seed, 0", "affine-mnist stands in for affnist", own))
    ranked, listed = experiment_section(PAPER["table3"], tmp_path, tmp_path).findings
    assert "Sabour" not in ranked.order + ranked.detail + ranked.verdict
    assert listed.order.startswith("Systems published by others on affine-mnist")
    assert listed.order.endswith(": Sabour et al. 95.00.")


def test_a_full_training_of_the_paper_s_needs_no_note(tmp_path):
    finished(tmp_path, "table3", "affnist", "fm", 0, 0.93, choice=Choice())
    entry = result_cell(cell_of(tmp_path, "table3", "affnist", "fm"), "test")
    assert (entry.text, entry.notes) == ("93.00", ("one seed, 0",))


def test_mirrored_and_limited_runs_say_so(tmp_path):
    choice = Choice(Budget(epochs=10), limit=512, short=True)
    finished(tmp_path, "table2", "cifar10", "fm", 0, 0.93, choice=choice, plain_accuracy=0.921)
    notes = result_cell(cell_of(tmp_path, "table2", "cifar10", "fm"), "test").notes
    assert "at most 512 images of a split" in notes
    assert "with mirror images at test; 92.10 without" in notes
    assert any(note.startswith("10 of 163 epochs: 0.0") for note in notes)


def test_train_and_test_are_two_measures(tmp_path):
    finished(tmp_path, "table5", "multi-mnist", "fm", 0, 0.8, train_accuracy=0.85)
    cell = cell_of(tmp_path, "table5", "multi-mnist", "fm")
    train, test = (result_cell(cell, measure) for measure in ("train", "test"))
    assert [train.text, test.text] == ["85.00", "80.00"]
    assert "of the last epoch, while it learned" in train.notes
    assert "of the last epoch, while it learned" not in test.notes


def test_table_5_has_a_column_for_either(tmp_path):
    finished(tmp_path, "table5", "multi-mnist", "fm", 0, 0.8, train_accuracy=0.85)
    section = experiment_section(PAPER["table5"], tmp_path, tmp_path)
    assert [entry.text for entry in section.table.rows[0][2:]] == ["95.1", "85.00", "94.5", "80.00"]


# Table 6 leaves the loss to each network, and once nothing said which one had which.
@pytest.mark.parametrize(("table", "data"), [("table2", "cifar10"), ("table6", "smallnorb")])
def test_another_loss_than_the_paper_s_is_told(tmp_path, table, data):
    for variant in ("fm", "em"):
        finished(tmp_path, table, data, variant, 0, 0.9)
    notes = {v: result_cell(cell_of(tmp_path, table, data, v), "test").notes for v in ("fm", "em")}
    assert "margin loss" in notes["em"]
    assert not any("loss" in note for note in notes["fm"])


def test_seeds_that_were_not_trained_alike_say_so_in_their_cell(tmp_path):
    finished(tmp_path, "table3", "affine-mnist", "fm", 0, 0.9)
    finished(tmp_path, "table3", "affine-mnist", "fm", 1, 0.5, choice=Choice(Budget(epochs=1), short=True))
    notes = result_cell(cell_of(tmp_path, "table3", "affnist", "fm"), "test").notes
    assert notes[1] == "seeds that were not trained alike (train.epochs)"


def test_what_was_set_by_hand_is_told(tmp_path):
    small = Choice(Budget(epochs=2), short=True, changes={"model": {"options": {"blocks": [2, 2, 2]}}})
    finished(tmp_path, "table2", "cifar10", "fm", 0, 0.9, choice=small)
    notes = result_cell(cell_of(tmp_path, "table2", "cifar10", "fm"), "test").notes
    assert notes[-1] == 'model.options = {"blocks" = [2, 2, 2]}'
    finished(tmp_path, "table2", "cifar10", "pool", 0, 0.9)
    assert "not trained alike (model.options)" in findings(tmp_path, "table2")[0].order


def test_another_precision_than_the_paper_s_is_told(tmp_path):
    half = Choice(Budget(epochs=2), short=True, changes={"train": {"precision": "bf16"}})
    finished(tmp_path, "table2", "cifar10", "fm", 0, 0.9, choice=half)
    assert result_cell(cell_of(tmp_path, "table2", "cifar10", "fm"), "test").notes[-1] == 'train.precision = "bf16"'


@pytest.mark.parametrize(
    ("views", "words"),
    [
        ("shift", "with images moved by a pixel at test; 88.00 without"),
        ("flip-shift", "with mirror images and images moved by a pixel at test; 88.00 without"),
    ],
)
def test_other_views_are_told(tmp_path, views, words):
    choice = Choice(Budget(epochs=2), short=True, changes={"evaluate": {"views": views}})
    finished(tmp_path, "table2", "cifar10", "fm", 0, 0.9, choice=choice, plain_accuracy=0.88)
    assert words in result_cell(cell_of(tmp_path, "table2", "cifar10", "fm"), "test").notes


@pytest.mark.parametrize(("key", "value"), [("warm_up", 0.2), ("final", 0.1)])
def test_a_schedule_that_was_set_by_hand_is_told(tmp_path, key, value):
    # keys that go with the length used to be left out, whoever had set them
    choice = Choice(Budget(epochs=2), short=True, changes={"schedule": {key: value}})
    finished(tmp_path, "table2", "cifar10", "fm", 0, 0.9, choice=choice)
    finished(tmp_path, "table2", "cifar10", "dynamic", 0, 0.9, choice=Choice(Budget(epochs=2)))
    cells = [cell_of(tmp_path, "table2", "cifar10", name) for name in ("fm", "dynamic")]
    by_hand, stretched = (result_cell(cell, "test").notes for cell in cells)
    assert by_hand[-1] == f"schedule.{key} = {value}"
    assert not any(note.startswith("schedule.") for note in stretched), "its drops come earlier, but nobody set them"


def test_an_experiment_of_ours_is_measured_by_the_table_it_follows(tmp_path):
    finished(tmp_path, "table3", "affine-mnist", "fm", 0, 0.9)
    write_report(tmp_path)
    assert "Table 2, small" not in (tmp_path / "report.md").read_text(), "it is not missed where it was not run"
    finished(tmp_path, "table2-small", "cifar10", "fm", 0, 0.9)
    write_report(tmp_path)
    assert "2 of 163 epochs: 1.1 % of Table 2's" in (tmp_path / "report.md").read_text()


def test_mirroring_is_compared_only_where_all_seeds_can(tmp_path):
    finished(tmp_path, "table2", "cifar10", "fm", 0, 0.9, plain_accuracy=0.89)
    finished(tmp_path, "table2", "cifar10", "fm", 1, 0.9)
    assert "with mirror images at test" in result_cell(cell_of(tmp_path, "table2", "cifar10", "fm"), "test").notes


def test_almost_all_of_the_paper_s_length_is_still_less(tmp_path):
    finished(tmp_path, "table2", "cifar10", "fm", 0, 0.9, choice=Choice(Budget(epochs=163)))
    notes = result_cell(cell_of(tmp_path, "table2", "cifar10", "fm"), "test").notes
    assert "163 of 163 epochs: 90 % of the paper's" in notes, "a tenth of the images is held back here"


def test_shares_in_words():
    assert [share_in_words(share) for share in (1.0, 4.0, 0.5, 0.0613, 0.000021)] == [
        "100 %",
        "400 %",
        "50 %",
        "6.1 %",
        "0.0021 %",
    ]


def test_sizes_of_every_dataset(tmp_path):
    for data in ("fashion-mnist", "cifar10"):
        finished(tmp_path, "table2", data, "fm", 0, 0.9)
    row = experiment_section(PAPER["table2"], tmp_path, tmp_path).table.rows[5]
    assert (row[1].text, row[1].notes) == ("903,472; 903,760", ("on fashion-mnist, cifar10",))


def test_no_result_has_its_reason(tmp_path):
    entry = result_cell(cell_of(tmp_path, "table2", "svhn", "fm"), "test")
    assert (entry.text, entry.notes, entry.is_empty) == ("–", ("not run",), True)


def test_what_the_paper_prints():
    assert paper_cell(PaperNumber(93.6, 0.53), True).text == "93.60 ± 0.53"
    assert paper_cell(PaperNumber(88.1), False).text == "88.10"
    assert paper_cell(PaperNumber(95.1), True, 1).text == "95.1"
    assert paper_cell(None, False).notes == ("not reported",)
    assert paper_cell(None, True).notes == ("not in the paper",)


# --- sentences --------------------------------------------------------------------------------------------------------


def test_the_order_and_whether_seeds_can_tell(tmp_path):
    for seed, (fm, dynamic, pool) in enumerate([(0.90, 0.905, 0.80), (0.91, 0.90, 0.81), (0.92, 0.91, 0.79)]):
        for variant, accuracy in (("fm", fm), ("dynamic", dynamic), ("pool", pool)):
            finished(tmp_path, "table3", "affine-mnist", variant, seed, accuracy)
    (finding,) = findings(tmp_path, "table3")
    assert finding.order == (
        "Order on affine-mnist, in percent: FM agreement 91.00 ± 1.00; Dynamic routing (3) 90.50 ± 0.50; "
        "Average pooling 80.00 ± 1.00 (3 seeds; affine-mnist stands in for affnist; 842 of 40,000 steps: 2.1 % of the "
        "paper's)."
    )
    assert "Dynamic routing (3): +0.50 ± 0.65 points, within the spread of the seeds" in finding.detail
    assert "Average pooling: +11.00 ± 0.82 points, clear" in finding.detail


def test_the_loser_is_told_too(tmp_path):
    for seed in (0, 1):
        finished(tmp_path, "table3", "affine-mnist", "fm", seed, 0.8 + 0.001 * seed)
        finished(tmp_path, "table3", "affine-mnist", "dynamic", seed, 0.9 + 0.001 * seed)
    (finding,) = findings(tmp_path, "table3")
    assert finding.order.index("Dynamic") < finding.order.index("FM")
    assert "−10.00 ± 0.07 points, clear" in finding.detail


@pytest.mark.parametrize(
    ("dynamic", "em", "verdict"),
    [
        (0.8, 0.7, "As in the paper: FM agreement above Dynamic routing (3); FM agreement above EM routing (3)."),
        (0.9995, 0.7, "As in the paper: FM agreement above EM routing (3). "
                      "Against the paper: FM agreement below Dynamic routing (3)."),
        (0.9, 0.99, "Against the paper: FM agreement below EM routing (3). "
                    "Not to be told yet: FM agreement against Dynamic routing (3)."),
    ],
)  # fmt: skip
def test_what_is_as_in_the_paper_and_what_is_not(tmp_path, dynamic, em, verdict):
    for seed in (0, 1, 2):
        for variant, accuracy in (("fm", 0.9), ("dynamic", dynamic), ("em", em), ("pool", 0.95)):
            finished(tmp_path, "table3", "affine-mnist", variant, seed, accuracy - 0.001 * seed)
    (finding,) = findings(tmp_path, "table3")
    assert finding.verdict == verdict
    assert finding.brief == f"{finding.order} {verdict}"
    write_report(tmp_path)
    assert (tmp_path / "report.md").read_text().count(verdict) == 2, "in the overview, and with its table"


def test_one_seed_is_no_verdict(tmp_path):
    for variant, accuracy in (("fm", 0.9), ("dynamic", 0.5)):
        finished(tmp_path, "fig4", "cifar10", variant, 0, accuracy)
    assert findings(tmp_path, "fig4")[0].verdict == "Not to be told yet: FM agreement against Dynamic routing (3)."


def test_few_seeds_need_a_larger_difference():
    # three seeds each of equal spread leave four degrees of freedom, where twice the error is not yet clear
    close, apart = (Summary(mean, 0.5, 3) for mean in (90.0, 91.0))
    assert critical(close, apart) == 2.78
    assert critical(Summary(90.0, 0.5, 3), Summary(91.0, 0.0, 3)) == 4.30, "only two are left of unequal ones"
    assert critical(Summary(90.0, 0.5, 30), Summary(91.0, 0.5, 30)) == 2.13


def test_seeds_that_do_not_differ_judge_nothing(tmp_path):
    for seed in (0, 1):
        for variant, accuracy in (("fm", 0.1), ("dynamic", 0.11)):
            finished(tmp_path, "table3", "affine-mnist", variant, seed, accuracy)
    assert "−1.00 points, of seeds that do not differ at all: nothing to judge by" in str(
        findings(tmp_path, "table3")[0]
    )


def test_one_seed_judges_nothing(tmp_path):
    for variant, accuracy in (("fm", 0.9), ("dynamic", 0.5)):
        finished(tmp_path, "table3", "affine-mnist", variant, 0, accuracy)
    assert "of one seed each: too few to judge" in findings(tmp_path, "table3")[0].detail


def test_trainings_of_different_lengths_are_not_compared(tmp_path):
    finished(tmp_path, "table3", "affine-mnist", "fm", 0, 0.9)
    finished(tmp_path, "table3", "affine-mnist", "dynamic", 0, 0.8, choice=Choice(Budget(epochs=3), short=True))
    (finding,) = findings(tmp_path, "table3")
    assert "not trained alike (train.epochs)" in finding.order, "in the overview too"
    assert finding.detail == ""


def test_the_second_seed_may_be_the_odd_one(tmp_path):
    for variant in ("fm", "dynamic"):
        finished(tmp_path, "table3", "affine-mnist", variant, 0, 0.9)
    finished(tmp_path, "table3", "affine-mnist", "fm", 1, 0.9, choice=Choice(Budget(epochs=3), short=True))
    assert "not trained alike (train.epochs)" in findings(tmp_path, "table3")[0].order


def test_networks_on_different_data_are_not_compared(tmp_path):
    # when a dataset arrives midway, some networks have been trained on its stand-in
    finished(tmp_path, "table3", "affine-glyphs", "fm", 0, 0.9)
    finished(tmp_path, "table3", "affine-mnist", "pool", 0, 0.7)
    assert [finding.order[:20] for finding in findings(tmp_path, "table3")] == [
        "On affine-glyphs, in",
        "On affine-mnist, in ",
    ]


def test_every_kind_of_fm_is_held_against_the_others(tmp_path):
    for variant in ("fm", "fm-runs", "dynamic"):
        finished(tmp_path, "fig4", "cifar10", variant, 0, 0.9)
    detail = findings(tmp_path, "fig4")[0].detail
    assert detail.startswith("FM agreement against Dynamic routing (3): +0.00 points")
    assert "FM agreement, votes as in the published runs against Dynamic routing (3): +0.00 points" in detail
    assert "against FM" not in detail


def test_where_there_is_no_fm_or_nothing_else(tmp_path):
    for variant in ("dynamic", "pool"):
        finished(tmp_path, "fig4", "cifar10", variant, 0, 0.9)
    for variant in ("fm", "fm-runs"):
        finished(tmp_path, "fig4", "fashion-mnist", variant, 0, 0.9)
    details = {finding.order.split(",")[0]: finding.detail for finding in findings(tmp_path, "fig4")}
    assert details["Order on cifar10"].startswith("Dynamic routing (3) against Average pooling: +0.00")
    assert details["Order on fashion-mnist"].startswith("FM agreement against FM agreement, votes as in")


def test_seeds_of_one_and_several(tmp_path):
    for variant, seeds in (("fm", (0, 1)), ("dynamic", (0,))):
        for seed in seeds:
            finished(tmp_path, "table3", "affine-mnist", variant, seed, 0.9)
    (finding,) = findings(tmp_path, "table3")
    assert "+0.00 points, of 2 and 1 seeds: too few to judge" in finding.detail
    assert "(1 to 2 seeds; " in finding.order


def test_what_was_not_run_is_among_the_findings(tmp_path):
    finished(tmp_path, "fig4", "cifar10", "fm", 0, 0.5)
    note = tmp_path / "runs/fig4/svhn/not-run.txt"
    note.parent.mkdir()
    note.write_text("svhn is not here\n")
    orders = [finding.order for finding in findings(tmp_path, "fig4")]
    assert orders[1:] == ["Nothing on svhn: svhn is not here.", "Nothing on fashion-mnist: not run."]


# --- sections and pages -----------------------------------------------------------------------------------------------


def test_a_table_in_the_paper_s_own_form(tmp_path):
    finished(tmp_path, "table3", "affine-mnist", "fm", 0, 0.9)
    section = experiment_section(PAPER["table3"], tmp_path, tmp_path)
    assert section.table.columns == ["Model", "Params, paper", "Params, here", "aff-NIST: paper", "aff-NIST: here"]
    rows = {row[0].text: row for row in section.table.rows}
    assert [entry.text for entry in rows["Sabour et al."]] == ["Sabour et al.", "13.40M", "–", "79.00", "–"]
    fm = rows["Ours (FM agreement)"]
    assert [entry.text for entry in fm[2:]] == ["195,376 + 186,145 of the decoder", "93.85 ± 0.29", "90.00"]
    assert rows["The same with average pooling, as many parameters without the decoder"][4].notes == ("not run",)
    assert section.missing_pictures[0].startswith("No pictures:"), "its weights are not there"
    assert section.machines == ("[1] cpu a processor; cores 2; commit abc1234",)


def test_no_empty_cell_without_its_reason(tmp_path):
    finished(tmp_path, "fig4", "cifar10", "fm", 0, 0.5)
    finished(tmp_path, "table2", "cifar10", "em", 0, 0.5)
    for experiment in PAPER.values():
        for row in experiment_section(experiment, tmp_path, tmp_path).table.rows:
            for entry in row:
                assert entry.text
                assert entry.notes or not entry.is_empty, entry


def test_every_machine_and_commit_is_named(tmp_path):
    finished(tmp_path, "table3", "affine-mnist", "fm", 0, 0.9)
    finished(tmp_path, "table3", "affine-mnist", "fm", 1, 0.9, machine={**MACHINE, "commit": "fff0000"})
    section = experiment_section(PAPER["table3"], tmp_path, tmp_path)
    assert [(line[:4], line[-7:]) for line in section.machines] == [("[1] ", "abc1234"), ("[2] ", "fff0000")]
    assert section.runs.rows[0][-1].text == "[1] [2]"


def test_curves_show_what_was_run_and_say_what_was_not(tmp_path):
    for seed in (0, 1):
        finished(tmp_path, "fig4", "cifar10", "fm", seed, 0.5)
    (picture,) = experiment_section(PAPER["fig4"], tmp_path, tmp_path).pictures
    assert picture.png.startswith(b"\x89PNG")
    less = experiment_section(PAPER["fig5"], tmp_path, tmp_path).pictures[0]
    assert less.png != picture.png


def test_a_curve_is_the_mean_of_the_epochs_that_all_seeds_have(tmp_path):
    for seed in (0, 1):
        folder = finished(tmp_path, "fig4", "cifar10", "fm", seed, 0.5)
    rows = folder.metrics.read_text().replace('"validation_accuracy": 0.45', '"validation_accuracy": 0.65')
    folder.metrics.write_text(
        rows + json.dumps({"kind": "epoch", "epoch": 3.0, "train_accuracy": 0.9, "validation_accuracy": 0.9}) + "\n"
    )
    values = _values_by_epoch(cell_of(tmp_path, "fig4", "cifar10", "fm").records, "epoch", "validation_accuracy")
    assert list(values) == [1.0, 2.0]
    assert _means_over_seeds(values)[1] == pytest.approx([55.0, 55.0])


def test_each_line_is_what_it_is_called(tmp_path):
    finished(tmp_path, "fig4", "cifar10", "fm", 0, 0.5)
    axis = new_figure(4, 4).subplots()
    _draw_panel(axis, [cell_of(tmp_path, "fig4", "cifar10", "fm")])
    lines = {line.get_label(): (list(line.get_xdata()), list(line.get_ydata())) for line in axis.get_lines()}
    assert lines["FM agreement, training"] == ([0.5], [25.0])
    assert lines["FM agreement, held back"][0] == [1.0, 2.0]
    assert lines["FM agreement, held back"][1] == pytest.approx([45.0, 55.0])
    assert axis.get_ylim()[0] < 25.0, "where training ended is in the picture, also far below the images held back"


def test_times(tmp_path):
    folder = tmp_path / "runs/table1/cifar10"
    folder.mkdir(parents=True)
    rows = [{"kind": "machine", **MACHINE}]
    for name, median in (("fm", 20.0), ("dynamic", 31.25)):
        rows.append(
            {
                "kind": "time",
                "variant": name,
                "median": median,
                "low": 19.0,
                "high": 40.0,
                "repeats": 9,
                "seconds": 10.0,
                "settings": {"model.options": "{width = 3}"} if name == "dynamic" else {},
            }
        )
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    section = experiment_section(PAPER["table1"], tmp_path, tmp_path)
    fm = next(row for row in section.table.rows if row[0].text == "FM agreement")
    assert [entry.text for entry in fm] == ["FM agreement", "5.22", "203.34", "20.0", "3.60", "125.39", "–"]
    assert fm[3].notes == ("quartiles 19.0 to 40.0, 9 repeats",)
    dynamic = next(row for row in section.table.rows if row[0].text == "Dynamic routing (3)")
    assert dynamic[3].notes == ("quartiles 19.0 to 40.0, 9 repeats", "model.options = {width = 3}")
    order = "Order for images of cifar10, in milliseconds: FM agreement 20.0, Dynamic routing (3) 31.2."
    assert section.findings[0].order == order
    assert section.findings[0].verdict == "Not to be told yet: FM agreement against Dynamic routing (3)."


@pytest.mark.parametrize(
    ("low", "verdict"),
    [
        (21.5, "As in the paper: FM agreement faster than Dynamic routing (1)."),
        (10.0, "Against the paper: FM agreement slower than Dynamic routing (1)."),
    ],
)
def test_times_beside_the_paper_s(tmp_path, low, verdict):
    folder = tmp_path / "runs/table1/cifar10"
    folder.mkdir(parents=True)
    common = {"kind": "time", "repeats": 9, "seconds": 10.0}
    rows = [{"kind": "machine", **MACHINE}, {**common, "variant": "fm", "median": 20.0, "low": 19.0, "high": 21.0}]
    rows.append({**common, "variant": "dynamic-1", "median": low + 1, "low": low, "high": low + 2})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert experiment_section(PAPER["table1"], tmp_path, tmp_path).findings[0].verdict == verdict


def section(text="<b>&amp; | x</b>"):
    grid = Table(
        (ColumnGroup("", ("a",)), ColumnGroup("data", ("paper", "here"))),
        ((TableCell(text), TableCell("1"), TableCell("2", ("n",))),),
    )
    return Section("table9", "Table 9: caption", text, (), grid, (), ("No pictures: none.",), None, ("a machine",))


def test_html_escapes_and_groups():
    page = as_html("Title", ["intro"], section().table, [section()])
    assert "<b>&amp;" not in page
    assert "&lt;b&gt;&amp;amp;" in page
    assert '<th colspan="2">data</th>' in page
    assert re.search(r'class="[^"]*here[^"]*">2<small>n</small>', page)


def test_markdown_tables_stay_tables():
    text = as_markdown("Title", ["intro"], section().table, [section()])
    assert "| a | data: paper | data: here |" in text
    assert "| <b>&amp; \\| x</b> | 1 | 2 (n) |" in text


def test_the_page_needs_nothing_beside_it(tmp_path):
    finished(tmp_path, "fig4", "cifar10", "fm", 0, 0.5)
    files = write_report(tmp_path)
    assert [path.name for path in files] == ["report.html", "report.md"]
    page = files[0].read_text()
    assert not re.search(r'(src|href)="(?!data:|#)', page)
    assert "data:image/png;base64," in page
    text = files[1].read_text()
    assert "![fig4](pictures/fig4.png)" in text
    assert (tmp_path / "pictures/fig4.png").is_file()
    assert "Not run: paircaps reproduce table6" in text, "every experiment of the paper is in the overview"


def test_the_same_results_give_the_same_report(tmp_path):
    finished(tmp_path, "fig4", "cifar10", "fm", 0, 0.5)
    first = [path.read_bytes() for path in write_report(tmp_path)]
    assert [path.read_bytes() for path in write_report(tmp_path)] == first


def test_numbers_come_from_the_metrics_alone(tmp_path):
    folder = finished(tmp_path, "table3", "affine-mnist", "fm", 0, 0.9)
    rows = folder.metrics.read_text().replace('"accuracy": 0.9', '"accuracy": 0.12345')
    folder.metrics.write_text(rows)
    assert "12.35" in write_report(tmp_path)[1].read_text() or "12.34" in write_report(tmp_path)[1].read_text()


def test_no_folder_of_results(tmp_path):
    with pytest.raises(PaircapsError, match="no such folder"):
        write_report(tmp_path / "nowhere")
    with pytest.raises(PaircapsError, match="no folder of `paircaps reproduce`"):
        write_report(tmp_path)
    (tmp_path / "runs/other").mkdir(parents=True)
    with pytest.raises(PaircapsError, match="holds no experiment of the paper"):
        write_report(tmp_path)


def test_a_folder_of_ordinary_runs_is_sent_to_compare(tmp_path):
    folder = tmp_path / "mine" / "runs"
    run = finished(folder, "table3", "affine-mnist", "fm", 0, 0.9).path
    run.rename(folder / "a")
    with pytest.raises(PaircapsError) as told:
        write_report(folder / "a")
    assert str(told.value).endswith(f"It is an ordinary run: `paircaps compare {folder / 'a'}` shows it")
    shutil.rmtree(folder / "runs")
    with pytest.raises(PaircapsError) as told:
        write_report(folder)
    assert str(told.value) == (
        f"{folder}: has no runs/: no folder of `paircaps reproduce`. It holds 1 ordinary run: "
        f"`paircaps compare {folder}/*` compares them"
    )
    with pytest.raises(
        PaircapsError, match=r"holds no experiment of the paper.*`paircaps compare \S+/runs/\*` compares"
    ):
        write_report(tmp_path / "mine")
