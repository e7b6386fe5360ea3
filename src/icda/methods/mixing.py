"""Methods that mix pairs of samples: who is mixed with whom, how much of each, the loss of a mixture.

Images and feature vectors are mixed as inputs. Token ids cannot be: where inputs are a dict the encoder's outputs are mixed
and the head reads the mixture.
"""

from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from icda.data.generators import generator_for
from icda.errors import InputTypeError
from icda.methods.base import Batch, Context, Inputs, Setup, StepResult, check_images
from icda.methods.domains import DomainMethod, DomainSampling
from icda.ranks import rank

Kind = Literal["mixup", "cutmix"]


class Mix(NamedTuple):
    """Row i becomes `share[i]` of itself and the rest of row `partner[i]`; without a partner it is its own, share 1."""

    partner: Tensor  # (N,)
    share: Tensor  # (N,) float64: lambda

    @property
    def mixed(self) -> float:
        """The part of the rows that have a partner."""
        return float((self.partner != torch.arange(len(self.partner))).double().mean())


class MixingMethod(DomainMethod):
    """Cross entropy on mixtures of pairs; a subclass says in `eligible` which pairs of a batch may be mixed.

    Partners come from the batch itself, uniformly among the eligible; lambda ~ Beta(alpha, alpha) for each sample. Both
    are functions of (seed, iteration, rank). A sample without an eligible partner stays as it is.
    """

    def __init__(
        self, setup: Setup, sampling: DomainSampling, alpha: float, mix: Kind = "mixup", compares: bool = True
    ) -> None:
        super().__init__(setup, sampling, compares)
        if mix == "cutmix":
            check_images("mix='cutmix' cuts boxes out of images", setup.input_shape, True, "")
        self.alpha, self.mix, self._seed = alpha, mix, setup.seed

    def eligible(self, targets: Tensor, domains: Tensor, context: Context) -> Tensor:
        """(N, N) true where row i may be mixed with row j."""
        raise InputTypeError(f"{type(self).__name__} does not define eligible().")

    def step(self, batch: Batch, context: Context) -> StepResult:
        generator = generator_for(self._seed, "mixing", context.iteration, rank())
        eligible = self.eligible(batch.targets.cpu(), self.domains(batch).cpu(), context)
        mix = draw_mix(eligible, self.alpha, generator)
        if self.mix == "cutmix":
            boxes, mix = cut_boxes(mix, batch.inputs.shape[2:], generator)
            logits = context.network(paste(batch.inputs, boxes, mix)).logits
        else:
            logits = mixed_logits(context, batch.inputs, mix)
        loss = mixed_cross_entropy(logits, batch.targets, mix)
        context.apply(loss)
        return StepResult(loss.detach(), None, {"mixed": mix.mixed})  # a mixture has no single right answer


def draw_mix(eligible: Tensor, alpha: float, generator: torch.Generator) -> Mix:
    """A partner and a share for each row of `eligible` (N, N)."""
    partner = random_partners(eligible, generator)
    share = beta_shares(len(partner), alpha, generator)
    return Mix(partner, torch.where(partner == torch.arange(len(partner)), 1.0, share))


def random_partners(eligible: Tensor, generator: torch.Generator) -> Tensor:
    """For each row i one j with eligible[i, j], all alike; i itself where there is none."""
    counts = eligible.sum(1)
    draws = torch.rand(len(eligible), generator=generator, dtype=torch.float64)
    chosen = (draws * counts).long()  # the chosen-th of a row's eligible ones, counted from 0
    partners = torch.searchsorted(eligible.cumsum(1), chosen[:, None] + 1).squeeze(1)
    return torch.where(counts > 0, partners, torch.arange(len(eligible)))


def beta_shares(count: int, alpha: float, generator: torch.Generator) -> Tensor:
    """Draws (count,) of Beta(alpha, alpha) in float64; numpy's, because torch's take no generator."""
    seed = int(torch.randint(2**62, (1,), generator=generator))
    return torch.from_numpy(np.random.default_rng(seed).beta(alpha, alpha, count))


def mix_rows(values: Tensor, mix: Mix) -> Tensor:
    """lambda_i v_i + (1 - lambda_i) v_j for `values` (N, ...), j the partner of i."""
    share = mix.share.to(values.dtype).to(values.device).view(-1, *[1] * (values.ndim - 1))
    return share * values + (1 - share) * values[mix.partner.to(values.device)]


def mixed_logits(context: Context, inputs: Inputs, mix: Mix) -> Tensor:
    """Logits of mixed inputs, or of mixed features where inputs are a dict (tokenised text)."""
    if isinstance(inputs, dict):
        features = context.network(inputs).features
        return context.head(mix_rows(features, mix))
    return context.network(mix_rows(inputs, mix)).logits


def mixed_cross_entropy(logits: Tensor, targets: Tensor, mix: Mix) -> Tensor:
    """Mean of lambda CE(y_i) + (1 - lambda) CE(y_j): cross entropy with the mixed labels as soft targets."""
    own = F.cross_entropy(logits, targets, reduction="none")
    other = F.cross_entropy(logits, targets[mix.partner.to(targets.device)], reduction="none")
    share = mix.share.to(own.dtype).to(own.device)
    return (share * own + (1 - share) * other).mean()


def cut_boxes(mix: Mix, size: tuple[int, ...] | torch.Size, generator: torch.Generator) -> tuple[Tensor, Mix]:
    """CutMix's boxes (N, H, W), true inside, and the mix with each share made that of the pixels kept.

    A box has sides sqrt(1 - lambda) of the image's, a centre drawn uniformly, and ends at the border, which makes the share
    larger (Yun et al., "CutMix", ICCV 2019).
    """
    inside = []
    for length in size:
        sides = (length * (1 - mix.share).sqrt()).long()
        centres = torch.randint(length, (len(mix.share),), generator=generator)
        start, places = centres - sides // 2, torch.arange(length)
        inside.append((places >= start[:, None]) & (places < (start + sides)[:, None]))
    rows, columns = inside
    boxes = rows[:, :, None] & columns[:, None, :]
    return boxes, mix._replace(share=1 - boxes.double().mean((1, 2)))


def paste(images: Tensor, boxes: Tensor, mix: Mix) -> Tensor:
    """`images` (N, C, H, W) with the partner's pixels inside the boxes (N, H, W)."""
    return torch.where(boxes[:, None].to(images.device), images[mix.partner.to(images.device)], images)
