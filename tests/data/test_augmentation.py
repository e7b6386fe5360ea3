import numpy as np
import pytest
import torch
from torch import Tensor

from icda.data.augmentation import Normaliser, check_padding, crop_and_flip, draw_shifts


def _one_by_one(images: Tensor, rows: Tensor, seed: int, padding: int, flip: bool) -> np.ndarray:
    """The same augmentation, a sample at a time, with NumPy's padding."""
    generator = torch.Generator().manual_seed(seed)
    down, right, mirrored = draw_shifts(len(rows), generator, padding=padding, flip=flip)
    result = []
    for i, row in enumerate(rows.tolist()):
        border = ((padding, padding), (padding, padding), (0, 0))
        padded = np.pad(images[row].numpy(), border, mode="reflect")
        top, left = padding + int(down[i]), padding + int(right[i])
        crop = padded[top : top + images.shape[1], left : left + images.shape[2]]
        result.append(crop[:, ::-1] if mirrored[i] else crop)
    return np.stack(result)


@pytest.mark.parametrize("shape", [(9, 9, 3), (6, 10, 1), (8, 5, 4)])
@pytest.mark.parametrize(("padding", "flip"), [(4, True), (0, True), (2, False)])
def test_a_batch_equals_its_samples_padded_cropped_and_flipped_one_by_one(
    shape: tuple[int, int, int], padding: int, flip: bool
) -> None:
    images = torch.randint(0, 256, (20, *shape), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    rows = torch.randint(0, 20, (50,), generator=torch.Generator().manual_seed(1))
    generator = torch.Generator().manual_seed(5)
    batch = crop_and_flip(images, rows, generator, padding=padding, flip=flip)
    assert np.array_equal(batch.numpy(), _one_by_one(images, rows, 5, padding, flip))


def test_every_shift_and_both_orientations_are_equally_likely() -> None:
    down, right, mirrored = draw_shifts(90_000, torch.Generator().manual_seed(0), padding=4, flip=True)
    for shift in (down, right):
        assert torch.bincount(shift + 4).tolist() == pytest.approx([10_000] * 9, rel=0.05)
    assert mirrored.float().mean().item() == pytest.approx(0.5, abs=0.01)
    assert not draw_shifts(100, torch.Generator(), padding=1, flip=False)[2].any()


def test_normalising_is_what_its_formula_says() -> None:
    images = torch.randint(0, 256, (4, 5, 6, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    mean, std = (0.49, 0.48, 0.45), (0.25, 0.24, 0.26)
    expected = (images.double() / 255 - torch.tensor(mean).double()) / torch.tensor(std).double()
    found = Normaliser(mean, std)(images)
    torch.testing.assert_close(found.double(), expected.permute(0, 3, 1, 2), rtol=1e-5, atol=1e-6)


def test_a_padding_that_cannot_be_reflected_is_refused() -> None:
    check_padding(7, (8, 9))
    for padding in (-1, 8):
        with pytest.raises(ValueError, match=f"crop_padding {padding} cannot be reflected .* take 0 to 7"):
            check_padding(padding, (8, 9))


def test_a_zero_standard_deviation_is_refused() -> None:
    with pytest.raises(ValueError, match="std above 0"):
        Normaliser((0.5,), (0.0,))
