"""Comparison of runs: what they reached, what it took, what differs between their recipes, and their curves.

``runs.py`` reads the folder of a run, ``groups.py`` puts those together that differ in their seed alone, ``tables.py``
makes Markdown, CSV and JSON of them, ``terminal.py`` fits tables to a terminal, and ``curves.py`` draws.
"""

from __future__ import annotations

from paircaps.training.compare.groups import Comparison, SeedGroup, compare_runs
from paircaps.training.compare.runs import ComparedRun, read_run

__all__ = ["ComparedRun", "Comparison", "SeedGroup", "compare_runs", "read_run"]
