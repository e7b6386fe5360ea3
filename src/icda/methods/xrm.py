"""XRM: the mistakes of twin networks become groups, for a second training that balances groups."""

from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor

from icda.cross_fit import HeldOut
from icda.data.loader import balanced_weights
from icda.methods.base import METHODS, Batch, Context, Output, Sampling, Setup, checked
from icda.methods.cross_fitted import CrossFittedMethod
from icda.methods.group_dro import GroupDRO


@METHODS.register("xrm")
class XRM(CrossFittedMethod):
    """Find groups by the errors of two cross-fitted networks, then balance these groups.

    The twins' labels flip towards confident held-out answers, so that they end by answering with the shortcut. A sample
    whose held-out twin is wrong about its own label belongs to a group of its class, the other samples of the class to
    another. The second stage is UW, or group DRO with second="group_dro", on these groups. No group label is read.

    Reference: Pezeshki et al., "Discovering environments with XRM", ICML 2024.
    """

    second_sampling: Sampling = "own"
    groups: Tensor

    @checked
    def __init__(self, setup: Setup, *, second: Literal["uw", "group_dro"] = "uw", **options: Any) -> None:
        super().__init__(setup, **options)
        self.register_buffer("groups", torch.zeros(0, dtype=torch.long), persistent=False)
        counts = torch.ones(2 * setup.num_classes, dtype=torch.long)  # not known yet: q is set when they are
        self.robust = GroupDRO(replace(setup, group_counts=counts)) if second == "group_dro" else None

    def learn_from(self, held_out: HeldOut) -> None:
        self.groups = mistake_groups(held_out.answers, held_out.targets).to(self.groups.device)
        sizes = torch.bincount(self.groups, minlength=2 * self.num_classes)
        self.found["inferred_groups"] = float((sizes > 0).sum())
        if self.robust is not None:
            self.robust.q.copy_((sizes > 0) / (sizes > 0).sum())

    def sampling_weights(self) -> Tensor:
        return balanced_weights(self.groups.cpu())

    def loss(self, output: Output, batch: Batch, context: Context) -> Tensor:
        if self.robust is None:
            return super().loss(output, batch, context)
        groups = self.groups[batch.index.to(self.groups.device)]
        return self.robust.loss(output, batch._replace(groups=groups), context)


def mistake_groups(answers: Tensor, targets: Tensor) -> Tensor:
    """2 y + [the answer is wrong] (N,): what networks that rely on a shortcut get wrong is a group of its class."""
    return 2 * targets + (answers != targets).long()
