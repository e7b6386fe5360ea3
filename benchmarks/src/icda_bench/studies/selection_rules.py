"""What each selection rule costs: the worst test group of the epoch it takes, beside the one that groups would take.

A training is run once. After each epoch the test split is evaluated too; no rule sees that, it is only looked up at the
epoch that a rule has chosen. The rule that is given the validation groups is the oracle the others are compared with.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from pathlib import Path
from statistics import mean
from typing import Any

from icda.selection import Selector
from icda.settings import check_names
from icda.training.config import TrainConfig
from icda.training.evaluation import evaluate_split
from icda.training.run import build, load_task, make_accelerator
from icda.training.trainer import Trainer
from icda_bench.markdown import grouped, markdown, numbers
from icda_bench.options import Root
from icda_bench.rows import Row, fill
from icda_bench.suites.suite import cell_config, load_suite

ORACLE = "validation_worst_group"
RULES = ("last", "validation_accuracy", "validation_worst_class", "validation_worst_pseudo_group", ORACLE)
METRICS = {
    "validation_accuracy": "accuracy",
    "validation_worst_class": "worst_class_accuracy",
    "validation_worst_pseudo_group": "worst_pseudo_group_accuracy",
    ORACLE: "worst_group_accuracy",
}


@dataclass
class Arguments:
    """Train rows of table 6 once each, and ask every selection rule which epoch it would have taken."""

    methods: tuple[str, ...] = ("cross_entropy", "logit_adjustment", "icda", "jtt", "xrm", "shortcut_prior")
    """Methods that read no groups."""
    tasks: tuple[str, ...] = ("digits_coloured",)
    """Tasks of table 6, tier cpu, with validation groups."""
    seeds: int = 3
    """Runs of each method on each task."""
    root: Root = None
    out: Path = Path("runs/selection")
    """Folder for the runs."""
    ledger: Path | None = None
    """CSV file that gets the rows of a run as soon as it is finished (benchmarks/results/selection.csv is ours), by default
    selection.csv in that folder; runs that it has are not made again."""


class WatchedTrainer(Trainer):
    """A trainer that also writes down the worst test group after each epoch."""

    seen: list[float]

    def _close_epoch(self, *given: Any) -> Any:
        record = super()._close_epoch(*given)
        metrics, _ = evaluate_split(self.method, self.models, self.task, self.task.test, self.accelerator)
        self.seen.append(float(metrics["worst_group_accuracy"]))
        return record


def compare_rules(config: TrainConfig) -> list[Row]:
    """Train once and ask every rule. The task must have validation groups; the method does not get to see them."""
    task = load_task(config)
    networks, method = build(config, task)
    trainer = WatchedTrainer(config, task, networks, method, config.folder(), make_accelerator(config.precision))
    trainer.seen = []
    trainer.run()
    history = [record.as_dict() for record in trainer.history]
    last_stage = history[-1]["stage"]
    begun = next(number for number, record in enumerate(history) if record["stage"] == last_stage)
    return rule_rows(history[begun:], trainer.seen[begun:], begun)


def selection_table(rows: Sequence[Row]) -> str:
    """For each task and rule, over methods and seeds: the mean worst group, and how far it lies below the oracle's.

    Last come all runs together, where there are several tasks.
    """
    by_task = grouped(rows, itemgetter("task"))
    body = [_mean(task, rule, mine) for task, mine in by_task.items() for rule in RULES]
    if len(by_task) > 1:
        body += [_mean("all", rule, rows) for rule in RULES]
    return markdown(["task", "rule", "worst group, %", "below the oracle", "runs"], body)


def _mean(task: str, rule: str, rows: Sequence[Row]) -> list[str]:
    mine = [row for row in rows if row["rule"] == rule]
    worst, below = (100 * mean(numbers(mine, name)) for name in ("worst_group_accuracy", "below_oracle"))
    return [task, rule, f"{worst:.1f}", f"{below:.1f}", str(len(mine))]


def rule_rows(history: Sequence[Mapping[str, Any]], seen: Sequence[float], begun: int) -> list[Row]:
    """A row for each rule, from the validation figures of a stage's epochs and the worst test group after each: the epoch
    that it takes, and that epoch's worst test group against the oracle's."""
    chosen = {rule: chosen_epoch(rule, history) for rule in RULES}
    worst = {rule: seen[epoch] for rule, epoch in chosen.items()}
    return [
        {
            "rule": rule,
            "epoch": epoch + begun,
            "worst_group_accuracy": round(worst[rule], 6),
            "below_oracle": round(worst[ORACLE] - worst[rule], 6),
        }
        for rule, epoch in chosen.items()
    ]


def chosen_epoch(rule: str, history: Sequence[Mapping[str, Any]]) -> int:
    """The position in `history` that a rule takes, by the selector that a training has."""
    if rule == "last":
        return len(history) - 1
    metric, selector = METRICS[rule], Selector(rule)
    for number, record in enumerate(history):
        value = record[f"validation_{metric}"]
        figures = {metric: -1.0 if value is None else value, "accuracy": record["validation_accuracy"]}
        selector.update(number, figures)
    assert selector.best_epoch is not None
    return selector.best_epoch


def run(options: Arguments) -> None:
    """Seed 0 of everything first; settings are those of table 6, tier cpu."""
    suite = load_suite("table6")
    places = {column.places["cpu"].task: column for column in suite.columns if "cpu" in column.places}
    known = {row.method: row for row in reversed(suite.rows) if row.method is not None}
    check_names(options.methods, known, "icda bench selection", "method")
    check_names(options.tasks, places, "icda bench selection", "task")

    def measure(task: str, method: str, seed: int) -> list[Row]:
        config = cell_config(suite, "cpu", places[task], known[method], seed)
        # Given the groups, which no method here reads, so that the oracle rule can be asked too.
        asked = {"attributes": "known", "selection": "validation_worst_pseudo_group", "root": options.root}
        folder = options.out / task / method / f"seed{seed}"
        return compare_rules(replace(config, **asked, out=str(folder)))  # type: ignore[arg-type]

    cells = (
        (task, method, seed) for seed in range(options.seeds) for task in options.tasks for method in options.methods
    )
    out = options.ledger or options.out / "selection.csv"
    print(selection_table(fill(out, ("task", "method", "seed"), cells, measure, machine=True)))
