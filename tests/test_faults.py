"""The fault harness of `make faults`, in small: it runs, and it can find what it looks for."""

import csv
import os
import shutil
import subprocess
import sys
from pathlib import Path

from icda.training import TrainConfig, train
from support import load_module

FAULTS = Path(__file__).parents[1] / "tools/faults"


def test_a_few_faults_leave_nothing_behind(tmp_path):
    few = ["--kills", "3", "--disks", "2", "--pairs", "2", "--torchruns", "0", "--damages", "0"]
    few += ["--output-kills", "2", "--output-disks", "2", "--output-pairs", "2"]
    done = subprocess.run(
        [sys.executable, str(FAULTS), *few, "--out", str(tmp_path / "runs"), "--table", str(tmp_path / "faults.csv")],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    with (tmp_path / "faults.csv").open(newline="") as file:
        rows = {row["kind"]: row for row in csv.DictReader(file)}
    assert int(rows["killed"]["faults"]) >= 3
    assert int(rows["outputs killed"]["faults"]) == 2
    assert rows["outputs, two writers"]["mixed"] == rows["outputs, disk full"]["obscure"] == "0"
    assert rows["two writers"]["mixed"] == rows["killed"]["different"] == rows["disk full"]["obscure"] == "0"


def test_two_runs_that_differ_are_found_to(tmp_path):
    harness = load_module(FAULTS / "training.py", "faults_of_training")
    folders = [tmp_path / name for name in ("one", "other", "copy")]
    for seed, folder in enumerate(folders[:2]):
        train(TrainConfig(model="linear", method="ce", epochs=1, seed=seed, out=str(folder)))
    shutil.copytree(folders[0], folders[2])
    assert not harness.differs(folders[0], folders[2])
    assert harness.differs(folders[0], folders[1])
    shutil.copy(folders[1] / "model.pt", folders[2] / "model.pt")
    assert harness.differs(folders[0], folders[2])
    assert not harness.lacks_files(folders[0])
    (folders[0] / "report.html").unlink()
    assert harness.lacks_files(folders[0])
