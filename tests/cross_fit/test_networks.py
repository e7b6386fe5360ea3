"""Held-out networks: who learns from whom, which labels flip, and that ranks and resumption change nothing."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from icda.cross_fit import (
    HeldOut,
    HeldOutNetworks,
    averaged,
    draw_folds,
    flip_labels,
    flip_probability,
    stratified_folds,
)
from icda.data.generators import generator_for
from icda.data.task import Batch
from icda.models.base import FeatureClassifier

N, C, RATE = 48, 3, 0.3
INPUTS = torch.randn(N, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
TARGETS = torch.arange(N) % C
UNEVEN = torch.tensor([0] * 41 + [1] * 7 + [2] * 2 + [4])[torch.randperm(51, generator=generator_for(1))]


def make_models(folds=2):
    torch.manual_seed(3)
    return [
        FeatureClassifier(nn.Sequential(nn.Linear(4, 5), nn.Tanh()), nn.Linear(5, C)).double() for _ in range(folds)
    ]


def batch_of(rows):
    return Batch(INPUTS[rows], TARGETS[rows], None, rows)


def applier(models, share=1.0, average=False):
    """A step of gradient descent as the trainer takes it: ranks' losses by their share, gradients averaged."""

    def apply(loss):
        parameters = [value for model in models for value in model.parameters()]
        slopes = torch.autograd.grad(loss * share, parameters, allow_unused=True)
        with torch.no_grad():
            for value, slope in zip(parameters, slopes, strict=True):
                if slope is not None:
                    if average:
                        torch.distributed.all_reduce(slope)
                        slope = slope / torch.distributed.get_world_size()
                    value -= RATE * slope

    return apply


def balanced_loss(model, rows, labels):
    """The mean over the classes of a class's mean cross entropy, in a loop."""
    means = []
    for c in range(C):
        own = [i for i in rows if labels[i] == c]
        if own:
            means.append(sum(F.cross_entropy(model(INPUTS[[i]]).logits, torch.tensor([c])) for i in own) / len(own))
    return sum(means) / len(means)


@pytest.mark.parametrize("folds", [2, 3])
def test_a_step_is_that_of_networks_trained_alone_on_the_samples_they_may_see(folds):
    models, held = make_models(folds), HeldOutNetworks(N, C, folds, seed=0)
    alone = copy.deepcopy(models)
    held.step(batch_of(torch.arange(N)), models, models, applier(models), epoch=0)
    for k, model in enumerate(alone):
        rows = [i for i in range(N) if held.fold[i] != k]
        slopes = torch.autograd.grad(balanced_loss(model, rows, TARGETS.tolist()), list(model.parameters()))
        with torch.no_grad():
            for value, slope in zip(model.parameters(), slopes, strict=True):
                value -= RATE * slope
    for found, expected in zip(models, alone, strict=True):
        for one, other in zip(found.parameters(), expected.parameters(), strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def test_labels_flip_by_the_rule_towards_the_network_that_has_not_seen_them():
    models, held = make_models(), HeldOutNetworks(N, C, 2, seed=0)
    for model in models:
        model.head.weight.data.mul_(20)  # confident answers
    for epoch in range(3):
        before = torch.where(held.labels >= 0, held.labels, TARGETS)
        held.step(batch_of(torch.arange(N)), models, models, lambda loss: None, epoch)
        with torch.no_grad():
            answers = torch.stack([models[int(held.fold[i])](INPUTS[[i]]).logits[0] for i in range(N)]).float()
        expected = flip_labels(before, answers, held._uniform(epoch))
        assert torch.equal(torch.where(held.labels >= 0, held.labels, TARGETS), expected)
    assert 0 < int((held.labels >= 0).sum()) <= N
    assert not ((held.labels == TARGETS) & (held.labels >= 0)).any(), "back to the own label is not flipped"


def test_held_out_logits_come_from_the_network_that_is_blind_to_the_sample():
    models, held = make_models(3), HeldOutNetworks(N, C, 3, seed=4)
    models[0].train()
    found = held.ask((batch_of(rows) for rows in torch.arange(N).split(7)), models)
    assert torch.equal(found.targets, TARGETS)
    assert models[0].training
    same, wrong = 0.0, 0
    for i in range(N):
        with torch.no_grad():
            said = [model(INPUTS[[i]]).logits[0].float() for model in models]
        torch.testing.assert_close(found.logits[i], said[int(held.fold[i])])
        answers = [int(logits.argmax()) for logits in said]
        same += sum(answers[j] == answers[k] for j in range(3) for k in range(j)) / 3
        wrong += int(said[int(held.fold[i])].argmax()) != i % C
    assert found.agreement == pytest.approx(same / N)
    assert found.errors == pytest.approx(wrong / N)
    assert found.disagreement == pytest.approx((N - same) / wrong)


def test_answers_without_an_error_disagree_nowhere():
    assert HeldOut(torch.eye(3), torch.arange(3), agreement=0.5).disagreement == 0


def test_a_network_with_too_few_samples_takes_no_step_and_the_others_do():
    models, held = make_models(), HeldOutNetworks(N, C, 2, seed=0)
    rows = torch.cat([(held.fold == 0).nonzero().flatten()[:4], (held.fold == 1).nonzero().flatten()[:1]])
    before = copy.deepcopy(models)
    held.step(batch_of(rows), models, models, applier(models), 0)
    moved = [not torch.equal(old.head.weight, new.head.weight) for old, new in zip(before, models, strict=True)]
    assert moved == [False, True]  # network 0 may learn from fold 1 alone, of which there is one sample


def test_state_goes_with_the_checkpoint_whatever_the_size_of_the_data():
    held = HeldOutNetworks(N, C, 2, seed=0)
    held.labels[3] = 2
    for size in (N, 5):
        restored = HeldOutNetworks(size, C, 2, seed=0)
        restored.load_state_dict(held.state_dict())
        assert torch.equal(restored.labels, held.labels)
    assert torch.equal(HeldOutNetworks(N, C, 2, seed=0).fold, held.fold)
    assert not torch.equal(HeldOutNetworks(N, C, 2, seed=1).fold, held.fold)


def test_a_repeat_begins_with_folds_of_its_own_and_labels_as_they_were_given():
    held = HeldOutNetworks(N, C, 2, seed=0)
    first = held.fold.clone()
    held.labels[:5] = 1
    held.begin(0)
    assert torch.equal(held.fold, first)
    assert (held.labels == -1).all()
    held.begin(1)
    assert not torch.equal(held.fold, first)
    held.begin(1, TARGETS)
    assert all(int(((c == TARGETS) & (held.fold == k)).sum()) == N / C / 2 for c in range(C) for k in range(2))
    restored = HeldOutNetworks(N, C, 2, seed=0)
    restored.load_state_dict(held.state_dict())
    assert torch.equal(restored.fold, held.fold), "a run that resumes goes on with the folds it had"


def trained(rank, world):
    """An epoch with the coin's folds, then one of a stratified repeat."""
    models, held = make_models(), HeldOutNetworks(N, C, 2, seed=0)
    for model in models:
        model.head.weight.data.mul_(3)
    for epoch in range(2):
        if epoch == 1:
            held.begin(1, TARGETS)
        order = torch.randperm(N, generator=torch.Generator().manual_seed(epoch))
        for rows in order.split(24):
            mine = rows[rank::world]
            apply = applier(models, len(mine) * world / len(rows), average=world > 1)
            held.step(batch_of(mine), models, models, apply, epoch)
    found = held.ask((batch_of(rows) for rows in torch.arange(N).split(5)), models)
    return [value.detach() for model in models for value in model.parameters()], held.labels, *found[:3]


def trained_on_rank(rank):
    return trained(rank, 2)


def test_two_ranks_do_what_one_process_does(run_on_ranks):
    weights, labels, logits, targets, agreement = trained(0, 1)
    assert (labels >= 0).any()
    for found in run_on_ranks(trained_on_rank):
        for one, other in zip(found[0], weights, strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=1e-10)
        assert torch.equal(found[1], labels)
        torch.testing.assert_close(found[2], logits, rtol=0, atol=1e-5)
        assert torch.equal(found[3], targets)
        assert found[4] == pytest.approx(agreement)


@pytest.mark.parametrize("num_classes", [2, 3, 7])
def test_the_probability_is_that_of_the_formula_written_out(num_classes):
    logits = 3 * torch.randn(20, num_classes, dtype=torch.float64)
    found = flip_probability(logits)
    for row, value in zip(logits.tolist(), found.tolist(), strict=True):
        exponentials = [math.exp(z) for z in row]
        largest = max(exponentials) / sum(exponentials)
        assert value == pytest.approx((largest - 1 / num_classes) * num_classes / (num_classes - 1), abs=1e-12)


def test_a_label_becomes_the_answer_exactly_where_the_draw_lies_below():
    logits, labels = torch.randn(200, 3, dtype=torch.float64), torch.randint(3, (200,))
    uniform = torch.rand(200, dtype=torch.float64)
    found = flip_labels(labels, logits, uniform).tolist()
    for i in range(200):
        flips = float(uniform[i]) < float(flip_probability(logits[i : i + 1]))
        assert found[i] == (int(logits[i].argmax()) if flips else int(labels[i]))
    assert 0 < sum(new != old for new, old in zip(found, labels.tolist(), strict=True)) < 200


def test_an_answer_without_preference_never_flips_and_a_certain_one_always_does():
    labels = torch.tensor([1, 1])
    assert flip_labels(labels, torch.zeros(2, 2), torch.zeros(2)).tolist() == [1, 1]
    assert flip_labels(labels, torch.tensor([[1e4, 0.0]] * 2), torch.full((2,), 0.999999)).tolist() == [0, 0]


def test_the_coin_of_the_first_repeat_is_the_one_earlier_runs_threw():
    expected = torch.randint(4, (30,), generator=generator_for(5, "folds", 4))
    assert torch.equal(draw_folds(30, 4, seed=5), expected)
    assert not torch.equal(draw_folds(30, 4, seed=5, repeat=1), expected)


@pytest.mark.parametrize("folds", [2, 3, 4])
def test_every_class_and_the_whole_are_split_evenly(folds):
    for seed in range(5):
        found = stratified_folds(UNEVEN, folds, seed)
        for samples in [range(51), *([i for i in range(51) if UNEVEN[i] == c] for c in (0, 1, 2, 4))]:
            sizes = [sum(int(found[i]) == k for i in samples) for k in range(folds)]
            assert max(sizes) - min(sizes) <= 1


def test_both_twins_learn_a_class_of_two_samples_where_a_coin_may_leave_one_without():
    pair = (UNEVEN == 2).nonzero().flatten()
    by_coin = {len(set(draw_folds(51, 2, seed)[pair].tolist())) for seed in range(20)}
    evenly = {len(set(stratified_folds(UNEVEN, 2, seed)[pair].tolist())) for seed in range(20)}
    assert by_coin == {1, 2}
    assert evenly == {2}


def test_the_draw_depends_on_seed_and_repeat_and_which_samples_go_where_is_random():
    first = stratified_folds(UNEVEN, 2, seed=0)
    assert torch.equal(first, stratified_folds(UNEVEN, 2, seed=0))
    assert not torch.equal(first, stratified_folds(UNEVEN, 2, seed=1))
    assert not torch.equal(first, stratified_folds(UNEVEN, 2, seed=0, repeat=1))
    single = int((UNEVEN == 4).nonzero())  # a class of one sample goes to each of the folds now and then
    assert {int(stratified_folds(UNEVEN, 2, seed)[single]) for seed in range(20)} == {0, 1}


def test_a_single_fold_is_refused():
    for draw in (lambda: draw_folds(5, 1, 0), lambda: stratified_folds(UNEVEN, 1, 0)):
        with pytest.raises(ValueError, match="needs 2 folds or more, got 1"):
            draw()


def test_repeats_count_the_same_and_the_last_one_is_kept_beside_their_mean():
    targets = torch.tensor([0, 1, 1])
    answers = [torch.randn(3, 2, generator=torch.Generator().manual_seed(k)) for k in range(3)]
    mean = None
    for number, logits in enumerate(answers):
        mean = averaged(mean, HeldOut(logits, targets, 0.5 + 0.1 * number), number)
    for i in range(3):
        for c in range(2):
            expected = sum(float(logits[i, c]) for logits in answers) / 3
            assert float(mean.logits[i, c]) == pytest.approx(expected, abs=1e-6)
    assert mean.agreement == pytest.approx(0.6)
    assert mean.last is answers[-1]


def test_a_single_pass_stays_as_it_is():
    only = HeldOut(torch.eye(2), torch.arange(2), 0.9)
    assert averaged(None, only, 0) is only
