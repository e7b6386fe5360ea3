"""The paper's figures from trained runs: one picture file each, with its numbers in a CSV beside it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from icda.data.task import Batch, Task
from icda.errors import InputError
from icda.explain import margins as measures
from icda.explain.counterfactual import AUGMENTATIONS, TiedSamples
from icda.explain.grad_cam import HeatMaps, grad_cam
from icda.explain.pictures import heat_overlay, pixels_of, require_pictures
from icda.explain.plots import PictureCell, draw_grid, plot_margins, plot_variances, with_centre_box
from icda.methods.base import Method
from icda.models.base import FeatureClassifier
from icda.results.files import replacing, replacing_text
from icda.results.foreign_text import write_csv
from icda.settings import check_names

SUFFIXES = (".png", ".pdf", ".svg")
SMALL_MARGIN = 1.0
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
NEIGHBOURS_SHOWN = 2
Rows = list[dict[str, Any]]
Drawn = tuple[Any, dict[str, Rows]]  # a figure, and its tables by the ends of their file names


@dataclass(frozen=True)
class TrainedRun:
    """A finished run as the figures need it; `label` names it in the legend."""

    label: str
    task: Task
    networks: Sequence[FeatureClassifier]
    method: Method
    history: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True)
class FigureOptions:
    """What a figure looks at: which split, how many pictures, how many samples to measure, by which seed."""

    split: str = "test"
    samples: int = 8
    measured: int = 200
    seed: int = 0
    layer: str | None = None
    limit: int = 4096


def make_figure(
    name: str, runs: Sequence[TrainedRun], out: str | Path, options: FigureOptions | None = None
) -> list[Path]:
    """Draw a figure of runs of one task as .png, .pdf or .svg; returns the files written, the picture first."""
    out = Path(out)
    check_names([name], FIGURES, "icda", "figure")
    check_suffix(out)
    first = runs[0].task
    for run in runs[1:]:
        if run.task.name != first.name or run.task.data_hash != first.data_hash:
            raise InputError(
                f"runs of one figure must share their data: {runs[0].label!r} is of task {first.name!r}, "
                f"{run.label!r} of {run.task.name!r} (or of another data seed)."
            )
    if len({run.label for run in runs}) < len(runs):
        raise InputError(f"runs of one figure need different labels, got {', '.join(run.label for run in runs)}.")
    figure, tables = FIGURES[name](runs, options or FigureOptions())
    with replacing(out) as picture:
        figure.savefig(picture, format=out.suffix[1:].lower())
    written = [out]
    for suffix, rows in tables.items():
        path = out.with_name(f"{out.stem}{suffix}.csv")
        with replacing_text(path) as file:
            write_csv(file, list(rows[0]), rows)
        written.append(path)
    return written


def check_suffix(out: Path) -> None:
    if out.suffix.lower() not in SUFFIXES:
        raise InputError(f"a figure is written as {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}, got {str(out)!r}.")


def _margins(runs: Sequence[TrainedRun], options: FigureOptions) -> Drawn:
    values, distances, summary = {}, {}, []
    for run in runs:
        seen = measures.run_pass(run.method, run.networks, measures.named_split(run.task, options.split))
        values[run.label] = measures.margins(seen.logits, seen.targets)
        distances[run.label] = measures.sample_distances(seen.logits, seen.targets, seen.weight)
        summary += _margin_summary(run, seen, values[run.label], distances[run.label])
    title = f"{runs[0].task.name}, {options.split} split: how far from being wrong"
    figure, rows = plot_margins(values, distances, title)
    return figure, {"": rows, "_summary": summary}


def _margin_summary(run: TrainedRun, seen: measures.Pass, values: Tensor, distances: Tensor) -> Rows:
    """Quantiles and shares of margins, over all samples, each class and each group."""
    adjusted = measures.adjusted_margins(run.method, seen)
    parts = {"all": torch.ones(len(seen), dtype=torch.bool)}
    parts |= {f"class {run.task.class_name(c)}": seen.targets == c for c in range(run.task.num_classes)}
    if seen.groups is not None:
        parts |= {f"group {name}": seen.groups == g for g, name in enumerate(run.task.group_names or ())}
    rows = []
    for name, chosen in parts.items():
        own = values[chosen]
        if not len(own):
            continue
        quantiles = own.double().quantile(torch.tensor(QUANTILES, dtype=torch.float64)).tolist()
        figures = {
            "mean": own.mean(),
            **{f"p{100 * q:.0f}": value for q, value in zip(QUANTILES, quantiles, strict=True)},
            "share_wrong": (own < 0).double().mean(),
            f"share_right_below_{SMALL_MARGIN:g}": ((own >= 0) & (own < SMALL_MARGIN)).double().mean(),
            "mean_distance": distances[chosen].mean(),
            "mean_with_adjustment": "" if adjusted is None else adjusted[chosen].mean(),
        }
        formatted = {key: value if value == "" else f"{float(value):.5g}" for key, value in figures.items()}
        rows.append({"run": run.label, "part": name, "samples": len(own), **formatted})
    return rows


def _variances(runs: Sequence[TrainedRun], options: FigureOptions) -> Drawn:
    figures = {}
    for run in runs:
        positions = measures.subsample(run.task.train, options.limit, options.seed)
        seen = measures.run_pass(run.method, run.networks, run.task.train, positions)
        figures[run.label] = measures.variance_figures(seen, run.history) | {
            "logged": measures.logged_variances(run.history)
        }
    figure, rows = plot_variances(figures, f"Mapped variances on {runs[0].task.name}, training split")
    return figure, {"": rows}


def _gradcam(runs: Sequence[TrainedRun], options: FigureOptions) -> Drawn:
    """Heat of each run's prediction on the same samples; the tables hold all measured samples, and means by group."""
    task = runs[0].task
    require_pictures(task, "the figure gradcam")
    split = measures.named_split(task, options.split)
    positions = measures.balanced_sample(split, max(options.samples, options.measured), options.seed)
    batch = split.batch(positions)
    labels, names = _kinds(task, batch)
    # As many of each kind as there can be, in the order of the sample.
    shown = measures.in_turns(labels)[: options.samples].sort().values
    pixels = pixels_of(split, batch.inputs[shown])
    sources = [PictureCell(image, names[int(labels[place])]) for image, place in zip(pixels, shown, strict=True)]
    grid: list[tuple[str, list[PictureCell]]] = [("picture", sources)]
    rows: Rows = []
    summary: Rows = []
    for run in runs:
        maps = grad_cam(run.networks[0], batch.inputs, layer=options.layer)
        said, shares = maps.predicted[shown], maps.centre_share[shown]
        words = ["–" if share.isnan() else f"{100 * float(share):.0f} %" for share in shares]
        captions = [f"{task.class_name(int(c))}, {word} centre" for c, word in zip(said, words, strict=True)]
        good = (said == batch.targets[shown]).tolist()
        heats = (with_centre_box(heat_overlay(*pair)) for pair in zip(pixels, maps.heat[shown], strict=True))
        grid.append((run.label, [PictureCell(*cell) for cell in zip(heats, captions, good, strict=True)]))
        rows += _heat_rows(run.label, task, batch, maps)
        summary += _heat_summary(run.label, task, batch, maps)
    note = "Heat of the predicted class; blue: right, orange: wrong. Even heat has 25 % in the centre box."
    figure = draw_grid(grid, f"Grad-CAM on {task.name}, {options.split} split", note)
    return figure, {"": rows, "_summary": summary}


def _kinds(task: Task, batch: Batch) -> tuple[Tensor, Sequence[str]]:
    """The group of each sample and the groups' names; classes where there are no groups."""
    if batch.groups is None or task.group_names is None:
        return batch.targets, task.class_names
    return batch.groups, task.group_names


def _heat_rows(label: str, task: Task, batch: Batch, maps: HeatMaps) -> Rows:
    return [
        {
            "run": label,
            "index": int(batch.index[place]),
            "target": task.class_name(int(batch.targets[place])),
            "group": "" if batch.groups is None else (task.group_names or ())[int(batch.groups[place])],
            "prediction": task.class_name(int(maps.predicted[place])),
            "centre_share": "" if share != share else f"{share:.5f}",
        }
        for place, share in enumerate(maps.centre_share.tolist())
    ]


def _heat_summary(label: str, task: Task, batch: Batch, maps: HeatMaps) -> Rows:
    """Mean share of heat on the centre box with its standard error, overall and by group (by class without groups)."""
    labels, names = _kinds(task, batch)
    parts = {"all": torch.ones_like(labels, dtype=torch.bool)} | {name: labels == n for n, name in enumerate(names)}
    rows = []
    for name, chosen in parts.items():
        shares = maps.centre_share[chosen]
        warm = shares[~shares.isnan()]
        rows.append(
            {
                "run": label,
                "part": name,
                "samples": int(chosen.sum()),
                "without_heat": int(shares.isnan().sum()),
                "accuracy": f"{(maps.predicted == batch.targets)[chosen].double().mean():.4f}",
                "mean_centre_share": f"{warm.mean():.4f}" if len(warm) else "",
                "standard_error": f"{warm.std() / len(warm) ** 0.5:.4f}" if len(warm) > 1 else "",
                "layer": maps.layer,
            }
        )
    return rows


def _counterfactual(runs: Sequence[TrainedRun], options: FigureOptions) -> Drawn:
    """The most tied training samples of a run under ISDA, RISDA and ICDA, with the real neighbours of ICDA's feature."""
    if len(runs) > 1:
        raise InputError(
            f"the counterfactual figure shows one network's feature space, got {len(runs)} runs: give one run."
        )
    run, task = runs[0], runs[0].task
    require_pictures(task, "the figure counterfactual")
    seen = measures.run_pass(
        run.method, run.networks, task.train, measures.subsample(task.train, options.limit, options.seed)
    )
    tied = TiedSamples.of(task, seen, measures.sample_strengths(run.method, seen), options.samples)
    lam = measures.augmentation_strength(run.method)
    pairs = zip(tied.targets.tolist(), tied.towards.tolist(), strict=True)
    ties = [f"{task.class_name(y)} → {task.class_name(c)}" for y, c in pairs]
    grid = [("source → towards", [PictureCell(*cell) for cell in zip(tied.pixels, ties, strict=True)])]
    rows: Rows = []
    for kind in AUGMENTATIONS:
        aims, made, errors, near = tied.moved(run.networks[0], kind, lam, options.seed)
        captions = [f"error {error:.2f}" for error in errors.tolist()]
        grid.append((kind.upper(), [PictureCell(*cell) for cell in zip(made, captions, strict=True)]))
        rows += _counterfactual_rows(kind, tied, aims, made, errors, near)
    for rank, places in enumerate(near.T[:NEIGHBOURS_SHOWN], start=1):  # of the last augmentation, ICDA
        names = [task.class_name(int(y)) for y in seen.targets[places]]
        pixels = pixels_of(task.train, task.train.batch(seen.index[places]).inputs)
        grid.append((f"ICDA, real {rank}", [PictureCell(*cell) for cell in zip(pixels, names, strict=True)]))
    note = "error: distance left to the augmented feature, as a share of the way. Neighbours are real training images."
    figure = draw_grid(grid, f"Counterfactual features of {run.label} on {task.name}, back in pixels", note)
    return figure, {"": rows}


def _counterfactual_rows(
    kind: str, tied: TiedSamples, aims: Tensor, made: Tensor, errors: Tensor, near: Tensor
) -> Rows:
    task, seen = tied.task, tied.seen
    features = seen.features[tied.places]
    moved = (aims - features).norm(dim=1) / features.norm(dim=1).clamp(min=1e-12)
    changes = (made - tied.pixels).abs().flatten(1).mean(1)
    return [
        {
            "augmentation": kind,
            "index": int(tied.index[number]),
            "target": task.class_name(int(tied.targets[number])),
            "towards": task.class_name(int(tied.towards[number])),
            "strength": f"{tied.strengths[number]:.4f}",
            "relative_move": f"{moved[number]:.4f}",
            "feature_error": f"{errors[number]:.4f}",
            "mean_pixel_change": f"{changes[number]:.4f}",
            "nearest_real": " ".join(str(int(seen.index[n])) for n in near[number]),
            "nearest_real_targets": "; ".join(task.class_name(int(seen.targets[n])) for n in near[number]),
        }
        for number in range(len(tied))
    ]


FIGURES: dict[str, Callable[[Sequence[TrainedRun], FigureOptions], Drawn]] = {
    "margins": _margins,
    "variance": _variances,
    "gradcam": _gradcam,
    "counterfactual": _counterfactual,
}
