"""Tables over seeds and the HTML page about a run."""

from icda.report.page import render_page, write_report
from icda.report.reading import FoundRun, find_unfinished, read_folder, read_runs
from icda.report.tables import MetricSummary, Table, comparison_table, summarise, to_markdown, to_rich

__all__ = ["FoundRun", "MetricSummary", "Table", "comparison_table", "find_unfinished", "read_folder", "read_runs"]
__all__ += ["render_page", "summarise", "to_markdown", "to_rich", "write_report"]
