"""Tables as people have them: words, truth values, dates and empty cells, from the file to the prediction."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.metrics import balanced_accuracy_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import icda
from icda.data.own.encoding import ColumnPlan, encode_table, plan_columns
from icda.errors import InputError
from icda.serving import predict_data
from icda.serving.contrast import columns_in_words
from icda.serving.export import export_onnx
from icda.serving.fit_data import Asked, read_fit_data
from icda.serving.fitting import fit_model
from icda.serving.frames import fit_frame
from icda.serving.judging import judge_data
from icda.serving.page import render_fit_page
from icda.serving.trial import Trial, judge


def customers(samples=1200, seed=0):
    """A table whose label hangs on words, dates and numbers, some of them missing."""
    generator = np.random.default_rng(seed)
    job = generator.choice(["clerk", "nurse", "pilot", "poet"], samples, p=[0.5, 0.3, 0.197, 0.003])
    married = generator.random(samples) < 0.5
    since = pd.Timestamp("2015-01-01") + pd.to_timedelta(generator.integers(0, 3000, samples), unit="D")
    age = generator.normal(40, 10, samples).round(1)
    score = (job == "pilot") * 2.0 + married * 1.5 + (age - 40) / 10 + (since.year >= 2019) * 1.0
    label = np.where(score + generator.normal(size=samples) > 1.9, "yes", "no")
    frame = pd.DataFrame(
        {"job": job, "married": married, "since": since, "age": age, "code": [f"k{k}" for k in range(samples)]}
    )
    frame.loc[generator.random(samples) < 0.1, "age"] = np.nan
    frame["job"] = frame["job"].where(generator.random(samples) > 0.05, None)
    return frame.assign(bought=label)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_words_dates_and_empty_cells_serve_as_one_hot_by_hand(suffix, tmp_path):
    frame, new = customers(), customers(seed=1)
    path, later = tmp_path / f"data.{suffix}", tmp_path / f"new.{suffix}"
    for table, place in ((frame, path), (new, later)):
        table.to_csv(place, index=False) if suffix == "csv" else table.to_parquet(place)
    data = read_fit_data(path, Asked(labels="bought"), tmp_path / "m")
    fitted = fit_model(data)
    fitted.model.save(tmp_path / "m")
    model = icda.load(tmp_path / "m")
    found = predict_data(model, later).labels
    by_hand = ColumnTransformer(
        [
            ("words", OneHotEncoder(handle_unknown="ignore"), ["job", "married"]),
            ("numbers", SimpleImputer(strategy="median", add_indicator=True), ["age", "days"]),
        ]
    )
    for table in (frame, new):
        table["days"] = (table["since"] - pd.Timestamp("1970-01-01")).dt.days
        table["job"] = table["job"].fillna("")
        table["married"] = table["married"].astype(str)
    expected = make_pipeline(by_hand, icda.RobustClassifier()).fit(frame, frame["bought"]).predict(new)
    scores = [balanced_accuracy_score(new["bought"], labels) for labels in (found, expected)]
    assert scores[0] > scores[1] - 0.005, scores
    assert scores[0] > 0.75
    assert judge_data(tmp_path / "m", str(later)).metrics["balanced_accuracy"] == pytest.approx(scores[0])
    page = render_fit_page(fitted, "model", path.name)
    assert f"new.{suffix}" in page
    assert "one feature for each value: job, married" in page
    assert "too many different words: code" in page
    assert "Rare values pooled: job" in page


def test_a_data_frame_a_csv_and_a_parquet_are_predicted_alike(tmp_path):
    frame = customers(600)
    frame.to_csv(tmp_path / "d.csv", index=False)
    frame.to_parquet(tmp_path / "d.parquet")
    fitted = fit_model(read_fit_data(tmp_path / "d.csv", Asked(labels="bought"), tmp_path / "m"))
    fitted.model.save(tmp_path / "m")
    model = icda.load(tmp_path / "m")
    expected = fitted.model.predict_proba(np.asarray(fitted.data.features))
    for name in ("d.csv", "d.parquet"):
        np.testing.assert_allclose(predict_data(model, tmp_path / name).probabilities, expected, atol=1e-9)
    np.testing.assert_allclose(model.predict_proba(frame), expected, atol=1e-9)
    shuffled = frame.drop(columns="bought").sample(frac=1, axis=1, random_state=0)
    np.testing.assert_allclose(model.predict_proba(shuffled), expected, atol=1e-9)
    kept = json.loads((tmp_path / "m" / "model.json").read_text())["reads"]["table"]
    assert {one["name"]: one["kind"] for one in kept} == {
        "job": "words", "married": "words", "since": "date", "age": "number"
    }  # fmt: skip
    with pytest.raises(InputError, match="lacks the column 'age'"):
        model.predict(frame.drop(columns="age"))


def test_levels_are_those_of_scikit_learn_and_new_ones_are_pooled():
    cells = ["red"] * 30 + ["blue"] * 30 + ["mauve"] * 2 + [""] * 8
    plan, dropped = plan_columns({"colour": cells, "same": ["x"] * 70}, np.ones(70, dtype=bool))
    assert dropped == ["same"]
    assert plan == (ColumnPlan("colour", "words", ("", "blue", "mauve", "red")),)
    many = [cell for cell in cells for _ in range(20)]
    pooled, _ = plan_columns({"colour": [*many, *["puce"] * 3]}, np.ones(len(many) + 3, dtype=bool))
    assert pooled[0].levels == ("", "blue", "mauve", "red")
    assert pooled[0].features[-1] == "colour=(other)"
    encoder = OneHotEncoder(handle_unknown="infrequent_if_exist", min_frequency=10, sparse_output=False)
    encoder.fit(np.array([*many, *["puce"] * 3], dtype=object)[:, None])
    new = ["red", "puce", "never seen", "", "blue"]
    reference = encoder.transform(np.array(new, dtype=object)[:, None])
    assert encode_table({"colour": new}, pooled).tolist() == reference.tolist()
    assert encode_table({"colour": ["never seen"]}, plan).tolist() == [[0, 0, 0, 0]]


def test_levels_and_medians_are_learnt_without_the_test_split(tmp_path):
    frame = customers(400).assign(split=np.where(np.arange(400) < 100, "test", "train"))
    frame.loc[frame["split"] == "test", "age"] += 1000
    frame.loc[0, "job"] = "astronaut"
    frame.to_csv(tmp_path / "d.csv", index=False)
    plan = read_fit_data(tmp_path / "d.csv", Asked(labels="bought"), tmp_path / "m").reads.table
    known = {one.name: one for one in plan}
    assert "astronaut" not in known["job"].levels
    assert known["age"].fill < 60


def test_words_are_refused_by_onnx_in_a_sentence(tmp_path):
    customers(200).to_csv(tmp_path / "d.csv", index=False)
    model = fit_model(read_fit_data(tmp_path / "d.csv", Asked(labels="bought"), tmp_path / "m")).model
    with pytest.raises(InputError, match="which an ONNX graph does not take"):
        export_onnx(model, tmp_path / "m.onnx")


@pytest.mark.parametrize(("name", "option"), [("comment", "--text-column"), ("path", "--image-column")])
def test_texts_or_paths_beside_numbers_are_asked_about(name, option, made, tmp_path):
    X, y = made.numbers(60)
    frame = pd.DataFrame(X, columns=[f"f{k}" for k in range(6)]).assign(label=y)
    frame[name] = [f"some words {k}" for k in range(60)]
    frame.to_csv(tmp_path / "d.csv", index=False)
    with pytest.raises(
        InputError, match=rf"a column '{name}' and 6 columns of numbers .*which is it\? {option} {name}"
    ):
        read_fit_data(tmp_path / "d.csv", Asked(), tmp_path / "m")
    data = read_fit_data(tmp_path / "d.csv", Asked(table=True), tmp_path / "m")
    assert data.features.shape == (60, 6)


def test_a_missing_label_column_is_not_guessed_by_letters_and_the_last_is_named(tmp_path):
    names = ["AGE", *(f"BILL{k}" for k in range(20)), "default.next.month"]
    pd.DataFrame(np.eye(22), columns=names).to_csv(tmp_path / "d.csv", index=False)
    with pytest.raises(InputError, match=r"the last default\.next\.month") as refused:
        read_fit_data(tmp_path / "d.csv", Asked(), tmp_path / "m")
    assert "mean" not in str(refused.value)


def test_a_usual_name_inside_another_word_is_no_hint(tmp_path):
    for column, is_hint in (("workclass", False), ("income_class", True)):
        pd.DataFrame(np.eye(3), columns=["age", column, "salary"]).to_csv(tmp_path / "d.csv", index=False)
        with pytest.raises(InputError, match="no label column") as refused:
            read_fit_data(tmp_path / "d.csv", Asked(), tmp_path / "m")
        assert (f"Did you mean {column!r}" in str(refused.value)) == is_hint


def test_the_label_is_no_group(tmp_path):
    customers(60).to_csv(tmp_path / "d.csv", index=False)
    with pytest.raises(InputError, match="the groups are the labels themselves"):
        read_fit_data(tmp_path / "d.csv", Asked(labels="bought", groups="bought"), tmp_path / "m")
    assert read_fit_data(tmp_path / "d.csv", Asked(labels="bought", groups="job"), tmp_path / "m").groups is not None


def test_a_planted_column_is_named_on_the_first_screen(tmp_path):
    """The shortcut in words: SEX goes with the label in 95 of 100 rows, and stands on the page with its shares."""
    generator = np.random.default_rng(0)
    y = np.arange(1000) % 2
    sex = np.where(generator.random(1000) < 0.95, y, 1 - y)
    frame = pd.DataFrame(generator.normal(size=(1000, 5)), columns=["income", "b", "c", "d", "e"])
    frame["income"] += 1.2 * y
    frame["SEX"] = np.array(["female", "male"])[sex]
    frame.assign(label=np.array(["no", "yes"])[y]).to_csv(tmp_path / "d.csv", index=False)
    fitted = fit_model(read_fit_data(tmp_path / "d.csv", Asked(), tmp_path / "m"))
    page = render_fit_page(fitted, "model", "d.csv")
    first = page[page.index("The result</h2>") : page.index("What was found</h2>")]
    assert "SEX=" in first
    assert "How suspected rows" in first


def test_a_date_that_differs_is_shown_as_a_date(tmp_path):
    frame = customers(200)
    frame["since"] = np.where(np.arange(200) < 100, "2020-02-01", "2021-03-04")
    frame.to_csv(tmp_path / "d.csv", index=False)
    data = read_fit_data(tmp_path / "d.csv", Asked(labels="bought"), tmp_path / "m")
    found = dict(columns_in_words(data, np.arange(100), np.arange(100, 200)))
    assert found["since"] == "earlier (2020-02-01 beside 2021-03-04)"


def test_words_of_texts_are_named_on_the_first_screen(made, tmp_path):
    """Reviews of books are good, of pans bad, but for a few."""
    generator = np.random.default_rng(0)
    good, bad = ("lovely", "superb", "warm"), ("awful", "dull", "sad")
    lines = ["text,label,thing"]
    for row in range(120):
        kind = row % 2
        thing = ("book", "pan")[kind if row >= 16 else 1 - kind]
        lines.append(f"a {generator.choice((good, bad)[kind])} {thing} it is,{('good', 'bad')[kind]},{thing}")
    (tmp_path / "t.csv").write_text("\n".join(lines))
    data = read_fit_data(tmp_path / "t.csv", Asked(groups="thing"), tmp_path / "m")
    page = render_fit_page(fit_model(data), "model", "t.csv")
    first = page[page.index("The result</h2>") : page.index("What was found</h2>")]
    assert "Words that are typical of the worst-classified ones: pan" in first
    assert "Words that are typical of the worst-classified ones: book" in first


def test_groups_too_small_to_judge_do_not_hide_behind_a_large_one(tmp_path):
    y = np.array(["a"] * 50 + ["b"] * 53)
    predicted = np.array(["a"] * 50 + ["b"] * 50 + ["a"] * 3)
    groups = ["a, x"] * 50 + ["b, y"] * 50 + ["b, x"] * 3
    trial = Trial(None, judge(predicted, y, groups), 103, "all")
    assert [line.name for line in trial.lines()][-1] == "Worst suspected group of 5 samples or more"
    share, low, high = trial.after.alike
    assert share == pytest.approx(2 / 3)
    assert low < 0.55 < 0.75 < high


def test_a_data_frame_is_fitted_from_python_as_its_csv_is(tmp_path):
    frame = customers(500).assign(plan=pd.Categorical(["basic", "full"] * 250))
    fitted = fit_frame(frame, "bought", groups="plan")
    frame.to_csv(tmp_path / "d.csv", index=False)
    asked = Asked(labels="bought", groups="plan")
    expected = fit_model(read_fit_data(tmp_path / "d.csv", asked, tmp_path / "m")).model
    np.testing.assert_allclose(fitted.model.predict_proba(frame), expected.predict_proba(frame), atol=1e-6)
    assert {part.name for part in fitted.trial.after.groups} == {"no, basic", "no, full", "yes, basic", "yes, full"}
    fitted.model.save(tmp_path / "saved")
    again = icda.load(tmp_path / "saved")
    assert again.predict(frame).tolist() == fitted.model.predict(frame).tolist()
    with pytest.raises(InputError, match="has no column 'bougth': did you mean 'bought'"):
        fit_frame(frame, "bougth")
