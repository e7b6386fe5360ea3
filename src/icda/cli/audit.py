"""`icda audit`"""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from icda.auditing import Audit, audit
from icda.auditing.console import overview
from icda.cli.output import check_jobs, check_seed, say, tell
from icda.data.embedding.origin import find_inputs
from icda.data.embedding.samples import Columns
from icda.data.own.feature_files import read_features
from icda.errors import InputError
from icda.results.claims import claimed, renewed
from icda.terminal import make_console

FILES = ("audit.csv", "audit.json", "audit.html")


@dataclass
class AuditArguments:
    """Find samples tied to a wrong class, doubtful labels and long tails, before any group label exists."""

    data: tyro.conf.Positional[Path]
    """A file of `icda embed`, another .npz, a .csv of numbers, a .parquet, or an .npy beside --labels LABELS.npy."""
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
    show: Path | None = None
    """Folder or table that `icda embed` read, for pictures or texts on the page; found by itself if it lies here."""
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
    on: Literal["local", "blocks", "ray"] = "local"
    """local (in memory); blocks or ray: an .npy, .npz or Parquet folder whose rows stay on disk."""
    jobs: int | None = None
    """With --on ray: processes of a Ray on this machine, by default all cores; RAY_ADDRESS names a cluster instead."""
    rounds: int = 4
    """With --on blocks or ray: rounds of robust heads behind a tie; 0 is faster, and the tie is a plain margin."""
    rows: Literal["csv", "parquet"] = "csv"
    """With --on blocks or ray: files in OUT/rows, one per block."""

    def columns(self) -> Columns:
        return Columns(features=self.features, labels=self.labels, names=self.names, where=self.where)

    def named(self) -> list[str]:
        """What the user named, as `icda fit` takes it; a split it knows by itself, and judges on the test part."""
        pairs = (("--features", self.features), ("--labels", self.labels), ("--names", self.names))
        words = [word for option, value in pairs if value is not None for word in (option, value)]
        chosen = [condition for condition in self.where if not condition.startswith("split=")]
        words += ["--on", self.on] if self.on != "local" else []
        return [*words, "--where", *chosen] if chosen else words


def main(arguments: Sequence[str]) -> int:
    options = tyro.cli(AuditArguments, args=list(arguments), prog="icda audit")
    if options.top < 0:
        raise InputError(f"--top is {options.top}, expected 0 or more.")
    if options.out is not None and options.out.exists() and not options.out.is_dir():
        raise InputError(f"--out is {options.out}, which is a file: expected a folder.")
    check_seed(options.seed)
    check_jobs("the audit", options.on, options.jobs)
    with nullcontext() if options.out is None else claimed(options.out.expanduser(), wait=False):
        return _audit(options)


def _audit(options: AuditArguments) -> int:
    if options.on == "local" and (options.rounds != AuditArguments.rounds or options.rows != AuditArguments.rows):
        raise InputError("--rounds and --rows are for --on blocks and --on ray: add one of them, or leave them out.")
    data = None if options.on != "local" else read_features(options.data.expanduser(), options.columns())
    if data is None:
        result = _audit_blocks(options)
    else:
        result = audit(
            data.features,
            data.labels,
            class_names=data.class_names,
            sample_names=None if isinstance(data.ids, range) else data.ids,
            C=options.inverse_decay,
            folds=options.folds,
            repeats=options.repeats,
            seed=options.seed,
            use_cleanlab=options.cleanlab,
        )
        result = replace(result, notes=[*data.notes, *result.notes])
    result = replace(result, settings={**result.settings, "data": str(options.data), "options": options.named()})
    make_console().print(overview(result, options.top))
    if options.out is None:
        return 0
    page: dict[str, Any] = {"top": max(options.top, 50 if data is not None else 100)}
    if data is not None:
        inputs = find_inputs(data.names, data.embedding, options.data.expanduser(), options.show)
        if inputs is None and (source := data.embedding.get("source")):
            tell(f"Not shown: {source}, which {options.data} names and which may be another's. --show PATH shows it.")
        page |= {} if inputs is None else {f"{inputs.kind}s": inputs.inputs}
    with renewed(options.out.expanduser(), FILES) as aside:
        result.to_json(aside / "audit.json")
        result.to_html(aside / "audit.html", **page)
        if data is not None:
            result.to_csv(aside / "audit.csv")
    rows = "rows" if data is None else "audit.csv"
    say(f"Written: {', '.join(str(options.out / name) for name in ('audit.json', 'audit.html', rows))}")
    return 0


def _audit_blocks(options: AuditArguments) -> Audit:
    from icda.auditing.rows import check_folder
    from icda.auditing.run import AuditSettings, audit_blocks
    from icda.data.own.blocks import find_blocks, number_kind
    from icda.engines import make_engine

    if options.cleanlab or options.show is not None or options.repeats != 1:
        raise InputError("--on blocks and --on ray have no --cleanlab, --show and --repeats: leave them out.")
    data = options.data.expanduser()
    # Absolute: a worker may stand in another folder.
    folder = None if options.out is None else (options.out.expanduser() / "rows").absolute()
    if folder is not None:
        check_folder(folder, data, options.rows)
    blocks = find_blocks(data, options.columns())
    settings = AuditSettings(
        options.inverse_decay,
        options.folds,
        options.rounds,
        options.seed,
        top=max(options.top, 100),
        dtype=number_kind(blocks[0]),
    )
    with make_engine("ray" if options.on == "ray" else "local", options.jobs) as engine:
        return audit_blocks(blocks, engine, settings, folder=folder, form=options.rows, say=tell)
