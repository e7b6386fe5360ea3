"""ACGAN: training images of a conditional generator, learned beside the classifier."""

import torch
from torch import Tensor
from torch.nn import functional as F

from icda.methods.base import METHODS
from icda.methods.image_gan import Generated, ImageGAN, taken_for_real, told_apart


@METHODS.register("acgan")
class ACGAN(ImageGAN):
    """Train with images of an auxiliary-classifier GAN, whose discriminator also predicts the class.

    The generator learns to have its images taken for real and for their class. Options are those of `ImageGAN`.

    Reference: Odena et al., "Conditional image synthesis with auxiliary classifier GANs", ICML 2017.
    """

    name = "acgan"

    def discriminator_loss(self, real: Tensor, labels: Tensor, made: Generated) -> Tensor:
        source, named = self.discriminator(torch.cat([real, made.images]))
        return told_apart(source, len(real)) + F.cross_entropy(named, torch.cat([labels, made.classes]))

    def generator_loss(self, made: Generated) -> Tensor:
        source, named = self.discriminator(made.images)
        return taken_for_real(source) + F.cross_entropy(named, made.classes)
