"""The tables of README and docs, made from the CSV files in benchmarks/results.

    python -m icda.bench.tables README.md docs/*.md            # write
    python -m icda.bench.tables --check README.md docs/*.md    # fail when a page and its CSV disagree

A page marks a table with `<!-- table: NAME -->` and `<!-- end of table -->`; what stands between is generated.
"""

from __future__ import annotations

import csv
import re
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from icda.bench.ledger import read_ledger

RESULTS = Path("benchmarks/results")
_MARKED = re.compile(r"(<!-- table: (?P<name>[\w-]+) -->\n).*?(<!-- end of table -->)", re.DOTALL)

SHORT_NAMES = {"cross_entropy": "CE", "logit_adjustment": "LA", "isda": "ISDA", "icda": "ICDA", "risda": "RISDA"}


def demo_table(results: Path = RESULTS) -> str:
    """What `icda demo` measured: mean ± standard deviation over seeds, in per cent."""
    shown = {
        "digits_lt": ("long tail, accuracy", "accuracy"),
        "digits_flip_noise": ("40 % wrong labels, accuracy", "accuracy"),
        "digits_coloured": ("spurious colour, worst group", "worst_group_accuracy"),
    }
    rows = read_ledger(results / "demo.csv")
    methods = sorted({row["method"] for row in rows}, key=lambda name: list(SHORT_NAMES).index(name))
    body = [
        [SHORT_NAMES[method], *(_mean_std(rows, task, method, metric) for task, (_, metric) in shown.items())]
        for method in methods
    ]
    return markdown(["method", *(title for title, _ in shown.values())], body)


def speed_table(results: Path = RESULTS) -> str:
    """What `icda bench speed` measured."""
    with (results / "speed.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    names = (
        "what",
        "method",
        "covariance",
        "classes",
        "features",
        "batch",
        "base_ms",
        "method_ms",
        "ratio",
        "extra_mib",
    )
    titles = ["what", "loss", "covariance", "C", "A", "N", "CE, ms", "loss, ms", "ratio", "extra MiB"]
    return markdown(titles, [[row[name] for name in names] for row in rows])


TABLES: dict[str, Callable[[], str]] = {"demo": demo_table, "speed": speed_table}


def markdown(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table, first column left, the rest right-aligned.

    >>> print(markdown(["a", "b"], [["x", "1"]]))
    | a | b |
    |:--|--:|
    | x | 1 |
    """
    rule = "|:--|" + "--:|" * (len(titles) - 1)
    return "\n".join(["| " + " | ".join(titles) + " |", rule, *("| " + " | ".join(row) + " |" for row in rows)])


def fill(text: str) -> str:
    """The page with every marked table made anew."""

    def replace(match: re.Match[str]) -> str:
        name = match["name"]
        if name not in TABLES:
            raise ValueError(f"no table is called {name!r}: known are {', '.join(TABLES)}.")
        return f"{match[1]}{TABLES[name]()}\n{match[3]}"

    return _MARKED.sub(replace, text)


def main(arguments: Sequence[str]) -> int:
    check = "--check" in arguments
    stale = []
    for path in (Path(word) for word in arguments if word != "--check"):
        text = path.read_text()
        filled = fill(text)
        if filled != text:
            stale.append(str(path))
            if not check:
                path.write_text(filled)
    if stale:
        print(f"{'differ from benchmarks/results' if check else 'written'}: {', '.join(stale)}")
    return int(check and bool(stale))


def _mean_std(rows: list[dict[str, str]], task: str, method: str, metric: str) -> str:
    values = [100 * float(r[metric]) for r in rows if (r["task"], r["method"]) == (task, method) and r[metric]]
    if not values:
        return ""
    if len(values) == 1:
        return f"{values[0]:.1f} (1)"
    return f"{statistics.mean(values):.1f} ± {statistics.stdev(values):.1f} ({len(values)})"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
