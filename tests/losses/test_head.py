import pytest
import torch
from torch import nn

from icda.losses import CrossEntropyLoss
from icda.losses.head import head_parameters


@pytest.mark.parametrize("head", [nn.ReLU(), None, "head", torch.zeros(3, 4), nn.Sequential(nn.Linear(4, 3))])
def test_what_is_not_a_head_is_a_type_error_that_names_it(head):
    with pytest.raises(TypeError, match=rf"head must be nn\.Linear.*got {type(head).__name__}"):
        head_parameters(head)


@pytest.mark.parametrize("head", [nn.Conv2d(4, 3, 3), nn.BatchNorm1d(4), nn.Conv1d(4, 3, 1), (torch.zeros(4), None)])
def test_a_weight_that_is_no_matrix_is_refused_with_its_shape(head):
    with pytest.raises(ValueError, match=r"weight must be \(C, A\) or \(C, A, 1, 1\), got \("):
        head_parameters(head)


@pytest.mark.parametrize("items", [(torch.zeros(3, 4),), (torch.zeros(3, 4), None, None)])
def test_a_tuple_of_other_than_two_items_is_refused(items):
    with pytest.raises(ValueError, match=rf"\(weight, bias\), got {len(items)} items"):
        head_parameters(items)


@pytest.mark.parametrize("shape", [(4, 3), (3, 5), (2, 4)])
def test_a_head_of_another_shape_is_refused_with_both_shapes(shape):
    with pytest.raises(ValueError, match=rf"head's weight of shape \(3, 4\), got \({shape[0]}, {shape[1]}\)"):
        CrossEntropyLoss(3, 4)(torch.zeros(2, 4), torch.tensor([0, 1]), (torch.zeros(shape), None))
