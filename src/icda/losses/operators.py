"""The check of a call's values as one step of a compiled graph (`icda.functional.operators` says why)."""

from collections.abc import Sequence

import torch
from torch import Tensor

from icda.losses.inputs import refuse


@torch.library.custom_op(
    "icda::checked_targets",
    mutates_args=(),
    schema="(Tensor targets, Tensor figures, float[] lows, float[] highs, str messages, str owner) -> Tensor",
)
def checked_targets(
    targets: Tensor, figures: Tensor, lows: Sequence[float], highs: Sequence[float], messages: str, owner: str
) -> Tensor:
    """The labels, once `refuse` finds nothing wrong with the figures."""
    refuse(figures.tolist(), list(zip(figures, messages.split("\n"), lows, highs, strict=True)), owner)
    return targets.clone()


@checked_targets.register_fake
def _(targets: Tensor, *_: object) -> Tensor:
    return torch.empty_like(targets)
