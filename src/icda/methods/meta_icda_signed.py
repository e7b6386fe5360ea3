"""Meta-ICDA with signed strengths: metadata may withdraw a sample as well as push it."""

from typing import Any

from icda.meta.strength_network import StrengthOutput
from icda.methods.base import METHODS, Setup, checked
from icda.methods.meta_icda import MetaICDAMethod
from icda.ranges import NotNegative


@METHODS.register("meta_icda_signed")
class SignedMetaICDA(MetaICDAMethod):
    """Meta-ICDA with signed, centred strengths, which can withdraw wrong labels.

    Strengths come from a tanh, less their mean. The margin beta alpha_i of a sample may be negative: its logits then
    count as right already, and it stops pulling. The strength network has a memory: without one a wrong label that was
    memorised looks like a right one, and comes back. Everything else, options included, is `meta_icda`.

    Ours; mathematics 9.4.
    """

    @checked
    def __init__(
        self,
        setup: Setup,
        *,
        beta: NotNegative = 10.0,
        strength_output: StrengthOutput = "tanh",
        memory: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(setup, beta=beta, strength_output=strength_output, memory=memory, **options)
