"""What the learned strengths say of wrong labels, as a number; whether it is a good one is the benchmark's business."""

import pytest
import torch

from icda.data import create_task
from icda_bench.ledger import read_ledger
from icda_bench.rows import read_table
from icda_bench.studies import meta_learning
from icda_bench.studies.finished_runs import noise_separation
from icda_bench.studies.meta_learning import METHODS, TASKS, Arguments


def test_the_command_runs_every_method_on_every_task_and_writes_both_files(tmp_path, monkeypatch):
    monkeypatch.setattr(meta_learning, "TASKS", ("digits_flip_noise",))
    options = Arguments(1, 1, str(tmp_path), jobs=1, ledger=tmp_path / "meta.csv", separation=tmp_path / "apart.csv")
    meta_learning.run(options)
    rows = read_ledger(tmp_path / "meta.csv")
    assert {(row["method"], row["epochs"], row["seed"]) for row in rows} == {(method, "1", "0") for method in METHODS}
    (row,) = read_table(tmp_path / "apart.csv")
    found = noise_separation(tmp_path / "digits_flip_noise/meta_icda/seed0")
    assert {name: float(row[name]) for name in found} == found


@pytest.mark.parametrize("name", TASKS)
def test_every_task_has_metadata_of_every_class(name):
    metadata = create_task(name).metadata
    assert int(torch.bincount(metadata.targets).min()) > 0
