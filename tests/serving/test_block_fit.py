"""`icda fit --method auto` over blocks: a sample is audited, all rows are fitted."""

from dataclasses import replace

import numpy as np
import pytest

from icda.auditing import plan
from icda.auditing.assessment import assess
from icda.auditing.treatment import Treatment
from icda.cli.fit import main
from icda.estimators import robust
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


TREATMENTS = ["logit_adjustment", "shortcut_prior", "trust"]


@pytest.mark.parametrize("on", ["blocks", "ray"])
@pytest.mark.parametrize("name", TREATMENTS)
def test_every_treatment_gives_the_same_head_in_memory_over_blocks_and_on_ray(name, on, tmp_path, monkeypatch, request):
    """One path for all: the sample, what it says of every row, and the optimum."""
    if on == "ray":
        request.getfixturevalue("ray_engine")
    words, features, _ = make_files(tmp_path, with_shortcut=name == "shortcut_prior")

    def assessed(rows):
        found = assess(rows)
        if name == "shortcut_prior":
            assert found.treatment.name == name
            return found
        return replace(found, treatment=Treatment(name, []))

    monkeypatch.setattr(plan, "assess", assessed)
    assert main([*words, "--method", "auto", "--on", on, "--out", str(tmp_path / "model")]) == 0
    model = load(tmp_path / "model")
    assert model.facts["treatment"]["name"] == name
    labels = np.load(tmp_path / "labels.npy")
    wanted = robust.RobustClassifier().fit(features.astype(np.float32), labels)
    assert model.facts["C"] == pytest.approx(wanted.C_, rel=1e-6)
    np.testing.assert_allclose(model.coef, wanted.coef_, atol=2e-3 * np.abs(wanted.coef_).max())
    both = model.predict(features.astype(np.float32)) == wanted.predict(features.astype(np.float32))
    assert both.mean() > 0.999


@pytest.mark.parametrize("on", ["blocks", "ray"])
@pytest.mark.parametrize("made_of_class", [False, True])
def test_given_groups_give_the_same_head_in_memory_over_blocks_and_on_ray(made_of_class, on, tmp_path, request):
    if on == "ray":
        request.getfixturevalue("ray_engine")
    words, features, against = make_files(tmp_path, with_shortcut=True)
    labels = np.load(tmp_path / "labels.npy")
    groups = np.where(against, 1 - labels, labels) + (2 * labels if made_of_class else 0)
    np.save(tmp_path / "groups.npy", groups)
    named = ["--groups", str(tmp_path / "groups.npy"), "--on", on, "--out", str(tmp_path / "model")]
    assert main([*words, *named]) == 0
    model = load(tmp_path / "model")
    wanted = robust.RobustClassifier().fit(features.astype(np.float32), labels, groups=groups)
    assert model.facts["treatment"]["name"] == wanted.treatment_.name
    assert wanted.treatment_.name == ("group_weights" if made_of_class else "group_prior")
    assert model.facts["C"] == pytest.approx(wanted.C_, rel=1e-6)
    np.testing.assert_allclose(model.coef, wanted.coef_, atol=2e-3 * np.abs(wanted.coef_).max())


@pytest.mark.parametrize("method", ["ce", "isda", "risda", "icda"])
def test_a_named_loss_is_the_same_over_blocks(method, tmp_path):
    words, features, _ = make_files(tmp_path, with_shortcut=False, count=1500)
    assert main([*words, "--method", method, "--on", "blocks", "--out", str(tmp_path / "model")]) == 0
    wanted = fit_rows(BlockRows.of_arrays(features.astype(np.float32), np.load(tmp_path / "labels.npy")), method)
    found = load(tmp_path / "model")
    assert "treatment" not in found.facts, "nothing was treated: the method was named"
    np.testing.assert_allclose(found.coef, wanted.coef, atol=5e-3 * np.abs(wanted.coef).max())
