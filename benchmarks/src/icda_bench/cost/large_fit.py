"""Peak memory of a fit to features on disk."""

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from icda.errors import InputError
from icda_bench.cost.child import in_child, peak_mib
from icda_bench.rows import Row

CHUNK = 20_000


def measure_large_fit(
    folder: Path,
    num_samples: int = 1_000_000,
    feature_dim: int = 512,
    num_classes: int = 10,
    losses: Sequence[str] = ("ce", "icda"),
) -> list[Row]:
    """Fit each loss to a synthetic biased set, in a child each; the files are made if they are not there, and stay."""
    make_biased_files(folder, num_samples, feature_dim, num_classes)
    rows = []
    for loss in losses:
        rows.append(in_child(fit_from_disk, folder, loss))
        print("{loss}: peak {peak_mib:.0f} MiB, {seconds:.0f} s".format(**rows[-1]))
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


def fit_from_disk(folder: Path, loss: str) -> Row:
    """One fit in this process, whose peak memory is then that of the fit.

    Resident memory counts the pages of a mapped file that are in use, too. `imports_mib` is what the process had before it
    opened the file; `accuracy` is that on the first rows of the training file: that something was learned.
    """
    from icda.estimators.classifier import ICDAClassifier

    imports = peak_mib()
    features, labels = np.load(folder / "features.npy", mmap_mode="r"), np.load(folder / "labels.npy")
    start = time.perf_counter()
    model = ICDAClassifier(loss).fit(features, labels)  # type: ignore[arg-type]
    seconds = time.perf_counter() - start
    first = slice(0, CHUNK)
    return {
        "loss": loss,
        **{"samples": len(features), "features": features.shape[1], "classes": len(model.classes_)},
        "file_gib": round(features.nbytes / 2**30, 2),
        "imports_mib": round(imports, 1),
        "peak_mib": round(peak_mib(), 1),
        "seconds": round(seconds, 1),
        "iterations": int(model.n_iter_),
        "accuracy": round(float(model.score(np.array(features[first]), labels[first])), 4),
    }
