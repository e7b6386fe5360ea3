import dataclasses
import io
import os
import pickle
import random
import resource
import stat
import zipfile
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from torch import nn

from icda.results.files import UnwritableError, lock, write_atomically
from icda.training import CheckpointError, TrainConfig, train
from icda.training.checkpoint import FORMAT, VERSION, load_checkpoint, load_state, save_checkpoint
from icda.training.progress import ProgressView


class RunsCode:
    """Leaves a file behind if it is ever unpickled."""

    def __init__(self, trace):
        self.trace = trace

    def __reduce__(self):
        return (os.mkdir, (str(self.trace),))


def torch_bytes(value):
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def zip_bytes():
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("notes/readme.txt", "no tensors here")
    return buffer.getvalue()


def numpy_bytes():
    buffer = io.BytesIO()
    np.savez(buffer, weight=np.ones(3))
    return buffer.getvalue()


@contextmanager
def disk_with_room_for(size):
    """Files cannot grow beyond `size`: what a full disk does, for this process only (Python ignores SIGXFSZ)."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run" / "checkpoint.pt"


def test_what_was_saved_comes_back_bit_for_bit(path):
    state = {
        "network": nn.Linear(3, 2).state_dict(),
        "half": torch.tensor([1.5], dtype=torch.bfloat16),
        "history": [{"epoch": 0, "loss": 0.1}],
        "nothing": None,
    }
    save_checkpoint(path, state)
    found = load_checkpoint(path)
    assert (found["format"], found["version"]) == (FORMAT, VERSION)
    assert found["history"] == state["history"]
    assert found["nothing"] is None
    assert torch.equal(found["half"], state["half"])
    assert all(torch.equal(found["network"][name], state["network"][name]) for name in state["network"])


def test_a_save_leaves_one_file_that_others_may_read(path):
    for value in (1, 2):
        save_checkpoint(path, {"value": value})
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    other = path.with_name("plain")
    other.write_text("")
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(other.stat().st_mode)


def test_a_file_that_a_killed_process_left_half_written_goes_with_the_next_save(path):
    save_checkpoint(path, {"value": 1})
    path.with_name(f".{path.name}.part").write_bytes(b"half")
    save_checkpoint(path, {"value": 2})
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    assert load_checkpoint(path)["value"] == 2


def test_what_a_killed_process_left_under_any_name_goes_and_what_is_being_written_stays(path):
    save_checkpoint(path, {"value": 1})
    left, written = (path.with_name(f".{path.name}.{letter * 16}.part") for letter in "ab")
    left.write_bytes(b"half")
    with written.open("xb") as file:
        assert lock(file.fileno())
        save_checkpoint(path, {"value": 2})
        assert written.exists()
    assert not left.exists()
    save_checkpoint(path, {"value": 3})
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_link_laid_where_a_part_or_the_file_goes_leads_to_no_other_file(path, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    path.parent.mkdir()
    path.with_name(f".{path.name}.part").symlink_to(victim)
    path.symlink_to(victim)
    save_checkpoint(path, {"value": 1})
    assert victim.read_text() == "precious"
    assert not path.is_symlink()
    assert load_checkpoint(path)["value"] == 1


def test_a_reader_never_sees_a_file_in_the_making(path, monkeypatch):
    save_checkpoint(path, {"value": 1})
    seen = []
    monkeypatch.setattr(os, "fsync", lambda _: seen.append(load_checkpoint(path)["value"]))
    save_checkpoint(path, {"value": 2})
    assert seen == [1]
    assert load_checkpoint(path)["value"] == 2


FOREIGN = {
    "an empty file": lambda _: b"",
    "a text": lambda _: b"Dear reader,\nthis is not a checkpoint.\n",
    "json": lambda _: b'{"epoch": 3}',
    "a picture": lambda _: b"\x89PNG\r\n\x1a\n" + bytes(64),
    "another archive": lambda _: zip_bytes(),
    "a numpy archive": lambda _: numpy_bytes(),
    "a plain pickle": lambda _: pickle.dumps({"format": FORMAT, "version": VERSION}),
    "a pickle with code": lambda trace: pickle.dumps(RunsCode(trace)),
    "a torch file with code": lambda trace: torch_bytes({"format": FORMAT, "version": VERSION, "x": RunsCode(trace)}),
    "a whole module": lambda _: torch_bytes(nn.Linear(2, 2)),
    "a tensor": lambda _: torch_bytes(torch.ones(3)),
    "another state_dict": lambda _: torch_bytes(nn.Linear(2, 2).state_dict()),
    "a mark without version": lambda _: torch_bytes({"format": FORMAT}),
    "a version that is no number": lambda _: torch_bytes({"format": FORMAT, "version": "one"}),
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_a_foreign_file_is_refused_by_name_and_nothing_in_it_runs(kind, tmp_path):
    path, trace = tmp_path / "checkpoint.pt", tmp_path / "trace"
    path.write_bytes(FOREIGN[kind](trace))
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(path)
    assert str(path) in str(caught.value)
    assert "weights_only" not in str(caught.value)  # torch's advice to load it anyway is not ours
    assert not trace.exists()


def test_each_kind_of_trouble_has_its_own_words(path):
    with pytest.raises(CheckpointError, match="no checkpoint at"):
        load_checkpoint(path)
    path.parent.mkdir()
    path.write_bytes(torch_bytes({"format": FORMAT, "version": VERSION + 1}))
    with pytest.raises(CheckpointError, match=f"version {VERSION + 1}; this icda reads up to {VERSION}"):
        load_checkpoint(path)
    path.write_bytes(torch_bytes({"weights": torch.ones(1)}))
    with pytest.raises(CheckpointError, match="was not written by icda"):
        load_checkpoint(path)
    path.write_bytes(b"text")
    with pytest.raises(CheckpointError, match="not a checkpoint, or one that is damaged or truncated"):
        load_checkpoint(path)
    save_checkpoint(path, {"networks": [], "epoch": 3})
    with pytest.raises(CheckpointError, match="lacks optimizers, position"):
        load_checkpoint(path, ("networks", "position", "optimizers"))


def test_a_checkpoint_cut_off_anywhere_is_refused(path):
    save_checkpoint(path, {"weight": torch.randn(40, 40), "epoch": 3})
    whole = path.read_bytes()
    for length in range(0, len(whole), 101):
        path.write_bytes(whole[:length])
        with pytest.raises(CheckpointError):
            load_checkpoint(path)


def test_a_flipped_bit_is_noticed_or_makes_no_difference(path):
    weight = torch.randn(20, 20)
    save_checkpoint(path, {"weight": weight, "epoch": 3})
    whole, draw, noticed = path.read_bytes(), random.Random(0), 0
    for _ in range(400):
        damaged = bytearray(whole)
        damaged[draw.randrange(len(whole))] ^= 1 << draw.randrange(8)
        path.write_bytes(damaged)
        try:
            state = load_checkpoint(path)
        except CheckpointError:
            noticed += 1
        else:  # padding between the parts of the archive
            assert torch.equal(state["weight"], weight)
            assert state["epoch"] == 3
    assert noticed > 200


def test_a_flipped_bit_in_the_weights_is_named(path):
    weight = torch.full((100,), 0.123456789)
    save_checkpoint(path, {"weight": weight})
    whole, needle = bytearray(path.read_bytes()), weight.numpy().tobytes()
    whole[whole.index(needle) + 50] ^= 1
    path.write_bytes(whole)
    with pytest.raises(CheckpointError, match="checksum"):
        load_checkpoint(path)


def test_a_full_disk_keeps_the_last_good_checkpoint_and_leaves_no_scraps(path):
    save_checkpoint(path, {"value": torch.zeros(10)})
    with (
        disk_with_room_for(20_000),
        pytest.raises(CheckpointError, match=r"could not write .*checkpoint\.pt.*untouched"),
    ):
        save_checkpoint(path, {"value": torch.zeros(100_000)})
    assert torch.equal(load_checkpoint(path)["value"], torch.zeros(10))
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_full_disk_at_the_first_save_promises_nothing_and_leaves_nothing(path):
    with disk_with_room_for(20_000), pytest.raises(CheckpointError) as caught:
        save_checkpoint(path, {"value": torch.zeros(100_000)})
    assert "untouched" not in str(caught.value)
    assert list(path.parent.iterdir()) == []


def test_a_training_whose_disk_fills_up_goes_on_from_the_last_good_checkpoint(tmp_path, assert_same_run):
    class FillingView(ProgressView):
        """The disk is full from the eighth step on."""

        steps = 0

        def step(self, *_):
            self.steps += 1
            if self.steps == 8:
                resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))

    whole = TrainConfig(epochs=3, batch_size=64, out=str(tmp_path / "whole"))
    filled = dataclasses.replace(whole, out=str(tmp_path / "filled"), checkpoint_every=2)
    train(whole)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        with pytest.raises(CheckpointError, match="could not write"):
            train(filled, view=FillingView())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    folder = filled.folder()
    assert load_checkpoint(folder / "checkpoint.pt")["position"]["iteration"] == 6
    assert not list(folder.glob(".*"))
    train(filled, resume=True)
    assert_same_run(whole.folder(), folder)


def test_a_folder_that_vanished_is_said_by_its_path(tmp_path):
    with pytest.raises(UnwritableError, match=r"could not write .*gone"):
        write_atomically(tmp_path / "gone" / "result.json", b"{}")


def test_weights_of_another_shape_are_refused_with_file_and_part(path):
    with pytest.raises(CheckpointError, match=r"checkpoint\.pt: its network does not fit this run: (.|\n)*weight"):
        load_state(nn.Linear(2, 3), nn.Linear(3, 3).state_dict(), "network", path)
