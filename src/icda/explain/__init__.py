"""Why a model decides as it does: margins, mapped variances, heat maps, counterfactual pictures, the audit."""
