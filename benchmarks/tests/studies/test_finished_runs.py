"""What finished runs know of groups and of wrong labels: means and AUROCs against loops over samples and pairs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from icda.training import TrainConfig, train
from icda.training.run import load_folder
from icda_bench.options import FinishedRuns
from icda_bench.rows import read_table
from icda_bench.studies.finished_runs import (
    group_strengths_table,
    measure_group_strengths,
    measure_mistakes,
    mistakes_table,
    noise_separation,
    run_mistakes,
    run_strengths,
)

METHODS = ("cross_entropy", "icda", "twin_labels", "meta_icda_signed")
Folder = Callable[..., Path]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """`folder(task, method)`: a finished run, made once."""
    made: dict[tuple[str, str], Path] = {}

    def run(task: str, method: str, epochs: int = 1, **settings: Any) -> Path:
        if (task, method) not in made:
            made[task, method] = tmp_path_factory.mktemp(method)
            where = str(made[task, method])
            train(TrainConfig(task=task, method=method, model="mlp", epochs=epochs, out=where, **settings))
        return made[task, method]

    return run


@pytest.fixture(scope="module")
def coloured(folder):
    return folder("digits_coloured", "icda", epochs=2, attributes="unknown")


@pytest.fixture(scope="module")
def strengths(coloured):
    return measure_group_strengths([coloured])


@pytest.fixture(scope="module")
def noisy(folder):
    return [folder("digits_flip_noise", method, epochs=3) for method in METHODS]


@pytest.fixture(scope="module")
def mistakes(noisy):
    return {row["method"]: row for row in measure_mistakes(noisy)}


def pairs(scores, sought):
    """How often a sought sample has the higher score, over all pairs."""
    gaps = scores[sought][:, None] - scores[~sought][None]
    return float(((gaps > 0).double() + 0.5 * (gaps == 0)).mean())


def test_figures_are_those_of_loops_over_samples(coloured, strengths):
    _, task, (network,), _ = load_folder(coloured)
    split = task.train
    with torch.no_grad():
        output = network.eval()(split.batch(torch.arange(len(split))).inputs)
    cosine = torch.nn.functional.cosine_similarity(output.features, network.head.weight[split.targets], dim=1)
    strength, right = (1 - cosine) / 2, output.logits.argmax(1) == split.targets
    assert [row["group"] for row in strengths] == list(task.group_names)
    for number, row in enumerate(strengths):
        mine = split.groups == number
        (label,) = split.targets[mine].unique()
        fellows = split.targets == label
        assert row["samples"] == int(mine.sum())
        assert row["share_of_class"] == pytest.approx(float(mine.sum() / fellows.sum()), abs=1e-4)
        assert row["train_accuracy"] == pytest.approx(float(right[mine].float().mean()), abs=1e-4)
        assert row["strength"] == pytest.approx(float(strength[mine].mean()), abs=2e-4)
        assert row["auroc"] == pytest.approx(pairs(strength[fellows], mine[fellows]), abs=2e-3)


def test_the_table_gives_the_order_of_smaller_groups_only():
    run = {"task": "birds", "method": "icda"}
    land = {
        "group": "land",
        "samples": "90",
        "share_of_class": 0.9,
        "train_accuracy": 1.0,
        "strength": 0.4,
        "auroc": 0.1,
    }
    water = {"group": "water", "samples": "10", "share_of_class": 0.1, "train_accuracy": 0.5, "strength": 0.6}
    small = [{**run, **water, "auroc": area} for area in (0.8, 0.9)]
    assert group_strengths_table([{**run, **land}, {**run, **land}, *small]).splitlines()[2:] == [
        "| birds | icda | land | 90 | 100.0 ± 0.0 (2) | 0.400 ± 0.000 (2) |  |",
        "| birds | icda | water | 10 | 50.0 ± 0.0 (2) | 0.600 ± 0.000 (2) | 0.850 ± 0.071 (2) |",
    ]


def test_each_method_has_the_figures_that_it_knows(mistakes):
    known = {method: (row["held_out"] is not None, row["strength"] is not None) for method, row in mistakes.items()}
    assert known == {
        "cross_entropy": (False, False),
        "icda": (False, True),
        "twin_labels": (True, False),
        "meta_icda_signed": (False, True),
    }
    assert all(row["loss"] is not None and row["wrong"] == pytest.approx(0.4, abs=0.03) for row in mistakes.values())


def test_held_out_answers_and_losses_are_those_of_loops_over_pairs(noisy, mistakes):
    _, task, networks, method = load_folder(noisy[2])
    wrong = task.train.targets != task.train.clean_targets
    for name, logits in (
        ("held_out", method.evidence.logits),
        ("loss", networks[0].eval()(task.train.batch(torch.arange(len(task.train))).inputs).logits.detach()),
    ):
        unlikely = 1 - logits.double().softmax(1).gather(1, task.train.targets[:, None])[:, 0]
        assert mistakes["twin_labels"][name] == pytest.approx(pairs(unlikely, wrong), abs=2e-3)
    assert mistakes["twin_labels"]["held_out"] > 0.6  # three epochs of twins know more than chance


def test_learned_strengths_are_judged_by_the_share_of_pairs_in_the_right_order(noisy):
    _, task, (network,), method = load_folder(noisy[3])
    split, every, found = task.train, torch.arange(len(task.train)), noise_separation(noisy[3])
    with torch.no_grad():
        logits, features = (output := network.eval()(split.batch(every).inputs)).logits, output.features
        described = method.eval().describe(logits, features, split.targets, network.head_weight, every)
        learned = method.strength_network(described, split.targets)
    wrong = split.targets != split.clean_targets
    losses = torch.nn.functional.cross_entropy(logits, split.targets, reduction="none")
    assert found["low_learned_strength"] == pytest.approx(pairs(-learned, wrong), abs=1e-4)
    assert found["loss"] == pytest.approx(pairs(losses, wrong), abs=1e-4)
    assert found["seed"] == 0


def test_the_commands_write_a_row_for_each_group_and_each_run(coloured, strengths, noisy, mistakes, tmp_path, capsys):
    run_strengths(FinishedRuns((coloured,), out=tmp_path / "strengths.csv"))
    assert [row["auroc"] for row in read_table(tmp_path / "strengths.csv")] == [str(row["auroc"]) for row in strengths]
    run_mistakes(FinishedRuns(tuple(noisy[:1]), tmp_path / "mistakes.csv"))
    (row,) = read_table(tmp_path / "mistakes.csv")
    assert (row["held_out"], float(row["loss"])) == ("", mistakes["cross_entropy"]["loss"])
    assert f"|  |  | {mistakes['cross_entropy']['loss']:.3f} (1) |" in capsys.readouterr().out
    assert "| Twin labels |" in mistakes_table(mistakes.values())


@pytest.mark.parametrize(
    ("ask", "task", "method", "message"),
    [
        (lambda run: measure_group_strengths([run]), "digits_lt", "icda", "digits_lt, which has no groups"),
        (lambda run: measure_mistakes([run]), "digits_lt", "icda", "digits_lt, which does not know its wrong labels"),
        (noise_separation, "digits_lt", "meta_icda", "is not a Meta-ICDA run on a task with known label noise"),
        (noise_separation, "digits_flip_noise", "icda", "is not a Meta-ICDA run on a task with known label noise"),
        (lambda run: run_strengths(FinishedRuns(())), "digits_lt", "icda", "folders of finished runs"),
    ],
)
def test_runs_that_do_not_know_what_is_asked_are_refused(ask, task, method, message, folder):
    with pytest.raises(ValueError, match=message):
        ask(folder(task, method))
