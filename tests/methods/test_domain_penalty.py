"""IRM, IB-IRM, V-REx and CORAL: penalties by naive loops, gradients, limits, the jump of a weight, what is refused."""

import itertools
import math
import warnings
from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

from icda.data.task import Batch
from icda.methods import Setup, create_method, irm
from icda.methods.coral import CORAL, correlation_alignment
from icda.methods.domain_penalty import DomainPart, DomainPenalty
from icda.methods.irm import IRM, scale_gradient
from icda.methods.v_rex import VREx
from icda.models import create_model
from icda.models.base import Output
from support import domain_setup, make_batch, make_context, make_grouped

SETUP = domain_setup(3)
GROUPS = [0, 1, 2, 3, 0, 1, 0, 5, 2, 3, 0, 4]  # the domain is the group's number modulo 3


def mean(values):
    return sum(values) / len(values) if values else 0.0


def cross_entropy(rows, features, logits, targets):
    total = 0.0
    for row in rows:
        weights = [math.exp(value) for value in logits[row]]
        total -= math.log(weights[targets[row]] / sum(weights))
    return total / len(rows)


def by_scale(rows, logits, targets):
    """The derivative of the cross entropy with respect to a factor of the logits."""
    total = 0.0
    for row in rows:
        weights = [math.exp(value) for value in logits[row]]
        for c, value in enumerate(logits[row]):
            total += (weights[c] / sum(weights) - (c == targets[row])) * value
    return total / len(rows)


def invariance_penalty(domains, features, logits, targets):
    halves = [(rows[::2], rows[1::2]) for rows in domains if len(rows) > 1]
    return mean([by_scale(one, logits, targets) * by_scale(other, logits, targets) for one, other in halves])


def feature_variance(domains, features, logits, targets):
    covariances = [moments([features[row] for row in rows])[1] for rows in domains if len(rows) > 1]
    return mean([mean(covariance[:: len(features[0]) + 1]) for covariance in covariances])


def loss_variance(domains, *given):
    losses = [cross_entropy(rows, *given) for rows in domains]
    return mean([(loss - mean(losses)) ** 2 for loss in losses])


def alignment_penalty(domains, features, logits, targets):
    found = [moments([features[row] for row in rows]) for rows in domains]
    total = 0.0
    for kind in zip(*found, strict=True):
        pairs = itertools.combinations([each for each in kind if each is not None], 2)
        total += mean([mean([(a - b) ** 2 for a, b in zip(*pair, strict=True)]) for pair in pairs])
    return total


def moments(rows):
    """Means of the columns, and the entries of the unbiased covariance, None of a single row."""
    means = [mean(column) for column in zip(*rows, strict=True)]
    if len(rows) == 1:
        return means, None
    places = itertools.product(range(len(means)), repeat=2)
    return means, [sum((row[a] - means[a]) * (row[b] - means[b]) for row in rows) / (len(rows) - 1) for a, b in places]


CASES = [
    ("irm", {"anneal_steps": 1}, {invariance_penalty: 1.0}),
    ("irm", {"anneal_steps": 0}, {invariance_penalty: 100.0}),
    ("ib_irm", {"anneal_steps": 1, "ib": 30.0}, {invariance_penalty: 1.0, feature_variance: 0.0}),
    ("ib_irm", {"anneal_steps": 0, "ib": 30.0}, {invariance_penalty: 100.0, feature_variance: 30.0}),
    ("v_rex", {"anneal_steps": 1}, {loss_variance: 1.0}),
    ("v_rex", {"anneal_steps": 0}, {loss_variance: 10.0}),
    ("coral", {"gamma": 4.0}, {alignment_penalty: 4.0}),
]


@pytest.mark.parametrize(
    "groups",
    [GROUPS, [0, 3, 0, 1, 4, 1, 4], [0, 1, 3, 1, 2], [0, 3, 1], [0, 1, 2], [2, 5, 2], [4]],
    ids=["three domains", "two of three", "one single", "one pair, no covariances", "singles", "one domain", "one"],
)
@pytest.mark.parametrize(("name", "options", "weights"), CASES)
def test_a_step_is_on_the_mean_loss_of_the_domains_plus_weighted_penalties_and_logs_these(
    name, options, weights, groups
):
    """Ranks add up what they log, so all must log the same names at every step, whatever the batch holds."""
    model, (_, batch) = create_model("mlp", 3, (4,), hidden=4).double(), make_grouped(groups, seed=5, scale=3.0)
    shifted = batch.inputs.detach() * (1 + batch.groups[:, None] % 3) + batch.groups[:, None]
    given = *(values.tolist() for values in model(shifted)), batch.targets.tolist()
    domains = [[row for row, group in enumerate(groups) if group % 3 == domain] for domain in range(3)]
    domains = [rows for rows in domains if rows]
    penalties = {penalty.__name__: penalty(domains, *given) for penalty in weights}
    result = create_method(name, SETUP, options).step(batch._replace(inputs=shifted), make_context(model, rate=0.0))
    wanted = mean([cross_entropy(rows, *given) for rows in domains])
    wanted += sum(weight * penalties[penalty.__name__] for penalty, weight in weights.items())
    assert float(result.loss) == pytest.approx(wanted, rel=1e-10)
    assert result.extra == pytest.approx(penalties, rel=1e-9, abs=1e-14)
    assert all(torch.isfinite(value.grad).all() for value in model.parameters())


@pytest.mark.parametrize("groups", [GROUPS, [0, 1, 3, 1, 2], [0, 1, 2]], ids=["whole", "one single", "singles"])
@pytest.mark.parametrize(("name", "options", "weights"), CASES)
def test_gradients_are_those_of_finite_differences(name, options, weights, groups):
    output, batch = make_grouped(groups, seed=3, scale=3.0)
    method = create_method(name, SETUP, options)
    assert torch.autograd.gradcheck(lambda *parts: method.loss(Output(*parts), batch, make_context()), tuple(output))


def test_value_and_gradient_of_irms_penalty_are_those_of_double_backward():
    """As the papers' codes have it: a factor of the logits, differentiated twice."""
    output, batch = make_grouped(GROUPS, seed=3, scale=3.0)
    domains = torch.tensor(GROUPS) % 3
    parts = [DomainPart(*(values[domains == d] for values in (*output, batch.targets))) for d in range(3)]
    factor, products = torch.ones((), dtype=torch.float64, requires_grad=True), []
    for part in parts:
        halves = [F.cross_entropy(part.logits[half::2] * factor, part.targets[half::2]) for half in (0, 1)]
        first, second = (torch.autograd.grad(loss, factor, create_graph=True)[0] for loss in halves)
        products.append(first * second)
    found, wanted = irm.invariance_penalty(parts), torch.stack(products).mean()
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-14)
    gradients = [torch.autograd.grad(value, output.logits, retain_graph=True)[0] for value in (found, wanted)]
    torch.testing.assert_close(*gradients, rtol=1e-10, atol=1e-14)
    assert gradients[1].abs().min() > 0, "a test in which a sample has no gradient would show nothing of it"


def test_the_closed_form_is_the_derivative_by_a_factor_of_the_logits():
    output, batch = make_grouped(GROUPS, seed=3, scale=3.0)
    step = 1e-6
    high, low = (F.cross_entropy(output.logits * (1 + sign * step), batch.targets) for sign in (1, -1))
    found = scale_gradient(output.logits, batch.targets).detach()
    assert float(found) == pytest.approx(float((high - low).detach()) / (2 * step), rel=1e-7)


def test_a_network_that_answers_the_class_shares_of_a_domain_satisfies_irm():
    """The trap of the documentation: such a network may know nothing but the domain."""
    targets = torch.tensor([0, 0, 0, 1, 1, 2])
    shares = torch.tensor([3.0, 2.0, 1.0], dtype=torch.float64) / 6
    assert float(scale_gradient(shares.log().expand(6, 3), targets)) == pytest.approx(0.0, abs=1e-15)
    sure = (2 * shares.log()).expand(6, 3)  # too sure of itself: a smaller factor would be better
    assert float(scale_gradient(sure, targets)) > 0.01


def test_equal_losses_are_not_punished_by_v_rex():
    output, batch = make_grouped([0, 1, 2], seed=5, scale=2.0)
    logits = output.logits.detach()[:1].expand(3, -1)
    same = batch._replace(targets=torch.zeros(3, dtype=torch.long))
    found = VREx(SETUP).loss(Output(output.features, logits), same, make_context(iteration=500))
    torch.testing.assert_close(found, F.cross_entropy(logits, same.targets), rtol=1e-14, atol=0)


def test_domains_of_the_same_features_are_not_punished_by_coral():
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


OFF = {
    "irm": {"penalty": 0.0, "anneal_steps": 0},
    "ib_irm": {"penalty": 0.0, "ib": 0.0, "anneal_steps": 0},
    "v_rex": {"penalty": 0.0, "anneal_steps": 0},
    "coral": {"gamma": 0.0},
}


@pytest.mark.parametrize(("name", "options"), OFF.items())
def test_no_penalty_is_the_mean_of_the_domains_cross_entropies_bit_for_bit(name, options):
    output, batch = make_grouped(GROUPS, seed=5)
    domains = [batch.groups % 3 == domain for domain in range(3)]
    losses = [F.cross_entropy(output.logits[rows], batch.targets[rows]) for rows in domains]
    found = create_method(name, SETUP, options).loss(output, batch, make_context())
    assert torch.equal(found, torch.stack(losses).mean())


@pytest.mark.parametrize("iteration", [0, 500])
def test_without_bottleneck_ib_irm_is_irm_bit_for_bit(iteration):
    (output, batch), context = make_grouped(GROUPS, seed=8), make_context(iteration=iteration)
    found = create_method("ib_irm", SETUP, {"ib": 0.0}).loss(output, batch, context)
    assert torch.equal(found, IRM(SETUP).loss(output, batch, context))


def test_half_precision_is_computed_in_single():
    """Features near 300 have squares that half precision does not hold."""
    output, batch = make_grouped(GROUPS, seed=5)
    halved = Output((300 + output.features.detach()).half(), output.logits.detach().half())
    found = CORAL(SETUP).loss(halved, batch, make_context())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = CORAL(SETUP).loss(halved, batch, make_context())
    assert found.dtype == torch.float32
    assert torch.equal(found, mixed)
    wanted = CORAL(SETUP).loss(Output(*(values.double() for values in halved)), batch, make_context())
    assert float(found) == pytest.approx(float(wanted), rel=1e-4)


@pytest.mark.parametrize(
    ("anneal_steps", "iteration", "progress", "weight"),
    [
        (0, 0, 0.0, 7.0),
        (1, 0, 0.0, 1.0),  # 1 is a step, not the whole of training
        (1, 1, 0.01, 7.0),
        (0.3, 29, 0.29, 1.0),
        (0.3, 30, 0.3, 7.0),
        (20, 19, 0.99, 1.0),
        (20, 20, 0.01, 7.0),
    ],
)
def test_the_weight_jumps_after_a_number_of_steps_or_a_share_of_training(anneal_steps, iteration, progress, weight):
    method = IRM(SETUP, penalty=7.0, anneal_steps=anneal_steps)
    assert method.penalty_weight(make_context(iteration=iteration, progress=progress)) == weight


@pytest.mark.parametrize(("reset", "counts"), [(True, [1, 2, 1, 2, 3]), (False, [1, 2, 3, 4, 5])])
def test_the_optimiser_starts_afresh_once_at_the_jump_if_it_shall(reset, counts):
    method = IRM(SETUP, anneal_steps=2, reset_optimizer=reset)
    model = create_model("mlp", 3, (5,), hidden=4).double()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    found = []
    batch = make_batch(1, size=8, classes=3)._replace(groups=torch.arange(8) % 4)
    for iteration in range(5):
        method.step(batch, make_context(model, optimizers=[optimizer], iteration=iteration))
        found.append(int(optimizer.state[model.head.weight]["step"]))
    assert found == counts


def test_a_training_too_short_for_the_jump_is_warned_of():
    method = IRM(SETUP, anneal_steps=60)  # ten epochs of six batches: iterations 0..59
    with pytest.warns(UserWarning, match=r"anneal_steps is 60, and this training has 60 steps: .* weight of 100.0"):
        method.on_stage_start(make_context())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for steps in (59, 0.9, 0):
            IRM(SETUP, anneal_steps=steps).on_stage_start(make_context())


def test_a_penalty_method_without_penalties_says_so():
    batch = Batch(torch.zeros(2, 4), torch.tensor([0, 1]), torch.tensor([0, 1]), torch.arange(2))
    with pytest.raises(TypeError, match="DomainPenalty does not define penalties"):
        DomainPenalty(SETUP).loss(Output(batch.inputs, torch.zeros(2, 3)), batch, make_context())


@pytest.mark.parametrize(("name", "option"), [("coral", "gamma"), ("ib_irm", "ib")])
def test_a_penalty_on_fixed_features_is_warned_of(name, option):
    def start(model, **options):
        network = create_model(model, 3, (5,))
        method = create_method(name, SETUP, options | ({"anneal_steps": 0} if name == "ib_irm" else {}))
        method.on_stage_start(make_context(network))

    with pytest.warns(UserWarning, match=rf"acts on features, and this network's are fixed: its penalty \({option}="):
        start("linear")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        start("linear", **{option: 0.0})
        start("mlp")


FEW = Setup(2, 4, torch.tensor([6, 4]), 1, 10, torch.tensor([4, 2, 1, 3]), group_domains=torch.tensor([0, 1, 0, 1]))


@pytest.mark.parametrize("name", OFF)
@pytest.mark.parametrize("sampling", ["domain_balanced", "group_balanced", "uniform"])
def test_samples_are_drawn_as_asked(name, sampling):
    method = create_method(name, FEW, {"sampling": sampling})
    assert [stage.sampling for stage in method.stages(3)] == [sampling]


@pytest.mark.parametrize("name", [*OFF, "fish", "domain_mix", "lisa"])
def test_domains_without_samples_do_not_count(name):
    create_method(name, FEW)
    lonely = replace(FEW, group_counts=torch.tensor([6, 0, 4, 0]))
    with pytest.raises(ValueError, match="compares domains, and the training set has samples of 1"):
        create_method(name, lonely)
