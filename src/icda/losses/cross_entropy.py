"""Cross entropy, with the call of every other loss."""

from icda.losses.base import AdjustedLoss


class CrossEntropyLoss(AdjustedLoss):
    """Plain softmax cross entropy, the baseline.

    >>> import torch
    >>> loss = CrossEntropyLoss(num_classes=3, feature_dim=4)
    >>> loss(torch.zeros(2, 4), torch.tensor([0, 1]), torch.nn.Linear(4, 3, bias=False)).item()  # log 3
    1.0986123085021973
    """

    names = ("cross_entropy", "ce", "erm")
