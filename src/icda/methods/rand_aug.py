"""RandAug: cross entropy on images that were changed by RandAugment."""

from icda.data.augmentation import RandAugment
from icda.methods.base import METHODS, Method, Setup, check_images, checked
from icda.ranges import NotNegative, NotNegativeInt


@METHODS.register("rand_aug", "randaugment")
class RandAug(Method):
    """Cross entropy on randomly augmented images (RandAugment).

    Each training image goes through `num_ops` of fourteen operations of strength magnitude / 30 (`RandAugment`), as
    bytes, before the task's own crops and flips. What it becomes depends on (seed, epoch, batch, rank). `num_ops=0` is
    cross entropy.

    Reference: Cubuk et al., "RandAugment: practical automated data augmentation", NeurIPS 2020.
    """

    @checked
    def __init__(self, setup: Setup, *, num_ops: NotNegativeInt = 2, magnitude: NotNegative = 9) -> None:
        super().__init__()
        channels = setup.input_shape[:1]
        check_images("rand_aug changes images", setup.input_shape, channels in ((1,), (3,)), " with 1 or 3 channels")
        self.augment_images = RandAugment(num_ops, magnitude)
