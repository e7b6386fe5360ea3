"""Grad-CAM of several runs side by side, and counterfactual pictures of several augmentations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from icda.errors import InputError
from icda.explain.counterfactual import AUGMENTATIONS, FeatureSpace, Made, TiedSamples
from icda.explain.grad_cam import HeatMaps, grad_cam
from icda.explain.passes import balanced_sample, named_split, run_pass, subsample
from icda.explain.pictures import has_pictures, normaliser_of, to_pixels
from icda.explain.plots import PictureCell, draw_grid, heat_cells
from icda.explain.strengths import augmentation_strength, sample_strengths

if TYPE_CHECKING:
    from icda.data.task import Batch, Task
    from icda.explain.figures import FigureOptions, TrainedRun

Rows = list[dict[str, Any]]


def gradcam_figure(runs: Sequence[TrainedRun], options: FigureOptions) -> tuple[Any, dict[str, Rows]]:
    """Heat of each run's prediction on the same samples; the tables hold all measured samples, and means by group."""
    task = check_pictures(runs[0].task, "gradcam")
    split = named_split(task, options.split)
    positions = balanced_sample(split, max(options.samples, options.measured), options.seed)
    batch = split.batch(positions)
    shown = _spread(batch.targets if batch.groups is None else batch.groups, options.samples)
    pixels = to_pixels(batch.inputs[shown], normaliser_of(split))
    titles = [
        PictureCell(image, _kind(task, batch, place)) for image, place in zip(pixels, shown.tolist(), strict=True)
    ]
    grid: list[tuple[str, list[PictureCell]]] = [("picture", titles)]
    rows: Rows = []
    summary: Rows = []
    for run in runs:
        maps = grad_cam(run.networks[0], batch.inputs, layer=options.layer)
        said, shares = maps.predicted[shown], maps.centre_share[shown]
        words = ["–" if share.isnan() else f"{100 * float(share):.0f} %" for share in shares]
        captions = [f"{task.class_name(int(c))}, {word} centre" for c, word in zip(said, words, strict=True)]
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


def counterfactual_figure(runs: Sequence[TrainedRun], options: FigureOptions) -> tuple[Any, dict[str, Rows]]:
    """The most tied training samples of a run under ISDA, RISDA and ICDA, with the real neighbours of ICDA's feature."""
    if len(runs) > 1:
        raise InputError(
            f"the counterfactual figure shows one network's feature space, got {len(runs)} runs: give one run."
        )
    run, task = runs[0], check_pictures(runs[0].task, "counterfactual")
    seen = run_pass(run.method, run.networks, task.train, subsample(task.train, options.limit, options.seed))
    tied = TiedSamples.of(task, seen, sample_strengths(run.method, seen), options.samples)
    space, lam = FeatureSpace.of(seen), augmentation_strength(run.method)
    pairs = zip(tied.targets.tolist(), tied.towards.tolist(), strict=True)
    ties = [f"{task.class_name(y)} → {task.class_name(c)}" for y, c in pairs]
    grid = [("source → towards", [PictureCell(*cell) for cell in zip(tied.pixels, ties, strict=True)])]
    rows: Rows = []
    for kind in AUGMENTATIONS:
        aims, made, near = tied.moved(run.networks[0], kind, space, lam, options.seed)
        captions = [f"error {error:.2f}" for error in made.feature_error.tolist()]
        grid.append((kind.upper(), [PictureCell(*cell) for cell in zip(made.pixels, captions, strict=True)]))
        rows += _counterfactual_rows(kind, tied, aims, made, near)
    grid += _neighbour_rows(task, seen.index[near], seen.targets[near])
    note = "error: distance left to the augmented feature, as a share of the way. Neighbours are real training images."
    figure = draw_grid(grid, f"Counterfactual features of {run.label} on {task.name}, back in pixels", note)
    return figure, {"": rows}


def _counterfactual_rows(kind: str, tied: TiedSamples, aims: Tensor, made: Made, near: Tensor) -> Rows:
    task, seen = tied.task, tied.seen
    features = seen.features[tied.places]
    moved = (aims - features).norm(dim=1) / features.norm(dim=1).clamp(min=1e-12)
    changes = (made.pixels - tied.pixels).abs().flatten(1).mean(1)
    return [
        {
            "augmentation": kind,
            "index": int(tied.index[number]),
            "target": task.class_name(int(tied.targets[number])),
            "towards": task.class_name(int(tied.towards[number])),
            "strength": f"{tied.strengths[number]:.4f}",
            "relative_move": f"{moved[number]:.4f}",
            "feature_error": f"{made.feature_error[number]:.4f}",
            "mean_pixel_change": f"{changes[number]:.4f}",
            "nearest_real": " ".join(str(int(seen.index[n])) for n in near[number]),
            "nearest_real_targets": "; ".join(task.class_name(int(seen.targets[n])) for n in near[number]),
        }
        for number in range(len(tied))
    ]


def _neighbour_rows(
    task: Task, positions: Tensor, targets: Tensor, ranks: int = 2
) -> list[tuple[str, list[PictureCell]]]:
    """Rows of the nearest real samples of the last augmentation, one row per rank."""
    rows = []
    for rank in range(min(ranks, positions.shape[1])):
        pixels = to_pixels(task.train.batch(positions[:, rank]).inputs, normaliser_of(task.train))
        cells = [PictureCell(image, task.class_name(int(y))) for image, y in zip(pixels, targets[:, rank], strict=True)]
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
