"""Hugging Face image and text classifiers behind the one face."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from torch import Tensor, nn

from icda.errors import InputError, InputTypeError, UnreadableError
from icda.extras import require
from icda.models.adapters import Headless, is_linear, join, named_layer, take_off
from icda.models.base import FeatureClassifier
from icda.models.hub import local_place

SAVED_MODEL = "give a folder with a saved model, or an id of the hub while it can be reached."
# Options of from_pretrained that say where to look: the configuration must be read from the same place.
_HUB_OPTIONS = ("revision", "cache_dir", "token", "local_files_only", "trust_remote_code", "subfolder")


class HuggingFaceEncoder(Headless):
    """A Hugging Face classifier without its last linear layer: what it calls logits are then the features (N, A).

    Takes a tensor (pixel values or token ids) or a dict of keyword arguments, of which `labels` are left out.
    """

    def forward(self, inputs: Tensor | Mapping[str, Any]) -> Tensor:
        if isinstance(inputs, Mapping):
            arguments = {name: value for name, value in inputs.items() if name != "labels"}
        else:
            arguments = {str(self.network.main_input_name): inputs}
        return self.check(self.network(**arguments, return_dict=True).logits)


def from_huggingface(model: nn.Module, *, head: str | None = None) -> FeatureClassifier:
    """Split a Hugging Face `...ForImageClassification` or `...ForSequenceClassification` into encoder and head.

    The head is the one linear layer outside the base model with `config.num_labels` rows; `head="path.to.layer"` names
    it where there are several. nn.Identity takes its place: `model` itself loses its head. Forward-mode derivatives of
    your own (torch.func.jvp) and gradients of gradients need a model with `attn_implementation="eager"`; Meta-ICDA's
    look-ahead chooses attention itself.

    >>> import torch, transformers
    >>> config = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], num_labels=3)
    >>> output = from_huggingface(transformers.ResNetForImageClassification(config))(torch.zeros(2, 3, 32, 32))
    >>> output.features.shape, output.logits.shape
    (torch.Size([2, 16]), torch.Size([2, 3]))
    """
    linear = take_off(model, _find_head(model) if head is None else named_layer(model, head))
    return join(HuggingFaceEncoder(model, linear.weight.shape[1]), linear)


def load_huggingface(path_or_id: str, num_classes: int, **options: Any) -> FeatureClassifier:
    """Load a pretrained classifier from a folder or the hub, in float32 and training mode.

    The configuration decides between image and text. Where the stored head has another number of classes, or there is
    none, a new one is drawn. `options` go to `from_pretrained` (`revision`, `attn_implementation`, `dtype` ...).
    """
    transformers = require("transformers", "hf", "Hugging Face models")
    path_or_id, options = local_place(path_or_id), {"trust_remote_code": False, **options}
    where = {name: options[name] for name in _HUB_OPTIONS if name in options}
    config = huggingface_config(path_or_id, num_labels=num_classes, **where)
    is_text = huggingface_kind(config) == "text"
    if is_text and getattr(config, "pad_token_id", None) is None:
        config.pad_token_id = _padding_id(path_or_id, config)
    auto = transformers.AutoModelForSequenceClassification if is_text else transformers.AutoModelForImageClassification
    with readable(f"the model {path_or_id}"):
        model = auto.from_pretrained(path_or_id, config=config, ignore_mismatched_sizes=True, **options)
    if not {"dtype", "torch_dtype"} & set(options):
        # Weights stored in half precision would be loaded as such, and trained as such.
        model = model.float()
    return from_huggingface(model).train()


def _padding_id(path_or_id: str, config: Any) -> int | None:
    """What texts are padded with: decoders look for the last token that is something else.

    The tokeniser's own, as that is what fills the batches; without a tokeniser the end of a text.
    """
    try:
        return int(load_pretrained_tokeniser(path_or_id).pad_token_id)
    except OSError:
        end = getattr(config, "eos_token_id", None)
        return end[0] if isinstance(end, list) else end


def load_pretrained_tokeniser(target: str) -> Any:
    """A Hugging Face tokeniser that can pad; from a folder it is read without asking the hub."""
    transformers = require("transformers", "hf", "Hugging Face tokenisers")
    hint = "save the one the model was trained with beside it, tokenizer.save_pretrained(folder)."
    options = {"local_files_only": Path(target).is_dir(), "trust_remote_code": False}
    with readable(f"the tokeniser of {target}", hint):
        tokeniser = transformers.AutoTokenizer.from_pretrained(local_place(target), **options)
    if len(tokeniser) <= len(tokeniser.all_special_tokens):
        # Where there are no files, transformers makes a tokeniser to which every word is unknown.
        raise UnreadableError(f"{target} has no tokeniser: {hint}")
    if tokeniser.pad_token is None:
        # Padding is masked: any id serves a tokeniser that has none of its own, such as GPT-2's.
        tokeniser.pad_token = tokeniser.eos_token
    return tokeniser


def huggingface_config(path_or_id: str, **options: Any) -> Any:
    """The configuration of a model in a folder or on the hub."""
    transformers = require("transformers", "hf", "Hugging Face models")
    place = local_place(path_or_id)
    with readable(f"the model {path_or_id}"):
        return transformers.AutoConfig.from_pretrained(place, **{"trust_remote_code": False, **options})


@contextmanager
def readable(what: str, remedy: str = SAVED_MODEL) -> Iterator[None]:
    """What cannot be had is the user's to repair: a typing mistake, no network, a damaged folder."""
    try:
        yield
    except (OSError, ValueError) as error:
        raise UnreadableError(f"{what} cannot be loaded ({str(error).splitlines()[0]}): {remedy}") from error


def huggingface_kind(config: Any) -> Literal["image", "text"]:
    """Whether a model with this configuration classifies images or texts."""
    transformers = require("transformers", "hf", "Hugging Face models")
    names = " ".join(config.architectures or ())
    if "ForImageClassification" in names:
        return "image"
    if "ForSequenceClassification" in names:
        return "text"
    if type(config) in transformers.AutoModelForSequenceClassification._model_mapping:
        return "text"
    if type(config) in transformers.AutoModelForImageClassification._model_mapping:
        return "image"
    raise InputError(
        f"{type(config).__name__} belongs to neither an image nor a text classifier of transformers: "
        "load the model yourself and hand it to from_huggingface(model)."
    )


def _find_head(model: nn.Module) -> nn.Module:
    kind = type(model).__name__
    num_labels = getattr(getattr(model, "config", None), "num_labels", None)
    if not isinstance(num_labels, int):
        raise InputTypeError(
            f"{kind} has no config.num_labels: from_huggingface needs a transformers model; see from_torch."
        )
    if num_labels < 2:
        raise InputError(f"{kind} has {num_labels} label; a classifier needs at least two: load it with num_labels=2.")
    base = getattr(model, "base_model", model)
    body = set() if base is model else set(base.modules())
    outside = {name: layer for name, layer in model.named_modules() if is_linear(layer) and layer not in body}
    fitting = [name for name, layer in outside.items() if layer.weight.shape[0] == num_labels]
    if len(fitting) == 1:
        return outside[fitting[0]]
    listed = ", ".join(fitting or outside) or "none"
    raise InputError(
        f"{kind} should have one linear layer with {num_labels} rows (config.num_labels) after its base model, found "
        f'{len(fitting)} (linear layers: {listed}). Name the last one, from_huggingface(model, head="path.to.layer"); '
        "of a model that averages two heads (distillation) take the variant with one."
    )
