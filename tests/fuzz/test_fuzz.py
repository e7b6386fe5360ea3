"""Odd calls of losses, statistics, estimators and the audit: a finite value or a sentence, and no trace of a refused call.

`make test` tries a few hundred; `make fuzz` (`tests/fuzz/long.py`) fifty thousand.
"""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from fuzz.estimator_calls import audit_calls, fit_calls
from fuzz.judge import BAD, judge
from fuzz.loss_calls import loss_calls, statistics_calls, try_loss, try_statistics


@pytest.mark.parametrize(
    ("calls", "attempt", "examples"),
    [
        (loss_calls, try_loss, 80),
        (statistics_calls, try_statistics, 80),
        (fit_calls("icda"), judge, 15),
        (fit_calls("meta_icda", "robust"), judge, 4),
        (audit_calls, judge, 4),
    ],
    ids=["losses", "statistics", "a classifier", "classifiers with metadata or an audit", "audit"],
)
def test_an_odd_call_ends_in_a_finite_value_or_a_sentence(calls, attempt, examples):
    @settings(
        max_examples=examples, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(calls)
    def run(call: Any) -> None:
        outcome, seen = attempt(call)
        assert outcome not in BAD, f"{outcome}: {seen}"

    run()
