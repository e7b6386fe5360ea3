"""The model folder: one model, whole, whatever happens while it is written."""

import json
import shutil

import numpy as np
import pytest

import icda
from icda.data.embedding.samples import Reads
from icda.errors import InputError
from icda.limits import LARGEST_FACTS
from icda.serving.folder import DIGEST, FACTS, WEIGHTS
from icda.serving.head import HeadModel


def model(sign=1.0):
    return HeadModel(np.array(["cat", "dog"]), sign * np.eye(2), np.zeros(2), Reads("features", 2))


@pytest.fixture
def folder(tmp_path):
    model().save(tmp_path / "model")
    return tmp_path / "model"


def test_weights_of_another_model_are_refused(folder):
    model(-1).save(folder.parent / "other")
    shutil.copy(folder.parent / "other" / WEIGHTS, folder / WEIGHTS)
    with pytest.raises(InputError, match=r"SHA-256"):
        icda.load(folder)


def test_a_flipped_bit_in_the_weights_is_noticed(folder):
    content = bytearray((folder / WEIGHTS).read_bytes())
    content[-5] ^= 1
    (folder / WEIGHTS).write_bytes(content)
    with pytest.raises(InputError, match=r"damaged"):
        icda.load(folder)


def test_a_folder_of_an_earlier_icda_has_no_digest_and_loads(folder):
    facts = json.loads((folder / FACTS).read_text())
    del facts[DIGEST]
    (folder / FACTS).write_text(json.dumps(facts))
    assert icda.load(folder).predict(np.eye(2)).tolist() == ["cat", "dog"]


def test_a_new_model_takes_the_place_of_the_old_one(folder):
    (folder / "page.html").write_text("of the old one")
    (folder / "answers.csv").write_text("a person's work")
    model(-1).save(folder)
    assert icda.load(folder).predict(np.eye(2)).tolist() == ["dog", "cat"]
    assert sorted(path.name for path in folder.iterdir()) == ["answers.csv", FACTS, WEIGHTS]


def test_a_model_that_is_whole_but_not_yet_in_its_place_is_the_one_that_loads(folder):
    model(-1).save(folder.parent / "other")
    (folder.parent / "other").rename(folder / ".next")
    (folder / ".next" / WEIGHTS).rename(folder / WEIGHTS)  # killed after the first move
    assert icda.load(folder).predict(np.eye(2)).tolist() == ["dog", "cat"]


def test_a_huge_description_is_refused_unread(folder):
    with (folder / FACTS).open("ab") as file:
        file.truncate(LARGEST_FACTS + 1)
    with pytest.raises(InputError, match=r"more than such a file has"):
        icda.load(folder)


def test_names_that_would_fill_the_memory_are_refused(folder):
    facts = json.loads((folder / FACTS).read_text())
    facts["classes"] = ["x" * 10**6, *map(str, range(1000))]  # 4 GB as NumPy texts
    (folder / FACTS).write_text(json.dumps(facts))
    with pytest.raises(InputError, match=r"characters"):
        icda.load(folder)
