"""Studies of one file each: their trainings, their tables, and that nothing is run twice."""

from collections.abc import Callable
from typing import Any, get_type_hints

import pytest
import torch

from icda.functional.strength import Strength
from icda.methods.create import method_class, option_names
from icda.training import TrainConfig, train
from icda.training.run import load_folder, load_task
from icda_bench.markdown import numbers
from icda_bench.rows import read_table
from icda_bench.studies import finished_runs, noisy_digits, robust_verdicts, stability

RECIPE = {"model": "mlp", "epochs": 2}


def cells_of(table):
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


@pytest.fixture
def run_twice(tmp_path, monkeypatch):
    """`run_twice(study, options)`: the rows of a study, of which a second call runs no training again."""

    def run(study: Callable[[Any], None], **options: Any) -> list[dict[str, str]]:
        arguments = get_type_hints(study)["options"](tmp_path / "rows.csv", **options)
        study(arguments)
        rows = read_table(arguments.out)
        monkeypatch.setattr(noisy_digits, "train", lambda *_, **__: pytest.fail("trained again"))
        study(arguments)
        assert read_table(arguments.out) == rows
        return rows

    return run


def test_the_last_epoch_is_what_a_plain_training_gets_and_the_best_is_no_lower(run_twice, tmp_path, monkeypatch):
    monkeypatch.setattr(noisy_digits, "RECIPES", {"digits_flip_noise": RECIPE})
    rows = run_twice(noisy_digits.run_best_epoch, seeds=1, tasks=("digits_flip_noise",))
    plain = train(TrainConfig(task="digits_flip_noise", out=str(tmp_path / "plain"), method="cross_entropy", **RECIPE))
    assert [row["method"] for row in rows] == ["cross_entropy", "icda"]
    assert float(rows[0]["last"]) == pytest.approx(plain.metrics["accuracy"])
    assert all(best >= last for best, last in zip(numbers(rows, "best"), numbers(rows, "last"), strict=True))


def test_every_class_keeps_as_many_metadata_as_asked_for_and_as_many_labels_are_wrong():
    task = load_task(TrainConfig(task="digits_flip_noise"))
    found = noisy_digits.fewer(task, 5, 0.1, seed=0).metadata
    before = task.metadata.targets[torch.isin(task.metadata.rows, found.rows)]
    assert torch.bincount(before, minlength=10).tolist() == [5] * 10
    truth = {int(row): int(label) for row, label in zip(task.metadata.rows, task.metadata.targets, strict=True)}
    wrong = sum(truth[int(row)] != int(label) for row, label in zip(found.rows, found.targets, strict=True))
    assert wrong == 5


def test_few_metadata_are_learned_from(run_twice, monkeypatch):
    monkeypatch.setattr(noisy_digits, "CASES", ((2, 0.0),))
    rows = run_twice(noisy_digits.run_few_metadata, seeds=(0,), epochs=1)
    assert [row["method"] for row in rows] == list(noisy_digits.LEARNERS)
    assert all(0 < accuracy < 1 for accuracy in numbers(rows, "accuracy"))


def test_long_trainings_have_the_epoch_that_metadata_choose(run_twice):
    forms = ("memory, beta 10", "memory, beta 5, withdrawal 3")
    rows = run_twice(noisy_digits.run_long_training, seeds=(0,), epochs=(2,), forms=forms)
    assert [row["form"] for row in rows] == list(forms)
    assert all(0 < float(row["last"]) < 1 and row["selected_epoch"] in ("0", "1") for row in rows)
    assert all(row["selected"] == row["last"] for row in rows if row["selected_epoch"] == "1")
    known = option_names(method_class("meta_icda_signed"))
    assert all(option in known for options in noisy_digits.SETTINGS.values() for option in options)


def test_a_shortcut_and_noise_are_trained_on_in_every_form(run_twice):
    rows = run_twice(noisy_digits.run_shortcut_and_noise, seeds=1, epochs=1)
    assert [row["form"] for row in rows] == list(noisy_digits.FORMS)
    assert all(0 <= float(row["withdraws_wrong"]) <= 1 for row in rows if row["form"] != "ce")


def test_strengths_that_know_both_kinds_separate_both(tmp_path, monkeypatch):
    task_and_method = {"task": "digits_coloured_noise", "method": "meta_icda_signed", "model": "mlp"}
    train(TrainConfig(**task_and_method, epochs=1, out=str(tmp_path)))
    _, task, _, _ = load_folder(tmp_path)
    colours = task.train.groups % 2  # groups are class x colour
    clean = task.train.clean_targets
    known = torch.where(task.train.targets != clean, -1.0, (colours != clean).float())
    monkeypatch.setattr(finished_runs, "sample_strengths", lambda method, seen: Strength(seen.logits, known))
    assert finished_runs.separations(tmp_path) == dict.fromkeys(noisy_digits.AREAS, 1.0)


def stability_row(seed, clip="default", **changed):
    place = {"images": 40, "classes": 2, "method": "icda", "bound": "default", "clip": clip, "seed": seed}
    return {**place, "diverged": "False", "largest_loss": 2.5, "test_accuracy": 0.5, **changed}


def test_a_training_that_diverges_is_a_row_of_the_settings_it_was_asked_for(monkeypatch, tmp_path):
    asked: list[tuple[int, object]] = []

    def train_once(config: TrainConfig) -> tuple[None, None, None]:
        asked.append((config.seed, config.clip_norm))
        return None, None, None

    monkeypatch.setattr(stability, "train_once", train_once)
    monkeypatch.setattr(stability, "make_folder", lambda root, images, classes: root)
    options = stability.Arguments(tmp_path / "s.csv", seeds=2, images=(40,), classes=(2,), unclipped=True)
    stability.run(options)
    assert asked == [(0, None), (1, None)]
    rows = read_table(options.out)
    assert [(row["clip"], row["seed"], row["diverged"]) for row in rows] == [("none", k, "True") for k in "01"]


def test_tables_of_the_studies_keep_settings_apart_and_leave_out_what_was_not_measured():
    fair = 2 * [{"task": "digits_flip_noise", "method": "icda", "last": 0.66, "best": 0.8}]
    assert cells_of(noisy_digits.best_epoch_table(fair))[0][2:] == ["66.0 ± 0.0 (2)", "80.0 ± 0.0 (2)"]
    few = [{"per_class": 2, "wrong": 0.1, "method": name, "accuracy": 0.9} for name in 2 * [*noisy_digits.LEARNERS]]
    assert cells_of(noisy_digits.few_metadata_table(few)) == [["2", "10%", "90.0 ± 0.0 (2)", "90.0 ± 0.0 (2)"]]
    figures = {"form": "memory, beta 5", "last": 0.8, "selected": 0.9, "auroc_wrong": 0.95}
    long = [{**figures, "seed": seed, "epochs": epochs} for seed in range(2) for epochs in (120, 30)]
    assert [line[1:3] for line in cells_of(noisy_digits.long_training_table(long))] == [["30", "0, 1"], ["120", "0, 1"]]
    figures = {"accuracy": 0.7, "worst_group": 0.5, "withdraws_wrong": "nan", "pushes_minority": "nan"}
    both = [{"form": "ce", **figures}, {"form": "signed", **figures, "withdraws_wrong": 0.1, "pushes_minority": 0.4}]
    assert cells_of(noisy_digits.shortcut_and_noise_table(both))[0] == ["CE", "70.0 (1)", "50.0 (1)", "", ""]
    lost = {"diverged": "True", "largest_loss": "", "test_accuracy": ""}
    rows = [stability_row(0), stability_row(1, largest_loss=9.5, test_accuracy=0.7), stability_row(0, "none", **lost)]
    clipped, unclipped = cells_of(stability.stability_table(rows))
    assert clipped[4:7] == ["default", "0 of 2", "9.5 (2)"]
    assert clipped[7].startswith("60.0")
    assert unclipped[4:] == ["none", "1 of 1", "", ""]


@pytest.mark.parametrize(
    ("plant", "chances", "is_right"),
    [
        ("clean", (0.0, 0.0, 0.0), True),
        ("clean", (0.9, 0.0, 0.0), False),
        ("flip_40", (0.0, 0.9, 0.0), True),
        ("tail_10+patch_5", (0.9, 0.0, 0.9), True),
        ("tail_10+patch_5", (0.0, 0.0, 0.9), False),
        ("colour_5+flip_20", (0.9, 0.0, 0.0), True),
        ("colour_5+flip_20", (0.0, 0.9, 0.0), False),
    ],
)
def test_a_verdict_is_right_if_it_names_what_was_planted(plant, chances, is_right):
    row = dict(zip(("shortcut", "noise", "tail"), chances, strict=True))
    assert robust_verdicts.is_right({"plant": plant, **row}) is is_right


def test_robust_is_trained_on_what_was_planted_and_finds_most_of_it(run_twice, monkeypatch):
    monkeypatch.setitem(robust_verdicts.BASES, "digits", (("tail_50", "flip_40"), {"model": "small_cnn", "epochs": 12}))
    rows = run_twice(robust_verdicts.run, seeds=(20,))
    assert [robust_verdicts.is_right(row) for row in rows if row["method"] == "robust"] == [True, True]
    assert cells_of(robust_verdicts.robust_verdicts_table(rows))[1][1:4] == ["40 % flips", "1 of 1", "0"]


def test_a_planted_task_has_the_counts_it_is_named_by():
    clean = robust_verdicts.make_task("digits", "clean", 20).train
    noisy = robust_verdicts.make_task("digits", "tail_10+flip_40", 20).train
    marked = robust_verdicts.make_task("digits", "colour_10", 20).train
    assert len(noisy) < len(clean)
    assert float((noisy.targets != noisy.clean_targets).double().mean()) == pytest.approx(0.4, abs=0.06)
    assert float((marked.groups % 2 != marked.targets).double().mean()) == pytest.approx(0.1, abs=0.02)
