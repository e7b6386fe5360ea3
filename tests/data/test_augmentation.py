import math

import numpy as np
import pytest
import torch
from PIL import Image

from icda.data.augmentation import OPERATIONS, Normaliser, RandAugment, check_padding, crop_and_flip, draw_shifts

STRENGTHS = [-1.0, -0.3, 0.3, 1.0]


def noise(count=6, size=8, channels=3):
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (count, size, size, channels), dtype=torch.uint8, generator=generator)


def changed(name, pixels, strength):
    return np.asarray(OPERATIONS[name](Image.fromarray(pixels), strength))


def picture(channels=3, size=9):
    return noise(1, size, channels)[0].numpy().squeeze()


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", OPERATIONS)
def test_every_operation_keeps_shape_and_kind_and_no_strength_is_no_change(name, channels):
    pixels = picture(channels)
    for strength in STRENGTHS:
        found = changed(name, pixels, strength)
        assert (found.shape, found.dtype) == (pixels.shape, np.uint8)
    assert name in ("auto_contrast", "equalize") or np.array_equal(changed(name, pixels, 0.0), pixels)


@pytest.mark.parametrize("strength", STRENGTHS)
def test_operations_on_single_values_are_what_the_paper_says(strength):
    pixels, step = picture(), 2 ** round(4 * abs(strength))
    values = [int(v) for v in pixels.flatten()]
    threshold = round(256 - 256 * abs(strength))
    wanted = {
        "solarize": [255 - v if v >= threshold else v for v in values],
        "posterize": [v // step * step for v in values],
        "brightness": pytest.approx([min(255.0, (1 + 0.9 * strength) * v) for v in values], abs=1.001),
    }
    assert {name: changed(name, pixels, strength).flatten().tolist() for name in wanted} == wanted
    assert len(OPERATIONS) == 14


@pytest.mark.parametrize("strength", STRENGTHS)
def test_contrast_and_colour_move_away_from_the_mean_grey_and_from_the_pixels_own_grey(strength):
    pixels = picture()
    grey = [[0.299 * r + 0.587 * g + 0.114 * b for r, g, b in row] for row in pixels.astype(float)]
    mean = sum(map(sum, grey)) / 81
    for name in ("contrast", "colour"):
        found = changed(name, pixels, strength)
        for y in range(9):
            for x in range(9):
                origin = mean if name == "contrast" else grey[y][x]
                for c in range(3):
                    wanted = origin + (1 + 0.9 * strength) * (float(pixels[y, x, c]) - origin)
                    assert found[y, x, c] == pytest.approx(min(max(wanted, 0), 255), abs=2)


def test_auto_contrast_stretches_every_channel_to_the_whole_range():
    pixels = (picture() // 4 + 60).astype(np.uint8)
    found = changed("auto_contrast", pixels, 0.3)
    for c in range(3):
        low, high = int(pixels[..., c].min()), int(pixels[..., c].max())
        wanted = [(int(v) - low) * 255 / (high - low) for v in pixels[..., c].flatten()]
        assert found[..., c].flatten().tolist() == pytest.approx(wanted, abs=1.001)


def test_equalize_spreads_values_and_keeps_their_order():
    pixels = (picture(1, 32) // 8 + 100).astype(np.uint8)
    found = changed("equalize", pixels, 0.3).astype(int)
    assert found.min() == 0
    assert found.max() == 255
    order = np.argsort(pixels.flatten(), kind="stable")
    assert (np.diff(found.flatten()[order]) >= 0).all()


def moved(pixels, source):
    """Each pixel taken from where `source` says, at pixel centres; black from outside."""
    height, width = pixels.shape
    rows = []
    for y in range(height):
        row = []
        for x in range(width):
            from_x, from_y = (math.floor(v) for v in source(x + 0.5, y + 0.5))
            inside = 0 <= from_x < width and 0 <= from_y < height
            row.append(int(pixels[from_y, from_x]) if inside else 0)
        rows.append(row)
    return rows


@pytest.mark.parametrize("strength", STRENGTHS)
def test_shears_and_shifts_equal_naive_loops(strength):
    pixels, shear, shift = picture(1, 11), 0.3 * strength, 11 * 150 / 331 * strength
    sources = {
        "shear_x": lambda x, y: (x + shear * y, y),
        "shear_y": lambda x, y: (x, y + shear * x),
        "translate_x": lambda x, y: (x + shift, y),
        "translate_y": lambda x, y: (x, y + shift),
    }
    for name, source in sources.items():
        assert changed(name, pixels, strength).tolist() == moved(pixels, source), name


@pytest.mark.parametrize("strength", STRENGTHS)
def test_a_rotation_turns_about_the_centre_by_up_to_thirty_degrees(strength):
    pixels, angle = picture(1, 11), math.radians(30 * strength)

    def source(x, y):
        x, y = x - 5.5, y - 5.5
        return x * math.cos(angle) - y * math.sin(angle) + 5.5, x * math.sin(angle) + y * math.cos(angle) + 5.5

    found, wanted = changed("rotate", pixels, strength), np.array(moved(pixels, source))
    assert (found == wanted).mean() > 0.97  # a pixel between two may go either way


def test_sharpness_below_one_smooths_and_above_one_roughens():
    pixels = (picture(1, 32) // 2 + 64).astype(np.uint8)
    roughness = [
        np.abs(np.diff(changed("sharpness", pixels, s).astype(float)[1:-1, 1:-1])).mean() for s in (-1, 0, 0.3)
    ]
    assert roughness[0] < roughness[1] < roughness[2]


@pytest.mark.parametrize("channels", [1, 3])
def test_an_image_goes_through_the_operations_that_were_drawn_for_it(channels):
    images, names = noise(40, channels=channels), list(OPERATIONS)
    found = RandAugment(num_ops=3, magnitude=12)(images, torch.Generator().manual_seed(5))
    generator = torch.Generator().manual_seed(5)
    chosen = torch.randint(14, (40, 3), generator=generator)
    signs = torch.randint(2, (40, 3), generator=generator)
    for number in range(40):
        pixels = images[number].numpy().squeeze()
        for operation, sign in zip(chosen[number].tolist(), signs[number].tolist(), strict=True):
            pixels = changed(names[operation], pixels, 0.4 if sign else -0.4)
        assert np.array_equal(found[number].numpy().squeeze(), pixels)


def test_without_operations_images_come_back_and_an_empty_batch_is_allowed():
    images = noise()
    assert torch.equal(RandAugment(num_ops=0)(images, torch.Generator()), images)
    assert RandAugment()(images[:0], torch.Generator()).shape == (0, 8, 8, 3)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RandAugment(num_ops=-1), "num_ops is how many operations .* got -1"),
        (lambda: RandAugment(num_ops=1.5), "got 1.5"),
        (lambda: RandAugment(magnitude=31), r"magnitude lies in \[0, 30\], got 31"),
        (lambda: RandAugment(magnitude=math.nan), "got nan"),
        *(
            (lambda wrong=wrong: RandAugment()(wrong, torch.Generator()), r"uint8 \(N, H, W, 1 or 3\), got")
            for wrong in (noise().float(), noise()[0], noise(channels=2))
        ),
        *(
            (lambda wrong=wrong: check_padding(wrong, (8, 9)), f"crop_padding {wrong} cannot be .* take 0 to 7")
            for wrong in (-1, 8)
        ),
        (lambda: Normaliser((0.5,), (0.0,)), "std above 0"),
    ],
)
def test_options_and_images_that_cannot_be_are_refused(make, message):
    check_padding(7, (8, 9))
    with pytest.raises(ValueError, match=message):
        make()


def _one_by_one(images, rows, seed, padding, flip):
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
def test_a_batch_equals_its_samples_padded_cropped_and_flipped_one_by_one(shape, padding, flip):
    images = torch.randint(0, 256, (20, *shape), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    rows = torch.randint(0, 20, (50,), generator=torch.Generator().manual_seed(1))
    generator = torch.Generator().manual_seed(5)
    batch = crop_and_flip(images, rows, generator, padding=padding, flip=flip)
    assert np.array_equal(batch.numpy(), _one_by_one(images, rows, 5, padding, flip))


def test_every_shift_and_both_orientations_are_equally_likely():
    down, right, mirrored = draw_shifts(90_000, torch.Generator().manual_seed(0), padding=4, flip=True)
    for shift in (down, right):
        assert torch.bincount(shift + 4).tolist() == pytest.approx([10_000] * 9, rel=0.05)
    assert mirrored.float().mean().item() == pytest.approx(0.5, abs=0.01)
    assert not draw_shifts(100, torch.Generator(), padding=1, flip=False)[2].any()


def test_normalising_is_what_its_formula_says():
    images = torch.randint(0, 256, (4, 5, 6, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    mean, std = (0.49, 0.48, 0.45), (0.25, 0.24, 0.26)
    expected = (images.double() / 255 - torch.tensor(mean).double()) / torch.tensor(std).double()
    found = Normaliser(mean, std)(images)
    torch.testing.assert_close(found.double(), expected.permute(0, 3, 1, 2), rtol=1e-5, atol=1e-6)
