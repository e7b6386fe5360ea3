"""The L1 head against scikit-learn's logistic regression and against the conditions of its optimum."""

import pytest
import sklearn
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.utils.fixes import parse_version
from torch.nn import functional as F

from icda.heads.sparse import fit_sparse_head


def make_data(classes=2, samples=300, width=20):
    generator = torch.Generator().manual_seed(1)
    features = torch.randn(samples, width, generator=generator, dtype=torch.float64)
    centres = torch.zeros(classes, width, dtype=torch.float64)
    centres[:, :4] = 2 * torch.randn(classes, 4, generator=generator, dtype=torch.float64)
    logits = features @ centres.T + torch.randn(samples, classes, generator=generator, dtype=torch.float64)
    return features, logits.argmax(1)


@pytest.mark.parametrize("l1", [0.1, 0.01, 0.001])
@pytest.mark.parametrize("weighted", [False, True])
def test_two_classes_are_the_logistic_regression_of_scikit_learn(l1, weighted):
    features, targets = make_data()
    weights = torch.linspace(0.2, 3.0, 300, dtype=torch.float64) if weighted else None
    head = fit_sparse_head(features, targets, 2, l1, weights, max_iter=50_000, tol=1e-9)
    # scikit-learn sums the losses; ours divides the weights by their sum.
    mass = torch.ones(300) if weights is None else weights
    only_l1 = {"l1_ratio": 1.0} if parse_version(sklearn.__version__) >= parse_version("1.8") else {"penalty": "l1"}
    model = LogisticRegression(**only_l1, C=1 / (l1 * float(mass.sum())), solver="saga", max_iter=100_000, tol=1e-9)
    model.fit(features.numpy(), targets.numpy(), sample_weight=mass.numpy())
    assert head.converged
    torch.testing.assert_close(head.weight[1] - head.weight[0], torch.tensor(model.coef_[0]), rtol=0, atol=1e-5)
    assert float(head.bias[1] - head.bias[0]) == pytest.approx(model.intercept_[0], abs=1e-5)


def test_at_the_optimum_of_several_classes_no_weight_wants_to_move():
    features, targets = make_data(classes=4)
    mass = torch.linspace(0.5, 2.0, 300, dtype=torch.float64)
    head = fit_sparse_head(features, targets, 4, 0.02, mass, max_iter=50_000, tol=1e-8)
    weight, bias = head.weight.clone().requires_grad_(), head.bias.clone().requires_grad_()
    losses = F.cross_entropy(features @ weight.T + bias, targets, reduction="none")
    loss = (mass * losses).sum() / mass.sum()
    to_weight, to_bias = torch.autograd.grad(loss, [weight, bias])
    zero = head.weight == 0
    assert 0 < int(zero.sum()) < zero.numel()
    assert float(to_weight[zero].abs().max()) <= 0.02 + 1e-7
    torch.testing.assert_close(to_weight[~zero], -0.02 * head.weight[~zero].sign(), rtol=0, atol=1e-6)
    assert float(to_bias.abs().max()) < 1e-7
    assert head.value == pytest.approx(float(loss.detach() + 0.02 * head.weight.abs().sum()), rel=1e-12)


def test_a_strong_penalty_leaves_the_class_shares():
    features, targets = make_data(classes=3)
    head = fit_sparse_head(features, targets, 3, 10.0, max_iter=10_000, tol=1e-9)
    assert not head.weight.any()
    shares = torch.bincount(targets, minlength=3) / 300
    torch.testing.assert_close(head.bias.softmax(0), shares.double(), rtol=0, atol=1e-6)


def test_a_start_saves_steps_and_changes_nothing_else():
    features, targets = make_data()
    whole = fit_sparse_head(features, targets, 2, 0.01, tol=1e-8, max_iter=50_000)
    again = fit_sparse_head(features, targets, 2, 0.01, tol=1e-8, max_iter=50_000, start=whole)
    assert again.iterations <= 2 < whole.iterations
    torch.testing.assert_close(again.weight, whole.weight, rtol=0, atol=1e-6)


def test_too_few_steps_are_said():
    features, targets = make_data()
    head = fit_sparse_head(features, targets, 2, 0.001, max_iter=3)
    assert (head.iterations, head.converged) == (3, False)
