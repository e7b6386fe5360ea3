"""Label-distribution-aware margins (LDAM)."""

from typing import Any

import torch
from torch import Tensor

from icda.functional.augmentation import off_target
from icda.losses.cosine import SCALE, CosineLoss
from icda.statistics.checks import check_number


class LDAMLoss(CosineLoss):
    """Cross entropy of scaled cosines, with larger margins for rare classes.

    The logits are s (cos(h, w_c) - m_y [c = y]).
    m_c is proportional to n_c^{-1/4} and `max_margin` for the rarest class. The logits are cosines of features and class
    weights times `scale`, computed here from `features` and `head`: `logits=` and a bias are not used, and prediction
    needs cosines too (see `CosineHead`). Training that weights the classes late is the method `ldam_drw`.

    Reference: Cao et al., "Learning imbalanced datasets with label-distribution-aware margin loss", NeurIPS 2019.

    Args:
        max_margin: The margin of the rarest class, in cosines.

    >>> loss = LDAMLoss(num_classes=2, feature_dim=4, class_counts=torch.tensor([160, 10]))
    >>> loss.margins
    tensor([0.2500, 0.5000], dtype=torch.float64)
    """

    names = ("ldam",)
    needs_counts = reads_counts = True

    def __init__(self, *sizes: Any, max_margin: float = 0.5, scale: float = SCALE, **options: Any) -> None:
        super().__init__(*sizes, scale=scale, **options)
        check_number(max_margin, "max_margin", type(self).__name__, 0)
        self.max_margin = max_margin

    @property
    def margins(self) -> Tensor:
        """m (C,), float64; 0 for a class without samples."""
        assert self.class_counts is not None
        raw = torch.where(self.class_counts > 0, self.class_counts.pow(-0.25), 0)
        return self.max_margin * raw / raw.max()

    def compute_adjustment(
        self, features: Tensor, targets: Tensor, weight: Tensor, progress: float, products: Tensor
    ) -> Tensor | None:
        margins = self.scale * self.margins[targets]
        return off_target(margins.to(products.dtype), targets, self.num_classes)
