"""Section of a report for Table 1, from measured times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from paircaps._utils.machine import machine_line
from paircaps.paper.experiments import Experiment, TableRow
from paircaps.paper.inference_times import MEASURED_SECONDS
from paircaps.paper.plan import study_folder
from paircaps.paper.records import read_times
from paircaps.paper.report.cells import paper_cell
from paircaps.paper.report.document import ColumnGroup, Finding, Section, Table, TableCell, empty_cell
from paircaps.paper.report.significance import Verdict, verdict_sentence
from paircaps.training.run_folder import RunFolder
from paircaps.training.run_rows import read_rows

_OURS = "fm"
"""Variant whose time the paper compares with the others."""


def times_section(experiment: Experiment, out: Path) -> Section:
    """Section of an experiment that measures times.

    Args:
        experiment: experiment of kind ``times``.
        out: folder of all results.
    """
    measured = {column.data: _times(experiment, column.data, out) for column in experiment.columns}
    groups = [ColumnGroup("", (label,)) for label in experiment.labels]
    groups += [ColumnGroup(column.title, ("paper, GPU", "paper, CPU", "here, CPU")) for column in experiment.columns]
    rows = [
        tuple(
            [TableCell(text) for text in row.cells]
            + [
                entry
                for column in experiment.columns
                for entry in (
                    paper_cell(row.gpu.get(column.key), True),
                    paper_cell(row.paper.get(column.key), True),
                    _time_cell(row, measured[column.data]),
                )
            ]
        )
        for row in experiment.rows
    ]
    machines = sorted({machine_line(times["machine"]) for times in measured.values() if times})
    return Section(
        name=experiment.name,
        title=f"{experiment.title}: {experiment.caption}",
        claim=experiment.claim,
        findings=tuple(_time_sentences(experiment, measured))
        or (Finding("Nothing was measured here.", is_empty=True),),
        table=Table(tuple(groups), tuple(rows)),
        pictures=(),
        missing_pictures=(),
        runs=None,
        machines=tuple(machines),
    )


def _times(experiment: Experiment, data: str, out: Path) -> dict[str, dict]:
    """Rows of times by variant, and the row ``machine``; empty if nothing was measured."""
    file = RunFolder(study_folder(out, experiment, data)).metrics
    times = read_times(file)
    if not times:
        return {}
    machine = next(row for row in read_rows(file) if row["kind"] == "machine")
    return {"machine": {key: value for key, value in machine.items() if key != "kind"}, **times}


def _time_cell(row: TableRow, times: Mapping[str, dict]) -> TableCell:
    """Cell with the median time of a network, with notes on its spread and settings."""
    found = times.get(row.variant.name) if row.variant else None
    if found is None:
        return empty_cell("not run")
    brief = ", measured briefly" if found["seconds"] < MEASURED_SECONDS else ""
    spread = f"quartiles {found['low']:.1f} to {found['high']:.1f}, {found['repeats']} repeats{brief}"
    settings = [f"{key} = {value}" for key, value in found.get("settings", {}).items()]
    return TableCell(f"{found['median']:.1f}", (spread, *settings))


def _time_sentences(experiment: Experiment, measured: Mapping[str, dict[str, dict]]) -> list[Finding]:
    """Findings on the order of times, one for each dataset."""
    sentences = []
    titles: dict[str, str] = {variant.name: variant.title for variant in experiment.variants}
    for data, times in measured.items():
        ranked: Sequence[str] = sorted((name for name in times if name in titles), key=lambda n: times[n]["median"])
        if ranked:
            order = ", ".join(f"{titles[name]} {times[name]['median']:.1f}" for name in ranked)
            verdict = verdict_sentence(_time_verdicts(experiment, data, {name: times[name] for name in ranked}))
            sentences.append(Finding(f"Order for images of {data}, in milliseconds: {order}.", verdict=verdict))
    return sentences


def _time_verdicts(experiment: Experiment, data: str, times: Mapping[str, dict]) -> list[Verdict]:
    """Comparisons of times that the paper makes too; where quartiles overlap, the result is open."""
    titles = {variant.name: variant.title for variant in experiment.variants}
    verdicts = []
    for other, theirs in times.items():
        paper = experiment.paper_order(data, _OURS, other)
        ours = times.get(_OURS)
        if ours is None or not paper:
            continue
        if ours["high"] < theirs["low"] or theirs["high"] < ours["low"]:
            faster = ours["median"] < theirs["median"]
            text = f"{titles[_OURS]} {'faster' if faster else 'slower'} than {titles[other]}"
            verdicts.append(Verdict(text, faster == (paper > 0)))
        else:
            verdicts.append(Verdict(f"{titles[_OURS]} against {titles[other]}", None))
    return verdicts
