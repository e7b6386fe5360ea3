"""robust: the treatment follows the verdicts, each loss written out, whole runs, kills in every phase, and two ranks."""

import json
import os
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from icda.cli import train as command
from icda.cross_fit import HeldOut, answer_log_prior, network_verdicts
from icda.cross_fit.marks import Mark
from icda.cross_fit.refined_labels import refine_labels
from icda.cross_fit.rules import Limit, Verdict
from icda.data import create_task
from icda.data.task import Batch
from icda.losses.logit_adjustment import LogitAdjustmentLoss
from icda.methods import Setup, robust
from icda.methods.robust import Robust, shrunken_pictures, untrained_features
from icda.models.base import FeatureClassifier
from icda.results import RunResult
from icda.training import TrainConfig, train
from icda.training.checkpoint import load_checkpoint
from support import act_as, make_context

SETUP = Setup(3, 5, torch.tensor([4, 4, 4]), epochs=4, num_samples=12, seed=3)
TARGETS = torch.arange(12) % 3
TASKS = {"labels": "digits_flip_noise", "prior": "digits_coloured", "adjustment": "digits_lt"}


def verdicts(shortcut="no", noise="no", tail="no"):
    answers = {"shortcut": shortcut, "label_noise": noise, "long_tail": tail}
    chances = {"yes": 0.9, "no": 0.1, "cannot tell": 0.5}
    return {kind: Verdict(answer, 0.9, [], chances[answer]) for kind, answer in answers.items()}


def evidence(agreement=1.0):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(12, 3, generator=generator) + 2 * torch.eye(3)[TARGETS]
    return HeldOut(logits, TARGETS, agreement, running=logits.log_softmax(1), read=(0.5, 0.1, 0.9))


def judged(monkeypatch, found, agreement=1.0):
    """With logit adjustment, whose loss a line can say."""
    monkeypatch.setattr(robust, "judge_networks", lambda held_out: found)
    method = Robust(SETUP, loss="la")
    method.keep_evidence(evidence(agreement))
    return method


@pytest.mark.parametrize(
    ("found", "treatment", "words"),
    [
        (verdicts(), "adjustment", "Neither a shortcut nor wrong labels."),
        (verdicts(tail="yes"), "adjustment", "rare classes count as much"),
        (verdicts(noise="yes"), "labels", "rare classes kept theirs."),
        (verdicts(shortcut="yes"), "prior", "A shortcut, which contradicts"),
        (verdicts(shortcut="yes", noise="yes"), "prior", "A shortcut, which contradicts"),
        (verdicts(shortcut="cannot tell"), "adjustment", "icda ask"),
        (verdicts(noise="cannot tell"), "adjustment", "icda ask"),
    ],
)
def test_the_treatment_follows_the_verdicts(found, treatment, words, monkeypatch):
    method = judged(monkeypatch, found)
    assert method.treatment == treatment
    assert words in method.findings()
    assert (len(method.soft_labels) > 0) == (treatment == "labels")
    assert Robust(SETUP).findings() == "", "nothing is known before the networks have answered"


def test_each_treatment_has_the_loss_it_says(monkeypatch):
    generator = torch.Generator().manual_seed(1)
    logits, rows = torch.randn(5, 3, generator=generator), torch.tensor([7, 0, 3, 3, 11])
    network = FeatureClassifier(torch.nn.Identity(), torch.nn.Linear(5, 3))
    output = type("Output", (), {"logits": logits, "features": torch.randn(5, 5, generator=generator)})
    held_out = evidence()
    refined = refine_labels(held_out.running, TARGETS).probabilities
    one_hot = F.one_hot(TARGETS, 3).float()
    wanted = {
        "adjustment": (one_hot, torch.full((12, 3), 1 / 3).log()),
        "prior": (one_hot, answer_log_prior(held_out.answers, TARGETS, 3)),
        "labels": (refined, refined.double().mean(0).log().float().expand(12, 3)),
    }
    for found in (verdicts(), verdicts(shortcut="yes"), verdicts(noise="yes")):
        method = judged(monkeypatch, found)
        labels, prior = wanted[method.treatment]
        loss = method.loss(output, Batch(logits, TARGETS[rows], None, rows), make_context(network))
        expected = -(labels[rows] * (logits + prior[rows]).log_softmax(1)).sum(1).mean()
        assert float(loss) == pytest.approx(float(expected), rel=1e-5), method.treatment


def test_networks_are_trained_again_only_for_a_shortcut_that_is_hard_to_see_past(monkeypatch):
    def names(found, agreement, area):
        method = judged(monkeypatch, found, agreement)
        method.keep_evidence(evidence(agreement)._replace(read=(area, 0.03, 0.9)))
        return [stage.name for stage in method.stages(10)]

    shortcut, once = verdicts(shortcut="yes"), ["cross_fit", "train"]
    assert names(shortcut, 0.98, 0.62) == ["cross_fit", "cross_fit_again", "train"]
    assert names(shortcut, 0.995, 0.62) == once
    assert names(shortcut, 0.98, 0.75) == once
    assert names(verdicts(noise="yes"), 0.98, 0.5) == once
    assert names(verdicts(), 0.98, 0.62) == once


def test_features_of_the_waiting_network_stand_in_the_order_of_the_samples():
    inputs = torch.arange(24.0).view(12, 2)
    network = FeatureClassifier(torch.nn.Identity(), torch.nn.Linear(2, 3))
    order = torch.tensor([3, 11, 0, 5, 7, 1, 2, 4, 6, 8, 10, 9])
    batches = [Batch(inputs[part], TARGETS[part], None, part) for part in order.split(5)]
    context = make_context(network, training_batches=lambda: iter(batches))
    chosen = torch.tensor([0, 2, 3, 9])
    assert torch.equal(untrained_features(context, chosen), inputs[chosen])


def test_a_model_from_before_heads_were_asked_elsewhere_is_still_read():
    state = {**Robust(SETUP).get_extra_state(), "evidence": evidence()._replace(read=(0.57, 0.03))._asdict()}
    method = Robust(SETUP)
    method.set_extra_state(state)
    assert method.found["readability"] == pytest.approx(0.25)


def test_so_do_pictures():
    images = torch.arange(12.0).view(12, 1, 1, 1).expand(12, 3, 8, 8)
    batches = [Batch(images[part], TARGETS[part], None, part) for part in torch.randperm(12).split(5)]
    network = FeatureClassifier(torch.nn.Flatten(), torch.nn.Linear(192, 3))
    wanted = torch.arange(12) % 3 > 0
    shrunk = shrunken_pictures(make_context(network, training_batches=lambda: iter(batches)), wanted)
    assert torch.equal(shrunk, images[wanted])


def marked(answers, kept=1.0):
    mark = Mark(answers, 3, skill=0.95, known=0.9, errors=0.05, against=40, overlap=0.5, kept=kept, place="top left")
    return evidence()._replace(mark=mark._asdict())


def test_a_mark_is_the_shortcut_that_is_taken_away(monkeypatch):
    answers = (TARGETS + (torch.arange(12) == 4)) % 3
    monkeypatch.setattr(network_verdicts, "FOLLOWED", Limit(-1.0, 0.01))  # whatever the networks of this evidence say
    method = Robust(SETUP, loss="la")
    method.keep_evidence(marked(answers))
    assert method.verdicts["shortcut"].answer == "yes"
    assert "A shortcut: a part of the picture (top left) alone tells 95 % of the labels." in method.findings()
    torch.testing.assert_close(method.log_prior, answer_log_prior(answers, TARGETS, 3))
    again = Robust(SETUP, loss="la")
    again.load_state_dict(method.state_dict())
    assert again.findings() == method.findings()
    assert torch.equal(again.log_prior, method.log_prior)


@pytest.mark.parametrize(("noisy", "treatment"), [(False, "adjustment"), (True, "labels")])
def test_a_part_that_may_be_the_class_is_named_and_left(noisy, treatment, monkeypatch):
    """Of many classes, told as well by the part as by the whole: a mark among wrong labels, or what makes the class."""
    setup, targets = Setup(9, 5, torch.full((9,), 20), epochs=4, num_samples=180, seed=3), torch.arange(180) % 9
    wrong = torch.arange(180) % 5 == 0
    logits = 4.0 * F.one_hot(torch.where(wrong, (targets + 1) % 9, targets), 9)
    mark = Mark(
        logits.argmax(1), 9, skill=0.75, known=0.76, errors=0.2, against=36, overlap=0.5, kept=0.0, place="top left"
    )
    monkeypatch.setattr(network_verdicts, "noise_chance", lambda *given: float(noisy))
    method = Robust(setup)
    method.keep_evidence(HeldOut(logits, targets, 0.99, running=logits, read=(0.5, 0.1, 0.9), mark=mark._asdict()))
    assert (method.verdicts["shortcut"].answer, method.treatment) == ("yes", treatment)
    assert "(top left) alone tells 80 % of the labels. Nothing was done" in method.findings()
    assert ("Wrong labels" in method.findings()) == noisy


def test_a_part_that_errs_with_the_rest_of_the_picture_is_no_mark():
    method = Robust(SETUP, loss="la")
    method.keep_evidence(marked(TARGETS, kept=0.2))
    assert method.verdicts["shortcut"].answer == "no"


def test_only_pictures_are_looked_at(whole):
    folder, _ = whole("adjustment")
    kept = torch.load(folder / "model.pt", weights_only=True)["method"]["_extra_state"]["evidence"]
    assert kept["mark"]["skill"] > 0
    rows = [Batch(torch.rand(12, 5), TARGETS, None, torch.arange(12))]
    context = make_context(
        FeatureClassifier(torch.nn.Identity(), torch.nn.Linear(5, 3)), training_batches=lambda: iter(rows)
    )
    assert shrunken_pictures(context, torch.ones(12, dtype=torch.bool)) is None


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Folder and result of an undisturbed run on the task of each treatment."""
    made = {}

    def run(treatment):
        if treatment not in made:
            folder = tmp_path_factory.mktemp(treatment)
            made[treatment] = folder, train(configure(folder, treatment))
        return made[treatment]

    return run


def test_three_tasks_are_called_what_they_are_and_each_is_learned_better_than_by_cross_entropy(whole, tmp_path):
    words = {"labels": "Wrong labels", "prior": "A shortcut", "adjustment": "A long tail"}
    metrics = {"labels": "accuracy", "prior": "worst_group_accuracy", "adjustment": "accuracy"}
    for treatment, word in words.items():
        folder, result = whole(treatment)
        assert word in (result.found or "")
        plain = train(configure(tmp_path / treatment, treatment, method="cross_entropy"))
        name = metrics[treatment]
        assert result["metrics"][name] > plain["metrics"][name] + 0.05, treatment
        assert json.loads((folder / "result.json").read_text())["found"] == result.found
        assert word in (folder / "report.html").read_text()
        assert 0 <= result["history"][-1]["shortcut_chance"] <= 1
    assert whole("labels")[1]["history"][-1]["wrong_labels"] == pytest.approx(0.4, abs=0.06), "nobody said the rate"


def test_where_nothing_calls_for_more_the_run_is_icdas(whole, tmp_path):
    plain = train(configure(tmp_path, "adjustment", method="icda"))
    mine, other = whole("adjustment")[1]["history"][-1], plain["history"][-1]
    assert mine["train_loss"] == pytest.approx(other["train_loss"], rel=1e-3), "the same weights saw the same batches"


def settings_of(treatment, **settings):
    common = {"task": TASKS[treatment], "epochs": 12, "batch_size": 128, "attributes": "unknown", "selection": "last"}
    return {"method": "robust", **common, **settings}


def configure(folder, treatment, **settings):
    return TrainConfig(**settings_of(treatment, **settings), out=str(folder))


def steps_in_an_epoch(treatment):
    return -(-len(create_task(TASKS[treatment]).train) // 128)


@pytest.mark.parametrize("treatment", ["labels", "prior"])
def test_a_training_killed_in_every_phase_ends_bit_identical(treatment, whole, assert_resumes):
    length = steps_in_an_epoch(treatment)
    # In the first epoch, at the end of the first stage of four epochs, right after it, and in the second.
    kills = (5, 4 * length - 5, 2, 3 * length)
    assert_resumes(*kills, every=3, whole=whole(treatment)[0], **settings_of(treatment))


def test_so_does_one_killed_among_the_networks_that_are_trained_again(assert_resumes, monkeypatch):
    monkeypatch.setattr(robust, "REPEATED", 2.0)
    monkeypatch.setattr(robust, "EASILY_READ", 2.0)
    length = steps_in_an_epoch("prior")
    folder = assert_resumes(2 * length - 1, 4, 3 * length, every=3, **settings_of("prior", epochs=6))
    stages = [line["stage"] for line in RunResult.read(folder / "result.json")["history"]]
    assert stages == ["cross_fit"] * 2 + ["cross_fit_again"] * 3 + ["train"] * 6


def train_on_rank(rank):
    act_as(rank)
    for treatment in ("labels", "prior"):
        train(ranked(Path(os.environ["RANKED_FOLDER"]) / treatment, treatment))
    robust.REPEATED = robust.EASILY_READ = 2.0  # the soft form, in a process that ends here
    train(ranked(Path(os.environ["RANKED_FOLDER"]) / "soft", "prior"))


def ranked(folder, treatment):
    return configure(folder, treatment, model="mlp", epochs=6, learning_rate=0.05, options={"cross_fit_epochs": 1.0})


def test_two_ranks_find_and_do_what_one_process_does(run_on_ranks, tmp_path, monkeypatch):
    monkeypatch.setenv("RANKED_FOLDER", str(tmp_path / "two"))
    run_on_ranks(train_on_rank)
    for treatment in ("labels", "prior", "soft"):
        if treatment == "soft":
            monkeypatch.setattr(robust, "REPEATED", 2.0)
            monkeypatch.setattr(robust, "EASILY_READ", 2.0)
        one = train(ranked(tmp_path / "one" / treatment, "labels" if treatment == "labels" else "prior"))
        two = RunResult.read(tmp_path / "two" / treatment / "result.json")
        assert ("cross_fit_again" in [line["stage"] for line in two["history"]]) == (treatment == "soft")
        assert two.found == one.found
        assert ("Wrong labels" if treatment == "labels" else "A shortcut") in (one.found or "")
        states = [load_checkpoint(tmp_path / side / treatment / "checkpoint.pt") for side in ("one", "two")]
        first, second = (state["method"]["_extra_state"]["evidence"] for state in states)
        assert second["read"] == pytest.approx(first["read"], abs=1e-3)
        for name, value in states[0]["networks"][0].items():
            torch.testing.assert_close(states[1]["networks"][0][name], value, rtol=0, atol=1e-3, msg=name)


def test_a_finished_run_lends_its_networks_and_another_methods_are_refused(whole, tmp_path):
    folder, first = whole("labels")
    again = train(configure(tmp_path / "again", "labels", options={"reuse": str(folder)}))
    assert again.found == first.found
    mine, other = again["history"][-1]["train_loss"], first["history"][-1]["train_loss"]
    assert mine == pytest.approx(other, rel=1e-3), "the kept network learns as it did there"
    assert {line["stage"] for line in again["history"]} == {"train"}
    settings = {"epochs": 1, "model": "mlp"}
    train(configure(tmp_path / "prior", "prior", method="shortcut_prior", **settings))
    with pytest.raises(ValueError, match="is not one of robust"):
        train(configure(tmp_path / "no", "prior", options={"reuse": str(tmp_path / "prior")}, **settings))


def test_the_command_says_the_cost_before_and_the_findings_after(capsys, tmp_path):
    command.main(
        ["--method", "robust", "--task", "digits_lt", "--model", "mlp", "--epochs", "3", "--out", str(tmp_path)]
    )
    told = capsys.readouterr()
    assert "times plain training." in told.out + told.err
    assert "What robust found: " in told.out
    assert Robust.cost_note(30, {}).startswith("First trains 4 networks for 10 epochs")
    assert "then one for 30: about 2.1 times plain training. A shortcut that" in Robust.cost_note(30, {})
    assert Robust.cost_note(30, {"reuse": "runs/x"}).endswith("the cost is that of plain training.")


def test_where_nothing_is_found_it_is_icda_or_on_request_logit_adjustment():
    assert Robust(SETUP, lambda0=0.25).criterion.lambda0 == 0.25
    assert type(Robust(SETUP, loss="la").criterion) is LogitAdjustmentLoss
    with pytest.raises(ValueError, match="loss='la' leaves out"):
        Robust(SETUP, loss="la", lambda0=0.25)


def test_rare_classes_keep_their_labels_beside_wrong_ones():
    generator = torch.Generator().manual_seed(0)
    targets = torch.cat([torch.zeros(300), torch.ones(300), torch.full((6,), 2.0)]).long()
    truth = torch.where(targets == 2, 2, torch.where(torch.rand(606, generator=generator) < 0.3, 1 - targets, targets))
    said = 4 * F.one_hot(truth.clamp(max=1), 3) + torch.randn(606, 3, generator=generator)  # never the rare class
    method = Robust(Setup(3, 5, torch.bincount(targets), epochs=4, num_samples=606))
    method.keep_evidence(HeldOut(said, targets, 0.98, running=said.log_softmax(1), read=(0.5, 0.03, 0.9)))
    assert method.treatment == "labels"
    labels = method.soft_labels.argmax(1)
    assert (labels[targets == 2] == 2).all()
    assert method.findings().endswith("A long tail: rare classes count as much as frequent ones.")
    assert float((labels == truth).double().mean()) > 0.95
