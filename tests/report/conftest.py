"""A full result with explanations, and pages made of it."""

from typing import Any

import pytest
from tests.report.synthetic import synthetic_explanations, synthetic_result

from icda.report.results import Run, collect_runs


@pytest.fixture(scope="session")
def full_result():
    return synthetic_result(classes=6, samples=300)


@pytest.fixture(scope="session")
def full_explanations():
    return synthetic_explanations(classes=6, samples=300, tied=30)


@pytest.fixture
def run_of():
    """`run_of(explanations, metrics=...)`: a run that has only what is given."""

    def make(explanations: dict[str, Any] | None = None, **result: Any) -> Run:
        return collect_runs([{"task": "waterbirds", "method": "icda", **result}], [explanations])[0]

    return make
