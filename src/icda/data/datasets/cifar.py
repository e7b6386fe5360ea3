"""CIFAR-10 and CIFAR-100: whole, long-tailed, with wrong labels, with the labels that people gave, and small versions.

The small ones have fewer images at 16 pixels, averaged over 2 x 2, for grids of many runs; the test set is the whole
one. Ten clean images per class are metadata in all of them. Names that end in `_validation` add unused images as a
validation split and change nothing else: what is tuned there may be reported without it. Of CIFAR-100 a part may be
stored: samples are then chosen among those, class sizes are the published ones, and a task that needs more images is
refused.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from icda.data.bias.long_tail import keep_counts, long_tail, long_tail_counts
from icda.data.bias.noise import noisy_labels
from icda.data.datasets import cifar_files
from icda.data.generators import generator_for
from icda.data.given_labels import relabelled
from icda.data.registry import TASKS, find_folder
from icda.data.sources import ImageArray
from icda.data.splits import take_per_class
from icda.data.task import Split, Task
from icda.errors import InputError

HOME = "the University of Toronto's CIFAR page (the archive 'CIFAR-{} python version', unpacked)"
FOLDER, FINE_FOLDER = "cifar-10-batches-py", "cifar-100-python"
FILES = f"the folder {FOLDER} with data_batch_1 to data_batch_5 and test_batch"
FINE_FILES = f"the folder {FINE_FOLDER} with train, test and meta"
LAYOUTS = [("cifar10", "manifest.json"), (FOLDER, "data_batch_1"), (f"cifar10/{FOLDER}", "data_batch_1")]
FINE_LAYOUTS = [(FINE_FOLDER, "train"), (f"cifar100/{FINE_FOLDER}", "train"), ("cifar100", "manifest.json")]
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
MEAN = (125.3 / 255, 123.0 / 255, 113.9 / 255)
STD = (63.0 / 255, 62.1 / 255, 66.7 / 255)
NOISE_METADATA = 1000  # images in all
SIZE = 16  # pixels of the small tasks
METADATA = 10  # images per class
HUMAN_HOME = "CIFAR-N of Wei et al. (noisylabels.com), CC BY-NC 4.0, for research use only"
# Files of CIFAR-N; names of tasks, and of the label sets in those files.
HUMAN_FILES = {"cifar10": ("cifar10n.npz", "CIFAR-10_human.pt"), "cifar100": ("cifar100n.npz", "CIFAR-100_human.pt")}
HUMAN_LABELS = {
    "cifar10": {"aggre": "aggre_label", "random1": "random_label1", "worse": "worse_label"},
    "cifar100": {"noisy": "noisy_label"},
}


class SmallSizes(NamedTuple):
    """Images per class of the small tasks; `largest` is the largest class of a long tail."""

    largest: int
    standard: int
    noisy: int
    human: int  # with the labels that people gave
    validation: int


class CifarImages(NamedTuple):
    """The training images and their labels, the test split, and how many training images were published."""

    source: ImageArray
    labels: Tensor
    test: Split
    class_names: tuple[str, ...]
    whole: int

    @property
    def stored(self) -> str:
        """How much of the training set is here; empty if all of it."""
        here = len(self.labels)
        return "" if here == self.whole else f"{here:,} of {self.whole:,} training images are stored"


@lru_cache(maxsize=2)  # decoding takes seconds, and a benchmark asks for many tasks made of the same images
def _read(folder: Path) -> CifarImages:
    names: tuple[str, ...] = CLASSES
    if (folder / "manifest.json").is_file():
        arrays = cifar_files.read_grids(folder)
        names = arrays.class_names or CLASSES
    elif folder.name == FINE_FOLDER:
        arrays = cifar_files.read_batches(folder, cifar_files.FINE_SUMS, b"fine_labels")
        (meta,) = cifar_files.read_pickles(folder, cifar_files.NAMES_SUMS)
        names = tuple(bytes(name).decode() for name in meta[b"fine_label_names"])
    else:
        arrays = cifar_files.read_batches(folder)
    labels, test_labels = torch.from_numpy(arrays.train_labels), torch.from_numpy(arrays.test_labels)
    test = Split(ImageArray(arrays.test_images, MEAN, STD), torch.arange(len(test_labels)), test_labels)
    places = None if arrays.train_index is None else torch.from_numpy(arrays.train_index.astype(np.int64))
    source = ImageArray(arrays.train_images, MEAN, STD, crop_padding=4, flip=True, places=places)
    return CifarImages(source, labels, test, names, arrays.whole or len(labels))


@dataclass(frozen=True)
class CifarFamily:
    """The tasks of one of the two: `name` begins theirs, `title` their descriptions."""

    name: str
    title: str
    classes: int
    layouts: Sequence[tuple[str, str]]
    files: str
    sizes: SmallSizes

    def register(self) -> None:
        TASKS.register(self.name)(self.whole)
        for ratio in (100, 10):
            TASKS.register(f"{self.name}_lt_{ratio}")(partial(self.long_tailed, ratio=ratio, meta=False))
            TASKS.register(f"{self.name}_lt_{ratio}_meta")(partial(self.long_tailed, ratio=ratio, meta=True))
        for kind, percent in (("uniform", 40), ("uniform", 60), ("flip2", 20), ("flip2", 40)):
            name = f"{self.name}_{kind.rstrip('2')}_{percent}"
            TASKS.register(name)(partial(self.noisy, kind=kind, percent=percent))
        for bias, amount in BIASES:
            for validation in (False, True):
                name = self.small_name(bias, amount) + ("_validation" if validation else "")
                TASKS.register(name)(partial(self.small, bias=bias, amount=amount, validation=validation))
        for kind in HUMAN_LABELS[self.name]:
            for end in ("", "_small"):
                TASKS.register(f"{self.name}n_{kind}{end}")(partial(self.human, kind=kind, end=end))

    def load(self, root: Path | None) -> CifarImages:
        """Everything that is stored, as the archive's files or as grids, decoded once in a process."""
        return _read(find_folder(root, self.title, self.layouts, self.files, HOME.format(self.classes)).resolve())

    def whole(self, root: Path | None, seed: int) -> Task:
        """All training images that are stored; nothing here depends on the seed."""
        data = self.load(root)
        per_class = torch.bincount(data.labels)
        what = f"{per_class.max()} to {per_class.min()} images per class" if data.stored else "unbiased"
        return self._task(self.name, data, torch.arange(len(data.labels)), None, what)

    def long_tailed(self, root: Path | None, seed: int, *, ratio: int, meta: bool) -> Task:
        """A long tail. With `meta`, ten images per class are first set aside as metadata, so classes are a bit smaller."""
        data = self.load(root)
        aside = METADATA if meta else 0
        largest = data.whole // self.classes - aside
        name = f"{self.name}_lt_{ratio}" + ("_meta" if meta else "")
        generator = generator_for(seed, f"{self.name}_lt")
        try:
            chosen = long_tail(data.labels, ratio, generator, metadata_per_class=aside, largest=largest)
        except InputError as error:
            raise self._too_few(name, data) from error
        return self._task(name, data, *chosen, f"long-tailed {ratio}:1; the test set is balanced")

    def noisy(self, root: Path | None, seed: int, *, kind: str, percent: int) -> Task:
        """Wrong labels by Meta-Weight-Net's protocol: 1,000 clean metadata images, 49,000 noisy ones."""
        data = self.load(root)
        name = f"{self.name}_{kind.rstrip('2')}_{percent}"
        if data.stored:
            raise self._too_few(name, data)
        generator = generator_for(seed, name)
        aside, rows = take_per_class(data.labels, [NOISE_METADATA // self.classes], generator)
        wrong = noisy_labels(data.labels[rows], kind, self.classes, percent / 100, generator)
        what = f"{kind} label noise {percent} % on 49,000 training images; 1,000 clean images are metadata"
        return self._task(name, data, rows, aside, what, wrong)

    def small(self, root: Path | None, seed: int, *, bias: str, amount: int = 0, validation: bool = False) -> Task:
        """Images of 16 x 16 pixels: balanced, long-tailed, or with wrong labels."""
        data, classes, sizes = self.load(root), self.classes, self.sizes
        labels, whole = data.labels, data.test.source
        assert isinstance(whole, ImageArray)
        source = _shrunk(data.source, True)
        name = self.small_name(bias, amount)
        generator = generator_for(seed, name)
        metadata, aside, pool = take_per_class(labels, [METADATA, sizes.validation], generator)
        counts = [{"none": sizes.standard, "human": sizes.human}.get(bias, sizes.noisy)] * classes
        counts = long_tail_counts(sizes.largest, classes, amount) if bias == "lt" else counts
        rows = pool[keep_counts(labels[pool], counts, generator)]
        clean = labels[rows]
        given = clean
        if bias in ("flip", "uniform"):
            given = noisy_labels(clean, "flip2" if bias == "flip" else bias, classes, amount / 100, generator)
        return Task(
            name=name + ("_validation" if validation else ""),
            num_classes=classes,
            train=Split(source, rows, given, clean_targets=None if given is clean else clean),
            validation=Split(source, aside, labels[aside]) if validation else None,
            test=replace(data.test, source=_shrunk(whole, False)),
            metadata=Split(source, metadata, labels[metadata]),
            class_names=data.class_names,
            input_shape=(3, SIZE, SIZE),
            default_model="resnet8",
            description=f"{len(rows):,} images of {self.title} at {SIZE} x {SIZE} pixels; "
            "test is whole, clean and balanced.",
        )

    def human(self, root: Path | None, seed: int, *, kind: str, end: str) -> Task:
        """Human labels on all training images that are stored, or on small ones, of which the seed decides which.

        Wei et al., "Learning with Noisy Labels Revisited: A Study Using Real-World Human Annotations", ICLR 2022.
        CIFAR's own labels are kept as the clean ones.
        """
        task = self.small(root, seed, bias="human") if end else self.whole(root, seed)
        names = HUMAN_FILES[self.name]
        layouts = [(folder, name) for folder in ("cifar_n", "") for name in names]
        folder = find_folder(root, f"{self.title}N", layouts, " or ".join(names), HUMAN_HOME)
        path = next(folder / name for name in names if (folder / name).is_file())
        given = relabelled(task, f"{path}:{HUMAN_LABELS[self.name][kind]}").train
        if (relabelled(task, f"{path}:clean_label").train.targets != task.train.targets).any():
            raise InputError(f"{path}: its clean_label is not that of {self.title}: the images stand in another order.")
        wrong = (given.targets != task.train.targets).double().mean()
        story = f"Training labels are those that people gave ({kind}), {100 * wrong:.1f} % of them wrong."
        story = f"{task.description} {story} For research use only."
        return replace(task, name=f"{self.name}n_{kind}{end}", train=given, description=story)

    def small_name(self, bias: str, amount: int) -> str:
        known = {"none": f"{self.name}_small", "human": f"{self.name}n_small"}
        return known.get(bias, f"{self.name}_{bias}_{amount}_small")

    def _task(
        self, name: str, data: CifarImages, rows: Tensor, aside: Tensor | None, what: str, given: Tensor | None = None
    ) -> Task:
        clean = data.labels[rows]
        stored = f" {data.stored}; samples are chosen among them." if data.stored else ""
        return Task(
            name=name,
            num_classes=self.classes,
            train=Split(data.source, rows, clean) if given is None else Split(data.source, rows, given, None, clean),
            validation=None,
            test=data.test,
            metadata=None if aside is None else Split(data.source, aside, data.labels[aside]),
            class_names=data.class_names,
            input_shape=(3, 32, 32),
            default_model="resnet32",
            description=f"{self.title}, {what}.{stored} No validation set, as in the literature: report the last epoch.",
        )

    def _too_few(self, name: str, data: CifarImages) -> InputError:
        return InputError(
            f"{name} needs more images: of {self.title} only {data.stored}. The whole set comes from "
            f"{HOME.format(self.classes)}."
        )


BIASES = (("none", 0), ("lt", 100), ("lt", 10), ("flip", 20), ("flip", 40), ("uniform", 40), ("uniform", 60))


@lru_cache(maxsize=4)
def _shrunk(source: ImageArray, augmented: bool) -> ImageArray:
    """The images at half their size. Training images are mirrored but not cropped, so that a small network overfits."""
    return ImageArray(halve(source.images.numpy()), MEAN, STD, flip=augmented, places=source.places)


def halve(images: np.ndarray) -> np.ndarray:
    """Average 2 x 2 pixels of bytes (N, H, W, C), rounded half up."""
    total = images[:, ::2, ::2].astype(np.uint16)
    for part in (images[:, 1::2, ::2], images[:, ::2, 1::2], images[:, 1::2, 1::2]):
        total += part
    return ((total + 2) // 4).astype(np.uint8)


CIFAR10 = CifarFamily("cifar10", "CIFAR-10", 10, LAYOUTS, FILES, SmallSizes(500, 250, 120, 500, 100))
# Of every class of CIFAR-100 at least 150 images are stored.
CIFAR100 = CifarFamily("cifar100", "CIFAR-100", 100, FINE_LAYOUTS, FINE_FILES, SmallSizes(300, 100, 100, 100, 20))
CIFAR10.register()
CIFAR100.register()
load_cifar10 = CIFAR10.load
