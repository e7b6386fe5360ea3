"""bf16 that cannot kill the process: the probe, what is remembered of it, and what each way of starting a run does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from icda import bf16
from icda.bf16 import FORCED, ISA, WITHOUT_AMX, Bf16Error
from icda.cli.environment import asks_for_bf16
from icda.cli.main import main
from icda.training import TrainConfig, train

ROOT = Path(__file__).parents[1]

SetProbe = Callable[[str], Path]


@pytest.fixture(autouse=True)
def fresh_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine that was never probed, whatever the environment of the tests says."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in (ISA, bf16.OLD_ISA, FORCED):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def probe(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> SetProbe:
    """`probe(code)`: a stand-in for the probe; each time it runs it leaves a letter in the file that is given back."""

    def put(code: str) -> Path:
        trace = tmp_path / "trace"
        text = f"import os, signal\nopen({str(trace)!r}, 'a').write('x')\n{code}"
        monkeypatch.setattr(bf16, "COMMAND", (sys.executable, "-S", "-P", "-c", text))
        return trace

    return put


def killed_by(name: str) -> str:
    return f"os.kill(os.getpid(), signal.{name})"


KILLED_BY_AMX = f"if os.environ.get({ISA!r}) != {WITHOUT_AMX!r}: {killed_by('SIGILL')}"


def kept() -> list[Path]:
    return sorted(bf16.cache_folder().glob("*"))


def test_the_real_probe_agrees_with_the_same_arithmetic_in_a_process_of_its_own() -> None:
    """The oracle is the minimal case itself: on a machine where it dies the probe must say so, elsewhere it must not."""
    minimal = "import torch\nwith torch.autocast('cpu', torch.bfloat16): torch.nn.Linear(64, 10)(torch.randn(128, 64))"
    done = subprocess.run([sys.executable, "-P", "-c", minimal], capture_output=True, timeout=120)
    assert done.returncode in (0, -signal.SIGILL)
    assert bf16.dies() == (done.returncode != 0)
    assert not bf16.dies(WITHOUT_AMX)


@pytest.mark.parametrize("name", ["SIGILL", "SIGSEGV", "SIGABRT"])
def test_a_probe_that_dies_of_its_arithmetic_is_a_verdict_that_is_kept(name: str, probe: SetProbe) -> None:
    trace = probe(killed_by(name))
    assert bf16.dies()
    bf16._dies.cache_clear()  # as another process would ask
    assert bf16.dies()
    assert trace.read_text() == "x"
    (file,) = kept()
    assert json.loads(file.read_text())["dies"] is True


def test_a_probe_that_survives_is_asked_once_per_machine(probe: SetProbe) -> None:
    trace = probe("")
    for _ in range(2):
        assert not bf16.dies()
        bf16._dies.cache_clear()
    assert trace.read_text() == "x"


def test_an_exit_code_as_a_shell_reports_it_counts_too(probe: SetProbe) -> None:
    probe("raise SystemExit(132)")
    assert bf16.dies()


@pytest.mark.parametrize(
    "code", [killed_by("SIGKILL"), killed_by("SIGTERM"), "raise SystemExit(1)", "import no_such_module"]
)
def test_an_end_that_says_nothing_about_the_cpu_is_no_verdict_and_is_not_kept(code: str, probe: SetProbe) -> None:
    probe(code)
    assert not bf16.dies()
    assert kept() == []


@pytest.mark.parametrize("changed", ["_processor", "release", "version"])
def test_another_cpu_kernel_or_torch_is_asked_anew(
    changed: str, probe: SetProbe, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = probe("")
    bf16.dies()
    bf16._dies.cache_clear()
    owner = {"_processor": bf16, "release": bf16.platform, "version": bf16.metadata}[changed]
    monkeypatch.setattr(owner, changed, lambda *_: "another")
    bf16.dies()
    assert trace.read_text() == "xx"
    assert len(kept()) == 2


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "\x00"])
def test_a_damaged_file_is_asked_for_anew_and_written_again(text: str, probe: SetProbe) -> None:
    probe(killed_by("SIGILL"))
    bf16.dies()
    (file,) = kept()
    file.write_text(text)
    bf16._dies.cache_clear()
    assert bf16.dies()
    assert json.loads(file.read_text())["dies"] is True
    assert kept() == [file]  # nothing temporary stays


def test_a_folder_that_cannot_be_written_costs_one_probe_per_process(probe: SetProbe, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    trace = probe(killed_by("SIGILL"))
    assert bf16.dies()
    assert bf16.dies()
    assert trace.read_text() == "x"


def test_before_torch_is_loaded_amx_is_given_up_only_where_it_kills(probe: SetProbe) -> None:
    probe("")
    assert not bf16.avoid_amx()
    assert ISA not in os.environ
    probe(KILLED_BY_AMX)
    assert bf16.avoid_amx()
    assert os.environ[ISA] == WITHOUT_AMX
    assert not bf16.avoid_amx()  # nothing left to do


def test_what_the_user_set_is_probed_as_it_is(probe: SetProbe, monkeypatch: pytest.MonkeyPatch) -> None:
    probe(f"if 'AMX' in os.environ[{ISA!r}]: {killed_by('SIGILL')}")
    monkeypatch.setenv(ISA, "AVX2")
    assert not bf16.avoid_amx()
    assert os.environ[ISA] == "AVX2"
    monkeypatch.setenv(ISA, "AVX512_CORE_AMX")
    assert bf16.avoid_amx()


def test_the_old_name_of_the_variable_counts_where_the_new_one_is_not_set(
    probe: SetProbe, monkeypatch: pytest.MonkeyPatch
) -> None:
    probe(f"if {ISA!r} not in os.environ: {killed_by('SIGILL')}")
    monkeypatch.setenv(bf16.OLD_ISA, "AVX2")
    assert not bf16.dies()


def test_a_cpu_on_which_nothing_helps_is_told_so(probe: SetProbe) -> None:
    probe(killed_by("SIGILL"))
    for ask in (bf16.avoid_amx, bf16.require_bf16):
        with pytest.raises(Bf16Error, match=f"with {ISA}={WITHOUT_AMX} too: train with precision 'no'"):
            ask()
    assert ISA not in os.environ


def test_a_forced_answer_asks_no_child(probe: SetProbe, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = probe("")
    for forced, answer in {"dies": True, "survives": False}.items():
        monkeypatch.setenv(FORCED, forced)
        assert bf16.dies() is answer
    assert not bf16.dies(WITHOUT_AMX)
    monkeypatch.setenv(FORCED, "yes")
    with pytest.raises(ValueError, match=f"{FORCED} must be 'dies' or 'survives', got 'yes'"):
        bf16.dies()
    assert not trace.exists()


# Python, where torch is loaded already


def test_from_python_a_bf16_run_is_refused_in_one_sentence_before_it_writes(probe: SetProbe, tmp_path: Path) -> None:
    probe(KILLED_BY_AMX)
    config = TrainConfig(precision="bf16", epochs=1, out=str(tmp_path / "run"))
    with pytest.raises(
        Bf16Error, match=f"set {ISA}={WITHOUT_AMX} in the environment before Python loads torch"
    ) as found:
        train(config)
    assert str(found.value).count(".") == 1
    assert not (tmp_path / "run").exists()


def test_a_command_run_where_torch_is_loaded_says_the_same(
    probe: SetProbe, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    probe(KILLED_BY_AMX)
    assert main(["train", "--precision", "bf16", "--out", str(tmp_path / "run")]) == 1
    assert capsys.readouterr().err.startswith("icda: bf16 would kill this process")


@pytest.mark.parametrize("precision", ["no", "fp16"])
def test_other_precisions_ask_nobody(precision: str, probe: SetProbe) -> None:
    from icda.training.run import make_accelerator

    trace = probe(killed_by("SIGILL"))
    make_accelerator(precision)
    assert not trace.exists()


def test_a_robust_trainer_of_hugging_face_is_refused_too(probe: SetProbe, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    from icda.integrations.huggingface import RobustTrainer

    shape = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    settings = transformers.BertConfig(vocab_size=10, num_labels=2, **shape)
    model = transformers.BertForSequenceClassification(settings)
    samples = [{"input_ids": [1, 2], "labels": 0}, {"input_ids": [3, 4], "labels": 1}]
    how = {"output_dir": str(tmp_path), "use_cpu": True, "report_to": []}
    probe(KILLED_BY_AMX)
    RobustTrainer(model, transformers.TrainingArguments(**how), train_dataset=samples)
    with pytest.raises(Bf16Error, match=ISA):
        RobustTrainer(model, transformers.TrainingArguments(bf16=True, **how), train_dataset=samples)


def test_a_lightning_trainer_is_refused_too(probe: SetProbe, tmp_path: Path) -> None:
    lightning = pytest.importorskip("lightning.pytorch")
    from icda.integrations.lightning import RobustCallback

    how = {"accelerator": "cpu", "logger": False, "default_root_dir": tmp_path, "enable_checkpointing": False}
    probe(KILLED_BY_AMX)
    RobustCallback().setup(lightning.Trainer(**how), None, "fit")
    with pytest.raises(Bf16Error, match=ISA):
        RobustCallback().setup(lightning.Trainer(precision="bf16-mixed", **how), None, "fit")


# The command line, before torch is loaded


@pytest.mark.parametrize(
    ("words", "asks"),
    [
        (["train", "--precision", "bf16"], True),
        (["train", "--precision=bf16", "--epochs", "1"], True),
        (["tune", "--space", "lambda0=0.1:1", "precision=no,bf16"], True),
        (["train", "--config", "half.yaml"], True),
        (["train", "--config=half.yaml", "--epochs", "1"], True),
        (["train", "--config", "half.yaml", "--precision", "no"], False),
        (["train", "--config", "plain.yaml"], False),
        (["train", "--config", "plain.yaml", "--precision", "bf16"], True),
        (["train", "--config", "absent.yaml"], False),
        (["train", "--config", "broken.yaml"], False),
        (["train", "--precision", "no"], False),
        (["train", "--precision", "fp16"], False),
        (["train", "--out", "bf16"], False),
        (["train", "--precision"], False),
        (["list"], False),
        ([], False),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_which_commands_ask_for_bf16(
    words: list[str], asks: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("half.yaml").write_text("epochs: 1\nprecision: bf16\n")
    Path("plain.yaml").write_text("epochs: 1\nprecision: 'no'\n")
    Path("broken.yaml").write_text("precision: [bf16\n")
    assert asks_for_bf16(words) is asks


WATCHED = """
import os, sys

class Watch:
    def find_spec(self, name, *_):
        if name == "torch":
            print("torch finds", os.environ.get("ONEDNN_MAX_CPU_ISA"), flush=True)

sys.meta_path.insert(0, Watch())
"""


def watched(words: list[str], folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own that says what torch found in the environment when it was loaded."""
    script = f"{WATCHED}\nfrom icda.cli.main import main\nsys.exit(main({words!r}))"
    command = [sys.executable, "-c", script]
    given = {**os.environ, **environment}
    return subprocess.run(command, cwd=folder, env=given, capture_output=True, text=True, timeout=300)


SHORT = ["train", "--epochs", "1", "--subset", "64", "--method", "cross_entropy", "--quiet"]


def test_a_bf16_command_trains_without_amx_where_amx_kills(tmp_path: Path) -> None:
    done = watched([*SHORT, "--precision", "bf16", "--out", "run"], tmp_path, **{FORCED: "dies"})
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == f"torch finds {WITHOUT_AMX}"
    assert f"icda: AMX instructions are not allowed here, bf16 goes without ({ISA}={WITHOUT_AMX})." in done.stderr
    assert json.loads((tmp_path / "run/result.json").read_text())["config"]["precision"] == "bf16"


def test_a_command_without_bf16_leaves_the_environment_alone(tmp_path: Path) -> None:
    done = watched(["list", "selection"], tmp_path, **{FORCED: "dies"})
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "torch finds None"
    assert done.stderr == ""


def test_the_tests_themselves_give_amx_up_before_torch_is_loaded(tmp_path: Path) -> None:
    """`make test` on such a machine: tests that compute in bf16 in their own process pass."""
    (tmp_path / "watch_torch.py").write_text(WATCHED)
    tests = ["tests/losses/test_base.py", "tests/losses/test_cosine.py", "tests/methods/test_coral.py"]
    options = ["-p", "watch_torch", "-q", "-s", "-p", "no:cacheprovider", "-k", "autocast or bfloat16"]
    paths = os.pathsep.join([str(tmp_path), str(ROOT / "src")])
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *tests],
        cwd=ROOT,
        env={**os.environ, FORCED: "dies", "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"torch finds {WITHOUT_AMX}" in done.stdout
    assert "torch finds None" not in done.stdout
    assert " passed" in done.stdout
