"""Active passive loss (APL): two losses that a wrong label cannot pull far."""

import math
from typing import Any

from torch import Tensor
from torch.nn import functional as F

from icda.errors import InputError
from icda.losses.base import AdjustedLoss
from icda.statistics.checks import check_number

LABEL_FLOOR = 1e-4  # what the zeros of a one-hot label are clipped to before their logarithm is taken


def normalised_cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """log p_y / sum_c log p_c of each sample (N,): cross entropy against that of all labels together, in [0, 1].

    >>> import torch
    >>> normalised_cross_entropy(torch.zeros(1, 4), torch.tensor([2]))  # no class stands out: one over the classes
    tensor([0.2500])
    """
    log_probabilities = F.log_softmax(logits, 1)
    return _at_targets(log_probabilities, targets) / log_probabilities.sum(1)


def reverse_cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """-sum_c p_c log max(onehot_c, 1e-4) of each sample (N,), which is 9.21 (1 - p_y).

    >>> import torch
    >>> reverse_cross_entropy(torch.zeros(1, 4), torch.tensor([2])).round(decimals=3)
    tensor([6.9080])
    """
    wrong = -_at_targets(F.log_softmax(logits, 1), targets).expm1()  # 1 - p_y without cancellation
    return -math.log(LABEL_FLOOR) * wrong


class ActivePassiveLoss(AdjustedLoss):
    """Active passive loss against wrong labels: normalised plus reverse cross entropy, a NCE + b RCE.

    Normalised cross entropy learns the label, reverse cross entropy unlearns the others.
    Both are bounded and sum to a constant over all labels, so that symmetric label noise leaves their minimum where it
    was. `a` weighs the active part, `b` the passive one; published are (1, 1) for ten classes and (10, 0.1) for a
    hundred. Test time uses plain logits.

    Reference: Ma et al., "Normalized loss functions for deep learning with noisy labels", ICML 2020.

    Args:
        a: Weight of the active part.
        b: Weight of the passive part.

    >>> import torch
    >>> loss = ActivePassiveLoss(num_classes=4, feature_dim=3)
    >>> round(loss(torch.zeros(2, 3), torch.tensor([0, 1]), torch.nn.Linear(3, 4, bias=False)).item(), 3)
    7.158
    """

    names = ("apl", "nce_rce")
    is_cross_entropy = False

    def __init__(self, *sizes: Any, a: float = 1.0, b: float = 1.0, **options: Any) -> None:
        super().__init__(*sizes, **options)
        for name, value in (("a", a), ("b", b)):
            check_number(value, name, type(self).__name__, 0)
        if a + b == 0:
            raise InputError("ActivePassiveLoss: a and b are both zero, so that nothing is left to learn from.")
        self.a, self.b = a, b

    def sample_losses(self, logits: Tensor, targets: Tensor) -> Tensor:
        return self.a * normalised_cross_entropy(logits, targets) + self.b * reverse_cross_entropy(logits, targets)


def _at_targets(values: Tensor, targets: Tensor) -> Tensor:
    return values.gather(1, targets[:, None]).squeeze(1)
