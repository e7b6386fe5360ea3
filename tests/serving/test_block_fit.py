"""`icda fit --method auto` over blocks: a sample is audited, all rows are fitted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from icda.auditing.assessment import Assessment
from icda.auditing.block_sample import BlockSample, assess_sample
from icda.auditing.treatment import Treatment
from icda.cli.fit import main
from icda.serving import block_fit
from icda.serving.loading import load


def make_files(folder: Path, with_shortcut: bool, count: int = 4000) -> tuple[list[str], np.ndarray, np.ndarray]:
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


def test_a_shortcut_found_in_the_sample_is_treated_in_all_rows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
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


def test_without_trouble_auto_is_logit_adjustment(tmp_path: Path) -> None:
    words, _, _ = make_files(tmp_path, with_shortcut=False)
    for method in ("la", "auto"):
        assert main([*words, "--method", method, "--on", "blocks", "--out", str(tmp_path / method)]) == 0
    plain, chosen = (load(tmp_path / method) for method in ("la", "auto"))
    np.testing.assert_array_equal(plain.coef, chosen.coef)
    assert chosen.facts["treatment"]["name"] == "logit_adjustment"
    assert "shortcut" in chosen.facts["done"]


def test_trust_is_not_done_over_blocks_and_said_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words, _, _ = make_files(tmp_path, with_shortcut=False)

    def distrustful(*arguments: Any) -> tuple[Assessment, BlockSample]:
        assessment, sample = assess_sample(*arguments)
        return replace(assessment, treatment=Treatment("trust", [])), sample

    monkeypatch.setattr(block_fit, "assess_sample", distrustful)
    assert main([*words, "--method", "auto", "--on", "blocks", "--out", str(tmp_path / "model")]) == 0
    assert "not done" in load(tmp_path / "model").facts["done"]
