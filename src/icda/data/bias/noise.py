"""Wrong labels: class-to-class transition matrices and labels drawn through them."""

import torch
from torch import Tensor

from icda.errors import InputError

PARTNERS = {"flip1": 1, "flip2": 2}


def noise_transition(kind: str, num_classes: int, rate: float, generator: torch.Generator) -> Tensor:
    """The transition matrix (C, C) of a noise called "uniform", "flip2" or "flip1"; rows are true classes.

    Uniform noise replaces a label by any with probability `rate`, the true one included, so that the share of labels that
    are truly wrong is rate (1 - 1/C). By flip2 (called pair-flip elsewhere) and flip1 each class loses `rate` of its labels
    to two or one random other classes, in equal parts. All as in Meta-Weight-Net's protocol.
    """
    if not 0 <= rate <= 1:
        raise InputError(f"the noise rate is {rate}, expected a share between 0 and 1.")
    kept = (1 - rate) * torch.eye(num_classes, dtype=torch.float64)
    if kind == "uniform":
        return kept + rate / num_classes
    if kind not in PARTNERS:
        raise InputError(f"noise is {kind!r}, expected uniform, flip2 or flip1.")
    partners = PARTNERS[kind]
    if partners >= num_classes:
        raise InputError(f"{kind} noise needs more than {partners} classes, got {num_classes}.")
    for label in range(num_classes):
        others = torch.randperm(num_classes - 1, generator=generator)[:partners]
        others += others >= label  # steps over the class itself
        kept[label, others] = rate / partners
    return kept


def noisy_labels(labels: Tensor, kind: str, num_classes: int, rate: float, generator: torch.Generator) -> Tensor:
    """A label for each sample, drawn from its class's row of `noise_transition`, independently."""
    transition = noise_transition(kind, num_classes, rate, generator)
    return torch.multinomial(transition[labels], 1, generator=generator).flatten()
