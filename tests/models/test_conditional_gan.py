import pytest
import torch

from icda.models.conditional_gan import SIZES, ConditionalDiscriminator, ConditionalGenerator, smallest_map


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("classes", [2, 10])
def test_shapes_ranges_and_gradients(size, channels, classes):
    generator = ConditionalGenerator(classes, channels, size, noise_dim=6, width=8, widest=16)
    discriminator = ConditionalDiscriminator(classes, channels, size, width=8, widest=16)
    images = generator(torch.randn(4, 6), torch.arange(4) % classes)
    assert images.shape == (4, channels, size, size)
    assert images.abs().max() <= 1
    source, named = discriminator(images)
    assert (source.shape, named.shape) == ((4,), (4, classes))
    (source.sum() + named.square().sum()).backward()
    for network in (generator, discriminator):
        assert all(value.grad is not None and torch.isfinite(value.grad).all() for value in network.parameters())


def test_the_class_changes_the_image_and_no_image_sees_its_neighbours():
    generator = ConditionalGenerator(3, 1, 8, noise_dim=6, width=8)
    noise = torch.randn(1, 6).expand(3, 6)
    together = generator(noise, torch.arange(3))
    assert not torch.allclose(together[0], together[1])
    for number in range(3):
        torch.testing.assert_close(generator(noise[:1], torch.tensor([number]))[0], together[number])


@pytest.mark.parametrize("size", [4, 20, 30, 224])
def test_other_sizes_are_refused(size):
    with pytest.raises(ValueError, match=f"square images of 8, 16, 28, 32, 64 pixels a side, got {size}"):
        smallest_map(size)
