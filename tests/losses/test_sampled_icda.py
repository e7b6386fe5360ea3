"""ICDA on a part of the classes: against the loss of that part alone, against all classes, and on average."""

from itertools import combinations
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from icda.losses import ICDALoss, SampledICDALoss
from icda.losses.batch import LossBatch
from icda.losses.sampled_icda import Subset

CLASSES, FEATURES = 9, 5
COUNTS = torch.tensor([40, 30, 20, 10, 9, 8, 7, 3, 2])
KINDS = [{"covariance": "diagonal"}, {"covariance": "low_rank", "rank": 2}, {"covariance": "full"}]


def batch(seed=1):
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(8, FEATURES, generator=generator, dtype=torch.float64)
    return features.requires_grad_(), torch.tensor([0, 3, 3, 6, 0, 7, 6, 0])


def head():
    torch.manual_seed(0)
    return nn.Linear(FEATURES, CLASSES).double()


def prepared(loss):
    """With statistics of all classes."""
    generator = torch.Generator().manual_seed(9)
    rows = torch.randn(60, FEATURES, generator=generator, dtype=torch.float64)
    loss.double().statistics.update(rows, torch.arange(60) % CLASSES)
    return loss


def both(loss, progress=0.7, **given):
    """The value and its gradients at features, weight and bias."""
    (features, targets), layer = batch(), head()
    value = loss(features, targets, layer, progress, **given)
    value.backward()
    assert layer.weight.grad is not None
    assert layer.bias.grad is not None
    assert features.grad is not None
    return [value.detach(), features.grad, layer.weight.grad, layer.bias.grad]


@pytest.mark.parametrize("options", KINDS, ids=lambda options: options["covariance"])
def test_without_negatives_it_is_the_loss_of_the_batchs_classes_alone(options):
    found = both(prepared(SampledICDALoss(CLASSES, FEATURES, COUNTS, negatives=0, **options)))
    (features, targets), layer = batch(), head()
    classes, places = torch.unique(targets, return_inverse=True)
    whole = prepared(ICDALoss(CLASSES, FEATURES, COUNTS, **options))
    small = ICDALoss(len(classes), FEATURES, COUNTS[classes], **options).double()
    for name, buffer in whole.statistics.named_buffers():
        setattr(small.statistics, name, buffer[classes].clone())
    value = small(features, places, (layer.weight[classes], layer.bias[classes]), 0.7)
    value.backward()
    for mine, other in zip(found, [value.detach(), features.grad, layer.weight.grad, layer.bias.grad], strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize("given_logits", [False, True])
@pytest.mark.parametrize("options", KINDS, ids=lambda options: options["covariance"])
def test_with_all_other_classes_it_is_icda(options, given_logits):
    """Values, gradients and statistics; the same whether logits are given or not."""
    losses = [
        prepared(SampledICDALoss(CLASSES, FEATURES, COUNTS, negatives=100, **options)),
        prepared(ICDALoss(CLASSES, FEATURES, COUNTS, **options)),
    ]
    results = []
    for loss in losses:
        (features, targets), layer = batch(), head()
        value = loss(features, targets, layer, 0.7, layer(features) if given_logits else None)
        value.backward()
        results.append([value.detach(), features.grad, layer.weight.grad, layer.bias.grad, *loss.statistics.buffers()])
    for mine, other in zip(*results, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-9, atol=1e-13)


class Chosen(SampledICDALoss):
    """With negatives that a test says."""

    chosen: tuple[int, ...] = ()

    def draw(self, targets: Tensor) -> Subset:
        own, places = torch.unique(targets, return_inverse=True)
        mass = torch.cat(
            [torch.ones(len(own)), torch.full((len(self.chosen),), (CLASSES - len(own)) / len(self.chosen))]
        )
        return Subset(torch.cat([own, torch.tensor(self.chosen)]), places, mass.double())


def test_the_sum_of_the_softmax_is_right_on_average_over_all_draws_and_the_loss_too_small():
    """With lambda = 0 its terms are those of ICDA; the mean over all draws of 2 of 5 is then exact."""
    options: dict[str, Any] = {"covariance": "diagonal", "reduction": "none"}
    whole = prepared(ICDALoss(CLASSES, FEATURES, COUNTS, **options))
    (features, targets), layer = batch(), head()
    rest = sorted(set(range(CLASSES)) - set(targets.tolist()))
    losses = []
    for chosen in combinations(rest, 2):
        loss = prepared(Chosen(CLASSES, FEATURES, COUNTS, negatives=2, **options))
        loss.chosen = chosen
        losses.append(loss(features, targets, layer, 0.0).detach())
    wanted = whole(features, targets, layer, 0.0).detach()
    # loss = log(sum of exponentials / that of the target): its exponential is linear in the sum.
    torch.testing.assert_close(torch.stack(losses).exp().mean(0), wanted.exp(), rtol=1e-10, atol=0)
    assert (torch.stack(losses).mean(0) < wanted).all()


def test_mixed_covariances_are_right_on_average_over_all_draws():
    """The quadratic term of a class of the batch, for which every draw has an estimate."""
    options: dict[str, Any] = {"covariance": "diagonal", "variance_bound": 1e9}
    whole = prepared(ICDALoss(CLASSES, FEATURES, COUNTS, **options)).eval()
    (features, targets), layer = batch(), head()
    own = sorted(set(targets.tolist()))
    rest = sorted(set(range(CLASSES)) - set(own))
    found = []
    for chosen in combinations(rest, 2):
        loss = prepared(Chosen(CLASSES, FEATURES, COUNTS, negatives=2, **options))
        loss.chosen = chosen
        subset = loss.draw(targets)
        weight = layer.weight[subset.classes]
        strength = loss.strength(features.detach(), subset.targets, weight)
        given = LossBatch(features, targets, layer.weight, None, 0.7)
        *_, term = loss._subset_terms(subset.targets, weight, 0.7, strength, given, subset)
        found.append(term.detach()[:, : len(own)])
    strength = whole.strength(features.detach(), targets, layer.weight)
    bare = ICDALoss(CLASSES, FEATURES, covariance="diagonal", beta=0.0, class_margin=False, variance_bound=1e9).double()
    wanted = bare.combine(targets, layer.weight, 0.7, strength, whole.statistics.moments())
    torch.testing.assert_close(torch.stack(found).mean(0), wanted.detach()[:, own], rtol=1e-10, atol=1e-13)


def test_negatives_are_drawn_evenly_without_repetition_and_never_from_the_batch():
    loss = SampledICDALoss(CLASSES, FEATURES, negatives=2)
    _, targets = batch()
    torch.manual_seed(0)
    seen = torch.zeros(CLASSES)
    for _ in range(600):
        subset = loss.draw(targets)
        assert subset.classes[:4].tolist() == [0, 3, 6, 7]
        assert len(set(subset.classes.tolist())) == 6
        assert torch.equal(subset.classes[subset.targets], targets)
        assert subset.mass.tolist() == [1, 1, 1, 1, 2.5, 2.5]
        assert subset.others == CLASSES - 1
        seen[subset.classes[4:]] += 1
    assert seen[[0, 3, 6, 7]].sum() == 0
    assert (seen[[1, 2, 4, 5, 8]] - 240).abs().max() < 60  # five standard deviations


def test_a_seed_repeats_a_step_and_weights_of_classes_not_drawn_have_no_gradient():
    results = []
    for _ in range(2):
        torch.manual_seed(5)
        loss = prepared(SampledICDALoss(CLASSES, FEATURES, COUNTS, negatives=2, covariance="diagonal"))
        layer = head()
        torch.manual_seed(6)
        features, targets = batch()
        loss(features, targets, layer, 0.5).backward()
        results.append(layer.weight.grad)
    assert torch.equal(results[0], results[1])
    assert int((results[0].abs().sum(1) > 0).sum()) == 6


def test_class_weights_ignored_labels_and_attributes_mean_what_they_mean_to_icda():
    weights = torch.linspace(1, 2, CLASSES)
    table = torch.arange(1, 2 * CLASSES + 1).view(2, CLASSES)
    for options, given in (
        ({"class_weight": weights}, {}),
        ({"ignore_index": 6}, {}),
        ({"prior": table}, {"attributes": torch.arange(8) % 2}),
        ({}, {"log_prior": torch.randn(8, CLASSES, dtype=torch.float64)}),
    ):
        losses = [
            prepared(kind(CLASSES, FEATURES, COUNTS, covariance="diagonal", **options, **more))
            for kind, more in ((SampledICDALoss, {"negatives": 100}), (ICDALoss, {}))
        ]
        for mine, other in zip(*(both(loss, **given) for loss in losses), strict=True):
            torch.testing.assert_close(mine, other, rtol=1e-9, atol=1e-13)


def test_in_eval_mode_no_class_is_left_out():
    few, all_classes = (
        prepared(kind(CLASSES, FEATURES, COUNTS, covariance="diagonal")).eval() for kind in (SampledICDALoss, ICDALoss)
    )
    few.negatives = 0
    (features, targets), layer = batch(), head()
    assert torch.equal(few(features, targets, layer), all_classes(features, targets, layer))
    assert torch.equal(few.adjustment(features, targets, layer), all_classes.adjustment(features, targets, layer))


def test_a_refused_call_changes_nothing():
    loss = prepared(SampledICDALoss(CLASSES, FEATURES, COUNTS, negatives=2, covariance="diagonal"))
    before = {name: value.clone() for name, value in loss.state_dict().items()}
    (features, targets), layer = batch(), head()
    soft = F.one_hot(targets, CLASSES).double()
    with pytest.raises(ValueError, match="soft targets have a share for classes that are not drawn"):
        loss(features, soft, layer)
    with pytest.raises(ValueError, match="NaN"):
        loss(features * torch.nan, targets, layer)
    with pytest.raises(ValueError, match="class_counts"):
        SampledICDALoss(CLASSES, FEATURES, torch.eye(CLASSES)[1] * 5).double()(features, targets, layer)
    for options in ({"label_smoothing": 0.1}, {"sample_strength": "mean"}):
        with pytest.raises(ValueError, match="sees a part of the classes"):
            SampledICDALoss(CLASSES, FEATURES, **options)
    with pytest.raises(ValueError, match="negatives"):
        SampledICDALoss(CLASSES, FEATURES, negatives=-1)
    for name, value in loss.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_a_batch_of_one_class_without_negatives_has_nothing_to_lose():
    loss = SampledICDALoss(CLASSES, FEATURES, covariance="diagonal", negatives=0).double()
    (features, _), layer = batch(), head()
    assert float(loss(features, torch.full((8,), 4), layer)) == 0
