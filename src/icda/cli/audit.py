"""`icda audit`"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from icda.auditing import Audit, audit
from icda.auditing.console import overview
from icda.cli.audit_files import Wanted, read_audit_data
from icda.errors import InputError


@dataclass
class AuditArguments:
    """Find samples tied to a wrong class, doubtful labels and long tails, before any group label exists."""

    data: tyro.conf.Positional[Path]
    """A file of `icda embed`, another .npz, a .csv with a column a feature, or an .npy beside --labels LABELS.npy."""
    out: Path | None = None
    """Folder for audit.csv (all samples), audit.json and audit.html; by default only the summary is printed."""
    features: str | None = None
    """Array of the .npz with the features; guessed from common names if not given."""
    labels: Annotated[str | None, tyro.conf.arg(aliases=["--label-column"])] = None
    """Array, CSV column, or .npy file with the labels; guessed from common names if not given."""
    names: Annotated[str | None, tyro.conf.arg(aliases=["--name-column"])] = None
    """Array or CSV column with ids, paths or texts to show beside ranks; guessed from common names if not given."""
    where: tuple[str, ...] = ()
    """Keep only rows in which an array or column has a value: --where split=train; several must all hold."""
    top: int = 10
    """Rows of each ranking on the terminal; the page has at least 50."""
    folds: int = 5
    """Parts the data is cut into; each is judged by heads fitted to the others."""
    repeats: int = 1
    """Ways of cutting it; more make ranks steadier and cost as many times the time."""
    seed: int = 0
    """Seed of the cuts."""
    inverse_decay: float | None = None
    """C of the heads, as in LogisticRegression; by default 1000 / (samples x features)."""
    cleanlab: bool = False
    """Mark doubtful labels by cleanlab's rule instead of ours (extra: audit)."""


def main(arguments: Sequence[str]) -> int:
    given = tyro.cli(AuditArguments, args=list(arguments), prog="icda audit")
    if given.top < 0:
        raise InputError(f"--top is {given.top}, wanted 0 or more.")
    if given.out is not None and given.out.exists() and not given.out.is_dir():
        raise InputError(f"--out is {given.out}, which is a file: wanted a folder.")
    wanted = Wanted(given.features, given.labels, given.names, given.where)
    data = read_audit_data(given.data.expanduser(), wanted)
    found = audit(
        data.features,
        data.labels,
        class_names=data.class_names,
        sample_names=data.names,
        C=given.inverse_decay,
        folds=given.folds,
        repeats=given.repeats,
        seed=given.seed,
        use_cleanlab=given.cleanlab,
    )
    found = replace(found, notes=[*data.notes, *found.notes])
    console = Console()
    console.print(overview(found, given.top))
    if given.out is not None:
        written = _write(found, given.out, given.top)
        console.print(f"Written: {', '.join(map(str, written))}", highlight=False, markup=False, soft_wrap=True)
    return 0


def _write(found: Audit, folder: Path, top: int) -> list[Path]:
    return [
        found.to_csv(folder / "audit.csv"),
        found.to_json(folder / "audit.json"),
        found.to_html(folder / "audit.html", max(top, 50)),
    ]
