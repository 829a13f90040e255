"""The paper's tables and figures as data: what it reports of each, and which trainings make it again."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from paircaps._utils.registry import unknown_name
from paircaps.errors import RecipeError

ALL = "all"
_ALSO = {"table4": "table3"}
"""Table 4 shows pictures of Table 3's networks."""


@dataclass(frozen=True)
class Quoted:
    """A number that the paper prints.

    Args:
        mean: as printed.
        deviation: over seeds; None where it prints none.
    """

    mean: float
    deviation: float | None = None


@dataclass(frozen=True)
class Variant:
    """A network of a comparison.

    Args:
        name: short, and the name of its folder.
        title: for people.
        set: what it changes of a recipe.
        pooled: whether it is the pooling twin of the recipe's network.
    """

    name: str
    title: str
    set: Mapping[str, Any]
    pooled: bool = False


@dataclass(frozen=True)
class StandIn:
    """What a study falls back to where its data is not here.

    Args:
        data: its name.
        set: what it changes of the recipe.
    """

    data: str
    set: Mapping[str, Any]


@dataclass(frozen=True)
class Study:
    """One dataset of an experiment.

    Args:
        data: that the paper tests on.
        recipe: of its trainings.
        stand_ins: the best one first.
        short: what a short training changes, over what the experiment changes.
    """

    data: str
    recipe: str
    stand_ins: tuple[StandIn, ...] = ()
    short: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Column:
    """A column of results.

    Args:
        title: as in the paper.
        data: of its study.
        measure: ``test`` or ``train``.
    """

    title: str
    data: str
    measure: str = "test"

    @property
    def key(self) -> str:
        """Under which rows name their numbers."""
        return self.data if self.measure == "test" else f"{self.data}:{self.measure}"


@dataclass(frozen=True)
class TableRow:
    """A row of a table.

    Args:
        cells: its first cells, after the paper.
        variant: that is trained here; None for one that the paper quotes.
        paper: what it prints, by the key of a column.
        gpu: the same on a graphics card, of times.
    """

    cells: tuple[str, ...]
    variant: Variant | None
    paper: Mapping[str, Quoted]
    gpu: Mapping[str, Quoted]


@dataclass(frozen=True)
class Before:
    """An order that the paper draws or tells without a number.

    Args:
        network: the better one, a variant.
        other: the variant that it is better than.
        data: on which.
    """

    network: str
    other: str
    data: tuple[str, ...]


@dataclass(frozen=True)
class Experiment:
    """A table or a figure.

    Args:
        name: as on the command line.
        title: as in the paper.
        caption: what it shows.
        section: of the paper.
        kind: ``curves``, ``times`` or ``accuracy``.
        seeds: of the paper.
        claim: what the paper concludes.
        labels: titles of the first columns.
        rows: from top to bottom.
        columns: of results.
        studies: one a dataset.
        short: what a short training changes of every recipe.
        sheet: pictures that belong to it: ``redrawn``, ``apart`` or none.
        decimals: that the paper prints.
        before: orders that the paper has without a number.
        after: the table whose networks and lengths it takes, where it is not in the paper itself.
    """

    name: str
    title: str
    caption: str
    section: str
    kind: str
    seeds: int
    claim: str
    labels: tuple[str, ...]
    rows: tuple[TableRow, ...]
    columns: tuple[Column, ...]
    studies: tuple[Study, ...]
    short: Mapping[str, Any]
    sheet: str
    decimals: int
    before: tuple[Before, ...] = ()
    after: str = ""

    @property
    def variants(self) -> tuple[Variant, ...]:
        """Networks that are run here, in the order of the table."""
        return tuple(row.variant for row in self.rows if row.variant is not None)

    def paper_order(self, data: str, one: str, other: str) -> int:
        """1 where the paper has a network before another, −1 where behind it, 0 where it does not tell.

        Args:
            data: of the paper.
            one: a variant.
            other: another one.
        """
        printed = {row.variant.name: row.paper[data].mean for row in self.rows if row.variant and data in row.paper}
        if one in printed and other in printed:
            above = (printed[one] > printed[other]) - (printed[one] < printed[other])
            return -above if self.kind == "times" else above
        told = {(pair.network, pair.other) for pair in self.before if data in pair.data}
        return ((one, other) in told) - ((other, one) in told)

    @property
    def whose(self) -> str:
        """Length it is measured by."""
        return f"{self.after or 'the paper'}'s"


@cache
def experiments() -> dict[str, Experiment]:
    """All of them by name, in the order of the paper."""
    text = (resources.files("paircaps.paper") / "paper.toml").read_text(encoding="utf-8")
    tree = tomllib.loads(text)
    titles = tree.pop("variants")
    variants = {
        name: Variant(name, facts["title"], facts.get("set", {}), facts.get("pooled", False))
        for name, facts in titles.items()
    }
    return {
        name: _experiment(name, {**tree.get(facts.get("base"), {}), **facts}, variants) for name, facts in tree.items()
    }


def find_experiments(names: list[str]) -> list[Experiment]:
    """Experiments by their names, each once; ``all`` is every one of the paper.

    Raises:
        RecipeError: for an unknown name, with the known ones.
    """
    known = experiments()
    wanted: dict[str, Experiment] = {}
    for name in names:
        name = _ALSO.get(name, name)
        if name != ALL and name not in known:
            raise RecipeError(str(unknown_name("experiment", name, [*known, *_ALSO, ALL])))
        wanted |= {key: found for key, found in known.items() if key == name or (name == ALL and not found.after)}
    return list(wanted.values())


def _experiment(name: str, facts: dict[str, Any], variants: Mapping[str, Variant]) -> Experiment:
    rows = tuple(
        TableRow(
            tuple(row["cells"]),
            variants[row["variant"]] if "variant" in row else None,
            _quoted(row.get("paper", {})),
            _quoted(row.get("gpu", {})),
        )
        for row in facts["rows"]
    )
    studies = tuple(
        Study(
            study["data"],
            study["recipe"],
            tuple(StandIn(**stand_in) for stand_in in study.get("stand_ins", ())),
            study.get("short"),
        )
        for study in facts["studies"]
    )
    columns = tuple(Column(**column) for column in facts["columns"])
    plain = {key: facts[key] for key in ("title", "caption", "section", "kind", "seeds", "claim")}
    return Experiment(
        name=name,
        **plain,
        labels=tuple(facts["labels"]),
        rows=rows,
        columns=columns,
        studies=studies,
        short=facts.get("short", {}),
        sheet=facts.get("sheet", ""),
        decimals=facts.get("decimals", 2),
        before=tuple(Before(pair["network"], pair["other"], tuple(pair["data"])) for pair in facts.get("before", ())),
        after=facts.get("after", ""),
    )


def _quoted(numbers: Mapping[str, list[float]]) -> dict[str, Quoted]:
    return {key: Quoted(*values) for key, values in numbers.items()}
