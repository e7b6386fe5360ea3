"""The class-wise margin delta_{c,i} = log(pi_c / pi_{y_i})."""

from __future__ import annotations

import torch
from torch import Tensor

from icda.errors import InputError


def prior_term(class_counts: Tensor, targets: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """log(pi_c / pi_y) (N, C). A class without training samples gets -inf: it takes no part in the softmax.

    >>> prior_term(torch.tensor([4.0, 1.0, 0.0]), torch.tensor([0])).round(decimals=3)
    tensor([[ 0.0000, -1.3860,    -inf]])
    """
    check_counted(class_counts, targets)
    log_prior = class_counts.to(torch.float64).log()
    return (log_prior[None, :] - log_prior[targets][:, None]).to(dtype)


def check_counted(class_counts: Tensor, targets: Tensor) -> None:
    """A sample whose class was counted zero times means that the counts are not those of the training labels."""
    missing = class_counts[targets] == 0
    if missing.any():
        raise InputError(
            f"the batch holds class {int(targets[missing][0])}, whose class_counts entry is 0: "
            "give the counts of the training labels."
        )
