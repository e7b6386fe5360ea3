"""What tests of GANs share: two classes of small images, a method at the start of its stage, and images it made."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from icda.data.task import Batch
from icda.methods import Setup
from icda.methods.image_gan import Generated, ImageGAN
from icda.models.base import FeatureClassifier
from support import make_context

SETUP = Setup(2, 64, torch.tensor([32, 32]), epochs=4, num_samples=64, input_shape=(1, 8, 8), seed=3)


def make_images(count: int = 64) -> tuple[Tensor, Tensor]:
    """Class 0 is bright on the left, class 1 on the right; the values run from -2 to 3."""
    generator = torch.Generator().manual_seed(0)
    targets = torch.arange(count) % 2
    images = -2 + 0.5 * torch.rand(count, 1, 8, 8, generator=generator)
    for image, target in zip(images, targets.tolist(), strict=True):
        image[:, :, 4 * target : 4 * target + 4] += 4.5
    images[0, 0, 0, 0], images[1, 0, 0, 0] = 3.0, -2.0
    return images, targets


class Run:
    """A method at the start of its stage, a classifier, and a context that trains it by plain SGD."""

    def __init__(self, kind: type[ImageGAN], progress: float = 0.9, **options: Any) -> None:
        torch.manual_seed(0)
        self.method = kind(SETUP, **{"width": 8, "noise_dim": 8, **options})
        self.model = FeatureClassifier(nn.Flatten(), nn.Linear(64, 2))
        self.images, self.seen = make_images(), list[Tensor]()
        self.context = make_context(self.model, rate=0.1, data=self.images, progress=progress)
        self.context.networks = [self.forward]  # type: ignore[list-item]
        self.method.on_stage_start(self.context)

    def forward(self, inputs: Tensor) -> Any:
        self.seen.append(inputs)
        return self.model(inputs)

    def batch(self, rows: Tensor) -> Batch:
        return Batch(self.images[0][rows], self.images[1][rows], None, rows)

    def step(self, iteration: int, size: int = 20) -> Any:
        self.context.iteration = iteration
        rows = torch.randperm(64, generator=torch.Generator().manual_seed(iteration))[:size]
        return self.method.train().step(self.batch(rows), self.context)


def judged_images(kind: type[ImageGAN], count: int = 6, **options: Any) -> tuple[Any, Batch, Generated]:
    """A method in float64 whose networks stand still, a batch, and as many images that it made."""
    run = Run(kind, **options)
    method = run.method.double().eval()  # spectral normalisation takes a step with each look in training mode
    images, targets = run.images
    batch = Batch(images[:count].double(), targets[:count], None, torch.arange(count))
    made = method._make(batch, 0)
    return method, batch, made._replace(images=made.images.detach())
