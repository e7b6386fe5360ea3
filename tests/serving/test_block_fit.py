"""`icda fit --method auto` over blocks: a sample is audited, all rows are fitted."""

from dataclasses import replace

import numpy as np
import pytest

from icda.auditing import plan
from icda.auditing.assessment import assess
from icda.auditing.treatment import Treatment
from icda.cli.fit import main
from icda.estimators.robust import RobustClassifier
from icda.heads.blocks import BlockRows
from icda.serving.head_fit import fit_rows
from icda.serving.model import load


def make_files(folder, with_shortcut, count=4000):
    """Two classes that are told apart by one direction, and by a clearer one that is right for 95 of 100 rows."""
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 2, count)
    features = generator.normal(size=(count, 12))
    features[:, 0] += 3.0 * labels
    against = generator.random(count) < 0.05
    if with_shortcut:
        features[:, 1] = 8.0 * np.where(against, 1 - labels, labels) + 0.5 * generator.normal(size=count)
    np.save(folder / "features.npy", features.astype(np.float32))
    np.save(folder / "labels.npy", labels)
    return [str(folder / "features.npy"), "--labels", str(folder / "labels.npy")], features, against


def test_a_shortcut_found_in_the_sample_is_treated_in_all_rows(tmp_path, capsys):
    words, features, against = make_files(tmp_path, with_shortcut=True)
    labels = np.load(tmp_path / "labels.npy")
    worst = {}
    for method in ("la", "auto"):
        assert main([*words, "--method", method, "--on", "blocks", "--out", str(tmp_path / method)]) == 0
        right = load(tmp_path / method).predict(features.astype(np.float32)) == labels
        worst[method] = right[against].mean()
    assert "Found: shortcut" in capsys.readouterr().out
    model = load(tmp_path / "auto")
    assert model.facts["treatment"]["name"] == "shortcut_prior"
    assert worst["auto"] > worst["la"] + 0.05
    points_to = model.answer_features(features.astype(np.float32)).points_to
    assert ((points_to != labels) == against).mean() > 0.97


PLANS = ["logit_adjustment", "shortcut_prior", "trust", "group_prior", "group_weights", "some_groups"]


@pytest.mark.parametrize("on", ["blocks", "ray"])
@pytest.mark.parametrize("name", PLANS)
def test_every_plan_gives_the_same_head_in_memory_over_blocks_and_on_ray(name, on, tmp_path, monkeypatch, request):
    """One way for all: the sample, what it or the groups say of every row, and the optimum."""
    if on == "ray":
        request.getfixturevalue("ray_engine")
    given = "group" in name
    words, features, against = make_files(tmp_path, with_shortcut=given or name == "shortcut_prior")
    labels, groups = np.load(tmp_path / "labels.npy"), None

    def assessed(rows):
        found = assess(rows)
        return found if name == "shortcut_prior" else replace(found, treatment=Treatment(name, []))

    monkeypatch.setattr(plan, "assess", assessed)
    if given:
        groups = np.where(against, 1.0 - labels, labels) + (2 * labels if name == "group_weights" else 0)
        if name == "some_groups":
            groups[np.setdiff1d(np.arange(len(labels)), [*np.flatnonzero(against)[:30], *range(60)])] = np.nan
        np.save(tmp_path / "groups.npy", groups)
        words += ["--groups", str(tmp_path / "groups.npy")]
    assert main([*words, "--method", "auto", "--on", on, "--out", str(tmp_path / "model")]) == 0
    model, wanted = load(tmp_path / "model"), RobustClassifier().fit(features.astype(np.float32), labels, groups=groups)
    assert model.facts["treatment"]["name"] == wanted.treatment_.name == name.replace("some_groups", "group_prior")
    assert model.facts["C"] == pytest.approx(wanted.C_, rel=1e-6)
    np.testing.assert_allclose(model.coef, wanted.coef_, atol=2e-3 * np.abs(wanted.coef_).max())
    assert (model.predict(features.astype(np.float32)) == wanted.predict(features.astype(np.float32))).mean() > 0.999
    if name == "some_groups":
        points_to = model.answer_features(features.astype(np.float32)).points_to
        assert ((points_to != labels) == against).mean() > 0.97


@pytest.mark.parametrize("method", ["ce", "isda", "risda", "icda"])
def test_a_named_loss_is_the_same_over_blocks(method, tmp_path):
    words, features, _ = make_files(tmp_path, with_shortcut=False, count=1500)
    assert main([*words, "--method", method, "--on", "blocks", "--out", str(tmp_path / "model")]) == 0
    wanted = fit_rows(BlockRows.of_arrays(features.astype(np.float32), np.load(tmp_path / "labels.npy")), method)
    found = load(tmp_path / "model")
    assert "treatment" not in found.facts, "nothing was treated: the method was named"
    np.testing.assert_allclose(found.coef, wanted.coef, atol=5e-3 * np.abs(wanted.coef).max())
