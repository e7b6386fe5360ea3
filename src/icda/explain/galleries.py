"""Grad-CAM and counterfactual pictures as plain data, ready for a page."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from icda.data.task import Task
from icda.explain.counterfactual import NEIGHBOURS, FeatureSpace, augment_towards, nearest_real, paint
from icda.explain.grad_cam import grad_cam
from icda.explain.passes import Pass, balanced_sample, named_split
from icda.explain.pictures import data_uri, heat_overlay, normaliser_of, show_samples, to_pixels
from icda.explain.strengths import most_tied
from icda.models.base import FeatureClassifier
from icda.functional.strength import Strength


def gradcam_gallery(
    task: Task, network: FeatureClassifier, split_name: str, count: int, seed: int, layer: str | None = None
) -> dict[str, Any]:
    """Heat of the predicted class on `count` samples, spread over groups or classes: the same ones for every model."""
    split = named_split(task, split_name)
    positions = balanced_sample(split, count, seed)
    batch = split.batch(positions)
    maps = grad_cam(network, batch.inputs, layer=layer)
    pixels = to_pixels(batch.inputs, normaliser_of(split))
    shares = maps.centre_share
    samples = [
        {
            "index": int(position),
            "target": int(batch.targets[place]),
            "prediction": int(maps.predicted[place]),
            "group": None if batch.groups is None else int(batch.groups[place]),
            "picture": data_uri(pixels[place]),
            "heat": data_uri(heat_overlay(pixels[place], maps.heat[place])),
            "centre_share": _number(shares[place]),
        }
        for place, position in enumerate(positions)
    ]
    return {"layer": maps.layer, "mean_centre_share": _number(shares.nanmean()), "samples": samples}


def counterfactual_gallery(
    task: Task,
    network: FeatureClassifier,
    seen: Pass,
    strength: Strength,
    space: FeatureSpace,
    *,
    augmentation: str = "icda",
    count: int = 6,
    lam: float = 0.5,
    seed: int = 0,
    steps: int | None = None,
) -> dict[str, Any]:
    """The most tied training samples, augmented and mapped back to pixels, each with its nearest real neighbours."""
    places, towards, strongest = most_tied(strength, count)
    split, positions = task.train, seen.index[places]
    about = {"augmentation": augmentation, "lambda": lam, "seed": seed, "split": "train"}
    if len(places) == 0:
        return {**about, "samples": []}
    aims = augment_towards(
        augmentation, seen.features[places], seen.targets[places], towards, strongest, space, lam, seed
    )
    normaliser, inputs = normaliser_of(split), split.batch(positions).inputs
    painted = paint(network, inputs, aims, normaliser, **({} if steps is None else {"steps": steps}))
    near = nearest_real(aims, seen.features, NEIGHBOURS, without=places)
    pixels = to_pixels(inputs, normaliser)
    samples = [
        {
            "index": int(positions[row]),
            "target": int(seen.targets[places[row]]),
            "towards": int(towards[row]),
            "strength": float(strongest[row]),
            "picture": data_uri(pixels[row]),
            "made": data_uri(painted.pixels[row]),
            "feature_error": float(painted.feature_error[row]),
            "neighbours": _neighbours(task, seen, near[row]),
        }
        for row in range(len(places))
    ]
    return {**about, "samples": samples}


def _neighbours(task: Task, seen: Pass, places: Tensor) -> list[dict[str, Any]]:
    shown = show_samples(task, task.train, seen.index[places])
    return [
        {"index": int(seen.index[place]), "target": int(seen.targets[place]), **picture}
        for place, picture in zip(places.tolist(), shown, strict=True)
    ]


def _number(value: Tensor) -> float | None:
    return float(value) if torch.isfinite(value) else None
