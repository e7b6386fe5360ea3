"""A training told that attributes are unknown never reads them, and one that needs them does not start."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from icda.data import TASKS, create_task
from icda.methods import method_names, method_needs
from icda.methods.base import MissingNeedError
from icda.training import Trainer, train
from icda.training import run as run_module
from icda.training.run import build, load_task, visible_task
from support import short_run


class TouchedError(AssertionError):
    """Someone looked at a group label."""


class Untouchable(Tensor):
    """A column of group labels that raises whatever is done with it, once `armed`."""

    armed = False

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if cls.armed and func is not Tensor.shape.__get__:  # a split checks the length of what it is given
            raise TouchedError(f"{func} read the group labels")
        return super().__torch_function__(func, types, args, kwargs or {})


@pytest.fixture
def guarded(register_entry):
    """Coloured digits whose group labels, of training and validation, raise when they are read."""
    task = create_task("digits_coloured")

    def guard(split):
        return replace(split, groups=split.groups.as_subclass(Untouchable))

    hidden = replace(task, name="guarded_digits", train=guard(task.train), validation=guard(task.validation))
    register_entry(TASKS, "guarded_digits", lambda root, seed: hidden)
    Untouchable.armed = True
    yield hidden
    Untouchable.armed = False


def settings(folder, **changes):
    usual = {"task": "guarded_digits", "method": "icda", "attributes": "unknown", "selection": "validation_accuracy"}
    return short_run(folder, **{**usual, **changes})


def test_the_guard_works(guarded):
    with pytest.raises(TouchedError):
        guarded.train.batch(torch.arange(4))
    with pytest.raises(TouchedError):
        torch.bincount(guarded.train.groups)


GROUPLESS = [name for name in method_names() if not method_needs(name) & {"groups", "validation groups", "metadata"}]


@pytest.mark.parametrize("selection", ["last", "validation_accuracy", "validation_worst_pseudo_group"])
@pytest.mark.parametrize("method", ["cross_entropy", "icda", "jtt", "shortcut_prior", "xrm", "mat", "afr", "lff"])
def test_training_and_selection_never_read_them(guarded, method, selection, tmp_path, monkeypatch):
    assert method in GROUPLESS
    finished = Trainer.load_model

    def after_training(trainer):
        Untouchable.armed = False  # the model is chosen: its evaluation may weigh groups by their training shares
        return finished(trainer)

    monkeypatch.setattr(Trainer, "load_model", after_training)
    result = train(settings(tmp_path, method=method, selection=selection))
    assert result["metrics"]["worst_group_accuracy"] is not None
    assert result["config"]["attributes"] == "unknown"
    assert all(line.get("validation_worst_group_accuracy") is None for line in result["history"])
    assert any("validation_worst_group_accuracy" in line for line in result["history"])  # a stage of twins has none
    cross_fitted = method in ("shortcut_prior", "xrm", "mat")
    if cross_fitted:
        first, second = result["history"][:2]
        assert (first["stage"], second["stage"]) == ("cross_fit", "train")
        assert "validation_accuracy" not in first, "the network that is kept still waits: there is nothing to judge"
    if selection == "validation_worst_pseudo_group":  # cross-fitted networks answer from the second stage on
        judged = result["history"][1 if cross_fitted else -1 :]
        assert all(line["validation_worst_pseudo_group_accuracy"] is not None for line in judged)


def test_which_samples_a_subset_takes_does_not_depend_on_them(tmp_path, monkeypatch):
    task = create_task("digits_coloured")
    other = replace(task, train=replace(task.train, groups=task.train.groups.flip(0)))
    chosen = {"known": [], "unknown": []}
    for found in (task, other):
        monkeypatch.setattr(run_module, "create_task", lambda *_, found=found: found)
        for attributes, rows in chosen.items():
            part = load_task(settings(tmp_path, subset=0.2, attributes=attributes))
            rows.append(part.train.rows.tolist())
            assert part.train.groups is not None  # kept for the evaluation, which weighs groups by their shares
    assert chosen["unknown"][0] == chosen["unknown"][1]
    assert chosen["known"][0] != chosen["known"][1]


def test_told_that_attributes_are_known_the_same_training_reads_them(guarded, tmp_path):
    with pytest.raises(TouchedError):
        train(settings(tmp_path, attributes="known"))


def test_a_method_or_rule_that_needs_groups_is_refused_before_training(guarded, tmp_path):
    told = visible_task(settings(tmp_path), guarded)
    for method in (name for name in method_names() if "groups" in method_needs(name)):
        with pytest.raises(MissingNeedError, match=f"'{method}' needs group labels, .*--attributes unknown"):
            build(settings(tmp_path, method=method), told)
    with pytest.raises(ValueError, match="needs a validation split with group labels"):
        build(settings(tmp_path, selection="validation_worst_group"), told)
    assert not list(tmp_path.iterdir())


def test_the_withheld_task_keeps_test_groups_and_hides_the_rest(guarded):
    told = guarded.without_groups()
    assert told.train.groups is None
    assert told.validation.groups is None
    assert told.metadata is None or told.metadata.groups is None
    assert told.test.groups is not None
    assert told.data_hash  # reads no group label but those of test


def test_guessed_groups_survive_a_kill(assert_resumes):
    rule = {"attributes": "unknown", "selection": "validation_worst_pseudo_group"}
    assert_resumes(16, every=0, task="digits_coloured", model="mlp", batch_size=100, **rule)
