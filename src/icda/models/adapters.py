"""Models of timm and torchvision, and any that look like them, behind the one face."""

from __future__ import annotations

from typing import Any

from torch import nn

from icda.errors import InputError
from icda.extras import require
from icda.models.base import FeatureClassifier
from icda.models.headless import Headless, fresh_like, is_linear, join, named_layer, take_off
from icda.models.hub import check_plain_name

HEAD_NAMES = ("fc", "classifier", "head", "heads")

# What may follow the head: these commute with a linear map over channels, so they may as well come before it.
_HARMLESS = (nn.Identity, nn.Flatten, nn.AdaptiveAvgPool2d)


def from_torch(model: nn.Module, num_classes: int | None = None, *, head: str | None = None) -> FeatureClassifier:
    """Split a timm- or torchvision-style network into encoder and head. `model` itself is changed: it loses its head.

    The head is what `get_classifier()` returns (timm), else the last layer of `fc`, `classifier`, `head` or `heads`
    (torchvision), an nn.Linear or a 1x1 nn.Conv2d; `head="path.to.layer"` names it where it is elsewhere. The network's
    own forward then gives exactly the input of that layer. A `num_classes` other than the head's brings a new head.
    A forward that does more after the head, such as a softmax, would do it to the features: return plain logits.

    >>> import torch
    >>> from collections import OrderedDict
    >>> network = nn.Sequential(OrderedDict(body=nn.Flatten(), fc=nn.Linear(12, 1000)))
    >>> model = from_torch(network, num_classes=3)
    >>> model(torch.zeros(2, 3, 4)).logits.shape
    torch.Size([2, 3])
    """
    layer = find_head(model) if head is None else named_layer(model, head)
    linear = take_off(model, layer)
    if num_classes is not None and num_classes != linear.weight.shape[0]:
        linear = fresh_like(linear, num_classes)
    return join(Headless(model, linear.weight.shape[1]), linear)


def find_head(model: nn.Module) -> nn.Module:
    """The last linear layer of a timm- or torchvision-style network.

    >>> from collections import OrderedDict
    >>> head = nn.Sequential(nn.Dropout(), nn.Linear(4, 2))
    >>> find_head(nn.Sequential(OrderedDict(body=nn.Flatten(), classifier=head)))
    Linear(in_features=4, out_features=2, bias=True)
    """
    get_classifier = getattr(model, "get_classifier", None)
    if callable(get_classifier):
        return _check_classifier(model, get_classifier())
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
    timm = require("timm", "timm", "timm models")
    check_plain_name(name)
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


def _check_classifier(model: nn.Module, classifier: object) -> nn.Module:
    if isinstance(classifier, nn.Module) and is_linear(classifier):
        return classifier
    kind = type(model).__name__
    if isinstance(classifier, nn.Identity):
        raise InputError(f"{kind} has no head (num_classes=0): call model.reset_classifier(num_classes) first.")
    if isinstance(classifier, (tuple, list, dict)):
        raise InputError(
            f"{kind}.get_classifier() returns {len(classifier)} heads, expected one linear layer: "
            "use the variant without distillation."
        )
    raise InputError(
        f"{kind}.get_classifier() returns a {type(classifier).__name__}, expected nn.Linear or a 1x1 nn.Conv2d: "
        'name the last linear layer, from_torch(model, head="path.to.layer").'
    )


def _last_layer(module: nn.Module) -> nn.Module:
    if is_linear(module):
        return module
    children = [child for child in module.children() if not isinstance(child, _HARMLESS)]
    return _last_layer(children[-1]) if children else module
