import shutil

import numpy as np
import pytest
import torch
from PIL import Image

from icda.data import create_task
from icda.data.datasets.benchmark_files import packed_features
from icda.data.datasets.celeba import CLASSES, FEATURES_FILE, FIRST_FILE, FOLDS, GROUPS
from icda.data.registry import DatasetNotFoundError
from support import encode_images

HEADER = ("5_o_Clock_Shadow", "Blond_Hair", "Male", "Young")
# blond, male, partition of eighteen images: every group in every split, train first
PEOPLE = [
    (y, a, part) for part, times in ((0, 2), (1, 1), (2, 1)) for _ in range(times) for y in (0, 1) for a in (0, 1)
]
PEOPLE += [(0, 0, 0), (0, 0, 0)]


def sign(value):
    return "1" if value else "-1"


def write_text(folder, names):
    rows = [f"{n}  -1 {sign(y):>2} {sign(a):>2}  1" for n, (y, a, _) in zip(names, PEOPLE, strict=True)]
    (folder / "list_attr_celeba.txt").write_text("\n".join([str(len(rows)), " ".join(HEADER) + " ", *rows, ""]))
    parts = [f"{name} {part}" for name, (_, _, part) in zip(names, PEOPLE, strict=True)]
    (folder / "list_eval_partition.txt").write_text("\n".join([*parts, ""]))


def write_csv(folder, names):
    rows = [f"{n},-1,{sign(y)},{sign(a)},1" for n, (y, a, _) in zip(names, PEOPLE, strict=True)]
    (folder / "list_attr_celeba.csv").write_text("\n".join(["image_id," + ",".join(HEADER), *rows, ""]))
    parts = [f"{name},{part}" for name, (_, _, part) in zip(names, PEOPLE, strict=True)]
    (folder / "list_eval_partition.csv").write_text("\n".join(["image_id,partition", *reversed(parts), ""]))


def write_celeba(root, layout="celeba", kind="txt", images="img_align_celeba"):
    """A dataset of eighteen 8 x 8 JPEGs whose blond people are bright, in one of the public layouts."""
    folder = root / layout
    (folder / images).mkdir(parents=True)
    names = [f"{number:06d}.jpg" for number in range(1, len(PEOPLE) + 1)]
    random = np.random.default_rng(0)
    for name, (blond, _, _) in zip(names, PEOPLE, strict=True):
        pixels = random.integers(0, 60, (8, 8, 3)) + 180 * blond
        Image.fromarray(pixels.astype(np.uint8)).save(folder / images / name)
    (write_text if kind == "txt" else write_csv)(folder, names)
    return folder


@pytest.mark.parametrize(
    ("layout", "kind", "images"),
    [
        ("celeba", "txt", "img_align_celeba"),
        ("celeba", "csv", "img_align_celeba/img_align_celeba"),
        ("celeba_v1.0", "csv", "img_align_celeba"),
        ("celebA_v1.0", "csv", "img_align_celeba"),
        ("celebA/data", "csv", "img_align_celeba"),
    ],
)
def test_every_layout_gives_the_official_partition_and_its_groups(layout, kind, images, tmp_path):
    write_celeba(tmp_path, layout, kind, images)
    task = create_task("celeba", root=tmp_path)
    for number, split in enumerate((task.train, task.validation, task.test)):
        people = [(y, a) for y, a, part in PEOPLE if part == number]
        assert split.targets.tolist() == [y for y, _ in people]
        assert split.groups.tolist() == [2 * y + a for y, a in people]
    assert (len(task.train), len(task.validation), len(task.test)) == (10, 4, 4)
    assert (task.class_names, task.group_names, task.group_domains().tolist()) == (CLASSES, GROUPS, [0, 1, 0, 1])
    assert task.input_shape == (3, 224, 224)
    assert create_task("celeba", tmp_path, data_seed=1).data_hash == task.data_hash
    assert "non-commercial research" in task.description


def test_the_small_task_has_the_same_people_and_is_augmented(tmp_path):
    write_celeba(tmp_path)
    large, small = (create_task(name, tmp_path, data_seed=seed) for seed, name in enumerate(("celeba", "celeba_64px")))
    assert torch.equal(large.train.targets, small.train.targets)
    positions = torch.arange(10)
    assert small.train.batch(positions).inputs.shape == (10, 3, 64, 64)
    assert large.data_hash != small.data_hash
    for task, augmented in ((large, False), (small, True)):
        plain, drawn = task.train.batch(positions), task.train.batch(positions, torch.Generator().manual_seed(0))
        assert torch.equal(plain.inputs, drawn.inputs) is not augmented


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ("list_eval_partition.txt", "not complete: list_eval_partition.txt is missing.*Hong Kong"),
        ("img_align_celeba", "the folder img_align_celeba with the aligned images is missing.*Hong Kong"),
        ("img_align_celeba/000003.jpg", "1 of 18 images, the first 000003.jpg, missing.*Hong Kong"),
    ],
)
def test_a_missing_file_is_named(missing, message, tmp_path):
    path = write_celeba(tmp_path) / missing
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    with pytest.raises(DatasetNotFoundError, match=message):
        create_task("celeba", root=tmp_path)


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("list_attr_celeba.txt", "Blond_Hair", "Brown_Hair", "lacks Blond_Hair: its second line"),
        ("list_attr_celeba.txt", "18\n", "202599\n", "is cut short: its first line says 202599 images, it has 18"),
        ("list_attr_celeba.txt", "000001.jpg  -1", "000001.jpg", "000001.jpg has 3 attributes, expected 4"),
        ("list_attr_celeba.txt", "000001.jpg  -1 -1", "000001.jpg  -1 7", "Blond_Hair holds '7', expected -1, 0, 1"),
        ("list_eval_partition.txt", "000001.jpg 0", "000001.jpg 3", "line 1: .*, expected an image and one of 0, 1, 2"),
        ("list_eval_partition.txt", "000001.jpg 0\n", "", "no partition for 1 images, the first 000001.jpg"),
    ],
)
def test_a_wrong_file_says_what_is_wrong(file, old, new, message, tmp_path):
    path = write_celeba(tmp_path) / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(ValueError, match=message):
        create_task("celeba", root=tmp_path)


@pytest.fixture
def first(real_data):
    """The five tasks made of the first 10,000 images."""
    if not (real_data / FIRST_FILE).is_file():
        pytest.skip(f"REAL DATA NOT TESTED: no {FIRST_FILE} in {real_data}.")
    return [create_task(f"celeba_10k_fold_{fold}", real_data) for fold in range(1, FOLDS + 1)]


def test_every_image_is_tested_once_over_the_folds_and_not_trained_on_there(first):
    assert torch.cat([task.test.rows for task in first]).sort().values.tolist() == list(range(10_000))
    for task in first:
        parts = torch.cat([split.rows for split in (task.train, task.validation, task.test)])
        assert len(parts) == len(parts.unique()) == 10_000
        for split, share in ((task.train, 0.6), (task.validation, 0.2), (task.test, 0.2)):
            sizes = torch.bincount(split.groups, minlength=4)
            assert torch.allclose(sizes.double(), share * torch.tensor([4412.0, 4136, 1371, 81]).double(), atol=2)
    men = [set(task.test.rows[task.test.groups == 3].tolist()) for task in first]
    assert len(set.union(*men)) == sum(map(len, men)) == 81
    for task, mine in zip(first, men, strict=True):
        assert not mine & set(task.train.rows.tolist())
        assert (task.group_names[3], len(mine) in (16, 17)) == ("blond, male", True)
    # The images are small, augmented, and the same in all folds.
    one, other = first[:2]
    assert one.train.source is other.train.source
    assert one.data_hash != other.data_hash
    positions = torch.arange(8)
    plain, drawn = one.train.batch(positions), one.train.batch(positions, torch.Generator().manual_seed(0))
    assert plain.inputs.shape == (8, 3, 64, 64)
    assert not torch.equal(plain.inputs, drawn.inputs)


def test_features_of_the_first_images_follow_the_same_folds(tmp_path):
    names, random = np.array(["Blond_Hair", "Bald", "Male"]), np.random.default_rng(0)
    attributes = random.integers(0, 2, (60, 3)).astype(np.uint8)
    blob = encode_images(random.integers(0, 256, (60, 64, 64, 3), dtype=np.uint8))
    np.savez(tmp_path / FIRST_FILE, **blob, attributes=attributes, attribute_names=names)
    with pytest.raises(DatasetNotFoundError, match=r"tools/celeba_features\.py"):
        create_task("celeba_10k_features_fold_2", tmp_path)
    np.savez(tmp_path / FEATURES_FILE, features=random.normal(size=(60, 7)).astype(np.float16))
    images, features = (create_task(f"celeba_10k{kind}_fold_2", tmp_path) for kind in ("", "_features"))
    assert features.test.targets.tolist() == attributes[features.test.rows, 0].tolist()
    assert features.test.groups.tolist() == (2 * attributes[:, 0] + attributes[:, 2])[features.test.rows].tolist()
    assert torch.equal(images.train.rows, features.train.rows)
    assert (features.input_kind, features.input_shape) == ("features", (7,))
    np.savez(tmp_path / FEATURES_FILE, features=np.zeros((59, 7)))
    packed_features.cache_clear()
    with pytest.raises(ValueError, match=r"has 59 rows, celeba_10k_64px\.npz 60: make it again"):
        create_task("celeba_10k_features_fold_2", tmp_path)
