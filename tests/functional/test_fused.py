import gc

import pytest
import torch
from torch import Tensor

from icda.functional import fused
from icda.functional.fused import augmentation_term
from icda.functional.grouping import LabelGroups
from icda.statistics import Moments

KINDS = ["full", "diagonal"]
# Few classes (a table over pairs of classes), classes > 2 samples (a matrix a sample), two classes, one sample.
SHAPES = [(7, 4, 5), (3, 8, 4), (6, 2, 3), (1, 3, 2), (4, 8, 3), (4, 9, 3)]


def problem(seed, kind, size, num_classes, dim):
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    targets = torch.randint(num_classes, (size,), generator=generator)
    towards = normal(size, num_classes).abs()
    coefficients = towards.scatter(1, targets[:, None], 1)
    rows = normal(num_classes, dim + 2, dim)
    scatter = rows.mT @ rows if kind == "full" else rows.square().sum(1)
    moments = Moments(kind, normal(num_classes, dim), scatter, normal(num_classes).abs())
    return normal(num_classes, dim), targets, coefficients, towards, moments


def oracle(weight, targets, coefficients, towards, moments, lam):
    sigma = moments.covariance()
    sigma = torch.diag_embed(sigma) if sigma.dim() == 2 else sigma
    rows = []
    for i, y in enumerate(targets.tolist()):
        row = []
        for c in range(len(weight)):
            d = weight[c] - weight[y]
            value = lam / 2 * sum(coefficients[i, j] * (d @ sigma[j] @ d) for j in range(len(weight)))
            if towards is not None:
                value = value + lam * towards[i, c] * (d @ moments.mean[c])
            row.append(value if c != y else value * 0)
        rows.append(torch.stack(row))
    return torch.stack(rows)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("with_means", [True, False])
def test_value_and_gradient_equal_autograd_on_three_loops(kind, shape, with_means):
    weight, targets, coefficients, towards, moments = problem(0, kind, *shape)
    arguments = (targets, coefficients, towards if with_means else None, moments, 0.7)
    weight.requires_grad_()
    found, expected = augmentation_term(weight, *arguments), oracle(weight, *arguments)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
    upstream = torch.randn(expected.shape, dtype=torch.float64)
    mine, wanted = (torch.autograd.grad((value * upstream).sum(), weight)[0] for value in (found, expected))
    torch.testing.assert_close(mine, wanted, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(5, 3, 3), (2, 6, 2), (3, 2, 3)])
def test_gradient_passes_gradcheck(kind, shape):
    weight, targets, coefficients, towards, moments = problem(1, kind, *shape)
    weight.requires_grad_()
    assert torch.autograd.gradcheck(
        lambda w: augmentation_term(w, targets, coefficients, towards, moments, 0.7), [weight]
    )


@pytest.mark.parametrize("chunk", [1, 50, 100])
def test_the_per_sample_form_is_the_same_in_chunks_of_any_size(chunk, monkeypatch):
    weight, targets, coefficients, towards, moments = problem(2, "full", 5, 12, 4)
    weight.requires_grad_()
    whole = augmentation_term(weight, targets, coefficients, towards, moments, 0.7)
    expected = torch.autograd.grad(whole.square().sum(), weight)[0]
    monkeypatch.setattr(fused, "CHUNK_ELEMENTS", chunk)
    pieces = augmentation_term(weight, targets, coefficients, towards, moments, 0.7)
    torch.testing.assert_close(pieces, whole, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(torch.autograd.grad(pieces.square().sum(), weight)[0], expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(7, 4, 5), (3, 8, 4)])
def test_an_indefinite_covariance_counts_where_p_is_positive_and_only_there(kind, shape):
    """A meta step can leave covariances indefinite: P and its gradient are those of max(P, 0)."""
    weight, targets, coefficients, _, moments = problem(9, kind, *shape)
    noise = torch.randn(moments.scatter.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    indefinite = noise if kind == "diagonal" else noise + noise.mT
    moments = Moments(kind, moments.mean, indefinite, moments.scale)
    weight.requires_grad_()
    arguments = (targets, coefficients, None, moments, 0.7)
    found, expected = augmentation_term(weight, *arguments), oracle(weight, *arguments)
    assert (expected < -1e-6).any()
    assert (expected > 1e-6).any()
    expected = expected.clamp(min=0)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
    upstream = torch.randn(expected.shape, dtype=torch.float64)
    mine, wanted = (torch.autograd.grad((value * upstream).sum(), weight)[0] for value in (found, expected))
    torch.testing.assert_close(mine, wanted, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_what_rounding_makes_negative_counts_as_zero(kind):
    weight, targets, coefficients, _, moments = problem(3, kind, 40, 5, 4)
    weight = (weight * 1e-4 + 100).float().requires_grad_()
    moments = Moments(kind, moments.mean.float(), moments.scatter.float(), moments.scale.float())
    value = augmentation_term(weight, targets, coefficients.float(), None, moments, 0.7)
    assert (value >= 0).all()
    assert torch.isfinite(torch.autograd.grad(value.sum(), weight)[0]).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(5, 4, 3), (2, 6, 3)])
def test_the_target_is_zero_and_takes_no_gradient(kind, shape):
    weight, targets, coefficients, towards, moments = problem(4, kind, *shape)
    weight.requires_grad_()
    value = augmentation_term(weight, targets, coefficients, towards + 1, moments, 0.7)
    own = value.gather(1, targets[:, None])
    assert (own == 0).all()
    assert not torch.autograd.grad(own.sum(), weight)[0].any()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(5, 4, 3), (2, 6, 3)])
def test_backward_twice_gives_the_same_gradient(kind, shape):
    weight, targets, coefficients, towards, moments = problem(5, kind, *shape)
    weight.requires_grad_()
    value = augmentation_term(weight, targets, coefficients, towards, moments, 0.7).square().sum()
    first = torch.autograd.grad(value, weight, retain_graph=True)[0]
    assert torch.equal(torch.autograd.grad(value, weight)[0], first)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(5, 4, 3), (2, 6, 3)])
def test_changing_the_weight_in_place_before_backward_never_gives_a_wrong_gradient(kind, shape):
    weight, targets, coefficients, towards, moments = problem(6, kind, *shape)
    weight.requires_grad_()
    value = augmentation_term(weight, targets, coefficients, towards, moments, 0.7).sum()
    expected = torch.autograd.grad(value, weight, retain_graph=True)[0]
    with torch.no_grad():
        weight *= 3  # an optimiser's step between forward and backward
    try:
        found = torch.autograd.grad(value, weight)[0]
    except RuntimeError as error:
        assert "modified by an inplace operation" in str(error)  # noqa: PT017
    else:
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("kind", "shape"), [("diagonal", (29, 11, 23)), ("full", (29, 11, 23)), ("full", (5, 29, 23))])
def test_backward_frees_what_the_graph_held_even_if_the_loss_is_kept(kind, shape):
    """`running_loss += loss` keeps every graph's nodes; torch frees their tensors in backward, and so must this node."""
    weight, targets, coefficients, towards, moments = problem(8, kind, *shape)
    weight.requires_grad_()

    def alive() -> int:
        gc.collect()
        return sum(item.numel() for item in gc.get_objects() if type(item) is Tensor)

    before = alive()
    value = augmentation_term(weight, targets, coefficients, towards, moments, 0.7).sum()
    value.backward()
    assert alive() - before <= 1 + weight.numel()  # the value and weight.grad


def test_arguments_are_left_as_they_are():
    for shape in [(5, 4, 3), (2, 6, 3)]:
        for kind in KINDS:
            weight, targets, coefficients, towards, moments = problem(7, kind, *shape)
            tensors = [weight, targets, coefficients, towards, moments.mean, moments.scatter, moments.scale]
            before = [tensor.clone() for tensor in tensors]
            weight.requires_grad_()
            augmentation_term(weight, targets, coefficients, towards, moments, 0.7).square().sum().backward()
            for tensor, old in zip(tensors, before, strict=True):
                assert torch.equal(tensor.detach(), old)


def test_labels_that_would_pad_badly_give_the_same_numbers():
    weight, _, _, _, moments = problem(5, "full", 4, 40, 3)
    targets = torch.tensor([0] * 360 + list(range(1, 40)))
    coefficients = torch.rand(len(targets), 40, dtype=torch.float64)
    assert not LabelGroups.of(targets, 40).fits
    assert fused.full_form(weight, len(targets)) is fused.TableForm
    weight.requires_grad_()
    found = augmentation_term(weight, targets, coefficients, None, moments, 0.7)
    parts = [
        augmentation_term(weight, targets[rows], coefficients[rows], None, moments, 0.7)
        for rows in torch.arange(len(targets)).split(21)
    ]
    torch.testing.assert_close(found, torch.cat(parts), rtol=1e-10, atol=1e-12)
    upstream = torch.randn_like(found)
    mine, wanted = (torch.autograd.grad((value * upstream).sum(), weight)[0] for value in (found, torch.cat(parts)))
    torch.testing.assert_close(mine, wanted, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("indefinite", [False, True])
@pytest.mark.parametrize("with_means", [False, True])
@pytest.mark.parametrize("with_bias", [False, True])
def test_logits_and_term_in_one_step_equal_both_apart(with_bias, with_means, indefinite):
    weight, targets, coefficients, towards, moments = problem(11, "diagonal", 9, 5, 4)
    if indefinite:
        moments = Moments("diagonal", moments.mean, moments.scatter - 6, moments.scale)
    features = torch.randn(9, 4, dtype=torch.float64, requires_grad=True)
    weight.requires_grad_()
    bias = torch.randn(5, dtype=torch.float64, requires_grad=True) if with_bias else None
    rest = (targets, coefficients, towards if with_means else None, moments, 0.7)
    found = fused.adjusted_logits(features, weight, bias, (features @ weight.T).detach(), *rest)
    wanted = torch.nn.functional.linear(features, weight, bias) + augmentation_term(weight, *rest)
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)
    leaves = [features, weight] + ([bias] if bias is not None else [])
    upstream = torch.randn_like(found)
    mine, reference = (torch.autograd.grad((value * upstream).sum(), leaves) for value in (found, wanted))
    for gradient, expected in zip(mine, reference, strict=True):
        torch.testing.assert_close(gradient, expected, rtol=1e-11, atol=1e-11)
