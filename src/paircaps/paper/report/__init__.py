"""Report of ``paircaps reproduce``: the paper's tables and figures beside the results of trainings in a folder."""

from paircaps.paper.report.write import write_report

__all__ = ["write_report"]
