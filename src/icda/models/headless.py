"""Taking the last linear layer off somebody else's network, so that its own forward returns the features."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from icda.errors import InputError
from icda.models.base import FeatureClassifier


class Headless(nn.Module):
    """A network without its last linear layer, which says so when its output is not a batch of feature vectors.

    >>> import torch
    >>> network = nn.Sequential(nn.Flatten(), nn.Linear(12, 3))
    >>> head = take_off(network, network[1])
    >>> Headless(network, head.in_features)(torch.zeros(2, 3, 4)).shape
    torch.Size([2, 12])
    """

    def __init__(self, network: nn.Module, feature_dim: int) -> None:
        super().__init__()
        self.network = network
        self.feature_dim = feature_dim

    def forward(self, inputs: Any) -> Tensor:
        return self.check(self.network(inputs))

    def check(self, features: Any) -> Tensor:
        """The features themselves, if they are of shape (N, feature_dim)."""
        if isinstance(features, Tensor) and features.dim() == 2 and features.shape[1] == self.feature_dim:
            return features
        got = f"shape {tuple(features.shape)}" if isinstance(features, Tensor) else f"a {type(features).__name__}"
        raise InputError(
            f"{type(self.network).__name__} without its last linear layer returned {got}, expected features of shape "
            f"(N, {self.feature_dim}): it does more than that layer at its end. Turn off auxiliary outputs "
            "(aux_logits=False), name another layer with head=..., or build FeatureClassifier(encoder, head) yourself."
        )


def join(encoder: Headless, head: nn.Linear) -> FeatureClassifier:
    """Encoder and head as one model, in the network's mode; parts that a user has set to eval() stay so.

    >>> join(Headless(nn.Flatten().eval(), 4), nn.Linear(4, 2)).training
    False
    """
    model = FeatureClassifier(encoder, head)
    for module in (model, encoder, head):
        module.training = encoder.network.training
    return model


def is_linear(layer: object) -> bool:
    """Whether a layer is linear in a feature vector: nn.Linear, or a plain 1x1 convolution.

    >>> is_linear(nn.Linear(4, 2)), is_linear(nn.Conv2d(4, 2, 1)), is_linear(nn.Conv2d(4, 2, 3))
    (True, True, False)
    """
    if isinstance(layer, nn.Conv2d):
        return layer.kernel_size == layer.stride == (1, 1) and layer.padding == (0, 0) and layer.groups == 1
    return isinstance(layer, nn.Linear)


def take_off(network: nn.Module, layer: nn.Module) -> nn.Linear:
    """Put nn.Identity wherever `layer` stands in `network` and return the layer as nn.Linear. Changes `network`.

    >>> network = nn.Sequential(nn.Conv2d(4, 2, 1), nn.Flatten())
    >>> take_off(network, network[0]), network[0]
    (Linear(in_features=4, out_features=2, bias=True), Identity())
    """
    names = [name for name, module in network.named_modules(remove_duplicate=False) if module is layer]
    assert names, "the head must be a part of the network"
    for name in names:
        network.set_submodule(name, nn.Identity())
    return _as_linear(layer)


def named_layer(network: nn.Module, name: str) -> nn.Module:
    """The linear layer that a user named as the head.

    >>> named_layer(nn.Sequential(nn.Flatten(), nn.Linear(4, 2)), "1")
    Linear(in_features=4, out_features=2, bias=True)
    """
    modules = dict(network.named_modules(remove_duplicate=False))
    if name and is_linear(modules.get(name)):
        return modules[name]
    got = f"a {type(modules[name]).__name__}" if name in modules else "nothing"
    linear = [path for path, module in modules.items() if path and is_linear(module)]
    raise InputError(
        f"head={name!r} is {got} in {type(network).__name__}, expected an nn.Linear or a 1x1 nn.Conv2d. "
        f"The last ones are: {', '.join(linear[-5:]) or 'none'}."
    )


def fresh_like(head: nn.Linear, num_classes: int) -> nn.Linear:
    """A newly drawn head for another number of classes, where the old one was.

    >>> fresh_like(nn.Linear(4, 1000), 3)
    Linear(in_features=4, out_features=3, bias=True)
    """
    weight = head.weight
    return nn.Linear(weight.shape[1], num_classes, bias=head.bias is not None, device=weight.device, dtype=weight.dtype)


def _as_linear(layer: nn.Module) -> nn.Linear:
    if isinstance(layer, nn.Linear):
        return layer
    assert isinstance(layer, nn.Conv2d)
    # On the meta device nothing is drawn: the weights are the convolution's own.
    linear = nn.Linear(layer.in_channels, layer.out_channels, bias=layer.bias is not None, device="meta")
    linear.weight = nn.Parameter(layer.weight.detach().flatten(1), requires_grad=layer.weight.requires_grad)
    if layer.bias is not None:
        linear.bias = nn.Parameter(layer.bias.detach(), requires_grad=layer.bias.requires_grad)
    return linear
