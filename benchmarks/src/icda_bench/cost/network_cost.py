"""Table 3: what the ICDA loss adds to a training step, network by network.

A step of a large network takes seconds and its loss milliseconds, so the machine's own noise may exceed what is looked
for. Hence two figures: the ratio of whole steps, and the loss alone divided by the step, scaled to the paper's batch of
128, since part of the loss (covariances) costs the same whatever the batch.
"""

import statistics
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from icda.settings import check_names
from icda.terminal import make_console
from icda_bench.cost.measures import Ratios, interleave
from icda_bench.cost.speed import head_steps, training_steps
from icda_bench.markdown import columns, markdown
from icda_bench.rows import Row, machine_columns, read_table, write_rows
from icda_bench.suites.suite import TierName

NAME = "table3"
PAPER_BATCH = 128
HEAD_ROUNDS = 15
FEWEST_ROUNDS = 3


@dataclass
class Arguments:
    """Measure training steps of seven networks, ICDA and cross entropy taking turns in one process."""

    tier: TierName = "cpu"
    """How much: smoke (one network, batch 4), cpu (batch 32), paper (batch 128, 100 steps)."""
    networks: tuple[str, ...] = ()
    """Only these networks."""
    ledger: Path | None = None
    """CSV file to put the figures into (benchmarks/results/table3.csv is ours)."""


def load_cost_suite() -> dict[str, Any]:
    """The content of `suites/table3.yaml`.

    >>> [row["paper"] for row in load_cost_suite()["rows"]][0]
    [6.9, 6.9]
    """
    return yaml.safe_load(files("icda_bench.suites").joinpath(f"{NAME}.yaml").read_text())


def measure_network_cost(tier: str, networks: Iterable[str], say: Callable[[str], None]) -> list[Row]:
    """Steps of cross entropy and of ICDA in turn, for each network with 10 and with 100 classes."""
    suite = load_cost_suite()
    recipe = suite["tiers"][tier]
    known = [row["network"] for row in suite["rows"]]
    chosen = list(networks) or recipe.get("networks", known)
    check_names(chosen, known, NAME, "network")
    batches = {row["network"]: recipe.get("batch_size") or row["batch"] for row in suite["rows"]}
    rows = []
    for name in chosen:
        for column in suite["columns"].values():
            say(f"{name}, {column['classes']} classes, batch {batches[name]}, up to {recipe['steps']} steps of each")
            sizes = (column["classes"], tier, batches[name])
            rows.append(measure_step(name, *sizes, recipe["steps"], recipe["seconds"]))
    return rows


def measure_step(network: str, classes: int, tier: str, batch: int, steps: int, seconds: float) -> Row:
    """Extra time of ICDA over cross entropy for one network and number of classes, in per cent: `steps` of both, taking
    turns, or as many as `seconds` allow, three at least.

    `extra` is the median of the paired ratios of whole steps, `noise` half the distance of their quartiles. `loss_alone` is
    what the loss takes without a network, in per cent of a step of 128: steadier than the ratio of whole steps.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that covariances are diagonal
        turns, loss = training_steps(network, classes, batch)
    times = interleave(turns, rounds=1, warm_up=1)
    rounds = rounds_within(seconds, sum(values[0] for values in times.values()), steps)
    for key, values in interleave(turns, rounds - 1, warm_up=0).items():
        times[key] += values
    ratios = Ratios.of(times["ce"], times["icda"])
    step, method_step = (statistics.median(times[key]) for key in ("ce", "icda"))
    alone = head_extra_seconds(classes, loss.feature_dim, PAPER_BATCH, loss.statistics.kind)
    return {
        **{"network": network, "classes": classes, "tier": tier, "batch": batch, "steps": rounds},
        "base_ms": round(1e3 * step, 2),
        "method_ms": round(1e3 * method_step, 2),
        "extra": round(100 * (ratios.middle - 1), 2),
        "noise": round(50 * (ratios.high - ratios.low), 2),
        "loss_alone": round(100 * alone / (step * PAPER_BATCH / batch), 3),
    }


def rounds_within(seconds: float, one: float, steps: int) -> int:
    """How many rounds to time when one takes `one` seconds.

    >>> rounds_within(20, one=0.1, steps=15), rounds_within(20, one=4.0, steps=15), rounds_within(20, one=60, steps=15)
    (15, 5, 3)
    """
    return max(FEWEST_ROUNDS, min(steps, int(seconds / one)))


def head_extra_seconds(classes: int, features: int, batch: int, covariance: str) -> float:
    """The median of paired differences between ICDA and cross entropy on given features, without a network."""
    times = interleave(head_steps(classes, features, batch, covariance), HEAD_ROUNDS)
    return statistics.median(b - a for a, b in zip(times["ce"], times["icda"], strict=True))


def add_to_csv(rows: list[Row], path: Path) -> None:
    """Write rows in the place of earlier ones of the same network, classes and tier; other rows stay."""
    place = columns("network", "classes", "tier")
    lines: dict[tuple[str, ...], Row] = {place(line): line for line in read_table(path)}
    lines |= {place(row): {**row, **machine_columns()} for row in rows}
    write_rows(path, sorted(lines.values(), key=lambda line: (line["tier"], line["network"], int(line["classes"]))))


def cost_status(paper: float, extra: float, noise: float) -> str:
    """Trend holds if ICDA adds no more than in the paper, beyond noise; another machine reproduces no time.

    >>> cost_status(6.9, 7.5, noise=1.0), cost_status(6.9, 9.0, noise=1.0)
    ('trend holds', 'does not hold')
    """
    return "trend holds" if extra <= paper + noise else "does not hold"


def cost_cells(lines: Iterable[dict[str, str]]) -> list[tuple[Any, Any, float, dict[str, str] | None]]:
    """Row, column and figure of each of the paper's cells, with the best tier's line of ours, if there is one."""
    suite, shown = load_cost_suite(), dict[tuple[str, int], dict[str, str]]()
    for line in sorted(lines, key=lambda line: line["tier"] == "paper"):
        if line["tier"] in ("cpu", "paper"):
            shown[line["network"], int(line["classes"])] = line
    return [
        (row, column, paper, shown.get((row["network"], column["classes"])))
        for row in suite["rows"]
        for column, paper in zip(suite["columns"].values(), row["paper"], strict=True)
    ]


def cost_table(lines: list[dict[str, str]]) -> str:
    """Table 3 with ours beside it; what was measured at tier `paper` takes the place of tier `cpu`."""
    body = [
        [row["title"], column["title"], f"+{paper:.1f} %", *_measured(paper, line)]
        for row, column, paper, line in cost_cells(lines)
    ]
    titles = ["network", "data", "the paper", "ours ± noise", "loss alone", "step CE, ms", "batch", "status"]
    notes = "\n".join(f"* {note}" for note in load_cost_suite()["notes"])
    return f"{markdown(titles, body)}\n\n{notes}"


def _measured(paper: float, line: dict[str, str] | None) -> list[str]:
    if line is None:
        return ["", "", "", "", "not run here"]
    extra, noise = float(line["extra"]), float(line["noise"])
    ours = f"{extra:+.1f} ± {noise:.1f} %"
    alone = f"{float(line['loss_alone']):.2f} %"
    return [ours, alone, f"{float(line['base_ms']):.0f}", line["batch"], cost_status(paper, extra, noise)]


def run(options: Arguments) -> None:
    console = make_console()
    rows = measure_network_cost(options.tier, options.networks, console.print)
    for row in rows:
        console.print("{network}, {classes} classes: ICDA adds {extra:+.1f} ± {noise:.1f} %".format(**row))
    if options.ledger is not None:
        add_to_csv(rows, options.ledger)
        console.print(f"Written to {options.ledger}", highlight=False)
