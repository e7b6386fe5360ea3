"""An encoder whose last block stands there twice: a shared trunk and two branches."""

import copy
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from icda.errors import InputError
from icda.models.adapters import Headless
from icda.models.base import evaluating
from icda.models.convolutional import GlobalMean, Transition

# What may be done to both branches' maps at once, for it treats every channel by itself.
_POOLS = (GlobalMean, nn.AdaptiveAvgPool2d, nn.Flatten, nn.Identity)


class TwoBatches(NamedTuple):
    """Inputs of two batches of the same size, one a branch, and the share of the first in what comes out."""

    first: Any
    second: Any
    share: float


class TwoBranches(nn.Module):
    """A trunk, two copies of a branch, and their features side by side: (N, 2A).

    Of a batch both branches see the same samples. Of `TwoBatches` each branch sees its own, and the features are
    2 [l f1, (1 - l) f2], l being the share: with l = 1/2 and equal batches that is the same. `branch` maps the trunk's
    output to maps or vectors with A channels, `pool` the maps of both to vectors.
    """

    def __init__(self, trunk: nn.Module, branch: nn.Module, pool: nn.Module | None = None) -> None:
        super().__init__()
        self.trunk = trunk
        self.conventional, self.rebalancing = branch, copy.deepcopy(branch)
        self.join = nn.Identity()  # the maps of both, in one place for those who look at maps (Grad-CAM)
        self.pool = nn.Identity() if pool is None else pool

    def forward(self, inputs: Any) -> Tensor:
        if not isinstance(inputs, TwoBatches):
            maps = self.trunk(inputs)
            return self._features(maps, maps)
        # One pass each: the batches are drawn differently, and BatchNorm must not mix their figures.
        features = self._features(self.trunk(inputs.first), self.trunk(inputs.second))
        first, second = features.chunk(2, dim=1)
        return 2 * torch.cat([inputs.share * first, (1 - inputs.share) * second], dim=1)

    def _features(self, first: Tensor, second: Tensor) -> Tensor:
        maps = torch.cat([self.conventional(first), self.rebalancing(second)], dim=1)
        return self.pool(self.join(maps))


def two_branches(encoder: nn.Module, input_shape: tuple[int, ...]) -> TwoBranches:
    """Cut an encoder before its last block and double what follows. The encoder's own layers go into the result.

    The last block is the last residual block of a ResNet, the last dense block of a DenseNet, else the last layer with
    a weight matrix, with the norm and activation behind it. Trunk and branch must give what the encoder gives on a
    probe of shape `input_shape`; an encoder that is not one layer after another, such as a Hugging Face model, is
    refused.
    """
    layers = _flat([encoder])
    if type(encoder) is Headless:  # not those of Hugging Face, whose forward takes more than a tensor
        layers = _flat([*encoder.network.children(), nn.Flatten()])
    start = _start(encoder, layers)
    end = len(layers)
    while isinstance(layers[end - 1], _POOLS):
        end -= 1
    trunk, branch, pool = (nn.Sequential(*part) for part in (layers[:start], layers[start:end], layers[end:]))
    _check_cut(encoder, nn.Sequential(*layers), input_shape)
    for part in (trunk, branch, pool):
        part.training = encoder.training
    cut = TwoBranches(trunk, branch, pool)
    cut.training = encoder.training
    return cut


def _flat(layers: Sequence[nn.Module]) -> list[nn.Module]:
    flat: list[nn.Module] = []
    for layer in layers:
        is_chain = isinstance(layer, nn.Sequential) and type(layer).forward is nn.Sequential.forward
        flat += _flat(list(layer.children())) if is_chain else [layer]
    return flat


def _start(encoder: nn.Module, layers: Sequence[nn.Module]) -> int:
    """Where the branch begins."""
    weighted = [i for i, layer in enumerate(layers) if any(value.dim() > 1 for value in layer.parameters())]
    if not weighted:
        raise InputError(
            f"{type(encoder).__name__} has no layer with weights, so there is no block to make two branches of: the model "
            "'linear' is a head alone. Choose a model with a hidden layer, such as 'mlp' or a ResNet."
        )
    if layers == [encoder]:
        raise _no_chain(encoder)
    transitions = [i for i, layer in enumerate(layers) if isinstance(layer, Transition)]
    # A single dense layer adds a few channels to hundreds that both branches would share.
    return transitions[-1] + 1 if transitions else weighted[-1]


@torch.no_grad()
def _check_cut(encoder: nn.Module, chain: nn.Module, input_shape: tuple[int, ...]) -> None:
    if not input_shape:
        raise InputError("two branches need the shape of one input to try the cut on, for example (3, 32, 32); got ().")
    value = next(encoder.parameters())
    count = 2 * math.prod(input_shape)
    probe = torch.linspace(-1, 1, count, device=value.device, dtype=value.dtype).view(2, *input_shape)
    with evaluating(encoder, chain):
        of_encoder = encoder(probe)
        try:
            of_chain = chain(probe)
        except (RuntimeError, TypeError, ValueError, AttributeError) as error:
            raise _no_chain(encoder) from error
    if of_chain.shape != of_encoder.shape or not torch.allclose(of_chain, of_encoder, rtol=1e-4, atol=1e-5):
        raise _no_chain(encoder)


def _no_chain(encoder: nn.Module) -> InputError:
    network = encoder.network if isinstance(encoder, Headless) else encoder
    return InputError(
        f"{type(network).__name__} is not one layer after another, so nobody knows where its last block begins: choose a "
        "CIFAR model (resnet32, wrn_28_10, ...), a ResNet of timm or torchvision, small_cnn or mlp, or build "
        "FeatureClassifier(TwoBranches(trunk, branch, pool), head) yourself, with a head over twice the features."
    )
