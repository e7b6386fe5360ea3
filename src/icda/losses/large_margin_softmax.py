"""Large-margin softmax (L-softmax)."""

import math
from typing import Any

import torch
from torch import Tensor

from icda.errors import InputError
from icda.functional.augmentation import off_target
from icda.losses.base import AdjustedLoss
from icda.losses.batch import LossBatch
from icda.statistics.checks import check_number

MARGINS = (1, 2, 3, 4)
SMALLEST_NORM = 1e-12


class LargeMarginSoftmaxLoss(AdjustedLoss):
    """Cross entropy with an angular margin: the angle to the target's weight must be m times smaller.

    The target's product |w||h| cos(theta) becomes |w||h| psi(theta):
    psi(theta) = (-1)^k cos(m theta) - 2k on [k pi/m, (k+1) pi/m], blended with the plain cosine as (lambda cos + psi) /
    (1 + lambda). lambda = max(base (1 + gamma t)^-power, lambda_min) falls with the training steps t, which are part of the
    state. The margin acts on the product of weight and feature; a bias of the head stays as it is, so that `margin=1` is
    cross entropy and the plain head predicts.

    Reference: Liu et al., "Large-margin softmax loss for convolutional neural networks", ICML 2016. Differs from the paper,
    which has no bias, in leaving it to the head.

    Args:
        margin: m, a whole number from 1 to 4.
        base: What lambda starts from.
        gamma: How fast lambda falls with the steps.
        power: How fast, too.
        lambda_min: What lambda does not fall below.

    >>> loss, head = LargeMarginSoftmaxLoss(num_classes=2, feature_dim=2, base=0.0), torch.nn.Linear(2, 2, bias=False)
    >>> head.weight.data = torch.eye(2)
    >>> features, targets = torch.tensor([[0.0, 1.0]]), torch.tensor([0])  # theta = pi/2: psi = -1, the cosine is 0
    >>> loss.adjustment(features, targets, head).tolist()
    [[0.0, 1.0]]
    """

    names = ("large_margin_softmax", "l_softmax")
    steps: Tensor
    moves_features = True

    def __init__(
        self,
        *sizes: Any,
        margin: int = 2,
        base: float = 1000.0,
        gamma: float = 2e-5,
        power: float = 45.0,
        lambda_min: float = 0.0,
        **options: Any,
    ) -> None:
        super().__init__(*sizes, **options)
        if margin not in MARGINS:
            raise InputError(f"margin must be one of {', '.join(map(str, MARGINS))}, got {margin}.")
        for name, value in {"base": base, "gamma": gamma, "power": power, "lambda_min": lambda_min}.items():
            check_number(value, name, type(self).__name__, 0)
        self.margin, self.base, self.gamma, self.power, self.lambda_min = margin, base, gamma, power, lambda_min
        self.register_buffer("steps", torch.tensor(0))

    @property
    def blend(self) -> Tensor:
        """lambda: how much of the plain cosine is left at this step."""
        return (self.base * (1 + self.gamma * self.steps.double()) ** -self.power).clamp(min=self.lambda_min)

    def observe(self, batch: LossBatch) -> None:
        self.steps += 1

    def compute_adjustment(
        self, features: Tensor, targets: Tensor, weight: Tensor, progress: float, products: Tensor
    ) -> Tensor | None:
        if self.margin == 1:
            return None
        own = weight[targets]
        norms = torch.linalg.vector_norm(own, dim=1) * torch.linalg.vector_norm(features, dim=1)
        # Away from zero by far more than the smallest float: its reciprocal meets a factor of zero in the gradient.
        cosine = torch.linalg.vecdot(own, features) / norms.clamp(min=SMALLEST_NORM)
        lost = norms * (cosine - margin_of_angle(cosine, self.margin)) / (1 + self.blend)
        return off_target(lost, targets, self.num_classes)


def margin_of_angle(cosine: Tensor, margin: int) -> Tensor:
    """psi as a function of cos(theta): a piecewise Chebyshev polynomial, so that no arc cosine is differentiated.

    cos(m theta) = T_m(cos theta), and k counts the bounds cos(j pi/m) that the cosine lies below.

    >>> margin_of_angle(torch.tensor([1.0, 0.0, -1.0]), margin=2)
    tensor([ 1., -1., -3.])
    """
    before, polynomial = torch.ones_like(cosine), cosine
    for _ in range(margin - 1):
        before, polynomial = polynomial, 2 * cosine * polynomial - before
    bounds = [math.cos(j * math.pi / margin) for j in range(1, margin)]
    turns = torch.stack([cosine.detach() < bound for bound in bounds]).sum(0) if bounds else torch.zeros_like(cosine)
    return (1 - 2 * (turns % 2)) * polynomial - 2 * turns
