"""V-REx: the variance of the domains' losses, and when it weighs what."""

import math

import pytest
import torch
from torch.nn import functional as F

from icda.data.task import Batch
from icda.methods.v_rex import VREx
from icda.models import create_model
from icda.models.base import Output
from support import domain_setup, make_context, make_grouped

SETUP = domain_setup(3)
GROUPS = [0, 1, 2, 3, 0, 1, 0, 5, 2, 3, 0]


def naive_losses(logits, targets, groups):
    """The cross entropy of each domain that the batch has samples of."""
    by_domain = {}
    for row, group in enumerate(groups):
        weights = [math.exp(value) for value in logits[row].tolist()]
        loss = -math.log(weights[int(targets[row])] / sum(weights))
        by_domain.setdefault(group % 3, []).append(loss)
    return [sum(losses) / len(losses) for losses in by_domain.values()]


@pytest.mark.parametrize(
    "groups",
    [GROUPS, [0, 3, 1, 4], [0, 1, 2], [2, 5, 2], [4]],
    ids=["three domains", "two of three", "single samples", "one domain", "one sample"],
)
@pytest.mark.parametrize(("iteration", "weight"), [(499, 1.0), (500, 10.0)])
def test_it_is_mean_plus_weighted_variance_of_the_domains_losses(iteration, weight, groups):
    output, batch = make_grouped(groups, seed=5, scale=2.0)
    losses = naive_losses(output.logits.detach(), batch.targets, groups)
    mean = sum(losses) / len(losses)
    variance = sum((loss - mean) ** 2 for loss in losses) / len(losses)
    found = VREx(SETUP).loss(output, batch, make_context(iteration=iteration))
    assert float(found.detach()) == pytest.approx(mean + weight * variance, rel=1e-12)
    (gradient,) = torch.autograd.grad(found, output.logits)
    assert torch.isfinite(gradient).all()


def test_the_gradient_weighs_each_domain_by_how_far_its_loss_lies_from_the_mean():
    """dL/dL_e = 1/E + penalty 2 (L_e - mean) / E: above the mean per domain counts for more, far below it is unlearned."""
    output, batch = make_grouped(GROUPS, seed=5, scale=2.0)
    (found,) = torch.autograd.grad(VREx(SETUP).loss(output, batch, make_context(iteration=500)), output.logits)
    domains = torch.tensor(GROUPS) % 3
    rows = [domains == d for d in range(3)]
    each = [F.cross_entropy(output.logits[row], batch.targets[row]) for row in rows]
    mean = sum(float(loss.detach()) for loss in each) / 3
    wanted = torch.zeros_like(found)
    for row, loss in zip(rows, each, strict=True):
        factor = 1 / 3 + 10.0 * 2 * (float(loss.detach()) - mean) / 3
        softmax = output.logits.detach()[row].softmax(1)
        one_hot = torch.eye(3, dtype=torch.float64)[batch.targets[row]]
        wanted[row] = factor * (softmax - one_hot) / int(row.sum())
    torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-13)


def test_equal_losses_are_not_punished():
    output, batch = make_grouped([0, 1, 2], seed=5, scale=2.0)
    logits = output.logits.detach()[:1].expand(3, -1)
    same = Batch(batch.inputs, torch.zeros(3, dtype=torch.long), batch.groups, batch.index)
    found = VREx(SETUP).loss(Output(output.features, logits), same, make_context(iteration=500))
    torch.testing.assert_close(found, F.cross_entropy(logits, same.targets), rtol=1e-14, atol=0)


def test_a_step_logs_the_variance_without_its_weight():
    model = create_model("mlp", 3, (4,), hidden=4).double()
    _, batch = make_grouped(GROUPS, seed=5, scale=2.0)
    losses = naive_losses(model(batch.inputs).logits.detach(), batch.targets, GROUPS)
    result = VREx(SETUP).step(batch, make_context(model, rate=0.0, iteration=500))
    variance = float(torch.tensor(losses, dtype=torch.float64).var(correction=0))
    assert result.extra == {"loss_variance": pytest.approx(variance, rel=1e-10)}
    assert float(result.loss) == pytest.approx(sum(losses) / 3 + 10 * variance, rel=1e-10)
    assert not result.loss.requires_grad
    assert all(parameter.grad is not None for parameter in model.parameters())
