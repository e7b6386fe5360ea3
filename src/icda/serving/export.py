"""A model for other programs: one ONNX graph from inputs to logits, or its weights as safetensors."""

import copy
import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor, nn

from icda.data.augmentation import Normaliser
from icda.errors import InputError, OperationError
from icda.extras import require
from icda.models.base import mean_of_tokens
from icda.models.encoders import ImageEncoder, TextEncoder
from icda.results.files import write_atomically
from icda.serving.head import HeadModel
from icda.serving.model import Model
from icda.serving.network import NetworkModel

OPSET = 18


class FromBytes(nn.Module):
    """Images as bytes (N, H, W, 3), standardised as in the training, into a module."""

    def __init__(self, normaliser: Normaliser, inner: nn.Module) -> None:
        super().__init__()
        self.register_buffer("scale", normaliser._scale)
        self.register_buffer("shift", normaliser._shift)
        self.inner = inner

    def forward(self, images: Tensor) -> Tensor:
        values = torch.addcmul(self.shift, images.float(), self.scale).permute(0, 3, 1, 2)  # type: ignore[arg-type]
        return self.inner(values)


class PooledText(nn.Module):
    """Token ids and their mask to the mean of the last hidden state, of length 1 if asked for."""

    def __init__(self, network: nn.Module, normalise: bool, head: nn.Module) -> None:
        super().__init__()
        self.network, self.normalise, self.head = network, normalise, head

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        tokens = {"input_ids": input_ids, "attention_mask": attention_mask}
        means = mean_of_tokens("the encoder", tokens, lambda *_: self.network(**tokens))
        return self.head(nn.functional.normalize(means) if self.normalise else means)


class Answering(nn.Module):
    """Networks with the method's own rule; tokens come one by one, as a graph has them."""

    def __init__(self, model: NetworkModel) -> None:
        super().__init__()
        self.networks, self.method = nn.ModuleList(model.networks), model.method

    def forward(self, *inputs: Tensor) -> Tensor:
        batch: Any = inputs[0] if len(inputs) == 1 else {"input_ids": inputs[0], "attention_mask": inputs[1]}
        return self.method.predict(list(self.networks), batch)  # type: ignore[arg-type]


def export_onnx(model: Model, path: Path) -> Path:
    """Write one graph with free batch size; its output is `logits` (N, C), and its metadata name the classes.

    Inputs: `images`, bytes (N, S, S, 3) of squeezed images; `input_ids` and `attention_mask` (N, L) of texts, as the
    encoder's tokeniser makes them; or `features` (N, A).
    """
    if model.reads.table is not None:
        raise InputError(
            "this model reads a table with words, dates or empty cells, which an ONNX graph does not take: use icda.load, "
            "or fit to a table of numbers alone."
        )
    for package in ("onnx", "onnxscript"):
        require(package, "onnx", "ONNX files")
    module, inputs = _graph(model)
    free = torch.export.Dim("batch", min=1)
    long = torch.export.Dim("length", min=2, max=512)
    shapes = tuple({0: free, 1: long} if name in ("input_ids", "attention_mask") else {0: free} for name in inputs)
    with _quiet_exporter():
        program = torch.onnx.export(
            module.eval(),
            tuple(inputs.values()),
            input_names=list(inputs),
            output_names=["logits"],
            # torch.export names shapes by the arguments of forward; those behind a star are one argument.
            dynamic_shapes=(shapes,) if isinstance(module, Answering) else shapes,
            opset_version=OPSET,
            dynamo=True,
            verbose=False,
        )
    assert program is not None
    program.model.metadata_props["classes"] = json.dumps([str(name) for name in model.classes])
    program.model.metadata_props["reads"] = json.dumps(model.reads.as_dict())
    write_atomically(path, program.model_proto.SerializeToString(), new_folder=True)
    return path


@contextmanager
def _quiet_exporter() -> Iterator[None]:
    """Without the exporter's remarks about itself and about packages that are not there."""
    logger = logging.getLogger("torch.onnx._internal.exporter._registration")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def export_safetensors(model: Model, path: Path) -> Path:
    """Write the weights: those of a head under `coef` and `intercept`, those of networks under their own names."""
    if isinstance(model, HeadModel):
        weights = {"coef": torch.from_numpy(model.coef), "intercept": torch.from_numpy(model.intercept)}
    else:
        assert isinstance(model, NetworkModel)
        several = len(model.networks) > 1
        weights = {
            (f"{k}.{name}" if several else name): value
            for k, network in enumerate(model.networks)
            for name, value in network.state_dict().items()
        }
    facts = {"classes": json.dumps([str(name) for name in model.classes]), "reads": json.dumps(model.reads.as_dict())}
    # Copies: two names may share their memory, which the format does not allow.
    copies = {name: value.detach().clone().contiguous() for name, value in weights.items()}
    write_atomically(path, _in_order(save(copies, facts)), new_folder=True)
    return path


def _in_order(content: bytes) -> bytes:
    """The same safetensors file with its metadata sorted: the library writes them in an order that changes by chance."""
    end = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:end])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)  # tensors begin at a multiple of eight bytes
    return len(text).to_bytes(8, "little") + text + content[end:]


def _graph(model: Model) -> tuple[nn.Module, dict[str, Tensor]]:
    """The module to trace, and inputs of two samples that show its shapes."""
    if isinstance(model, HeadModel):
        return _head_graph(model)
    assert isinstance(model, NetworkModel)
    answering = Answering(model)
    if model.reads.kind == "text":
        return answering, _tokens()
    if model.reads.kind == "features":
        return answering, {"features": torch.zeros(2, model.reads.width)}
    if model.images is None:
        raise OperationError("the run was trained on images that are no files, and has no graph from bytes to logits.")
    normaliser, size = model.images([]).normaliser, model.input_shape[1]
    return FromBytes(normaliser, answering), {"images": torch.zeros(2, size, size, 3, dtype=torch.uint8)}


def _head_graph(model: HeadModel) -> tuple[nn.Module, dict[str, Tensor]]:
    dtype = torch.from_numpy(model.coef).dtype
    head = nn.Linear(model.reads.width, len(model.classes), dtype=dtype)
    with torch.no_grad():
        head.weight.copy_(torch.from_numpy(model.coef))
        head.bias.copy_(torch.from_numpy(model.intercept))
    if model.reads.kind == "features":
        return head, {"features": torch.zeros(2, model.reads.width, dtype=dtype)}
    encoder: Any = model.encoder
    head = head.float()
    if isinstance(encoder, ImageEncoder):
        size = encoder.image_size
        assert size is not None
        network = nn.Sequential(copy.deepcopy(encoder._network).cpu(), head)
        return FromBytes(encoder._normalise, network), {"images": torch.zeros(2, size, size, 3, dtype=torch.uint8)}
    assert isinstance(encoder, TextEncoder)
    return PooledText(copy.deepcopy(encoder._network).cpu(), encoder._normalise, head), _tokens()


def _tokens() -> dict[str, Tensor]:
    return {"input_ids": torch.ones(2, 8, dtype=torch.long), "attention_mask": torch.ones(2, 8, dtype=torch.long)}
