"""All that is explained of one trained run, as plain data for `explanations.json` and the report."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from icda.data.task import Task
from icda.explain import margins as measures
from icda.explain.counterfactual import TiedSamples
from icda.explain.grad_cam import grad_cam
from icda.explain.pictures import data_uri, has_pictures, heat_overlay, pixels_of, require_pictures, show_samples
from icda.methods.base import Method
from icda.models.base import FeatureClassifier
from icda.settings import check_names

PARTS = ("margins", "strengths", "variances", "tied", "gradcam", "counterfactuals")
CHEAP_PARTS = ("margins", "strengths", "tied")
PICTURE_PARTS = ("gradcam", "counterfactuals")
STRENGTH_SAMPLES = 4096  # of the training set: ties are a matter of many samples, not of all


def explain_run(
    task: Task,
    networks: Sequence[FeatureClassifier],
    method: Method,
    *,
    parts: Sequence[str] = CHEAP_PARTS,
    split: str = "test",
    top: int = 24,
    gradcam: int = 12,
    counterfactuals: int = 6,
    seed: int = 0,
    history: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """Explain a trained network: which parts, on which split, with how many samples.

    Margins and Grad-CAM look at `split`; strengths, ties and counterfactual pictures at the training samples, of which
    at most 4,096, drawn by `seed`, are taken. `history` holds a run's epochs, for the mapped variances over training.
    Pictures need a task of images: asking for them on another is an error. Networks and method stay as they were.

    >>> from icda.data import create_task
    >>> from icda.methods import Setup, create_method
    >>> from icda.models import create_model
    >>> task = create_task("digits_lt")
    >>> network = create_model(task.default_model, task.num_classes, task.input_shape)
    >>> found = explain_run(task, [network], create_method("icda", Setup.of(task, network, epochs=1)), top=3)
    >>> sorted(found), len(found["tied"]), found["tied"][0]["picture"][:15]
    (['margins', 'split', 'strengths', 'tied'], 3, 'data:image/png;')
    """
    check_names(parts, PARTS, "an explanation", "part")
    for part in parts:
        if part in PICTURE_PARTS:
            require_pictures(task, part)
    measures.named_split(task, split)
    explanations: dict[str, Any] = {"split": split}
    if "margins" in parts:
        explanations["margins"] = _explain_margins(task, networks, method, split)
    if "gradcam" in parts:
        explanations["gradcam"] = gradcam_gallery(task, networks[0], split, gradcam, seed)
    if {"strengths", "tied", "counterfactuals", "variances"} & set(parts):
        seen = measures.run_pass(method, networks, task.train, measures.subsample(task.train, STRENGTH_SAMPLES, seed))
        strength = measures.sample_strengths(method, seen)
        if "strengths" in parts:
            counted = {"split": "train", "samples": len(seen), "of": len(task.train)}
            explanations["strengths"] = measures.strength_figures(strength, seen.targets) | counted
        if "tied" in parts:
            explanations["tied"] = _list_tied(TiedSamples.of(task, seen, strength, top))
        if "variances" in parts:
            explanations["variances"] = measures.variance_figures(seen, history)
        if "counterfactuals" in parts:
            samples, lam = TiedSamples.of(task, seen, strength, counterfactuals), measures.augmentation_strength(method)
            explanations["counterfactuals"] = counterfactual_gallery(networks[0], samples, lam, seed)
    return explanations


def allowed_parts(parts: Sequence[str], task: Task) -> list[str]:
    """Those parts that a task can have: pictures need images."""
    return [part for part in parts if has_pictures(task) or part not in PICTURE_PARTS]


def _explain_margins(task: Task, networks: Sequence[FeatureClassifier], method: Method, split: str) -> dict[str, Any]:
    seen = measures.run_pass(method, networks, measures.named_split(task, split))
    values = measures.margins(seen.logits, seen.targets)
    figures = measures.margin_figures(values, seen.targets, task.num_classes, seen.groups)
    adjusted = measures.adjusted_margins(method, seen)
    if adjusted is not None:
        finite = adjusted[torch.isfinite(adjusted)]
        figures["adjusted"] = {
            "mean": float(finite.mean()),
            "median": float(finite.median()),
            "share_negative": float((adjusted < 0).double().mean()),
        }
    return figures


def _list_tied(tied: TiedSamples) -> list[dict[str, Any]]:
    seen, shown = tied.seen, show_samples(tied.task, tied.task.train, tied.index)
    entries = []
    for number, place in enumerate(tied.places.tolist()):
        group = None if seen.groups is None else int(seen.groups[place])
        own = {"split": "train", "prediction": int(seen.predicted[place]), "group": group}
        entries.append(_tie(tied, number) | own | shown[number])
    return entries


def _tie(tied: TiedSamples, number: int) -> dict[str, Any]:
    return {
        "index": int(tied.index[number]),
        "target": int(tied.targets[number]),
        "towards": int(tied.towards[number]),
        "strength": float(tied.strengths[number]),
    }


def gradcam_gallery(task: Task, network: FeatureClassifier, split_name: str, count: int, seed: int) -> dict[str, Any]:
    """Heat of the predicted class on `count` samples, spread over groups or classes: the same ones for every model."""
    split = measures.named_split(task, split_name)
    positions = measures.balanced_sample(split, count, seed)
    batch = split.batch(positions)
    maps = grad_cam(network, batch.inputs)
    pixels, shares = pixels_of(split, batch.inputs), maps.centre_share
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


def counterfactual_gallery(network: FeatureClassifier, tied: TiedSamples, lam: float, seed: int) -> dict[str, Any]:
    """The most tied training samples, augmented and mapped back to pixels, each with its nearest real neighbours."""
    about = {"augmentation": "icda", "lambda": lam, "seed": seed, "split": "train"}
    if not len(tied):
        return {**about, "samples": []}
    _, made, errors, near = tied.moved(network, "icda", lam, seed)
    pixels = tied.pixels
    samples = [
        _tie(tied, row)
        | {
            "picture": data_uri(pixels[row]),
            "made": data_uri(made[row]),
            "feature_error": float(errors[row]),
            "neighbours": _neighbours(tied, near[row]),
        }
        for row in range(len(tied))
    ]
    return {**about, "samples": samples}


def _neighbours(tied: TiedSamples, places: Tensor) -> list[dict[str, Any]]:
    seen = tied.seen
    shown = show_samples(tied.task, tied.task.train, seen.index[places])
    return [
        {"index": int(seen.index[place]), "target": int(seen.targets[place]), **picture}
        for place, picture in zip(places.tolist(), shown, strict=True)
    ]


def _number(value: Tensor) -> float | None:
    return float(value) if torch.isfinite(value) else None
