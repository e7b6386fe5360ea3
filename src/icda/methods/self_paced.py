"""Self-paced learning: samples whose loss lies below a moving percentile."""

import torch
from torch import Tensor
from torch.nn import functional as F

from icda.data.generators import generator_for
from icda.methods.base import METHODS, Batch, Context, Method, Output, Setup, checked
from icda.ranges import Share, ShareAboveZero, ShareBelowOne
from icda.ranks import all_gather_rows


@METHODS.register("self_paced", "mentornet_pd")
class SelfPaced(Method):
    """Train only on samples whose loss lies below a moving average of its `percentile`.

    This stands in for MentorNet's predefined curriculum (PD), a network trained to imitate such a rule. In the first
    `burn_in` of training all samples count; there `burn_in_dropout` of each batch, later `dropout`, is left out at
    random.

    Reference: Jiang et al., "MentorNet", ICML 2018; Kumar et al., "Self-paced learning for latent variable models",
    NeurIPS 2010.
    """

    threshold: Tensor

    @checked
    def __init__(
        self,
        setup: Setup,
        *,
        percentile: ShareAboveZero = 0.75,
        moving_average: ShareBelowOne = 0.5,
        burn_in: Share = 0.17,
        burn_in_dropout: ShareBelowOne = 0.5,
        dropout: ShareBelowOne = 0.05,
    ) -> None:
        super().__init__()
        self.percentile, self.moving_average, self.burn_in = percentile, moving_average, burn_in
        self.burn_in_dropout, self.dropout, self.seed = burn_in_dropout, dropout, setup.seed
        self.register_buffer("threshold", torch.tensor(torch.nan, dtype=torch.float64))

    def observe(self, losses: Tensor) -> None:
        """Fold a batch into the moving percentile."""
        now = torch.quantile(all_gather_rows(losses.detach()).double(), self.percentile)
        keep = self.moving_average
        self.threshold.copy_(now if self.threshold.isnan() else keep * self.threshold + (1 - keep) * now)

    def weights(self, losses: Tensor, context: Context) -> Tensor:
        """v (N,) of a batch, before anything is left out at random."""
        return (losses.double() < self.threshold).to(losses)

    def loss(self, output: Output, batch: Batch, context: Context) -> Tensor:
        losses = F.cross_entropy(output.logits, batch.targets, reduction="none")
        self.observe(losses)
        weights, rate = torch.ones_like(losses), self.burn_in_dropout
        if context.progress >= self.burn_in:
            with torch.no_grad():
                weights, rate = self.weights(losses.detach(), context), self.dropout
        weights = leave_out(weights.detach(), rate, generator_for(self.seed, "leave_out", context.iteration))
        self.step_figures = {"weight_mean": float(weights.mean()), "loss_percentile": float(self.threshold)}
        return (weights * losses).mean()


def leave_out(weights: Tensor, rate: float, generator: torch.Generator) -> Tensor:
    """Set all but (1 - rate) N weights, at least one, to zero; which, the generator draws."""
    if rate == 0:
        return weights
    kept = max(1, int((1 - rate) * len(weights) + 1e-9))
    mask = torch.zeros_like(weights)
    mask[torch.randperm(len(weights), generator=generator)[:kept].to(weights.device)] = 1
    return weights * mask
