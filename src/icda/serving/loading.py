"""`icda.load`: the model in a folder of `icda fit` or `icda train`."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from icda.errors import InputTypeError, MissingFileError
from icda.results.files import MODEL
from icda.results.renewal import place_of
from icda.serving.folder import FACTS
from icda.serving.model import Model


def load(path: str | PathLike[str], *, allow_hub: bool = False) -> Model:
    """The model that `icda fit` or `icda train` left in a folder, ready to be asked.

    Its `predict`, `predict_proba` and `embed` take a list of image paths or texts, or features (N, A), as the model
    reads; `classes` are the names of the classes. Nothing in the folder can run code: `icda fit` writes JSON and
    safetensors, and the checkpoint of a run is read as plain tensors. An encoder or network that the folder names by a
    hub (hf:, timm:) must be on this machine, unless `allow_hub` lets it be fetched.

    Args:
        path: The folder.
        allow_hub: Whether an encoder or network may be fetched.

    Returns:
        The model.
    """
    if not isinstance(path, str | PathLike):
        raise InputTypeError(f"load expects the path of a model's folder, got {path!r}.")
    folder = Path(path).expanduser()
    facts = place_of(folder, FACTS)
    if facts.is_file() and (facts.stat().st_size or facts.parent == folder):
        from icda.serving.head import load_head

        return load_head(folder, allow_hub)
    if (folder / MODEL).is_file():
        from icda.serving.network import load_network

        return load_network(folder, allow_hub)
    raise MissingFileError(
        f"{folder.absolute()} holds no model ({FACTS} or {MODEL}): give a folder that `icda fit` or `icda train` wrote."
    )
