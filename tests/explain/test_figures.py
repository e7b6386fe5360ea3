import csv

import pytest
import torch
from PIL import Image

from icda.explain.figures import FIGURES, FigureOptions, TrainedRun, make_figure
from icda.explain.margins import margins, run_pass
from icda.methods import Setup, create_method
from icda.models import create_model

FEW = FigureOptions(samples=4, measured=12, limit=200)


def rows_of(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def runs(coloured):
    """A trained run, and one that is not, under other names."""
    torch.manual_seed(1)
    network = create_model(coloured.task.default_model, 2, coloured.task.input_shape)
    fresh = create_method("cross_entropy", Setup.of(coloured.task, network, 1))
    history = [{"epoch": k, "mapped_variance_own": 1.0 + k} for k in range(3)]
    return [
        TrainedRun("ICDA", coloured.task, coloured.networks, coloured.method, history),
        TrainedRun("CE", coloured.task, [network], fresh, [{"epoch": k} for k in range(3)]),
    ]


@pytest.mark.parametrize("suffix", ["png", "pdf", "svg"])
def test_a_figure_is_written_in_the_form_its_name_asks_for(suffix, runs, tmp_path):
    picture, *tables = make_figure("margins", runs, tmp_path / "new" / f"m.{suffix}", FEW)
    start = picture.read_bytes()[:400]
    assert {"png": b"\x89PNG", "pdf": b"%PDF", "svg": b"<svg"}[suffix] in start
    assert [table.name for table in tables] == ["m.csv", "m_summary.csv"]


def test_the_table_of_margins_holds_the_bars_and_the_summary_the_samples(runs, tmp_path):
    _, bars, summary = make_figure("margins", runs, tmp_path / "m.png", FEW)
    counted = [int(row["samples"]) for row in rows_of(bars) if row["run"] == "CE" and row["quantity"] == "margin"]
    assert sum(counted) == len(runs[0].task.test)
    assert sum(float(row["share"]) for row in rows_of(bars)) == pytest.approx(2 * len(runs), abs=1e-3)
    rows = {(row["run"], row["part"]): row for row in rows_of(summary)}
    assert {part for _, part in rows} == {
        "all",
        *(f"class {name}" for name in runs[0].task.class_names),
        *(f"group {name}" for name in runs[0].task.group_names or ()),
    }
    for run in runs:
        seen = run_pass(run.method, run.networks, run.task.test)
        values = margins(seen.logits, seen.targets)
        assert float(rows[run.label, "all"]["mean"]) == pytest.approx(values.mean().item(), rel=1e-3)
        assert float(rows[run.label, "all"]["share_wrong"]) == pytest.approx(
            (values < 0).float().mean().item(), rel=1e-3
        )
    assert rows["CE", "all"]["mean_with_adjustment"] == ""
    assert rows["ICDA", "all"]["mean_with_adjustment"] != ""


def test_the_table_of_variances_holds_logged_epochs_and_the_trained_network(runs, tmp_path):
    _, table = make_figure("variance", runs, tmp_path / "v.png", FEW)
    rows = rows_of(table)
    logged = [(row["epoch"], row["own"]) for row in rows if row["source"] == "running statistics"]
    assert logged == [("1", "1"), ("2", "2"), ("3", "3")]
    trained = [(row["run"], row["epoch"]) for row in rows if row["source"] == "trained network"]
    assert trained == [("ICDA", "3"), ("CE", "3")]
    assert all(row["unrelated"] == "" for row in rows)  # two classes


def test_heat_is_measured_on_the_same_samples_for_every_run(runs, tmp_path):
    picture, table, summary = make_figure("gradcam", runs, tmp_path / "g.png", FEW)
    rows = rows_of(table)
    of = {label: [row["index"] for row in rows if row["run"] == label] for label in ("ICDA", "CE")}
    assert of["ICDA"] == of["CE"]
    assert len(of["CE"]) == 12
    means = rows_of(summary)
    assert [row["samples"] for row in means if row["run"] == "ICDA"] == ["12", "3", "3", "3", "3"]
    shares = [float(row["centre_share"]) for row in rows if row["run"] == "ICDA" and row["centre_share"]]
    assert float(means[0]["mean_centre_share"]) == pytest.approx(sum(shares) / len(shares), abs=1e-3)
    assert min(Image.open(picture).size) > 300


def test_counterfactuals_of_one_run_are_shown_under_three_augmentations(runs, tmp_path):
    picture, table = make_figure("counterfactual", runs[:1], tmp_path / "c.png", FEW)
    rows = rows_of(table)
    assert [row["augmentation"] for row in rows] == ["isda"] * 4 + ["risda"] * 4 + ["icda"] * 4
    assert len({row["index"] for row in rows}) == 4
    assert all(float(row["feature_error"]) < 1 for row in rows)
    assert picture.stat().st_size > 5000


@pytest.mark.parametrize(
    ("name", "out", "chosen", "message"),
    [
        ("variances", "v.png", [0, 1], "icda has no figure 'variances': did you mean 'variance'"),
        ("margins", "m.png", [0, 2], "must share their data: 'ICDA' is of task 'digits_coloured', 'other'"),
        ("margins", "m.png", [0, 0], "different labels, got ICDA, ICDA"),
        ("counterfactual", "c.png", [0, 1], "one network's feature space, got 2 runs"),
        *((name, out, [0], r"written as \.png, \.pdf or \.svg") for name in FIGURES for out in ("m.gif", "m", "m.csv")),
    ],
)
def test_what_cannot_be_drawn_is_refused_and_nothing_is_written(
    name, out, chosen, message, runs, long_tailed, tmp_path
):
    known = [*runs, TrainedRun("other", *long_tailed)]
    with pytest.raises(ValueError, match=message):
        make_figure(name, [known[number] for number in chosen], tmp_path / out)
    assert list(tmp_path.iterdir()) == []
