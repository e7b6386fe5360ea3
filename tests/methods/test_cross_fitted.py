"""Methods that ask cross-fitted networks first: stages, priors, and runs that reuse the networks of others."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from icda.cross_fit import HeldOut, HeldOutNetworks, answer_log_prior, fit_calibration
from icda.data import create_task
from icda.data.task import Batch
from icda.methods import Setup, create_method
from icda.methods.mat import MAT
from icda.methods.shortcut_prior import ShortcutPrior, chosen_form
from icda.methods.xrm import XRM
from icda.models.base import FeatureClassifier, Output
from icda.results import RunResult
from icda.training import evaluate_folder, train
from icda.training.checkpoint import load_checkpoint
from support import make_context, short_run

FIRST, AGAIN = "cross_fit", "cross_fit_again"
SETUP = Setup(2, 5, torch.tensor([8, 4]), epochs=10, num_samples=12, seed=3)
NAMES = ("xrm", "mat", "shortcut_prior")
configure = partial(short_run, attributes="unknown")


def evidence_of(folder):
    """What the networks of a finished run said."""
    return load_checkpoint(folder / "model.pt")["method"]["_extra_state"]["evidence"]


@pytest.mark.parametrize("name", [*NAMES, "twin_labels"])
def test_the_first_stage_comes_on_top_of_the_epochs_and_both_have_schedules_of_their_own(name):
    for share, epochs, first in ((0.5, 10, 5), (0.01, 10, 1), (2.0, 3, 6)):
        stages = create_method(name, SETUP, {"cross_fit_epochs": share}).stages(epochs)
        assert [(stage.name, stage.epochs, stage.restart) for stage in stages] == [
            (FIRST, first, True),
            ("train", epochs, True),
        ]


def test_the_network_that_is_kept_waits_and_the_others_are_done_when_it_starts(tmp_path, monkeypatch):
    seen = []

    def on_stage_start(method, context):
        seen.append([model.head.weight.detach().clone() for model in context.models])

    monkeypatch.setattr(ShortcutPrior, "on_stage_start", on_stage_start)
    result = train(configure(tmp_path, "shortcut_prior"))
    first, second = seen
    last = [state["head.weight"] for state in load_checkpoint(tmp_path / "model.pt")["networks"]]
    assert torch.equal(first[0], second[0]), "the kept network is as it was made"
    assert not torch.equal(second[0], last[0])
    for k in range(1, 5):
        assert not torch.equal(first[k], second[k])
        assert torch.equal(second[k], last[k])
    assert [line["stage"] for line in result["history"]] == [FIRST, "train", "train"]
    assert 0 <= result["history"][0]["flipped_labels"] <= 1
    assert result["history"][-1]["held_out_nll"] > 0


def test_the_soft_form_trains_the_networks_again_on_the_labels_as_they_are(tmp_path):
    config = configure(tmp_path / "whole", "shortcut_prior", options={"form": "soft"})
    whole = train(config)
    assert [record["stage"] for record in whole["history"]] == [FIRST, AGAIN, "train", "train"]
    assert "flipped_labels" in whole["history"][0]
    assert "flipped_labels" not in whole["history"][1]
    evidence = evidence_of(tmp_path / "whole")
    assert not torch.equal(evidence["logits"], evidence["unflipped"])
    options = {"form": "soft", "reuse": str(tmp_path / "whole")}
    reused = train(replace(config, out=str(tmp_path / "reused"), options=options))
    assert [record["stage"] for record in reused["history"]] == ["train", "train"]
    assert reused["history"][-1]["held_out_nll"] == whole["history"][-1]["held_out_nll"]


@pytest.mark.parametrize(("name", "options"), [("xrm", {}), ("shortcut_prior", {"form": "soft"})])
def test_repeats_are_stages_with_other_folds_whose_answers_are_averaged(name, options, tmp_path, monkeypatch):
    answers = []
    folds = []
    ask = HeldOutNetworks.ask

    def noted(networks, *given):
        answers.append(ask(networks, *given))
        folds.append(networks.fold.clone())
        return answers[-1]

    monkeypatch.setattr(HeldOutNetworks, "ask", noted)
    config = configure(tmp_path / "whole", name, options={"repeats": 2, "stratified": True, **options})
    whole = train(config)
    passes = [FIRST, f"{FIRST}_2", *([AGAIN, f"{AGAIN}_2"] if options else [])]
    assert [record["stage"] for record in whole["history"]] == [*passes, "train", "train"]
    targets = create_task("digits_coloured").train.targets
    for fold in folds:
        for c in range(2):
            sizes = torch.bincount(fold[targets == c])
            assert int(sizes.max() - sizes.min()) <= 1
    assert not torch.equal(folds[0], folds[1])
    evidence = evidence_of(tmp_path / "whole")
    torch.testing.assert_close(evidence["logits"], (answers[0].logits + answers[1].logits) / 2)
    assert evidence["agreement"] == pytest.approx((answers[0].agreement + answers[1].agreement) / 2)
    assert torch.equal(evidence["last"], answers[-1].logits)
    if options:
        torch.testing.assert_close(evidence["unflipped"], (answers[2].logits + answers[3].logits) / 2)
    reuse = {**options, "reuse": str(tmp_path / "whole")}
    reused = train(replace(config, out=str(tmp_path / "reused"), options=reuse))
    assert reused["history"][-1]["held_out_errors"] == whole["history"][-1]["held_out_errors"]


def test_stratified_folds_need_the_labels_of_all_samples():
    method = create_method("xrm", SETUP, {"stratified": True})
    context = make_context(stage=method.stages(10)[0])
    with pytest.raises(ValueError, match="need the labels of all training samples"):
        method.stages(10)[0].on_start(context)


def test_the_soft_prior_reads_the_networks_that_saw_the_labels_as_they_are():
    method = create_method("shortcut_prior", replace(SETUP, num_samples=6), {"form": "soft"})
    unflipped = LOGITS.flip(1) * 0.5
    method.learn_from(HeldOut(LOGITS, TARGETS, 1.0, unflipped))
    expected = fit_calibration(unflipped, TARGETS).log_probabilities(unflipped)
    torch.testing.assert_close(method.log_prior, expected)


def test_the_second_stage_is_told_its_own_progress():
    method = ShortcutPrior(SETUP, cross_fit_epochs=0.5)  # 5 and 10 epochs
    for progress, expected in ((0.0, 0.0), (1 / 3, 0.0), (2 / 3, 0.5), (1.0, 1.0)):
        assert method.second_stage_progress(make_context(progress=progress)) == pytest.approx(expected)


LOGITS = torch.tensor([[2.0, 0.0], [1.5, 0.0], [0.0, 2.5], [0.0, 1.0], [3.0, 0.0], [0.0, 0.2]])
TARGETS = torch.tensor([0, 1, 1, 1, 0, 0])


def test_xrm_makes_groups_of_class_and_mistake_and_draws_them_equally():
    method = XRM(replace(SETUP, num_samples=6))
    method.learn_from(HeldOut(LOGITS, TARGETS, 1.0))
    assert method.groups.tolist() == [0, 3, 2, 2, 0, 1]
    weights, groups = method.sampling_weights(), method.groups
    masses = [float(weights[groups == g].sum()) for g in range(4)]
    assert masses == pytest.approx([masses[0]] * 4)


def test_xrm_with_group_dro_gives_weight_to_the_groups_that_are_there():
    method = XRM(replace(SETUP, num_samples=6), second="group_dro")
    method.learn_from(HeldOut(LOGITS, torch.tensor([0, 1, 1, 1, 0, 1]), 1.0))
    assert method.robust.q.tolist() == pytest.approx([1 / 3, 0.0, 1 / 3, 1 / 3])
    with pytest.raises(ValueError, match="second must"):
        create_method("xrm", SETUP, {"second": "irm"})


def test_mat_mixes_the_counted_prior_by_the_held_out_probabilities():
    method = MAT(replace(SETUP, num_samples=6))
    method.learn_from(HeldOut(LOGITS, TARGETS, 1.0))
    answers = [0, 0, 1, 1, 0, 1]
    for i in range(6):
        probabilities = LOGITS[i].double().softmax(0).tolist()
        for c in range(2):
            expected = 0.0
            for a in range(2):
                alike = [int(TARGETS[j]) for j in range(6) if answers[j] == a]
                expected += probabilities[a] * (alike.count(c) + 0.5) / (len(alike) + 1)
            assert float(method.log_prior[i, c].exp()) == pytest.approx(expected, abs=1e-6)


def test_the_prior_is_counted_where_the_networks_repeat_each_other_and_calibrated_where_they_do_not():
    logits = torch.randn(60, 2)
    targets = torch.where(torch.arange(60) % 6 == 0, 1 - logits.argmax(1), logits.argmax(1))
    errors = float((logits.argmax(1) != targets).double().mean())
    counted = answer_log_prior(logits.argmax(1), targets, 2)
    soft = fit_calibration(logits, targets).log_probabilities(logits)
    for form, disagreement, expected in (
        ("auto", 0.05, counted),  # two networks agree on 99.2 % of the samples
        ("auto", 0.07, soft),  # on 98.8 %
        ("counted", 0.9, counted),
        ("soft", 0.0, soft),
    ):
        method = create_method("shortcut_prior", SETUP, {"form": form})
        method.learn_from(HeldOut(logits, targets, agreement=1 - disagreement * errors))
        torch.testing.assert_close(method.log_prior, expected)
        assert method.found["counted"] == (expected is counted)


@pytest.mark.parametrize("form", ["counted", "soft"])
def test_answers_that_say_nothing_leave_logit_adjustment(form):
    targets = torch.tensor([0] * 8 + [1] * 4)
    method = create_method("shortcut_prior", SETUP, {"form": form})
    method.learn_from(HeldOut(torch.tensor([[1.0, 0.0]]).expand(12, 2), targets, 1.0))
    logits = torch.randn(12, 2)
    context = make_context(FeatureClassifier(nn.Identity(), nn.Linear(5, 2)))
    found = method.loss(Output(torch.zeros(12, 5), logits), Batch(None, targets, None, torch.arange(12)), context)
    expected = F.cross_entropy(logits + torch.tensor([8.0, 4.0]).log(), targets)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-4)


def test_a_later_run_reuses_the_networks_of_an_earlier_one(tmp_path):
    train(configure(tmp_path / "first", "xrm"))
    whole = train(configure(tmp_path / "mat", "mat"))
    options = {"reuse": str(tmp_path / "first")}
    again = train(configure(tmp_path / "again", "mat", options=options))
    assert [line["stage"] for line in again["history"]] == ["train"] * 2
    assert again["history"][-1]["held_out_errors"] == whole["history"][-1]["held_out_errors"]
    kept = [load_checkpoint(tmp_path / name / "model.pt") for name in ("first", "mat", "again")]
    for other in kept[1:]:  # twins of the same seed are the same whichever method asks for them
        found, wanted = (state["method"]["_extra_state"]["evidence"] for state in (other, kept[0]))
        assert torch.equal(found["logits"], wanted["logits"])
        for one, two in zip(other["networks"][1:], kept[0]["networks"][1:], strict=True):
            assert all(torch.equal(value, two[name]) for name, value in one.items())
    train(configure(tmp_path / "plain", "cross_entropy"))
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "model.pt").write_bytes(b"damaged")
    refusals = [
        ("its networks answer otherwise about these samples", "mat", "first", {"data_seed": 1}),
        ("its samples have classes of", "mat", "first", {"subset": 0.5}),
        (r"model\.pt is not there", "mat", "nowhere", {}),
        ("trained 2 cross-fitted networks, not 4", "shortcut_prior", "first", {}),
        ("trained no cross-fitted networks", "mat", "plain", {}),
        ("it is damaged", "mat", "damaged", {}),
        ("networks of another kind", "mat", "first", {"model": "small_cnn"}),
    ]
    for number, (why, name, folder, settings) in enumerate(refusals):
        with pytest.raises(ValueError, match=why):
            train(configure(tmp_path / str(number), name, options={"reuse": str(tmp_path / folder)}, **settings))
    (tmp_path / "first").rename(tmp_path / "gone")
    again = evaluate_folder(tmp_path / "again")
    assert again["metrics"]["accuracy"] == RunResult.read(tmp_path / "again" / "result.json")["metrics"]["accuracy"]


def test_the_cost_is_said_before_it_starts():
    assert ShortcutPrior.cost_note(30, {}) == (
        "First trains 4 networks for 10 epochs, each on 3 of 4 parts of the samples; then one for 30: about 2.1 times "
        "plain training. Networks that do not repeat each other are trained again, 15 epochs: 1.7 more."
    )
    assert "again" not in ShortcutPrior.cost_note(30, {"form": "counted"})
    assert "for 60 epochs" in ShortcutPrior.cost_note(30, {"cross_fit_epochs": 2.0})
    assert "3 of 4 parts of the samples, 2 times over; then one for 30: about 3.2 times" in ShortcutPrior.cost_note(
        30, {"repeats": 2}
    )
    assert XRM.cost_note(30, {"reuse": "runs/x"}).endswith("the cost is that of plain training.")


def evidence(errors, agreement, size=100):
    targets = torch.zeros(size, dtype=torch.long)
    answers = (torch.arange(size) < errors).long()
    return HeldOut(F.one_hot(answers, 2).float(), targets, agreement)


@pytest.mark.parametrize(
    ("errors", "agreement", "form"),
    [
        (5, 1.0, "counted"),
        (20, 0.999, "counted"),
        (16, 0.98, "soft"),  # 0.125 samples differ per error
        (5, 0.96, "shares"),  # 0.8: networks that are wrong each in its own way
        (44, 0.97, "shares"),  # they repeat each other, but tell too few labels
        (0, 1.0, "counted"),  # nothing contradicts the labels: counting is harmless
    ],
)
def test_the_form_follows_errors_and_their_repetition(errors, agreement, form):
    assert chosen_form(evidence(errors, agreement)) == form


def test_without_a_sign_of_a_shortcut_the_prior_is_that_of_logit_adjustment(tmp_path):
    method = create_method("shortcut_prior", SETUP)
    targets = torch.tensor([0] * 8 + [1] * 4)
    held_out = HeldOut(torch.randn(12, 2, generator=torch.Generator().manual_seed(0)), targets, 0.5)
    method.learn_from(held_out)
    expected = torch.tensor([8 / 12, 4 / 12]).log().expand(12, 2)
    torch.testing.assert_close(method.log_prior.log_softmax(1), expected, rtol=0, atol=1e-6)
    assert method.found["no_shortcut"] == 1
    with pytest.warns(UserWarning, match="no sign of a shortcut"):
        train(configure(tmp_path / "plain", "shortcut_prior", task="digits_lt"))


def test_a_reuse_that_cannot_be_read_is_refused_before_an_earlier_run_is_given_up(tmp_path):
    config = configure(tmp_path / "run", "cross_entropy")
    train(config)
    kept = (tmp_path / "run" / "result.json").read_bytes()
    again = configure(tmp_path / "run", "shortcut_prior", options={"reuse": str(tmp_path / "typo")})
    with pytest.raises(ValueError, match="is not there"):
        train(again, overwrite=True)
    with pytest.raises(ValueError, match="the folder of this run itself"):
        train(replace(again, options={"reuse": str(tmp_path / "run")}), overwrite=True)
    assert (tmp_path / "run" / "result.json").read_bytes() == kept


def test_the_soft_form_refuses_networks_that_only_learned_flipped_labels(tmp_path):
    train(configure(tmp_path / "counted", "shortcut_prior", options={"form": "counted"}))
    options = {"form": "soft", "reuse": str(tmp_path / "counted")}
    with pytest.raises(ValueError, match="trained no networks on the labels as they are"):
        train(configure(tmp_path / "soft", "shortcut_prior", options=options))
