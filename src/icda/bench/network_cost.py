"""Table 3: what the ICDA loss adds to a training step, network by network."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from icda.bench.markdown import markdown
from icda.bench.speed import network_rows, write_csv
from icda.registry import UnknownNameError

NAME = "table3"


@dataclass(frozen=True)
class CostRow:
    """Extra time of ICDA over cross entropy for one network and number of classes, in per cent.

    `noise` is half the distance of the quartiles of the paired ratios, in per cent, too.
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


def load_cost_suite() -> dict[str, Any]:
    """The content of `suites/table3.yaml`.

    >>> [row["paper"] for row in load_cost_suite()["rows"]][0]
    [6.9, 6.9]
    """
    return yaml.safe_load(files("icda.bench").joinpath("suites", f"{NAME}.yaml").read_text())


def measure_network_cost(tier: str, networks: Iterable[str], say: Callable[[str], None]) -> list[CostRow]:
    """Steps of cross entropy and of ICDA in turn, for each network with 10 and with 100 classes."""
    suite = load_cost_suite()
    recipe = suite["tiers"][tier]
    known = [row["network"] for row in suite["rows"]]
    chosen = list(networks) or recipe.get("networks", known)
    for name in chosen:
        if name not in known:
            raise UnknownNameError(f"{NAME} has no network {name!r}. Known: {', '.join(known)}.")
    found = []
    for name in chosen:
        for column in suite["columns"].values():
            say(f"{name}, {column['classes']} classes, batch {recipe['batch_size']}, {recipe['steps']} steps of each")
            found.append(_measure(name, column["classes"], tier, recipe["batch_size"], recipe["steps"]))
    return found


def _measure(network: str, classes: int, tier: str, batch: int, steps: int) -> CostRow:
    (row,) = network_rows(network, classes, batch, steps)
    low, _, high = row.quartiles.partition(" to ")
    noise = 50 * (float(high) - float(low))
    extra = 100 * (row.ratio - 1)
    return CostRow(network, classes, tier, batch, steps, row.base_ms, row.method_ms, round(extra, 2), round(noise, 2))


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
    titles = ["network", "data", "the paper", "ours ± noise", "step CE, ms", "batch", "status"]
    notes = "\n".join(f"* {note}" for note in suite["notes"])
    return f"{markdown(titles, body)}\n\n{notes}"


def _measured(paper: float, line: dict[str, str] | None) -> list[str]:
    if line is None:
        return ["", "", "", "not run here"]
    extra, noise = float(line["extra"]), float(line["noise"])
    ours = f"{extra:+.1f} ± {noise:.1f} %"
    return [ours, f"{float(line['base_ms']):.0f}", line["batch"], cost_status(paper, extra, noise)]
