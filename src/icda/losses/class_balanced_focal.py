"""Class-balanced focal loss."""

import math
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from icda.errors import InputError
from icda.losses.class_balanced_cross_entropy import ClassBalancedCrossEntropyLoss
from icda.losses.focal import softmax_focal
from icda.statistics.checks import check_number

Form = Literal["sigmoid", "softmax"]


class ClassBalancedFocalLoss(ClassBalancedCrossEntropyLoss):
    """One-against-rest focal loss, weighted by the effective number of samples of the target's class.

    `form="sigmoid"` is the official one: v_y sum_c (1 - p_c)^gamma (-log p_c) with p_c the sigmoid's probability of the
    right answer to "is it class c?". `form="softmax"` is v_y (1 - p_y)^gamma (-log p_y), as the LDAM repository has it. The
    largest logit is the answer in both, but the probabilities of the sigmoid form are not the softmax of its logits.
    For the sigmoid form `prepare_head` starts the biases at -log(C - 1), so that each class begins as likely as chance.

    Reference: Cui et al., CVPR 2019; Lin et al., ICCV 2017. The LDAM repository raises p_y to the power v_y too; not here.

    Args:
        gamma: The power, 0 or more.
        form: "sigmoid" or "softmax".

    >>> loss = ClassBalancedFocalLoss(2, 4, torch.tensor([10, 10]), gamma=1.0)
    >>> loss(torch.zeros(1, 4), torch.tensor([0]), nn.Linear(4, 2, bias=False)).item()  # 2 (1/2) log 2
    0.6931471824645996
    """

    names = ("class_balanced_focal", "cb_focal")

    def __init__(
        self, *sizes: Any, gamma: float = 1.0, form: Form = "sigmoid", effective_beta: float = 0.9999, **options: Any
    ) -> None:
        super().__init__(*sizes, effective_beta=effective_beta, **options)
        check_number(gamma, "gamma", type(self).__name__, 0)
        if form not in get_args(Form):
            raise InputError(f"form must be one of {', '.join(get_args(Form))}, got {form!r}.")
        self.gamma, self.form = gamma, form

    def unweighted_losses(self, logits: Tensor, targets: Tensor) -> Tensor:
        focal = sigmoid_focal if self.form == "sigmoid" else softmax_focal
        return focal(logits, targets, self.gamma)

    def prepare_head(self, head: nn.Module) -> nn.Module:
        bias = getattr(head, "bias", None)
        if self.form == "sigmoid" and isinstance(bias, Tensor):
            with torch.no_grad():
                bias.fill_(-math.log(self.num_classes - 1))
        return head


def sigmoid_focal(logits: Tensor, targets: Tensor, gamma: float) -> Tensor:
    """sum_c (1 - p_c)^gamma (-log p_c) (N,), with p_c = sigmoid(z_c) at the target and 1 - sigmoid(z_c) elsewhere.

    >>> sigmoid_focal(torch.tensor([[0.0, 0.0]]), torch.tensor([1]), gamma=0.0)  # 2 log 2
    tensor([1.3863])
    """
    is_own = torch.arange(logits.shape[1], device=targets.device) == targets[:, None]
    right = torch.where(is_own, logits, -logits)
    return ((gamma * F.logsigmoid(-right)).exp() * F.softplus(-right)).sum(1)
