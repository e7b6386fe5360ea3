"""CIFAR ResNets: sizes of the paper, shortcuts, derivatives."""

import pytest
import torch
import torch.nn.functional as F
from torch.func import functional_call, jvp

from icda.models import create_model
from icda.models.cifar_resnet import BasicBlock, CifarResNet

# He et al. 2016, table 6, and the exact counts that the layers add up to with ten classes and a head with bias.
PARAMETERS = {20: (0.27, 269_722), 32: (0.46, 464_154), 44: (0.66, 658_586), 56: (0.85, 853_018), 110: (1.7, 1_727_962)}


@pytest.mark.parametrize("depth", PARAMETERS)
def test_parameter_counts_are_those_of_the_paper(depth: int) -> None:
    with torch.device("meta"):
        model = create_model(f"resnet{depth}", 10, (3, 32, 32))
    millions, exact = PARAMETERS[depth]
    count = sum(parameter.numel() for parameter in model.parameters())
    assert count == exact
    assert count / 1e6 == pytest.approx(millions, rel=0.02)


@pytest.mark.parametrize("depth", [8, 14, 20, 32])
def test_the_name_counts_the_layers_with_weights(depth: int) -> None:
    model = create_model(f"resnet{depth}", 10)
    assert sum(isinstance(module, torch.nn.Conv2d | torch.nn.Linear) for module in model.modules()) == depth


def test_the_shortcut_takes_every_other_pixel_and_pads_channels_with_zeros() -> None:
    maps = torch.randn(2, 16, 6, 6)
    short = BasicBlock(16, 32, stride=2).shortcut(maps)
    assert torch.equal(short[:, 8:24], maps[:, :, ::2, ::2])
    assert short[:, :8].eq(0).all()
    assert short[:, 24:].eq(0).all()


def test_a_block_whose_branch_is_silent_is_its_shortcut() -> None:
    block = BasicBlock(16, 16)
    torch.nn.init.zeros_(block.norm2.weight)
    maps = torch.rand(2, 16, 5, 5)
    assert torch.equal(block(maps), maps)


def test_grey_images_have_one_input_channel() -> None:
    output = create_model("resnet8", 10, (1, 28, 28))(torch.randn(2, 1, 28, 28))
    assert output.features.shape == (2, 64)


def test_convolutions_start_with_he_variance() -> None:
    torch.manual_seed(0)
    weight = CifarResNet(14).stages[2][1].conv1.weight
    assert float(weight.detach().std()) == pytest.approx((2 / (64 * 9)) ** 0.5, rel=0.03)


def test_a_depth_that_is_not_6n_plus_2_is_refused() -> None:
    with pytest.raises(ValueError, match=r"6n \+ 2"):
        CifarResNet(18)


@pytest.mark.parametrize("training", [True, False])
def test_forward_mode_derivatives_agree_with_finite_differences(training: bool) -> None:
    torch.manual_seed(0)
    model = create_model("resnet8", 4, (3, 8, 8)).double().train(training)
    images, targets = torch.randn(4, 3, 8, 8, dtype=torch.float64), torch.tensor([0, 1, 2, 3])
    weights = {name: value.detach() for name, value in model.named_parameters()}
    direction = {name: torch.randn_like(value) for name, value in weights.items()}
    # A BatchNorm that is training writes to its buffers, which a transform forbids unless they are handed in.
    buffers = {name: value.clone() for name, value in model.named_buffers()}

    def loss(parameters: dict[str, torch.Tensor]) -> torch.Tensor:
        own = {name: value.clone() for name, value in buffers.items()}
        return F.cross_entropy(functional_call(model, (parameters, own), (images,)).logits, targets)

    value, slope = jvp(loss, (weights,), (direction,))
    step = 1e-7
    ahead, behind = (
        loss({name: weights[name] + sign * step * direction[name] for name in weights}) for sign in (1, -1)
    )
    assert float(value) == pytest.approx(float(loss(weights)))
    assert float(slope) == pytest.approx(float((ahead - behind) / (2 * step)), rel=1e-4)
