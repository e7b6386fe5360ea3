"""The GLT benchmark from its annotation files, ImageNet-GLT and MSCOCO-GLT: the set, class and attribute of each image."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path, PurePosixPath
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from icda.data.bias.generalised_tail import ATTRIBUTE_NAMES, ATTRIBUTES
from icda.data.datasets.benchmark_files import check_images
from icda.data.generators import generator_for
from icda.data.registry import TASKS, check_files, find_folder
from icda.data.sources import IMAGENET, ImageFiles
from icda.data.splits import shuffled_by_class
from icda.data.task import Split, Task
from icda.errors import InputError

SETS = ("train", "val", "test_lt", "test_bl", "test_bbl")
METADATA = "metadata"  # of `icda`, not of the benchmark: a file made again names its metadata
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

Locate = Callable[[str, Mapping[str, Any]], str]  # (key, set) to the image's name below the folder of images


@dataclass(frozen=True)
class AnnotatedSet:
    """Images by name, with their classes (N,) and attributes (N,)."""

    names: list[str]
    targets: Tensor
    attributes: Tensor

    def __len__(self) -> int:
        return len(self.names)

    def take(self, positions: Tensor) -> AnnotatedSet:
        names = [self.names[position] for position in positions.tolist()]
        return AnnotatedSet(names, self.targets[positions], self.attributes[positions])


@dataclass(frozen=True)
class Annotations:
    """All of one annotation file. An image's name is the same in both files of a dataset."""

    path: Path
    class_names: tuple[str, ...]
    sets: dict[str, AnnotatedSet]


@dataclass(frozen=True)
class GltDataset:
    """A dataset of the benchmark: where its two annotation files and their images lie, long-tailed first."""

    name: str
    title: str
    home: str
    files: str
    annotations: tuple[str, str]
    images: tuple[str, str]
    locate: Locate

    def register(self) -> None:
        for protocol in TESTS:
            TASKS.register(f"{self.name}_{protocol}")(partial(self.task, protocol=protocol))

    def task(self, root: Path | None, seed: int, *, protocol: str) -> Task:
        """Rare classes and rare looks, by the benchmark's annotation files; the seed decides only the metadata."""
        layouts = [(self.name, file) for file in self.annotations]
        folder = find_folder(root, self.title, layouts, self.files, self.home).resolve()
        check_files(folder, self.title, self.annotations)
        pairs = list(zip(self.annotations, self.images, strict=True))
        # One file has the training and the test set, the other lends metadata.
        (own_file, own_images), (other_file, other_images) = pairs if protocol != "alt" else pairs[::-1]
        own, other = (read_annotations(folder / file, self.locate) for file in (own_file, other_file))
        validation = own.sets["val"]
        if METADATA in own.sets:
            metadata = [(own.sets[METADATA], folder / own_images)]
        else:
            unused, lent, validation = choose_metadata(own, other, seed)
            metadata = [(unused, folder / other_images), (lent, folder / own_images)]
        sets = {"train": own.sets["train"], "validation": validation, "test": own.sets[TESTS[protocol]]}
        pieces = {name: [(part, folder / own_images)] for name, part in sets.items()}
        splits = self._splits(pieces | {METADATA: metadata})
        story = "No metadata."
        if splits[METADATA] is not None:
            counts = torch.bincount(splits[METADATA].targets, minlength=len(own.class_names))
            story = f"Metadata: {int(counts.min())} to {int(counts.max())} images per class."
        return Task(
            name=f"{self.name}_{protocol}",
            num_classes=len(own.class_names),
            **splits,
            group_names=ATTRIBUTE_NAMES,
            class_names=own.class_names,
            input_shape=(3, SIZE, SIZE),
            default_model="resnet20",
            description=f"{self.title}, {protocol.upper()}: {STORIES[protocol]}. Groups are attributes. {story}",
        )

    def _splits(self, pieces: dict[str, list[tuple[AnnotatedSet, Path]]]) -> dict[str, Any]:
        """Splits over one source of image files; None for those that would be empty."""
        parts = [part for own in pieces.values() for part in own]
        paths = [path for part, images in parts for path in check_images(images, self.title, part.names, self.home)]
        source = ImageFiles(paths, SIZE, *IMAGENET, prepare=shorter_side_square)
        splits: dict[str, Any] = {}
        start = 0
        for name, own in pieces.items():
            targets, groups = (torch.cat([getattr(p, column) for p, _ in own]) for column in ("targets", "attributes"))
            rows = torch.arange(start, start + len(targets))
            splits[name] = Split(source, rows, targets, groups) if len(rows) else None
            start += len(rows)
        if empty := [name for name in ("train", "test") if splits[name] is None]:
            raise InputError(f"{self.title}: the {empty[0]} set of the annotation file is empty: fetch it again.")
        return splits


@lru_cache(maxsize=2)  # a benchmark asks for the same task many times
def read_annotations(path: Path, locate: Locate) -> Annotations:
    """Read a JSON file with `id2cat`, `cat2id` and the sets train, val, test_lt, test_bl and test_bbl.

    Each set has `label`, `attribute` (0 common, 1 middling, 2 rare) and `frequency`, all by the image's key; what
    `locate` makes of a key is the image's name. Frequency bands are not read.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise InputError(f"{path} is no JSON file, or it is cut short ({error}): fetch it again.") from error
    if missing := [name for name in ("id2cat", *SETS) if name not in content]:
        raise InputError(f"{path} lacks {', '.join(missing)}: it is no annotation file of the GLT benchmark.")
    names = content["id2cat"]
    if sorted(names) != sorted(map(str, range(len(names)))):
        raise InputError(f"{path}: id2cat must number the classes 0..{len(names) - 1}, got {', '.join(sorted(names))}.")
    present = [name for name in (*SETS, METADATA) if name in content]
    sets = {name: _read_set(path, name, content[name], locate) for name in present}
    owner: dict[str, str] = {}
    for name, part in sets.items():
        for image in part.names:
            if image in owner:
                raise InputError(f"{path}: the image {image} is in {owner[image]} and in {name}, expected once.")
            owner[image] = name
    return Annotations(path, tuple(str(names[str(number)]) for number in range(len(names))), sets)


def _read_set(path: Path, name: str, part: Mapping[str, Any], locate: Locate) -> AnnotatedSet:
    try:
        keys = list(part["label"])
        targets, attributes = (
            torch.tensor([int(part[column][key]) for key in keys], dtype=torch.long)
            for column in ("label", "attribute")
        )
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path}: the set {name} is not as the benchmark writes it ({error!r}).") from error
    if len(keys) and int(attributes.max()) >= ATTRIBUTES:
        raise InputError(
            f"{path}: attribute of the set {name} must lie in 0..{ATTRIBUTES - 1}, got {attributes.max()}."
        )
    return AnnotatedSet([locate(key, part) for key in keys], targets, attributes)


def choose_metadata(own: Annotations, other: Annotations, seed: int) -> tuple[AnnotatedSet, AnnotatedSet, AnnotatedSet]:
    """Metadata that no test and no training sample of `own` is in, as balanced as the files allow.

    Up to 20 images of each attribute of each class: first those that only the other file trains or validates on; what
    is still missing comes from `own`'s validation set, of which each attribute of a class gives up at most half. Gives
    the first kind, the second, and the validation set that is left.
    """
    generator = generator_for(seed, "GLT metadata")
    pool, validation = _unused(own, other), own.sets["val"]
    spare, held = (_by_cell(part, len(own.class_names), generator) for part in (pool, validation))
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
    train, val = other.sets["train"], other.sets["val"]
    targets, attributes = torch.cat([train.targets, val.targets]), torch.cat([train.attributes, val.attributes])
    both = AnnotatedSet(train.names + val.names, renumber[targets], attributes)
    used = {name for part in own.sets.values() for name in part.names}
    return both.take(torch.tensor([i for i, name in enumerate(both.names) if name not in used], dtype=torch.long))


def _by_cell(part: AnnotatedSet, num_classes: int, generator: torch.Generator) -> list[Tensor]:
    """Shuffled positions of each class x attribute; an empty tensor where there is none."""
    cells = shuffled_by_class(part.targets * ATTRIBUTES + part.attributes, generator) if len(part) else []
    return cells + [torch.empty(0, dtype=torch.long)] * (num_classes * ATTRIBUTES - len(cells))


def shorter_side_square(image: Image.Image, size: int) -> Image.Image:
    """The image with its shorter side resized to 128/112 of `size`, of which the middle square is kept."""
    scale = size * ENLARGED / SIZE / min(image.size)
    width, height = (max(size, round(length * scale)) for length in image.size)
    resized = image.resize((width, height), Image.Resampling.BILINEAR)
    left, top = (width - size) // 2, (height - size) // 2
    return resized.crop((left, top, left + size, top + size))


FOLDERS = ("coco_glt", "coco_cbl")  # of MSCOCO-GLT: long-tailed, balanced


def _file_name(key: str, part: Mapping[str, Any]) -> str:
    """In MSCOCO-GLT keys are numbers of objects; `path` has the file, by its place on the machine that made it."""
    paths = part.get("path", {})
    if key not in paths:
        raise InputError(f"a set of MSCOCO-GLT gives no path for the object {key}: make annotation.json again.")
    return PurePosixPath(paths[key]).name


GltDataset(
    name="mscoco_glt",
    title="MSCOCO-GLT",
    home="the Generalized Long-Tailed Benchmarks of Tang et al. (ECCV 2022), whose mscoco_glt_generation.py and "
    "mscoco_glt_crop.py make them of MSCOCO 2014",
    files=f"the folders {' and '.join(FOLDERS)}, each with annotation.json and the folder images",
    annotations=(f"{FOLDERS[0]}/annotation.json", f"{FOLDERS[1]}/annotation.json"),
    images=(f"{FOLDERS[0]}/images", f"{FOLDERS[1]}/images"),
    locate=_file_name,
).register()

LONG_TAILED, BALANCED = "imagenet_sup_intra_lt_inter_lt.json", "imagenet_sup_intra_lt_inter_bl.json"
GltDataset(
    name="imagenet_glt",
    title="ImageNet-GLT",
    home="the Generalized Long-Tailed Benchmarks of Tang et al. (ECCV 2022) for the annotation files, and ILSVRC 2012 for "
    "the images, for non-commercial research only",
    files=f"{LONG_TAILED}, {BALANCED} and images, the training folder of ImageNet with a folder per class",
    annotations=(LONG_TAILED, BALANCED),
    images=("images", "images"),
    # Keys are paths on the machine that made the file; the class's folder and the file's name are what holds here.
    locate=lambda key, part: "/".join(PurePosixPath(key).parts[-2:]),
).register()
