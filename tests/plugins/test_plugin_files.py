"""`--plugin FILE.py`: loaded by the command that names it and by its worker processes, by nobody else."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from icda import plugins
from icda.cli.main import main
from icda.methods import METHODS
from icda.plugins import PluginError
from icda.terminal import make_console
from icda.training import TrainConfig, train
from icda.training.grid import run_grid

MINE = '''
from torch.nn import functional as F

from icda.methods import METHODS, Method
from icda.metrics import METRICS, metric


@METHODS.register("half_loss", "half")
class HalfLoss(Method):
    """Half of cross entropy."""

    def __init__(self, setup, *, share: float = 0.5) -> None:
        super().__init__()
        self.share = share

    def loss(self, output, batch, context):
        return self.share * F.cross_entropy(output.logits, batch.targets)


@METRICS.register("top2_accuracy")
@metric("top2_accuracy", label="Top 2", percent=True)
def top2_accuracy(predictions):
    """Share of samples whose class is among the two likeliest."""
    return predictions.logits.topk(2).indices.eq(predictions.targets[:, None]).any(1).double().mean()
'''
SHORT = ["--task", "digits_lt", "--epochs", "1", "--quiet"]
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def icda(capsys, monkeypatch, tmp_path, forget):
    """`icda("train", ...)`: a command in a process that never loaded a plugin, beside a file mine.py."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / "mine.py").write_text(MINE)

    def run(*words: Any) -> tuple[int, str, str]:
        forget()
        capsys.readouterr()
        return main([str(word) for word in words]), *capsys.readouterr()

    return run


def test_a_file_is_listed_trained_with_recorded_and_evaluated_only_when_named_again(icda):
    code, out, _ = icda("list", "methods", "--plugin", "mine.py")
    assert code == 0
    assert "half_loss" in out
    assert "(plugin mine.py)" in " ".join(out.split())

    words = ["train", *SHORT, "--method", "half", "--selection", "validation_top2_accuracy", "--out", "run"]
    assert icda(*words, "--plugin=mine.py")[0] == 0
    result = json.loads(Path("run/result.json").read_text())
    assert result["config"]["plugin"] == ["mine.py"]
    assert result["environment"]["plugins"]["mine.py"].startswith("sha256:")
    assert result["metrics"]["accuracy"] < result["metrics"]["top2_accuracy"] <= 1

    code, _, complaint = icda("eval", "run")
    assert code == 1
    assert "run/model.pt was made with the plugin mine.py" in complaint
    assert "add --plugin mine.py to this command" in complaint
    assert len(complaint.strip().splitlines()) == 1
    code, out, _ = icda("eval", "run", "--json", "--plugin", "mine.py")
    assert json.loads(out)["metrics"] == result["metrics"]
    assert icda(*words, "--resume", "--plugin", "./mine.py")[0] == 0  # another path to it, the same run


def test_a_checkpoint_of_a_stranger_runs_no_code(icda):
    Path("mine.py").write_text(MINE + "\nopen('ran', 'a').write('x')\n")
    assert icda("train", *SHORT, "--method", "half", "--out", "run", "--plugin", "mine.py")[0] == 0
    Path("ran").unlink()
    for words in (["eval", "run"], ["explain", "run"], ["train", "--config", "run/config.yaml"]):
        code, _, complaint = icda(*words)
        assert code == 1
        assert "--plugin mine.py" in complaint
    assert icda("report", "run")[0] == 0  # a page of what was measured needs no code
    assert not Path("ran").exists()


def test_a_configuration_file_names_no_code_unasked(icda):
    settings = {"method": "half_loss", "epochs": 1, "plugin": ["elsewhere/mine.py"], "out": "run"}
    Path("config.yaml").write_text(yaml.safe_dump(settings))
    code, _, complaint = icda("train", "--config", "config.yaml", "--quiet")
    assert code == 1
    assert "config.yaml names the plugin elsewhere/mine.py" in complaint
    assert icda("train", "--config", "config.yaml", "--quiet", "--plugin", "mine.py")[0] == 0
    assert json.loads(Path("run/result.json").read_text())["config"]["plugin"] == ["mine.py"]


def test_a_run_that_needs_no_plugin_is_written_as_before_and_has_the_same_hash(icda):
    assert icda("train", *SHORT, "--method", "ce", "--out", "without")[0] == 0
    result = json.loads(Path("without/result.json").read_text())
    assert "plugin" not in result["config"]
    assert "plugins" not in result["environment"]
    assert TrainConfig(plugin=("mine.py",)).hash() == TrainConfig().hash()


def test_worker_processes_load_the_plugin_of_their_cell(icda, forget):
    config = TrainConfig(method="half_loss", epochs=1, plugin=("mine.py",), out="cell")
    (result,) = run_grid(config, ["digits_lt"], ["half_loss"], 1, make_console(), jobs=2)
    assert result["metrics"]["top2_accuracy"] > 0
    assert "half_loss" not in METHODS  # this process did not


COMMAND = '''
from icda.cli import COMMANDS


@COMMANDS.register("greet")
def greet(arguments):
    """say hello"""
    print("hello,", *arguments)
    return 3
'''


def test_a_plugin_may_bring_a_command(icda):
    Path("greeting.py").write_text(COMMAND)
    assert icda("greet", "world", "--plugin", "greeting.py") == (3, "hello, world\n", "")
    assert icda("greet", "world")[0] == 2


def test_a_tuned_method_may_come_from_a_plugin(icda):
    pytest.importorskip("optuna")
    words = ["tune", "--task", "digits_lt", "--epochs", "1", "--method", "half_loss", "--space", "share=0.5,1.0"]
    assert icda(*words, "--trials", "1", "--metric", "top2_accuracy", "--out", "tuned", "--plugin", "mine.py")[0] == 0
    assert yaml.safe_load(Path("tuned/best.yaml").read_text())["plugin"] == ["mine.py"]


def test_train_called_from_python_loads_what_its_configuration_names(icda):
    config = TrainConfig(method="half_loss", epochs=1, plugin=("mine.py",), out="run")
    assert train(config)["method"] == "half_loss"


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("1 / 0", "plugin broken.py could not be loaded: ZeroDivisionError: division by zero (broken.py, line 1)."),
        ("import no_such_thing", "plugin broken.py could not be loaded: ModuleNotFoundError"),
        ("def (", "plugin broken.py could not be loaded: SyntaxError"),
        ("raise SystemExit(3)", "plugin broken.py could not be loaded: SystemExit: 3"),
        (
            "from icda.losses import LOSSES, AdjustedLoss\nLOSSES.register('icda')(type('Mine', (AdjustedLoss,), {}))",
            "plugin broken.py could not be loaded: loss 'icda' is registered twice",
        ),
        (
            "from icda.methods import METHODS, Method\nMETHODS.register('icda')(type('Mine', (Method,), {}))",
            "method 'icda' is registered twice: icda has a loss of that name",
        ),
        (
            "from icda.selection import SELECTION_RULES\nSELECTION_RULES.register('x')(3)",
            "selection rule 'x' must be an instance of SelectionRule, got 3",
        ),
    ],
)
def test_a_broken_file_is_one_sentence(content, sentence, icda):
    Path("broken.py").write_text(content)
    code, _, complaint = icda("list", "tasks", "--plugin", "broken.py")
    assert code == 1
    assert sentence in complaint
    assert len(complaint.strip().splitlines()) == 1


def test_what_is_no_file_and_no_module_is_said(icda):
    assert "--plugin absent.py: there is no such file" in icda("list", "--plugin", "absent.py")[2]
    assert "there is no module 'no_such.module'" in icda("list", "--plugin", "no_such.module")[2]
    assert "--plugin needs a Python file or a module after it" in icda("list", "--plugin")[2]
    assert "--plugin needs a Python file or a module after it" in icda("list", "--plugin", "--quiet")[2]


def test_a_module_is_loaded_by_its_name_and_a_file_once(icda, monkeypatch, tmp_path, forget):
    (tmp_path / "icda_named_module.py").write_text("__version__ = '7'\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "counting.py").write_text("open('count', 'a').write('x')\n")
    plugins.load(["icda_named_module", "counting.py", "./counting.py"])
    assert plugins.given() == ("icda_named_module", "counting.py", "./counting.py")
    assert plugins.versions()["icda_named_module"] == "7"
    assert Path("count").read_text() == "x"
    with pytest.raises(PluginError, match=r"config.yaml names the plugin other.py"):
        plugins.check_given(["counting.py", "other.py"], "config.yaml")
