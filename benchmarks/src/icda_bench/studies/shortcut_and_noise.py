"""Whether the sign of learned strengths tells a wrong label from a sample that contradicts a shortcut.

On coloured digits of which a fifth have wrong labels, wrong labels should be withdrawn and right ones that contradict the
colour should be pushed. Both look alike to a network that answers with the colour.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from icda.explain.passes import run_pass
from icda.explain.strengths import sample_strengths
from icda.training import TrainConfig, train
from icda.training.run import load_folder
from icda.training.sample_figures import auroc, minority
from icda_bench.markdown import grouped, markdown, percent, spread
from icda_bench.rows import fill

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
    """Train on digits with a shortcut and wrong labels at once; trainings that the file holds are not run again."""

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


def shortcut_and_noise_table(rows: Sequence[ShortcutAndNoiseRow]) -> str:
    """Accuracy and worst group, and both AUROCs, by form."""
    by_form, body = grouped(rows, lambda row: row.form), []
    for form in (name for name in FORMS if name in by_form):
        mine = by_form[form]
        areas = [[getattr(row, name) for row in mine] for name in ("withdraws_wrong", "pushes_minority")]
        shown = ("" if math.isnan(part[0]) else spread(part, digits=2) for part in areas)
        body.append([FORMS[form], percent(mine, "accuracy"), percent(mine, "worst_group"), *shown])
    titles = ["method", "accuracy", "worst group", "AUROC of a low strength for wrong labels"]
    return markdown([*titles, "AUROC of a high one for right labels that contradict the colour"], body)


def run(options: Arguments) -> None:
    cells = [(form, seed) for seed in range(options.seeds) for form in FORMS]
    measure = partial(measure_one, epochs=options.epochs)
    print(shortcut_and_noise_table(fill(options.out, ShortcutAndNoiseRow, cells, measure)))
