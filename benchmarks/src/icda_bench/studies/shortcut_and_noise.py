"""Whether the sign of learned strengths tells a wrong label from a sample that contradicts a shortcut.

    python -m icda_bench.studies.shortcut_and_noise --out benchmarks/results/shortcut_and_noise.csv

On coloured digits of which a fifth have wrong labels, wrong labels should be withdrawn and right ones that contradict the
colour should be pushed. Both look alike to a network that answers with the colour.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tyro

from icda.explain.passes import run_pass
from icda.explain.strengths import sample_strengths
from icda.training import TrainConfig, train
from icda.training.run import load_folder
from icda.training.sample_figures import auroc, minority
from icda_bench.markdown import markdown, spread
from icda_bench.studies.row_file import append_rows, read_row_file

TASK = "digits_coloured_noise"
FORMS = {"ce": "CE", "signed": "Meta-ICDA, signed", "held_out": "signed, with held-out networks"}
UNKNOWN = float("nan")


@dataclass(frozen=True)
class ShortcutAndNoiseRow:
    """Test figures of one training, and how well its strengths mark both kinds of samples (0.5 is chance)."""

    form: str
    seed: int
    accuracy: float
    worst_group: float
    withdraws_wrong: float  # AUROC of a low strength for wrong labels
    pushes_minority: float  # AUROC of a high strength, among right labels, for those that contradict the colour


@dataclass(frozen=True)
class Arguments:
    """Which trainings to run; those that the file holds already are not run again."""

    out: Path
    """CSV file; rows are added as they come."""
    seeds: int = 3
    """Seeds 0, 1, ..."""
    epochs: int = 30
    """Length of each training."""


def measure_one(form: str, seed: int, epochs: int) -> ShortcutAndNoiseRow:
    with tempfile.TemporaryDirectory() as place:
        options: dict[str, Any] = {}
        if form == "held_out":
            options = {"held_out": f"{place}/earlier"}
            earlier = TrainConfig(task=TASK, seed=seed, epochs=epochs, method="shortcut_prior", out=options["held_out"])
            train(replace(earlier, options={"form": "soft"}))
        method = "cross_entropy" if form == "ce" else "meta_icda_signed"
        config = TrainConfig(task=TASK, seed=seed, epochs=epochs, method=method, options=options, out=f"{place}/run")
        result = train(config)
        wrong, few = (UNKNOWN, UNKNOWN) if form == "ce" else separations(Path(place) / "run")
    assert result.metrics is not None, "a finished run has them"
    accuracy, worst_group = (float(result.metrics[name]) for name in ("accuracy", "worst_group_accuracy"))
    return ShortcutAndNoiseRow(form, seed, accuracy, worst_group, wrong, few)


def separations(folder: Path) -> tuple[float, float]:
    """Of the strengths that a trained model gives the training samples: for wrong labels, and for the minority."""
    _, task, networks, method = load_folder(folder)
    clean, groups = task.train.clean_targets, task.train.groups
    assert clean is not None, "the task of this study knows its wrong labels"
    assert groups is not None, "and its groups"
    strengths = sample_strengths(method, run_pass(method, networks, task.train)).per_sample.double()
    right = task.train.targets == clean
    few = minority(clean, groups)
    for_wrong, for_few = auroc(-strengths, ~right), auroc(strengths[right], few[right])
    return UNKNOWN if for_wrong is None else for_wrong, UNKNOWN if for_few is None else for_few


def measure(options: Arguments, known: Sequence[ShortcutAndNoiseRow]) -> Iterator[ShortcutAndNoiseRow]:
    have = {(row.form, row.seed) for row in known}
    for seed in range(options.seeds):
        for form in FORMS:
            if (form, seed) not in have:
                yield measure_one(form, seed, options.epochs)


def shortcut_and_noise_table(rows: Sequence[ShortcutAndNoiseRow]) -> str:
    """Accuracy and worst group, and both AUROCs, by form."""
    body = []
    for form in (name for name in FORMS if any(row.form == name for row in rows)):
        mine = [row for row in rows if row.form == form]
        points = [spread([100 * getattr(row, name) for row in mine], digits=1) for name in ("accuracy", "worst_group")]
        areas = [[getattr(row, name) for row in mine] for name in ("withdraws_wrong", "pushes_minority")]
        body.append([FORMS[form], *points, *("" if part[0] != part[0] else spread(part, digits=2) for part in areas)])
    return markdown(
        [
            "method",
            "accuracy",
            "worst group",
            "AUROC of a low strength for wrong labels",
            "AUROC of a high one for right labels that contradict the colour",
        ],
        body,
    )


def main(options: Arguments) -> None:
    append_rows(options.out, ShortcutAndNoiseRow, measure(options, read_row_file(options.out, ShortcutAndNoiseRow)))
    print(shortcut_and_noise_table(read_row_file(options.out, ShortcutAndNoiseRow)))


if __name__ == "__main__":
    main(tyro.cli(Arguments))
