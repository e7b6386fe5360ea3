import pytest
import torch
from torch.nn import functional as F

from icda.selection.pseudo_groups import guess_epoch, strength_groups, worst_pseudo_group


def test_a_quarter_of_each_class_with_the_largest_strengths_is_set_apart() -> None:
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(60, 5, generator=generator, dtype=torch.float64)
    weight = torch.randn(3, 5, generator=generator, dtype=torch.float64)
    targets = torch.arange(60) % 3
    groups = strength_groups(features, targets, weight)
    assert torch.equal(groups // 2, targets)
    for label in range(3):
        strengths = {
            i: float(1 - F.cosine_similarity(features[i], weight[label], dim=0)) / 2
            for i in range(60)
            if targets[i] == label
        }
        wanted = sorted(strengths, key=lambda i: -strengths[i])[:5]
        assert sorted(wanted) == (groups == 2 * label + 1).nonzero().flatten().tolist()


def test_the_worst_guessed_group_is_found() -> None:
    logits = torch.tensor([[1.0, 0], [1, 0], [0, 1], [0, 1]])
    targets = torch.tensor([0, 0, 0, 1])
    assert worst_pseudo_group(logits, targets, torch.tensor([0, 0, 1, 2])) == 0.0
    assert worst_pseudo_group(logits, targets, torch.tensor([0, 1, 1, 2])) == 0.5


def test_groups_are_guessed_early_and_never_after_the_training() -> None:
    assert all(0 <= guess_epoch(epochs) < epochs for epochs in range(1, 300))


def test_a_share_outside_zero_and_one_is_refused() -> None:
    with pytest.raises(ValueError, match="share must lie between 0 and 1, got 1"):
        strength_groups(torch.ones(2, 2), torch.tensor([0, 1]), torch.eye(2), share=1)
