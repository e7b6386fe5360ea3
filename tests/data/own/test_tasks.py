import numpy as np
import pytest
import torch

from icda.data import BatchLoader, csv_task, folder_task
from icda.data.embedding.samples import Columns, Reads, Samples
from icda.data.images import UnreadableImageError
from icda.data.own.feature_files import read_features
from icda.data.own.tasks import own_task
from icda.data.sources import FeatureArray
from icda.data.task import Split
from icda.errors import InputError

COLOURS = {"cat": (200, 0, 0), "dog": (0, 0, 200)}


def _fill(folder, write, each):
    for name, colour in COLOURS.items():
        for k in range(each):
            write(folder / name / f"{k}.png", (10 + k, 12), colour)


def test_train_val_and_test_folders_become_splits(tmp_path, write_image):
    for split, each in (("train", 4), ("val", 2), ("test", 3), ("metadata", 1)):
        _fill(tmp_path / split, write_image, each)
    task = folder_task(tmp_path, image_size=16)
    assert {name: len(split) for name, split in task.splits().items()} == {
        "train": 8,
        "validation": 4,
        "test": 6,
        "metadata": 2,
    }
    assert (task.class_names, task.input_shape, task.default_model) == (("cat", "dog"), (3, 16, 16), "resnet20")
    assert task.name == tmp_path.name


def test_pictures_keep_the_label_of_their_folder(tmp_path, write_image):
    _fill(tmp_path, write_image, 10)
    task = folder_task(tmp_path, image_size=16)
    for batch in BatchLoader(task.train, 4, seed=0, shuffle=True, augment=True).epoch(0):
        redder = batch.inputs[:, 0].mean((1, 2)) > batch.inputs[:, 2].mean((1, 2))
        assert torch.equal(redder.long(), 1 - batch.targets)


def test_class_folders_alone_are_split_and_the_description_says_so(tmp_path, write_image):
    _fill(tmp_path, write_image, 10)
    task = folder_task(tmp_path, seed=4)
    assert {name: len(split) for name, split in task.splits().items()} == {"train": 14, "validation": 2, "test": 4}
    assert "data seed 4 took 20% as test (4) and 10% as validation (2)" in task.description
    assert folder_task(tmp_path, seed=4).data_hash == task.data_hash
    assert folder_task(tmp_path, seed=5).data_hash != task.data_hash


def test_other_files_and_hidden_ones_are_passed_over(tmp_path, write_image):
    _fill(tmp_path, write_image, 5)
    (tmp_path / "cat" / "notes.txt").write_text("no picture")
    (tmp_path / "cat" / "._0.png").write_bytes(b"left by a Mac")
    write_image(tmp_path / ".cache" / "x.png")
    write_image(tmp_path / "dog" / "more" / "UPPER.PNG")
    task = folder_task(tmp_path)
    assert sum(len(split) for split in task.splits().values()) == 11
    assert task.class_names == ("cat", "dog")


@pytest.mark.parametrize(
    ("folders", "message"),
    [(["train", "tset"], "tset stands beside train but is no split"), (["test"], "no train folder")],
)
def test_splits_that_cannot_be_are_refused(folders, message, tmp_path, write_image):
    for name in folders:
        _fill(tmp_path / name, write_image, 3)
    with pytest.raises(ValueError, match=message):
        folder_task(tmp_path)


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere is not there\. .* a folder: <folder>/train/<class>"):
        folder_task(tmp_path / "nowhere")


def test_unreadable_images_are_all_named_or_left_out(tmp_path, write_image):
    _fill(tmp_path, write_image, 10)
    for name in ("cat/3.png", "dog/7.png"):
        (tmp_path / name).write_bytes(b"broken")
    split = folder_task(tmp_path, image_size=8).train
    everything = Split(split.source, torch.arange(20), torch.zeros(20, dtype=torch.long))
    message = r"(?s)2 file\(s\) cannot be read.*3\.png.*7\.png.*--skip-unreadable"
    with pytest.raises(UnreadableImageError, match=message):
        everything.batch(torch.arange(20))
    with pytest.warns(UserWarning, match=r"2 unreadable files were left out: 3\.png, 7\.png"):
        task = folder_task(tmp_path, image_size=8, skip_unreadable=True)
    assert sum(len(split) for split in task.splits().values()) == 18
    assert task.description.endswith("2 unreadable files were left out: 3.png, 7.png.")
    task.train.batch(torch.arange(len(task.train)))


def _task(labels, splits, groups=None, seed=0):
    rows = range(len(labels))
    known = {"labels": labels, "groups": groups, "splits": splits}
    arrays = {name: np.array(values) for name, values in known.items() if values is not None}
    samples = Samples(Reads("features"), rows, **arrays)
    return own_task("mine", FeatureArray(torch.zeros(len(labels), 2)), samples, seed, input_shape=(2,), model="linear")


def _sizes(task):
    return {name: len(split) for name, split in task.splits().items()}


def test_a_missing_split_is_cut_from_train_and_the_others_stay():
    task = _task(["a", "b"] * 50, ["train"] * 80 + ["test"] * 20)
    assert _sizes(task) == {"train": 72, "validation": 8, "test": 20}
    assert task.test.rows.tolist() == list(range(80, 100))
    again, other = (_task(["a", "b"] * 50, ["train"] * 80 + ["test"] * 20, seed=seed) for seed in (0, 1))
    assert again.data_hash == task.data_hash != other.data_hash


def test_rare_groups_get_their_share_of_the_test_split():
    groups = ["common"] * 90 + ["rare"] * 10
    task = _task(["a", "b"] * 50, ["train"] * 100, groups)
    assert task.group_names == ("a, common", "a, rare", "b, common", "b, rare")
    assert torch.bincount(task.test.groups).tolist() == [9, 1, 9, 1]


@pytest.mark.parametrize(
    ("labels", "splits", "message"),
    [
        (["a", "b", "c"], ["train", "train", "test"], r"class 'c' is in test \(1 samples\) but not in train"),
        (["a", "a"], ["train", "test"], "one class only, 'a'"),
        (["a", "b"], ["test", "test"], "no training samples"),
        (["a", "b"], ["train", "train"], "too few samples"),
    ],
)
def test_data_that_cannot_make_a_task_are_refused(labels, splits, message):
    with pytest.raises(ValueError, match=message):
        _task(labels, splits)


def test_a_table_in_the_place_of_a_folder_and_a_folder_in_that_of_a_table_are_refused(tmp_path):
    (tmp_path / "a.csv").write_text("text,label\nx,a\n")
    with pytest.raises(ValueError, match="is a file, expected a folder"):
        folder_task(tmp_path / "a.csv")
    with pytest.raises(ValueError, match="is a folder, expected a"):
        csv_task(tmp_path)


def test_one_number_is_no_features_and_labels_beyond_the_class_names_stay_numbers(tmp_path):
    np.save(tmp_path / "one.npy", np.float64(3))
    np.savez(tmp_path / "one.npz", X=np.float64(3), y=np.arange(2))
    for name in ("one.npy", "one.npz"):
        with pytest.raises(InputError, match=r"shape \(N, A\), got a single one"):
            read_features(tmp_path / name, Columns(unlabelled=True))
    np.savez(tmp_path / "named.npz", X=np.eye(3), y=[0, 1, 7], class_names=["cat", "dog"])
    found = read_features(tmp_path / "named.npz", Columns()).with_class_names()
    assert found.labels.tolist() == [0, 1, 7]
    assert "Labels stay numbers, 0 to 7: the class_names are 2." in found.notes
