"""From a folder of images or a CSV of images or texts to a file of features."""

from icda.data.embedding.features import Features, load_features
from icda.data.embedding.run import Encoder, embed, encode_rows
from icda.data.embedding.samples import Columns, Samples
from icda.data.images import UnreadableInputsError

__all__ = ["Columns", "Encoder", "Features", "Samples", "UnreadableInputsError"]
__all__ += ["embed", "encode_rows", "load_features"]
