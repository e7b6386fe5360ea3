"""What every method promises: it trains, resumes bit for bit, predicts, and refuses a task that lacks what it needs.

The list is that of the registries: a new method is tested here by being there. Each is trained on a small cut of the
embedded digits that has what the method says it needs and nothing else, so that a need it does not declare fails too.
"""

import copy
import math
from dataclasses import replace

import pytest
import torch

from icda.data import TASKS, create_task
from icda.methods import METHODS, method_names, method_needs
from icda.methods.base import MissingNeedError
from icda.methods.create import method_class
from icda.methods.d2l import D2L
from icda.training import TrainConfig, Trainer, evaluate_folder, train
from icda.training.evaluation import evaluating
from icda.training.run import build, load_folder, make_accelerator
from support import assert_same

EPOCHS, BATCH_SIZE, STEPS = 3, 40, 4  # 150 samples: four batches an epoch; the last epoch is a second stage's
KILLS = (2 * STEPS - 1, 3)  # with the checkpoint of step 6 as the last, then with that of the second epoch
# Options with state or stages of their own, and the steps after which such a run is killed, beginning at its checkpoint.
SOFT = {"form": "soft", "repeats": 2, "stratified": True}
VARIANTS = {
    "metasaug from early on": ("metasaug", {"start": 0.2}, KILLS),
    "difference": ("meta_icda", {"lookahead": "difference"}, KILLS),
    "small batches of metadata": ("meta_icda", {"meta_batch_size": 20}, KILLS),
    "both": ("meta_weight_net", {"lookahead": "difference", "meta_batch_size": 13}, KILLS),
    "momentum of the weight network": ("meta_weight_net", {"recipe": "long_tail", "weight_rate": 0.05}, KILLS),
    # In the first stage, at its end, right after it, and in the second.
    **{name: (name, {"cross_fit_epochs": 2 / 3}, (2, 8, 3, 4)) for name in ("xrm", "mat", "shortcut_prior")},
    "repeats": ("xrm", {"repeats": 2, "stratified": True}, (3, 8, 3, 4, 6)),
    "networks trained again": ("shortcut_prior", SOFT, (3, 4, 3, 4, 5, 4)),
    "killed where the weight jumps": ("irm", {"anneal_steps": 0.5, "penalty": 2.0}, KILLS),
    "a choice in each epoch": ("truncated_lq", {"threshold": 0.15, "refresh": 1}, KILLS),
    "boxes": ("lisa", {"mix": "cutmix"}, KILLS),
    "the way back": ("d2l_that_turns", {}, (5, 3)),
}


class Turning(D2L):
    """Finds its turning point in the second epoch, whatever the features do."""

    def turns(self, epoch):
        return epoch == 1


def num_networks(name):
    return getattr(method_class(name), "num_networks", 1)


def described(names):
    """Parameters whose ids say what a method asks for."""
    parameters = []
    for name in names:
        asks = [*sorted(method_needs(name)), *(["networks"] if num_networks(name) > 1 else [])]
        parameters.append(pytest.param(name, id=" ".join([name, *(f"+{what}" for what in asks)])))
    return parameters


every_method = pytest.mark.parametrize("name", described(method_names()))
needy_methods = pytest.mark.parametrize("name", described([name for name in method_names() if method_needs(name)]))
paired_methods = pytest.mark.parametrize("name", described([name for name in method_names() if num_networks(name) > 1]))


def small_task(needs):
    """150 digits, fewer of each class than of the one before, with what is needed and nothing else."""
    grouped = bool(needs & {"groups", "validation groups"})
    task = create_task("digits_coloured" if grouped else "digits")
    sizes = [90, 60] if grouped else [24 - 2 * c for c in range(10)]
    kept = torch.cat([(task.train.targets == c).nonzero().flatten()[:size] for c, size in enumerate(sizes)])
    train, validation = task.train.subset(kept), task.validation
    return replace(
        task,
        name=task_name(needs),
        train=train if "groups" in needs else train.without_groups(),
        validation=_needed(validation, needs),
        metadata=task.metadata if "metadata" in needs else None,
        test=task.test.subset(torch.arange(0, len(task.test), 7)),
    )


def _needed(validation, needs):
    if "validation groups" in needs:
        return validation
    return validation.without_groups() if "validation" in needs else None


def task_name(needs):
    return "_".join(["small_digits", *sorted(needs)]).replace(" ", "_")


@pytest.fixture(scope="module", autouse=True)
def _small_tasks_and_a_turning_point():
    list(TASKS)  # the first look-up fills the registry
    with pytest.MonkeyPatch.context() as patch:
        for needs in {method_needs(name) for name in method_names()}:
            name, task = task_name(needs), small_task(needs)
            patch.setitem(TASKS._entries, name, lambda root, seed, task=task: task)
            patch.setitem(TASKS._aliases, name, name)
        for part, entry in ((METHODS._entries, Turning), (METHODS._aliases, "d2l_that_turns")):
            patch.setitem(part, "d2l_that_turns", entry)
        yield


def settings_of(name, **options):
    usual = {"model": "mlp", "epochs": EPOCHS, "batch_size": BATCH_SIZE, "learning_rate": 0.05}
    return {"task": task_name(method_needs(name)), "method": name, "options": options, **usual}


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory):
    """Folder and result of an undisturbed training, made once for each method and its options."""
    made = {}

    def run(name, **options):
        key = f"{name} {options}"
        if key not in made:
            folder = tmp_path_factory.mktemp(name)
            made[key] = folder, train(TrainConfig(**settings_of(name, **options), out=str(folder)))
        return made[key]

    return run


@every_method
def test_it_trains_and_the_saved_model_gives_the_same_answers(name, whole_run):
    folder, result = whole_run(name)
    epochs = sum(stage.epochs for stage in load_folder(folder)[3].stages(EPOCHS))
    assert epochs > EPOCHS if getattr(method_class(name), "adds_epochs", False) else epochs == EPOCHS
    assert [line["epoch"] for line in result["history"]] == list(range(epochs))
    assert all(math.isfinite(line["train_loss"]) for line in result["history"])
    read = evaluate_folder(folder)
    assert read["confusion"] == result["confusion"]
    assert read["metrics"] == result["metrics"]
    untrained, _ = build(TrainConfig(**settings_of(name)), small_task(method_needs(name)))
    _, _, trained, _ = load_folder(folder)
    for before, after in zip(untrained, trained, strict=True):
        pairs = zip(before.parameters(), after.parameters(), strict=True)
        assert any(not torch.equal(old, new) for old, new in pairs), "a network that did not learn"


@every_method
def test_a_training_killed_in_an_epoch_and_after_one_ends_bit_identical(name, whole_run, assert_resumes):
    assert_resumes(*KILLS, every=3, whole=whole_run(name)[0], **settings_of(name))


@pytest.mark.parametrize("variant", VARIANTS)
def test_with_other_options_it_ends_bit_identical_too(variant, whole_run, assert_resumes):
    name, options, kills = VARIANTS[variant]
    assert_resumes(*kills, every=3, whole=whole_run(name, **options)[0], **settings_of(name, **options))


@every_method
def test_predictions_in_evaluation_mode_depend_on_the_sample_alone(name, whole_run):
    _, task, networks, method = load_folder(whole_run(name)[0])
    inputs = task.test.batch(torch.arange(20)).inputs
    state = copy.deepcopy(method.state_dict())
    with torch.no_grad(), evaluating(*networks, method):
        logits = method.predict(networks, inputs)
        again = method.predict(networks, inputs)
        alone = torch.cat([method.predict(networks, inputs[i : i + 1]) for i in range(20)])
    assert logits.shape == (20, task.num_classes)
    assert torch.isfinite(logits).all()
    assert torch.equal(again, logits)
    torch.testing.assert_close(alone, logits, rtol=1e-4, atol=1e-4)
    assert_same(method.state_dict(), state, "predict changed ")


@needy_methods
def test_a_task_without_what_it_needs_is_refused_before_training(name):
    whole = small_task(method_needs(name))
    lacking = {
        "groups": replace(whole, train=replace(whole.train, groups=None)),
        "metadata": replace(whole, metadata=None),
        "validation": replace(whole, validation=None),
        "validation groups": whole.without_groups(),
    }
    for need in method_needs(name):
        with pytest.raises(MissingNeedError, match=f"method '{name}' needs .*{need}.*, which task"):
            build(TrainConfig(**settings_of(name)), lacking[need])


@paired_methods
def test_its_networks_start_apart_and_one_too_few_is_refused_before_training(name, tmp_path):
    config, task = TrainConfig(**settings_of(name)), small_task(method_needs(name))
    networks, method = build(config, task)
    assert len(networks) == num_networks(name)
    first, second = (torch.cat([value.flatten() for value in network.parameters()]) for network in networks[:2])
    assert not torch.allclose(first, second)
    with pytest.raises(ValueError, match="num_networks"):
        Trainer(config, task, networks[:-1], method, tmp_path / "run", make_accelerator("no"))
    assert not (tmp_path / "run").exists()
