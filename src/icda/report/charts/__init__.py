"""Small charts as inline SVG: complete without a script, told apart by more than colour."""

from icda.report.charts.bars import bar, spark
from icda.report.charts.heat import Heat, heat_map
from icda.report.charts.histogram import histogram
from icda.report.charts.lines import Series, line_chart
from icda.report.charts.points import Dot, Whisker, scatter, whiskers

__all__ = [
    "Dot",
    "Heat",
    "Series",
    "Whisker",
    "bar",
    "heat_map",
    "histogram",
    "line_chart",
    "scatter",
    "spark",
    "whiskers",
]
