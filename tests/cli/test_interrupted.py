"""Commands that are killed, whose disk is full, or that two processes run at once."""

import csv
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import icda as package
from icda.results.claims import claimed


def save(path, sign=1, rows=200):
    generator = np.random.default_rng(0)
    y = np.arange(rows) % 2
    X = generator.normal(size=(rows, 3)) + sign * 2 * y[:, None]
    np.savez(path, X=X, y=np.array(["a", "b"])[y])
    return path


def run(*words, limit=None):
    """The command in a process of its own, which may write files of at most `limit` bytes."""

    def prepare():
        if limit is not None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    return subprocess.run(
        [sys.executable, "-m", "icda.cli.main", *words], capture_output=True, text=True, preexec_fn=prepare, timeout=300
    )


def stop_at(patch, last):
    """Raise KeyboardInterrupt at an operation on files, as Ctrl-C would; returns how many there were."""
    done = 0

    def counted(real):
        def call(*arguments, **named):
            nonlocal done
            done += 1
            if done == last:
                raise KeyboardInterrupt
            return real(*arguments, **named)

        return call

    for name in ("rename", "replace"):
        patch.setattr(Path, name, counted(getattr(Path, name)))
    patch.setattr(os, "fsync", counted(os.fsync))
    return lambda: done


def test_an_interrupted_fit_goes_on_with_the_same_command(icda, monkeypatch):
    command = ("fit", save("f.npz"), "--out", "model")
    interrupted = 0
    for last in range(1, 40, 2):
        with monkeypatch.context() as patch:
            count = stop_at(patch, last)
            first = icda(*command)
        if count() < last:
            break
        interrupted += 1
        assert first.code == 130, first.err
        again = icda(*command)
        if again.code:  # the model was whole: only its last files were still on their way
            assert "is not empty" in again.err
        assert package.load("model").predict(np.full((1, 3), 9.0)).tolist() == ["b"]
        assert not [path.name for path in Path("model").iterdir() if path.name.startswith(".")]
        for path in Path("model").iterdir():
            path.unlink()
    assert interrupted > 5


def test_overwriting_keeps_the_old_model_until_the_new_one_stands(icda):
    icda("fit", save("f.npz")).worked()
    before = {path.name: path.read_bytes() for path in Path("model").iterdir()}
    failed = run("fit", save("g.npz", -1), "--overwrite", limit=700)
    assert failed.returncode == 1
    assert "could not write" in failed.stderr
    assert "Traceback" not in failed.stderr
    assert {path.name: path.read_bytes() for path in Path("model").iterdir()} == before


def test_a_second_fit_into_the_same_folder_is_refused(icda):
    save("f.npz")
    with claimed(Path("model")):
        second = run("fit", "f.npz")
    assert second.returncode == 1
    assert "in use by process" in second.stderr
    icda("fit", "f.npz").worked()


def test_a_full_disk_costs_no_table_of_predictions(icda):
    icda("fit", save("f.npz")).worked()
    icda("predict", "model", "f.npz", "--out", "p.csv").worked()
    before = Path("p.csv").read_bytes()
    failed = run("predict", "model", "f.npz", "--out", "p.csv", limit=1000)
    assert failed.returncode == 1
    assert "could not write p.csv: File too large. The last good one is untouched." in failed.stderr
    assert Path("p.csv").read_bytes() == before
    with Path("p.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 200


def test_a_full_disk_costs_no_audit_and_no_export(icda):
    icda("fit", save("f.npz")).worked()
    icda("audit", "f.npz", "--out", "audit").worked()
    icda("export", "model", "--safetensors", "w.safetensors").worked()
    before = {path: path.read_bytes() for path in (*Path("audit").iterdir(), Path("w.safetensors"))}
    for words in (("audit", "f.npz", "--out", "audit"), ("export", "model", "--safetensors", "w.safetensors")):
        failed = run(*words, limit=60)
        assert failed.returncode == 1, failed.stderr
        assert "could not write" in failed.stderr
        assert "Traceback" not in failed.stderr
    assert {path: path.read_bytes() for path in (*Path("audit").iterdir(), Path("w.safetensors"))} == before


@pytest.mark.parametrize("name", ["audit.csv", "audit.json", "audit.html"])
def test_outputs_of_an_audit_are_not_written_through_links(icda, name):
    Path("victim").write_text("mine")
    Path("audit").mkdir()
    (Path("audit") / name).symlink_to(Path("victim").absolute())
    icda("audit", save("f.npz"), "--out", "audit").worked()
    assert Path("victim").read_text() == "mine"


def test_links_with_foreseeable_names_are_not_written_through(icda):
    """Names of drafts that an earlier icda used, and the outputs themselves."""
    Path("victim").write_text("mine")
    Path("model").mkdir()
    names = (
        ".p.csv.draft",
        "p.csv.part",
        ".p.csv.part",
        "p.csv",
        "model/.model.json.part",
        "model/.features.npz.draft.part",
    )
    for name in names:
        Path(name).symlink_to(Path("victim").absolute())
    icda("fit", save("f.npz")).worked()
    icda("predict", "model", "f.npz", "--out", "p.csv").worked()
    assert Path("victim").read_text() == "mine"
