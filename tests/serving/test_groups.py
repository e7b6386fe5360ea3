"""`icda fit --groups`: groups that the user knows are used, and judged, instead of guessed ones."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import icda
from icda.cli.audit import AuditArguments
from icda.data.embedding.samples import Columns
from icda.data.own.feature_files import read_features
from icda.errors import InputError
from icda.heads.cross_fit import GROUP_SMOOTHING, is_better
from icda.serving.fit_data import Asked, read_fit_data
from icda.serving.fitting import fit_model
from icda.serving.headline import found_in_short, headline, price, warning
from icda.serving.page import render_fit_page
from icda.serving.trial import JudgedPart, Outcome, Trial
from support import shortcut_data


def _planted(samples=400):
    """Two classes and a background that agrees with the class nine times of ten and is easier to read."""
    X, y, background = shortcut_data(samples, 0.9, 6, (1, 1.2), (1, 3.0))
    return X, np.array(["cat", "dog"])[y], np.array(["snow", "grass"])[background]


@pytest.fixture(params=["npz", "csv", "parquet"])
def file(request, made, tmp_path):
    X, y, background = _planted()
    return made.write_features(tmp_path / f"data.{request.param}", X, label=y, group=background)


def test_the_head_is_that_of_the_estimator_given_the_groups(file, tmp_path):
    data = read_fit_data(file, Asked(groups="group"), tmp_path / "model")
    X, y, background = _planted()
    assert data.groups.tolist() == background.tolist()
    assert data.features.shape == (400, 6)  # the group is no feature
    fitted = fit_model(data)
    expected = icda.RobustClassifier(random_state=0).fit(X, y, groups=background)
    np.testing.assert_allclose(fitted.model.predict_proba(X), expected.predict_proba(X), atol=1e-6)
    assert fitted.trial.are_known
    assert fitted.trial.after.worst_group.name in {"cat, snow", "cat, grass", "dog, snow", "dog, grass"}
    assert fitted.trial.after.worst_group.accuracy > fitted.trial.before.worst_group.accuracy + 0.2
    assert {part.name for part in fitted.trial.after.groups} == {"cat, snow", "cat, grass", "dog, snow", "dog, grass"}
    assert sum(part.samples for part in fitted.trial.after.groups) == 400
    facts = fitted.facts()
    assert facts["C"] == pytest.approx(expected.C_)
    assert facts["groups"] == "group"
    assert "settings" not in facts  # the C there was the audit's
    page = render_fit_page(fitted, "model", file.name)
    assert "Worst group" in page
    assert "Worst suspected group" not in page
    assert "Groups are those that were given" in page
    assert "Nothing was done about a shortcut" not in page
    assert "<h2>Treatment" not in page  # the audit's own advice was another


def test_the_test_split_is_judged_by_its_own_groups(tmp_path):
    X, y, background = _planted()
    split = np.where(np.arange(400) < 100, "test", "train")
    np.savez(tmp_path / "data.npz", features=X, labels=y, background=background, split=split)
    fitted = fit_model(read_fit_data(tmp_path / "data.npz", Asked(groups="background"), tmp_path / "model"))
    right = fitted.model.predict(X[:100]) == y[:100]
    shares = {
        f"{label}, {place}": right[(y[:100] == label) & (background[:100] == place)].mean()
        for label in ("cat", "dog")
        for place in ("snow", "grass")
        if ((y[:100] == label) & (background[:100] == place)).sum() >= 5
    }
    assert fitted.trial.after.worst_group.accuracy == pytest.approx(min(shares.values()))


def test_groups_that_hold_one_class_each_are_weights(tmp_path):
    X, y, background = _planted()
    groups = np.char.add(np.char.add(y, "/"), background)
    np.savez(tmp_path / "data.npz", features=X, labels=y, place=groups)
    fitted = fit_model(read_fit_data(tmp_path / "data.npz", Asked(groups="place"), tmp_path / "model"))
    assert fitted.trial.after.worst_group.name in set(groups)


@pytest.mark.parametrize("name", ["data.npz", "data.csv"])
def test_an_unknown_group_column_is_refused_with_the_nearest_name(tmp_path, made, name):
    X, y, background = _planted(20)
    made.write_features(tmp_path / name, X, label=y, background=background)
    with pytest.raises(InputError, match="did you mean 'background'"):
        read_fit_data(tmp_path / name, Asked(groups="backgruond"), tmp_path / "model")


def test_groups_of_another_length_are_refused(tmp_path):
    X, y, background = _planted(20)
    np.savez(tmp_path / "data.npz", features=X, labels=y, place=background[:-1])
    with pytest.raises(InputError, match=r"groups .*one value per row"):
        read_fit_data(tmp_path / "data.npz", Asked(groups="place"), tmp_path / "model")


def test_holes_of_several_columns_are_named_at_once(tmp_path):
    X, y, _ = _planted(20)
    frame = pd.DataFrame(X, columns=[f"f{k}" for k in range(6)]).assign(label=y)
    frame.loc[3, "f1"] = np.nan
    frame.loc[[5, 7], "f4"] = np.nan
    frame.to_csv(tmp_path / "data.csv", index=False)
    with pytest.raises(InputError, match=r"columns .*'f1' in 1 of 20 \(first in line 5: ''\); 'f4' in 2 of 20"):
        read_features(tmp_path / "data.csv", Columns())  # as `icda audit` reads it
    data = read_fit_data(tmp_path / "data.csv", Asked(), tmp_path / "model")
    assert [name for name in data.reads.columns if "missing" in name] == ["f1 is missing", "f4 is missing"]
    assert np.isfinite(data.features).all()
    frame["f2"] = frame["f2"].astype(object)
    frame.loc[4, "f2"] = "about 3"
    frame.to_csv(tmp_path / "data.csv", index=False)
    with pytest.raises(InputError, match="column 'f2' holds 'about 3', expected a number"):
        read_fit_data(tmp_path / "data.csv", Asked(), tmp_path / "model")


def test_a_class_of_one_sample_is_refused_before_anything_is_embedded(tmp_path):
    lines = ["text,label", *(f"a film {k},good" for k in range(5)), "another,bad"]
    (tmp_path / "texts.csv").write_text("\n".join(lines))
    with pytest.raises(InputError, match="at least 2 samples per class, and there is only one of bad"):
        read_fit_data(tmp_path / "texts.csv", Asked(encoder="no_such_encoder"), tmp_path / "model")


def test_rows_of_a_file_can_be_chosen_as_in_the_audit(file, tmp_path):
    wanted = Asked(where=("group=snow",))
    if file.suffix == ".parquet":
        with pytest.raises(InputError, match="where"):
            read_fit_data(file, wanted, tmp_path / "model")
        return
    everything, chosen = (read_fit_data(file, asked, tmp_path / "model") for asked in (Asked(groups="group"), wanted))
    assert 0 < len(chosen) == int((everything.groups == "snow").sum()) < len(everything)
    assert chosen.labels.tolist() == everything.labels[everything.groups == "snow"].tolist()


def test_rows_of_a_folder_of_images_cannot(tmp_path):
    with pytest.raises(InputError, match="--where goes with a file of features or numbers"):
        read_fit_data(tmp_path, Asked(where=("a=b",)), tmp_path / "model")


def test_the_audit_hands_over_what_rows_it_was_asked_about_but_for_a_split():
    asked = AuditArguments(Path("x.npz"), labels="y", where=("split=0", "year=2020"))
    assert asked.named() == ["--labels", "y", "--where", "year=2020"]
    assert AuditArguments(Path("x.npz"), where=("split=0",)).named() == []


def test_rows_of_one_numbered_split_are_fitted_as_the_audits_command_says(tmp_path):
    generator = np.random.default_rng(0)
    y = np.arange(120) % 2
    features = (generator.normal(size=(120, 6)) + 2 * y[:, None]).astype(np.float32)
    np.savez(tmp_path / "x.npz", X=features, y=y, split=np.repeat([0, 1, 2], 40))
    for kept in ("0", "1", "2"):
        data = read_fit_data(tmp_path / "x.npz", Asked(features="X", labels="y", where=(f"split={kept}",)), tmp_path)
        assert (len(data.labels), data.test) == (40, None)


def test_groups_known_for_some_rows_of_a_table_stay_unknown_for_the_others(made, tmp_path):
    X, y, background = _planted(80)
    known = [place if row % 3 else None for row, place in enumerate(background)]
    for name, missing in (("data.csv", None), ("data.parquet", None), ("data.npz", "")):
        path = made.write_features(tmp_path / name, X, label=y, place=[place or missing for place in known])
        data = read_fit_data(path, Asked(groups="place"), tmp_path / "model")
        assert data.groups.tolist() == known


def test_a_handful_of_rare_samples_does_not_choose_the_decay():
    """Three samples of a rare group cannot vouch for a weaker decay that serves the frequent ones."""
    strata = torch.tensor([0] * 100 + [1] * 3)
    before, after = torch.ones(103, dtype=torch.bool), torch.ones(103, dtype=torch.bool)
    before[:10] = False
    assert is_better(after, before, strata)
    assert not is_better(after, before, strata, GROUP_SMOOTHING)
    many = torch.tensor([0] * 100 + [1] * 100)
    before, after = torch.ones(200, dtype=torch.bool), torch.ones(200, dtype=torch.bool)
    before[:10] = False
    assert is_better(after, before, many, GROUP_SMOOTHING)


def test_a_test_split_unlike_the_training_samples_is_said_first(tmp_path):
    """Training samples that models had not seen do well, the test split does not: no figure further down may hide it."""
    X, y, _ = _planted(600)
    X[:, 0] += 2.0 * np.where(y == "dog", 1, -1)
    split = np.where(np.arange(600) < 200, "test", "train")
    alike = X.copy()
    X[:200, :2] *= -0.2  # another camera
    found = {}
    for name, features in (("unlike", X), ("alike", alike)):
        np.savez(tmp_path / f"{name}.npz", features=features, labels=y, split=split)
        fitted = fit_model(read_fit_data(tmp_path / f"{name}.npz", Asked(), tmp_path / "model"))
        found[name] = warning(fitted)
        page = render_fit_page(fitted, "model", name)
        assert ("The test split is unlike the training samples" in page) == (found[name] is not None)
    assert found["alike"] is None
    assert found["unlike"] is not None
    assert page.index("The result") > 0


def test_the_page_leads_with_how_it_does_when_the_shortcut_breaks(tmp_path):
    """Groups counted alike, estimated on samples that no model had seen, come near the truth on balanced data."""
    X, y, background = _planted(800)
    np.savez(tmp_path / "data.npz", features=X, labels=y, place=background)
    fitted = fit_model(read_fit_data(tmp_path / "data.npz", Asked(groups="place"), tmp_path / "model"))
    estimated = fitted.trial.after.alike
    new, kind, _ = shortcut_data(4000, 0.5, 6, (1, 1.2), (1, 3.0), seed=1)
    truth = float((fitted.model.predict(new) == np.array(["cat", "dog"])[kind]).mean())
    assert estimated[1] - 0.02 <= truth <= estimated[2] + 0.02
    assert estimated[2] - estimated[1] < 0.2
    said = headline(fitted)
    assert f"{100 * estimated[0]:.1f}" in said
    assert fitted.trial.before.alike[0] < estimated[0]
    assert "The price" in said


def test_figures_of_groups_that_were_read_or_guessed_are_called_estimates(tmp_path):
    """A reader that errs shifts them: of faces, with 24 answers, the page said 12 % in the worst group; it was 42 %."""
    X, y, place = _planted(800)
    some = np.array(place, dtype=object)
    some[60:] = ""
    pages = {}
    for name, groups in (("all", place), ("some", some)):
        table = tmp_path / f"{name}.csv"
        cells = [[*map(str, row), label, group] for row, label, group in zip(X, y, groups, strict=True)]
        table.write_text("\n".join(map(",".join, [[*"abcdef", "label", "place"], *cells])) + "\n")
        fitted = fit_model(read_fit_data(table, Asked(groups="place"), tmp_path / "model"))
        pages[name] = render_fit_page(fitted, "model", name)
        assert fitted.groups_are_read == (name == "some")
        assert ("figures by group are estimates" in found_in_short(fitted)) == (name == "some")
    assert "as far as the groups are right, which were read" in pages["some"]
    assert "as far as the groups are right" not in pages["all"]
    assert "How worst-classified rows (cat, " in pages["all"]
    assert "How suspected rows" not in pages["all"]


def test_what_buys_nothing_is_no_price():
    """As on COMPAS with its leaking columns: the plain model was better with groups counted alike, and on the whole."""

    def outcome(first, second):
        parts = (JudgedPart("cat, land", 100, first), JudgedPart("dog, sea", 100, second))
        return Outcome((first + second) / 2, parts[0], parts[0], 200, parts)

    worse = Trial(outcome(0.9, 0.9), outcome(0.8, 0.8), 200, "all", are_known=True)
    assert "price" not in price(worse)
    assert "plain model (--method ce) does better in both" in price(worse)
    paid = replace(worse, after=replace(outcome(0.8, 0.8), groups=outcome(0.95, 0.95).groups))
    assert price(paid).startswith("The price: on samples as they come")
