"""ELR, the loss mixture, truncated Lq and L_DMI against their formulas, visit by visit and pass by pass."""

import itertools
import math
import warnings
from dataclasses import replace
from functools import partial

import pytest
import torch
from sklearn.mixture import GaussianMixture
from torch import nn
from torch.nn import functional as F

from icda.data.task import Batch
from icda.losses.generalized_cross_entropy import generalized_cross_entropy
from icda.methods import Setup, create_method
from icda.methods.elr import ELR
from icda.methods.ldmi import LDMI, determinant_loss
from icda.methods.loss_mixture import LossMixture, lower_component
from icda.methods.truncated_lq import TruncatedLq
from icda.models.base import FeatureClassifier, Output
from support import make_context, make_network

ELR_SETUP = Setup(num_classes=3, feature_dim=5, class_counts=torch.tensor([4, 4, 4]), epochs=2, num_samples=12)
ELR_TARGETS = torch.arange(12) % 3


def visit(method, logits, rows):
    return method.loss(Output(logits, logits), Batch(logits, ELR_TARGETS[rows], None, rows), make_context())


def test_loss_and_running_means_are_those_of_the_paper():
    method, means = ELR(ELR_SETUP, weight=3.0, momentum=0.7).double(), torch.zeros(12, 3, dtype=torch.double)
    generator = torch.Generator().manual_seed(0)
    for rows in (torch.arange(0, 8), torch.arange(4, 12), torch.arange(0, 12)):
        logits = (2 * torch.randn(len(rows), 3, generator=generator)).double()
        wanted = 0.0
        for i, row in enumerate(rows.tolist()):
            p = logits[i].float().softmax(0).double()
            means[row] = 0.7 * means[row] + 0.3 * p / p.sum()
            wanted += -math.log(p[ELR_TARGETS[row]]) + 3.0 * math.log(1 - float(p @ means[row]))
        found = visit(method, logits, rows)
        assert float(found) == pytest.approx(wanted / len(rows), rel=1e-5)
        torch.testing.assert_close(method.means, means, rtol=1e-5, atol=1e-6)


def test_without_weight_it_is_cross_entropy():
    logits = torch.randn(12, 3)
    found = visit(ELR(ELR_SETUP, weight=0.0), logits, torch.arange(12))
    torch.testing.assert_close(found, F.cross_entropy(logits, ELR_TARGETS))


def test_a_network_that_always_disagreed_with_a_label_is_pulled_back_from_it():
    method = ELR(ELR_SETUP)
    answers = F.one_hot((ELR_TARGETS + 1) % 3, 3) * 8.0  # never the label
    for _ in range(10):
        visit(method, answers, torch.arange(12))
    logits = torch.zeros(12, 3, requires_grad=True)
    visit(method, logits, torch.arange(12)).backward()
    towards_label = -logits.grad.gather(1, ELR_TARGETS[:, None])
    plain = torch.zeros(12, 3, requires_grad=True)
    F.cross_entropy(plain, ELR_TARGETS).backward()
    assert (towards_label < -plain.grad.gather(1, ELR_TARGETS[:, None])).all()


def test_an_answer_that_is_certain_leaves_the_loss_finite():
    method = ELR(ELR_SETUP)
    for _ in range(50):
        loss = visit(method, F.one_hot(ELR_TARGETS, 3) * 1e4, torch.arange(12))
    assert torch.isfinite(loss)


MIXTURE_SETUP = Setup(num_classes=3, feature_dim=4, class_counts=torch.tensor([8, 8, 8]), epochs=20, num_samples=24)
INPUTS = torch.randn(24, 4, generator=torch.Generator().manual_seed(1))
TARGETS = torch.arange(24) % 3
mixture_context = partial(make_context, data=(INPUTS, TARGETS), num_epochs=20)


def losses(seed):
    generator = torch.Generator().manual_seed(seed)
    low, high = torch.randn(300, generator=generator).abs(), 4 + torch.randn(200, generator=generator)
    return torch.cat([low, high])


@pytest.mark.parametrize("seed", range(3))
def test_the_lower_component_is_that_of_scikit_learns_mixture(seed):
    values = losses(seed).double()
    scaled = ((values - values.min()) / (values.max() - values.min()))[:, None].numpy()
    mixture = GaussianMixture(2, reg_covar=1e-4, tol=1e-9, max_iter=500, random_state=0).fit(scaled)
    wanted = torch.from_numpy(mixture.predict_proba(scaled)[:, mixture.means_.argmin()])
    torch.testing.assert_close(lower_component(values), wanted, atol=1e-3, rtol=0)


def test_losses_that_are_all_alike_are_trusted():
    assert torch.equal(lower_component(torch.full((5,), 0.7)), torch.ones(5))


def test_labels_are_trusted_until_the_start_and_then_by_the_losses_of_a_pass():
    torch.manual_seed(0)
    model = FeatureClassifier(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), nn.Linear(4, 3))
    method = LossMixture(MIXTURE_SETUP, start=0.1)
    method.on_epoch_start(mixture_context(model, epoch=1))
    assert torch.equal(method.clean, torch.ones(24))
    method.on_epoch_start(mixture_context(model.train(), epoch=2))
    model.eval()
    with torch.no_grad():
        wanted = lower_component(F.cross_entropy(model(INPUTS).logits, TARGETS, reduction="none"))
    torch.testing.assert_close(method.clean, wanted)
    assert method.epoch_figures()["label_trust"] == pytest.approx(float(wanted.mean()))


def test_the_loss_mixes_label_and_own_answer_by_trust():
    method = LossMixture(MIXTURE_SETUP)
    method.clean.copy_(torch.rand(24, generator=torch.Generator().manual_seed(2)))
    logits, rows = torch.randn(6, 3, generator=torch.Generator().manual_seed(3)), torch.tensor([3, 1, 20, 7, 9, 11])
    wanted = 0.0
    for z, row in zip(logits, rows.tolist(), strict=True):
        chances, trust = z.softmax(0), float(method.clean[row])
        wanted += -trust * float(chances[TARGETS[row]].log()) - (1 - trust) * float(chances.max().log())
    found = method.loss(Output(logits, logits), Batch(logits, TARGETS[rows], None, rows), make_context())
    assert float(found) == pytest.approx(wanted / 6, rel=1e-5)


SETUP = Setup(num_classes=3, feature_dim=5, class_counts=torch.tensor([8, 8, 8]), epochs=120, num_samples=24)
context_of = partial(make_context, data=(INPUTS, TARGETS), num_epochs=120)


@pytest.fixture
def model():
    model = make_network()
    with torch.no_grad():
        model.head.weight.mul_(8)  # some probabilities beyond a half
    return model


def probabilities(model):
    model.eval()
    with torch.no_grad():
        return model(INPUTS).logits.softmax(1)[torch.arange(24), TARGETS]


def test_passes_start_at_the_share_of_the_epochs_and_come_every_so_many():
    due = [epoch for epoch in range(120) if TruncatedLq(SETUP).is_pass_due(epoch)]
    assert due == [40, 50, 60, 70, 80, 90, 100, 110]
    assert [e for e in range(120) if TruncatedLq(SETUP, start=0.0, refresh=50).is_pass_due(e)] == [0, 50, 100]
    assert not any(TruncatedLq(SETUP, start=1.0).is_pass_due(epoch) for epoch in range(120))


def test_a_pass_keeps_the_samples_at_or_above_the_threshold_and_may_take_one_back(model):
    method = TruncatedLq(SETUP)
    method.on_epoch_start(context_of(model, epoch=39))
    assert method.kept.all()
    method.on_epoch_start(context_of(model, epoch=40))
    expected = probabilities(model) >= 0.5
    assert 0 < int(expected.sum()) < 24
    assert torch.equal(method.kept, expected)
    with torch.no_grad():
        model.head.weight.mul_(-1)
    method.on_epoch_start(context_of(model, epoch=45))
    assert torch.equal(method.kept, expected), "not due yet"
    method.on_epoch_start(context_of(model, epoch=50))
    again = probabilities(model) >= 0.5
    assert torch.equal(method.kept, again)
    assert (again & ~expected).any()


@pytest.mark.parametrize("q", [0.0, 0.7, 1.0])
@pytest.mark.parametrize("threshold", [0.3, 0.5])
def test_the_loss_is_the_lq_loss_of_what_is_kept_and_a_constant_for_the_rest(q, threshold, model):
    method = TruncatedLq(SETUP, q=q, threshold=threshold)
    method.on_epoch_start(context_of(model, epoch=40))
    model.eval().double()
    rows = torch.tensor([5, 0, 17, 3, 9, 22, 11])
    output = model(INPUTS[rows].double())
    value = method.loss(output, Batch(INPUTS[rows], TARGETS[rows], None, rows), context_of(model, epoch=40))
    total = torch.zeros((), dtype=torch.float64)
    for row, logits in zip(rows.tolist(), output.logits, strict=True):
        p = logits.softmax(0)[TARGETS[row]] if method.kept[row] else torch.tensor(threshold, dtype=torch.float64)
        total = total + (-p.log() if q == 0 else (1 - p**q) / q)
    torch.testing.assert_close(value, total / 7, rtol=0, atol=1e-12)
    (slope,) = torch.autograd.grad(value, [output.logits])
    assert torch.equal(slope.abs().sum(1) > 0, method.kept[rows]), "no gradient from samples given up"


def test_before_the_first_pass_it_is_the_lq_loss(model):
    output, batch = model(INPUTS), Batch(INPUTS, TARGETS, None, torch.arange(24))
    value = TruncatedLq(SETUP).loss(output, batch, context_of(model, epoch=0))
    assert torch.equal(value, generalized_cross_entropy(output.logits, TARGETS, 0.7).mean())


def test_when_no_sample_passes_all_are_kept_and_a_warning_says_so(model):
    with torch.no_grad():
        model.head.weight.zero_()
        model.head.bias.zero_()
    method = TruncatedLq(SETUP)
    with pytest.warns(UserWarning, match=r"no training sample reaches p_y >= 0.5 in epoch 41, so all are kept"):
        method.on_epoch_start(context_of(model, epoch=40))
    assert method.kept.all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        TruncatedLq(SETUP, threshold=0.3).on_epoch_start(context_of(model, epoch=40))  # a third each passes


LDMI_SETUP = Setup(
    num_classes=3, feature_dim=4, class_counts=torch.full((3,), 40), epochs=10, num_samples=120, batch_size=12
)


def naive_determinant(matrix):
    """The sum over permutations."""
    total, size = 0.0, len(matrix)
    for order in itertools.permutations(range(size)):
        swaps = sum(order[i] > order[j] for i in range(size) for j in range(i + 1, size))
        total += (-1) ** swaps * math.prod(matrix[i][order[i]] for i in range(size))
    return total


def naive_loss(probabilities, targets):
    size = len(probabilities[0])
    joint = [[0.0] * size for _ in range(size)]
    for row, target in zip(probabilities, targets, strict=True):
        for answer in range(size):
            joint[target][answer] += row[answer]
    return -math.log(abs(naive_determinant(joint)) + 1e-3)


@pytest.mark.parametrize("scale", [0.01, 1.0, 4.0])
def test_it_is_the_logarithm_of_the_determinant_over_permutations(scale):
    logits, targets = scale * torch.randn(20, 4, dtype=torch.float64), torch.arange(20) % 4
    wanted = naive_loss(logits.softmax(1).tolist(), targets.tolist())
    assert float(determinant_loss(logits, targets)) == pytest.approx(wanted, rel=1e-9)


def test_labels_through_a_transition_matrix_move_it_by_a_constant():
    """With every sample counted once for each noisy label, by its probability, Y becomes Y T exactly."""
    transition = torch.tensor([[0.6, 0.4, 0.0], [0.0, 0.7, 0.3], [0.2, 0.0, 0.8]], dtype=torch.float64)
    counts = (10 * transition).round().long()
    shifts = []
    for seed in range(3):
        generator = torch.Generator().manual_seed(seed)
        logits, clean = 3 * torch.randn(30, 3, generator=generator, dtype=torch.float64), torch.arange(30) % 3
        rows = torch.arange(30).repeat_interleave(10)  # each sample ten times, its labels in the shares of its row of T
        noisy = torch.cat([torch.arange(3).repeat_interleave(counts[c]) for c in clean.tolist()])
        plain = determinant_loss(logits[rows], clean[rows])
        shifts.append(float(determinant_loss(logits[rows], noisy) - plain))
    wanted = -math.log(abs(naive_determinant(transition.tolist())))
    assert shifts == pytest.approx([wanted] * 3, abs=1e-4)  # the floor of 1e-3 is not scaled


def test_gradients_are_those_of_finite_differences():
    logits = torch.randn(12, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda values: determinant_loss(values, torch.arange(12) % 3), logits)


def test_a_batch_that_lacks_a_class_is_the_floor_and_pulls_nowhere():
    logits = torch.randn(12, 3, requires_grad=True)
    loss = determinant_loss(logits, torch.arange(12) % 2)
    assert float(loss.detach()) == pytest.approx(-math.log(1e-3))
    assert torch.equal(torch.autograd.grad(loss, logits)[0], torch.zeros(12, 3))


def test_a_hundred_classes_do_not_overflow():
    targets = torch.arange(6400) % 100
    logits = (20 * F.one_hot(targets, 100)).float().requires_grad_()
    loss = determinant_loss(logits, targets)
    assert float(loss.detach()) == pytest.approx(-100 * math.log(64), rel=1e-3)
    assert torch.isfinite(torch.autograd.grad(loss, logits)[0]).all()


@pytest.mark.parametrize(("epochs", "share", "lengths"), [(10, 0.5, [5, 5]), (30, 0.8, [24, 6]), (1, 0.5, [1])])
def test_each_stage_has_a_schedule_of_its_own(epochs, share, lengths):
    stages = LDMI(LDMI_SETUP, first_stage=share, second_rate=1e-3).stages(epochs)
    assert [stage.epochs for stage in stages] == lengths
    assert all(stage.restart for stage in stages)
    assert [stage.learning_rate for stage in stages] == [None, 1e-3][: len(lengths)]


def test_without_a_rate_of_its_own_rate_times_steps_is_as_published():
    published = replace(LDMI_SETUP, num_samples=50_000, batch_size=128)
    assert LDMI(published).stages(200)[1].learning_rate == pytest.approx(1e-6)
    assert LDMI(LDMI_SETUP).stages(10)[1].learning_rate == pytest.approx(0.039 / 50)  # five epochs of ten batches


def steps_of(stage, size):
    """The result of a step on a batch of some size, how often it was applied, and the logits."""
    model, applied = FeatureClassifier(nn.Identity(), nn.Linear(4, 3)).double(), []
    inputs = torch.randn(size, 4, dtype=torch.float64)
    batch = Batch(inputs, torch.arange(size) % 3, None, torch.arange(size))
    method = LDMI(LDMI_SETUP)
    step = method.stages(10)[stage].step or method.step
    return step(batch, make_context(model, apply=applied.append)), len(applied), model(inputs).logits.detach()


@pytest.mark.parametrize("size", [12, 7])
def test_the_first_stage_is_plain_cross_entropy_on_every_batch(size):
    result, applied, logits = steps_of(0, size)
    assert torch.equal(result.loss, F.cross_entropy(logits, torch.arange(size) % 3))
    assert applied == 1


@pytest.mark.parametrize(("size", "times"), [(12, 1), (11, 0), (3, 0)])
def test_the_second_stage_learns_from_full_batches_alone(size, times):
    result, applied, logits = steps_of(1, size)
    assert torch.equal(result.loss, determinant_loss(logits, torch.arange(size) % 3))
    assert applied == times


def test_a_batch_that_cannot_hold_every_class_is_refused_before_training():
    with pytest.raises(ValueError, match=r"a batch of 2 cannot hold 3 classes\. Raise --batch-size"):
        LDMI(replace(LDMI_SETUP, batch_size=2))


def test_a_batch_with_few_samples_of_a_class_is_warned_of():
    with pytest.warns(UserWarning, match="a batch of 29 has fewer than 10 samples of each of 3 classes"):
        create_method("ldmi", Setup(3, 4, torch.tensor([20, 20, 20]), 10, 60, batch_size=29))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        create_method("ldmi", Setup(3, 4, torch.tensor([20, 20, 20]), 10, 60, batch_size=30))
