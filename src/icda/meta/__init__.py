"""The look-ahead step and its gradient; knows no method by name."""

from icda.meta.forward import Forward
from icda.meta.lookahead import MetaGradient, look_ahead

__all__ = ["Forward", "MetaGradient", "look_ahead"]
