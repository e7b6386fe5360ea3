"""Odd calls of losses, statistics, estimators and the audit: a finite value or a sentence, and no trace of a refused call.

`make test` tries a few hundred; `make fuzz` (`tests/fuzz/long.py`) fifty thousand.
"""

from hypothesis import HealthCheck, given, settings

from fuzz.estimator_calls import AuditCall, FitCall, audit_calls, fit_calls
from fuzz.judge import BAD, judge
from fuzz.loss_calls import LossCall, StatisticsCall, loss_calls, statistics_calls
from fuzz.run_losses import try_loss, try_statistics

few = settings(deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))


@settings(few, max_examples=80)
@given(loss_calls)
def test_a_loss_gives_a_finite_value_or_a_sentence_and_no_trace_of_what_it_refused(call: LossCall) -> None:
    outcome, seen = try_loss(call)
    assert outcome not in BAD, f"{outcome}: {seen}"


@settings(few, max_examples=80)
@given(statistics_calls)
def test_statistics_take_a_batch_whole_or_not_at_all(call: StatisticsCall) -> None:
    outcome, seen = try_statistics(call)
    assert outcome not in BAD, f"{outcome}: {seen}"


@settings(few, max_examples=15)
@given(fit_calls("icda"))
def test_a_classifier_gives_finite_probabilities_or_a_sentence(call: FitCall) -> None:
    outcome, seen = judge(call)
    assert outcome not in BAD, f"{outcome}: {seen}"


@settings(few, max_examples=4)
@given(fit_calls("meta_icda", "robust"))
def test_classifiers_with_metadata_or_an_audit_do_so_too(call: FitCall) -> None:
    outcome, seen = judge(call)
    assert outcome not in BAD, f"{outcome}: {seen}"


@settings(few, max_examples=4)
@given(audit_calls)
def test_an_audit_ends_in_probabilities_or_a_sentence(call: AuditCall) -> None:
    outcome, seen = judge(call)
    assert outcome not in BAD, f"{outcome}: {seen}"
