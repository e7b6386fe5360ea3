import math

import pytest
import torch
from torch import Tensor

from gans import Run, judged_images
from icda.methods.image_gan import CGAN
from icda.models.conditional_gan import ConditionalDiscriminator


def chance_of_real(discriminator: ConditionalDiscriminator, image: Tensor, target: int) -> float:
    source, named = discriminator(image[None])
    return 1 / (1 + math.exp(-float((source + named[0, target]).detach())))


def test_real_and_generated_images_are_judged_under_their_class() -> None:
    method, batch, made = judged_images(CGAN)
    real = [
        -math.log(chance_of_real(method.discriminator, image, int(target)))
        for image, target in zip(batch.inputs, batch.targets, strict=True)
    ]
    judged = [
        chance_of_real(method.discriminator, *pair) for pair in zip(made.images, made.classes.tolist(), strict=True)
    ]
    generated = [-math.log(1 - chance) for chance in judged]
    loss = float(method.discriminator_loss(batch.inputs, batch.targets, made))
    assert loss == pytest.approx(sum(real + generated) / 12, rel=1e-9)
    assert float(method.generator_loss(made)) == pytest.approx(
        sum(-math.log(chance) for chance in judged) / 6, rel=1e-9
    )


def test_the_gan_learns_on_images_of_the_batchs_labels() -> None:
    """Were they drawn uniformly, a rare class would give a generated image away."""
    run = Run(CGAN)
    zeros = (run.images[1] == 0).nonzero().flatten()[:20]
    made = run.method._make(run.batch(zeros), 0)
    assert torch.equal(made.classes, torch.zeros(20, dtype=torch.int64))
    _, classes = run.method.additional_images(run.batch(zeros), 0)
    assert 1 in classes  # what joins the batch is uniform
