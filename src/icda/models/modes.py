"""Training and evaluation mode of modules."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def evaluating(*modules: nn.Module) -> Iterator[None]:
    """Evaluation mode inside; each submodule's own mode restored after, frozen BatchNorm layers included.

    >>> network = nn.Sequential(nn.Dropout(), nn.BatchNorm1d(3).eval())
    >>> with evaluating(network):
    ...     network[0].training
    False
    >>> network[0].training, network[1].training
    (True, False)
    """
    modes = [(module, module.training) for root in modules for module in root.modules()]
    for root in modules:
        root.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode
