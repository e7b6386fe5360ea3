"""What a loss is called with: kinds and shapes are checked first, then all values in one read from the device."""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import torch
from torch import Tensor
from torch.nn import functional as F

from icda.errors import InputError, InputTypeError
from icda.functional.grouping import on_host
from icda.losses.batch import LossBatch
from icda.losses.head import head_parameters
from icda.statistics import checks
from icda.statistics.checks import check_flags, check_float, check_labels, check_number, magnitude

if TYPE_CHECKING:
    from icda.losses.base import AdjustedLoss

Reduction = Literal["none", "mean", "sum"]
Counts: TypeAlias = Tensor | Sequence[Any] | None
SUM_TOLERANCE = 0.02  # of a row of soft targets in bfloat16


def check_settings(loss: AdjustedLoss, class_counts: Any, unknown: dict[str, Any]) -> None:
    """Refuse what no loss can be made with; `unknown` are options that nobody took."""
    owner = type(loss).__name__
    for name in unknown:
        near = get_close_matches(name, inspect.signature(type(loss)).parameters, 1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise InputTypeError(f"{owner} has no option {name!r}: {hint}help({owner}) lists them.")
    checks.check_sizes(loss.num_classes, loss.feature_dim, owner)
    check_number(loss.ignore_index, "ignore_index", owner, whole=True)
    check_number(loss.label_smoothing, "label_smoothing", owner, 0, 1 - 1e-9)
    check_flags(loss, "validate")
    if loss.reduction not in get_args(Reduction):
        raise InputError(f"reduction must be none, mean or sum, got {loss.reduction!r}.")
    if loss.label_smoothing > 0 and not loss.is_cross_entropy:
        raise InputError(f"{owner} is no cross entropy, so that label_smoothing has no meaning for it.")
    if loss.needs_counts and class_counts is None:
        raise InputError(f"{owner} needs class_counts: the number of training samples of each class.")


def check_call(
    loss: AdjustedLoss,
    features: Any,
    targets: Any,
    head: Any,
    progress: Any = 1.0,
    logits: Any = None,
    *,
    attributes: Any = None,
    log_prior: Any = None,
) -> LossBatch:
    """All that can be wrong with a call, found before anything is updated."""
    owner, classes = type(loss).__name__, loss.num_classes
    if head is None:
        raise InputTypeError(
            f"{owner} needs the head, and features, its input, in the place of logits: loss(features, targets, head). "
            "icda.integrations.FeatureTap(model) catches both in a model that returns logits alone."
        )
    weight, bias = head_parameters(head)
    check_prior: Any = getattr(loss, "check_prior", None)
    if check_prior is not None:
        check_prior(attributes, log_prior)
    elif attributes is not None or log_prior is not None:
        raise InputTypeError(f"{owner} has no prior that attributes or log_prior could say: leave them out.")
    checks.check_features(features, loss.feature_dim, owner)
    size, device, shape = len(features), features.device, (len(features), classes)
    if (state := next(loss.buffers(), None)) is not None:
        checks.check_tensor(state, "the loss's state", owner, device)
    check_float(weight, "the head's weight", owner, device, (classes, loss.feature_dim))
    if bias is not None:
        check_float(bias, "the head's bias", owner, device, (classes,))
    for name, value in (("logits", logits), ("log_prior", log_prior)):
        if value is not None:
            check_float(value, name, owner, device, shape)
    if logits is None:
        check_same_type(features, weight, bias, owner)
    check_progress(progress)
    soft = valid = None
    if isinstance(targets, Tensor) and targets.is_floating_point() and targets.dim() == 2:
        if not loss.is_cross_entropy:
            raise InputTypeError(f"{owner} expects integer class labels, not soft targets {tuple(targets.shape)}.")
        check_float(targets, "soft targets", owner, device, shape)
        soft = targets.detach()
        targets = soft.argmax(1)
    else:
        targets = check_labels(targets, "targets", size, owner, device)
        known = on_host(targets)
        if known is None or (known == loss.ignore_index).any():
            valid = targets != loss.ignore_index
            targets = torch.where(valid, targets, 0)
    if attributes is not None:
        attributes = check_labels(attributes, "attributes", size, owner, device)
    batch = LossBatch(features, targets, weight, bias, progress, logits, soft, valid, attributes, log_prior)
    if not loss.validate:
        return batch
    figures = figures_of(loss, batch)
    limits = owner, classes, loss.ignore_index, len(loss.prior) if attributes is not None else 0  # type: ignore[arg-type]
    if torch.compiler.is_compiling():
        from icda.losses.operators import checked_targets  # registers operators, which only a graph needs

        stacked = torch.stack([figure.detach().double() for figure in figures.values()])
        return replace(batch, targets=checked_targets(targets, stacked, ",".join(figures), *limits)).masked()
    seen = dict(zip(figures, checks.read_once(*figures.values()), strict=True))
    refuse(seen, *limits, features)
    return batch.masked() if seen["counted"] < size else replace(batch, valid=None)


def figures_of(loss: AdjustedLoss, batch: LossBatch) -> dict[str, Tensor]:
    """What has to be known of the values; rows that do not count may hold anything."""
    targets = batch.targets
    by_row = torch.aminmax(batch.features.detach(), dim=1)
    rows = torch.maximum(-by_row.min, by_row.max)
    counted = torch.ones_like(rows, dtype=torch.bool) if batch.valid is None else batch.valid
    labels = targets.clamp(0, loss.num_classes - 1)  # those out of range are refused anyhow
    found = {"features": torch.where(counted, rows, 0).amax(), "counted": counted.sum()}
    found["lowest"], found["highest"] = torch.aminmax(targets)
    found["weight"] = magnitude(batch.weight)
    if batch.bias is not None:
        found["bias"] = magnitude(batch.bias)
    if isinstance(batch.progress, Tensor):
        found["progress"] = batch.progress.reshape(())
    if batch.logits is not None:  # -inf masks a class, which must not be the target's
        logits = batch.logits.detach()
        least = torch.where(counted, logits.gather(1, labels[:, None])[:, 0], 0).amin().clamp(max=0)
        found["logits"] = torch.where(counted, logits.amax(1), 0).amax() - least
    if batch.soft is not None:
        found["soft"] = (batch.soft.float().sum(1) - 1).abs().amax() + (batch.soft < 0).any()
    if batch.log_prior is not None:
        found["log_prior"] = magnitude(batch.log_prior.gather(1, labels[:, None])) + F.relu(batch.log_prior.amax())
    if loss.class_weight is not None:
        found["mass"] = torch.where(counted, loss.class_weight[labels], 0).sum()
    if batch.attributes is not None:
        found["lowest_attribute"], found["highest_attribute"] = torch.aminmax(batch.attributes)
    if (counts := loss.counts_read(batch)) is not None:
        found["empty"] = torch.where(counted & (counts[labels] == 0), labels, -1).amax()
        if batch.soft is not None or loss.label_smoothing > 0:
            shares = torch.ones_like(counts) if batch.soft is None else batch.soft.amax(0)
            found["on_empty"] = (shares * (counts == 0)).amax()
    return found


def refuse(
    seen: Mapping[str, float], owner: str, classes: int, ignored: int, values: int, features: Tensor | None = None
) -> None:
    """Say what is wrong with the values, if anything is: nothing was updated yet. `values` are those of attributes."""
    checks.check_magnitude(seen["features"], features, owner, torch.float32)
    if seen["counted"] < 1:
        raise InputError(f"{owner} got no sample to learn from: all targets are ignore_index, {ignored}.")
    checks.check_within(seen["lowest"], seen["highest"], classes, owner, "label", f"{classes} classes")
    if not all(math.isfinite(seen.get(name, 0)) for name in ("weight", "bias", "logits")):
        raise InputError(
            f"{owner} got NaN or infinite logits, or a head whose weights are. Nothing was updated; lower the learning "
            "rate, or start from weights that are finite."
        )
    if not 0 <= seen.get("progress", 0) <= 1:
        raise InputError(f"progress is t/T in [0, 1], got {seen['progress']}.")
    if not seen.get("soft", 0) <= SUM_TOLERANCE:
        raise InputError(f"{owner} expects soft targets whose rows are probabilities: not negative, with sum 1.")
    if not math.isfinite(seen.get("log_prior", 0)):
        raise InputError(f"{owner} got a log_prior that is NaN or infinite: a probability of zero has no margin.")
    if "lowest_attribute" in seen:
        low, high = seen["lowest_attribute"], seen["highest_attribute"]
        checks.check_within(low, high, values, owner, "attribute", "the rows of its prior")
    if seen.get("empty", -1) >= 0:
        raise InputError(
            f"{owner} got class {seen['empty']:.0f}, of which its class_counts or prior have no sample: give the counts of "
            "the training labels."
        )
    if not sys.float_info.min <= seen.get("mass", 1) <= torch.finfo(torch.float32).max or seen.get("on_empty", 0) > 0:
        raise InputError(
            f"the value of {owner} would be NaN or infinite: targets are on classes that have weight 0 or no samples, or "
            "their weights sum to infinity."
        )


def check_progress(progress: Any) -> None:
    """t/T in [0, 1]: a number, or a tensor that holds one, whose value is looked at with the others."""
    if isinstance(progress, Tensor):
        if progress.numel() != 1 or progress.is_complex() or progress.is_meta:
            raise InputError(f"progress is one number, t/T in [0, 1], got a tensor of {tuple(progress.shape)}.")
    elif isinstance(progress, bool) or not isinstance(progress, Real):
        raise InputTypeError(f"progress is a number, t/T in [0, 1], got {progress!r}.")
    elif not torch.compiler.is_compiling() and not 0 <= float(progress) <= 1:
        raise InputError(f"progress is t/T in [0, 1], got {float(progress)}.")


def check_same_type(features: Tensor, weight: Tensor, bias: Tensor | None, owner: str) -> None:
    """What a linear layer needs; autocast brings all but doubles to one type by itself."""
    types = {features.dtype, weight.dtype} | (set() if bias is None else {bias.dtype})
    if len(types) == 1 or (torch.is_autocast_enabled(features.device.type) and torch.float64 not in types):
        return
    raise InputTypeError(
        f"{owner} got features of {features.dtype} and a head of {weight.dtype}: convert one, for example "
        "features.to(head.weight.dtype), or give logits=."
    )


def check_counts(loss: AdjustedLoss, given: Any, name: str) -> Tensor | None:
    """Counts (C,), or a table (K, C) of them for "prior", in float64: finite, not negative, not all zero; or None."""
    owner, num_classes = type(loss).__name__, loss.num_classes
    if given is None:
        return None
    try:
        counts = torch.as_tensor(given, device=given.device if isinstance(given, Tensor) else "cpu").to(torch.float64)
    except (TypeError, ValueError, RuntimeError) as error:
        kind = type(given).__name__
        raise InputTypeError(f"{owner} expects {name} as numbers, got {kind}: {error}.") from error
    dims, shape = (2, f"(K, {num_classes})") if name == "prior" else (1, f"({num_classes},)")
    if counts.dim() != dims or counts.shape[-1] != num_classes or not counts.numel():
        raise InputError(f"{owner} expects {name} of shape {shape}, got {tuple(counts.shape)}.")
    if not counts.is_meta and (not torch.isfinite(counts).all() or (counts < 0).any() or counts.sum() == 0):
        raise InputError(f"{owner} expects {name} that are finite, not negative and not all zero.")
    return counts
