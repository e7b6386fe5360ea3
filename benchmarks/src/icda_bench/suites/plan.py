"""What a table still lacks and what that will cost: by its ledger, without training anything."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean

from icda.training.config import finished_result
from icda_bench.ledger import IDENTITY, cell_columns, read_ledger
from icda_bench.markdown import columns, grouped, markdown
from icda_bench.suites.suite import SUITES, Cell, Suite, cells, load_suite

LedgerRow = Mapping[str, str]
Place = tuple[str, str]  # a task and a network
BASE = "cross_entropy"  # what a method's cost is compared with


def neighbouring_ledgers(path: Path) -> list[LedgerRow]:
    """The rows of a ledger and of the other tables' in its folder, which may share cells with it; its own come last."""
    others = [path.with_name(f"{name}.csv") for name in SUITES]
    return [row for ledger in (*others, path) if ledger.exists() for row in read_ledger(ledger)]


def in_ledger(cells: Sequence[Cell], rows: Sequence[LedgerRow]) -> dict[int, LedgerRow]:
    """Ledger rows of cells, by the cells' numbers: same tier, same hash of all settings that shape the figures."""
    by_hash = {(row["tier"], row["config_hash"]): row for row in rows}
    places = {number: (cell.tier, cell.config.hash()) for number, cell in enumerate(cells)}
    return {number: by_hash[place] for number, place in places.items() if place in by_hash}


class CostEstimate:
    """Core seconds of cells, from the seconds in a ledger.

    A method that was run on a cell's task and network takes as long per epoch as it did there. Another one takes what
    the others took there times its factor: how much longer than cross entropy it took on the ledger's other tasks.
    Where nothing was run on the task, the column or the tier may say what a cell of cross entropy costs (`cell_seconds`).
    """

    def __init__(self, suite: Suite, rows: Sequence[LedgerRow]) -> None:
        self._suite = suite
        runs = grouped((row for row in rows if row.get("seconds")), columns("task", "model", "method"))
        self._seconds: dict[Place, dict[str, float]] = defaultdict(dict)  # of an epoch, by place and method
        for (task, model, method), mine in runs.items():
            self._seconds[task, model][method] = mean(float(row["seconds"]) / int(row["epochs"]) for row in mine)
        ratios: dict[str, list[float]] = defaultdict(list)  # to cross entropy, where both were run
        for methods in self._seconds.values():
            for method, seconds in methods.items() if BASE in methods else ():
                ratios[method].append(seconds / methods[BASE])
        self._factors = {method: mean(values) for method, values in ratios.items()}

    def seconds(self, cell: Cell) -> float | None:
        """Core seconds of one cell; None where nothing says anything about it."""
        config = cell.config
        own = self._seconds.get((config.task, config.model or ""), {})
        if config.method in own:
            return own[config.method] * config.epochs
        factor = self._factors.get(config.method, 1.0)
        if own:
            base = mean(value / self._factors.get(method, 1.0) for method, value in own.items())
            return base * factor * config.epochs
        given = self._suite.column(cell.column).places[cell.tier].cell_seconds
        return None if given is None else given * factor

    def text(self, cells: Sequence[Cell]) -> str:
        """What cells cost together, in core minutes."""
        every = [self.seconds(cell) for cell in cells]
        known = [value for value in every if value is not None]
        if not known:
            return "nothing in the ledger says how long they take" if cells else "nothing to wait for"
        unknown = len(every) - len(known)
        return f"about {sum(known) / 60:.0f} core minutes" + (f", without {unknown} of unknown cost" if unknown else "")


def plan_lines(
    suite: Suite, cells: Sequence[Cell], rows: Sequence[LedgerRow], skipped: Mapping[int, LedgerRow]
) -> list[str]:
    """One line per cell (in the ledger, done in its folder, or open with its cost), and one for all of them."""
    cost, lines, waiting = CostEstimate(suite, rows), [], []
    for number, cell in enumerate(cells):
        state = "ledger" if number in skipped else "done" if finished_result(cell.config) is not None else "open"
        seconds = cost.seconds(cell) if state == "open" else None
        waiting += [cell] if state == "open" else []
        about = "" if seconds is None else f"  about {seconds:.0f} s"
        lines.append(f"{state:<6}  {cell.label()}  {cell.config.folder()}{about}")
    done = len(cells) - len(waiting)
    return [*lines, f"{len(cells)} cells: {done} done, {len(waiting)} to run, {cost.text(waiting)}"]


def open_table(results: Path) -> str:
    """What suites plan and ledgers lack, by table, tier and column: how many runs, which rows have none, core minutes.

    A row has its runs when it has as many seeds as the suite says, whichever they are. Tier `paper` is left out.
    """
    body = []
    for suite in map(load_suite, SUITES):
        rows = neighbouring_ledgers(results / f"{suite.name}.csv")
        runs = {tuple(row[name] for name in IDENTITY) for row in rows}  # tables share some
        cost, done = CostEstimate(suite, rows), Counter(run[:-1] for run in runs)
        for tier in (tier for tier in ("cpu", "long") if tier in suite.tiers):
            for key, planned in grouped(cells(suite, tier, "runs/bench"), lambda cell: cell.column).items():
                same = grouped(planned, lambda cell: (cell.tier, *cell_columns(cell.config).values()))
                lacking = [cell for place, seeds in same.items() for cell in seeds[done[place] :]]
                if lacking:
                    begun = {seeds[0].row for place, seeds in same.items() if done[place]}
                    rest = dict.fromkeys(suite.row(cell.row).title for cell in lacking if cell.row not in begun)
                    open_runs, minutes = f"{len(lacking)} of {len(planned)}", cost.text(lacking)
                    place = (f"`{suite.name}`", tier, suite.column(key).title)
                    body.append([*place, open_runs, " · ".join(rest), minutes])
    return markdown(["table", "tier", "column", "runs open", "rows without a run", "cost"], body)
