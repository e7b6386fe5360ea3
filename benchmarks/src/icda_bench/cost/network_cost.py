"""Table 3: what the ICDA loss adds to a training step, network by network."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from icda.registry import UnknownNameError
from icda_bench.cost.rows import write_csv
from icda_bench.cost.step_cost import measure_step
from icda_bench.markdown import markdown

NAME = "table3"


@dataclass(frozen=True)
class CostRow:
    """Extra time of ICDA over cross entropy for one network and number of classes, in per cent.

    `noise` is half the distance of the quartiles of the paired ratios, in per cent, too. `loss_alone` is what the loss
    takes without a network, in per cent of a step of 128: steadier than the ratio of whole steps.
    """

    network: str
    classes: int
    tier: str
    batch: int
    steps: int
    base_ms: float
    method_ms: float
    extra: float
    noise: float
    loss_alone: float


def load_cost_suite() -> dict[str, Any]:
    """The content of `suites/table3.yaml`.

    >>> [row["paper"] for row in load_cost_suite()["rows"]][0]
    [6.9, 6.9]
    """
    return yaml.safe_load(files("icda_bench.suites").joinpath(f"{NAME}.yaml").read_text())


def measure_network_cost(tier: str, networks: Iterable[str], say: Callable[[str], None]) -> list[CostRow]:
    """Steps of cross entropy and of ICDA in turn, for each network with 10 and with 100 classes."""
    suite = load_cost_suite()
    recipe = suite["tiers"][tier]
    known = [row["network"] for row in suite["rows"]]
    chosen = list(networks) or recipe.get("networks", known)
    for name in chosen:
        if name not in known:
            raise UnknownNameError(f"{NAME} has no network {name!r}. Known: {', '.join(known)}.")
    batches = {row["network"]: recipe.get("batch_size") or row["batch"] for row in suite["rows"]}
    rows = []
    for name in chosen:
        for column in suite["columns"].values():
            say(f"{name}, {column['classes']} classes, batch {batches[name]}, up to {recipe['steps']} steps of each")
            rows.append(_measure(name, column["classes"], tier, batches[name], recipe["steps"], recipe["seconds"]))
    return rows


def _measure(network: str, classes: int, tier: str, batch: int, steps: int, seconds: float) -> CostRow:
    row = measure_step(network, classes, batch, steps, seconds)
    noise = round((row.high - row.low) / 2, 2)
    return CostRow(
        network, classes, tier, batch, row.rounds, row.ce_ms, row.icda_ms, row.direct, noise, row.head_at_128
    )


def add_to_csv(rows: list[CostRow], path: Path) -> None:
    """Write rows in the place of earlier ones of the same network, classes and tier; other rows stay."""
    earlier = read_costs(path)
    new = {(row.network, str(row.classes), row.tier) for row in rows}
    kept = [line for line in earlier if (line["network"], line["classes"], line["tier"]) not in new]
    write_csv(rows, path)
    with path.open(newline="") as file:
        lines = [*kept, *csv.DictReader(file)]
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(lines[-1]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(sorted(lines, key=lambda line: (line["tier"], line["network"], int(line["classes"]))))


def read_costs(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def cost_status(paper: float, extra: float, noise: float) -> str:
    """Trend holds if ICDA adds no more than in the paper, beyond noise; another machine reproduces no time.

    >>> cost_status(6.9, 7.5, noise=1.0), cost_status(6.9, 9.0, noise=1.0)
    ('trend holds', 'does not hold')
    """
    return "trend holds" if extra <= paper + noise else "does not hold"


def cost_table(lines: list[dict[str, str]]) -> str:
    """Table 3 with ours beside it."""
    suite = load_cost_suite()
    shown = {(line["network"], int(line["classes"])): line for line in lines if line["tier"] == "cpu"} | {
        (line["network"], int(line["classes"])): line for line in lines if line["tier"] == "paper"
    }
    body = []
    for row in suite["rows"]:
        for column, paper in zip(suite["columns"].values(), row["paper"], strict=True):
            line = shown.get((row["network"], column["classes"]))
            body.append([row["title"], column["title"], f"+{paper:.1f} %", *_measured(paper, line)])
    titles = ["network", "data", "the paper", "ours ± noise", "loss alone", "step CE, ms", "batch", "status"]
    notes = "\n".join(f"* {note}" for note in suite["notes"])
    return f"{markdown(titles, body)}\n\n{notes}"


def _measured(paper: float, line: dict[str, str] | None) -> list[str]:
    if line is None:
        return ["", "", "", "", "not run here"]
    extra, noise = float(line["extra"]), float(line["noise"])
    ours = f"{extra:+.1f} ± {noise:.1f} %"
    alone = f"{float(line['loss_alone']):.2f} %"
    return [ours, alone, f"{float(line['base_ms']):.0f}", line["batch"], cost_status(paper, extra, noise)]
