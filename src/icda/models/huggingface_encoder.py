"""Any Hugging Face AutoModel as a frozen encoder."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import Tensor, nn

from icda.errors import InputError, UnreadableError
from icda.extras import require
from icda.models.encoders import ImageEncoder, Kind, TextEncoder
from icda.models.hub import local_place
from icda.models.huggingface import load_pretrained_tokeniser

MAX_TOKENS = 512  # longer texts are cut: attention is quadratic in length, and most encoders stop here


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
    version = f"transformers {transformers.__version__}"
    if kind == "text":
        return load_text_encoder(target, f"hf:{target}", version)
    return _load_image_encoder(transformers, target, version, image_size)


def load_text_encoder(
    target: str, name: str, version: str, max_tokens: int = MAX_TOKENS, *, normalise: bool = False
) -> TextEncoder:
    """A text model and its tokeniser from one place."""
    transformers = require("transformers", "hf", "Hugging Face encoders")
    model, _ = _load(transformers, target, name, "input_ids")
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


def _load_image_encoder(transformers: ModuleType, target: str, version: str, image_size: int | None) -> ImageEncoder:
    name = f"hf:{target}"
    model, missing = _load(transformers, target, name, "pixel_values")
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


def load_pretrained(target: str, name: str, **options: Any) -> Any:
    """A text model without its head, with all of its weights; `options` go to `from_pretrained`."""
    return _load(require("transformers", "hf", "Hugging Face encoders"), target, name, "input_ids", **options)[0]


def _load(transformers: ModuleType, target: str, name: str, input_name: str, **options: Any) -> tuple[Any, set[str]]:
    """The model and the names of pooler weights that its files lack; any other gap is an error."""
    is_folder = Path(target).is_dir()
    with _quiet(transformers):
        try:
            model, report = transformers.AutoModel.from_pretrained(
                local_place(target),
                output_loading_info=True,
                local_files_only=is_folder,
                trust_remote_code=False,
                **options,
            )
        except (OSError, ValueError) as error:
            place = "the folder is there" if is_folder else "there is no such folder, so the hub was asked"
            raise UnreadableError(
                f"the encoder {name} cannot be loaded ({place}): {str(error).splitlines()[0]}"
            ) from error
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


@contextlib.contextmanager
def _quiet(transformers: ModuleType) -> Iterator[None]:
    """No loading bar and no list of heads left out; both would stand in the way of icda's own bar."""
    logging = transformers.utils.logging
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
