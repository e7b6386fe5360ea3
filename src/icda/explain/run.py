"""All that is explained of one trained run, as plain data for `explanations.json` and the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from icda.data.task import Task
from icda.errors import InputError
from icda.explain.counterfactual import FeatureSpace
from icda.explain.galleries import counterfactual_gallery, gradcam_gallery
from icda.explain.margins import adjusted_margins, margin_figures, margins
from icda.explain.passes import Pass, named_split, run_pass, subsample
from icda.explain.pictures import has_pictures, show_samples
from icda.explain.strengths import augmentation_strength, most_tied, sample_strengths, strength_figures
from icda.explain.variances import variance_figures
from icda.methods.base import Method
from icda.models.base import FeatureClassifier
from icda.registry import did_you_mean
from icda.functional.strength import Strength

PARTS = ("margins", "strengths", "variances", "tied", "gradcam", "counterfactuals")
CHEAP_PARTS = ("margins", "strengths", "tied")
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
    at most 4,096, drawn by `seed`, are taken. `history` holds a run's epochs, for the mapped variances over training;
    without it they are those of the trained network alone. Pictures need a task of images: asking for them on another
    is an error. Nothing is changed: networks and method are as before.

    >>> from icda.data import create_task
    >>> from icda.methods import Setup, create_method
    >>> from icda.models import create_model
    >>> task = create_task("digits_lt")
    >>> network = create_model(task.default_model, task.num_classes, task.input_shape)
    >>> found = explain_run(task, [network], create_method("icda", Setup.of(task, network, epochs=1)), top=3)
    >>> sorted(found), len(found["tied"]), found["tied"][0]["picture"][:15]
    (['margins', 'split', 'strengths', 'tied'], 3, 'data:image/png;')
    """
    check_parts(parts, task)
    named_split(task, split)
    explanations: dict[str, Any] = {"split": split}
    if "margins" in parts:
        explanations["margins"] = _explain_margins(task, networks, method, split)
    if "gradcam" in parts:
        explanations["gradcam"] = gradcam_gallery(task, networks[0], split, gradcam, seed)
    if {"strengths", "tied", "counterfactuals", "variances"} & set(parts):
        seen = run_pass(method, networks, task.train, subsample(task.train, STRENGTH_SAMPLES, seed))
        strength = sample_strengths(method, seen)
        if "strengths" in parts:
            counted = {"split": "train", "samples": len(seen), "of": len(task.train)}
            explanations["strengths"] = strength_figures(strength, seen.targets) | counted
        if "tied" in parts:
            explanations["tied"] = _list_tied(task, seen, strength, top)
        if "variances" in parts:
            explanations["variances"] = variance_figures(seen, history)
        if "counterfactuals" in parts:
            lam = augmentation_strength(method)
            space = FeatureSpace.of(seen)
            explanations["counterfactuals"] = counterfactual_gallery(
                task, networks[0], seen, strength, space, count=counterfactuals, lam=lam, seed=seed
            )
    return explanations


def check_parts(parts: Sequence[str], task: Task) -> None:
    """Refuse an unknown part, and pictures of what has none, before anything is computed."""
    for part in parts:
        if part not in PARTS:
            hint = did_you_mean(part, PARTS)
            raise InputError(f"unknown part {part!r} of an explanation: {hint}Known: {', '.join(PARTS)}.")
    pictures = [part for part in ("gradcam", "counterfactuals") if part in parts]
    if pictures and not has_pictures(task):
        raise InputError(
            f"{' and '.join(pictures)} need images, but the samples of task {task.name!r} are "
            f"{task.input_kind} of shape {task.input_shape}: leave them out."
        )


def _explain_margins(task: Task, networks: Sequence[FeatureClassifier], method: Method, split: str) -> dict[str, Any]:
    seen = run_pass(method, networks, named_split(task, split))
    values = margins(seen.logits, seen.targets)
    figures = margin_figures(values, seen.targets, task.num_classes, seen.groups)
    adjusted = adjusted_margins(method, seen)
    if adjusted is not None:
        finite = adjusted[torch.isfinite(adjusted)]
        figures["adjusted"] = {
            "mean": float(finite.mean()),
            "median": float(finite.median()),
            "share_negative": float((adjusted < 0).double().mean()),
        }
    return figures


def _list_tied(task: Task, seen: Pass, strength: Strength, top: int) -> list[dict[str, Any]]:
    places, towards, strongest = most_tied(strength, top)
    shown = show_samples(task, task.train, seen.index[places])
    return [
        {
            "index": int(seen.index[place]),
            "split": "train",
            "target": int(seen.targets[place]),
            "towards": int(towards[number]),
            "strength": float(strongest[number]),
            "prediction": int(seen.predicted[place]),
            "group": None if seen.groups is None else int(seen.groups[place]),
            **shown[number],
        }
        for number, place in enumerate(places.tolist())
    ]
