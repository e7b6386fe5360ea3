"""Frozen pretrained encoders by name: images or texts in, features out."""

from __future__ import annotations

import hashlib
import importlib.metadata
from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from icda.data.augmentation import Normaliser
from icda.errors import InputError
from icda.extras import require
from icda.models.hub import check_fetching, check_prefix
from icda.registry import Registry, UnknownNameError, did_you_mean

Kind = Literal["image", "text"]
Builder = Callable[..., "ImageEncoder | TextEncoder"]  # (kind, image_size)

ENCODERS: Registry[Builder] = Registry("encoder", package="icda.models", group="icda.encoders")
DEFAULTS: dict[Kind, str] = {"image": "efficientnet_lite0", "text": "minilm"}
PREFIXES = ("hf", "timm")
# On a CPU large batches of images fall out of the cache: 4 at once are half as fast again as 32.
CPU_BATCH = 4


class _Encoder:
    """What both kinds share: a network that is frozen, in evaluation mode, in float32, on a GPU if there is one."""

    kind: Kind

    def __init__(self, name: str, version: str, network: nn.Module) -> None:
        self.name = name
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.version = f"{version}, weights {weights_digest(network)}"
        self._network = network.float().eval().requires_grad_(False).to(self.device)


class ImageEncoder(_Encoder):
    """Images as bytes (N, H, W, 3), `image_size` a side, to features (N, A)."""

    kind: Kind = "image"

    def __init__(
        self,
        name: str,
        version: str,
        network: nn.Module,
        image_size: int,
        mean: Sequence[float],
        std: Sequence[float],
    ) -> None:
        if image_size < 1:
            raise InputError(f"the image size is {image_size}, expected 1 pixel or more.")
        super().__init__(name, version, network)
        self.image_size: int | None = image_size
        self._normalise = Normaliser(tuple(mean), tuple(std))

    @torch.inference_mode()
    def encode(self, inputs: Tensor) -> Tensor:
        parts = inputs.split(CPU_BATCH) if self.device == "cpu" else [inputs]
        features = [self._network(self._normalise(part).to(self.device)) for part in parts]
        return _checked(self.name, torch.cat(features), len(inputs))


class TextEncoder(_Encoder):
    """A list of N texts to features (N, A).

    `tokenise` gives the network's keyword arguments, with an attention_mask; the network gives (N, length, A) before
    pooling. Features are the mean over tokens under that mask, of length 1 if `normalise`. A text without a single
    token has features of zero.
    """

    kind: Kind = "text"
    image_size: int | None = None

    def __init__(
        self,
        name: str,
        version: str,
        network: nn.Module,
        tokenise: Callable[[list[str]], dict[str, Tensor]],
        num_features: int,
        normalise: bool = False,
    ) -> None:
        super().__init__(name, version, network)
        self._tokenise, self._num_features, self._normalise = tokenise, num_features, normalise

    @torch.inference_mode()
    def encode(self, inputs: list[str]) -> Tensor:
        tokens = {key: value.to(self.device) for key, value in self._tokenise(inputs).items()}
        mask = tokens["attention_mask"].bool()
        features = torch.zeros(len(inputs), self._num_features)
        # Attention over nothing is 0 / 0: wordless texts stay out of the network.
        worded = mask.any(1)
        if worded.any():
            hidden = self._network(**{key: value[worded] for key, value in tokens.items()})
            kept = mask[worded].unsqueeze(2)
            means = hidden.where(kept, 0.0).sum(1) / kept.sum(1)
            features[worded.cpu()] = (nn.functional.normalize(means) if self._normalise else means).cpu()
        return _checked(self.name, features, len(inputs))


def create_encoder(name: str | None, kind: Kind, image_size: int | None = None) -> ImageEncoder | TextEncoder:
    """Load an encoder by name for inputs of `kind`; None means the default, which needs no download.

    A plain name is looked up in `ENCODERS`; `hf:<folder or hub id>` takes any Hugging Face AutoModel, `timm:<name>` a
    pretrained model of timm. Images are squeezed to `image_size`, by default what the encoder was trained with.

    >>> create_encoder("minilmm", "text")
    Traceback (most recent call last):
    icda.registry.UnknownNameError: unknown encoder 'minilmm': did you mean 'minilm'? Known: efficientnet_lite0, minilm, ...
    """
    if kind == "text" and image_size is not None:
        raise InputError(f"image_size is {image_size}, but the inputs are texts: leave it out.")
    name = DEFAULTS[kind] if name is None else name
    prefix, colon, target = name.partition(":")
    if colon:
        return _create_foreign(prefix, target, kind, image_size)
    if name not in ENCODERS:
        hint = did_you_mean(name, ENCODERS)
        raise UnknownNameError(
            f"unknown encoder {name!r}: {hint}Known: {', '.join(ENCODERS)}, hf:PATH_OR_ID, timm:NAME."
        )
    return ENCODERS.get(name)(kind, image_size)


def check_kind(name: str, has: Kind, wanted: Kind) -> None:
    """Refuse images to a text encoder and the other way round."""
    if has != wanted:
        raise InputError(
            f"the encoder {name} takes {has}s, but the inputs are {wanted}s: "
            f"choose another, such as {DEFAULTS[wanted]}, the default for {wanted}s."
        )


def version_of(package: str) -> str:
    """Name and version of an installed package."""
    return f"{package} {importlib.metadata.version(package)}"


def weights_digest(network: nn.Module) -> str:
    """Twelve hex digits that stand for the weights: a folder or hub name alone does not say which they were."""
    digest = hashlib.sha256()
    for name, value in network.state_dict().items():
        digest.update(name.encode())
        digest.update(value.detach().float().contiguous().cpu().numpy().data)
    return digest.hexdigest()[:12]


def load_timm_encoder(target: str, kind: Kind, image_size: int | None = None) -> ImageEncoder:
    """A pretrained model of timm without its head, with the image size, mean and std it was trained with."""
    check_fetching(f"timm:{target}")
    timm: Any = require("timm", "timm", "timm encoders")
    check_kind(f"timm:{target}", "image", kind)
    network = timm.create_model(target, pretrained=True, num_classes=0)
    data = timm.data.resolve_model_data_config(network)
    size = image_size or int(data["input_size"][-1])
    return ImageEncoder(f"timm:{target}", f"timm {timm.__version__}", network, size, data["mean"], data["std"])


def _create_foreign(prefix: str, target: str, kind: Kind, image_size: int | None) -> ImageEncoder | TextEncoder:
    check_prefix("encoder", prefix, target, PREFIXES)
    if prefix == "timm":
        return load_timm_encoder(target, kind, image_size)
    from icda.models.huggingface_encoder import load_huggingface_encoder

    return load_huggingface_encoder(target, kind, image_size)


def _checked(name: str, features: Tensor, count: int) -> Tensor:
    if features.ndim != 2 or len(features) != count:
        raise InputError(
            f"the encoder {name} gives shape {tuple(features.shape)}, expected ({count}, A): choose another."
        )
    return features.float().cpu()
