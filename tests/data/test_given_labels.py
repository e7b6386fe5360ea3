"""Training labels from a file: every format, both lengths, what is kept, and what is refused."""

from pathlib import Path

import numpy as np
import pytest
import torch

from icda.data import create_task
from icda.data.given_labels import read_labels, relabelled
from icda.errors import InputError
from icda.training import TrainConfig, train
from icda.training.run import load_task

LABELS = np.array([3, 0, 2, 2, 1], dtype=np.int64)


def written(folder, suffix):
    path = folder / f"people{suffix}"
    several = {"clean_label": LABELS * 0, "worse_label": LABELS}
    if suffix == ".txt":
        path.write_text("\n".join(map(str, LABELS)) + "\n")
    elif suffix == ".csv":
        path.write_text("clean_label,worse_label\n" + "".join(f"0,{label}\n" for label in LABELS))
    elif suffix == ".npy":
        np.save(path, LABELS)
    elif suffix == ".npz":
        np.savez(path, **several)
    else:
        torch.save(several, path)  # CIFAR-10N's own file: a dict of numpy arrays
    return str(path) if suffix in (".txt", ".npy") else f"{path}:worse_label"


@pytest.mark.parametrize("suffix", [".txt", ".csv", ".npy", ".npz", ".pt"])
def test_every_format_gives_the_same_labels(suffix, tmp_path):
    assert read_labels(written(tmp_path, suffix)).tolist() == LABELS.tolist()


def test_labels_for_the_whole_set_are_taken_by_the_rows_of_the_task(tmp_path):
    """scikit-learn's 1,797 digits, of which the task trains on about 1,100."""
    task = create_task("digits_lt")
    given = torch.arange(1797) % 10
    np.save(tmp_path / "whole.npy", given.numpy())
    found = relabelled(task, str(tmp_path / "whole.npy"))
    assert torch.equal(found.train.targets, given[task.train.rows])
    assert torch.equal(found.train.clean_targets, task.train.targets)
    assert torch.equal(found.class_counts, torch.bincount(found.train.targets, minlength=10))
    assert found.data_hash != task.data_hash
    for name in ("validation", "test", "metadata"):
        assert torch.equal(getattr(found, name).targets, getattr(task, name).targets)


def test_labels_for_the_training_samples_alone_are_taken_in_their_order(tmp_path):
    task = create_task("digits_flip_noise")
    given = (task.train.targets + 1) % 10
    (tmp_path / "own.txt").write_text(" ".join(map(str, given.tolist())))
    found = relabelled(task, str(tmp_path / "own.txt"))
    assert torch.equal(found.train.targets, given)
    assert torch.equal(found.train.clean_targets, task.train.clean_targets), "what was known to be right stays known"


def test_a_run_trains_on_the_labels_of_the_file_and_logs_how_strengths_see_the_wrong_ones(tmp_path):
    task = create_task("digits_flip_noise")
    np.save(tmp_path / "people.npy", task.train.targets.numpy())
    common = {"method": "meta_icda", "model": "mlp", "epochs": 1, "options": {"lookahead": "head"}}
    config = TrainConfig(task="digits", labels=str(tmp_path / "people.npy"), out=str(tmp_path / "file"), **common)
    assert torch.equal(load_task(config).train.targets, task.train.targets)
    by_file = train(config)
    by_task = train(TrainConfig(task="digits_flip_noise", out=str(tmp_path / "task"), **common))
    assert by_file["metrics"] == by_task["metrics"]
    assert by_file["history"][0]["strength_auroc_wrong"] == by_task["history"][0]["strength_auroc_wrong"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("none.txt", None, "there is no file"),
        ("few.txt", "0 1 2", r"holds 3 labels: expected one per training sample of 'digits'"),
        ("words.txt", "cat dog", "cannot be read as labels"),
        ("table.csv", "a,b\n1,2\n", "name one of them, as table.csv:NAME"),
        ("table.csv:c", "a,b\n1,2\n", "holds nothing of the name 'c'"),
        ("picture.png", "x", "expected a file of type .txt, .csv"),
        ("high.txt", " ".join(["10"] * 1797), "holds the label 10"),
    ],
)
def test_what_cannot_be_labels_is_refused(name, content, message, tmp_path):
    if content is not None:
        (tmp_path / name.split(":")[0]).write_text(content)
    with pytest.raises((InputError, OSError), match=message):
        relabelled(create_task("digits"), str(tmp_path / name))


def test_arrays_that_cannot_be_labels_code_and_a_task_with_groups_are_refused(tmp_path):
    for values in (np.array([0.5, 1.0]), np.zeros((2, 2))):
        np.save(tmp_path / "l.npy", values)
        with pytest.raises(InputError, match="one whole number per sample"):
            read_labels(str(tmp_path / "l.npy"))
    torch.save({"worse_label": Path("anything")}, tmp_path / "trap.pt")
    with pytest.raises((InputError, OSError, ValueError), match="cannot be read as labels"):
        read_labels(f"{tmp_path / 'trap.pt'}:worse_label")
    np.save(tmp_path / "l.npy", np.zeros(1797, dtype=np.int64))
    with pytest.raises(InputError, match="groups"):
        relabelled(create_task("digits_coloured"), str(tmp_path / "l.npy"))
