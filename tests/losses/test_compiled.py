"""torch.compile: one graph without breaks, one for all progress, and the values of eager mode."""

import copy
import linecache
import math
import re
from pathlib import Path

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters

import icda
from icda.errors import InputError
from icda.losses import LOSSES

CLASSES, FEATURES, SIZE = 5, 8, 12


@pytest.fixture(autouse=True)
def _fresh_compiler():
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()


def _batch(size=SIZE):
    generator = torch.Generator().manual_seed(3)
    return torch.randn(size, FEATURES, generator=generator), torch.arange(size) % (CLASSES - 1)  # one class is absent


def _make(name, **options):
    torch.manual_seed(0)
    return LOSSES.get(name)(CLASSES, FEATURES, torch.arange(1, CLASSES + 1) * 5, **options)


def _steps(call, loss, head, amounts, **given):
    """Values, gradients of features and head, and the state after a call for each progress."""
    found = []
    for amount in amounts:
        features, targets = _batch()
        features.requires_grad_()
        head.zero_grad()
        value = call(features, targets, head, amount, **given)
        value.sum().backward()
        found += [value.detach(), features.grad, head.weight.grad.clone()]
    return [*found, *(buffer.clone() for buffer in loss.buffers())]


def _assert_same(name, amounts, backend="eager", tolerance=1e-5, options=None, **given):
    loss, head = _make(name, **(options or {})), nn.Linear(FEATURES, CLASSES)
    twin, twin_head = copy.deepcopy(loss), copy.deepcopy(head)
    compiled = torch.compile(loss, backend=backend, fullgraph=True)
    ours = _steps(compiled, loss, head, amounts, **given)
    theirs = _steps(twin, twin, twin_head, amounts, **given)
    for left, right in zip(ours, theirs, strict=True):
        torch.testing.assert_close(left, right, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", list(LOSSES))
def test_every_loss_is_one_graph_with_the_values_of_eager_mode(name):
    _assert_same(name, [torch.tensor(amount) for amount in (0.0, 0.5, 1.0)])
    assert counters["stats"]["unique_graphs"] == 1


@pytest.mark.parametrize("kind", ["full", "diagonal", "low_rank"])
@pytest.mark.parametrize("bound", [30.0, 0.01, math.inf])
def test_gradients_of_the_operators_are_those_of_eager_mode(kind, bound):
    options = {"covariance": kind, "rank": 3, "variance_bound": bound}
    _assert_same("icda", [torch.tensor(0.5)] * 3, backend="aot_eager", options=options)


def test_more_classes_than_samples_take_the_form_per_sample():
    torch.manual_seed(0)
    loss, head = icda.ICDALoss(40, FEATURES, covariance="full"), nn.Linear(FEATURES, 40)
    twin = copy.deepcopy(loss)
    compiled = torch.compile(loss, backend="aot_eager", fullgraph=True)
    ours, theirs = _steps(compiled, loss, head, [torch.tensor(0.7)]), _steps(twin, twin, head, [0.7])
    for left, right in zip(ours, theirs, strict=True):
        torch.testing.assert_close(left, right)


def test_twenty_values_of_progress_are_two_graphs():
    """The first value is taken for a constant; from the second on it is an input of the graph."""
    _assert_same("icda", [step / 19 for step in range(20)])
    assert counters["stats"]["unique_graphs"] == 2


def test_a_progress_that_the_loss_does_not_read_is_no_constant_either():
    _assert_same("cross_entropy", [step / 19 for step in range(20)])
    assert counters["stats"]["unique_graphs"] == 2


@pytest.mark.parametrize(
    "given",
    [{"log_prior": torch.linspace(-2, 0, SIZE * CLASSES).view(SIZE, CLASSES)}, {"logits": torch.randn(SIZE, CLASSES)}],
)
def test_what_a_call_may_bring_besides_is_compiled_too(given):
    _assert_same("icda", [torch.tensor(0.5)], **given)


def test_a_prior_by_attribute_is_compiled():
    table = torch.tensor([[9.0, 1, 3, 2, 1], [1, 8, 0, 2, 4]])
    _assert_same("icda", [torch.tensor(0.5)], options={"prior": table}, attributes=torch.arange(SIZE) % 2)


def test_reduction_none_and_smoothing_and_weights_are_compiled():
    options = {"reduction": "none", "label_smoothing": 0.1, "class_weight": torch.arange(1.0, CLASSES + 1)}
    _assert_same("icda", [torch.tensor(0.5)], options=options)


@pytest.mark.parametrize(
    ("targets", "progress", "words"),
    [
        (torch.tensor([0, 7, 1]), 0.5, "label 7"),
        (torch.tensor([-100, -100, -100]), 0.5, "ignore_index"),
        (torch.tensor([0, 4, 1]), 0.5, "class_counts"),
        (torch.tensor([0, 3, 1]), 1.5, "progress"),
    ],
)
def test_a_compiled_loss_refuses_labels_and_progress_as_eager_mode_does(targets, progress, words):
    loss = icda.ICDALoss(CLASSES, FEATURES, torch.tensor([3, 3, 3, 3, 0]))
    compiled = torch.compile(loss, backend="eager", fullgraph=True)
    with pytest.raises(InputError, match=words):
        compiled(torch.randn(3, FEATURES), targets, nn.Linear(FEATURES, CLASSES), torch.tensor(progress))


def test_a_compiled_loss_refuses_an_infinite_feature_and_goes_on():
    loss, head, (features, targets) = icda.ICDALoss(CLASSES, FEATURES), nn.Linear(FEATURES, CLASSES), _batch()
    compiled = torch.compile(loss, backend="eager", fullgraph=True)
    compiled(features, targets, head, torch.tensor(0.5))
    before = loss.statistics.covariance.clone()
    spoilt = features.clone()
    spoilt[3, 2] = torch.inf
    with pytest.raises(InputError, match="infinite features"):
        compiled(spoilt, targets, head, torch.tensor(0.5))
    assert torch.equal(loss.statistics.covariance, before)


def test_ignored_targets_are_compiled_too():
    features, targets = _batch()
    targets[2] = -100
    loss, head = _make("icda"), nn.Linear(FEATURES, CLASSES)
    twin = copy.deepcopy(loss)
    found = torch.compile(loss, backend="eager", fullgraph=True)(features, targets, head, torch.tensor(0.5))
    torch.testing.assert_close(found, twin(features, targets, head, 0.5))
    assert loss.statistics.count.sum() == SIZE - 1


def test_the_block_of_the_page_runs():
    page = (Path(__file__).parents[2] / "docs" / "compile.md").read_text()
    (block,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    # dynamo reads the source of what it follows
    names = {}
    linecache.cache["compile.md"] = (len(block), None, block.splitlines(True), "compile.md")
    exec(compile(block, "compile.md", "exec"), names)
    assert names["loss_fn"].statistics.count.sum() == 16


def test_network_and_loss_compile_as_one_step():
    torch.manual_seed(0)
    network, loss = nn.Sequential(nn.Linear(6, FEATURES), nn.ReLU()), icda.ICDALoss(CLASSES, FEATURES)
    head, (_, targets), inputs = nn.Linear(FEATURES, CLASSES), _batch(), torch.randn(SIZE, 6)

    def step(inputs, targets, progress):
        features = network(inputs)
        return loss(features, targets, head, progress, head(features))

    value = torch.compile(step, backend="aot_eager", fullgraph=True)(inputs, targets, torch.tensor(0.5))
    value.backward()
    assert loss.statistics.count.sum() == SIZE
    assert all(torch.isfinite(parameter.grad).all() for parameter in network.parameters())
