"""Files with any part changed, and names that are not UTF-8."""

import copy
import json
import os
import shutil

import numpy as np
import pytest
from PIL import Image

from icda.errors import IcdaError
from icda.report import read_runs, write_report
from icda.training import TrainConfig, evaluate_folder, train
from icda.training.checkpoint import load_checkpoint, save_checkpoint

ODD = [None, -1, [None], {"a": 1}]
ODDER = [*ODD, "x", [], {}, True, float("nan"), [[1, [2]]], 10**400]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    config = TrainConfig(model="linear", method="ce", epochs=1, out=str(tmp_path_factory.mktemp("run") / "run"))
    train(config)
    return config


def changed(state):
    """The state with one part after the other replaced, and one entry of each part that is a dictionary."""
    for key in state.keys() - {"format", "version"}:
        for odd in ODD:
            yield f"{key} {odd!r}"[:60], {**state, key: odd}
    for key in ("config", "setup", "position", "selector"):
        for entry in state.get(key, {}):
            for odd in ODD:
                yield f"{key}.{entry} {odd!r}"[:60], {**state, key: {**state[key], entry: odd}}


def refused(cases):
    """How many of the cases are refused in a sentence; one that fails in another way fails the test."""
    count = 0
    for what, use in cases:
        try:
            use()
        except IcdaError:
            count += 1
        except Exception as error:
            pytest.fail(f"{what}: {type(error).__name__}: {error}")
    return count


def test_a_model_with_any_part_changed_is_evaluated_or_refused_in_a_sentence(finished, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(finished.folder(), folder)

    def cases():
        for what, state in changed(load_checkpoint(folder / "model.pt")):
            save_checkpoint(folder / "model.pt", state)
            yield what, lambda: evaluate_folder(folder)

    assert refused(cases()) > 80


def test_a_checkpoint_with_any_part_changed_is_resumed_or_refused_in_a_sentence(finished, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(finished.folder(), folder)
    config = TrainConfig(**{**vars(finished), "out": str(folder)})

    def cases():
        for what, state in changed(load_checkpoint(folder / "checkpoint.pt")):
            if not what.startswith("config"):  # read for the words of a refusal only
                for file in ("result.json", "report.html"):
                    (folder / file).unlink(missing_ok=True)
                save_checkpoint(folder / "checkpoint.pt", state)
                yield what, lambda: train(config, resume=True)

    assert refused(cases()) > 30


def test_a_result_with_any_part_changed_makes_a_page_or_is_refused_in_a_sentence(finished, tmp_path):
    result, path = json.loads((finished.folder() / "result.json").read_text()), tmp_path / "result.json"
    places = [(key,) for key in result]
    places += [(key, entry) for key in ("metrics", "config", "environment") for entry in result[key]]

    def page():
        write_report(tmp_path / "page.html", [run.result for run in read_runs([path])])

    def cases():
        for place in places:
            for odd in ODDER:
                spoiled = copy.deepcopy(result)
                (spoiled if len(place) == 1 else spoiled[place[0]])[place[-1]] = odd
                path.write_text(json.dumps(spoiled))
                yield f"{place} {str(odd)[:20]}", page

    assert refused(cases()) > 0


def write_images(folder, value):
    os.makedirs(folder)  # noqa: PTH103 - a path of bytes
    for number in range(10):
        with open(folder + b"/%d.png" % number, "wb") as file:  # noqa: PTH123
            Image.fromarray(np.full((8, 8, 3), value + number, np.uint8)).save(file, "PNG")


def test_a_class_folder_whose_name_is_not_utf8_is_trained_on_under_a_readable_name(tmp_path):
    root = os.fsencode(tmp_path) + b"/ph\xf6tos"
    try:
        write_images(root + b"/caf\xe9", 20)
    except OSError:
        pytest.skip("this file system takes UTF-8 only")
    write_images(root + "/naïve".encode(), 200)
    out = tmp_path / "run"
    config = TrainConfig(data=os.fsdecode(root), image_size=8, model="small_cnn", epochs=1, out=str(out))
    result = train(config)
    assert (result.task, result.class_names) == ("ph\\xf6tos", ["caf\\xe9", "naïve"])
    assert json.loads((out / "result.json").read_text(encoding="utf-8"))["class_names"] == ["caf\\xe9", "naïve"]
    assert "caf\\xe9" in (out / "report.html").read_text(encoding="utf-8")
    assert evaluate_folder(out)["metrics"] == result["metrics"]
    assert train(config, resume=True) == result
