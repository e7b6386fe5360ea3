"""Peak memory of a fit to features on disk."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from icda.errors import InputError
from icda_bench.cost.child import in_child, peak_mib

CHUNK = 20_000


@dataclass(frozen=True)
class LargeFitRow:
    """One fit in a process of its own. Resident memory counts the pages of a mapped file that are in use, too.

    `imports_mib` is what the process had before it opened the file.
    """

    loss: str
    samples: int
    features: int
    classes: int
    file_gib: float
    imports_mib: float
    peak_mib: float
    seconds: float
    iterations: int
    accuracy: float  # on the first rows of the training file: that something was learned


def measure_large_fit(
    folder: Path,
    num_samples: int = 1_000_000,
    feature_dim: int = 512,
    num_classes: int = 10,
    losses: Sequence[str] = ("ce", "icda"),
) -> list[LargeFitRow]:
    """Fit each loss to a synthetic biased set, in a child each; the files are made if they are not there, and stay."""
    make_biased_files(folder, num_samples, feature_dim, num_classes)
    rows = []
    for loss in losses:
        rows.append(in_child(fit_from_disk, folder, loss))
        print(f"{loss}: peak {rows[-1].peak_mib:.0f} MiB, {rows[-1].seconds:.0f} s")
    return rows


def make_biased_files(
    folder: Path, num_samples: int, feature_dim: int, num_classes: int, kind: type[np.floating] = np.float32
) -> tuple[Path, Path]:
    """features.npy and labels.npy, a chunk at a time, made once.

    Each class has an attribute that goes with it in 95 of 100 samples and speaks louder than the class itself. Directions
    differ in scale as those of an encoder's features do.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = folder / "features.npy", folder / "labels.npy"
    if paths[1].exists():
        shape = np.load(paths[0], mmap_mode="r").shape
        if shape != (num_samples, feature_dim):
            raise InputError(f"{paths[0]} holds {shape} features: name another folder.")
        return paths
    generator = np.random.default_rng(0)
    scale = (np.arange(1, feature_dim + 1) ** -0.3).astype(np.float32)
    of_class, of_attribute = generator.normal(size=(2, num_classes, feature_dim)).astype(np.float32) * scale
    labels = generator.integers(num_classes, size=num_samples)
    tied = generator.random(num_samples) < 0.95
    attributes = np.where(tied, labels, generator.integers(num_classes, size=num_samples))
    out = np.lib.format.open_memmap(paths[0], "w+", kind, (num_samples, feature_dim))
    for start in range(0, num_samples, CHUNK):
        rows = slice(start, min(start + CHUNK, num_samples))
        noise = generator.standard_normal((rows.stop - start, feature_dim), dtype=np.float32) * scale
        out[rows] = noise + 0.15 * of_class[labels[rows]] + 0.3 * of_attribute[attributes[rows]]
    out.flush()
    np.save(paths[1], labels)  # last: where labels are, features are whole
    return paths


def fit_from_disk(folder: Path, loss: str) -> LargeFitRow:
    """One fit in this process, whose peak memory is then that of the fit."""
    from icda.estimators.classifier import ICDAClassifier

    imports = peak_mib()
    features, labels = np.load(folder / "features.npy", mmap_mode="r"), np.load(folder / "labels.npy")
    start = time.perf_counter()
    model = ICDAClassifier(loss).fit(features, labels)  # type: ignore[arg-type]
    seconds = time.perf_counter() - start
    first = slice(0, CHUNK)
    return LargeFitRow(
        loss,
        len(features),
        features.shape[1],
        len(model.classes_),
        round(features.nbytes / 2**30, 2),
        round(imports, 1),
        round(peak_mib(), 1),
        round(seconds, 1),
        int(model.n_iter_),
        round(float(model.score(np.array(features[first]), labels[first])), 4),
    )
