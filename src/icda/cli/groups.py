"""All groups of a result with their sizes, for `icda eval` and `icda train`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from icda.results import RunResult

SHOWN = 50


def group_table(result: RunResult) -> Table | None:
    """Every group with its size, the worst first; one that is too small to judge is shown as such. None without groups."""
    from icda.metrics.figures import FEWEST
    from icda.report.formatting import percent

    shares = (result.metrics or {}).get("per_group_accuracy") or {}
    sizes = dict(zip(result.group_names or (), result.group_samples or (), strict=False))
    rows = [(name, sizes[name], share) for name, share in shares.items() if share is not None and sizes.get(name)]
    if not rows:
        return None
    rows.sort(key=lambda row: (row[1] < FEWEST, row[2], row[0]))
    more = f", the worst {SHOWN} of {len(rows)}" if len(rows) > SHOWN else ""
    table = Table(title=f"groups (class x attribute){more}", title_justify="left")
    for name in ("group", "samples", "right"):
        table.add_column(name, justify="left" if name == "group" else "right", overflow="fold")
    for name, count, share in rows[:SHOWN]:
        shown = percent(share) if count >= FEWEST else f"{percent(share)} (too few to judge)"
        table.add_row(Text(name), str(count), Text(shown))
    return table
