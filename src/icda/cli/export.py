"""`icda export`"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from icda.cli.output import say
from icda.errors import InputError


@dataclass
class ExportArguments:
    """Write a model of `icda fit` or `icda train` for other programs.

    Example: icda export model --onnx model.onnx
    """

    model: tyro.conf.Positional[Path]
    """Folder of the model."""
    onnx: Path | None = None
    """ONNX file: one graph from images, tokens or features to logits (extra: onnx)."""
    safetensors: Path | None = None
    """File of the weights alone."""
    allow_hub: bool = False
    """Fetch an encoder or network that the model's file names (hf:, timm:) from its hub, if it is not on this machine."""


def main(arguments: Sequence[str]) -> int:
    options = tyro.cli(ExportArguments, args=list(arguments), prog="icda export")
    if options.onnx is None and options.safetensors is None:
        raise InputError("icda export needs --onnx FILE or --safetensors FILE.")
    for option, path in (("--onnx", options.onnx), ("--safetensors", options.safetensors)):
        if path is not None and path.expanduser().is_dir():
            raise InputError(f"{option} is {path}, which is a folder: expected the name of a file.")
    from icda.serving import load
    from icda.serving.export import export_onnx, export_safetensors

    model, written = load(options.model, allow_hub=options.allow_hub), []
    if options.safetensors is not None:
        written.append(export_safetensors(model, options.safetensors.expanduser()))
    if options.onnx is not None:
        written.append(export_onnx(model, options.onnx.expanduser()))
    say(f"Written: {', '.join(map(str, written))}")
    return 0
