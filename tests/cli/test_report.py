"""`icda report` and `icda explain`."""

import json
from pathlib import Path

import pytest

from icda.cli.explain import main, run_labels


@pytest.fixture
def report(icda):
    """`report("run", "--open")`"""
    return lambda *words: icda("report", *words)


@pytest.fixture
def run(icda):
    icda("train", "--task", "digits_lt", "--method", "icda", "--epochs", 1, "--out", "run").worked()
    return Path("run")


def test_a_trained_run_has_its_explanations_and_its_page(run):
    found = json.loads((run / "explanations.json").read_text())
    assert {"margins", "strengths", "tied"} <= set(found)
    page = (run / "report.html").read_text()
    for name in ("margins", "strengths", "tied"):
        assert f'id="{name}"' in page
    assert found["tied"][0]["picture"] in page


def test_missing_explanations_are_made_once_and_kept(report, run):
    (run / "explanations.json").unlink()
    report(run).worked()
    assert 'id="margins"' not in Path("report.html").read_text()
    quick = report(run, "--explain", "quick")
    assert "Explaining run: margins, strengths, tied" in quick.text
    everything = report(run, "--explain", "all", "--out", "all.html")
    assert "Explaining run: variances, gradcam, counterfactuals" in everything.text
    page = Path("all.html").read_text()
    for name in ("margins", "variances", "gradcam", "counterfactuals"):
        assert f'id="{name}"' in page
    assert "Explaining" not in report(run, "--explain", "all").text


def ledger(path):
    path.write_text(
        "task,method,seed,accuracy,selection\nt,icda,0,0.5,last\nt,icda,1,0.7,last\nt,cross_entropy,0,0.4,last\n"
    )
    return path


def test_a_ledger_becomes_a_comparison(report, tmp_path):
    answer = report(ledger(tmp_path / "demo.csv"), "--explain", "quick").refused()  # it has no model to explain
    assert "icda on t, seed 0 needs its trained model" in answer.err
    assert not Path("report.html").exists()
    answer = report(tmp_path / "demo.csv").worked()
    assert "Report of 3 runs: report.html" in answer.text
    page = Path("report.html").read_text()
    assert 'id="comparison"' in page
    assert "60.00 ± 14.14" in page


def test_the_page_is_opened_on_request(report, tmp_path, monkeypatch):
    opened = []
    monkeypatch.setattr("webbrowser.open", lambda address: bool(opened.append(address)) or True)
    report(ledger(tmp_path / "demo.csv"), "--open").worked()
    assert opened == [Path("report.html").resolve().as_uri()]
    monkeypatch.setattr("webbrowser.open", lambda address: False)
    assert "open report.html yourself" in report(tmp_path / "demo.csv", "--open").refused().err


def test_what_is_no_run_is_refused(report, tmp_path):
    assert "is not there" in report("nowhere").err
    assert report().code != 0
    (tmp_path / "empty").mkdir()
    assert "holds no result.json" in report("empty").err


def test_runs_without_a_result_are_left_out_with_a_note(icda, report, run):
    """As a run leaves its folder that was cut off or that diverged: settings, perhaps a checkpoint, no result."""
    for name in ("cut", "deep/diverged"):
        folder = Path("all") / name
        folder.mkdir(parents=True)
        (folder / "config.yaml").write_text("epochs: 3\n")
    run.rename("all/run")
    answer = report("all").worked()
    assert "Left out: all/cut, which has no result" in answer.out
    assert "Left out: all/deep/diverged" in answer.out
    assert "Report of 1 run" in answer.out
    both = report("all/run", "all/cut").worked()
    assert "Left out: all/cut" in both.out
    alone = report("all/cut").refused()
    assert "all/cut holds no result.json: the run there is not finished, or it diverged." in alone.err


@pytest.fixture
def explained(icda):
    icda("train", "--task", "digits_coloured", "--epochs", 2, "--out", "run", "--quiet").worked()
    return "run"


def test_without_a_figure_explanations_are_written_and_others_kept(explained):
    path = Path(explained, "explanations.json")
    path.write_text(json.dumps({"split": "test", "audit": {"kept": 1}, "margins": "old"}))
    assert main([explained, "--parts", "margins", "tied", "variances"]) == 0
    found = json.loads(path.read_text())
    assert found["audit"] == {"kept": 1}
    assert found["margins"]["mean"] == pytest.approx(found["margins"]["mean"])
    assert len(found["tied"]) == 24
    assert found["variances"]["epochs"] == [0, 1]  # from the history of the run


def test_parts_of_another_split_are_not_mixed(explained, capsys):
    path = Path(explained, "explanations.json")
    path.write_text(json.dumps({"split": "test", "gradcam": {}}))
    assert main([explained, "--parts", "margins", "--split", "validation"]) == 0
    assert set(json.loads(path.read_text())) == {"split", "margins"}
    assert "was of the test split" in capsys.readouterr().err


def test_figures_of_a_run_are_drawn(explained, capsys):
    assert main([explained, "--figure", "variance", "--out", "figures/v.svg"]) == 0
    assert Path("figures/v.svg").is_file()
    assert Path("figures/v.csv").read_text().count("running statistics") == 2
    assert "Written: figures/v.svg" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "--figure", "margins"], "--figure margins needs --out"),
        (["run", "--out", "m.png"], "without --figure"),
        (["run", "--figure", "margins", "--out", "m.gif"], r"written as \.png, \.pdf or \.svg, got 'm\.gif'"),
        (["run", "--figure", "margins", "--out", "m.png", "--parts", "tied"], "--parts belongs to"),
        (["run", "--figure", "gradcam", "--out", "m.png", "--samples", "0"], "must be positive, got 0"),
        (["run", "--figure", "margins", "--out", "m.png"], "holds no trained model"),
        ([], "at least one run"),
    ],
)
def test_mistakes_are_named_before_anything_is_loaded(words, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises((ValueError, RuntimeError), match=message):
        main(words)
    assert list(tmp_path.iterdir()) == []


def test_runs_of_one_name_are_told_apart_by_where_they_differ():
    assert run_labels([Path("a/icda/seed0"), Path("a/icda/seed1")]) == ["seed0", "seed1"]
    assert run_labels([Path("a/b/icda/seed0"), Path("isda/seed1")]) == ["b/icda/seed0", "isda/seed1"]
