import json
from pathlib import Path
from typing import Any

import pytest

from icda.cli.explain import main, run_labels


@pytest.fixture
def run(icda: Any) -> str:
    assert icda("train", "--task", "digits_coloured", "--epochs", 2, "--out", "run", "--quiet").code == 0
    return "run"


def test_without_a_figure_explanations_are_written_and_others_kept(run: str) -> None:
    path = Path(run, "explanations.json")
    path.write_text(json.dumps({"split": "test", "audit": {"kept": 1}, "margins": "old"}))
    assert main([run, "--parts", "margins", "tied", "variances"]) == 0
    found = json.loads(path.read_text())
    assert found["audit"] == {"kept": 1}
    assert found["margins"]["mean"] == pytest.approx(found["margins"]["mean"])
    assert len(found["tied"]) == 24
    assert found["variances"]["epochs"] == [0, 1]  # from the history of the run


def test_parts_of_another_split_are_not_mixed(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(run, "explanations.json")
    path.write_text(json.dumps({"split": "test", "gradcam": {}}))
    assert main([run, "--parts", "margins", "--split", "validation"]) == 0
    assert set(json.loads(path.read_text())) == {"split", "margins"}
    assert "was of the test split" in capsys.readouterr().err


def test_figures_of_a_run_are_drawn(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([run, "--figure", "variance", "--out", "figures/v.svg"]) == 0
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
def test_mistakes_are_named_before_anything_is_loaded(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises((ValueError, RuntimeError), match=message):
        main(words)
    assert list(tmp_path.iterdir()) == []


def test_runs_of_one_name_are_told_apart_by_where_they_differ() -> None:
    assert run_labels([Path("a/icda/seed0"), Path("a/icda/seed1")]) == ["seed0", "seed1"]
    assert run_labels([Path("a/b/icda/seed0"), Path("isda/seed1")]) == ["b/icda/seed0", "isda/seed1"]
