import pytest
import torch

from icda.explain.margins import boundary_distances, sample_distances


def test_the_distance_of_a_mean_is_how_far_it_must_go_to_reach_the_boundary() -> None:
    mean, weight, bias = (torch.randn(4, size, dtype=torch.float64) for size in (3, 3, 1))
    bias = bias[:, 0]
    found = boundary_distances(mean, weight, bias)
    for c in range(4):
        for y in range(4):
            if c == y:
                assert found[c, y] == 0
                continue
            normal = weight[c] - weight[y]
            foot = mean[c] - found[c, y] * normal / normal.norm()  # walk straight to the boundary
            assert (weight[c] @ foot + bias[c]).item() == pytest.approx((weight[y] @ foot + bias[y]).item(), abs=1e-9)


def test_a_mean_on_the_wrong_side_has_a_negative_distance() -> None:
    assert boundary_distances(torch.tensor([[-3.0], [-1.0]]), torch.tensor([[2.0], [-2.0]]))[0, 1] == -3


def test_classes_with_the_same_weights_have_no_distance() -> None:
    found = boundary_distances(torch.randn(3, 2), torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]))
    assert found[0, 1].isnan()
    assert not found[0, 2].isnan()


def test_a_sample_is_as_far_as_its_nearest_boundary() -> None:
    features, weight, bias = torch.randn(20, 3).double(), torch.randn(4, 3).double(), torch.randn(4).double()
    targets = torch.arange(20) % 4
    logits = features @ weight.T + bias
    for row, target, found in zip(logits, targets.tolist(), sample_distances(logits, targets, weight), strict=True):
        wanted = min(
            ((row[target] - row[c]) / (weight[target] - weight[c]).norm()).item() for c in range(4) if c != target
        )
        assert found.item() == pytest.approx(wanted, rel=1e-9)


def test_larger_weights_alone_change_no_distance() -> None:
    features, weight, targets = torch.randn(9, 3), torch.randn(3, 3), torch.arange(9) % 3
    found = [sample_distances(features @ (k * weight).T, targets, k * weight) for k in (1.0, 7.0)]
    torch.testing.assert_close(*found)


def test_a_class_without_a_boundary_is_left_out_of_the_nearest() -> None:
    weight = torch.tensor([[1.0], [1.0], [-1.0]])
    assert sample_distances(torch.tensor([[2.0, 2.0, -2.0]]), torch.tensor([0]), weight).item() == 2.0
