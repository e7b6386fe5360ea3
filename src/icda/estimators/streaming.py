"""Fitting when the samples are not in memory: batch by batch, or from Parquet files."""

from collections.abc import Sequence
from functools import partial
from os import PathLike
from typing import Any, Self

import numpy as np
import torch
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from sklearn.utils.multiclass import _check_partial_fit_first_call, check_classification_targets
from sklearn.utils.validation import _check_sample_weight, validate_data

from icda.data.missing import check_names
from icda.data.own.parquet import FeatureBatch, ParquetTable, Source, spooled
from icda.errors import InputError
from icda.estimators.predictions import LinearPredictions
from icda.heads import rows as stored
from icda.heads.online import OnlineHead
from icda.heads.problem import LossName, LossSettings, Through
from icda.heads.rows import refuse_sparse
from icda.terminal import make_console

FIXED = ("loss", "lambda0", "beta", "C", "balance", "through", "strength", "class_weight")


class StreamingFit(LinearPredictions):
    """`partial_fit` and `fit_parquet` of a linear classifier."""

    loss: LossName
    lambda0: float
    beta: float
    C: float
    balance: Any
    through: Through
    strength: str
    random_state: int | None
    class_weight: Any

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Learn from one more batch; the first call needs all `classes`.

        The head takes steps of Adam and is averaged (`icda.heads.online.OnlineHead`). Batches should be mixed, not a class
        after another. The result comes near that of `fit` as batches get many; where the data can be mapped from disk,
        `fit` finds it exactly. `balance` can be None or "class". After `fit` the first call starts at the fitted head, with
        statistics and weight decay of the batches from then on.
        """
        self._check_settings()  # type: ignore[attr-defined]
        refuse_sparse(X, "X", type(self).__name__)
        first = not hasattr(self, "_online")
        unfitted = _check_partial_fit_first_call(self, classes)
        check_names(y, "y")
        X, y = validate_data(self, X, y, dtype=[np.float64, np.float32], order="C", reset=unfitted)
        check_classification_targets(y)
        codes = self._codes(y)
        weights = _check_sample_weight(sample_weight, X, dtype=X.dtype, ensure_non_negative=True)
        if first:
            self._start_online(X.shape[1], torch.float64 if X.dtype == np.float64 else torch.float32)
        elif self._online_settings != self._fixed_settings():
            raise InputError(f"partial_fit: {', '.join(FIXED)} must stay as they were at the first call.")
        features = torch.from_numpy(X if X.flags.writeable else X.copy())
        self._online.update(features, torch.from_numpy(codes), torch.tensor(weights))
        self.coef_, self.intercept_ = self._online.weight.numpy().copy(), self._online.bias.numpy().copy()
        self.n_iter_ = self._online.steps
        return self

    def fit_parquet(
        self,
        path: Source,
        *,
        features: str | Sequence[str],
        target: str,
        sample_weight: str | None = None,
        groups: str | None = None,
        epochs: int | None = None,
        batch_size: int = 8192,
        tempdir: str | PathLike[str] | None = None,
        progress: bool = True,
    ) -> Self:
        """Fit to a Parquet file, several, or a folder of them (needs the extra `parquet`).

        `features` names a column of lists, several numeric columns, or their common beginning; `target`,
        `sample_weight` and `groups` name columns. By default the features are copied once, in the precision of the file,
        to a temporary file in `tempdir` (N x A x 4 or 8 bytes, gone afterwards; in memory below 256 MiB), and `fit` finds
        the same head as it would in memory. With `epochs` nothing is written: the files are read that many times in batches
        of `batch_size` rows, shuffled within each, and learned as by `partial_fit`. `progress` shows a bar where there is a
        terminal.
        """
        self._check_settings()  # type: ignore[attr-defined]
        if epochs is not None and (epochs < 1 or groups is not None):
            raise InputError(
                f"epochs must be at least 1 and goes without groups, got epochs={epochs}, groups={groups!r}."
            )
        table = ParquetTable(path, features, target, sample_weight, groups)
        if epochs is not None:
            return self._fit_epochs(table, epochs, batch_size, progress)
        bar = _bar(progress)
        line = bar.add_task("reading", total=table.num_rows)
        advance = partial(bar.advance, line)
        with bar, spooled(table, tempdir, stored.IN_MEMORY_BYTES, batch_size, advance) as samples:
            bar.update(line, description="fitting")
            self.fit(samples.features, samples.targets, samples.weights, samples.groups)  # type: ignore[attr-defined]
        return self

    def _fit_epochs(self, table: ParquetTable, epochs: int, batch_size: int, progress: bool) -> Self:
        self._forget()
        classes = table.labels()
        generator = np.random.default_rng(self.random_state)
        with _bar(progress) as bar:
            line = bar.add_task("learning", total=epochs * table.num_rows)
            for epoch in range(epochs):
                for batch in table.batches(batch_size):
                    order = generator.permutation(len(batch.targets))
                    chosen = FeatureBatch(*(None if part is None else part[order] for part in batch))  # type: ignore[arg-type]
                    self.partial_fit(chosen.features, chosen.targets, classes, chosen.weights)
                    self._online.passes = epoch + 1
                    bar.advance(line, len(order))
        return self

    def _start_online(self, width: int, dtype: torch.dtype) -> None:
        if self.balance not in (None, "class") or self.through != "weights" or self.strength != "angle":
            raise InputError(
                "partial_fit knows balance=None and balance='class', through='weights' and strength='angle', got "
                f"{self.balance!r}, {self.through!r} and {self.strength!r}: use fit, which takes mapped files too."
            )
        if self.class_weight is not None:
            raise InputError("partial_fit does not know class_weight: give sample_weight, or use fit.")
        settings = LossSettings(self.loss, self.lambda0, self.beta)
        balanced = self.balance == "class"
        self._online = OnlineHead(len(self.classes_), width, settings, self.C, balanced, dtype)
        if hasattr(self, "coef_"):
            self._online.start_from(torch.from_numpy(self.coef_), torch.from_numpy(self.intercept_))
        self._online_settings = self._fixed_settings()

    def _fixed_settings(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in FIXED)

    def _forget(self) -> None:
        """What an earlier fit left, so that the next begins without it."""
        for name in ("_online", "_online_settings", "classes_", "coef_", "intercept_", "attributes_"):
            self.__dict__.pop(name, None)

    def _codes(self, y: np.ndarray) -> np.ndarray:
        if len(self.classes_) < 2:
            raise InputError(
                f"{type(self).__name__} needs at least 2 classes, got one class: {self.classes_.tolist()[0]!r}."
            )
        codes = np.searchsorted(self.classes_, y).clip(max=len(self.classes_) - 1)
        unknown = self.classes_[codes] != y
        if unknown.any():
            raise InputError(f"y has the label {y[unknown][0]!r}, which is not among the classes of the first call.")
        return codes


def _bar(shown: bool) -> Progress:
    console = make_console(stderr=True)
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    times = TimeElapsedColumn(), TimeRemainingColumn()
    return Progress(*columns, *times, console=console, disable=not (shown and console.is_terminal))
