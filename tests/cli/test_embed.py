from pathlib import Path

import numpy as np
import pytest

from icda.data.embedding import load_features
from support import write_photos


@pytest.fixture
def photos(tmp_path):
    """Below the folder in which the command runs."""
    return write_photos(tmp_path / "photos", 6, names=("cat", "dog")).name


@pytest.fixture
def reviews(tmp_path):
    (tmp_path / "reviews.csv").write_text(
        "text,label,group\nA wonderful film.,good,a\nI loved this movie!,good,b\nDull and far too long.,bad,a\n,bad,b\n"
    )
    return "reviews.csv"


def test_a_folder_becomes_features_that_numpy_reads(icda, photos):
    answer = icda("embed", photos, "--out", "f.npz", "--image-size", 32).worked()
    assert "f.npz: 6 x 1280 features by efficientnet_lite0" in answer.out
    assert "2 classes: cat, dog" in answer.out
    assert "6/6 images" in answer.err
    with np.load("f.npz", allow_pickle=False) as file:
        assert file["features"].shape == (6, 1280)
        assert file["y"].tolist() == ["cat"] * 3 + ["dog"] * 3


def test_the_batch_size_changes_nothing_and_a_second_run_gives_the_same_bytes(icda, photos):
    for name, size in (("a", 32), ("b", 32), ("c", 1)):
        icda("embed", photos, "--out", f"{name}.npz", "--image-size", 64, "--batch-size", size)
    assert Path("a.npz").read_bytes() == Path("b.npz").read_bytes()
    np.testing.assert_allclose(load_features("a.npz").features, load_features("c.npz").features, rtol=1e-5, atol=1e-5)


def test_a_table_of_texts_becomes_sentence_embeddings(icda, reviews):
    answer = icda("embed", reviews).worked()
    assert "features.npz: 4 x 384 features by minilm" in answer.out
    assert "4 groups: bad, a, bad, b, good, a, good, b" in answer.out
    features = load_features("features.npz").features
    assert features[0] @ features[1] > features[0] @ features[3]


def test_an_unreadable_image_is_named_or_skipped(icda, photos):
    Path(photos, "cat", "002.png").write_bytes(b"no image")
    answer = icda("embed", photos, "--image-size", 32).refused()
    assert "photos/cat/002.png" in answer.err
    assert "--skip-unreadable" in answer.err
    answer = icda("embed", photos, "--image-size", 32, "--skip-unreadable", "--resume").worked()
    assert "1 unreadable, left out and listed in the file as 'skipped':\n  cat/002.png\n" in answer.out
    assert load_features("features.npz").skipped.tolist() == ["cat/002.png"]


def test_a_file_of_features_is_not_embedded_again(icda):
    np.savez("own.npz", X=np.eye(4), y=[0, 0, 1, 1])
    assert "own.npz holds features already" in icda("embed", "own.npz").refused().err


def test_images_without_classes_are_embedded_on_request(icda, photos):
    icda("embed", f"{photos}/cat", "--unlabelled", "--image-size", 32).worked()
    assert load_features("features.npz").y is None


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["nowhere"], "is not there. Expected: a CSV table, or a folder"),
        (["photos", "--encoder", "eficientnet"], "did you mean 'efficientnet_lite0'?"),
        (["photos", "--encoder", "minilm"], "takes texts, but the inputs are images"),
        (["reviews.csv", "--image-size", "32"], "but the inputs are texts"),
        (["reviews.csv", "--label-column", "lable"], "did you mean 'label'?"),
        (["photos", "--out", "features.csv"], "expected a name that ends in .npz"),
        (["photos", "--batch-size", "0"], "batch_size is 0, expected 1 or more"),
        (["photos", "--image-size", "-1"], "image size is -1"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
@pytest.mark.usefixtures("photos", "reviews")
def test_a_mistake_ends_in_one_line_and_no_file(words, hint, icda):
    answer = icda("embed", *words).refused()
    assert hint in answer.err
    assert "Traceback" not in answer.text
    assert not list(Path().glob("features*"))
