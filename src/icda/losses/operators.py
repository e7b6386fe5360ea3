"""The check of a call's values as one step of a compiled graph (`icda.functional.operators` says why)."""

import torch
from torch import Tensor

from icda.losses.inputs import refuse


@torch.library.custom_op(
    "icda::checked_targets",
    mutates_args=(),
    schema="(Tensor targets, Tensor figures, str names, str owner, int classes, int ignored, int values) -> Tensor",
)
def checked_targets(targets: Tensor, figures: Tensor, names: str, *limits: object) -> Tensor:
    """The labels, once `refuse` finds nothing wrong with the figures."""
    refuse(dict(zip(names.split(","), figures.tolist(), strict=True)), *limits)  # type: ignore[arg-type]
    return targets.clone()


@checked_targets.register_fake
def _(targets: Tensor, *_: object) -> Tensor:
    return torch.empty_like(targets)
