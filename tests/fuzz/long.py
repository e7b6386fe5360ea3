"""Many odd calls and a table of what they came to: `make fuzz`.

    python tests/fuzz/long.py [CALLS] [SEED]

Exits with 1 if one raised something obscure, returned NaN or infinity, or changed state though it was refused.
"""

import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from hypothesis import HealthCheck, given, seed, settings
from hypothesis.strategies import SearchStrategy

from fuzz.estimator_calls import audit_calls, fit_calls
from fuzz.judge import BAD, REFUSED, VALUE, judge
from fuzz.loss_calls import loss_calls, statistics_calls, try_loss, try_statistics

CALLS = 50_000
Try = Callable[[Any], tuple[str, str]]
# What is fuzzed, and its share of the calls: fits take a hundred times as long as losses.
PARTS: dict[str, tuple[SearchStrategy[Any], Try, float]] = {
    "losses": (loss_calls, try_loss, 0.88),
    "ClassStatistics": (statistics_calls, try_statistics, 0.10),
    "ICDAClassifier": (fit_calls("icda"), judge, 0.012),
    "MetaICDAClassifier": (fit_calls("meta_icda"), judge, 0.004),
    "RobustClassifier": (fit_calls("robust"), judge, 0.003),
    "audit": (audit_calls, judge, 0.003),
}


def fuzz(strategy, attempt, calls, start):
    """Outcomes, and one example of each bad one with what was seen."""
    outcomes: Counter[str] = Counter()
    examples: dict[str, Any] = {}

    @seed(start)
    @settings(max_examples=calls, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(strategy)
    def run(call: Any) -> None:
        outcome, seen = attempt(call)
        outcomes[outcome] += 1
        if outcome in BAD:
            lines = seen.strip().splitlines()
            examples.setdefault(f"{outcome}: {lines[-1] if lines else ''}", (call, seen))

    # Hypothesis ends a run early when it finds nothing new; another seed goes on.
    while outcomes.total() < calls:
        before = outcomes.total()
        run()
        start += 1
        run = seed(start)(run)
        if outcomes.total() == before:
            break
    return outcomes, examples


def main(calls, start):
    columns = (VALUE, REFUSED, *BAD)
    print("| what | calls | " + " | ".join(columns) + " | seconds |")
    print("|:--|" + "--:|" * (len(columns) + 2), flush=True)
    found: dict[str, Any] = {}
    for name, (strategy, attempt, share) in PARTS.items():
        began = time.perf_counter()
        outcomes, examples = fuzz(strategy, attempt, max(1, round(share * calls)), start)
        counts = " | ".join(f"{outcomes[column]:,}" for column in columns)
        print(f"| {name} | {outcomes.total():,} | {counts} | {time.perf_counter() - began:.0f} |", flush=True)
        found |= {f"{name}: {kind}": example for kind, example in examples.items()}
    for kind, (call, seen) in found.items():
        print(f"\n{kind}\n  {call}\n{seen}")
    return int(bool(found))


if __name__ == "__main__":
    given_numbers = [int(word) for word in sys.argv[1:]]
    sys.exit(main(*(given_numbers + [CALLS, 0][len(given_numbers) :])))
