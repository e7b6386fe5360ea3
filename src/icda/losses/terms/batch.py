"""What a loss is called with, checked before anything is computed or updated."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from icda.errors import InputError, InputTypeError
from icda.losses.terms.head import check_head, head_parameters
from icda.statistics.checks import (
    ORDINARY,
    check_device,
    check_feature_shape,
    check_finite_rows,
    check_float,
    check_label_shape,
    check_targets,
    check_tensor,
    largest_magnitude,
)

ORDINARY_WEIGHT = 1e5  # with features below ORDINARY a mapped variance is far within float32
ORDINARY_LOGIT = 1e15
SUM_TOLERANCE = 0.02  # of a row of soft targets in bfloat16


class LossBatch(NamedTuple):
    """The samples that count: rows whose target is `ignore_index` are gone.

    `soft` (N, C) are the targets given as probabilities, `targets` then the most likely class of each sample. `kept` says
    which rows of the call these are; None when all are.
    """

    features: Tensor
    targets: Tensor
    weight: Tensor
    bias: Tensor | None
    logits: Tensor | None
    soft: Tensor | None = None
    kept: Tensor | None = None

    def rows(self, values: Tensor | None) -> Tensor | None:
        """The rows that count of something that was given per sample."""
        return values if self.kept is None or values is None else values[self.kept]


def check_batch(
    features: Any,
    targets: Any,
    head: Any,
    logits: Any,
    *,
    num_classes: int,
    feature_dim: int,
    ignore_index: int,
    owner: str,
) -> LossBatch:
    weight, bias = head_parameters(head)
    check_head(weight, bias, num_classes, feature_dim, owner)
    check_feature_shape(features, feature_dim, owner)
    size, device = len(features), features.device
    check_tensor(targets, "targets", owner)
    named = {"targets": targets, "the head's weight": weight, "the head's bias": bias, "logits": logits}
    if logits is not None:
        check_float(logits, "logits", owner)
        if logits.shape != (size, num_classes):
            shape = (size, num_classes)
            raise InputError(f"{owner} expects logits of shape {shape}, got {tuple(logits.shape)}.")
    for name, value in named.items():
        if value is not None:
            check_device(value, name, device, owner)
    if logits is None:
        check_same_type(features, weight, bias, owner)
    if targets.is_floating_point() and targets.dim() == 2:
        soft = check_soft_targets(targets, size, num_classes, owner)
        return LossBatch(features, soft.argmax(1), weight, bias, logits, soft)
    if torch.compiler.is_compiling():  # `_check_compiled` of the loss has their values looked at
        check_label_shape(targets, size, owner)
        return LossBatch(features, targets, weight, bias, logits)
    targets = check_targets(targets, size, num_classes, owner, ignore_index)
    return _without_ignored(LossBatch(features, targets, weight, bias, logits), ignore_index, num_classes, owner)


def check_same_type(features: Tensor, weight: Tensor, bias: Tensor | None, owner: str) -> None:
    """What a linear layer needs; autocast brings all but doubles to one type by itself."""
    types = {features.dtype, weight.dtype} | (set() if bias is None else {bias.dtype})
    if len(types) == 1:
        return
    if torch.is_autocast_enabled(features.device.type) and torch.float64 not in types:
        return
    raise InputTypeError(
        f"{owner} got features of {features.dtype} and a head of {weight.dtype}: convert one, for example "
        "features.to(head.weight.dtype), or give logits=."
    )


def check_soft_targets(targets: Tensor, size: int, num_classes: int, owner: str) -> Tensor:
    check_float(targets, "targets", owner)
    if targets.shape != (size, num_classes):
        shape = (size, num_classes)
        raise InputError(f"{owner} expects soft targets of shape {shape}, got {tuple(targets.shape)}.")
    if torch.compiler.is_compiling():  # values are not looked at in a graph
        return targets.detach()
    sums = targets.detach().float().sum(1)
    if not ((targets >= 0).all() and ((sums - 1).abs() < SUM_TOLERANCE).all()):
        raise InputError(f"{owner} expects soft targets whose rows are probabilities: not negative, with sum 1.")
    return targets.detach()


def check_values(batch: LossBatch, logits: Tensor, owner: str, squares_weights: bool) -> bool:
    """No NaN, no infinity but a class masked by -inf; returns whether the loss may still come out as one.

    All figures come to the host at once: a check per tensor would wait for the device as often.
    """
    low, high = torch.aminmax(logits.detach())
    figures = [largest_magnitude(batch.features), low, high]
    if batch.bias is not None:
        figures.append(largest_magnitude(batch.bias))
    if squares_weights:
        figures.append(largest_magnitude(batch.weight))
    features, low, high, *weights = torch.stack([figure.double() for figure in figures]).tolist()
    check_finite_rows(batch.features, features, owner)
    largest_weight = sum(weights)
    if math.isnan(low) or high == math.inf or not largest_weight < math.inf:
        raise InputError(
            f"{owner} got NaN or infinite logits, or a head whose weights are. Nothing was updated; lower the learning "
            "rate, or start from weights that are finite."
        )
    return not (
        features < ORDINARY and largest_weight < ORDINARY_WEIGHT and low > -ORDINARY_LOGIT and high < ORDINARY_LOGIT
    )


def spread_rows(value: Tensor, batch: LossBatch) -> Tensor:
    """A value per sample put back among the rows that were ignored, whose loss is 0; others as they are."""
    if batch.kept is None or value.dim() == 0:
        return value
    whole = value.new_zeros(len(batch.kept), *value.shape[1:])
    return whole.index_put((batch.kept.nonzero().flatten(),), value)


def _without_ignored(batch: LossBatch, ignore_index: int, num_classes: int, owner: str) -> LossBatch:
    if 0 <= ignore_index < num_classes:
        kept = batch.targets != ignore_index
    elif not bool((batch.targets == ignore_index).any()):
        return batch
    else:
        kept = batch.targets != ignore_index
    if bool(kept.all()):
        return batch
    if not kept.any():
        raise InputError(f"{owner} got no sample to learn from: all targets are ignore_index, {ignore_index}.")
    logits = None if batch.logits is None else batch.logits[kept]
    return batch._replace(features=batch.features[kept], targets=batch.targets[kept], logits=logits, kept=kept)
