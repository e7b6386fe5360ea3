"""bf16 that cannot kill the process: the probe, what is remembered of it, and what each way of starting a run does."""

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
def fresh_machine(monkeypatch):
    """A machine that was never probed, whatever the environment of the tests says."""
    bf16._child_dies.cache_clear()
    for name in (ISA, bf16.OLD_ISA, FORCED):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def probe(monkeypatch, tmp_path):
    """`probe(code)`: a kernel that refuses AMX, and a stand-in for the child, which leaves a letter in a file."""

    def put(code: str) -> Path:
        trace = tmp_path / "trace"
        text = f"import os, signal\nopen({str(trace)!r}, 'a').write('x')\n{code}"
        monkeypatch.setattr(bf16, "amx_is_refused", lambda: True)
        monkeypatch.setattr(bf16, "COMMAND", (sys.executable, "-S", "-P", "-c", text))
        return trace

    return put


def killed_by(name):
    return f"os.kill(os.getpid(), signal.{name})"


KILLED_BY_AMX = f"if os.environ.get({ISA!r}) != {WITHOUT_AMX!r}: {killed_by('SIGILL')}"


def test_the_real_probe_agrees_with_the_same_arithmetic_in_a_process_of_its_own():
    """The oracle is the minimal case itself: on a machine where it dies the probe must say so, elsewhere it must not."""
    minimal = "import torch\nwith torch.autocast('cpu', torch.bfloat16): torch.nn.Linear(64, 10)(torch.randn(128, 64))"
    done = subprocess.run([sys.executable, "-P", "-c", minimal], capture_output=True, timeout=120)
    assert done.returncode in (0, -signal.SIGILL)
    assert bf16.dies() == (done.returncode != 0)


@pytest.mark.parametrize(
    "code", [killed_by("SIGILL"), killed_by("SIGSEGV"), killed_by("SIGABRT"), "raise SystemExit(132)"]
)
def test_a_probe_that_dies_of_its_arithmetic_is_a_verdict_asked_for_once(code, probe):
    trace = probe(code)  # the last is how a shell reports it
    assert bf16.dies()
    assert bf16.dies()
    assert trace.read_text() == "x"


def test_where_the_kernel_permits_amx_no_child_is_asked(probe, monkeypatch):
    trace = probe(killed_by("SIGILL"))
    monkeypatch.setattr(bf16, "amx_is_refused", lambda: False)
    assert not bf16.dies()
    assert not trace.exists()


def test_the_kernel_is_asked_only_on_a_cpu_that_announces_amx(monkeypatch):
    asked: list[tuple[int, ...]] = []

    class Kernel:
        def __init__(self, _: None) -> None: ...

        def syscall(self, *words: int) -> int:
            asked.append(words)
            return -1

    monkeypatch.setattr(bf16.ctypes, "CDLL", Kernel)
    for flags, refused in (("flags : sse avx2", False), ("flags : avx2 amx_bf16 amx_tile", True)):
        monkeypatch.setattr(bf16.Path, "read_text", lambda _, flags=flags: flags)
        assert bf16.amx_is_refused() is refused
    assert len(asked) == 1


@pytest.mark.parametrize(
    "code", [killed_by("SIGKILL"), killed_by("SIGTERM"), "raise SystemExit(1)", "import no_such_module"]
)
def test_an_end_that_says_nothing_about_the_cpu_is_no_verdict(code, probe):
    probe(code)
    assert not bf16.dies()


def test_before_torch_is_loaded_amx_is_given_up_only_where_it_kills(probe):
    probe("")
    assert not bf16.avoid_amx()
    assert ISA not in os.environ
    probe(KILLED_BY_AMX)
    assert bf16.avoid_amx()
    assert os.environ[ISA] == WITHOUT_AMX
    assert not bf16.avoid_amx()  # nothing left to do


@pytest.mark.parametrize(
    ("name", "isa", "asked"),
    [(ISA, "AVX2", False), (bf16.OLD_ISA, "AVX2", False), (ISA, WITHOUT_AMX, False), (ISA, "AVX512_CORE_AMX", True)],
)
def test_who_has_given_amx_up_is_not_asked_and_who_asks_for_it_is(name, isa, asked, probe, monkeypatch):
    trace = probe(killed_by("SIGILL"))
    monkeypatch.setenv(name, isa)
    assert bf16.avoid_amx() is asked
    assert os.environ[name] == (WITHOUT_AMX if asked else isa)
    assert trace.exists() is asked


def test_a_forced_answer_asks_no_child(probe, monkeypatch):
    trace = probe("")
    for forced, answer in {"dies": True, "survives": False}.items():
        monkeypatch.setenv(FORCED, forced)
        assert bf16.dies() is answer
    monkeypatch.setenv(FORCED, "yes")
    with pytest.raises(ValueError, match=f"{FORCED} .* got 'yes'"):
        bf16.dies()
    assert not trace.exists()


# Python, where torch is loaded already


def test_from_python_a_bf16_run_is_refused_in_one_sentence_before_it_writes(probe, tmp_path):
    probe(KILLED_BY_AMX)
    config = TrainConfig(precision="bf16", epochs=1, out=str(tmp_path / "run"))
    with pytest.raises(
        Bf16Error, match=f"set {ISA}={WITHOUT_AMX} in the environment before Python loads torch"
    ) as found:
        train(config)
    assert str(found.value).count(".") == 1
    assert not (tmp_path / "run").exists()


def test_a_command_run_where_torch_is_loaded_says_the_same(probe, capsys, tmp_path):
    probe(KILLED_BY_AMX)
    assert main(["train", "--precision", "bf16", "--out", str(tmp_path / "run")]) == 1
    assert capsys.readouterr().err.startswith("icda: bf16 would kill this process")


@pytest.mark.parametrize("precision", ["no", "fp16"])
def test_other_precisions_ask_nobody(precision, probe):
    from icda.training.run import make_accelerator

    trace = probe(killed_by("SIGILL"))
    make_accelerator(precision)
    assert not trace.exists()


def test_a_robust_trainer_of_hugging_face_is_refused_too(probe, tmp_path):
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


def test_a_lightning_trainer_is_refused_too(probe, tmp_path):
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
def test_which_commands_ask_for_bf16(words, asks, tmp_path, monkeypatch):
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


def watched(words, folder, **environment):
    """A command in a process of its own that says what torch found in the environment when it was loaded."""
    script = f"{WATCHED}\nfrom icda.cli.main import main\nsys.exit(main({words!r}))"
    command = [sys.executable, "-c", script]
    given = {**os.environ, **environment}
    return subprocess.run(command, cwd=folder, env=given, capture_output=True, text=True, timeout=300)


SHORT = ["train", "--epochs", "1", "--subset", "64", "--method", "cross_entropy", "--quiet"]


def test_a_bf16_command_trains_without_amx_where_amx_kills(tmp_path):
    done = watched([*SHORT, "--precision", "bf16", "--out", "run"], tmp_path, **{FORCED: "dies"})
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == f"torch finds {WITHOUT_AMX}"
    assert f"icda: AMX instructions are not allowed here, bf16 goes without ({ISA}={WITHOUT_AMX})." in done.stderr
    assert json.loads((tmp_path / "run/result.json").read_text())["config"]["precision"] == "bf16"


def test_a_command_without_bf16_leaves_the_environment_alone(tmp_path):
    done = watched(["list", "selection"], tmp_path, **{FORCED: "dies"})
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "torch finds None"
    assert done.stderr == ""


def test_the_tests_themselves_give_amx_up_before_torch_is_loaded(tmp_path):
    """`make test` on such a machine: tests that compute in bf16 in their own process pass."""
    (tmp_path / "watch_torch.py").write_text(WATCHED)
    tests = ["tests/losses/test_base.py", "tests/losses/test_cosine.py", "tests/methods/test_domain_penalty.py"]
    options = [
        "-p",
        "watch_torch",
        "-q",
        "-s",
        "-p",
        "no:cacheprovider",
        "-k",
        "autocast or bfloat16 or half_precision",
    ]
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
