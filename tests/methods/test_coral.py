"""CORAL: means and covariances of the domains' features, pair by pair."""

import itertools

import pytest
import torch
from torch.nn import functional as F

from icda.data.task import Batch
from icda.methods.coral import CORAL, correlation_alignment
from icda.methods.domain_penalty import DomainPart
from icda.models import create_model
from icda.models.base import Output
from support import domain_setup, make_context

SETUP = domain_setup(3)
CONTEXT = make_context()
GROUPS = [0, 1, 2, 3, 0, 1, 0, 5, 2, 3, 0, 4]
CASES = pytest.mark.parametrize(
    "groups",
    [GROUPS, [0, 3, 0, 1, 4, 1, 4], [0, 1, 3, 1, 2], [0, 3, 1], [0, 1, 2], [2, 5, 2], [4]],
    ids=["three domains", "two of three", "one single", "one pair, no covariances", "singles", "one domain", "one"],
)


def make_batch(groups):
    generator = torch.Generator().manual_seed(2)
    features = torch.randn(len(groups), 4, generator=generator, dtype=torch.float64)
    features = (features * (1 + torch.tensor(groups)[:, None] % 3) + torch.tensor(groups)[:, None]).requires_grad_()
    logits = torch.randn(len(groups), 3, generator=generator, dtype=torch.float64)
    targets = torch.randint(3, (len(groups),), generator=generator)
    return Output(features, logits), Batch(features, targets, torch.tensor(groups), torch.arange(len(groups)))


def naive_mean(rows):
    return [sum(row[a] for row in rows) / len(rows) for a in range(4)]


def naive_covariance(rows):
    mean = naive_mean(rows)
    return [
        sum((row[a] - mean[a]) * (row[b] - mean[b]) for row in rows) / (len(rows) - 1)
        for a in range(4)
        for b in range(4)
    ]


def mean_over_pairs(moments):
    distances = [
        sum((one - other) ** 2 for one, other in zip(first, second, strict=True)) / len(first)
        for first, second in itertools.combinations(moments, 2)
    ]
    return sum(distances) / len(distances) if distances else 0.0


def naive_alignment(features, groups):
    by_domain = {}
    for row, group in enumerate(groups):
        by_domain.setdefault(group % 3, []).append(features[row].tolist())
    means = [naive_mean(rows) for rows in by_domain.values()]
    covariances = [naive_covariance(rows) for rows in by_domain.values() if len(rows) > 1]
    return mean_over_pairs(means) + mean_over_pairs(covariances)


def domain_losses(output, batch, groups):
    domains = torch.tensor(groups) % 3
    present = [d for d in range(3) if (domains == d).any()]
    return torch.stack([F.cross_entropy(output.logits[domains == d], batch.targets[domains == d]) for d in present])


@CASES
@pytest.mark.parametrize("gamma", [1.0, 10.0])
def test_it_is_the_mean_loss_of_the_domains_plus_the_mean_over_pairs_of_both_differences(gamma, groups):
    output, batch = make_batch(groups)
    found = CORAL(SETUP, gamma=gamma).loss(output, batch, CONTEXT)
    wanted = float(domain_losses(output, batch, groups).mean()) + gamma * naive_alignment(
        output.features.detach(), groups
    )
    assert float(found.detach()) == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("groups", [GROUPS, [0, 1, 3, 1, 2], [0, 1, 2]], ids=["whole", "one single", "singles"])
def test_the_gradient_is_that_of_finite_differences(groups):
    output, batch = make_batch(groups)
    method = CORAL(SETUP)
    assert torch.autograd.gradcheck(
        lambda features: method.loss(Output(features, output.logits), batch, CONTEXT), output.features
    )


def test_domains_of_the_same_features_are_not_punished():
    features = torch.randn(5, 4, dtype=torch.float64)
    parts = [DomainPart(features[order], features[:, :3], torch.zeros(5)) for order in (range(5), [3, 1, 4, 0, 2])]
    assert float(correlation_alignment(parts)) == pytest.approx(0.0, abs=1e-28)


def test_a_shift_is_seen_by_the_means_alone_and_a_stretch_by_the_covariances_alone():
    features = torch.randn(50, 4, dtype=torch.float64)
    features = features - features.mean(0)
    nothing = (torch.zeros(50, 3), torch.zeros(50))
    shifted = correlation_alignment([DomainPart(features, *nothing), DomainPart(features + 3.0, *nothing)])
    assert float(shifted) == pytest.approx(9.0, rel=1e-10)
    stretched = correlation_alignment([DomainPart(features, *nothing), DomainPart(2.0 * features, *nothing)])
    assert float(stretched) == pytest.approx(9.0 * float((features.T @ features / 49).square().mean()), rel=1e-10)


def test_half_precision_is_computed_in_single():
    """Features near 300 have squares that half precision does not hold."""
    output, batch = make_batch(GROUPS)
    halved = Output((300 + output.features.detach()).half(), output.logits.half())
    found = CORAL(SETUP).loss(halved, batch, CONTEXT)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = CORAL(SETUP).loss(halved, batch, CONTEXT)
    assert found.dtype == torch.float32
    assert torch.equal(found, mixed)
    single = Output(halved.features.double(), halved.logits.double())
    wanted = float(domain_losses(single, batch, GROUPS).mean()) + naive_alignment(single.features, GROUPS)
    assert float(found) == pytest.approx(wanted, rel=1e-4)


@CASES
def test_a_step_logs_the_term_without_its_weight_whatever_the_batch_holds(groups):
    """Ranks add up what they log, so all must log the same names at every step."""
    model = create_model("mlp", 3, (4,), hidden=4).double()
    inputs = make_batch(groups)[0].features.detach()
    batch = Batch(inputs, torch.arange(len(groups)) % 3, torch.tensor(groups), torch.arange(len(groups)))
    wanted = naive_alignment(model(inputs).features.detach(), groups)
    result = CORAL(SETUP, gamma=4.0).step(batch, make_context(model, rate=0.0))
    assert result.extra == {"alignment_penalty": pytest.approx(wanted, rel=1e-10)}
    gradients = [parameter.grad for parameter in model.parameters()]
    assert all(gradient is not None and torch.isfinite(gradient).all() for gradient in gradients)
