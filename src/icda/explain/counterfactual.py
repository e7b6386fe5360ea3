"""Counterfactual pictures: what ISDA, RISDA and ICDA add to a feature, mapped back to pixels.

A picture is sought whose feature is the augmented one, starting from the source; a total-variation prior keeps the
change smooth. It shows what the network takes for that feature; the nearest real samples stand beside it as honest
companions.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from icda.data.augmentation import Normaliser
from icda.data.generators import generator_for
from icda.data.task import Task
from icda.explain.margins import Pass, on_device
from icda.explain.pictures import pixels_of, to_inputs, to_pixels
from icda.functional.strength import Strength
from icda.models.base import FeatureClassifier, evaluating
from icda.statistics.augment import augment

AUGMENTATIONS = ("isda", "risda", "icda")
STEPS, RATE, SMOOTHNESS = 200, 0.02, 3.0
NEIGHBOURS = 3


def _draw(mean: Tensor, lam: float, spread: Tensor, generator: torch.Generator) -> Tensor:
    noise = torch.randn(mean.shape, generator=generator, dtype=mean.dtype)
    if spread.dim() == 1:
        return mean + (lam * spread).clamp(min=0).sqrt() * noise
    values, vectors = torch.linalg.eigh(spread)
    return mean + vectors @ ((lam * values).clamp(min=0).sqrt() * noise)


def paint(
    network: FeatureClassifier,
    inputs: Tensor,
    wanted: Tensor,
    normaliser: Normaliser | None,
    *,
    steps: int = STEPS,
    smoothness: float = SMOOTHNESS,
) -> tuple[Tensor, Tensor]:
    """Pictures whose features are `wanted` (N, A), found from the standardised `inputs` (N, C, H, W) by Adam; and errors.

    Minimises |f(x) - h~|^2 / |f(x_0) - h~|^2 + smoothness * TV(x - x_0) over pixels x in [0, 1], from the source x_0.
    The errors (N,) are what is left of the way, |f(x) - h~| / |h - h~|: 1 for the source. Nothing is random. Without a
    normaliser the pixels are those of the inputs, stretched.
    """

    def error_of(pixels: Tensor) -> Tensor:
        return (network.encoder(to_inputs(pixels, normaliser)) - wanted).square().sum(1)

    with evaluating(network), torch.enable_grad():
        start = on_device(to_pixels(inputs, normaliser) if normaliser else inputs, network).detach()
        wanted = on_device(wanted, network)
        scale = error_of(start).detach().clamp(min=1e-12)
        pixels = start.clone().requires_grad_()
        optimizer = torch.optim.Adam([pixels], lr=RATE)
        for _ in range(steps):
            loss = (error_of(pixels) / scale + smoothness * total_variation(pixels - start)).sum()
            (pixels.grad,) = torch.autograd.grad(loss, pixels)
            optimizer.step()
            if normaliser is not None:
                pixels.data.clamp_(0, 1)
        with torch.no_grad():
            error = error_of(pixels) / scale
    shown = pixels.detach() if normaliser else to_pixels(pixels.detach(), None)
    return shown.cpu(), error.sqrt().cpu()


def total_variation(pixels: Tensor) -> Tensor:
    """The mean step between neighbouring pixels (N,), down and across together."""
    down, across = pixels.diff(dim=2).abs(), pixels.diff(dim=3).abs()
    return down.flatten(1).mean(1) + across.flatten(1).mean(1)


def nearest_real(wanted: Tensor, features: Tensor, count: int, without: Tensor) -> Tensor:
    """Places (N, count) of the rows of `features` nearest to each of `wanted`, nearest first, `without` (N,) left out."""
    distance = torch.cdist(wanted.double(), features.double()).scatter(1, without[:, None], torch.inf)
    return distance.topk(min(count, len(features) - 1), 1, largest=False).indices


@dataclass(frozen=True)
class TiedSamples:
    """The training samples of a run that are most tied to another class, strongest first; there may be fewer than asked.

    `places` say where they stand in the pass `seen`, `towards` and `strengths` (N,) to which class and how strongly.
    """

    task: Task
    seen: Pass
    places: Tensor
    towards: Tensor
    strengths: Tensor

    @classmethod
    def of(cls, task: Task, seen: Pass, strength: Strength, count: int) -> TiedSamples:
        strongest, towards = strength.per_class.max(1)
        places = torch.argsort(strongest, descending=True, stable=True)[:count]
        places = places[strongest[places] > 0]  # one that is tied to no other class is left out
        return cls(task, seen, places, towards[places], strongest[places])

    def __len__(self) -> int:
        return len(self.places)

    @property
    def index(self) -> Tensor:
        return self.seen.index[self.places]

    @property
    def targets(self) -> Tensor:
        return self.seen.targets[self.places]

    @cached_property
    def inputs(self) -> Tensor:
        inputs: Tensor = self.task.train.batch(self.index).inputs
        return inputs

    @property
    def pixels(self) -> Tensor:
        return pixels_of(self.task.train, self.inputs)

    @torch.no_grad()
    def augmented(self, kind: str, lam: float, seed: int = 0) -> Tensor:
        """One augmented feature (N, A) for each sample, as the named method would draw it.

        * `isda`: N(h, lam Sigma_y), the own class's directions.
        * `risda`: N(h + lam mu~_y, lam Sigma~_y), statistics borrowed by confusion; the same as ISDA where no training
          sample is confused.
        * `icda`: N(h + lam alpha mu_c, lam (Sigma_y + alpha Sigma_c)) with c = `towards` and alpha = `strengths`.

        The seed decides every draw, sample by sample, so that a feature's augmentation does not depend on its neighbours.
        """
        seen, moments = self.seen, self.seen.statistics.moments()
        covariance, relations = moments.covariance(), seen.confusion.to(moments.mean)
        drawn = []
        for number, (place, towards, strength) in enumerate(
            zip(self.places, self.towards, self.strengths, strict=True)
        ):
            feature, label = seen.features[place], seen.targets[place]
            generator = generator_for(seed, f"counterfactual {number}")
            if kind == "icda" and strength > 0:
                only = torch.zeros(1, len(relations)).index_fill_(1, towards, float(strength))
                ties = Strength(only, strength[None])
                drawn.append(augment(feature[None], label[None], seen.statistics, ties, lam, 1, generator).features[0])
            elif kind == "risda":
                mean = feature + lam * (relations[label] @ moments.mean - moments.mean[label])
                drawn.append(_draw(mean, lam, torch.tensordot(relations[label], covariance, 1), generator))
            else:  # ICDA moves a sample without a tie as ISDA does
                drawn.append(_draw(feature, lam, covariance[label], generator))
        return torch.stack(drawn)

    def moved(
        self, network: FeatureClassifier, kind: str, lam: float, seed: int
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Their augmented features, pictures that come near these, errors, and the places (N, k) of the nearest samples."""
        aims = self.augmented(kind, lam, seed)
        made, errors = paint(network, self.inputs, aims, getattr(self.task.train.source, "normaliser", None))
        return aims, made, errors, nearest_real(aims, self.seen.features, NEIGHBOURS, without=self.places)
