"""The comparison with other packages: what is measured, what is a feature, and what happens where one is not installed."""

import zipfile
from dataclasses import replace

import numpy as np
import pytest

from icda_bench.rows import read_table
from icda_bench.studies.features import FeaturePart
from icda_bench.studies.peers import run as bench
from icda_bench.studies.peers.methods import METHODS, group_weights
from icda_bench.studies.peers.sets import GROUP, adult


def part(seed, rows=300):
    generator = np.random.default_rng(seed)
    targets = generator.integers(0, 2, rows)
    attribute = np.where(generator.random(rows) < 0.15, 1 - targets, targets)
    features = generator.normal(size=(rows, 4))
    features[:, 0] += 2 * targets
    features[:, 1] += 4 * attribute
    return FeaturePart(features, targets, {GROUP: attribute})


def test_under_group_weights_every_pair_counts_alike():
    train = part(0)
    masses = np.bincount(train.groups(GROUP), group_weights(train))
    assert masses == pytest.approx(np.full(4, len(train.targets) / 4))


def test_a_package_that_is_missing_is_a_row_that_says_so_and_is_measured_once_it_is_there(tmp_path, monkeypatch):
    monkeypatch.setattr(bench, "SETS", {"blobs": lambda root, seed, cache: (part(seed), part(seed + 10))})
    absent = {"lr": METHODS["lr"], "cleanlab": replace(METHODS["lr"], package="a_package_of_nobody")}
    monkeypatch.setattr(bench, "METHODS", absent)
    options = bench.Arguments(seeds=2, out=tmp_path / "peers.csv")
    bench.run(options)
    bench.run(options)
    rows = read_table(options.out)
    assert [(row["seed"], row["method"], row["note"]) for row in rows] == [
        (seed, method, note) for seed in "01" for method, note in (("lr", ""), ("cleanlab", bench.NOT_INSTALLED))
    ]
    assert "| LogisticRegression | nothing | features | not installed |" in bench.peers_table(rows, "worst_group")
    monkeypatch.setattr(bench, "METHODS", dict.fromkeys(absent, METHODS["lr"]))
    bench.run(options)
    after = read_table(options.out)
    assert [(row["seed"], row["method"], row["note"]) for row in after[4:]] == [
        ("0", "cleanlab", ""),
        ("1", "cleanlab", ""),
    ]
    assert [row["worst_group"] for row in after[4:]] == [row["worst_group"] for row in after if row["method"] == "lr"]


@pytest.mark.parametrize("name", ["lr", "lr_groups", "hgb_groups", "icda", "icda_24", "icda_groups"])
def test_a_method_learns_more_than_chance(name):
    row = bench.measure(0, METHODS[name], part(0), part(1))
    assert row["accuracy"] > 0.7


def test_groups_lift_the_worst_group_of_a_planted_correlation():
    plain, given = (bench.measure(0, METHODS[name], part(0), part(1)) for name in ("lr", "icda_groups"))
    assert given["worst_group"] > plain["worst_group"] + 0.1


@pytest.mark.parametrize("name", ["thresholds", "thresholds_balanced", "reduction", "reduction_balanced"])
def test_fairlearn_is_given_the_groups(name):
    pytest.importorskip("fairlearn")
    row = bench.measure(0, METHODS[name], part(0), part(1))
    assert row["worst_group"] > 0.4


def test_adult_gets_its_words_back_and_its_attribute_is_no_feature(tmp_path):
    generator = np.random.default_rng(0)
    lines = ["age,work_a,work_b,sex_Female,sex_Male,salary_<=50K,salary_>50K"]
    people = [(int(generator.integers(20, 60)), *generator.integers(0, 2, 3)) for _ in range(200)]
    lines += [f"{age},{a},{1 - a},{sex},{1 - sex},{1 - rich},{rich}" for age, a, sex, rich in people]
    (tmp_path / "tabular").mkdir()
    with zipfile.ZipFile(tmp_path / "tabular" / "adult.csv.zip", "w") as archive:
        archive.writestr("adult.csv", "\n".join(lines) + "\n")
    train, test = adult(tmp_path, 0, tmp_path)
    assert (len(train.targets), len(test.targets)) == (140, 60)
    found = np.concatenate([train.features, test.features])
    assert found.shape[1] == 3, "age, work=a and work=b"
    seen = np.column_stack([found[:, :2], np.concatenate([train.attributes[GROUP], test.attributes[GROUP]])])
    seen = np.column_stack([seen, np.concatenate([train.targets, test.targets])]).astype(int)
    assert sorted(map(tuple, seen.tolist())) == sorted(people)
