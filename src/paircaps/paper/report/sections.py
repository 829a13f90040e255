"""Sections of a report, from a folder of results."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from paircaps._utils.machine import machine_line
from paircaps.paper.experiments import Experiment, Variant
from paircaps.paper.network_size import parameters_of
from paircaps.paper.plan import full_recipe
from paircaps.paper.records import Cell, read_cell
from paircaps.paper.report.cells import length_in_words, paper_cell, result_cell, seeds_in_words, share_in_words
from paircaps.paper.report.curves import draw_curves
from paircaps.paper.report.document import ColumnGroup, Picture, Section, Table, TableCell, empty_cell
from paircaps.paper.report.ranking import order_sentences, rival_sentences
from paircaps.paper.report.reconstructions import reconstruction_sheet
from paircaps.paper.report.times_table import times_section
from paircaps.paper.run_status import PICTURED_VARIANT
from paircaps.paper.training_length import batch_of, share_of, total_steps

Cells = Mapping[tuple[str, str], Cell]
"""Results by the paper's dataset and the name of a variant."""


def experiment_section(experiment: Experiment, out: Path, pictures: Path) -> Section:
    """Section of an experiment, from its results.

    Args:
        experiment: table or figure of the paper.
        out: folder of all results.
        pictures: folder of the report's pictures.
    """
    if experiment.kind == "times":
        return times_section(experiment, out)
    cells = {
        (study.data, variant.name): read_cell(out, experiment, study, variant)
        for study in experiment.studies
        for variant in experiment.variants
    }
    ours = [cell for cell in cells.values() if not cell.variant.is_rival]
    rivals = [cell for cell in cells.values() if cell.variant.is_rival]
    drawn, missing = _pictures(experiment, cells, pictures)
    machines = _machines(cells)
    return Section(
        name=experiment.name,
        title=f"{experiment.title}: {experiment.caption}",
        claim=experiment.claim,
        findings=(*order_sentences(experiment, ours), *rival_sentences(rivals)),
        table=_results_table(experiment, cells),
        pictures=drawn,
        missing_pictures=missing,
        runs=_runs_table(cells, machines),
        machines=tuple(f"{number} {line}" for line, number in machines.items()),
    )


def _results_table(experiment: Experiment, cells: Cells) -> Table:
    """Table of an experiment: the paper's numbers beside those of here."""
    groups = [ColumnGroup("", (label,)) for label in (*experiment.labels, "Params, here")]
    has_numbers = experiment.kind != "curves" and not experiment.derived_from  # figures have none
    groups += [
        ColumnGroup(column.title, ("paper", "here") if has_numbers else ("here",)) for column in experiment.columns
    ]
    rows = []
    for row in experiment.rows:
        row_cells = [*(TableCell(text) for text in row.cells), _parameters_cell(experiment, row.variant, cells)]
        for column in experiment.columns:
            if has_numbers:
                is_ours = row.variant is not None and not row.variant.is_rival
                row_cells.append(paper_cell(row.paper.get(column.key), is_ours, experiment.decimals))
            row_cells.append(
                empty_cell("quoted by the paper")
                if row.variant is None
                else result_cell(cells[column.data, row.variant.name], column.measure)
            )
        rows.append(tuple(row_cells))
    return Table(tuple(groups), tuple(rows))


def _parameters_cell(experiment: Experiment, variant: Variant | None, cells: Cells) -> TableCell:
    """Cell with the trainable parameters of a network, for each dataset that it was trained on."""
    if variant is None:
        return empty_cell("not built here")
    sizes = {}
    for study in experiment.studies:
        cell = cells[study.data, variant.name]
        if cell.records:
            encoder, decoder = parameters_of(cell.records[0].recipe)
            sizes[study.data] = f"{encoder:,}" + (f" + {decoder:,} of the decoder" if decoder else "")
    if not sizes:
        return empty_cell("not run")
    if len(set(sizes.values())) == 1:
        return TableCell(next(iter(sizes.values())))
    return TableCell("; ".join(sizes.values()), (f"on {', '.join(sizes)}",))


def _pictures(experiment: Experiment, cells: Cells, folder: Path) -> tuple[tuple[Picture, ...], tuple[str, ...]]:
    """Pictures of an experiment, and sentences on why others are missing."""
    drawn: list[Picture] = []
    missing: list[str] = []
    if experiment.kind == "curves":
        caption = (
            f"As {experiment.title} of the paper: accuracy in training (dotted) and on training images held back "
            "(solid; the test images are looked at once, at the end, and are in the table). Means over seeds, the band "
            "from the least to the most."
        )
        drawn.append(Picture(experiment.name, draw_curves(experiment, list(cells.values())), caption))
    if experiment.sheet:
        sheet = reconstruction_sheet(cells[experiment.studies[0].data, PICTURED_VARIANT], experiment.sheet, folder)
        if isinstance(sheet, Picture):
            drawn.append(sheet)
        else:
            missing.append(sheet)
    return tuple(drawn), tuple(missing)


def _machines(cells: Cells) -> dict[str, str]:
    """Machines with versions and commit that results come from, one line each, and their numbers in the report."""
    lines = {machine_line(record.machine) for cell in cells.values() for record in cell.records}
    return {line: f"[{number}]" for number, line in enumerate(sorted(lines), 1)}


def _runs_table(cells: Cells, machines: Mapping[str, str]) -> Table | None:
    """Table of how the trainings of each network were run; None if there are none."""
    rows = []
    for cell in cells.values():
        if not cell.records:
            continue
        recipe, paper = cell.records[0].recipe, full_recipe(cell.study, cell.variant)
        tested = cell.records[0].rows_of("test")[-1]
        numbers = sorted({machines[machine_line(record.machine)] for record in cell.records})
        settings = f"{recipe.optimiser.name}, {recipe.schedule.name}, rate {recipe.optimiser.lr:g}"
        rows.append(
            (
                TableCell(cell.data),
                TableCell(cell.variant.title),
                TableCell(seeds_in_words(cell.records)),
                TableCell(f"{total_steps(recipe):,} × {batch_of(recipe)} images"),
                TableCell(f"{length_in_words(recipe, paper)} ({share_in_words(share_of(recipe, paper))})"),
                TableCell(settings),
                TableCell(f"{tested['images']:,}"),
                TableCell(" ".join(numbers)),
            )
        )
    titles = ("data", "network", "seeds", "steps", "of the full length", "settings", "test images", "run on")
    return Table(tuple(ColumnGroup("", (title,)) for title in titles), tuple(rows)) if rows else None
