"""Tiny ImageNet: the long-tailed task, the clusters that the package carries, and the GLT protocols on them."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from icda.data import create_task
from icda.data.bias.generalised_tail import shares
from icda.data.datasets import tiny_imagenet
from icda.data.datasets.tiny_imagenet import FILE, locate_file, read_clusters, read_stored
from support import encode_images, load_module, write_embedded

TOOL = load_module(Path(__file__).parents[3] / "tools/tiny_imagenet_clusters.py", "tiny_imagenet_clusters")

IMAGES = 40  # of two classes


@pytest.fixture
def real_root(real_data):
    if not (real_data / FILE).is_file():
        pytest.skip(f"REAL DATA NOT TESTED: {FILE} is not there.")
    return real_data


def test_images_are_decoded_into_the_splits_the_file_says(tmp_path):
    """A file of the same layout: 100 classes, one to three training images each, 12 held out; lossless, so comparable."""
    labels = np.concatenate([np.repeat(np.arange(100), 1 + np.arange(100) % 3), np.repeat(np.arange(100), 12)])
    split = np.where(np.arange(len(labels)) < len(labels) - 1200, 0, 2)
    images = np.random.default_rng(0).integers(0, 256, (len(labels), 32, 32, 3), dtype=np.uint8)
    known = {"y": labels.astype(np.uint8), "split": split.astype(np.uint8)}
    names = np.array([f"n{number:08d}" for number in range(100)])
    np.savez(tmp_path / FILE, **encode_images(images), **known, wnids=names)
    task = create_task("tiny_imagenet_lt", tmp_path)
    assert (task.num_classes, task.class_names[7]) == (100, "n00000007")
    assert task.class_counts.tolist() == [1 + c % 3 for c in range(100)]
    assert torch.bincount(task.metadata.targets).tolist() == [10] * 100
    assert torch.bincount(task.test.targets).tolist() == [2] * 100
    taken = torch.cat([task.train.rows, task.metadata.rows, task.test.rows])
    assert sorted(taken.tolist()) == list(range(len(images)))
    first = task.train.batch(torch.tensor([5])).inputs[0]
    mean, std = torch.tensor([0.465, 0.448, 0.404]), torch.tensor([0.255, 0.241, 0.255])
    expected = (torch.from_numpy(images[5]).double() / 255 - mean) / std
    assert torch.allclose(first.double(), expected.permute(2, 0, 1), atol=1e-5)


def test_the_real_file_is_long_tailed_100_to_1(real_root):
    task = create_task("tiny_imagenet_lt", real_root)
    counts = task.class_counts.sort().values
    assert (len(task.train), int(counts[0]), int(counts[-1])) == (10_847, 5, 500)
    assert torch.bincount(task.test.targets).tolist() == [40] * 100
    some = task.train.batch(torch.arange(0, 10_847, 20)).inputs
    assert some.mean((0, 2, 3)).tolist() == pytest.approx([0, 0, 0], abs=0.05)
    assert some.std((0, 2, 3)).tolist() == pytest.approx([1, 1, 1], abs=0.05)


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A small file of the layout, lossless, named by ICDA_DATA."""
    pixels = np.random.default_rng(0).integers(0, 256, (IMAGES, 32, 32, 3), dtype=np.uint8)
    known = {"y": (np.arange(IMAGES) % 2).astype(np.uint8), "split": np.zeros(IMAGES, dtype=np.uint8)}
    np.savez(tmp_path / FILE, **encode_images(pixels), **known, wnids=np.array(["n0", "n1"]))
    monkeypatch.setenv("ICDA_DATA", str(tmp_path))
    return tmp_path


def test_images_are_written_in_the_order_of_the_file(root):
    assert TOOL.main(["images", str(root / "images")]) == 0
    names = sorted(path.name for path in (root / "images").iterdir())
    assert names == [f"{row:05d}.png" for row in range(IMAGES)]
    stored = read_stored(locate_file(root))
    for row, name in enumerate(names):
        assert np.array_equal(np.asarray(Image.open(root / "images" / name)), stored.images[row])


def test_clusters_are_of_directions_and_lengths_do_not_matter(root, monkeypatch):
    # Of each class's 20 images 8, 5, 3, 2, 1, 1 point in one of six directions, with very different lengths.
    directions = np.repeat(np.arange(6), (8, 5, 3, 2, 1, 1)).repeat(2)
    lengths = np.random.default_rng(1).uniform(0.01, 100, (IMAGES, 1))
    features = (np.eye(6)[directions] * lengths).astype(np.float32)
    write_embedded(root / "features.npz", features, [f"{row:05d}.png" for row in range(IMAGES)])
    assert TOOL.main(["clusters", str(root / "features.npz"), str(root / "clusters.npz")]) == 0
    stored = read_stored(locate_file(root))
    monkeypatch.setattr(tiny_imagenet, "CLUSTER_FILE", root / "clusters.npz")
    clusters = read_clusters(stored)
    assert torch.equal(clusters[directions < 4], torch.from_numpy(directions[directions < 4]))
    assert set(clusters[directions >= 4].tolist()) == {4, 5}


def test_features_of_other_images_are_refused(root):
    names = [f"{row:05d}.png" for row in range(IMAGES)][::-1]
    write_embedded(root / "features.npz", np.ones((IMAGES, 3), dtype=np.float32), names)
    with pytest.raises(ValueError, match="expected one for each of 40 images in the order of the file"):
        TOOL.make_clusters(root / "features.npz", root / "clusters.npz")


def test_the_clusters_of_the_package_are_refused_for_another_file(root):
    with pytest.raises(ValueError, match="not of this"):
        read_clusters(read_stored(locate_file(root)))


def test_the_clusters_of_the_package_are_numbered_by_size(real_root):
    stored = read_stored(locate_file(real_root))
    clusters = read_clusters(stored)
    assert clusters.shape == (15_847,)
    counts = torch.zeros(100, 6, dtype=torch.long)
    counts.index_put_((stored.labels, clusters), torch.ones(len(clusters), dtype=torch.long), accumulate=True)
    assert (counts[:, :-1] >= counts[:, 1:]).all()
    assert (counts[:, 5] > 0).all()
    # What the sizes of the tasks were chosen by.
    assert [int(counts[:, pair : pair + 2].sum(1).min()) for pair in (0, 2, 4)] == [25, 13, 3]


def table(split):
    """Samples by class and attribute (100, 3)."""
    counts = np.zeros((100, 3), dtype=int)
    for label, group in zip(split.targets.tolist(), split.groups.tolist(), strict=True):
        counts[label, group] += 1
    return counts


def build(protocol, root, seed=0):
    return create_task(f"tiny_imagenet_{protocol}", root, seed)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_train_glt_falls_from_300_to_5_with_attributes_7_to_2_to_1(real_root, seed):
    task = build("glt", real_root, seed)
    falling = sorted(task.class_counts.tolist(), reverse=True)
    assert (falling[0], falling[-1]) == (300, 5)
    assert 7000 < len(task.train) < 7100
    for row in table(task.train).tolist():
        assert tuple(row) == shares(sum(row))


def test_test_gbl_has_equally_many_of_each_attribute_and_metadata_at_most_two_of_a_cluster(real_root):
    task = build("glt", real_root)
    counts, metadata = table(task.test), table(task.metadata)
    assert (counts == counts[:, :1]).all()
    assert np.bincount(counts[:, 0]).tolist() == [0, 2, 1, 4, 93]
    assert metadata.max() == 4
    assert 8 <= metadata.sum(1).min() <= metadata.sum(1).max() == 12


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_balanced_parts_have_equally_many_of_each_class_and_no_image_is_in_two_splits(real_root, seed):
    tasks = {protocol: build(protocol, real_root, seed) for protocol in ("clt", "glt", "alt")}
    assert (table(tasks["alt"].train) == (7, 2, 1)).all()
    assert (table(tasks["clt"].test) == (14, 4, 2)).all()
    for task in tasks.values():
        rows = torch.cat([split.rows for split in task.splits().values()])
        assert len(rows.unique()) == len(rows)
        assert (task.group_names, task.group_domains().tolist()) == (("common", "middling", "rare"), [0, 1, 2])
        assert (task.num_groups, task.default_model, task.input_shape) == (3, "resnet14", (3, 32, 32))


def test_protocols_share_what_the_benchmark_shares(real_root):
    clt, glt, alt = (build(protocol, real_root) for protocol in ("clt", "glt", "alt"))
    assert torch.equal(clt.train.rows, glt.train.rows)
    assert torch.equal(glt.test.rows, alt.test.rows)
    assert clt.train.source is glt.train.source
    assert len({clt.data_hash, glt.data_hash, alt.data_hash}) == 3
