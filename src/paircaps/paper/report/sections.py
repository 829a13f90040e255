"""From the folder of results to the sections of a report."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from paircaps._utils.machine import machine_line
from paircaps.paper.experiments import Experiment, Variant
from paircaps.paper.network_size import parameters_of
from paircaps.paper.plan import paper_recipe
from paircaps.paper.records import Cell, read_cell
from paircaps.paper.report.cells import length, paper_entry, result_entry, seeds_in_words, share_in_words
from paircaps.paper.report.curves import draw_curves
from paircaps.paper.report.document import ColumnGroup, Picture, Section, Table, TableCell, empty_cell
from paircaps.paper.report.ranking import order_sentences
from paircaps.paper.report.reconstructions import reconstruction_sheet
from paircaps.paper.report.times_table import section_of_times
from paircaps.paper.run_status import PICTURED_VARIANT
from paircaps.paper.training_length import share_of, total_steps, training_images

Cells = Mapping[tuple[str, str], Cell]
"""By the paper's data and the name of a variant."""


def section_of(experiment: Experiment, out: Path, pictures: Path) -> Section:
    """The section of an experiment, from its results.

    Args:
        experiment: of the paper.
        out: the folder of results.
        pictures: the folder of the report's pictures.
    """
    if experiment.kind == "times":
        return section_of_times(experiment, out)
    cells = {
        (study.data, variant.name): read_cell(out, experiment, study, variant)
        for study in experiment.studies
        for variant in experiment.variants
    }
    drawn, absent = _pictures(experiment, cells, pictures)
    machines = _machines(cells)
    return Section(
        name=experiment.name,
        title=f"{experiment.title}: {experiment.caption}",
        claim=experiment.claim,
        found=tuple(order_sentences(experiment, list(cells.values()))),
        grid=_grid(experiment, cells),
        pictures=drawn,
        absent=absent,
        runs=_runs(cells, machines),
        machines=tuple(f"{number} {line}" for line, number in machines.items()),
    )


def _grid(experiment: Experiment, cells: Cells) -> Table:
    groups = [ColumnGroup("", (label,)) for label in (*experiment.labels, "Params, here")]
    prints = experiment.kind != "curves" and not experiment.derived_from  # figures are drawings, without a number
    groups += [ColumnGroup(column.title, ("paper", "here") if prints else ("here",)) for column in experiment.columns]
    rows = []
    for row in experiment.rows:
        entries = [*(TableCell(text) for text in row.cells), _sizes(experiment, row.variant, cells)]
        for column in experiment.columns:
            if prints:
                entries.append(paper_entry(row.paper.get(column.key), row.variant is not None, experiment.decimals))
            entries.append(
                empty_cell("quoted by the paper")
                if row.variant is None
                else result_entry(cells[column.data, row.variant.name], column.measure)
            )
        rows.append(tuple(entries))
    return Table(tuple(groups), tuple(rows))


def _sizes(experiment: Experiment, variant: Variant | None, cells: Cells) -> TableCell:
    """Trainable parameters of a network on each dataset that it was run on."""
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
    made: list[Picture] = []
    absent: list[str] = []
    if experiment.kind == "curves":
        caption = (
            f"As {experiment.title} of the paper: accuracy in training (dotted) and on training images held back "
            "(solid; the test images are looked at once, at the end, and are in the table). Means over seeds, the band "
            "from the least to the most."
        )
        made.append(Picture(experiment.name, draw_curves(experiment, list(cells.values())), caption))
    if experiment.sheet:
        sheet = reconstruction_sheet(cells[experiment.studies[0].data, PICTURED_VARIANT], experiment.sheet, folder)
        if isinstance(sheet, Picture):
            made.append(sheet)
        else:
            absent.append(sheet)
    return tuple(made), tuple(absent)


def _machines(cells: Cells) -> dict[str, str]:
    """Every machine, version and commit that results come from, as a line, with a number for it."""
    lines = {machine_line(record.machine) for cell in cells.values() for record in cell.records}
    return {line: f"[{number}]" for number, line in enumerate(sorted(lines), 1)}


def _runs(cells: Cells, machines: Mapping[str, str]) -> Table | None:
    """How each cell of the table was run."""
    rows = []
    for cell in cells.values():
        if not cell.records:
            continue
        recipe, paper = cell.records[0].recipe, paper_recipe(cell.study)
        tested = cell.records[0].rows_of("test")[-1]
        numbers = sorted({machines[machine_line(record.machine)] for record in cell.records})
        settings = f"{recipe.optimiser.name}, {recipe.schedule.name}, rate {recipe.optimiser.lr:g}"
        rows.append(
            (
                TableCell(cell.data),
                TableCell(cell.variant.title),
                TableCell(seeds_in_words(cell.records)),
                TableCell(
                    f"{total_steps(recipe):,} × {min(recipe.train.batch_size, training_images(recipe.data))} images"
                ),
                TableCell(f"{length(recipe, paper)} ({share_in_words(share_of(recipe, paper))})"),
                TableCell(settings),
                TableCell(f"{tested['images']:,}"),
                TableCell(" ".join(numbers)),
            )
        )
    titles = ("data", "network", "seeds", "steps", "of the full length", "settings", "test images", "run on")
    return Table(tuple(ColumnGroup("", (title,)) for title in titles), tuple(rows)) if rows else None
