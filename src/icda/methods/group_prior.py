"""Logit adjustment within each attribute: the prior that knows what the shortcut says."""

from typing import Any, ClassVar, Literal

from torch import Tensor

from icda.errors import InputError
from icda.losses.icda import ICDALoss
from icda.losses.logit_adjustment import LogitAdjustmentLoss
from icda.losses.prior_loss import PriorLoss
from icda.methods.base import METHODS, Batch, Context, Method, Output, Setup, checked

LossName = Literal["la", "icda"]


@METHODS.register("group_prior")
class GroupPrior(Method):
    """Logit adjustment within each attribute, from known groups.

    The loss is the cross entropy of z + log pi(c | a), with pi(c | a) the share of class c among the training samples
    with the attribute a of a sample's group; a pair without samples counts as half of one. An attribute that tells
    nothing leaves logit adjustment. With loss="icda" ICDA's other terms are added, and their options are taken. Where
    groups are not class x attribute, each group is an attribute of its own; then they must not tell the class.
    """

    inner_loss = ICDALoss
    criterion: PriorLoss
    needs: ClassVar[frozenset[str]] = frozenset({"groups"})
    domains: Tensor  # (G,) the attribute of each group

    @checked
    def __init__(self, setup: Setup, *, loss: LossName = "la", **options: Any) -> None:
        super().__init__()
        counts, domains = setup.domain_counts, setup.group_domains
        assert counts is not None, "check_needs admits no task without its groups"
        assert domains is not None
        check_attributes(counts)
        self.criterion = prior_criterion(setup, loss, options, counts)
        self.register_buffer("domains", domains, persistent=False)

    def loss(self, output: Output, batch: Batch, context: Context) -> Tensor:
        assert batch.groups is not None
        attributes = self.domains[batch.groups]
        return self.criterion(
            output.features, batch.targets, context.head, context.progress, output.logits, attributes=attributes
        )


def check_attributes(counts: Tensor) -> None:
    """Refuse attributes (K, C) that have a class each: log pi(c | a) would say the label, and nothing be left to learn."""
    known = counts[counts.sum(1) > 0]
    if ((known > 0).sum(1) == 1).all():
        raise InputError(
            "group_prior needs attributes that several classes share, and each of these groups has samples of one class: "
            "give groups as class x attribute (for own data, a column of the attribute), or use uw."
        )


def prior_criterion(
    setup: Setup, loss: LossName, options: dict[str, Any], prior: Tensor | None = None
) -> LogitAdjustmentLoss | ICDALoss:
    """LA or ICDA for a setup; `options` are ICDA's, `prior` a table of counts (attributes, classes)."""
    shape = (setup.num_classes, setup.feature_dim, setup.class_counts)
    if loss == "icda":
        return ICDALoss(*shape, prior=prior, **options)
    if options:
        raise InputError(f"{', '.join(options)}: an option of ICDA's terms, which loss='la' leaves out. Add loss=icda.")
    return LogitAdjustmentLoss(*shape, prior=prior)
