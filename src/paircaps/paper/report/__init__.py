"""The report: the paper's tables and figures beside ours, from what trainings left in a folder."""

from paircaps.paper.report.write import write_report

__all__ = ["write_report"]
