"""Two networks that trust samples of small loss."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from icda.methods.base import FeatureClassifier, Inputs, Method, Setup, checked
from icda.ranges import NotNegativeInt, ShareBelowOne


def smallest(losses: Tensor, rate: float) -> Tensor:
    """Positions of the (1 - rate) N smallest losses, at least one, in the order of the batch."""
    kept = max(1, int((1 - rate) * len(losses) + 1e-9))  # (1 - 0.9) 10 is 0.9999...
    return losses.detach().argsort(stable=True)[:kept].sort().values


class SmallLossPair(Method):
    """Two networks that train on samples of small loss: the ramp of the share dropped, and who answers at test time.

    `noise_rate` is the share of wrong labels as far as the user knows it; true labels are never read. It is reached after
    `ramp_epochs`. The first network predicts, at the cost of any other method; `ensemble` takes the mean of both softmaxes.
    """

    num_networks = 2

    @checked
    def __init__(
        self, setup: Setup, *, noise_rate: ShareBelowOne = 0.2, ramp_epochs: NotNegativeInt = 10, ensemble: bool = False
    ) -> None:
        super().__init__()
        self.noise_rate, self.ramp_epochs, self.ensemble = noise_rate, ramp_epochs, ensemble

    def drop_rate(self, epoch: int) -> float:
        """R(e) = noise_rate min(e / ramp_epochs, 1): networks learn what is clean first, so all is kept at first."""
        return self.noise_rate * min(epoch / self.ramp_epochs, 1.0) if self.ramp_epochs else self.noise_rate

    def predict(self, models: Sequence[FeatureClassifier], inputs: Inputs) -> Tensor:
        if not self.ensemble:
            return models[0](inputs).logits
        answers: list[Any] = [model(inputs).logits.log_softmax(1) for model in models]
        return torch.stack(answers).logsumexp(0) - torch.tensor(float(len(answers))).log().item()
