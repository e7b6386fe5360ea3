"""What every loss promises, whatever its adjustment."""

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from icda import AdjustedLoss, CrossEntropyLoss, ICDALoss, ISDALoss, LogitAdjustmentLoss, RISDALoss
from icda.losses import LOSSES

EVERY: list[type[AdjustedLoss]] = [LOSSES.get(name) for name in LOSSES]
TYPES = [CrossEntropyLoss, LogitAdjustmentLoss, ISDALoss, RISDALoss, ICDALoss]
WITH_STATISTICS = [ISDALoss, RISDALoss, ICDALoss]
C, A, N = 4, 3, 10
COUNTS = torch.tensor([60, 25, 10, 5])
Batch = tuple[Tensor, Tensor, nn.Linear]


def make_batch(seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    head = nn.Linear(A, C).to(dtype)
    with torch.no_grad():
        head.weight.copy_(torch.randn(C, A, generator=generator))
        head.bias.copy_(torch.randn(C, generator=generator))
    features = torch.randn(N, A, generator=generator, dtype=torch.float64).to(dtype)
    return features.requires_grad_(), torch.randint(C, (N,), generator=generator), head


def make_loss(kind, warm=True, **options):
    """A loss in float64 that has seen two batches."""
    loss = kind(C, A, **{"class_counts": COUNTS, **options}).double()
    if warm:
        for seed in (100, 101):
            features, targets, head = make_batch(seed)
            loss(features, targets, head)
    return loss


def snapshot(module):
    return {name: value.clone() for name, value in module.state_dict().items()}


def assert_same_state(module, expected):
    found = module.state_dict()
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.equal(found[name], value), name


@pytest.mark.parametrize("kind", TYPES)
def test_the_loss_is_the_cross_entropy_of_logits_plus_adjustment(kind):
    loss, (features, targets, head) = make_loss(kind).eval(), make_batch()
    adjusted = head(features) + loss.adjustment(features, targets, head, progress=0.4)
    total = 0.0
    for i, y in enumerate(targets.tolist()):
        total += math.log(sum(math.exp(value) for value in adjusted[i].tolist())) - adjusted[i, y].item()
    assert loss(features, targets, head, progress=0.4).item() == pytest.approx(total / N, abs=1e-12)


@pytest.mark.parametrize("kind", TYPES)
def test_linear_convolution_and_tuple_heads_agree(kind):
    loss, (features, targets, linear) = make_loss(kind).eval(), make_batch()
    convolution = nn.Conv2d(A, C, 1).double()
    with torch.no_grad():
        convolution.weight.copy_(linear.weight[:, :, None, None])
        convolution.bias.copy_(linear.bias)
    expected = loss(features, targets, linear, progress=0.4)
    expected_gradient = torch.autograd.grad(expected, linear.weight)[0]
    pair = linear.weight, linear.bias
    for head, weight in ((convolution, convolution.weight), (pair, linear.weight), ([*pair], linear.weight)):
        value = loss(features, targets, head, progress=0.4)
        assert torch.equal(value, expected)
        assert torch.equal(torch.autograd.grad(value, weight)[0].flatten(1), expected_gradient)


@pytest.mark.parametrize("kind", TYPES)
def test_heads_without_bias_agree_with_a_bias_of_zero(kind):
    loss, (features, targets, linear) = make_loss(kind).eval(), make_batch()
    bare = nn.Linear(A, C, bias=False).double()
    bare.weight = linear.weight
    expected = loss(features, targets, (linear.weight, torch.zeros(C, dtype=torch.float64)), progress=0.4)
    for head in (bare, (linear.weight, None)):
        torch.testing.assert_close(loss(features, targets, head, progress=0.4), expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize("kind", TYPES)
def test_logits_already_computed_give_the_same_loss_and_gradients(kind):
    features, targets, head = make_batch()
    one, other = make_loss(kind), make_loss(kind)
    results = []
    for loss, logits in ((one, None), (other, head(features))):
        value = loss(features, targets, head, progress=0.4, logits=logits)
        results.append((value, *torch.autograd.grad(value, [features, head.weight, head.bias])))
    for found, expected in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-13)
    assert_same_state(other, snapshot(one))


@pytest.mark.parametrize("kind", EVERY)
def test_reductions_agree(kind):
    features, targets, head = make_batch()
    values = {name: make_loss(kind, reduction=name)(features, targets, head) for name in ("none", "mean", "sum")}
    assert values["none"].shape == (N,)
    torch.testing.assert_close(values["none"].mean(), values["mean"], rtol=0, atol=1e-13)
    torch.testing.assert_close(values["none"].sum(), values["sum"], rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", EVERY)
def test_evaluation_and_reading_the_adjustment_leave_the_state_alone(kind):
    loss, (features, targets, head) = make_loss(kind), make_batch()
    before = snapshot(loss)
    loss.adjustment(features, targets, head)
    loss.eval()
    loss(features, targets, head)
    assert_same_state(loss, before)


@pytest.mark.parametrize("kind", EVERY)
def test_without_gradients_a_loss_in_train_mode_only_computes(kind):
    """Nobody calls eval() on a loss: validation under no_grad must not count."""
    loss, (features, targets, head) = make_loss(kind), make_batch()
    before = snapshot(loss)
    with torch.no_grad():
        value = loss(features, targets, head, progress=0.4)
    assert_same_state(loss, before)
    assert torch.equal(value, loss.eval()(features, targets, head, progress=0.4))


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.integers(0, 10_000), st.sampled_from(TYPES), st.floats(0, 1), st.sampled_from([torch.float32, torch.float64]))
def test_the_adjustment_is_zero_at_the_target(seed, kind, progress, dtype):
    loss, (features, targets, head) = make_loss(kind).to(dtype), make_batch(seed, dtype)
    phi = loss.adjustment(features, targets, head, progress)
    assert phi.shape == (N, C)
    assert (phi.gather(1, targets[:, None]) == 0).all(), (
        f"{kind.__name__}: {phi.gather(1, targets[:, None]).abs().max()}"
    )


@pytest.mark.parametrize("kind", TYPES)
def test_the_adjustment_carries_no_gradient_to_the_features(kind):
    loss, (features, targets, head) = make_loss(kind), make_batch()
    phi = loss.adjustment(features, targets, head)
    if phi.requires_grad:
        assert torch.autograd.grad(phi.sum(), features, allow_unused=True)[0] is None


@pytest.mark.parametrize("kind", EVERY)
def test_state_dict_round_trip_gives_the_same_loss_from_there_on(kind):
    loss, (features, targets, head) = make_loss(kind), make_batch()
    restored = make_loss(kind, warm=False, class_counts=[1, 1, 1, 1])  # counts are state, too
    restored.load_state_dict(copy.deepcopy(loss.state_dict()))
    assert torch.equal(restored(features, targets, head, 0.4), loss(features, targets, head, 0.4))
    assert_same_state(restored, snapshot(loss))
    if not hasattr(loss, "statistics"):  # whose means and covariances a cast brings to single precision
        assert_same_state(loss.half().double(), snapshot(restored))


NAMES = {
    "ce": "CrossEntropyLoss",
    "logit-adjustment": "LogitAdjustmentLoss",
    "ICDA": "ICDALoss",
    "cb-ce": "ClassBalancedCrossEntropyLoss",
    "cb_focal": "ClassBalancedFocalLoss",
    "gce": "GeneralizedCrossEntropyLoss",
    "lq": "GeneralizedCrossEntropyLoss",
    "ALA": "AdaptiveLogitAdjustmentLoss",
    "center": "CenterLoss",
    "center-loss": "CenterLoss",
    "l_softmax": "LargeMarginSoftmaxLoss",
    "large-margin-softmax": "LargeMarginSoftmaxLoss",
}


@pytest.mark.parametrize(("name", "kind"), NAMES.items())
def test_losses_are_found_by_their_names(name, kind):
    assert LOSSES.get(name).__name__ == kind


# Without ICDA and ALA, whose strengths and margins are constants to the gradient.
DIFFERENTIABLE: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in ("logit_adjustment", "isda", "risda", "class_balanced_cross_entropy", "apl")),
    *(("focal", {"gamma": gamma}) for gamma in (0.5, 1.0, 2.0)),
    *(("class_balanced_focal", {"form": form, "gamma": 0.5}) for form in ("sigmoid", "softmax")),
    *(("generalized_cross_entropy", {"q": q}) for q in (0.0, 0.3, 1.0)),
    *(("large_margin_softmax", {"margin": margin, "base": 0.3, "gamma": 0.0}) for margin in (2, 3, 4)),
    ("ldam", {"scale": 5.0}),
    ("center_loss", {"weight": 0.5}),
]


@pytest.mark.parametrize(("name", "options"), DIFFERENTIABLE)
def test_gradients_are_those_of_finite_differences(name, options):
    loss, (features, targets, head) = make_loss(LOSSES.get(name), **options).eval(), make_batch()
    assert torch.autograd.gradcheck(
        lambda h, w, b: loss(h, targets, (w, b), progress=0.4), (features, head.weight, head.bias)
    )


BAD_OPTIONS: list[tuple[str, str, tuple[Any, ...]]] = [
    ("focal", "gamma", (-0.1, math.inf, math.nan)),
    ("class_balanced_cross_entropy", "effective_beta", (1.0, -0.1, math.nan)),
    ("class_balanced_focal", "gamma", (-1.0,)),
    ("class_balanced_focal", "form", ("tanh",)),
    ("generalized_cross_entropy", "q", (-0.1, 1.1, math.nan)),
    ("ldam", "max_margin", (-0.1, math.inf, math.nan)),
    ("ldam", "scale", (0.0, -1.0, math.inf, math.nan)),
    ("adaptive_logit_adjustment", "scale", (0.0, -1.0, math.inf, math.nan)),
    ("apl", "a", (-1.0, math.inf, math.nan)),
    ("apl", "b", (-0.1,)),
    ("center_loss", "weight", (-1.0, math.inf)),
    ("center_loss", "centre_rate", (1.5,)),
    ("large_margin_softmax", "margin", (0, 5)),
    ("large_margin_softmax", "base", (-1.0,)),
    ("large_margin_softmax", "gamma", (math.nan,)),
    ("large_margin_softmax", "lambda_min", (math.inf,)),
    ("sgida", "smoothing", (-0.1, 1.1, math.nan)),
    ("sgida", "triplet_weight", (-1.0,)),
    ("sgida", "triplet_margin", (-1.0,)),
    ("icda", "lambda0", (-0.1,)),
    ("icda", "beta", (-1,)),
    ("icda", "covariance", ("dense",)),
    ("icda", "sample_strength", ("network",)),
]


@pytest.mark.parametrize(("name", "option", "values"), BAD_OPTIONS)
def test_an_option_out_of_its_range_is_refused_by_its_name(name, option, values):
    for value in values:
        with pytest.raises(ValueError, match=rf"\b{option}\b"):
            LOSSES.get(name)(C, A, COUNTS, **{option: value})


@pytest.mark.parametrize("kind", [kind for kind in EVERY if kind.needs_counts])
def test_a_loss_of_counts_needs_them_and_samples_of_every_target(kind):
    with pytest.raises(ValueError, match=f"{kind.__name__} needs class_counts"):
        kind(C, A)
    features, _, head = make_batch()
    with pytest.raises(ValueError, match="class 1"):
        kind(C, A, torch.tensor([5, 0, 5, 5]))(features, torch.ones(N).long(), head)


def test_two_weights_of_zero_leave_no_active_passive_loss():
    with pytest.raises(ValueError, match="ActivePassiveLoss: a and b are both zero"):
        LOSSES.get("apl")(C, A, a=0.0, b=0.0)


NAN_ROW = torch.zeros(N, A, dtype=torch.float64).index_fill(0, torch.tensor([7]), float("nan"))
INF_ROW = torch.zeros(N, A, dtype=torch.float64).index_fill(0, torch.tensor([3]), float("inf"))
BAD_CALLS: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "negative label": ({"targets": torch.tensor([-1] * N)}, ValueError, r"label -1, outside 0\.\.3"),
    "label too large": ({"targets": torch.tensor([C] * N)}, ValueError, r"label 4, outside 0\.\.3"),
    "float labels": ({"targets": torch.zeros(N)}, TypeError, "integer class labels"),
    "labels of another number": ({"targets": torch.zeros(3).long()}, ValueError, "targets of shape"),
    "labels of numpy": ({"targets": np.zeros(N, int)}, TypeError, "expects targets as a torch.Tensor, got ndarray"),
    "features of numpy": ({"features": np.zeros((N, A))}, TypeError, "expects features as a torch.Tensor, got ndarray"),
    "features of lists": ({"features": [[0.0] * A] * N}, TypeError, "expects features as a torch.Tensor, got list"),
    "single features": ({"features": torch.zeros(N, A)}, TypeError, "torch.float32 and a head of torch.float64"),
    "meta features": ({"features": torch.zeros(N, A, device="meta")}, ValueError, "meta device"),
    "sparse features": ({"features": torch.zeros(N, A).to_sparse()}, TypeError, "dense tensor"),
    "huge features": ({"features": torch.full((N, A), 1e19).double()}, ValueError, "overflow"),
    "wrong width": ({"features": torch.zeros(N, 7)}, ValueError, r"\(N, 3\), got \(10, 7\)"),
    "4-D features": ({"features": torch.zeros(N, A, 1, 1)}, ValueError, "flatten"),
    "NaN features": ({"features": NAN_ROW}, ValueError, "row 7"),
    "infinite features": ({"features": INF_ROW}, ValueError, "row 3"),
    "empty batch": ({"features": torch.zeros(0, A), "targets": torch.zeros(0).long()}, ValueError, "empty batch"),
    "progress below 0": ({"progress": -0.1}, ValueError, r"progress is t/T in \[0, 1\], got -0\.1"),
    "progress above 1": ({"progress": 1.5}, ValueError, r"progress is t/T in \[0, 1\], got 1\.5"),
    "progress NaN": ({"progress": math.nan}, ValueError, "progress"),
    "no progress": ({"progress": None}, TypeError, "progress is a number"),
    "NaN head": ({"head": (torch.full((C, A), math.nan).double(), None)}, ValueError, "or a head whose weights are"),
    "lazy head": ({"head": nn.LazyLinear(C)}, ValueError, "lazy layer"),
    "head of numpy": ({"head": (np.zeros((C, A)), None)}, TypeError, "head's weight as a torch.Tensor, got ndarray"),
    "wrong head": ({"head": nn.Linear(A, C + 1)}, ValueError, r"of shape \(4, 3\), got \(5, 3\)"),
    "no head": ({"head": nn.ReLU()}, TypeError, "head must be"),
    "wrong bias": ({"head": (torch.zeros(C, A).double(), torch.zeros(C + 1).double())}, ValueError, "bias"),
    "wrong logits": ({"logits": torch.zeros(N, C + 2).double()}, ValueError, "logits"),
    "NaN logits": ({"logits": torch.full((N, C), math.nan).double()}, ValueError, "NaN or infinite logits"),
    "logits of numpy": ({"logits": np.zeros((N, C))}, TypeError, "expects logits as a torch.Tensor, got ndarray"),
    "logits of another number": ({"logits": torch.zeros(N - 1, C).double()}, ValueError, "logits"),
}


@pytest.mark.parametrize("kind", EVERY)
@pytest.mark.parametrize("case", BAD_CALLS)
def test_bad_input_is_refused_and_nothing_is_lost(kind, case):
    loss, (features, targets, head) = make_loss(kind), make_batch()
    before = snapshot(loss)
    changes, error, message = BAD_CALLS[case]
    with pytest.raises(error, match=message):
        loss(**{"features": features, "targets": targets, "head": head, "progress": 0.5, **changes})
    assert_same_state(loss, before)
    assert torch.isfinite(loss(features, targets, head))


def test_a_target_whose_count_is_zero_is_refused_and_nothing_is_lost():
    features, _, head = make_batch()
    for kind in (LogitAdjustmentLoss, ICDALoss):
        loss = kind(C, A, class_counts=torch.tensor([5, 0, 5, 5])).double()
        loss(features, torch.zeros(N).long(), head)
        before = snapshot(loss)
        with pytest.raises(ValueError, match="class 1"):
            loss(features, torch.ones(N).long(), head)
        assert_same_state(loss, before)


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ([1, 2, 3], r"class_counts of shape \(4,\), got \(3,\)"),
        ([[1, 2, 3, 4]], r"class_counts of shape \(4,\)"),
        ([1, 2, -3, 4], "not negative"),
        ([1, 2, math.nan, 4], "finite"),
        ([1, 2, math.inf, 4], "finite"),
        ([0, 0, 0, 0], "not all zero"),
    ],
)
def test_bad_class_counts_are_refused(kind, counts, message):
    with pytest.raises(ValueError, match=message):
        kind(C, A, class_counts=torch.tensor(counts))


@pytest.mark.parametrize("kind", TYPES)
def test_one_class_and_unknown_reductions_are_refused(kind):
    with pytest.raises(ValueError, match=f"{kind.__name__} needs at least 2 classes"):
        kind(1, A, class_counts=torch.tensor([3]))
    with pytest.raises(ValueError, match="reduction must be none, mean or sum, got 'average'"):
        kind(C, A, class_counts=COUNTS, reduction="average")


@pytest.mark.parametrize("kind", EVERY)
def test_class_counts_may_be_a_list(kind):
    features, targets, head = make_batch()
    expected = make_loss(kind, warm=False)(features, targets, head)
    assert torch.equal(make_loss(kind, warm=False, class_counts=COUNTS.tolist())(features, targets, head), expected)


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("covariance", ["full", "diagonal", "low_rank"])
def test_absent_rare_and_unknown_classes_give_finite_losses_and_gradients(kind, covariance):
    """Class 1 is absent from the batch, class 2 has one sample, class 3 has none in training."""
    options = {"covariance": covariance} if kind in WITH_STATISTICS else {}
    loss = kind(C, A, class_counts=torch.tensor([50, 20, 1, 0]), **options).double()
    features, _, head = make_batch()
    targets = torch.tensor([0] * (N - 1) + [2])
    value = loss(features, targets, head, progress=0.8)
    value.backward()
    assert torch.isfinite(value)
    for tensor in (features, head.weight, head.bias):
        assert torch.isfinite(tensor.grad).all()
    if kind in (ICDALoss, LogitAdjustmentLoss):
        assert not head.weight.grad[3].any(), "a class without training samples takes no part"


@pytest.mark.parametrize("kind", EVERY)
def test_a_feature_or_weight_of_norm_zero_gives_finite_losses_and_gradients(kind):
    loss, (features, targets, head) = make_loss(kind), make_batch()
    with torch.no_grad():
        features[2] = 0
        head.weight[1] = 0
        head.weight[targets[4]] = 0
    value = loss(features, targets, head, progress=0.8)
    value.backward()
    assert torch.isfinite(value)
    gradients = [tensor.grad for tensor in (features, head.weight, head.bias) if tensor.grad is not None]
    assert all(torch.isfinite(gradient).all() for gradient in gradients)


@pytest.mark.parametrize("kind", TYPES)
def test_autocast_keeps_state_and_loss_in_float32(kind):
    features, targets, head = make_batch(dtype=torch.float32)
    plain, autocast = (kind(C, A, class_counts=COUNTS) for _ in range(2))
    expected = plain(features, targets, head, progress=0.4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert head(features).dtype == torch.bfloat16
        value = autocast(features, targets, head, progress=0.4)
    assert value.dtype == torch.float32
    torch.testing.assert_close(value, expected, rtol=0.02, atol=0.02)
    value.backward()
    assert head.weight.grad.dtype == torch.float32
    if kind in WITH_STATISTICS:
        assert_same_state(autocast.statistics, snapshot(plain.statistics))


@pytest.mark.parametrize("kind", EVERY)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_models_get_a_float32_loss(kind, dtype):
    features, targets, head = make_batch(dtype=dtype)
    loss = kind(C, A, class_counts=COUNTS)
    value = loss(features, targets, head, progress=0.4)
    value.backward()
    assert value.dtype == torch.float32
    assert head.weight.grad.dtype == dtype
    expected = kind(C, A, class_counts=COUNTS)(
        features.float(), targets, (head.weight.float(), head.bias.float()), progress=0.4
    )
    torch.testing.assert_close(value, expected, rtol=0.02, atol=0.02)


@pytest.mark.parametrize("kind", TYPES)
def test_a_float64_head_works_with_a_loss_left_in_float32(kind):
    features, targets, head = make_batch()
    value = kind(C, A, class_counts=COUNTS)(features, targets, head, progress=0.4)
    expected = make_loss(kind, warm=False)(features, targets, head, progress=0.4)
    torch.testing.assert_close(value.double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", [LogitAdjustmentLoss, ICDALoss])
@pytest.mark.parametrize("cast", ["half", "bfloat16", "float", "double"])
def test_casting_a_model_with_its_loss_keeps_the_prior(kind, cast):
    features, targets, head = make_batch(dtype=torch.float32)
    loss = kind(C, A, class_counts=torch.tensor([70_001, 4_099, 515, 3]))
    expected = loss.adjustment(features, targets, head, progress=0)
    getattr(loss, cast)()
    torch.testing.assert_close(loss.adjustment(features, targets, head, progress=0), expected)


@pytest.mark.parametrize("kind", TYPES)
def test_the_loss_falls_when_its_gradient_is_followed(kind):
    loss, (features, targets, head) = make_loss(kind).eval(), make_batch()
    before = loss(features, targets, head, progress=0.4)
    before.backward()
    with torch.no_grad():
        head.weight -= 1e-3 * head.weight.grad
        head.bias -= 1e-3 * head.bias.grad
    assert loss(features, targets, head, progress=0.4) < before


@pytest.mark.parametrize("kind", EVERY)
def test_the_name_of_the_loss_says_its_size(kind):
    assert f"{kind.__name__}(" in repr(make_loss(kind, warm=False))
    assert "num_classes=4, feature_dim=3" in repr(make_loss(kind, warm=False))


def test_a_constant_on_all_but_the_target_equals_lowering_the_target_logit():
    class Margin(AdjustedLoss):
        def compute_adjustment(
            self, features: Tensor, targets: Tensor, weight: Tensor, progress: float, products: Tensor
        ) -> Tensor:
            return torch.full_like(products, 0.7).scatter(1, targets[:, None], 0)

    features, targets, head = make_batch()
    lowered = head(features).scatter_add(1, targets[:, None], torch.full((N, 1), -0.7, dtype=torch.float64))
    expected = F.cross_entropy(lowered, targets)
    torch.testing.assert_close(Margin(C, A)(features, targets, head), expected, rtol=0, atol=1e-13)


def test_a_subclass_sees_detached_features_and_products_without_bias():
    class Probe(AdjustedLoss):
        seen: tuple[Tensor, Tensor]

        def compute_adjustment(
            self, features: Tensor, targets: Tensor, weight: Tensor, progress: float, products: Tensor
        ) -> None:
            self.seen = features, products

    (features, targets, head), loss = make_batch(), Probe(C, A)
    loss(features, targets, head)
    assert not any(tensor.requires_grad for tensor in loss.seen)
    torch.testing.assert_close(loss.seen[1], (features @ head.weight.T).detach(), rtol=0, atol=1e-14)


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_a_checkpointed_call_counts_its_batch_once(covariance):
    """torch.utils.checkpoint runs it again in the backward pass: gradients and statistics are those without it."""
    torch.manual_seed(0)
    head, targets = nn.Linear(6, 3), torch.arange(9) % 3
    inputs = torch.randn(9, 6)
    found = []
    for checkpointed in (False, True):
        loss, features = ICDALoss(3, 6, covariance=covariance), inputs.clone().requires_grad_()
        for _ in range(2):
            if checkpointed:
                value = checkpoint(loss, features, targets, head, 0.5, use_reentrant=False)
            else:
                value = loss(features, targets, head, 0.5)
            value.backward()
        assert loss.statistics.count.sum() == 18
        found.append((features.grad, loss.statistics.covariance))
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=0)
