"""Small made-up data of every kind that `icda fit` takes, and models fitted to them."""

import csv
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from icda.results.claims import renewed
from icda.serving.fit_data import Asked, read_fit_data
from icda.serving.fitting import fit_model, write_fitted
from icda.serving.folder import WRITTEN
from icda.serving.page import render_fit_page
from support import shortcut_data, write_photos

CLASSES = ("ant", "bee", "fly")
GOOD, BAD = ("lovely", "great", "superb", "fine", "warm"), ("awful", "dull", "poor", "sad", "cold")


def make_numbers(samples=240, seed=0):
    generator = np.random.default_rng(seed)
    y = np.arange(samples) % 3
    return generator.normal(size=(samples, 6)) + 2 * np.eye(6)[2 * y], y


def make_shortcut(samples=1500, seed=0):
    """Two classes; an attribute that is easier to read goes with the class in 94 % of the samples."""
    X, y, attribute = shortcut_data(samples, 0.94, 40, (4, 0.8), (4, 3.0), seed)
    return X.astype(np.float32), y, attribute


def write_numbers(path, X, labels):
    """A table as pandas writes it, with a column that numbers the rows."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        names = [f"f{k}" for k in range(X.shape[1])]
        writer.writerow(["", *names, *([] if labels is None else ["species"])])
        for row, values in enumerate(X.tolist()):
            writer.writerow([row, *map(repr, values), *([] if labels is None else [CLASSES[labels[row]]])])
    return path


def write_features(path, X, names=None, **columns):
    """An .npz, a .csv or a .parquet, by the suffix, with a column for each letter of `names` or f0, f1 and so on."""
    if path.suffix == ".npz":
        np.savez(path, features=X, **columns)
        return path
    frame = pd.DataFrame(X, columns=list(names or [f"f{k}" for k in range(X.shape[1])])).assign(**columns)
    frame.to_csv(path, index=False) if path.suffix == ".csv" else frame.to_parquet(path)
    return path


def write_texts(path, samples=80):
    generator = np.random.default_rng(0)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label"])
        for row in range(samples):
            words = " ".join(generator.choice((GOOD, BAD)[row % 2], 3))
            writer.writerow([f"{words} film, number {row}", ("good", "bad")[row % 2]])
    return path


def fit_to(path, folder, asked=None, method="auto"):
    data = read_fit_data(path, asked or Asked(), folder)
    fitted = fit_model(data, method)
    with renewed(folder, WRITTEN) as aside:
        write_fitted(fitted, aside, render_fit_page(fitted, str(folder), path.name))
    return fitted, data


@pytest.fixture(scope="session")
def made():
    """The functions above; tests cannot import from here."""
    return SimpleNamespace(
        numbers=make_numbers,
        shortcut=make_shortcut,
        write_numbers=write_numbers,
        write_features=write_features,
        write_texts=write_texts,
        write_images=write_photos,
        fit_to=fit_to,
        classes=CLASSES,
    )


@pytest.fixture(scope="session")
def image_model(tmp_path_factory):
    """A model folder fitted to pictures with the shipped encoder."""
    folder = tmp_path_factory.mktemp("images")
    fitted, _ = fit_to(write_photos(folder / "photos"), folder / "model")
    return folder / "model", fitted


@pytest.fixture(scope="session")
def shortcut_model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shortcut")
    X, y, _ = make_shortcut()
    np.savez(folder / "biased.npz", features=X, y=np.array(["cat", "dog"])[y])
    fitted, _ = fit_to(folder / "biased.npz", folder / "model")
    return folder / "model", fitted
