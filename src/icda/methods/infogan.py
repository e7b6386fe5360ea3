"""infoGAN: training images of a GAN whose generator must leave its codes readable in them."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from icda.errors import InputError
from icda.methods.base import METHODS, Setup, checked
from icda.methods.image_gan import Generated, ImageGAN, taken_for_real, told_apart
from icda.ranges import NotNegative, PositiveInt


@METHODS.register("infogan")
class InfoGAN(ImageGAN):
    """Train with images of an infoGAN, where a head beside the discriminator reads class and codes from the image.

    Generator and head raise a lower bound of the mutual information between images and what they were made of: the
    class, and the first `codes` numbers of the noise, weighted by `code_weight`. The head also learns the labels of real
    images, which makes the categorical code the class. The other options are those of `ImageGAN`.

    Reference: Chen et al., "InfoGAN: interpretable representation learning", NeurIPS 2016.
    """

    name = "infogan"

    @checked
    def __init__(self, setup: Setup, *, codes: PositiveInt = 2, code_weight: NotNegative = 0.1, **options: Any) -> None:
        super().__init__(setup, {"codes": codes}, **options)
        if codes > self.generator.noise_dim:
            raise InputError(
                f"codes must be at most noise_dim, of which they are a part: got {codes} and {self.generator.noise_dim}."
            )
        self.codes, self.code_weight = codes, code_weight

    def discriminator_loss(self, real: Tensor, labels: Tensor, made: Generated) -> Tensor:
        source, read = self.discriminator(torch.cat([real, made.images]))
        supervised = F.cross_entropy(read[: len(real), : self._num_classes], labels)
        return told_apart(source, len(real)) + supervised + self.missing_information(read[len(real) :], made)

    def generator_loss(self, made: Generated) -> Tensor:
        source, read = self.discriminator(made.images)
        return taken_for_real(source) + self.missing_information(read, made)

    def missing_information(self, read: Tensor, made: Generated) -> Tensor:
        """Minus the bound of the mutual information, up to a constant: minus the mean log q(class, codes | image)."""
        named, guessed = read[:, : self._num_classes], read[:, self._num_classes :]
        errors = (guessed - made.noise[:, : self.codes]).square().sum(1)
        return F.cross_entropy(named, made.classes) + self.code_weight * errors.mean() / 2
