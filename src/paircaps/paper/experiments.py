"""The paper's tables and figures as data, read from ``paper.toml``: its numbers, and the trainings that make them."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any

from paircaps._utils.registry import unknown_name
from paircaps.errors import RecipeError

ALL = "all"
"""Name that stands for every experiment of the paper."""

_ALIASES = {"table4": "table3"}
"""Other names of experiments: Table 4 shows pictures of Table 3's networks."""


@dataclass(frozen=True)
class PaperNumber:
    """A number that the paper prints.

    Args:
        mean: mean over seeds, as printed.
        deviation: standard deviation over seeds; None where the paper prints none.
    """

    mean: float
    deviation: float | None = None


@dataclass(frozen=True)
class Variant:
    """One of the networks that an experiment compares.

    Args:
        name: short name, for the command line and for folders.
        title: name shown in reports.
        changes: settings that it changes in a recipe, as sections of keys.
        pooled: whether it is the pooling twin of the recipe's network.
        own: whether it is a row that the experiment itself does not have.
        recipes: for a system published by others, name of its own recipe for each dataset; empty for a network of the
            experiment.
    """

    name: str
    title: str
    changes: Mapping[str, Any]
    pooled: bool = False
    own: bool = False
    recipes: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_rival(self) -> bool:
        """Whether it is a system published by others, which is trained only where it is named."""
        return bool(self.recipes)


@dataclass(frozen=True)
class StandIn:
    """Dataset that is used where the paper's is not on this machine.

    Args:
        data: name of the dataset.
        changes: settings that it changes in the recipe, as sections of keys.
    """

    data: str
    changes: Mapping[str, Any]


@dataclass(frozen=True)
class Study:
    """Part of an experiment: its trainings on one dataset.

    Args:
        data: name of the dataset that the paper tests on.
        recipe: name of the recipe of its trainings.
        stand_ins: datasets to use in its place, the best one first.
        short: settings of ``--short`` for this dataset, on top of those of the experiment.
    """

    data: str
    recipe: str
    stand_ins: tuple[StandIn, ...] = ()
    short: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Column:
    """Column of results in a table.

    Args:
        title: its title in the paper.
        data: dataset of its study.
        measure: ``test`` or ``train`` accuracy.
    """

    title: str
    data: str
    measure: str = "test"

    @property
    def key(self) -> str:
        """Key of the column's numbers in the rows of ``paper.toml``."""
        return self.data if self.measure == "test" else f"{self.data}:{self.measure}"


@dataclass(frozen=True)
class TableRow:
    """Row of a table in the paper.

    Args:
        cells: texts of its first cells, as in the paper.
        variant: network that is trained here; None for a row that the paper quotes from others.
        paper: numbers that the paper prints, by the key of a column; times are those of a CPU.
        gpu: times on a graphics card, by the key of a column.
    """

    cells: tuple[str, ...]
    variant: Variant | None
    paper: Mapping[str, PaperNumber]
    gpu: Mapping[str, PaperNumber]


@dataclass(frozen=True)
class PaperOrder:
    """Order of two networks that the paper draws or states without a number.

    Args:
        better: name of the better variant.
        worse: name of the variant that it is better than.
        data: names of the datasets on which it is.
    """

    better: str
    worse: str
    data: tuple[str, ...]


@dataclass(frozen=True)
class Experiment:
    """A table or a figure of the paper.

    Args:
        name: name on the command line.
        title: title in the paper, as "Table 2".
        caption: what it shows.
        section: section of the paper.
        kind: ``curves``, ``times`` or ``accuracy``.
        seeds: number of seeds in the paper.
        claim: what the paper concludes from it.
        labels: titles of the first columns.
        rows: rows of the table, from top to bottom.
        columns: columns of results, from left to right.
        studies: its trainings, one study per dataset.
        short: settings of ``--short``, as sections of keys.
        sheet: reconstructions shown with it: ``redrawn`` (single digits), ``apart`` (overlapping digits) or empty.
        decimals: number of decimals that the paper prints.
        paper_orders: orders of networks that the paper states without numbers.
        derived_from: title of the table whose networks and lengths it takes; empty for an experiment of the paper.
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
    paper_orders: tuple[PaperOrder, ...] = ()
    derived_from: str = ""

    @property
    def variants(self) -> tuple[Variant, ...]:
        """Networks that can be trained here, in the order of the table."""
        return tuple(row.variant for row in self.rows if row.variant is not None)

    @property
    def networks(self) -> tuple[Variant, ...]:
        """Networks that are compared: those that can be trained here, without systems published by others."""
        return tuple(variant for variant in self.variants if not variant.is_rival)

    @property
    def rivals(self) -> tuple[Variant, ...]:
        """Systems published by others that can be trained here."""
        return tuple(variant for variant in self.variants if variant.is_rival)

    def paper_order(self, data: str, one: str, other: str) -> int:
        """Order of two networks in the paper: 1 if the first is better, −1 if it is worse, 0 if the paper has none.

        Args:
            data: dataset of the paper.
            one: name of the first variant.
            other: name of the second variant.
        """
        printed = {row.variant.name: row.paper[data].mean for row in self.rows if row.variant and data in row.paper}
        if one in printed and other in printed:
            above = (printed[one] > printed[other]) - (printed[one] < printed[other])
            return -above if self.kind == "times" else above
        stated = {(order.better, order.worse) for order in self.paper_orders if data in order.data}
        return ((one, other) in stated) - ((other, one) in stated)

    @property
    def length_reference(self) -> str:
        """What lengths of trainings are compared with, in the possessive: "the paper's" or "Table 2's"."""
        return f"{self.derived_from or 'the paper'}'s"


@cache
def experiments() -> dict[str, Experiment]:
    """All experiments by name, in the order of the paper."""
    text = (resources.files("paircaps.paper") / "paper.toml").read_text(encoding="utf-8")
    tree = tomllib.loads(text)
    variants = {
        name: Variant(
            name, keys["title"], keys.get("set", {}), keys.get("pooled", False), recipes=keys.get("recipes", {})
        )
        for name, keys in tree.pop("variants").items()
    }
    # an experiment with a base takes from it all keys that it does not have itself
    return {
        name: _experiment(name, {**tree.get(keys.get("base"), {}), **keys}, variants) for name, keys in tree.items()
    }


def find_experiments(names: list[str]) -> list[Experiment]:
    """Find experiments by their names, each once; ``all`` stands for every one of the paper.

    Raises:
        RecipeError: if a name is unknown; the message lists the known ones.
    """
    known = experiments()
    wanted: dict[str, Experiment] = {}
    for name in names:
        name = _ALIASES.get(name, name)
        if name != ALL and name not in known:
            raise RecipeError(str(unknown_name("experiment", name, [*known, *_ALIASES, ALL])))
        wanted |= {
            key: found for key, found in known.items() if key == name or (name == ALL and not found.derived_from)
        }
    return list(wanted.values())


def _experiment(name: str, keys: dict[str, Any], variants: Mapping[str, Variant]) -> Experiment:
    """An experiment from its keys in ``paper.toml``."""
    rows = tuple(
        TableRow(
            tuple(row["cells"]),
            variants[row["variant"]] if "variant" in row else None,
            _paper_numbers(row.get("paper", {})),
            _paper_numbers(row.get("gpu", {})),
        )
        for row in keys["rows"]
    )
    studies = tuple(
        Study(
            study["data"],
            study["recipe"],
            tuple(StandIn(stand_in["data"], stand_in["set"]) for stand_in in study.get("stand_ins", ())),
            study.get("short"),
        )
        for study in keys["studies"]
    )
    columns = tuple(Column(**column) for column in keys["columns"])
    texts = {key: keys[key] for key in ("title", "caption", "section", "kind", "seeds", "claim")}
    return Experiment(
        name=name,
        **texts,
        labels=tuple(keys["labels"]),
        rows=rows,
        columns=columns,
        studies=studies,
        short=keys.get("short", {}),
        sheet=keys.get("sheet", ""),
        decimals=keys.get("decimals", 2),
        paper_orders=tuple(
            PaperOrder(pair["network"], pair["other"], tuple(pair["data"])) for pair in keys.get("before", ())
        ),
        derived_from=keys.get("after", ""),
    )


def _paper_numbers(numbers: Mapping[str, list[float]]) -> dict[str, PaperNumber]:
    return {key: PaperNumber(*values) for key, values in numbers.items()}
