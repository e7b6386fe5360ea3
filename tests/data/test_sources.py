import zlib

import numpy as np
import pytest
import torch
from PIL import Image

from icda.data.images import UnreadableImageError, central_square
from icda.data.sources import FeatureArray, ImageArray, ImageFiles, TextArray, transformed
from icda.data.tokens import Tokeniser, hash_tokenise, hash_tokens

HALF = (0.5, 0.5, 0.5)


def _noise(count=6, size=8, channels=3):
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (count, size, size, channels), dtype=torch.uint8, generator=generator)


def _words(texts):
    return [[len(word) for word in text.split()] for text in texts]


class TestImageArray:
    def test_colour_images_come_channels_last_and_grey_ones_contiguous(self):
        rows = torch.arange(4)
        colour = ImageArray(_noise(), HALF, HALF, crop_padding=2, flip=True).fetch(rows, torch.Generator())
        grey = ImageArray(_noise(channels=1), (0.5,), (0.5,)).fetch(rows)
        assert colour.is_contiguous(memory_format=torch.channels_last)
        assert grey.is_contiguous()
        assert (colour.dtype, colour.shape, grey.shape) == (torch.float32, (4, 3, 8, 8), (4, 1, 8, 8))
        empty = ImageArray(_noise(), HALF, HALF, crop_padding=2).fetch(rows[:0], torch.Generator())
        assert empty.shape == (0, 3, 8, 8)

    def test_without_a_generator_images_come_as_they_are(self):
        images = _noise()
        source = ImageArray(images.numpy(), HALF, HALF, crop_padding=2, flip=True)
        expected = (images[[5, 1]].permute(0, 3, 1, 2) / 255 - 0.5) / 0.5
        torch.testing.assert_close(source.fetch(torch.tensor([5, 1])), expected)

    def test_fingerprints_tell_pixels_and_recipes_apart(self):
        images = _noise()
        changed = images.clone()
        changed[3, 4, 5, 1] ^= 1
        sources = [ImageArray(images, HALF, HALF), ImageArray(changed, HALF, HALF), ImageArray(images, HALF, HALF, 2)]
        assert len({source.fingerprint for source in sources}) == 3
        assert ImageArray(images.clone(), HALF, HALF).fingerprint == sources[0].fingerprint


class TestImageFiles:
    @pytest.mark.parametrize("cache_bytes", [0, 2**20])
    def test_pictures_of_any_size_and_mode_come_at_one_size(self, tmp_path, write_image, cache_bytes):
        red = write_image(tmp_path / "red.png", (40, 30), (255, 0, 0))
        Image.new("L", (7, 9), 255).save(tmp_path / "white.jpg")
        Image.new("RGBA", (16, 16), (0, 0, 255, 128)).save(tmp_path / "blue.webp", lossless=True)
        paths = [red, tmp_path / "white.jpg", tmp_path / "blue.webp"]
        source = ImageFiles(paths, 16, mean=(0.0,) * 3, std=(1.0,) * 3, cache_bytes=cache_bytes)
        for _ in range(2):  # the second time from memory, if it may be kept
            fetched = source.fetch(torch.tensor([2, 0, 1, 0]))
            assert fetched.shape == (4, 3, 16, 16)
            expected = [[0, 0, 1], [1, 0, 0], [1, 1, 1], [1, 0, 0]]
            assert fetched.mean((2, 3)).tolist() == [pytest.approx(colour, abs=0.01) for colour in expected]

    @pytest.mark.parametrize("content", [b"", b"no picture", "cut"], ids=["empty", "text", "cut short"])
    def test_an_unreadable_picture_is_named(self, tmp_path, write_image, content):
        good = write_image(tmp_path / "good.png", (60, 60))
        bad = tmp_path / "bad.png"
        bad.write_bytes(good.read_bytes()[:2000] if isinstance(content, str) else content)
        for source in (ImageFiles([good, bad], 16), ImageFiles([good, bad], 16, prepare=central_square)):
            with pytest.raises(UnreadableImageError, match=r"bad\.png"):
                source.fetch(torch.tensor([0, 1]))

    def test_pictures_are_turned_upright(self, tmp_path):
        image = Image.new("RGB", (16, 16))
        image.paste((255, 255, 255), (0, 0, 16, 8))
        exif = Image.Exif()
        exif[0x0112] = 3  # the camera was held upside down
        image.save(tmp_path / "turned.png", exif=exif)
        fetched = ImageFiles([tmp_path / "turned.png"], 16).fetch(torch.tensor([0]))
        assert fetched[..., 8:, :].min() > 0 > fetched[..., :8, :].max()

    def test_fingerprints_notice_another_file(self, tmp_path, write_image):
        path = write_image(tmp_path / "a.png")
        before = ImageFiles([path], 16).fingerprint
        write_image(path, (30, 30))
        assert ImageFiles([path], 16).fingerprint != before


class TestTextArray:
    def test_texts_are_padded_to_the_longest_of_the_batch_and_cut_at_the_limit(self):
        source = TextArray(["a bb ccc dddd", "ee", ""], _words, max_length=3, padding=7)
        fetched = source.fetch(torch.tensor([1, 0, 2]))
        assert fetched["input_ids"].tolist() == [[2, 7, 7], [1, 2, 3], [7, 7, 7]]
        assert fetched["attention_mask"].tolist() == [[1, 0, 0], [1, 1, 1], [0, 0, 0]]
        assert fetched["input_ids"].dtype == torch.long
        assert source.fetch(torch.tensor([2, 2]))["input_ids"].shape == (2, 1), "wordless texts have one column"

    def test_a_text_is_tokenised_once(self):
        seen = []

        def tokenise(texts):
            seen.extend(texts)
            return _words(texts)

        source = TextArray(["a", "b b"], tokenise, 8)
        for _ in range(3):
            source.fetch(torch.tensor([0, 1, 0]))
        assert seen == ["a", "b b"]

    def test_another_tokeniser_is_told_the_length_and_leaves_the_first_source_alone(self):
        source = TextArray(["a bb ccc", "c"], _words, 8)
        before = source.fetch(torch.arange(2))["input_ids"]
        other = source.with_tokeniser(Tokeniser(lambda texts, length: [[length] * length for _ in texts], 7, 3))
        assert other.fetch(torch.arange(2))["input_ids"].tolist() == [[3, 3, 3]] * 2
        assert (other.max_length, other.padding, other.texts) == (3, 7, source.texts)
        assert torch.equal(source.fetch(torch.arange(2))["input_ids"], before)

    def test_fingerprints_tell_texts_and_tokenisers_apart(self):
        texts = ["one two", "three"]
        sources = [
            TextArray(texts, _words, 8),
            TextArray(["one two", "four!"], _words, 8),
            TextArray(texts, lambda given: [[1]] * len(given), 8),
            TextArray(texts, _words, 9),
        ]
        assert len({source.fingerprint for source in sources}) == 4


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ImageArray(_noise().float(), HALF, HALF), r"expects uint8 images of shape \(N, H, W, 3\)"),
        (lambda: ImageArray(_noise()[0], HALF, HALF), r"expects uint8 images of shape \(N, H, W, 3\)"),
        (lambda: ImageArray(_noise(channels=1), HALF, HALF), r"expects uint8 images of shape \(N, H, W, 3\)"),
        (lambda: FeatureArray(torch.zeros(3)), r"\(N, A\), got \(3,\)"),
        (lambda: ImageFiles([], 0), "image size is 0"),
        (lambda: TextArray(["a"], _words, 0), "max_length is 0"),
    ],
)
def test_what_cannot_be_a_source_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def _darken(images, generator):
    """Draws before it works, as a random transform does."""
    return images // torch.randint(2, 5, (len(images), 1, 1, 1), generator=generator).to(torch.uint8)


class TestWithTransform:
    @pytest.mark.parametrize("recipe", [{"crop_padding": 2, "flip": True}, {}], ids=["cropped", "as it is"])
    @pytest.mark.parametrize("channels", [1, 3])
    def test_it_comes_before_crop_and_flip_and_before_standardisation(self, channels, recipe):
        images, half = _noise(channels=channels), HALF[:channels]
        rows = torch.tensor([5, 1, 1])
        source = ImageArray(images, half, half, **recipe).with_transform(_darken)
        generator = torch.Generator().manual_seed(3)
        darkened = _darken(images[rows], generator)
        expected = ImageArray(darkened, half, half, **recipe).fetch(torch.arange(3), generator)
        assert torch.equal(source.fetch(rows, torch.Generator().manual_seed(3)), expected)

    def test_without_a_generator_and_in_the_old_source_nothing_is_transformed(self):
        old = ImageArray(_noise(), HALF, HALF, crop_padding=2, flip=True)
        rows, before = torch.arange(6), old.fetch(torch.arange(6), torch.Generator())
        new = old.with_transform(_darken)
        assert torch.equal(new.fetch(rows), old.fetch(rows))
        assert torch.equal(old.fetch(rows, torch.Generator()), before)
        assert not torch.equal(new.fetch(rows, torch.Generator()), before)

    @pytest.mark.parametrize("is_known_before", [True, False])
    def test_the_fingerprint_stays(self, is_known_before, tmp_path, write_image):
        path = write_image(tmp_path / "a.png")
        for source in (ImageArray(_noise(), HALF, HALF), ImageFiles([path], 16)):
            before = source.fingerprint if is_known_before else None
            found = source.with_transform(_darken).fingerprint
            assert found == source.fingerprint
            assert before in (None, found)

    @pytest.mark.parametrize("cache_bytes", [0, 2**20])
    def test_files_are_transformed_and_still_decoded_once(self, tmp_path, write_image, cache_bytes, monkeypatch):
        paths = [write_image(tmp_path / f"{k}.png") for k in range(4)]
        old = ImageFiles(paths, 16, crop_padding=0, flip=False, cache_bytes=cache_bytes)
        new, rows = old.with_transform(_darken), torch.tensor([3, 0])
        raw = torch.stack(
            [torch.from_numpy(np.array(Image.open(paths[k]).convert("RGB").resize((16, 16), 2))) for k in (3, 0)]
        )
        expected = ImageArray(_darken(raw, torch.Generator()), HALF, (0.25,) * 3).fetch(torch.arange(2))
        assert torch.equal(new.fetch(rows, torch.Generator()), expected)
        assert torch.equal(new.fetch(rows), old.fetch(rows))
        if cache_bytes:
            monkeypatch.setattr("icda.data.images.decode_image", lambda *_: pytest.fail("decoded again"))
            old.fetch(rows)

    @pytest.mark.parametrize(
        "make", [lambda images: images.float(), lambda images: images[:, :4]], ids=["float", "cut"]
    )
    def test_a_transform_that_changes_shape_or_kind_is_refused(self, make):
        source = ImageArray(_noise(), HALF, HALF).with_transform(lambda images, generator: make(images))
        with pytest.raises(ValueError, match=r"a transform gave .*, expected torch.uint8 \(2, 8, 8, 3\)"):
            source.fetch(torch.arange(2), torch.Generator())

    def test_features_and_texts_cannot_be_transformed(self):
        for source in (FeatureArray(torch.eye(2)), TextArray(["a"], _words, 2)):
            with pytest.raises(ValueError, match=f"{type(source).__name__} holds no images.*choose a task of images"):
                transformed(source, _darken)


def test_words_come_first_and_then_pairs_of_neighbours():
    tokens = ["it's", "a", "bird", "it's a", "a bird"]
    assert hash_tokens("It's a BIRD.") == [1 + zlib.crc32(token.encode()) % 32767 for token in tokens]


def test_ids_leave_zero_to_the_padding_and_are_the_same_on_every_machine():
    ids = hash_tokens(" ".join(str(number) for number in range(50_000)))
    assert (min(ids), max(ids)) == (1, 32767)
    assert hash_tokens("bird on water") == [28552, 15669, 2885, 17829, 22517]
    assert hash_tokenise(["", " ?!", "ja"]) == [[], [], hash_tokens("ja")]
