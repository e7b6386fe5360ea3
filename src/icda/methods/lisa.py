"""LISA: mix what has the same label across domains, or what has the same domain across labels."""

import torch
from torch import Tensor

from icda.data.generators import generator_for
from icda.methods.base import METHODS, Context, Setup, checked
from icda.methods.mixing import Kind, MixingMethod
from icda.ranges import Positive, Share


@METHODS.register("lisa")
class LISA(MixingMethod):
    """Mix samples that share either the label or the domain, so that the domain no longer predicts the label.

    A coin decides for each batch: with probability `p_sel` a sample is mixed with one of its label from another domain,
    else with one of its domain with another label. lambda ~ Beta(alpha, alpha); `mix` is "mixup", or "cutmix" for
    images. Every group is drawn equally often, and partners come from the batch. Of token ids the features are mixed.

    Reference: Yao et al., "Improving out-of-distribution robustness via selective augmentation", ICML 2022.
    """

    @checked
    def __init__(self, setup: Setup, *, p_sel: Share = 0.5, alpha: Positive = 2.0, mix: Kind = "mixup") -> None:
        super().__init__(setup, "group_balanced", alpha=alpha, mix=mix, compares=p_sel > 0)
        self.p_sel = p_sel

    def same_label(self, iteration: int) -> bool:
        """The coin of a batch, the same on every rank."""
        return bool(torch.rand(1, generator=generator_for(self._seed, "lisa", iteration)) < self.p_sel)

    def eligible(self, targets: Tensor, domains: Tensor, context: Context) -> Tensor:
        label_agrees, domain_agrees = targets[:, None] == targets, domains[:, None] == domains
        if self.same_label(context.iteration):
            return label_agrees & ~domain_agrees
        return domain_agrees & ~label_agrees
