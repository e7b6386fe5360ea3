"""From the annotation files of the GLT benchmark to tasks; ImageNet-GLT and MSCOCO-GLT share this."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor

from icda.data.bias.generalised_tail import ATTRIBUTE_NAMES, ATTRIBUTES
from icda.data.datasets.benchmark_files import check_images
from icda.data.datasets.glt_annotations import METADATA, AnnotatedSet, Annotations, Locate, read_annotations
from icda.data.generators import generator_for
from icda.data.registry import TASKS
from icda.data.roots import check_files, find_folder
from icda.data.sources import PreparedImages
from icda.data.splits import shuffled_by_class
from icda.data.task import Split, Task
from icda.errors import InputError

SIZE = 112
ENLARGED = 128  # the shorter side before the middle 112 x 112 are kept
METADATA_PER_ATTRIBUTE = 20  # ten per cluster, and an attribute is two clusters
# Train-GLT stands in the long-tailed file, Train-CBL in the balanced one; Test-CBL is test_bl, Test-GBL test_bbl.
TESTS = {"clt": "test_bl", "glt": "test_bbl", "alt": "test_bbl"}
STORIES = {
    "clt": "train long-tailed in classes and attributes, test with balanced classes",
    "glt": "train long-tailed in classes and attributes, test with balanced classes and attributes",
    "alt": "train with balanced classes and long-tailed attributes, test with balanced classes and attributes",
}


@dataclass(frozen=True)
class Annotated:
    """An annotation file and the folder in which its images lie."""

    annotations: Annotations
    images: Path


@dataclass(frozen=True)
class GltDataset:
    """A dataset of the benchmark: where its two annotation files and their images lie, long-tailed first.

    `locate` makes the image's name below its folder from a key of an annotation file.
    """

    name: str
    title: str
    home: str
    files: str
    annotations: tuple[str, str]
    images: tuple[str, str]
    locate: Locate

    def task(self, root: Path | None, seed: int, *, protocol: str) -> Task:
        """Rare classes and rare looks, by the benchmark's annotation files; the seed decides only the metadata."""
        layouts = [(self.name, file) for file in self.annotations]
        folder = find_folder(root, self.title, layouts, self.files, self.home).resolve()
        check_files(folder, self.title, self.annotations)
        files = [
            Annotated(_read(folder / file, self.locate), folder / images)
            for file, images in zip(self.annotations, self.images, strict=True)
        ]
        own, other = files if protocol != "alt" else files[::-1]
        return glt_task(f"{self.name}_{protocol}", self.title, self.home, protocol, own, other, seed)

    def register(self) -> None:
        for protocol in TESTS:
            TASKS.register(f"{self.name}_{protocol}")(partial(self.task, protocol=protocol))


@lru_cache(maxsize=2)  # a benchmark asks for the same task many times
def _read(path: Path, locate: Locate) -> Annotations:
    return read_annotations(path, locate)


def glt_task(name: str, dataset: str, home: str, protocol: str, own: Annotated, other: Annotated, seed: int) -> Task:
    """The task of a protocol: `own` has its training and test set, `other` lends metadata.

    The group of a sample is its attribute, so that accuracy is reported for common, middling and rare looks.
    """
    sets = own.annotations.sets
    if METADATA in sets:
        chosen = [(sets[METADATA], own)] if len(sets[METADATA]) else []
        validation = sets["val"]
    else:
        unused, from_validation, validation = choose_metadata(own.annotations, other.annotations, seed)
        chosen = [(unused, other), (from_validation, own)]
    parts = {"train": [(sets["train"], own)], "validation": [(validation, own)], "test": [(sets[TESTS[protocol]], own)]}
    splits = _splits(dataset, home, parts | {"metadata": chosen})
    metadata, story = splits.get("metadata"), "No metadata."
    if metadata is not None:
        counts = torch.bincount(metadata.targets, minlength=len(own.annotations.class_names))
        story = f"Metadata: {int(counts.min())} to {int(counts.max())} images per class."
    return Task(
        name=name,
        num_classes=len(own.annotations.class_names),
        train=splits["train"],
        validation=splits.get("validation"),
        test=splits["test"],
        metadata=metadata,
        group_names=ATTRIBUTE_NAMES,
        class_names=own.annotations.class_names,
        input_shape=(3, SIZE, SIZE),
        default_model="resnet20",
        description=f"{dataset}, {protocol.upper()}: {STORIES[protocol]}. Groups are attributes. {story}",
    )


def choose_metadata(own: Annotations, other: Annotations, seed: int) -> tuple[AnnotatedSet, AnnotatedSet, AnnotatedSet]:
    """Metadata that no test and no training sample of `own` is in, as balanced as the files allow.

    Up to 20 images of each attribute of each class. First come images that only the other file trains or validates on,
    which is where rare classes have some to spare; what is still missing comes from `own`'s validation set, of which
    each attribute of a class gives up at most half. Gives the first kind, the second, and the validation set that is
    left.
    """
    generator = generator_for(seed, "GLT metadata")
    pool = _unused(own, other)
    validation = own.sets["val"]
    spare, held = _by_cell(pool, len(own.class_names), generator), _by_cell(validation, len(own.class_names), generator)
    taken = [cell[:METADATA_PER_ATTRIBUTE] for cell in spare]
    from_validation = [
        mine[: min(METADATA_PER_ATTRIBUTE - len(first), len(mine) // 2)]
        for first, mine in zip(taken, held, strict=True)
    ]
    lent = torch.cat(from_validation).sort().values
    rest = torch.ones(len(validation), dtype=torch.bool)
    rest[lent] = False
    return pool.take(torch.cat(taken).sort().values), validation.take(lent), validation.take(rest.nonzero().flatten())


def _unused(own: Annotations, other: Annotations) -> AnnotatedSet:
    """What `other` trains and validates on and `own` does not know, with the class numbers of `own`."""
    number_of = {name: number for number, name in enumerate(own.class_names)}
    if set(number_of) != set(other.class_names):
        raise InputError(f"{own.path} and {other.path} have different classes: they are not of one dataset.")
    renumber = torch.tensor([number_of[name] for name in other.class_names])
    used = own.used()
    names: list[str] = []
    targets, attributes = [], []
    for part in (other.sets["train"], other.sets["val"]):
        free = torch.tensor([i for i, name in enumerate(part.names) if name not in used], dtype=torch.long)
        names += part.take(free).names
        targets.append(renumber[part.targets[free]])
        attributes.append(part.attributes[free])
    return AnnotatedSet(names, torch.cat(targets), torch.cat(attributes))


def _by_cell(part: AnnotatedSet, num_classes: int, generator: torch.Generator) -> list[Tensor]:
    """Shuffled positions of each class x attribute; an empty tensor where there is none."""
    cells = shuffled_by_class(part.targets * ATTRIBUTES + part.attributes, generator) if len(part) else []
    none = torch.empty(0, dtype=torch.long)
    return list(cells) + [none] * (num_classes * ATTRIBUTES - len(cells))


def _splits(dataset: str, home: str, parts: dict[str, list[tuple[AnnotatedSet, Annotated]]]) -> dict[str, Split]:
    """Splits over one source of image files, without those that would be empty."""
    paths: list[Path] = []
    rows: dict[str, tuple[int, int]] = {}
    for name, pieces in parts.items():
        start = len(paths)
        for piece, owner in pieces:
            paths += check_images(owner.images, dataset, piece.names, home)
        rows[name] = start, len(paths)
    source = PreparedImages(paths, SIZE, shorter_side_square, crop_padding=SIZE // 8, flip=True)
    splits = {}
    for name, (start, stop) in rows.items():
        if stop > start:
            targets = torch.cat([piece.targets for piece, _ in parts[name]])
            groups = torch.cat([piece.attributes for piece, _ in parts[name]])
            splits[name] = Split(source, torch.arange(start, stop), targets, groups)
    empty = [name for name in ("train", "test") if name not in splits]
    if empty:
        raise InputError(f"{dataset}: the {empty[0]} set of the annotation file is empty: fetch it again.")
    return splits


def shorter_side_square(image: Image.Image, size: int) -> Image.Image:
    """The image with its shorter side resized to 128/112 of `size`, of which the middle square is kept.

    >>> shorter_side_square(Image.new("RGB", (300, 200)), 112).size
    (112, 112)
    """
    scale = size * ENLARGED / SIZE / min(image.size)
    width, height = (max(size, round(length * scale)) for length in image.size)
    resized = image.resize((width, height), Image.Resampling.BILINEAR)
    left, top = (width - size) // 2, (height - size) // 2
    return resized.crop((left, top, left + size, top + size))
