"""What the losses with class statistics share: when they fold a batch in, what they cost, and that ranks do not matter."""

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from icda import ClassStatistics, ICDALoss, ISDALoss, RISDALoss
from icda.losses.augmented import choose_covariance
from support import drawn_batch

TYPES = [ISDALoss, RISDALoss, ICDALoss]
KINDS = ["full", "diagonal", "low_rank"]


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("covariance", KINDS)
def test_train_mode_folds_the_batch_in_before_the_loss_is_computed(kind, covariance):
    features, targets, head = drawn_batch(0, 9, 4, 3)
    loss, reference = (kind(4, 3, covariance=covariance).double() for _ in range(2))
    statistics = ClassStatistics(4, 3, covariance).double()
    value = loss(features, targets, head, progress=0.6)
    statistics.update(features, targets)
    for name, expected in statistics.state_dict().items():
        assert torch.equal(loss.statistics.state_dict()[name], expected), name
    reference(features, targets, head)
    assert torch.equal(reference.eval()(features, targets, head, progress=0.6), value)


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("covariance", KINDS)
@pytest.mark.parametrize("shape", [(9, 4, 3), (3, 8, 3)])
def test_backward_after_a_second_update_gives_the_gradient_of_the_first_graph(kind, covariance, shape):
    features, targets, head = drawn_batch(0, *shape)
    leaves = [features, head.weight, head.bias]
    alone, twice = (kind(shape[1], shape[2], covariance=covariance).double() for _ in range(2))
    expected = torch.autograd.grad(alone(features, targets, head), leaves)
    first = twice(features, targets, head)
    other, labels, _ = drawn_batch(1, *shape)
    second = twice(other, labels, head)
    found = torch.autograd.grad(first, leaves)
    for mine, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, wanted, rtol=0, atol=1e-12)
    assert torch.isfinite(torch.autograd.grad(second, head.weight)[0]).all()


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("covariance", KINDS)
def test_backward_after_a_merge_gives_the_gradient_of_the_first_graph(kind, covariance):
    features, targets, head = drawn_batch(0, 9, 4, 3)
    alone, merged = (kind(4, 3, covariance=covariance).double() for _ in range(2))
    expected = torch.autograd.grad(alone(features, targets, head), head.weight)[0]
    value = merged(features, targets, head)
    merged.statistics.merge(alone.statistics)
    torch.testing.assert_close(torch.autograd.grad(value, head.weight)[0], expected, rtol=0, atol=1e-12)


def test_auto_is_full_up_to_256_mib_and_diagonal_beyond_with_one_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert choose_covariance("auto", num_classes=16, feature_dim=2048) == "full"  # exactly 256 MiB
        assert choose_covariance("auto", num_classes=10, feature_dim=64) == "full"
        assert choose_covariance("full", num_classes=1000, feature_dim=2048) == "full"
        assert choose_covariance("low_rank", num_classes=1000, feature_dim=2048) == "low_rank"
    with pytest.warns(UserWarning, match="using diagonal ones") as caught:
        assert choose_covariance("auto", num_classes=17, feature_dim=2048) == "diagonal"
    assert len(caught) == 1
    with pytest.warns(
        UserWarning, match=r"100 classes and 512 features would cost 2\.6 GFLOP per step: using diagonal"
    ):
        assert choose_covariance("auto", num_classes=100, feature_dim=512) == "diagonal"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for num_classes, feature_dim in ((100, 64), (2, 2048), (2, 384), (100, 256), (10, 2048)):
            assert choose_covariance("auto", num_classes, feature_dim) == "full"  # sizes of our tables, and larger ones
    with pytest.warns(UserWarning, match=r"1000 classes and 2048 features would take 15\.6 GiB"):
        assert choose_covariance("auto", num_classes=1000, feature_dim=2048) == "diagonal"


@pytest.mark.parametrize("kind", TYPES)
def test_the_warning_comes_once_and_points_at_the_line_that_made_the_loss(kind):
    with pytest.warns(UserWarning, match="using diagonal ones") as caught:
        loss = kind(100, 1000)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert loss.statistics.kind == "diagonal"


def test_options_reach_the_statistics():
    for kind in TYPES:
        loss = kind(4, 3, covariance="low_rank", rank=2, forgetting=0.9, shrinkage=0.1)
        statistics = loss.statistics
        assert (statistics.kind, statistics.rank) == ("low_rank", 2)
        assert (statistics.forgetting, statistics.shrinkage) == (0.9, 0.1)
        with pytest.raises(ValueError, match="lambda0"):
            kind(4, 3, lambda0=-1.0)


class LargestTensor(TorchDispatchMode):
    """Remembers the largest storage, in numbers, that any operation returned."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor):
                self.numbers = max(self.numbers, leaf.untyped_storage().nbytes() // leaf.element_size())
        return result


def largest_in_a_step(kind, covariance, size, num_classes, dim):
    features, targets, head = drawn_batch(0, size, num_classes, dim)
    loss = kind(num_classes, dim, torch.arange(num_classes) + 1, covariance=covariance, rank=8).double()
    with LargestTensor() as probe:
        loss(features, targets, head, progress=0.5).backward()
    assert head.weight.grad is not None
    return probe.numbers


def test_the_probe_sees_what_forward_and_backward_create():
    weight = torch.randn(50, 40, requires_grad=True)
    with LargestTensor() as probe:
        value = weight.sum()
    assert probe.numbers == 1
    with probe:
        value.backward(retain_graph=True)
        (weight[None] - torch.randn(32, 1, 40)).square().sum()
    assert probe.numbers == 32 * 50 * 40


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("covariance", ["diagonal", "low_rank"])
def test_no_tensor_of_size_samples_times_classes_times_features_is_made(kind, covariance):
    assert largest_in_a_step(kind, covariance, 32, 50, 40) < 32 * 50 * 40


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize(("size", "num_classes", "dim"), [(32, 50, 40), (8, 50, 40), (300, 5, 40)])
def test_full_covariances_need_no_more_than_a_table_of_classes_or_a_matrix_a_sample(kind, size, num_classes, dim):
    limit = max(num_classes**2 * max(num_classes, dim), num_classes * dim * dim, size * dim * dim)
    assert largest_in_a_step(kind, "full", size, num_classes, dim) <= limit


@pytest.mark.parametrize("kind", TYPES)
def test_classes_that_outnumber_the_samples_need_no_table_over_pairs_of_classes(kind):
    size, num_classes, dim = 8, 50, 40
    assert largest_in_a_step(kind, "full", size, num_classes, dim) <= num_classes * dim * dim < num_classes**2 * dim


# How each step's batch of 12 is cut: evenly, unevenly, and by class, so that a class stands on one rank only.
CUTS = [6, 3, "by class"]
CASES = ["ISDALoss", "RISDALoss", "RISDALoss with its confusion set", "ICDALoss"]


def run_step(loss, features, targets, head):
    features = features.detach().requires_grad_()
    value = loss(features, targets, head, progress=0.6)
    gradients = torch.autograd.grad(value, [features, head.weight, head.bias])
    return {"size": torch.tensor(len(targets)), "loss": value.detach()} | dict(
        zip(("features", "weight", "bias"), gradients, strict=True)
    )


def rank_loss(case, covariance):
    options: dict[str, Any] = {"covariance": covariance, "rank": 3}
    if case == "ICDALoss":
        return ICDALoss(5, 3, torch.arange(5) + 1, beta=0.3, **options).double()
    if case == "ISDALoss":
        return ISDALoss(5, 3, **options).double()
    loss = RISDALoss(5, 3, torch.arange(5) + 1, head_classes=1, **options).double()
    if case.endswith("set"):
        loss.set_confusion(torch.arange(25.0).view(5, 5))
    return loss


def split(targets, cut):
    return targets < 2 if cut == "by class" else torch.arange(len(targets)) < cut


def steps_on_rank(rank):
    result = {}
    for case in CASES:
        for covariance in KINDS:
            loss, steps = rank_loss(case, covariance), []
            for seed, cut in enumerate(CUTS):
                features, targets, head = drawn_batch(seed, 12, 5, 3)
                mine = split(targets, cut) if rank == 0 else ~split(targets, cut)
                steps.append(run_step(loss, features[mine], targets[mine], head))
            result[case, covariance] = steps
    return result


@pytest.fixture(scope="module")
def on_two_ranks(run_on_ranks):
    return run_on_ranks(steps_on_rank, world_size=2)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("covariance", KINDS)
def test_two_ranks_give_the_loss_and_gradients_of_one_process(case, covariance, on_two_ranks):
    loss = rank_loss(case, covariance)
    for seed, cut in enumerate(CUTS):
        features, targets, head = drawn_batch(seed, 12, 5, 3)
        expected = run_step(loss, features, targets, head)
        parts = [result[case, covariance][seed] for result in on_two_ranks]
        shares = [part["size"] / 12 for part in parts]
        for name in ("loss", "weight", "bias"):
            found = sum(share * part[name] for share, part in zip(shares, parts, strict=True))
            torch.testing.assert_close(found, expected[name], rtol=0, atol=1e-6, msg=lambda m, n=name: f"{n}: {m}")
        first = split(targets, cut)
        for mine, share, part in zip((first, ~first), shares, parts, strict=True):
            torch.testing.assert_close(share * part["features"], expected["features"][mine], rtol=0, atol=1e-6)
