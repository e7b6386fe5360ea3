"""Grad-CAM: where in a picture a network looks when it says a class."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import isqrt
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from icda.errors import InputError
from icda.explain.margins import on_device
from icda.explain.pictures import centre_box
from icda.models.base import FeatureClassifier, evaluating

BATCH = 32
FINE = 4  # places a side from which a map says where
COARSE = 2  # maps of 2 x 2 places have a quarter of their heat in the centre box whatever they show


@dataclass(frozen=True)
class HeatMaps:
    """Heat (N, H, W) of each picture, as shares that sum to one (all zero where nothing spoke for the class).

    `predicted` (N,) is what the network says, `centre_share` (N,) the share of heat in the centre box, NaN without heat
    or where the maps of the layer are too coarse (`resolution` of 2 x 2 places or fewer) to say.
    """

    heat: Tensor
    predicted: Tensor
    layer: str
    resolution: tuple[int, int]

    @property
    def centre_share(self) -> Tensor:
        shares = centre_share(self.heat)
        return shares if min(self.resolution) > COARSE else torch.full_like(shares, torch.nan)


def grad_cam(
    network: FeatureClassifier, images: Tensor, classes: Tensor | None = None, *, layer: str | None = None
) -> HeatMaps:
    """Heat maps of images (N, C, H, W) for given classes (N,), or for what the network predicts.

    Channels of the last maps that a gradient reaches are weighted with the mean gradient of the class's logit, added,
    cut at zero and enlarged to the picture. `layer` names another layer. In models of tokens (ViT) the maps are the
    tokens of the patches, laid out as they lie in the picture. The network is left as it was.

    Reference: Selvaraju et al., "Grad-CAM: visual explanations from deep networks via gradient-based localization",
    ICCV 2017.

    >>> from icda.models import create_model
    >>> maps = grad_cam(create_model("small_cnn", 3, (1, 8, 8)), torch.rand(2, 1, 8, 8))
    >>> maps.heat.shape, maps.layer
    (torch.Size([2, 8, 8]), 'encoder.layers.5')
    """
    if images.dim() != 4 or not len(images):
        raise InputError(f"grad_cam needs images of shape (N, C, H, W), got {tuple(images.shape)}.")
    name = find_layer(network, images[:1]) if layer is None else layer
    heats, predicted = [], []
    with evaluating(network), torch.enable_grad():
        for places in torch.arange(len(images)).split(BATCH):
            with _outputs_of(network) as seen:
                logits = network(on_device(images[places].detach(), network).requires_grad_()).logits
            said = logits.detach().argmax(1)
            explained = said if classes is None else classes[places].to(said)
            output = _output_of(network, name, seen)
            maps = _as_maps(name, output.detach())
            (slope,) = torch.autograd.grad(logits.gather(1, explained[:, None]).sum(), output)
            heat = (_as_maps(name, slope).mean((2, 3), keepdim=True) * maps).sum(1, keepdim=True).relu()
            heats.append(F.interpolate(heat, images.shape[2:], mode="bilinear", align_corners=False)[:, 0].cpu())
            predicted.append(said.cpu())
    said = torch.cat(predicted)
    resolution = (int(heat.shape[2]), int(heat.shape[3]))
    return HeatMaps(as_shares(torch.cat(heats)), said, name, resolution)


def as_shares(heat: Tensor) -> Tensor:
    """Heat (N, H, W) divided by its sum; a map without heat stays zero."""
    total = heat.sum((1, 2), keepdim=True)
    return torch.where(total > 0, heat / total.clamp(min=torch.finfo(heat.dtype).tiny), 0)


def centre_share(heat: Tensor) -> Tensor:
    """The share (N,) of heat within the centre box: 0.25 for heat that is even, NaN without heat."""
    total = heat.sum((1, 2))
    return torch.where(total > 0, centre_box(heat).sum((1, 2)) / total, torch.nan)


def find_layer(network: FeatureClassifier, image: Tensor) -> str:
    """The name of the last layer that yields maps (N, C, H, W), or normalised tokens, which the logits depend on.

    A layer counts if a gradient reaches more than one of its places: after the last attention of a ViT only the class
    token is read. Layers of at least 4 x 4 places come first. Found by one pass over `image` (1, C, H, W).

    >>> from icda.models import create_model
    >>> find_layer(create_model("resnet8", 3), torch.rand(1, 3, 16, 16))
    'encoder.stages.2.0'
    """
    outputs: list[tuple[str, Tensor, int]] = []
    with _outputs_of(network) as seen, evaluating(network), torch.enable_grad():
        logits = network(on_device(image.detach(), network).requires_grad_()).logits
        for name, module, output in seen:
            known = any(output is other for _, other, _ in outputs)  # a container hands its last layer's output on
            if isinstance(output, Tensor) and not known and (side := _side(module, output)):
                outputs.append((name, output, side))
        # A random direction: the plain sum of logits may have no gradient where a softmax head would.
        direction = torch.linspace(-1, 1, logits.numel(), device=logits.device).view_as(logits)
        tensors = [output for _, output, _ in outputs]
        slopes = torch.autograd.grad((logits * direction).sum(), tensors, allow_unused=True) if tensors else ()
    reached = [
        (name, side)
        for (name, _, side), slope in zip(reversed(outputs), reversed(slopes), strict=True)
        if slope is not None and int((slope.abs().sum(1 if slope.dim() == 4 else 2) > 0).sum()) > 1
    ]
    if reached:
        return next((name for name, side in reached if side >= FINE), reached[0][0])
    raise InputError(
        f"no layer of {type(network.encoder).__name__} yields maps or tokens larger than one place for images of "
        f"{tuple(image.shape[2:])} pixels, so Grad-CAM has nowhere to look: name a layer, or use larger images."
    )


def _side(module: nn.Module, output: Tensor) -> int:
    """How many places maps, or normalised tokens, have along their shorter side; 0 for all else and for one place."""
    if output.dim() == 4:
        return min(output.shape[2:]) if output.shape[2] * output.shape[3] > 1 else 0
    is_tokens = output.dim() == 3 and "norm" in type(module).__name__.lower()
    grid = _grid(output.shape[1]) if is_tokens else None
    return 0 if grid is None else grid[1]


def _grid(tokens: int) -> tuple[int, int] | None:
    """How many leading tokens are no patches, and the side of the square that the others form."""
    for extra in (0, 1, 2, 5):  # none, a class token, one for distillation, registers
        side = isqrt(max(tokens - extra, 0))
        if side > 1 and side * side == tokens - extra:
            return extra, side
    return None


def _output_of(network: nn.Module, name: str, seen: list[tuple[str, nn.Module, Any]]) -> Tensor:
    """What a layer gave last."""
    layers = dict(network.named_modules())
    if not name or name not in layers:
        raise InputError(f"the network has no layer {name!r}. Its last ones are: {', '.join(list(layers)[-6:])}.")
    outputs = [output for _, module, output in seen if module is layers[name] and isinstance(output, Tensor)]
    return outputs[-1] if outputs else torch.empty(0)


def _as_maps(name: str, output: Tensor) -> Tensor:
    """Maps (N, D, h, w): a layer's own, or its tokens laid out as their patches lie."""
    grid = _grid(output.shape[1]) if output.dim() == 3 else None
    if grid is not None:
        return output[:, grid[0] :].transpose(1, 2).unflatten(2, (grid[1], grid[1]))
    if output.dim() != 4:
        raise InputError(
            f"layer {name!r} yields {tuple(output.shape)}; Grad-CAM needs maps (N, C, H, W), or tokens (N, T, D) of a "
            "square of patches behind at most a class token: name another layer."
        )
    return output


@contextmanager
def _outputs_of(network: nn.Module) -> Iterator[list[tuple[str, nn.Module, Any]]]:
    """What the layers of a network give inside, in the order in which they finish."""
    seen: list[tuple[str, nn.Module, Any]] = []

    def watch(name: str) -> Any:
        return lambda module, inputs, output: seen.append((name, module, output))

    handles = [module.register_forward_hook(watch(name)) for name, module in network.named_modules() if name]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()
