"""The look-ahead step and its exact gradient; knows no method by name."""

from icda.meta.lookahead import Forward, MetaGradient, look_ahead

__all__ = ["Forward", "MetaGradient", "look_ahead"]
