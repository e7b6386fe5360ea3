"""Wide ResNets: sizes of the paper, dropout, shortcuts."""

import pytest
import torch

from icda.models import create_model
from icda.models.wide_resnet import WideBlock, WideResNet


@pytest.mark.parametrize(
    ("name", "millions", "exact", "features"),
    [("wrn_16_8", 11.0, 10_961_370, 512), ("wrn_28_10", 36.5, 36_479_194, 640)],
)
def test_parameter_counts_are_those_of_the_paper(name: str, millions: float, exact: int, features: int) -> None:
    with torch.device("meta"):
        model = create_model(name, 10, (3, 32, 32))
    count = sum(parameter.numel() for parameter in model.parameters())
    assert count == exact
    assert count / 1e6 == pytest.approx(millions, rel=0.01)
    assert model.feature_dim == features


def test_dropout_acts_in_training_only() -> None:
    torch.manual_seed(0)
    encoder, images = WideResNet(10, 1, dropout=0.5), torch.randn(2, 3, 8, 8)
    assert not torch.equal(encoder(images), encoder(images))
    encoder.eval()
    assert torch.equal(encoder(images), encoder(images))


def test_dropout_is_an_option_of_the_name() -> None:
    with torch.device("meta"):
        model = create_model("wrn_16_8", 10, dropout=0.3)
    assert {module.p for module in model.modules() if isinstance(module, torch.nn.Dropout)} == {0.3}


def test_a_block_of_equal_shape_adds_to_the_raw_maps() -> None:
    block, maps = WideBlock(8, 8), torch.randn(1, 8, 4, 4)
    torch.nn.init.zeros_(block.conv2.weight)
    assert torch.equal(block(maps), maps)


def test_a_block_that_changes_shape_carries_the_activated_maps() -> None:
    block, maps = WideBlock(8, 16, stride=2), torch.randn(1, 8, 4, 4)
    torch.nn.init.zeros_(block.conv2.weight)
    expected = block.shortcut(torch.relu(block.norm1(maps)))
    torch.testing.assert_close(block(maps), expected)


def test_gradients_reach_every_parameter() -> None:
    encoder = WideResNet(10, 1)
    encoder(torch.randn(2, 3, 8, 8)).square().sum().backward()
    assert all(parameter.grad is not None for parameter in encoder.parameters())


def test_a_depth_that_is_not_6n_plus_4_is_refused() -> None:
    with pytest.raises(ValueError, match=r"6n \+ 4"):
        WideResNet(20, 2)
