from __future__ import annotations

import pytest
import torch

from icda.functional.confusion import count_confusions
from icda.metrics import confusion_matrix


@pytest.mark.parametrize("weighted", [False, True])
def test_every_pair_of_classes_has_the_mass_of_its_samples(weighted: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    predictions, targets = torch.randint(4, (2, 50), generator=generator)
    weights = torch.rand(50, generator=generator, dtype=torch.float64) if weighted else None
    expected = [[0.0] * 4 for _ in range(4)]
    for i in range(50):
        expected[int(targets[i])][int(predictions[i])] += 1.0 if weights is None else float(weights[i])
    found = count_confusions(predictions, targets, 4, weights)
    torch.testing.assert_close(found.double(), torch.tensor(expected, dtype=torch.float64))


def test_a_class_that_never_occurs_keeps_its_row_and_column() -> None:
    assert count_confusions(torch.tensor([0]), torch.tensor([1]), 3).tolist() == [[0, 0, 0], [1, 0, 0], [0, 0, 0]]
    assert confusion_matrix(torch.tensor([0]), torch.tensor([1]), 3) == [[0, 0, 0], [1, 0, 0], [0, 0, 0]]
