"""Why a model decides as it does: margins, mapped variances, heat maps, counterfactual pictures, the audit."""

from icda.explain.run import explain_run

__all__ = ["explain_run"]
