"""The look-ahead against double backward, finite differences, closed forms and one process."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from icda.data.task import Batch
from icda.functional.strength import Strength
from icda.losses import ICDALoss
from icda.meta import Forward, look_ahead
from icda.meta.moments import normalised, with_values
from icda.methods.base import Setup
from icda.methods.meta_icda import MetaICDAMethod
from icda.methods.meta_weight_net import MetaWeightNet
from icda.methods.metasaug import MetaSAug
from icda.models import FeatureClassifier, create_model
from support import make_context, meta_gradients

RATE = 0.3
CLASSES = 4


def network(kind="resnet8"):
    if kind == "dropout":
        encoder = nn.Sequential(nn.Flatten(), nn.Linear(3 * 64, 12), nn.Tanh(), nn.Dropout(0.4))
        return FeatureClassifier(encoder, nn.Linear(12, CLASSES)).double()
    return create_model(kind, CLASSES, (3, 8, 8)).double()


def batch(size, seed):
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(size, 3, 8, 8, generator=generator, dtype=torch.float64)
    targets = torch.randint(CLASSES, (size,), generator=generator)
    return Batch(inputs, targets, None, torch.arange(size))


def setup(model):
    return Setup(CLASSES, model.feature_dim, torch.tensor([40, 20, 10, 5]), epochs=1, num_samples=75)


def weighted(weights, targets):
    """An inner loss with a weight for each sample."""
    return lambda logits, weight: (weights * F.cross_entropy(logits, targets, reduction="none")).mean()


def close(found, wanted, tolerance):
    if found.dim() == 3 and found.shape[1] == found.shape[2]:  # a covariance: P reads its symmetric part alone
        found, wanted = found + found.mT, wanted + wanted.mT
    scale = wanted.abs().max()
    assert scale > 0, "a gradient that is zero proves nothing"
    assert (found - wanted).abs().max() <= tolerance * scale


METHODS = {
    "meta_icda full covariance": lambda model: MetaICDAMethod(setup(model), covariance="full"),
    "meta_icda diagonal": lambda model: MetaICDAMethod(setup(model), covariance="diagonal"),
    "meta_icda low rank": lambda model: MetaICDAMethod(setup(model), covariance="low_rank", rank=3),
    "meta_icda tanh": lambda model: MetaICDAMethod(setup(model), strength_output="tanh", beta=5.0),
    "meta_icda linear": lambda model: MetaICDAMethod(setup(model), strength_output="linear", beta=3.0),
    "meta_icda memory": lambda model: MetaICDAMethod(setup(model), strength_output="tanh", beta=10.0, memory=True),
    "meta_icda withdrawal": lambda model: MetaICDAMethod(
        setup(model), strength_output="tanh", beta=5.0, withdrawal=3.0, memory=True
    ),
    "meta_icda not centred": lambda model: MetaICDAMethod(
        setup(model), strength_output="linear", beta=3.0, centre_strengths=False
    ),
    "metasaug": lambda model: MetaSAug(setup(model), start=0),
    "meta_weight_net": lambda model: MetaWeightNet(setup(model)),
    "meta_weight_net normalised": lambda model: MetaWeightNet(setup(model), normalise=True),
}


WAYS = {
    "exact": ("full", False, 1e-8),
    "outputs reused": ("full", True, 1e-8),
    "difference": ("difference", True, 1e-5),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", METHODS)
def test_full_look_ahead_equals_double_backward_through_a_batchnorm_resnet(name, way):
    mode, record, tolerance = WAYS[way]
    model, data, metadata = network(), batch(12, 1), batch(9, 2)
    method = METHODS[name](model).double().train()
    where = make_context(model.train(), rate=RATE, next_metadata=lambda: metadata, iteration=9, progress=0.9)
    forward = Forward.of(model, data.inputs, record)
    method.observe(forward.output, data, where)
    tensors, inner = method.outer(forward.output, data, where)
    found = look_ahead(model, forward, inner, tensors, metadata.inputs, metadata.targets, RATE, mode)
    tensors, inner = method.outer(forward.output, data, where)  # anew: the first graph is spent
    wanted = meta_gradients(model, data, metadata, inner, tensors, RATE, forward.random_state[0])
    for gradient, reference in zip(found.gradients, wanted, strict=True):
        if name == "meta_icda linear" and gradient.shape == (1,):  # what all strengths share is taken off again
            assert max(float(gradient.abs()), float(reference.abs())) < 1e-15
        else:
            close(gradient, reference, tolerance)


@pytest.mark.parametrize("way", WAYS)
def test_full_look_ahead_draws_the_same_dropout_masks_again(way):
    mode, record, tolerance = WAYS[way]
    model, data, metadata = network("dropout"), batch(12, 1), batch(9, 2)
    forward = Forward.of(model.train(), data.inputs, record)
    weights = torch.randn(12, dtype=torch.float64).requires_grad_()

    inner = weighted(weights, data.targets)
    # The metadata pass draws masks of its own: fix them so that both ways see the same.
    torch.manual_seed(7)
    found = look_ahead(model, forward, inner, [weights], metadata.inputs, metadata.targets, RATE, mode)
    torch.manual_seed(7)
    wanted = meta_gradients(model, data, metadata, inner, [weights], RATE, forward.random_state[0])
    close(found.gradients[0], wanted[0], tolerance)


class HeadProblem:
    """ICDA on a linear model: its outer variables, and the adjusted logits as a function of them and of the weight."""

    def __init__(self):
        torch.manual_seed(3)
        self.model = FeatureClassifier(nn.Flatten(), nn.Linear(3 * 64, CLASSES)).double()
        self.data, self.metadata = batch(7, 1), batch(6, 2)
        self.features = self.model.encoder(self.data.inputs)
        self.weight, self.bias = self.model.head.weight.detach(), self.model.head.bias.detach()
        criterion = ICDALoss(CLASSES, 3 * 64, torch.tensor([4, 3, 2, 1]), covariance="diagonal").double()
        criterion.statistics.update(self.features, self.data.targets)
        self.criterion, self.running = criterion, criterion.statistics.moments()
        self.direct = criterion.strength(self.features, self.data.targets, self.weight)
        mean, variances = normalised(self.running)
        self.outer = {"alpha": self.direct.per_sample, "mean": mean, "variances": variances + 0.1}

    def adjusted(self, outer, logits, weight):
        strength = Strength(self.direct.per_class, outer["alpha"])
        moments = with_values(self.running, [outer["mean"], outer["variances"]])
        return logits + self.criterion.combine(self.data.targets, weight, 0.8, strength, moments)

    def look_ahead(self, mode):
        leaves = {name: value.detach().clone().requires_grad_() for name, value in self.outer.items()}

        def inner(logits, weight):
            return F.cross_entropy(self.adjusted(leaves, logits, weight), self.data.targets)

        forward = Forward.of(self.model, self.data.inputs)
        meta_inputs, meta_targets = self.metadata.inputs, self.metadata.targets
        found = look_ahead(self.model, forward, inner, list(leaves.values()), meta_inputs, meta_targets, RATE, mode)
        return dict(zip(leaves, found.gradients, strict=True))

    def virtual_head(self, outer):
        head = [self.weight.clone().requires_grad_(), self.bias.clone().requires_grad_()]
        logits = F.linear(self.features, *head)
        loss = F.cross_entropy(self.adjusted(outer, logits, head[0]), self.data.targets)
        slopes = torch.autograd.grad(loss, head)
        return [(value - RATE * slope).detach() for value, slope in zip(head, slopes, strict=True)]

    def meta_loss(self, head):
        return F.cross_entropy(F.linear(self.model.encoder(self.metadata.inputs), *head), self.metadata.targets)


@pytest.mark.parametrize("name", ["alpha", "mean", "variances"])
def test_head_look_ahead_equals_finite_differences(name):
    problem = HeadProblem()
    gradient = problem.look_ahead("head")[name].flatten()
    flat, step = problem.outer[name].flatten(), 1e-5
    for place in torch.randperm(flat.numel(), generator=torch.Generator().manual_seed(0))[:12].tolist():
        ends = []
        for sign in (1, -1):
            moved = flat.clone()
            moved[place] += sign * step
            outer = {**problem.outer, name: moved.view_as(problem.outer[name])}
            ends.append(float(problem.meta_loss(problem.virtual_head(outer))))
        difference = (ends[0] - ends[1]) / (2 * step)
        assert abs(float(gradient[place]) - difference) <= 1e-9 + 1e-6 * abs(difference)


def test_head_look_ahead_equals_full_where_only_the_head_is_trained():
    problem = HeadProblem()
    head, full = problem.look_ahead("head"), problem.look_ahead("full")
    for name in problem.outer:
        assert torch.allclose(head[name], full[name], rtol=1e-12, atol=1e-15)


def test_head_look_ahead_equals_the_closed_form_for_alpha():
    """mathematics 3.3: dL_meta/dalpha_i = -(eta/n) beta q~_{i,y} sum_{c != y} q~_{i,c} E_{i,c}."""
    problem = HeadProblem()
    found = problem.look_ahead("head")["alpha"]
    head = [value.requires_grad_() for value in problem.virtual_head(problem.outer)]
    pull_weight, pull_bias = torch.autograd.grad(problem.meta_loss(head), head)

    def adjusted(weight):
        return problem.adjusted(problem.outer, F.linear(problem.features, weight, problem.bias), weight)

    slopes = torch.autograd.functional.jacobian(adjusted, problem.weight)
    along = torch.einsum("ncka,ka->nc", slopes, pull_weight) + pull_bias
    q = torch.softmax(adjusted(problem.weight), 1)
    for i, y in enumerate(problem.data.targets.tolist()):
        mean = sum(q[i, c] * (along[i, c] - along[i, y]) for c in range(CLASSES) if c != y)
        wanted = -(RATE / len(q)) * problem.criterion.beta * q[i, y] * mean
        assert torch.allclose(found[i], wanted, rtol=1e-9, atol=1e-16)


@pytest.mark.parametrize("mode", ["full", "head", "difference"])
def test_buffers_parameters_and_random_state_are_left_as_they_were(mode):
    model, data, metadata = network().train(), batch(12, 1), batch(9, 2)
    forward = Forward.of(model, data.inputs)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    random_state = torch.get_rng_state()
    weights = torch.ones(12, dtype=torch.float64, requires_grad=True)

    inner = weighted(weights, data.targets)
    look_ahead(model, forward, inner, [weights], metadata.inputs, metadata.targets, RATE, mode)
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), name
    assert torch.equal(torch.get_rng_state(), random_state)
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("way", WAYS)
def test_the_shared_forward_pass_still_serves_the_real_step(way):
    mode, record, _ = WAYS[way]
    model, data, metadata = network().train(), batch(12, 1), batch(9, 2)
    reference = {name: value.clone() for name, value in model.state_dict().items()}
    weights = torch.ones(12, dtype=torch.float64, requires_grad=True)

    inner = weighted(weights, data.targets)
    forward = Forward.of(model, data.inputs, record)
    look_ahead(model, forward, inner, [weights], metadata.inputs, metadata.targets, RATE, mode)
    F.cross_entropy(forward.output.logits, data.targets).backward()
    found = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    model.load_state_dict(reference)
    F.cross_entropy(model(data.inputs).logits, data.targets).backward()
    for gradient, parameter in zip(found, model.parameters(), strict=True):
        assert torch.equal(gradient, parameter.grad)


def test_a_variable_the_inner_loss_does_not_use_gets_a_zero_gradient():
    model, data, metadata = network().train(), batch(12, 1), batch(9, 2)
    idle = torch.ones(3, dtype=torch.float64, requires_grad=True)
    forward = Forward.of(model, data.inputs)
    used = torch.ones((), dtype=torch.float64, requires_grad=True)

    def inner(logits, weight):
        return used * F.cross_entropy(logits, data.targets)

    found = look_ahead(model, forward, inner, [idle, used], metadata.inputs, metadata.targets, RATE)
    assert torch.equal(found.gradients[0], torch.zeros(3, dtype=torch.float64))
    assert found.gradients[1].abs() > 0


def test_a_model_without_a_linear_head_is_refused():
    model = FeatureClassifier(nn.Identity(), nn.Conv2d(3, CLASSES, 8)).double()
    data = batch(4, 1)
    forward = Forward(data.inputs, model.encoder(data.inputs), [torch.get_rng_state()])
    with pytest.raises((ValueError, AttributeError), match=r"linear head|logits"):
        look_ahead(model, forward, lambda z, w: z.sum(), [], data.inputs, data.targets, RATE)


RANK_CLASSES, RANK_RATE = 3, 0.5
SHARES = {"equal": (slice(0, 4), slice(4, 8)), "unequal": (slice(0, 6), slice(6, 8))}


def problem():
    """A network, inputs of a batch of 8 and of 8 metadata samples, and class weights to learn."""
    torch.manual_seed(0)
    model = create_model("mlp", RANK_CLASSES, (5,), hidden=6).double()
    inputs, metadata = (torch.randn(8, 5, dtype=torch.float64) for _ in range(2))
    return model, inputs, metadata, torch.tensor([1.0, 2.0, 0.5], dtype=torch.float64, requires_grad=True)


def gradients(rows, meta_rows, mode):
    model, inputs, metadata, weights = problem()
    targets = (torch.arange(8) % RANK_CLASSES)[rows]

    def inner(logits, weight):
        return (weights[targets] * F.cross_entropy(logits, targets, reduction="none")).mean()

    forward = Forward.of(model, inputs[rows], record=mode == "difference")
    meta_targets = (torch.arange(8) % RANK_CLASSES)[meta_rows]
    return look_ahead(model, forward, inner, [weights], metadata[meta_rows], meta_targets, RANK_RATE, mode)


def on_rank(rank):
    found = {}
    for share, rows in SHARES.items():
        for mode in ("full", "head", "difference"):
            # The rank with the larger part of the batch has the smaller part of the metadata.
            result = gradients(rows[rank], SHARES["equal"][rank] if share == "equal" else ODD[rank], mode)
            found[f"{share} {mode}"] = (result.gradients[0], result.meta_loss)
    return found


ODD = (slice(0, 3), slice(3, 8))


@pytest.fixture(scope="module")
def two_ranks(run_on_ranks):
    return run_on_ranks(on_rank)


@pytest.mark.parametrize("mode", ["full", "head", "difference"])
@pytest.mark.parametrize("share", SHARES)
def test_two_ranks_look_ahead_as_one_process_does(share, mode, two_ranks):
    whole = gradients(slice(None), slice(None), mode)
    assert whole.gradients[0].abs().min() > 1e-4
    for rank in two_ranks:
        gradient, meta_loss = rank[f"{share} {mode}"]
        # Both take the same step, so that their differences err alike but for rounding, which the step makes larger.
        rtol = 1e-6 if mode == "difference" else 1e-10
        torch.testing.assert_close(gradient, whole.gradients[0], rtol=rtol, atol=1e-14)
        torch.testing.assert_close(meta_loss, whole.meta_loss, rtol=1e-12, atol=0)
