"""Post-hoc logit adjustment."""

from collections.abc import Sequence

from torch import Tensor

from icda.errors import InputError
from icda.methods.base import METHODS, FeatureClassifier, Inputs, Method, Setup, checked


@METHODS.register("post_hoc_logit_adjustment", "post_hoc_la")
class PostHocLogitAdjustment(Method):
    """Train with cross entropy, and subtract tau log pi_c from the logits at test time.

    The prior is that of the training labels and is saved with the model, so that other data are judged with it too. tau = 0
    is cross entropy. Training with the adjustment is the loss `logit_adjustment`.

    Reference: Menon et al., "Long-tail learning via logit adjustment", ICLR 2021.
    """

    log_prior: Tensor

    @checked
    def __init__(self, setup: Setup, *, tau: float = 1.0) -> None:
        super().__init__()
        self.tau = tau
        self.register_buffer("log_prior", log_prior(setup.class_counts))

    def predict(self, models: Sequence[FeatureClassifier], inputs: Inputs) -> Tensor:
        logits = models[0](inputs).logits
        return logits - self.tau * self.log_prior.to(logits)


def log_prior(class_counts: Tensor) -> Tensor:
    """log pi (C,), float64."""
    absent = (class_counts == 0).nonzero().flatten().tolist()
    if absent:
        raise InputError(
            f"class {absent[0]} has no training sample: its log prior is minus infinity, and every answer would be that "
            "class. Leave it out of the task."
        )
    counts = class_counts.double()
    return (counts / counts.sum()).log()
