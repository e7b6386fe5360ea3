"""The models for feature vectors."""

import pytest
import torch

from icda.models import create_model


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
