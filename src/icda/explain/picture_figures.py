"""Grad-CAM of several runs side by side, and counterfactual pictures of several augmentations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from icda.errors import InputError
from icda.explain.counterfactual import (
    AUGMENTATIONS,
    NEIGHBOURS,
    FeatureSpace,
    Made,
    augment_towards,
    nearest_real,
    paint,
)
from icda.explain.grad_cam import HeatMaps, grad_cam
from icda.explain.grids import Cell, draw_grid, heat_cells
from icda.explain.passes import Pass, balanced_sample, named_split, run_pass, subsample
from icda.explain.pictures import has_pictures, normaliser_of, to_pixels
from icda.explain.strengths import augmentation_strength, most_tied, sample_strengths

if TYPE_CHECKING:
    from icda.data.task import Batch, Task
    from icda.explain.figures import FigureOptions, TrainedRun

Rows = list[dict[str, Any]]
NAMES = {"isda": "ISDA", "risda": "RISDA", "icda": "ICDA"}


def gradcam_figure(runs: Sequence[TrainedRun], options: FigureOptions) -> tuple[Any, dict[str, Rows]]:
    """Heat of each run's prediction on the same samples; the tables hold all measured samples, and means by group."""
    task = check_pictures(runs[0].task, "gradcam")
    split = named_split(task, options.split)
    positions = balanced_sample(split, max(options.samples, options.measured), options.seed)
    batch = split.batch(positions)
    shown = _spread(batch.targets if batch.groups is None else batch.groups, options.samples)
    pixels = to_pixels(batch.inputs[shown], normaliser_of(split))
    titles = [Cell(image, _kind(task, batch, place)) for image, place in zip(pixels, shown.tolist(), strict=True)]
    grid: list[tuple[str, list[Cell]]] = [("picture", titles)]
    rows: Rows = []
    summary: Rows = []
    for run in runs:
        maps = grad_cam(run.networks[0], batch.inputs, layer=options.layer)
        said, shares = maps.predicted[shown], maps.centre_share[shown]
        captions = [
            f"{task.class_name(int(c))}, {_percent(share)} centre" for c, share in zip(said, shares, strict=True)
        ]
        good = (said == batch.targets[shown]).tolist()
        grid.append((run.label, heat_cells(pixels, maps.heat[shown], captions, good)))
        rows += _heat_rows(run.label, task, batch, maps)
        summary += _heat_summary(run.label, task, batch, maps)
    note = "Heat of the predicted class; blue: right, orange: wrong. Even heat has 25 % in the centre box."
    figure = draw_grid(grid, f"Grad-CAM on {task.name}, {options.split} split", note)
    return figure, {"": rows, "_summary": summary}


def _heat_rows(label: str, task: Task, batch: Batch, maps: HeatMaps) -> Rows:
    rows = []
    for place, share in enumerate(maps.centre_share.tolist()):
        group = "" if batch.groups is None else (task.group_names or ())[int(batch.groups[place])]
        rows.append(
            {
                "run": label,
                "index": int(batch.index[place]),
                "target": task.class_name(int(batch.targets[place])),
                "group": group,
                "prediction": task.class_name(int(maps.predicted[place])),
                "centre_share": "" if share != share else f"{share:.5f}",
            }
        )
    return rows


def _heat_summary(label: str, task: Task, batch: Batch, maps: HeatMaps) -> Rows:
    """Mean share of heat on the centre box with its standard error, overall and by group (by class without groups)."""
    labels = batch.targets if batch.groups is None else batch.groups
    names = task.class_names if batch.groups is None else (task.group_names or ())
    parts = {"all": torch.ones_like(labels, dtype=torch.bool)} | {name: labels == n for n, name in enumerate(names)}
    rows = []
    for name, chosen in parts.items():
        shares = maps.centre_share[chosen]
        warm = shares[~shares.isnan()]
        error = warm.std() / len(warm) ** 0.5 if len(warm) > 1 else torch.tensor(torch.nan)
        rows.append(
            {
                "run": label,
                "part": name,
                "samples": int(chosen.sum()),
                "without_heat": int(shares.isnan().sum()),
                "accuracy": f"{(maps.predicted == batch.targets)[chosen].double().mean():.4f}",
                "mean_centre_share": "" if not len(warm) else f"{warm.mean():.4f}",
                "standard_error": "" if error.isnan() else f"{error:.4f}",
                "layer": maps.layer,
            }
        )
    return rows


@dataclass(frozen=True)
class _Tied:
    """The most tied training samples of a run: what is augmented, and in which feature space."""

    task: Task
    seen: Pass
    places: Tensor
    towards: Tensor
    strengths: Tensor
    inputs: Tensor
    pixels: Tensor

    @property
    def targets(self) -> Tensor:
        return self.seen.targets[self.places]

    @property
    def features(self) -> Tensor:
        return self.seen.features[self.places]


def counterfactual_figure(runs: Sequence[TrainedRun], options: FigureOptions) -> tuple[Any, dict[str, Rows]]:
    """The most tied training samples of a run under ISDA, RISDA and ICDA, with the real neighbours of ICDA's feature."""
    if len(runs) > 1:
        raise InputError(
            f"the counterfactual figure shows one network's feature space, got {len(runs)} runs: give one run."
        )
    run = runs[0]
    tied = _find_tied(run, options)
    task, space = tied.task, FeatureSpace.of(tied.seen)
    lam = augmentation_strength(run.method)
    ties = [
        f"{task.class_name(int(y))} → {task.class_name(int(c))}"
        for y, c in zip(tied.targets, tied.towards, strict=True)
    ]
    grid = [("source → towards", [Cell(image, tie) for image, tie in zip(tied.pixels, ties, strict=True)])]
    rows: Rows = []
    for kind in AUGMENTATIONS:
        aims = augment_towards(
            kind, tied.features, tied.targets, tied.towards, tied.strengths, space, lam, options.seed
        )
        painted = paint(run.networks[0], tied.inputs, aims, normaliser_of(task.train))
        near = nearest_real(aims, tied.seen.features, NEIGHBOURS, without=tied.places)
        captions = [f"error {error:.2f}" for error in painted.feature_error.tolist()]
        grid.append((NAMES[kind], [Cell(image, text) for image, text in zip(painted.pixels, captions, strict=True)]))
        rows += _counterfactual_rows(kind, tied, aims, painted, near)
    grid += _neighbour_rows(task, tied.seen.index[near], tied.seen.targets[near])
    note = "error: distance left to the augmented feature, as a share of the way. Neighbours are real training images."
    figure = draw_grid(grid, f"Counterfactual features of {run.label} on {task.name}, back in pixels", note)
    return figure, {"": rows}


def _find_tied(run: TrainedRun, options: FigureOptions) -> _Tied:
    split = check_pictures(run.task, "counterfactual").train
    seen = run_pass(run.method, run.networks, split, subsample(split, options.limit, options.seed))
    places, towards, strengths = most_tied(sample_strengths(run.method, seen), options.samples)
    inputs = split.batch(seen.index[places]).inputs
    return _Tied(run.task, seen, places, towards, strengths, inputs, to_pixels(inputs, normaliser_of(split)))


def _counterfactual_rows(kind: str, tied: _Tied, aims: Tensor, painted: Made, near: Tensor) -> Rows:
    task, seen = tied.task, tied.seen
    moved = (aims - tied.features).norm(dim=1) / tied.features.norm(dim=1).clamp(min=1e-12)
    changes = (painted.pixels - tied.pixels).abs().flatten(1).mean(1)
    return [
        {
            "augmentation": kind,
            "index": int(seen.index[place]),
            "target": task.class_name(int(tied.targets[number])),
            "towards": task.class_name(int(tied.towards[number])),
            "strength": f"{tied.strengths[number]:.4f}",
            "relative_move": f"{moved[number]:.4f}",
            "feature_error": f"{painted.feature_error[number]:.4f}",
            "mean_pixel_change": f"{changes[number]:.4f}",
            "nearest_real": " ".join(str(int(seen.index[n])) for n in near[number]),
            "nearest_real_targets": "; ".join(task.class_name(int(seen.targets[n])) for n in near[number]),
        }
        for number, place in enumerate(tied.places.tolist())
    ]


def _neighbour_rows(task: Task, positions: Tensor, targets: Tensor, ranks: int = 2) -> list[tuple[str, list[Cell]]]:
    """Rows of the nearest real samples of the last augmentation, one row per rank."""
    rows = []
    for rank in range(min(ranks, positions.shape[1])):
        pixels = to_pixels(task.train.batch(positions[:, rank]).inputs, normaliser_of(task.train))
        cells = [Cell(image, task.class_name(int(y))) for image, y in zip(pixels, targets[:, rank], strict=True)]
        rows.append((f"ICDA, real {rank + 1}", cells))
    return rows


def check_pictures(task: Task, figure: str) -> Task:
    """The task itself, if it is one of images."""
    if not has_pictures(task):
        raise InputError(
            f"the figure {figure} needs images, but the samples of task {task.name!r} are {task.input_kind} of shape "
            f"{task.input_shape}."
        )
    return task


def _spread(labels: Tensor, count: int) -> Tensor:
    """`count` places spread evenly over sorted labels: as many of each as there can be."""
    per_label = [(labels == label).nonzero().flatten() for label in torch.unique(labels)]
    ranked = [places[rank : rank + 1] for rank in range(max(map(len, per_label))) for places in per_label]
    return torch.cat(ranked)[:count].sort().values


def _kind(task: Task, batch: Batch, place: int) -> str:
    if batch.groups is None or task.group_names is None:
        return task.class_name(int(batch.targets[place]))
    return task.group_names[int(batch.groups[place])]


def _percent(share: Tensor) -> str:
    return "–" if share.isnan() else f"{100 * float(share):.0f} %"
