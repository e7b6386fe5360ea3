"""The result and the explanations of a run that nobody trained: random, seeded, consistent in themselves."""

from typing import Any

import numpy as np
import torch

from icda.explain.pictures import data_uri, heat_overlay

PICTURE_SIDE = 96
BINS = 40


def synthetic_result(classes, samples, groups=4, seed=0):
    """A result as a long-tailed run would write it: random, seeded, consistent in itself."""
    random = np.random.default_rng(seed)
    counts = np.maximum(1, 500 * 0.01 ** (np.arange(classes) / max(classes - 1, 1))).astype(int)
    confusion = _confusion(counts, samples // classes, random)
    accuracies = (confusion.diagonal() / confusion.sum(1)).tolist()
    accuracy = float(confusion.trace() / confusion.sum())
    group_accuracies = np.clip(accuracy + random.normal(0, 0.1, groups), 0, 1).tolist()
    names = [f"group {number}" for number in range(groups)]
    epochs = range(60)
    return {
        "task": f"synthetic_{classes}",
        "method": "icda",
        "model": "resnet32",
        "seed": seed,
        "split": "test",
        "selection": "last",
        "metrics": {
            "accuracy": accuracy,
            "balanced_accuracy": float(np.mean(accuracies)),
            "worst_class_accuracy": min(accuracies),
            "worst_group_accuracy": min(group_accuracies),
            "average_group_accuracy": float(np.mean(group_accuracies)),
            "calibration_error": 0.081,
            "nll": 1.234,
            "per_class_accuracy": accuracies,
            "per_group_accuracy": dict(zip(names, group_accuracies, strict=True)),
        },
        "config": {"epochs": 60, "learning_rate": 0.1, "options": {"lambda0": 0.5, "beta": 0.1}},
        "environment": {"torch": torch.__version__},
        "class_names": [f"class {number}" for number in range(classes)],
        "class_counts": counts.tolist(),
        "group_names": names,
        "group_samples": [samples // groups] * groups,
        "confusion": confusion.tolist(),
        "history": [_epoch(epoch, accuracy, random) for epoch in epochs],
        "seconds": 1234.5,
    }


def _confusion(counts, each, random):
    """`each` test samples per class: rare classes are recognised less often and taken for a few others."""
    classes = len(counts)
    skill = 0.45 + 0.5 * counts / counts.max()
    closeness = random.dirichlet(np.full(classes, 0.05), size=classes)
    np.fill_diagonal(closeness, 0.0)
    closeness /= closeness.sum(1, keepdims=True)
    chances = (1 - skill)[:, None] * closeness + np.diag(skill)
    return np.stack([random.multinomial(each, row) for row in chances])


def synthetic_explanations(classes, samples, tied, groups=4, seed=0):
    """Every part of explanations.json, with pictures of `PICTURE_SIDE` pixels a side."""
    random = np.random.default_rng(seed)
    pictures = [_picture(random) for _ in range(max(tied, 24))]
    uris = [data_uri(picture) for picture in pictures]
    towards = random.beta(1.2, 8, (classes, classes))
    np.fill_diagonal(towards, 0.0)
    each = max(samples // classes, 1)

    def entry(number: int) -> dict[str, Any]:
        target, other = (int(value) for value in random.choice(classes, 2, replace=False))
        common = {"index": number, "target": target, "group": int(random.integers(groups)), "picture": uris[number]}
        return common | {"towards": other, "prediction": other if random.random() < 0.4 else target}

    listed = [entry(number) | {"split": "train", "strength": 1 - number / (2 * tied)} for number in range(tied)]
    heats = [
        entry(number) | {"heat": data_uri(heat_overlay(pictures[number], _bump(random))), "centre_share": 0.4}
        for number in range(12)
    ]
    painted = [
        entry(number) | {"made": uris[-1 - number], "feature_error": 0.12, "neighbours": [entry(n) for n in range(3)]}
        for number in range(6)
    ]
    return {
        "split": "test",
        "margins": _bins(random.normal(2.0, 2.5, (classes, each)), (-8.0, 12.0)),
        "strengths": _bins(random.beta(1.5, 8, (classes, each)), (0.0, 1.0)) | {"towards": towards.round(4).tolist()},
        "variances": {
            "epochs": list(range(10)),
            "own": (2.0 / np.arange(1, 11)).tolist(),
            "unrelated": (0.5 / np.arange(1, 11)).tolist(),
        },
        "tied": listed,
        "gradcam": {"layer": "encoder.layer3", "mean_centre_share": 0.4, "samples": heats},
        "counterfactuals": {"augmentation": "icda", "seed": seed, "samples": painted},
    }


def _epoch(epoch, accuracy, random):
    learned = 1 - 0.9 ** (epoch + 1)
    validation = accuracy * learned + float(random.normal(0, 0.01))
    return {
        "epoch": epoch,
        "train_loss": 4.6 * (1 - learned) + 0.2,
        "train_accuracy": 0.98 * learned,
        "validation_accuracy": validation,
    }


def _bins(values, span):
    edges = np.linspace(*span, BINS + 1)
    counts = [np.histogram(np.clip(row, *span), edges)[0].tolist() for row in values]
    share = float((values < 0).mean())
    middle = {"mean": float(values.mean()), "median": float(np.median(values)), "share_negative": share}
    return {"edges": edges.round(6).tolist(), "counts": counts} | middle


def _picture(random):
    """Something as hard to compress as a photograph: soft shapes under fine grain."""
    soft = torch.from_numpy(random.random((1, 3, 6, 6)))
    shapes = torch.nn.functional.interpolate(soft, (PICTURE_SIDE, PICTURE_SIDE), mode="bicubic")[0]
    grain = torch.from_numpy(random.normal(0, 0.06, (3, PICTURE_SIDE, PICTURE_SIDE)))
    return (shapes + grain).clamp(0, 1).float()


def _bump(random):
    y, x = torch.meshgrid(*[torch.linspace(0, 1, PICTURE_SIDE)] * 2, indexing="ij")
    row, column = random.uniform(0.25, 0.75, 2)
    return torch.exp(-((y - row) ** 2 + (x - column) ** 2) / 0.05).float()
