"""Tables made from ledgers alone: small tasks, and what the committed runs cost."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from icda_bench.ledger import CELL, read_ledger
from icda_bench.markdown import markdown, spread
from icda_bench.rows import read_table
from icda_bench.suites.suite import SUITES

SHORT_NAMES = {
    "cross_entropy": "CE",
    "logit_adjustment": "LA",
    "isda": "ISDA",
    "risda": "RISDA",
    "icda": "ICDA",
    "meta_weight_net": "Meta-Weight-Net",
    "metasaug": "MetaSAug",
    "lsda": "LSDA",
    "meta_icda": "Meta-ICDA",
    "meta_icda_signed": "Meta-ICDA, signed",
    "shortcut_prior": "Shortcut prior",
    "robust": "robust",
    "twin_labels": "Twin labels",
}
SMALL_TASKS = {
    "digits_lt": ("long tail, accuracy", "accuracy"),
    "digits_flip_noise": ("40 % wrong labels, accuracy", "accuracy"),
    "digits_coloured": ("spurious colour, worst group", "worst_group_accuracy"),
    "digits": ("clean, accuracy", "accuracy"),
}
STUDIES = {  # of heads on features: what makes a row another cell rather than another seed of the same one
    "embeddings": ("set", "attribute", "method", "selection"),
    "tail_features": ("set", "method"),
}
TITLES = ["table", "tier", "runs", "seeds", "hours, one core", "machine", "torch", "code"]


def small_tasks_table(rows: Sequence[Mapping[str, str]]) -> str:
    """What `icda demo` and `icda bench meta` measured: mean ± standard deviation over seeds, in per cent."""

    def figure(task: str, method: str, metric: str) -> str:
        mine = [row[metric] for row in rows if (row["task"], row["method"]) == (task, method) and row[metric]]
        return spread([100 * float(value) for value in mine], digits=1)

    methods = sorted({row["method"] for row in rows}, key=list(SHORT_NAMES).index)
    known = {row["task"] for row in rows}
    columns = [(task, title, metric) for task, (title, metric) in SMALL_TASKS.items() if task in known]
    body = [[SHORT_NAMES[method], *(figure(task, method, metric) for task, _, metric in columns)] for method in methods]
    return markdown(["method", *(title for _, title, _ in columns)], body)


def ledger_cost_table(results: Path) -> str:
    """One line per table and tier: cells, seeds of a cell, hours of all cells one after another, machine, torch, code.

    Hours are those that passed while cells were trained, often beside other work: more than an idle core needs.
    """
    body = []
    for name in SUITES:
        path = results / f"{name}.csv"
        rows = read_ledger(path) if path.exists() else []
        for tier in sorted({row["tier"] for row in rows}):
            body.append([name, tier, *_cost([row for row in rows if row["tier"] == tier], CELL)])
    for name, cell in STUDIES.items():
        path = results / f"{name}.csv"
        if path.exists():
            body.append([name.replace("_", "-"), "", *_cost(_study_rows(path), cell)])
    return markdown(TITLES, body)


def _study_rows(path: Path) -> list[dict[str, str]]:
    return [{**row, "machine": f"{row['processor']}, {row['cores']} cores"} for row in read_table(path)]


def _cost(rows: Sequence[Mapping[str, str]], cell: Iterable[str]) -> list[str]:
    names = tuple(cell)
    seeds = Counter(tuple(row[name] for name in names) for row in rows)
    least, most = min(seeds.values()), max(seeds.values())
    hours = sum(float(row["seconds"]) for row in rows) / 3600
    machines, versions = (", ".join(sorted({row[name] for row in rows})) for name in ("machine", "torch"))
    codes = ", ".join(sorted({row["code"][:7] or "no hash" for row in rows}))
    counted = str(most) if least == most else f"{least} to {most}"
    return [str(len(rows)), counted, f"{hours:.1f}", machines, versions, codes]
