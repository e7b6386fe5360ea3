"""WGAN: training images of a generator that lowers a Wasserstein distance, estimated by a critic with gradient penalty."""

from typing import Any

import torch
from torch import Tensor

from icda.methods.base import METHODS, Setup, checked
from icda.methods.image_gan import Generated, ImageGAN
from icda.ranges import Positive, PositiveInt


@METHODS.register("wgan")
class WGAN(ImageGAN):
    """Train with images of a Wasserstein GAN, whose critic rates real images of a class above generated ones.

    `penalty` holds its slope near 1 on mixtures of a real image and a generated one of the same class. The critic learns
    in each iteration, the generator in each `critic_steps`-th. The other options are those of `ImageGAN`.

    Reference: Arjovsky et al., "Wasserstein generative adversarial networks", ICML 2017, with the gradient penalty of
    Gulrajani et al., "Improved training of Wasserstein GANs", NeurIPS 2017.
    """

    name = "wgan"
    betas = (0.0, 0.9)
    learns_labels_of_batch = True

    @checked
    def __init__(
        self, setup: Setup, *, penalty: Positive = 10.0, critic_steps: PositiveInt = 5, **options: Any
    ) -> None:
        super().__init__(setup, {"spectral": False}, **options)
        self.penalty, self.critic_steps = penalty, critic_steps

    def generator_learns(self, iteration: int) -> bool:
        return (iteration + 1) % self.critic_steps == 0

    def discriminator_loss(self, real: Tensor, labels: Tensor, made: Generated) -> Tensor:
        ratings = self.discriminator.of_class(torch.cat([real, made.images]), torch.cat([labels, made.classes]))
        between = torch.lerp(real, made.images, made.mixing.view(-1, 1, 1, 1)).requires_grad_()
        rated = self.discriminator.of_class(between, labels)
        (slopes,) = torch.autograd.grad(rated.sum(), between, create_graph=True)
        lengths = (slopes.flatten(1).square().sum(1) + 1e-12).sqrt()  # a root at zero has no slope
        distance = ratings[: len(real)].mean() - ratings[len(real) :].mean()
        return self.penalty * (lengths - 1).square().mean() - distance

    def generator_loss(self, made: Generated) -> Tensor:
        return -self.discriminator.of_class(made.images, made.classes).mean()
