"""Our convolutional networks: sizes of the papers, shortcuts, growth and derivatives."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call, jvp

from icda.models import create_model
from icda.models.convolutional import (
    DENSENETS,
    BasicBlock,
    CifarResNet,
    DenseLayer,
    DenseNet,
    WideBlock,
    WideResNet,
    kaiming_convolutions,
)

# He et al. 2016, table 6, and Zagoruyko and Komodakis 2016; then the exact counts with ten classes and a head with bias.
PARAMETERS = {
    "small_cnn": (0.0243, 24_346),  # our own
    "resnet20": (0.27, 269_722),
    "resnet32": (0.46, 464_154),
    "resnet44": (0.66, 658_586),
    "resnet56": (0.85, 853_018),
    "resnet110": (1.7, 1_727_962),
    "wrn_16_8": (11.0, 10_961_370),
    "wrn_28_10": (36.5, 36_479_194),
    "densenet_bc_100_12": (0.77, 769_162),  # "0.8M" in Huang et al. 2017, table 2
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameter_counts_are_those_of_the_papers(name):
    with torch.device("meta"):
        model = create_model(name, 10, (3, 32, 32))
    millions, exact = PARAMETERS[name]
    count = sum(parameter.numel() for parameter in model.parameters())
    assert count == exact
    assert count / 1e6 == pytest.approx(millions, rel=0.02)


@pytest.mark.parametrize(
    ("name", "features", "layers"),
    [
        ("resnet8", 64, 8),
        ("resnet32", 64, 32),
        ("densenet_bc_100_12", 342, 100),
        ("densenet_bc_121", 1024, 121),
        ("densenet_bc_265", 2688, 265),
    ],
)
def test_the_name_counts_the_layers_with_weights(name, features, layers):
    with torch.device("meta"):
        model = create_model(name, 10, (3, 32, 32))
    assert model.feature_dim == features
    assert sum(isinstance(module, nn.Conv2d | nn.Linear) for module in model.modules()) == layers


def test_the_shortcut_takes_every_other_pixel_and_pads_channels_with_zeros():
    maps = torch.randn(2, 16, 6, 6)
    short = BasicBlock(16, 32, stride=2).shortcut(maps)
    assert torch.equal(short[:, 8:24], maps[:, :, ::2, ::2])
    assert short[:, :8].eq(0).all()
    assert short[:, 24:].eq(0).all()


@pytest.mark.parametrize(("block", "last"), [(BasicBlock(16, 16), "norm2"), (WideBlock(16, 16), "conv2")])
def test_a_block_whose_branch_is_silent_is_its_shortcut(block, last):
    torch.nn.init.zeros_(block.get_submodule(last).weight)
    maps = torch.rand(2, 16, 5, 5)
    assert torch.equal(block(maps), maps)


def test_convolutions_start_with_he_variance():
    torch.manual_seed(0)
    weight = CifarResNet(14).stages[2][1].conv1.weight
    assert float(weight.detach().std()) == pytest.approx((2 / (64 * 9)) ** 0.5, rel=0.03)


def test_a_depth_that_does_not_fit_the_stages_is_refused():
    with pytest.raises(ValueError, match=r"6n \+ 2"):
        CifarResNet(18)
    with pytest.raises(ValueError, match=r"6n \+ 4"):
        WideResNet(20, 2)


@pytest.mark.parametrize("training", [True, False])
def test_forward_mode_derivatives_agree_with_finite_differences(training):
    torch.manual_seed(0)
    model = create_model("resnet8", 4, (3, 8, 8)).double().train(training)
    images, targets = torch.randn(4, 3, 8, 8, dtype=torch.float64), torch.tensor([0, 1, 2, 3])
    weights = {name: value.detach() for name, value in model.named_parameters()}
    direction = {name: torch.randn_like(value) for name, value in weights.items()}
    # A BatchNorm that is training writes to its buffers, which a transform forbids unless they are handed in.
    buffers = {name: value.clone() for name, value in model.named_buffers()}

    def loss(parameters):
        own = {name: value.clone() for name, value in buffers.items()}
        return F.cross_entropy(functional_call(model, (parameters, own), (images,)).logits, targets)

    value, slope = jvp(loss, (weights,), (direction,))
    step = 1e-7
    ahead, behind = (
        loss({name: weights[name] + sign * step * direction[name] for name in weights}) for sign in (1, -1)
    )
    assert float(value) == pytest.approx(float(loss(weights)))
    assert float(slope) == pytest.approx(float((ahead - behind) / (2 * step)), rel=1e-4)


@pytest.mark.parametrize("name", ["wrn_16_8", "densenet_bc_100_12"])
def test_dropout_is_an_option_of_the_name(name):
    with torch.device("meta"):
        model = create_model(name, 10, dropout=0.3)
    assert {module.p for module in model.modules() if isinstance(module, torch.nn.Dropout)} == {0.3}


def test_a_block_that_changes_shape_carries_the_activated_maps():
    block, maps = WideBlock(8, 16, stride=2), torch.randn(1, 8, 4, 4)
    torch.nn.init.zeros_(block.conv2.weight)
    expected = block.shortcut(torch.relu(block.norm1(maps)))
    torch.testing.assert_close(block(maps), expected)


def test_densenet_121_is_torchvisions_but_for_the_stem():
    with torch.device("meta"):
        model = create_model("densenet_bc_121", 1000)
    # 7,978,856 is the known count with a 7x7 stem and a BatchNorm of 64 channels after it.
    expected = 7_978_856 - 64 * 3 * 49 - 128 + 64 * 3 * 9
    assert sum(parameter.numel() for parameter in model.parameters()) == expected


@pytest.mark.parametrize(("name", "pixels"), [("densenet_bc_100_12", 8), ("densenet_bc_265", 4)])
def test_a_small_image_stays_large_enough(name, pixels):
    with torch.device("meta"):
        encoder = DenseNet(*DENSENETS[name])
        assert encoder.layers(torch.empty(1, 3, 32, 32)).shape[-1] == pixels


def test_a_layer_keeps_what_came_before():
    maps = torch.randn(2, 8, 4, 4)
    grown = DenseLayer(8, growth=3)(maps)
    assert grown.shape == (2, 11, 4, 4)
    assert torch.equal(grown[:, :8], maps)


@pytest.mark.parametrize("encoder", [WideResNet(10, 1, dropout=0.5), DenseNet((2, 2), 4, dropout=0.5)])
def test_dropout_acts_in_training_only(encoder):
    images = torch.randn(2, 3, 8, 8)
    assert not torch.equal(encoder(images), encoder(images))
    encoder(images).square().sum().backward()
    assert all(parameter.grad is not None for parameter in encoder.parameters())
    encoder.eval()
    assert torch.equal(encoder(images), encoder(images))


def test_only_convolutions_are_drawn_anew():
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 2))
    before = {name: value.clone() for name, value in network.state_dict().items()}
    kaiming_convolutions(network)
    changed = {name for name, value in network.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == {"0.weight", "0.bias"}
    assert network[0].bias.eq(0).all()
