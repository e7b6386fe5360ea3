import pytest
import torch

from icda.data.datasets.digits import flip_share, flip_some, paint


def _generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_values_flip_as_often_as_asked() -> None:
    values = torch.arange(100_000) % 2
    flipped = flip_some(values, 0.2, _generator())
    assert (flipped != values).float().mean().item() == pytest.approx(0.2, abs=0.005)
    assert set(flipped.tolist()) == {0, 1}


def test_an_exact_share_of_each_value_flips() -> None:
    values = torch.tensor([0] * 40 + [1] * 60)
    flipped = flip_share(values, 0.05, _generator())
    assert [(flipped != values)[values == value].sum().item() for value in (0, 1)] == [2, 3]


def test_a_seed_decides_what_flips() -> None:
    values = torch.zeros(100, dtype=torch.long)
    for flip in (flip_some, flip_share):
        first, again, other = (flip(values, 0.5, _generator(seed)) for seed in (0, 0, 1))
        assert torch.equal(first, again)
        assert not torch.equal(first, other)


def test_intensity_goes_into_one_channel_alone() -> None:
    images = torch.randint(1, 256, (10, 4, 5), dtype=torch.uint8, generator=_generator())
    colours = torch.arange(10) % 2
    painted = paint(images, colours)
    assert painted.dtype == torch.uint8
    for image, colour, result in zip(images, colours.tolist(), painted, strict=True):
        assert torch.equal(result[..., colour], image)
        assert result.sum() == image.sum()
