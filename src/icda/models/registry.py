"""Model names, and the one function that turns a name into a model."""

from collections.abc import Callable
from typing import Any

from icda.errors import InputError
from icda.models.adapters import load_timm, load_torchvision
from icda.models.base import FeatureClassifier
from icda.models.hub import check_prefix, hub_allowed
from icda.models.huggingface import load_huggingface
from icda.registry import Registry

Builder = Callable[..., FeatureClassifier]  # (num_classes, input_shape, **options)

MODELS: Registry[Builder] = Registry("model", package="icda.models", group="icda.models")

PREFIXES = ("hf", "timm", "torchvision")


def create_model(name: str, num_classes: int, input_shape: tuple[int, ...] = (), **options: Any) -> FeatureClassifier:
    """Build a model by name, in training mode.

    A plain name is looked up in `MODELS`. `hf:<path or hub id>`, `timm:<name>` and `torchvision:<name>` go to the
    adapters, the last two with pretrained weights after an @ (`timm:resnet50@pretrained`,
    `torchvision:resnet50@IMAGENET1K_V1`); `options` go to the builder or to the other library. `input_shape` is the
    shape of one input without the batch; left out, images are taken to be RGB.

    >>> import torch
    >>> create_model("mlp", num_classes=3, input_shape=(5,))(torch.zeros(2, 5)).logits.shape
    torch.Size([2, 3])
    >>> create_model("resnet33", num_classes=3)
    Traceback (most recent call last):
    icda.registry.UnknownNameError: unknown model 'resnet33': did you mean 'resnet32'? Known: ...
    """
    if num_classes < 2:
        raise InputError(f"model {name!r} was asked for with {num_classes} class(es); a classifier needs at least two.")
    shape = tuple(input_shape)
    prefix, colon, target = name.partition(":")
    if not colon:
        return MODELS.get(name)(num_classes, shape, **options).train()
    check_prefix("model", prefix, target, PREFIXES)
    if prefix == "hf":
        return load_huggingface(target, num_classes, **options)
    target, _, weights = target.partition("@")
    if weights and hub_allowed():  # a model read back brings its weights along
        options |= {"pretrained": True} if prefix == "timm" else {"weights": weights}
    load = load_timm if prefix == "timm" else load_torchvision
    return load(target, num_classes, image_channels(f"{prefix}:{target}", shape), **options)


def image_channels(model: str, input_shape: tuple[int, ...]) -> int:
    """The number of channels of an image shape; an empty shape means RGB."""
    if len(input_shape) not in (0, 3):
        raise InputError(
            f"{model} expects images of shape (channels, height, width), got input_shape {input_shape}: "
            "feature vectors go to 'mlp' or 'linear'."
        )
    return input_shape[0] if input_shape else 3
