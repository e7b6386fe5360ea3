"""What networks that have not learned from a sample say of it: two numbers more for Meta-ICDA's strength network."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from icda.cross_fit import HeldOut, fit_calibration
from icda.errors import InputError
from icda.methods.cross_fitted import read_earlier

NAMES = ("held_out_loss", "held_out_entropy")


class HeldOutFigures(NamedTuple):
    """-log p(y | x) and the entropy of p (N, 2), by networks blind to the sample, and the labels (N,) that were read."""

    values: Tensor
    targets: Tensor

    def rows(self, index: Tensor, targets: Tensor, otherwise: Tensor) -> Tensor:
        """The figures (n, 2) of the samples at `index`; `otherwise` (2,) of those that were not among the networks'."""
        index = index.cpu()
        place = index.clamp(max=len(self.targets) - 1)
        known = (index < len(self.targets)) & (self.targets[place] == targets.cpu())
        return torch.where(known[:, None], self.values[place].to(otherwise.device), otherwise)


def held_out_figures(held_out: HeldOut) -> HeldOutFigures:
    """From networks that learned the labels as they are, where there were any, else from those whose labels flipped."""
    logits = held_out.logits if held_out.unflipped is None else held_out.unflipped
    log_probabilities = fit_calibration(logits, held_out.targets).log_probabilities(logits)
    loss = -log_probabilities.gather(1, held_out.targets[:, None])[:, 0]
    entropy = -(log_probabilities.exp() * log_probabilities).sum(1)
    return HeldOutFigures(torch.stack([loss, entropy], 1), held_out.targets)


def read_held_out_figures(folder: str, class_counts: Tensor, own: Path) -> HeldOutFigures:
    """Of a finished run with cross-fitted networks on the same samples; `own` is the folder of this run."""
    if Path(folder).resolve() == own.resolve():
        raise InputError(f"held_out={folder}: that is the folder of this run itself. Give that of an earlier one.")
    state = read_earlier(folder, class_counts, option="held_out")
    return held_out_figures(HeldOut(**state["method"]["_extra_state"]["evidence"]))
