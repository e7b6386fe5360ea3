"""Registries and what installed packages offer: read at the first look-up, imported by name, broken ones apart."""

from pathlib import Path

import pytest
import torch

from icda import plugins
from icda.cli import main as cli
from icda.metrics import METRICS, Metric, Predictions, evaluate_predictions
from icda.metrics.registry import added_metrics
from icda.plugins import PluginError, PluginWarning
from icda.registry import Registry, UnknownNameError
from icda.selection import Selector, get_rule


def install(folder, package, module, content, entries, group):
    """What pip leaves behind: a module, and a dist-info folder with the package's entry points."""
    (folder / f"{module}.py").write_text(content)
    info = folder / f"{package.replace('-', '_')}-1.5.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.5\n")
    lines = [f"{name} = {value}" for name, value in entries.items()]
    (info / "entry_points.txt").write_text("\n".join([f"[{group}]", *lines, ""]))


@pytest.fixture
def site(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(plugins, "_versions", {})  # what is loaded here is forgotten after the test
    return tmp_path


def test_only_the_package_whose_name_is_asked_for_is_imported(site):
    entries = {"red-fruit": "fruit_one:cherry", "yellow": "fruit_one:lemon"}
    install(site, "fruit-one", "fruit_one", "cherry, lemon = 'cherry', 'lemon'", entries, "test.fruit_one")
    install(site, "fruit-two", "fruit_two", "open('imported', 'w')", {"blue": "fruit_two:plum"}, "test.fruit_one")
    registry: Registry[str] = Registry("fruit", group="test.fruit_one")
    registry.register("apple")("apple")
    assert list(registry) == ["apple", "blue", "red-fruit", "yellow"]
    assert registry.owner("blue") == "package fruit-two"
    assert registry.get("Red_Fruit") == "cherry"
    assert registry.owner("red-fruit") == "package fruit-one"
    assert registry.owner("apple") is None
    assert not Path("imported").exists()
    with pytest.raises(UnknownNameError, match="unknown fruit 'yelow': did you mean 'yellow'"):
        registry.get("yelow")


def test_a_broken_package_is_named_with_its_error_each_time_and_harms_no_other(site):
    entries = {"good": "half_good:good", "absent": "half_good:no_such"}
    install(site, "half-good", "half_good", "good = 1", entries, "test.broken")
    install(site, "all-bad", "all_bad", "1 / 0", {"bad": "all_bad:thing"}, "test.broken")
    registry: Registry[int] = Registry("thing", group="test.broken")
    assert list(registry) == ["absent", "bad", "good"]
    for _ in range(2):
        with pytest.raises(
            PluginError, match=r"^thing 'bad' of package all-bad could not be loaded: ZeroDivisionError"
        ):
            registry.get("bad")
    with pytest.raises(PluginError, match=r"thing 'absent' of package half-good could not be loaded: AttributeError"):
        registry.get("absent")
    assert registry.get("good") == 1


def test_a_name_of_ours_stays_ours_and_a_name_of_two_packages_is_refused(site):
    install(site, "one", "module_one", "entry = 1", {"taken": "module_one:entry"}, "test.twice")
    install(site, "two", "module_two", "entry = 2", {"taken": "module_two:entry"}, "test.twice")
    ours: Registry[int] = Registry("number", group="test.twice")
    ours.register("taken")(0)
    with pytest.warns(PluginWarning, match="number 'taken' of package one is left out: icda has one of that name"):
        assert ours.get("taken") == 0
    theirs: Registry[int] = Registry("number", group="test.twice")
    with pytest.raises(
        PluginError, match=r"offered by package (one and package two|two and package one): uninstall one"
    ):
        theirs.get("taken")


def test_an_entry_point_of_the_wrong_kind_or_an_empty_module_is_refused(site):
    install(
        site, "odd", "odd_module", "entry = 'text'", {"text": "odd_module:entry", "module": "odd_module"}, "test.odd"
    )
    registry: Registry[int] = Registry("number", group="test.odd", entry_type=int)
    with pytest.raises(PluginError, match="number 'text' must be an instance of int, got 'text'"):
        registry.get("text")
    with pytest.raises(PluginError, match="module odd_module registers no number of that name"):
        registry.get("module")


def test_a_command_of_a_package_is_listed_and_run_and_a_broken_one_harms_no_other(site, monkeypatch, capsys):
    content = "def main(words):\n    'count the words'\n    return len(words)\n"
    install(site, "counting", "counting", content, {"count": "counting:main"}, "test.commands")
    install(site, "failing", "failing", "1 / 0", {"fail": "failing:main"}, "test.commands")
    monkeypatch.setattr(cli, "COMMANDS", Registry("command", group="test.commands", shapes_results=False))
    assert cli.main(["count", "a", "b"]) == 2
    assert "counting" not in plugins.versions(), "a command shapes no result"
    assert cli.main(["--help"]) == 0
    overview = " ".join(capsys.readouterr().out.split())
    assert "count count the words" in overview
    assert "fail command 'fail' of package failing could not be loaded" in overview
    assert cli.main(["fail"]) == 1
    assert "package failing could not be loaded" in capsys.readouterr().err


def test_bench_says_which_package_brings_it(monkeypatch, capsys):
    monkeypatch.setattr(cli, "COMMANDS", Registry("command", group="test.none"))
    assert cli.main(["bench", "table2"]) == 2
    assert "pip install ./benchmarks" in capsys.readouterr().err


def test_a_metric_that_fails_is_blank_with_one_warning_and_the_other_figures_stay(register_entry):
    logits, targets = torch.randn(20, 3), torch.arange(20) % 3
    before = evaluate_predictions(logits, targets)
    register_entry(METRICS, "failing", Metric("failing", lambda predictions: 1 / 0))
    register_entry(METRICS, "endless", Metric("endless", lambda predictions: float("inf")))
    register_entry(METRICS, "grouped", Metric("grouped", lambda predictions: 1.0, needs_groups=True))
    with pytest.warns(PluginWarning, match="metric 'failing' of icda failed and is left blank: ZeroDivisionError"):
        after = evaluate_predictions(logits, targets)
    assert after == {**before, "failing": None, "endless": None, "grouped": None}
    groups = torch.zeros(20, dtype=torch.long)
    with pytest.warns(PluginWarning):
        assert added_metrics(Predictions(logits, targets, groups))["grouped"] == 1.0


def test_any_metric_can_select_and_lower_can_be_better(register_entry):
    register_entry(
        METRICS, "errors", Metric("errors", lambda predictions: 0.0, higher_is_better=False, needs_groups=True)
    )
    rule = get_rule("Validation-Errors")
    assert (rule.name, rule.metric, rule.needs_groups) == ("validation_errors", "errors", True)
    selector = Selector("validation_errors")
    figures = [{"errors": value, "accuracy": 0.5} for value in (3.0, 1.0, 2.0)]
    assert [selector.update(epoch, found) for epoch, found in enumerate(figures)] == [True, True, False]
    with pytest.raises(UnknownNameError, match="unknown selection rule 'validation_no_such'"):
        get_rule("validation_no_such")


def test_every_scalar_figure_of_ours_is_a_metric_with_a_direction():
    groups = torch.arange(8) % 2
    found = evaluate_predictions(
        torch.randn(8, 2), groups, groups=groups, train_class_counts=[200, 3], train_group_counts=[5, 5]
    )
    scalars = {name for name, value in found.items() if not isinstance(value, list | dict)}
    assert scalars == {name for name in METRICS if METRICS.owner(name) is None}
    assert {"calibration_error", "nll"} == {name for name in scalars if not METRICS.get(name).higher_is_better}
