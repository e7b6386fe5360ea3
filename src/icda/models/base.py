"""The one face every model has: an encoder, a linear head, and both of their outputs."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor, nn


class Output(NamedTuple):
    """`features` (N, A) go into the head, `logits` (N, C) come out of it."""

    features: Tensor
    logits: Tensor


class FeatureClassifier(nn.Module):
    """An encoder and the linear layer that reads its features.

    Losses and methods ask for `features`, `logits` and `head`; everything else about a model is its own business.
    `encoder` maps an input batch to features of shape (N, A) and `head` is the last linear layer.

    >>> import torch
    >>> model = FeatureClassifier(nn.Flatten(), nn.Linear(12, 3))
    >>> output = model(torch.zeros(2, 3, 4))
    >>> output.features.shape, output.logits.shape, model.feature_dim, model.num_classes
    (torch.Size([2, 12]), torch.Size([2, 3]), 12, 3)
    """

    def __init__(self, encoder: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = head

    def forward(self, inputs: Any) -> Output:
        features = self.encoder(inputs)
        return Output(features, self.head(features))

    @property
    def head_weight(self) -> Tensor:
        """The head's weight (C, A)."""
        weight = self.head.weight
        assert isinstance(weight, Tensor), f"a head is a linear layer, got {type(self.head).__name__}"
        return weight

    @property
    def feature_dim(self) -> int:
        return self.head_weight.shape[1]

    @property
    def num_classes(self) -> int:
        return self.head_weight.shape[0]
