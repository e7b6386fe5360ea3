"""What the audit shows of samples, and how an audit shows itself."""

import hashlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import icda
from icda.auditing.page import suspect_pairs, thumbnail, typical_rows
from icda.data.embedding.origin import find_inputs
from icda.errors import InputError, MissingFileError

WRONG = (0, 1, 2, 3)  # samples whose labels were exchanged


@pytest.fixture(scope="module")
def found():
    generator = np.random.default_rng(0)
    y = np.arange(120) % 2
    X = generator.normal(size=(120, 5)) + 3 * y[:, None]
    y[list(WRONG)] = 1 - y[list(WRONG)]
    return icda.audit(X, np.array(["cat", "dog"])[y], sample_names=[f"{i}.png" for i in range(120)])


@pytest.fixture
def pictures(tmp_path):
    for i in range(120):
        Image.new("RGB", (200, 100), (i, 0, 0)).save(tmp_path / f"{i}.png")
    return [tmp_path / f"{i}.png" for i in range(120)]


def test_pairs_hold_every_suspect_once_the_most_tied_first(found):
    pairs = suspect_pairs(found)
    rows = np.concatenate([rows for _, _, rows in pairs])
    assert sorted(rows) == sorted(np.flatnonzero(found.ties.suspected))
    assert {int(row) for row in rows} >= set(WRONG)
    for label, tied_to, rows in pairs:
        assert set(found.ties.label[rows]) == {label}
        assert set(found.ties.tied_to[rows]) == {tied_to}
        assert (np.diff(found.ties.tie[rows]) <= 0).all()


def test_typical_samples_are_right_unsuspected_and_in_the_middle(found):
    for label in (0, 1):
        rows = typical_rows(found, label)
        assert len(rows) == 4
        assert not found.ties.suspected[rows].any()
        assert (found.ties.predicted[rows] == label).all()
        same = (found.ties.label == label) & ~found.ties.suspected & (found.ties.predicted == label)
        median = np.median(found.ties.quality[same])
        others = np.setdiff1d(np.flatnonzero(same), rows)
        farthest = np.abs(found.ties.quality[rows] - median).max()
        assert (np.abs(found.ties.quality[others] - median) >= farthest).all()


def test_the_page_holds_thumbnails_and_goes_without_a_lost_file(found, pictures, tmp_path):
    pictures[0].unlink()
    page = found.to_html(tmp_path / "audit.html", images=pictures).read_text()
    assert page.count("data:image/jpeg;base64,") > 8
    assert "sample 0.png" in page  # its name alone
    assert len(page) < 10**6
    with pytest.raises(InputError, match="expected 120, got 3"):
        found.to_html(tmp_path / "audit.html", images=pictures[:3])
    with pytest.raises(InputError, match="not both"):
        found.to_html(tmp_path / "audit.html", images=pictures, texts=["a"] * 120)


def test_a_thumbnail_is_small(tmp_path):
    Image.effect_noise((2000, 1000), 60).convert("RGB").save(tmp_path / "large.jpg")
    assert len(thumbnail(tmp_path / "large.jpg")) < 30_000


def test_an_audit_is_readable_where_it_is_printed(found):
    assert str(found).startswith("120 samples, 5 features, 2 classes")
    assert "most tied samples" in str(found)
    assert "next: icda.RobustClassifier().fit(X, y)" in str(found)
    assert "\x1b" not in str(found)
    assert max(map(len, str(found).splitlines())) <= 100
    assert repr(found) == f"<Audit of 120 samples, 2 classes. {found.summary}>"
    html = found._repr_html_()
    assert html.startswith("<div><section><h3>In short</h3>")
    assert "<table" in html


def test_no_untied_sample_is_printed_among_the_most_tied(found):
    tied = int((found.ties.tie > 0).sum())
    table = str(found).partition("most tied samples")[2].partition("most doubtful")[0]
    assert table.count(".png") == min(tied, 10)


def test_inputs_are_found_beside_the_file_and_nowhere_else(pictures, tmp_path, monkeypatch):
    names = [path.name for path in pictures]
    near = {"source": "."}
    assert list(find_inputs(names, near, tmp_path / "f.npz").inputs) == [path.resolve() for path in pictures]
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path / "sub")
    outside = {"source": "../"}  # a stranger's file must not choose what is shown
    assert find_inputs(names, outside, tmp_path / "sub" / "f.npz") is None
    given = find_inputs(names, outside, tmp_path / "sub" / "f.npz", tmp_path)
    assert given is not None
    (tmp_path / "sub" / "own.png").touch()
    shown = find_inputs(["../secret.png", "own.png"], {}, tmp_path / "f.npz", tmp_path / "sub")
    assert [Path(str(item)).name for item in shown.inputs] == ["missing", "own.png"]
    with pytest.raises(MissingFileError, match="that `icda embed` read"):
        find_inputs(names, {}, tmp_path / "f.npz", tmp_path / "nowhere")


def test_a_folder_without_any_of_the_images_is_refused(pictures, tmp_path):
    (tmp_path / "empty").mkdir()
    names = [path.name for path in pictures]
    with pytest.raises(
        InputError, match=f"has none of the {len(names)} images that the features name, such as {names[0]}"
    ):
        find_inputs(names, {}, tmp_path / "f.npz", tmp_path / "empty")


def test_texts_are_found_by_their_rows(tmp_path):
    table = tmp_path / "t.csv"
    table.write_text("words,label\nfirst,a\nsecond,b\n")
    digest = hashlib.sha256(table.read_bytes()).hexdigest()
    noted = {"source": "t.csv", "source_column": "words", "source_sha256": digest}
    assert find_inputs(["1", "0"], noted, tmp_path / "f.npz").inputs == ["second", "first"]
    with pytest.raises(InputError, match="has 2 rows, and the features name others"):
        find_inputs(["7"], noted, tmp_path / "f.npz")
