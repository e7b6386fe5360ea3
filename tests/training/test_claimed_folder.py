"""A run's folder belongs to one process at a time, and a run that was cut off after its result is completed."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager
from dataclasses import replace

import pytest

from icda.errors import OperationError
from icda.results.claims import OWNER, FolderInUseError, claimed
from icda.results.files import DamagedFileError
from icda.training import train
from icda.training.progress import ProgressView

STOPPED = """
import os, signal, sys
from icda.training import TrainConfig, train
from icda.training.progress import ProgressView

class Stopping(ProgressView):
    steps = 0
    def step(self, *_):
        self.steps += 1
        if self.steps == 8:
            os.kill(os.getpid(), signal.SIGSTOP)

train(TrainConfig(epochs=3, batch_size=64, out=sys.argv[1]), view=Stopping())
"""


def test_a_second_training_in_one_folder_is_refused_with_the_first_ones_process_and_spoils_nothing(
    configure, assert_same_run
):
    alone, shared = configure("alone"), configure("shared")
    train(alone)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    first = subprocess.Popen([sys.executable, "-c", STOPPED, shared.out], env=environment)
    _, status = os.waitpid(first.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    try:
        for how in ({}, {"resume": True}, {"overwrite": True}):
            with pytest.raises(FolderInUseError, match=rf"process {first.pid} on {socket.gethostname()}"):
                train(replace(shared, seed=1), **how)
    finally:
        os.kill(first.pid, signal.SIGCONT)
    assert first.wait(timeout=120) == 0
    assert_same_run(alone.folder(), shared.folder())
    assert not (shared.folder() / OWNER).exists()


def test_a_claim_whose_process_was_killed_is_no_obstacle(configure):
    config = configure("run", epochs=1)
    config.folder().mkdir()
    (config.folder() / OWNER).write_text(json.dumps({"pid": 1, "host": "elsewhere"}))
    assert train(config).metric("accuracy") is not None
    assert not (config.folder() / OWNER).exists()


def test_of_several_ranks_only_the_first_claims(configure, monkeypatch):
    config = configure("run", epochs=1)
    train(config)
    monkeypatch.setenv("RANK", "1")
    with claimed_elsewhere(config.folder()):
        assert train(config, resume=True).seed == 0  # read, while another has the folder
        monkeypatch.setenv("RANK", "0")
        with pytest.raises(FolderInUseError):
            train(config, resume=True)


@contextmanager
def claimed_elsewhere(folder):
    """A claim by a thread that is not this one."""
    taken, over = threading.Event(), threading.Event()

    def hold():
        with claimed(folder):
            taken.set()
            over.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    taken.wait()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_a_refused_run_leaves_no_folder(configure):
    config = configure("a/b", task="no_such_task")
    with pytest.raises(ValueError, match="unknown task"):
        train(config)
    assert not config.folder().parent.exists()


class SwappingView(ProgressView):
    """Puts the model of another run into the folder at the last step."""

    def __init__(self, source, target):
        self.source, self.target = source, target

    def epoch(self, record, num_epochs):
        if record.epoch == num_epochs - 1:
            shutil.copy(self.source, self.target)


def test_a_model_of_another_run_is_not_taken_for_this_runs(configure):
    other, config = configure("other", seed=1), configure("run")
    train(other)
    with pytest.raises(OperationError, match=r"model\.pt was written by another run \(seed 1 -> 0\)"):
        train(config, view=SwappingView(other.folder() / "model.pt", config.folder() / "model.pt"))
    assert not (config.folder() / "result.json").exists()


@pytest.mark.parametrize(
    "missing", [("report.html",), ("config.yaml", "report.html"), ("explanations.json", "report.html")]
)
def test_what_was_not_written_after_the_result_is_made_by_resume(missing, configure):
    config = configure("run", epochs=1)
    result = train(config)
    before = {name: (config.folder() / name).read_bytes() for name in missing}
    for name in missing:
        (config.folder() / name).unlink()
    assert train(config, resume=True) == result
    assert {name: (config.folder() / name).read_bytes() for name in missing} == before


def test_a_result_without_its_model_gets_a_page_without_explanations(configure):
    config = configure("run", epochs=1)
    train(config)
    for name in ("model.pt", "explanations.json", "report.html"):
        (config.folder() / name).unlink()
    train(config, resume=True)
    assert "icda on digits_lt" in (config.folder() / "report.html").read_text()
    assert not (config.folder() / "explanations.json").exists()


def test_a_damaged_result_is_named_and_made_again_from_the_checkpoint(configure, assert_same_run):
    whole, config = configure("whole"), configure("run")
    train(whole)
    train(config)
    path = config.folder() / "result.json"
    path.write_text(path.read_text()[:100])
    with pytest.warns(UserWarning, match=r"result\.json is not JSON .* It is made again\."):
        train(config, resume=True)
    assert_same_run(whole.folder(), config.folder())


def test_a_result_of_a_later_version_is_not_made_again(configure):
    config = configure("run", epochs=1)
    train(config)
    path = config.folder() / "result.json"
    later = json.loads(path.read_text()) | {"schema_version": 99}
    path.write_text(json.dumps(later))
    with pytest.raises(ValueError, match="schema version 99") as caught:
        train(config, resume=True)
    assert not isinstance(caught.value, DamagedFileError)
    assert json.loads(path.read_text()) == later


def test_a_log_that_is_a_link_leads_to_no_other_file(configure, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    config = configure("run", epochs=1)
    config.folder().mkdir()
    for name in ("log.jsonl", "config.yaml", "report.html"):
        (config.folder() / name).symlink_to(victim)
    train(config)
    assert victim.read_text() == "precious"
