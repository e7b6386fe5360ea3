"""CGAN: training images of a GAN whose discriminator is given the class."""

import torch
from torch import Tensor

from icda.methods.base import METHODS
from icda.methods.image_gan import Generated, ImageGAN, taken_for_real, told_apart


@METHODS.register("cgan")
class CGAN(ImageGAN):
    """Train with images of a conditional GAN, whose discriminator is given the class of each image.

    The GAN learns on images of the batch's own labels, so that a class alone does not tell real from generated. Options
    are those of `ImageGAN`.

    Reference: Mirza and Osindero, "Conditional generative adversarial nets", arXiv 1411.1784.
    """

    name = "cgan"
    learns_labels_of_batch = True

    def discriminator_loss(self, real: Tensor, labels: Tensor, made: Generated) -> Tensor:
        images, classes = torch.cat([real, made.images]), torch.cat([labels, made.classes])
        return told_apart(self.discriminator.of_class(images, classes), len(real))

    def generator_loss(self, made: Generated) -> Tensor:
        return taken_for_real(self.discriminator.of_class(made.images, made.classes))
