"""The parts of the report page: each a function from a result to HTML, empty when the result has nothing for it."""

from icda.report.sections.breakdown import per_class, per_group
from icda.report.sections.comparison import comparison
from icda.report.sections.confusion import confusion
from icda.report.sections.curves import learning_curve
from icda.report.sections.overview import headline, what_was_run
from icda.report.sections.settings import configuration, environment

__all__ = [
    "comparison",
    "configuration",
    "confusion",
    "environment",
    "headline",
    "learning_curve",
    "per_class",
    "per_group",
    "what_was_run",
]
