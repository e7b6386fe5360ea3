from torch import nn

from icda.models.encoders import ImageEncoder, Kind, check_kind


class MeanColour(nn.Module):
    def forward(self, images):  # (N, 3, H, W), standardised
        return images.mean(dim=(2, 3))


def mean_colour(kind: Kind, image_size: int | None) -> ImageEncoder:
    """The mean of each colour over an image: three features."""
    check_kind("mean_colour", "image", kind)
    half = (0.5, 0.5, 0.5)
    size = image_size or 16
    network = MeanColour()
    return ImageEncoder("mean_colour", "1", network, size, mean=half, std=half)
