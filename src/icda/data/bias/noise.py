"""Wrong labels: class-to-class transition matrices and labels drawn through them."""

from __future__ import annotations

import torch
from torch import Tensor

from icda.errors import InputError


def uniform_transition(num_classes: int, rate: float) -> Tensor:
    """T = (1 - rate) I + (rate / C) 11^T: with probability `rate` a label is replaced by any, the true one included.

    So the share of labels that are truly wrong is rate (1 - 1/C), as in Meta-Weight-Net's protocol.
    """
    _check_rate(rate)
    return (1 - rate) * torch.eye(num_classes, dtype=torch.float64) + rate / num_classes


def flip_transition(num_classes: int, rate: float, generator: torch.Generator, *, partners: int = 2) -> Tensor:
    """Each class loses `rate` of its labels to `partners` random other classes, in equal parts.

    `partners=2` is Meta-Weight-Net's `flip2` (called pair-flip elsewhere), `partners=1` its `flip1`.
    """
    _check_rate(rate)
    if not 1 <= partners < num_classes:
        raise InputError(f"partners is {partners}, expected 1..{num_classes - 1} with {num_classes} classes.")
    transition = (1 - rate) * torch.eye(num_classes, dtype=torch.float64)
    for label in range(num_classes):
        others = torch.randperm(num_classes - 1, generator=generator)[:partners]
        others += others >= label  # steps over the class itself
        transition[label, others] = rate / partners
    return transition


def noise_transition(kind: str, num_classes: int, rate: float, generator: torch.Generator) -> Tensor:
    """The transition matrix (C, C) of a noise called "uniform", "flip2" or "flip1"; rows are true classes."""
    if kind == "uniform":
        return uniform_transition(num_classes, rate)
    if kind in ("flip1", "flip2"):
        return flip_transition(num_classes, rate, generator, partners=int(kind[-1]))
    raise InputError(f"noise is {kind!r}, expected uniform, flip2 or flip1.")


def noisy_labels(labels: Tensor, kind: str, num_classes: int, rate: float, generator: torch.Generator) -> Tensor:
    """Labels under a noise of that kind and rate."""
    return corrupt_labels(labels, noise_transition(kind, num_classes, rate, generator), generator)


def corrupt_labels(labels: Tensor, transition: Tensor, generator: torch.Generator) -> Tensor:
    """Draw a label for each sample from its class's row of `transition`, independently."""
    if not torch.allclose(transition.sum(1), torch.ones(len(transition), dtype=transition.dtype)):
        raise InputError(f"the rows of a transition matrix must sum to 1, got {transition.sum(1).tolist()}.")
    return torch.multinomial(transition.double()[labels], 1, generator=generator).flatten()


def _check_rate(rate: float) -> None:
    if not 0 <= rate <= 1:
        raise InputError(f"the noise rate is {rate}, expected a share between 0 and 1.")
