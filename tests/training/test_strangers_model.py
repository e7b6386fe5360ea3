"""A model.pt of somebody else: it makes icda neither ask a hub nor run code."""

import json
import os
import subprocess
import sys

import pytest

from icda.errors import InputError
from icda.models import create_model
from icda.models.hub import hub
from icda.training import TrainConfig, train
from icda.training.checkpoint import load_checkpoint, save_checkpoint

pytest.importorskip("transformers")

# Every attempt to reach another machine is noted and fails.
LOAD = """
import socket, sys, time
from pathlib import Path
asked = []
def refuse(*given, **_):
    asked.append(given)
    raise OSError("no network here")
socket.getaddrinfo = refuse
socket.socket.connect = refuse
time.sleep = lambda _: None  # the library tries again and again, with longer and longer pauses
from icda.training.run import load_folder
try:
    load_folder(Path(sys.argv[1]), allow_hub=sys.argv[2] == "yes")
except OSError as error:
    print(len(asked), error)
"""


@pytest.fixture
def strangers_run(tmp_path):
    """A run whose model.pt names a model on the hub."""
    folder = tmp_path / "run"
    train(TrainConfig(model="linear", method="ce", epochs=1, out=str(folder)))
    state = load_checkpoint(folder / "model.pt")
    state["config"]["model"] = "hf:somebody/classifier"
    save_checkpoint(folder / "model.pt", state)
    return folder


def ask(folder, allowed, cache):
    environment = {**os.environ, "HF_HUB_OFFLINE": "0", "HF_HOME": str(cache), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", LOAD, str(folder), allowed], env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    number, sentence = done.stdout.split(" ", 1)
    return int(number), sentence


def test_a_model_file_that_names_a_model_of_the_hub_asks_nobody_without_leave(strangers_run, tmp_path):
    asked, sentence = ask(strangers_run, "no", tmp_path / "cache")
    assert asked == 0
    assert "somebody/classifier is not on this machine" in sentence
    assert "add --allow-hub" in sentence
    asked, sentence = ask(strangers_run, "yes", tmp_path / "cache")
    assert asked > 0
    assert "--allow-hub" not in sentence


def test_a_model_that_was_fetched_before_is_read_from_this_machine(tmp_path, monkeypatch):
    import huggingface_hub

    from icda.models.hub import local_place

    kept = tmp_path / "snapshots" / "1" / "config.json"
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", lambda *_: str(kept))
    with hub(allowed=False):
        assert local_place("somebody/classifier") == str(kept.parent)
    assert local_place("somebody/classifier") == "somebody/classifier"


def test_code_beside_a_model_is_not_run(tmp_path):
    trace = tmp_path / "trace"
    folder = tmp_path / "model"
    folder.mkdir()
    code = f"open({str(trace)!r}, 'w').close()\n"
    (folder / "modeling.py").write_text(code)
    (folder / "configuration.py").write_text(code)
    places = {"AutoConfig": "configuration.Config", "AutoModelForImageClassification": "modeling.Model"}
    (folder / "config.json").write_text(json.dumps({"model_type": "strange", "auto_map": places}))
    with pytest.raises(OSError, match="cannot be loaded"):
        create_model(f"hf:{folder}", 3)
    assert not trace.exists()


def test_timm_names_of_a_hub_are_refused_where_the_hub_is():
    with hub(allowed=False), pytest.raises(InputError, match="--allow-hub"):
        create_model("timm:hf_hub:somebody/model", 2)
