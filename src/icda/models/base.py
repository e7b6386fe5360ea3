"""The one face every model has: an encoder, a linear head, and both of their outputs."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from torch import Tensor, nn

from icda.errors import InputTypeError


class Output(NamedTuple):
    """`features` (N, A) go into the head, `logits` (N, C) come out of it."""

    features: Tensor
    logits: Tensor


def mean_of_tokens(model: str, inputs: Any, embed: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """The mean (N, A) of what `embed` makes of ids and mask (N, L), over the tokens that are no padding.

    `inputs` is a dict with `input_ids` and `attention_mask`. A text without tokens has the zero vector as its mean.
    """
    if not isinstance(inputs, Mapping) or not {"input_ids", "attention_mask"} <= set(inputs):
        got = f"a dict with {sorted(inputs)}" if isinstance(inputs, Mapping) else type(inputs).__name__
        raise InputTypeError(f"{model} expects a dict with 'input_ids' and 'attention_mask', got {got}.")
    hidden = embed(inputs["input_ids"], inputs["attention_mask"])
    kept = inputs["attention_mask"].bool().unsqueeze(2)
    return hidden.where(kept, 0.0).sum(1) / kept.sum(1).clamp(min=1)


class FeatureClassifier(nn.Module):
    """An encoder, which maps a batch to features (N, A), and the linear layer that reads them.

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
        weight = self.head.weight
        assert isinstance(weight, Tensor), f"a head is a linear layer, got {type(self.head).__name__}"
        return weight

    @property
    def feature_dim(self) -> int:
        return self.head_weight.shape[1]

    @property
    def num_classes(self) -> int:
        return self.head_weight.shape[0]


@contextmanager
def evaluating(*modules: nn.Module) -> Iterator[None]:
    """Evaluation mode inside; each submodule's own mode restored after, frozen BatchNorm layers included."""
    modes = [(module, module.training) for root in modules for module in root.modules()]
    for root in modules:
        root.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode
