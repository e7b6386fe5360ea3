"""Where inputs come from: arrays in memory, image files, texts."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Self

import numpy as np
import torch
from torch import Tensor

from icda.data.augmentation import Normaliser, check_padding, crop_and_flip
from icda.data.images import Prepare, UnreadableImageError, decode_images, find_unreadable, unreadable
from icda.data.task import Source
from icda.data.tokens import PADDING, Tokeniser
from icda.errors import InputError

IMAGENET_MEAN, IMAGENET_STD = IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
REMEDY = "Repair or remove them, or leave them out with --skip-unreadable (skip_unreadable=True in Python)."
FINGERPRINT_BYTES = 256 * 2**20  # what SHA-256 reads in a fraction of a second

Tokenise = Callable[[list[str]], list[list[int]]]
Transform = Callable[[Tensor, torch.Generator], Tensor]  # bytes (N, H, W, C) to bytes of the same shape


class _Images:
    """What both kinds of images share: standardised pixels and, with a generator, augmentation."""

    normaliser: Normaliser
    _crop_padding: int
    _flip: bool
    _transform: Transform | None = None

    def with_transform(self, transform: Transform) -> Self:
        """The same images; with a generator `transform` acts on their bytes before they are cropped and mirrored."""
        changed = copy.copy(self)
        changed._transform = transform
        return changed

    def fetch(self, rows: Tensor, generator: torch.Generator | None = None) -> Tensor:
        images, rows = self._bytes(rows)
        if generator is not None and self._transform is not None:
            taken = images.index_select(0, rows)
            images, rows = self._transform(taken, generator), torch.arange(len(rows))
            if images.shape != taken.shape or images.dtype != torch.uint8:
                raise InputError(
                    f"a transform gave {images.dtype} {tuple(images.shape)}, expected torch.uint8 {tuple(taken.shape)}."
                )
        if generator is None or not (self._crop_padding or self._flip):
            return self.normaliser(images.index_select(0, rows))
        moved = crop_and_flip(images, rows, generator, padding=self._crop_padding, flip=self._flip)
        return self.normaliser(moved)

    def _bytes(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Images (M, H, W, C), and where among them those of `rows` stand."""
        raise NotImplementedError


class ImageArray(_Images):
    """Images that lie in memory as bytes (N, H, W, C); fetched as standardised floats (N, C, H, W).

    With a generator each image is cropped at random from its padded self (`crop_padding` pixels a side) and, if `flip`,
    mirrored half of the time. Batches of three-channel images are channels_last. `places` (N,) say where the images
    stand in a published set of which these are a part.

    >>> source = ImageArray(torch.zeros(5, 8, 8, 1, dtype=torch.uint8), mean=(0.5,), std=(0.25,))
    >>> source.fetch(torch.tensor([4, 0])).shape, float(source.fetch(torch.tensor([0])).max())
    (torch.Size([2, 1, 8, 8]), -2.0)
    """

    def __init__(
        self,
        images: Tensor | np.ndarray,
        mean: tuple[float, ...],
        std: tuple[float, ...],
        crop_padding: int = 0,
        flip: bool = False,
        places: Tensor | None = None,
    ) -> None:
        images = torch.as_tensor(images)
        if images.ndim != 4 or images.dtype != torch.uint8 or images.shape[3] != len(mean):
            raise InputError(
                f"ImageArray expects uint8 images of shape (N, H, W, {len(mean)}), one channel a mean; "
                f"got {images.dtype} {tuple(images.shape)}."
            )
        check_padding(crop_padding, (images.shape[1], images.shape[2]))
        self.images = images.contiguous()
        self.normaliser = Normaliser(mean, std)
        self.places = places
        self._crop_padding, self._flip = crop_padding, flip

    def __len__(self) -> int:
        return len(self.images)

    def _bytes(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        return self.images, rows

    @cached_property
    def fingerprint(self) -> str:
        recipe = (self.normaliser.mean, self.normaliser.std, self._crop_padding, self._flip, "reflect")
        return _fingerprint(repr(recipe), self.images)


class FeatureArray:
    """Feature vectors (N, A), such as cached embeddings or a table of numbers; never augmented.

    >>> FeatureArray(np.arange(4.0).reshape(2, 2)).fetch(torch.tensor([1]))  # float32
    tensor([[2., 3.]])
    """

    def __init__(self, features: Tensor | np.ndarray | Sequence[Sequence[float]]) -> None:
        self.features = torch.as_tensor(features).float()
        if self.features.ndim != 2:
            raise InputError(f"FeatureArray expects shape (N, A), got {tuple(self.features.shape)}.")

    def __len__(self) -> int:
        return len(self.features)

    def fetch(self, rows: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return self.features.index_select(0, rows)

    @cached_property
    def fingerprint(self) -> str:
        return _fingerprint("features", self.features)


class ImageFiles(_Images):
    """Image files, decoded when first needed, squeezed to `size` x `size` RGB and augmented as in `ImageArray`.

    `prepare` makes the square in another way, as a published set of images does. Decoded images are kept as bytes while
    all of them fit into `cache_bytes`. The fingerprint is made of the files' names and sizes, not of their contents.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        size: int,
        mean: tuple[float, ...] = (0.5, 0.5, 0.5),
        std: tuple[float, ...] = (0.25, 0.25, 0.25),
        crop_padding: int | None = None,
        flip: bool = True,
        cache_bytes: int = 2**30,
        prepare: Prepare | None = None,
    ) -> None:
        if size < 1:
            raise InputError(f"the image size is {size}, expected 1 pixel or more.")
        self.paths, self.size, self.prepare = list(paths), size, prepare
        self._crop_padding, self._flip = size // 8 if crop_padding is None else crop_padding, flip
        check_padding(self._crop_padding, (size, size))
        self.normaliser = Normaliser(mean, std)
        shape = (len(self.paths), size, size, 3)
        self._cache = torch.empty(shape, dtype=torch.uint8) if 3 * len(self.paths) * size**2 <= cache_bytes else None
        self._cached = torch.zeros(len(self.paths), dtype=torch.bool)

    def __len__(self) -> int:
        return len(self.paths)

    def with_paths(self, paths: Sequence[Path]) -> ImageFiles:
        """Other files, prepared as these are; never augmented, nor kept."""
        mean, std = self.normaliser.mean, self.normaliser.std
        return ImageFiles(paths, self.size, mean, std, 0, flip=False, cache_bytes=0, prepare=self.prepare)

    def _bytes(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        if self._cache is None:
            return self._decode(rows), torch.arange(len(rows))
        missing = rows[~self._cached[rows]].unique()
        if len(missing):
            self._cache[missing] = self._decode(missing)
            self._cached[missing] = True
        return self._cache, rows

    def _decode(self, rows: Tensor) -> Tensor:
        if len(rows) == 0:
            return torch.empty(0, self.size, self.size, 3, dtype=torch.uint8)
        images = []
        for image in decode_images([self.paths[row] for row in rows.tolist()], self.size, self.prepare):
            if isinstance(image, UnreadableImageError):  # where one is broken others may be: name them all, once
                broken = find_unreadable(self.paths, self.size, self.prepare)
                remedy = REMEDY if self.prepare is None else "Fetch them again."
                raise unreadable(broken, f"cannot be read as images ({image})", remedy) from image
            images.append(image)
        return torch.from_numpy(np.stack(images))

    @cached_property
    def fingerprint(self) -> str:
        recipe = (self.size, self.normaliser.mean, self.normaliser.std, self._crop_padding, self._flip)
        digest = hashlib.sha256(repr(recipe).encode())
        for path in self.paths:
            # A name that is not UTF-8 counts by its bytes.
            digest.update(f"{path.parent.name}/{path.name} {path.stat().st_size}\n".encode(errors="surrogateescape"))
        if self.prepare is not None:
            digest = hashlib.sha256(f"{self.prepare.__name__} {digest.hexdigest()}".encode())
        return digest.hexdigest()


class TextArray:
    """Texts, fetched as token ids padded to the longest of the batch.

    `tokenise` turns a list of texts into a list of id lists; it runs once a text. Longer texts are cut to `max_length`;
    shorter ones are filled with `padding`, and the attention mask says so.

    >>> source = TextArray(["a bb", "c"], lambda texts: [[len(word) for word in text.split()] for text in texts], 8)
    >>> source.fetch(torch.tensor([0, 1]))["input_ids"]
    tensor([[1, 2],
            [1, 0]])
    """

    def __init__(self, texts: Sequence[str], tokenise: Tokenise, max_length: int, padding: int = PADDING) -> None:
        if max_length < 1:
            raise InputError(f"max_length is {max_length}, expected 1 or more.")
        self.texts, self._tokenise = list(texts), tokenise
        self.max_length, self.padding = max_length, padding
        self._ids: dict[int, list[int]] = {}

    def with_tokeniser(self, tokeniser: Tokeniser, max_length: int | None = None) -> TextArray:
        """The same texts as another model reads them, cut to `max_length` (else as before) or where the model ends."""
        length = self.max_length if max_length is None else max_length
        length = length if tokeniser.max_length is None else min(length, tokeniser.max_length)
        return TextArray(self.texts, lambda texts: tokeniser.encode(texts, length), length, tokeniser.padding)

    def with_texts(self, texts: Sequence[str]) -> TextArray:
        """Other texts, read as these are."""
        return TextArray(texts, self._tokenise, self.max_length, self.padding)

    def __len__(self) -> int:
        return len(self.texts)

    def fetch(self, rows: Tensor, generator: torch.Generator | None = None) -> dict[str, Tensor]:
        places = rows.tolist()
        if missing := [row for row in dict.fromkeys(places) if row not in self._ids]:
            for row, ids in zip(missing, self._tokenise([self.texts[row] for row in missing]), strict=True):
                self._ids[row] = list(ids)[: self.max_length]
        # At least one column: models reduce over tokens, and a batch of wordless texts must not have none.
        length = max([1, *(len(self._ids[row]) for row in places)])
        input_ids = torch.full((len(places), length), self.padding, dtype=torch.long)
        mask = torch.zeros(len(places), length, dtype=torch.long)
        for i, row in enumerate(places):
            count = len(self._ids[row])
            input_ids[i, :count] = torch.tensor(self._ids[row], dtype=torch.long)
            mask[i, :count] = 1
        return {"input_ids": input_ids, "attention_mask": mask}

    @cached_property
    def fingerprint(self) -> str:
        recipe = (self.max_length, self._tokenise(self.texts[:4]), *([self.padding] if self.padding else []))
        digest = hashlib.sha256(repr(recipe).encode())
        for text in self.texts:
            digest.update(text.encode("utf-8", "surrogatepass") + b"\0")
        return digest.hexdigest()


def transformed(source: Source, transform: Transform) -> Source:
    """A source whose augmentation begins with `transform`; refused where there are no images to transform."""
    with_transform = getattr(source, "with_transform", None)
    if with_transform is None:
        raise InputError(
            f"{type(source).__name__} holds no images, and the method transforms images: "
            "choose a task of images or another method."
        )
    changed: Source = with_transform(transform)
    return changed


def _fingerprint(recipe: str, values: Tensor) -> str:
    """SHA-256 over a recipe, a shape and the values; over evenly spaced rows of an array too large to read quickly."""
    size = values.numel() * values.element_size()
    step = -(-size // FINGERPRINT_BYTES) or 1
    digest = hashlib.sha256(f"{recipe} {values.dtype} {tuple(values.shape)}".encode())
    digest.update(values[::step].contiguous().numpy().data)
    return digest.hexdigest()
