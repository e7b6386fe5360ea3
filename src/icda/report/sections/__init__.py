"""The parts of the report page: each a function from a run to HTML, empty when the run has nothing for it."""

from icda.report.sections.breakdown import per_class, per_group
from icda.report.sections.comparison import comparison, heat_beside, spreads
from icda.report.sections.confusion import confusion
from icda.report.sections.curves import learning_curve, learning_curves
from icda.report.sections.margins import margins
from icda.report.sections.overview import headline, what_was_run
from icda.report.sections.samples import counterfactuals, gradcam, tied
from icda.report.sections.settings import configuration, environment
from icda.report.sections.strengths import strengths, variances

__all__ = [
    "comparison",
    "configuration",
    "confusion",
    "counterfactuals",
    "environment",
    "gradcam",
    "headline",
    "heat_beside",
    "learning_curve",
    "learning_curves",
    "margins",
    "per_class",
    "per_group",
    "spreads",
    "strengths",
    "tied",
    "variances",
    "what_was_run",
]
