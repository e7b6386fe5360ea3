"""Frozen pretrained encoders by name, Hugging Face's and timm's among them: images or texts in, features out."""

from __future__ import annotations

import hashlib
import importlib.metadata
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from icda.data.augmentation import Normaliser
from icda.data.embedding.features import DEFAULTS
from icda.errors import InputError
from icda.extras import require
from icda.limits import check_side
from icda.models.base import mean_of_tokens
from icda.models.hub import check_fetching, check_prefix, local_place
from icda.models.huggingface import load_pretrained_tokeniser, readable
from icda.registry import Registry

Kind = Literal["image", "text"]
Builder = Callable[..., "ImageEncoder | TextEncoder"]  # (kind, image_size)

ENCODERS: Registry[Builder] = Registry("encoder", package="icda.models", group="icda.encoders")
PREFIXES = ("hf", "timm")
# On a CPU large batches of images fall out of the cache: 4 at once are half as fast again as 32.
CPU_BATCH = 4
MAX_TOKENS = 512  # longer texts are cut: attention is quadratic in length, and most encoders stop here


class Frozen(nn.Module):
    """A network that stays as it is: in evaluation mode, without gradients, also after `train()` or `requires_grad_()`."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network.eval().requires_grad_(False)

    def train(self, mode: bool = True) -> Frozen:
        super().train(mode)
        self.network.eval()
        return self

    def requires_grad_(self, requires_grad: bool = True) -> Frozen:
        return self  # there is nothing to train here

    @torch.no_grad()
    def forward(self, inputs: Any) -> Tensor:
        if not isinstance(inputs, Tensor) or inputs.device.type != "cpu" or torch.onnx.is_in_onnx_export():
            features: Tensor = self.network(inputs)
            return features
        return torch.cat([self.network(part) for part in inputs.split(CPU_BATCH)])


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
        self, name: str, version: str, network: nn.Module, image_size: int, mean: Sequence[float], std: Sequence[float]
    ) -> None:
        check_side(image_size, f"the encoder {name}")
        super().__init__(name, version, network)
        self.image_size: int | None = image_size
        self._normalise = Normaliser(tuple(mean), tuple(std))

    @torch.inference_mode()
    def encode(self, inputs: Tensor) -> Tensor:
        parts = inputs.split(CPU_BATCH) if self.device == "cpu" else [inputs]
        features = [self._network(self._normalise(part).to(self.device)) for part in parts]
        return _checked(self.name, torch.cat(features), len(inputs))


class TextEncoder(_Encoder):
    """A list of N texts to features (N, A): the mean over tokens, of length 1 if `normalise`, zeros without a token.

    `tokenise` gives the network's keyword arguments, with an attention_mask; the network gives (N, length, A).
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
        features = torch.zeros(len(inputs), self._num_features)
        # Attention over nothing is 0 / 0: wordless texts stay out of the network.
        worded = tokens["attention_mask"].bool().any(1)
        if worded.any():
            own = {key: value[worded] for key, value in tokens.items()}
            means = mean_of_tokens(self.name, own, lambda *_: self._network(**own))
            features[worded.cpu()] = (nn.functional.normalize(means) if self._normalise else means).cpu()
        return _checked(self.name, features, len(inputs))


def create_encoder(name: str | None, kind: Kind, image_size: int | None = None) -> ImageEncoder | TextEncoder:
    """Load an encoder by name for inputs of `kind`; None means the default, which needs no download.

    A plain name is looked up in `ENCODERS`; `hf:<folder or hub id>` takes any Hugging Face AutoModel, `timm:<name>` a
    pretrained model of timm. Images are squeezed to `image_size`, by default what the encoder was trained with.

    >>> create_encoder("minilmm", "text")
    Traceback (most recent call last):
    icda.registry.UnknownNameError: unknown encoder 'minilmm': did you mean 'minilm'? Known: efficientnet_lite0, minilm.
    """
    if kind == "text" and image_size is not None:
        raise InputError(f"image_size is {image_size}, but the inputs are texts: leave it out.")
    name = DEFAULTS[kind] if name is None else name
    prefix, colon, target = name.partition(":")
    if colon:
        check_prefix("encoder", prefix, target, PREFIXES)
        return (load_timm_encoder if prefix == "timm" else load_huggingface_encoder)(target, kind, image_size)
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


class LastHidden(nn.Module):
    """The last hidden state (N, length, A) of a text model."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, **tokens: Tensor) -> Tensor:
        return self.model(**tokens, return_dict=True).last_hidden_state


class PooledImage(nn.Module):
    """The pooled output (N, A) of an image model, or the mean over tokens or places where it has no trained pooler."""

    def __init__(self, model: nn.Module, pooled: bool) -> None:
        super().__init__()
        self.model, self.pooled = model, pooled

    def forward(self, images: Tensor) -> Tensor:
        output = self.model(pixel_values=images, return_dict=True)
        pooled = getattr(output, "pooler_output", None)
        if self.pooled and pooled is not None:
            return pooled.flatten(1)
        hidden = output.last_hidden_state
        return hidden.mean(1) if hidden.ndim == 3 else hidden.flatten(2).mean(2)


def load_huggingface_encoder(target: str, kind: Kind, image_size: int | None = None) -> ImageEncoder | TextEncoder:
    """Load a folder or hub id as encoder for images or texts.

    Images: the pooled output if the stored weights include its layers, else the mean of the last hidden state. Texts:
    the mean of the last hidden state over tokens; never the pooled output, which sentence encoders leave untrained.
    """
    transformers = require("transformers", "hf", "Hugging Face encoders")
    name, version = f"hf:{target}", f"transformers {transformers.__version__}"
    if kind == "text":
        return load_text_encoder(target, name, version)
    model, missing = load_pretrained(target, name, "pixel_values")
    try:
        recipe, _ = transformers.ImageProcessingMixin.get_image_processor_dict(local_place(target))
    except OSError as error:
        raise InputError(
            f"{target} has no preprocessor_config.json, so nobody knows which mean and std its images need: "
            "save the model's image processor beside it."
        ) from error
    neutral = [0.0] * 3, [1.0] * 3
    stored = recipe.get("image_mean", neutral[0]), recipe.get("image_std", neutral[1])
    mean, std = stored if recipe.get("do_normalize", True) else neutral
    return ImageEncoder(name, version, PooledImage(model, not missing), image_size or _size(name, recipe), mean, std)


def load_text_encoder(
    target: str, name: str, version: str, max_tokens: int = MAX_TOKENS, *, normalise: bool = False
) -> TextEncoder:
    """A text model and its tokeniser from one place."""
    model, _ = load_pretrained(target, name, "input_ids")
    tokeniser = load_pretrained_tokeniser(target)
    positions = getattr(model.config, "max_position_embeddings", None) or max_tokens
    length = min(max_tokens, tokeniser.model_max_length, positions)

    def tokenise(texts: list[str]) -> dict[str, Tensor]:
        # Padded on the right: on the left it would shift the positions of a shorter text.
        tokens = tokeniser(
            texts, padding=True, padding_side="right", truncation=True, max_length=length, return_tensors="pt"
        )
        return {key: value.long() for key, value in tokens.items()}

    return TextEncoder(name, version, LastHidden(model), tokenise, int(model.config.hidden_size), normalise)


def load_pretrained(target: str, name: str, input_name: str, **options: Any) -> tuple[Any, set[str]]:
    """A model without its head, and the names of pooler weights that its files lack; any other gap is an error."""
    transformers = require("transformers", "hf", "Hugging Face encoders")
    is_folder = Path(target).is_dir()
    options |= {"output_loading_info": True, "local_files_only": is_folder, "trust_remote_code": False}
    place = "the folder is there" if is_folder else "there is no such folder, so the hub was asked"
    with _quiet(transformers.utils.logging), readable(f"the encoder {name} ({place})"):
        model, report = transformers.AutoModel.from_pretrained(local_place(target), **options)
    if model.main_input_name != input_name:
        raise InputError(f"the encoder {name} takes {model.main_input_name}, but the inputs are {input_name}.")
    missing = set(report["missing_keys"])
    if gaps := sorted(key for key in missing if "pooler" not in key):
        raise InputError(
            f"{target} lacks the weights of {', '.join(gaps[:3])} ({len(gaps)} in all), which would be random: "
            "save the whole model."
        )
    return model, missing


def _size(name: str, recipe: dict[str, Any]) -> int:
    size = recipe.get("crop_size") if recipe.get("do_center_crop") else None
    size = size or recipe.get("size")
    if isinstance(size, dict):
        sides = {side for key in ("height", "width", "shortest_edge") if (side := size.get(key))}
        size = sides.pop() if len(sides) == 1 else None
    if not isinstance(size, int):
        raise InputError(f"{name} does not say one image size ({recipe.get('size')}): give --image-size.")
    return size


@contextmanager
def _quiet(logging: Any) -> Iterator[None]:
    """No loading bar and no list of heads left out; both would stand in the way of icda's own bar."""
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def _checked(name: str, features: Tensor, count: int) -> Tensor:
    if features.ndim != 2 or len(features) != count:
        raise InputError(
            f"the encoder {name} gives shape {tuple(features.shape)}, expected ({count}, A): choose another."
        )
    return features.float().cpu()
