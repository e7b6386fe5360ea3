"""Models of timm, torchvision and their likes behind the one face: without its head a forward gives the features."""

from typing import Any

from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from icda.errors import InputError, InputTypeError
from icda.extras import require
from icda.models.base import FeatureClassifier
from icda.models.hub import check_fetching

HEAD_NAMES = ("fc", "classifier", "head", "heads")
# What may follow the head: these commute with a linear map over channels, so they may as well come before it.
_HARMLESS = (nn.Identity, nn.Flatten, nn.AdaptiveAvgPool2d)


def from_torch(model: nn.Module, num_classes: int | None = None, *, head: str | None = None) -> FeatureClassifier:
    """Split a timm- or torchvision-style network into encoder and head. `model` itself is changed: it loses its head.

    The head is what `get_classifier()` returns (timm), else the last layer of `fc`, `classifier`, `head` or `heads`
    (torchvision), an nn.Linear or a 1x1 nn.Conv2d; `head="path.to.layer"` names it where it is elsewhere. A
    `num_classes` other than the head's brings a new head. A forward that does more after the head, such as a softmax,
    would do it to the features: return plain logits.

    >>> import torch
    >>> from collections import OrderedDict
    >>> network = nn.Sequential(OrderedDict(body=nn.Flatten(), fc=nn.Linear(12, 1000)))
    >>> from_torch(network, num_classes=3)(torch.zeros(2, 3, 4)).logits.shape
    torch.Size([2, 3])
    """
    linear = take_off(model, find_head(model) if head is None else named_layer(model, head))
    weight, bias = linear.weight, linear.bias is not None
    if num_classes is not None and num_classes != len(weight):
        linear = nn.Linear(weight.shape[1], num_classes, bias=bias, device=weight.device, dtype=weight.dtype)
    return join(Headless(model, weight.shape[1]), linear)


def find_head(model: nn.Module) -> nn.Module:
    """The last linear layer of a timm- or torchvision-style network."""
    get_classifier = getattr(model, "get_classifier", None)
    if callable(get_classifier):
        classifier = get_classifier()
        if isinstance(classifier, nn.Module) and is_linear(classifier):
            return classifier
        remedy = 'name the last linear layer, from_torch(model, head="path.to.layer")'
        if isinstance(classifier, nn.Identity):
            remedy = "it has no head (num_classes=0): call model.reset_classifier(num_classes) first"
        elif isinstance(classifier, (tuple, list, dict)):
            remedy = f"it has {len(classifier)} heads: use the variant without distillation"
        raise InputError(
            f"{type(model).__name__}.get_classifier() returns a {type(classifier).__name__}, expected nn.Linear or a 1x1 "
            f"nn.Conv2d: {remedy}."
        )
    heads = {name: getattr(model, name) for name in HEAD_NAMES if isinstance(getattr(model, name, None), nn.Module)}
    for name, module in heads.items():
        layer = _last_layer(module)
        if is_linear(layer):
            return layer
        heads[name] = layer
    ends = ", ".join(f"'{name}' ending in {type(layer).__name__}" for name, layer in heads.items())
    children = ", ".join(name for name, _ in model.named_children())
    raise InputError(
        f"from_torch finds no linear head in {type(model).__name__}: expected get_classifier(), or one of "
        f"{', '.join(HEAD_NAMES)} ending in nn.Linear or a 1x1 nn.Conv2d; found {ends or f'only {children or None}'}. "
        'Name the layer, from_torch(model, head="path.to.layer"), or build FeatureClassifier(encoder, head) yourself.'
    )


def load_timm(name: str, num_classes: int, channels: int = 3, **options: Any) -> FeatureClassifier:
    """The model `timm.create_model(name, num_classes=..., in_chans=channels, **options)`, split."""
    if ":" in name:  # such as hf_hub:owner/model
        check_fetching(name)
    timm = require("timm", "timm", "timm models")
    return from_torch(timm.create_model(name, num_classes=num_classes, in_chans=channels, **options)).train()


def load_torchvision(name: str, num_classes: int, channels: int = 3, **options: Any) -> FeatureClassifier:
    """The model `torchvision.models.get_model(name, **options)`, split, with a head for `num_classes`."""
    # torchvision comes with timm, so one extra serves both.
    models = require("torchvision.models", "timm", "torchvision models")
    if channels != 3:
        raise InputError(
            f"torchvision models take RGB images, got {channels} channel(s): repeat the channel in the data."
        )
    return from_torch(models.get_model(name, **options), num_classes).train()


def _last_layer(module: nn.Module) -> nn.Module:
    if is_linear(module):
        return module
    children = [child for child in module.children() if not isinstance(child, _HARMLESS)]
    return _last_layer(children[-1]) if children else module


class Headless(nn.Module):
    """A network without its last linear layer, which says so when its output is not a batch of feature vectors."""

    def __init__(self, network: nn.Module, feature_dim: int) -> None:
        super().__init__()
        self.network, self.feature_dim = network, feature_dim

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
    """Encoder and head as one model, in the network's mode; parts that a user has set to eval() stay so."""
    model = FeatureClassifier(encoder, head)
    for module in (model, encoder, head):
        module.training = encoder.network.training
    return model


def unwrap(model: nn.Module) -> nn.Module:
    """The module inside DistributedDataParallel and torch.compile; DataParallel's copies cannot be followed."""
    if isinstance(model, nn.DataParallel):
        raise InputTypeError(
            "features cannot be followed into nn.DataParallel's copies: use DistributedDataParallel (torchrun)."
        )
    inner = model.module if isinstance(model, DistributedDataParallel) else getattr(model, "_orig_mod", model)
    assert isinstance(inner, nn.Module)
    return model if inner is model else unwrap(inner)


def is_linear(layer: object) -> bool:
    """Whether a layer is linear in a feature vector: nn.Linear, or a plain 1x1 convolution."""
    if isinstance(layer, nn.Conv2d):
        return layer.kernel_size == layer.stride == (1, 1) and layer.padding == (0, 0) and layer.groups == 1
    return isinstance(layer, nn.Linear)


def take_off(network: nn.Module, layer: nn.Module) -> nn.Linear:
    """Put nn.Identity wherever `layer` stands in `network` and return the layer as nn.Linear. Changes `network`."""
    names = [name for name, module in network.named_modules(remove_duplicate=False) if module is layer]
    assert names, "the head must be a part of the network"
    for name in names:
        network.set_submodule(name, nn.Identity())
    if isinstance(layer, nn.Linear):
        return layer
    assert isinstance(layer, nn.Conv2d)
    # On the meta device nothing is drawn: the weights are the convolution's own.
    linear = nn.Linear(layer.in_channels, layer.out_channels, bias=layer.bias is not None, device="meta")
    linear.weight = nn.Parameter(layer.weight.detach().flatten(1), requires_grad=layer.weight.requires_grad)
    if layer.bias is not None:
        linear.bias = nn.Parameter(layer.bias.detach(), requires_grad=layer.bias.requires_grad)
    return linear


def named_layer(network: nn.Module, name: str) -> nn.Module:
    """The linear layer that a user named as the head."""
    modules = dict(network.named_modules(remove_duplicate=False))
    if name and is_linear(modules.get(name)):
        return modules[name]
    got = f"a {type(modules[name]).__name__}" if name in modules else "nothing"
    linear = [path for path, module in modules.items() if path and is_linear(module)]
    raise InputError(
        f"head={name!r} is {got} in {type(network).__name__}, expected an nn.Linear or a 1x1 nn.Conv2d. "
        f"The last ones are: {', '.join(linear[-5:]) or 'none'}."
    )
