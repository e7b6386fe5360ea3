"""DomainMix: mixup between domains."""

from torch import Tensor

from icda.methods.base import METHODS, Context, Setup, checked
from icda.methods.mixing import MixingMethod
from icda.ranges import Positive


@METHODS.register("domain_mix")
class DomainMix(MixingMethod):
    """Mix samples from different domains (mixup), and their labels with them.

    lambda ~ Beta(alpha, alpha). Every domain is drawn equally often and partners come from the batch, whatever their
    label. Of token ids the features are mixed.

    Reference: the inter-domain mixup of Gulrajani and Lopez-Paz, "In search of lost domain generalization", ICLR 2021.
    """

    @checked
    def __init__(self, setup: Setup, *, alpha: Positive = 0.2) -> None:
        super().__init__(setup, "domain_balanced", alpha=alpha)

    def eligible(self, targets: Tensor, domains: Tensor, context: Context) -> Tensor:
        return domains[:, None] != domains
