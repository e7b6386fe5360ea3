"""The small network: sizes, and that it learns."""

import pytest
import torch
from torch import nn

from icda.models import create_model
from icda.models.initialisation import kaiming_convolutions


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("pixels", [8, 16, 28])
def test_digits_of_any_size_give_64_features(channels: int, pixels: int) -> None:
    model = create_model("small_cnn", 10, (channels, pixels, pixels))
    assert model(torch.randn(2, channels, pixels, pixels)).features.shape == (2, 64)


def test_it_is_small() -> None:
    assert sum(parameter.numel() for parameter in create_model("small_cnn", 10).parameters()) < 30_000


def test_it_tells_stripes_from_each_other_after_a_few_steps() -> None:
    torch.manual_seed(0)
    targets = torch.arange(32) % 2
    stripes = (torch.arange(8) % 2).float().expand(8, 8)
    images = torch.stack([stripes if target else stripes.T for target in targets]).unsqueeze(1)
    images = images + 0.3 * torch.randn(images.shape)
    model = create_model("small_cnn", 2, (1, 8, 8))
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(20):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(model(images).logits, targets).backward()
        optimiser.step()
    assert model.eval()(images).logits.argmax(1).eq(targets).all()


@pytest.mark.parametrize("shape", [(20,), (1, 8, 8), (3, 4, 5)])
def test_the_mlp_is_one_hidden_relu_layer(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    model, inputs = create_model("mlp", 5, shape), torch.randn(3, *shape)
    hidden = model.encoder[1]
    expected = (inputs.reshape(3, -1) @ hidden.weight.T + hidden.bias).clamp(min=0)
    output = model(inputs)
    torch.testing.assert_close(output.features, expected)
    assert output.features.shape == (3, 128)


def test_the_mlp_has_no_batch_norm() -> None:
    modules = create_model("mlp", 5, (20,)).modules()
    assert not any(isinstance(module, torch.nn.modules.batchnorm._BatchNorm) for module in modules)


def test_the_hidden_width_is_an_option() -> None:
    assert create_model("mlp", 5, (20,), hidden=16).feature_dim == 16


def test_the_linear_model_has_a_head_and_nothing_else() -> None:
    model, inputs = create_model("linear", 3, (6,)), torch.randn(4, 6)
    assert set(model.state_dict()) == {"head.weight", "head.bias"}
    assert torch.equal(model(inputs).features, inputs)


@pytest.mark.parametrize("name", ["mlp", "linear"])
def test_a_missing_input_shape_is_asked_for(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} needs the shape of one input"):
        create_model(name, 3)


def test_only_convolutions_are_drawn_anew() -> None:
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 2))
    before = {name: value.clone() for name, value in network.state_dict().items()}
    kaiming_convolutions(network)
    changed = {name for name, value in network.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == {"0.weight", "0.bias"}
    assert network[0].bias.eq(0).all()
