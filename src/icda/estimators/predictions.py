"""What every fitted linear classifier does: logits, probabilities and classes."""

import warnings
from typing import Any

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted, validate_data

from icda.estimators.samples import check_stored
from icda.heads.rows import is_large_on_disk, refuse_sparse
from icda.heads.solver import LinearHead


class LinearPredictions:
    """Predictions from `coef_` (C, A), `intercept_` (C,) and `classes_` (C,), one row per class, also for two."""

    coef_: np.ndarray
    intercept_: np.ndarray
    classes_: np.ndarray
    n_iter_: int
    max_iter: int
    tol: float

    def decision_function(self, X: Any) -> np.ndarray:
        """Logits (N, C), or for two classes the difference (N,) as scikit-learn has it."""
        logits = self._logits(X)
        return logits[:, 1] - logits[:, 0] if len(self.classes_) == 2 else logits

    def predict_proba(self, X: Any) -> np.ndarray:
        return torch.softmax(torch.from_numpy(self._logits(X)), 1).numpy()

    def predict_log_proba(self, X: Any) -> np.ndarray:
        return torch.log_softmax(torch.from_numpy(self._logits(X)), 1).numpy()

    def predict(self, X: Any) -> np.ndarray:
        logits = self._logits(X)  # first: it says if nothing was fitted
        return self.classes_[logits.argmax(1)]

    def _keep(self, head: LinearHead, scale: float = 1.0) -> None:
        """Called by `fit` itself, so that the warning names the line that called `fit`.

        `scale` is what the features were divided by for the solver.
        """
        self.coef_, self.intercept_ = head.weight.numpy(), head.bias.numpy()
        if scale != 1:
            self.coef_ = self.coef_ / self.coef_.dtype.type(scale)
        self.n_iter_ = head.iterations
        if not head.converged:
            warnings.warn(
                f"{type(self).__name__} stopped at max_iter={self.max_iter} before reaching tol={self.tol}: "
                "scale the features, raise max_iter, or lower C.",
                ConvergenceWarning,
                stacklevel=3,
            )

    def _logits(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        if is_large_on_disk(X):
            rows = check_stored(self, X, reset=False)
            weight, bias = (torch.tensor(part, dtype=rows.dtype) for part in (self.coef_, self.intercept_))
            return LinearHead(weight, bias).logits(rows).numpy()
        refuse_sparse(X, "X", type(self).__name__)
        X = validate_data(self, X, reset=False, dtype=[np.float64, np.float32])
        return X @ self.coef_.T.astype(X.dtype) + self.intercept_.astype(X.dtype)
