"""The small network: sizes, and that it learns."""

import pytest
import torch

from icda.models import create_model


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("pixels", [8, 16, 28])
def test_digits_of_any_size_give_64_features(channels: int, pixels: int) -> None:
    model = create_model("small_cnn", 10, (channels, pixels, pixels))
    assert model(torch.randn(2, channels, pixels, pixels)).features.shape == (2, 64)


def test_it_is_small() -> None:
    assert sum(parameter.numel() for parameter in create_model("small_cnn", 10).parameters()) < 30_000


def test_it_tells_stripes_from_each_other_after_a_few_steps() -> None:
    torch.manual_seed(0)
    targets = torch.arange(32) % 2
    stripes = (torch.arange(8) % 2).float().expand(8, 8)
    images = torch.stack([stripes if target else stripes.T for target in targets]).unsqueeze(1)
    images = images + 0.3 * torch.randn(images.shape)
    model = create_model("small_cnn", 2, (1, 8, 8))
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(20):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(model(images).logits, targets).backward()
        optimiser.step()
    assert model.eval()(images).logits.argmax(1).eq(targets).all()
