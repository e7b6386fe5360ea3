"""Taking a layer off."""

from collections import OrderedDict

import pytest
import torch
from torch import nn

from icda.models.headless import Headless, fresh_like, is_linear, join, named_layer, take_off


def test_a_layer_known_by_two_names_is_taken_off_both() -> None:
    network = nn.Sequential(OrderedDict(body=nn.Flatten(), fc=nn.Linear(4, 2)))
    network.add_module("alias", network.fc)
    layer = network.fc
    assert take_off(network, layer) is layer
    assert isinstance(network.fc, nn.Identity)
    assert isinstance(network.alias, nn.Identity)
    assert not list(network.parameters())


@pytest.mark.parametrize("bias", [True, False])
def test_a_convolution_becomes_the_same_linear_map(bias: bool) -> None:
    convolution = nn.Conv2d(5, 3, 1, bias=bias)
    network = nn.Sequential(convolution, nn.Flatten())
    maps = torch.randn(2, 5, 1, 1)
    expected = network(maps)
    head = take_off(network, convolution)
    torch.testing.assert_close(head(network(maps)), expected)
    assert (head.bias is not None) == bias


def test_taking_off_draws_no_random_number() -> None:
    network = nn.Sequential(nn.Conv2d(5, 3, 1), nn.Flatten())
    before = torch.get_rng_state()
    take_off(network, network[0])
    assert torch.equal(torch.get_rng_state(), before)


def test_a_frozen_convolution_stays_frozen() -> None:
    network = nn.Sequential(nn.Conv2d(5, 3, 1).requires_grad_(False), nn.Flatten())
    assert not any(parameter.requires_grad for parameter in take_off(network, network[0]).parameters())


@pytest.mark.parametrize(
    "layer", [nn.Conv2d(4, 2, 3), nn.Conv2d(4, 2, 1, stride=2), nn.Conv2d(4, 2, 1, groups=2), nn.ReLU(), None]
)
def test_other_layers_are_not_linear(layer: object) -> None:
    assert not is_linear(layer)


def test_a_new_head_keeps_dtype_and_lack_of_bias() -> None:
    head = fresh_like(nn.Linear(4, 9, bias=False, dtype=torch.float64), 3)
    assert head.weight.shape == (3, 4)
    assert head.weight.dtype == torch.float64
    assert head.bias is None


@pytest.mark.parametrize(("name", "found"), [("body", "a Flatten"), ("nowhere", "nothing"), ("", "a Sequential")])
def test_a_wrongly_named_head_is_refused_with_the_layers_there_are(name: str, found: str) -> None:
    network = nn.Sequential(OrderedDict(body=nn.Flatten(), fc=nn.Linear(4, 2)))
    with pytest.raises(ValueError, match=f"is {found} in Sequential.*The last ones are: fc"):
        named_layer(network, name)


@pytest.mark.parametrize(
    ("network", "found"),
    [(nn.Identity(), r"shape \(2, 3, 4\)"), (nn.Flatten(), r"shape \(2, 12\)"), (nn.LSTM(4, 4), "a tuple")],
)
def test_an_output_that_is_no_feature_batch_is_refused(network: nn.Module, found: str) -> None:
    with pytest.raises(ValueError, match=f"returned {found}, expected features of shape"):
        Headless(network, 4)(torch.zeros(2, 3, 4))


def test_parts_set_to_eval_stay_so() -> None:
    network = nn.Sequential(nn.BatchNorm1d(4).eval(), nn.Linear(4, 2))
    head = take_off(network, network[1])
    model = join(Headless(network, 4), head)
    assert model.training
    assert not network[0].training
