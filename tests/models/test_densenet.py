"""DenseNets: sizes of the paper, growth, resolution."""

import pytest
import torch

from icda.models import create_model
from icda.models.densenet import CONFIGURATIONS, DenseLayer, DenseNet


def test_the_parameter_count_is_that_of_the_paper() -> None:
    count = sum(parameter.numel() for parameter in create_model("densenet_bc_100_12", 10).parameters())
    assert count == 769_162  # "0.8M" in Huang et al. 2017, table 2


@pytest.mark.parametrize(
    ("name", "features", "layers"),
    [("densenet_bc_100_12", 342, 100), ("densenet_bc_121", 1024, 121), ("densenet_bc_265", 2688, 265)],
)
def test_the_name_counts_the_layers_with_weights(name: str, features: int, layers: int) -> None:
    with torch.device("meta"):
        model = create_model(name, 10, (3, 32, 32))
    assert model.feature_dim == features
    assert sum(isinstance(module, torch.nn.Conv2d | torch.nn.Linear) for module in model.modules()) == layers


def test_densenet_121_is_torchvisions_but_for_the_stem() -> None:
    with torch.device("meta"):
        model = create_model("densenet_bc_121", 1000)
    # 7,978,856 is the known count with a 7x7 stem and a BatchNorm of 64 channels after it.
    expected = 7_978_856 - 64 * 3 * 49 - 128 + 64 * 3 * 9
    assert sum(parameter.numel() for parameter in model.parameters()) == expected


@pytest.mark.parametrize(("name", "pixels"), [("densenet_bc_100_12", 8), ("densenet_bc_265", 4)])
def test_a_small_image_stays_large_enough(name: str, pixels: int) -> None:
    with torch.device("meta"):
        encoder = DenseNet(*CONFIGURATIONS[name])
        assert encoder.layers(torch.empty(1, 3, 32, 32)).shape[-1] == pixels


def test_a_layer_keeps_what_came_before() -> None:
    maps = torch.randn(2, 8, 4, 4)
    grown = DenseLayer(8, growth=3)(maps)
    assert grown.shape == (2, 11, 4, 4)
    assert torch.equal(grown[:, :8], maps)


def test_dropout_acts_in_training_only() -> None:
    torch.manual_seed(0)
    encoder, images = DenseNet((2, 2), 4, dropout=0.5), torch.randn(2, 3, 8, 8)
    assert not torch.equal(encoder(images), encoder(images))
    encoder.eval()
    assert torch.equal(encoder(images), encoder(images))
