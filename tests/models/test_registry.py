"""Names, errors, and what every registered model keeps to."""

import copy

import pytest
import torch
from torch import nn
from torch.func import functional_call

from icda.models import MODELS, FeatureClassifier, create_model
from icda.models.base import evaluating
from icda.models.registry import image_channels

NAMES = ["bag_of_words", "linear", "mlp", "small_cnn", "tiny_cnn", "wrn_16_8", "wrn_28_10"]
NAMES += [f"densenet_bc_{kind}" for kind in ("100_12", "121", "265")]
NAMES += [f"resnet{depth}" for depth in (8, 14, 20, 32, 44, 56, 110)]
# Weights of their own: tests/models/test_minilm.py and test_efficientnet_lite0.py
PRETRAINED = ["efficientnet_lite0", "efficientnet_lite0_frozen", "minilm", "minilm_frozen", "minilm_top3"]
QUICK = ["bag_of_words", "linear", "mlp", "resnet8", "small_cnn", "densenet_bc_100_12"]
SHAPE = (3, 16, 16)


def example(name, device="cpu"):
    if name == "bag_of_words":
        ids = torch.randint(1, 32768, (3, 5), device=device)
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    return torch.randn(3, *SHAPE, device=device)


def test_every_network_of_the_house_is_registered():
    assert list(MODELS) == sorted([*NAMES, *PRETRAINED])


@pytest.mark.parametrize("name", NAMES)
def test_every_model_gives_features_and_logits_of_the_right_shape(name):
    with torch.device("meta"):
        model = create_model(name, 7, SHAPE)
    assert isinstance(model, FeatureClassifier)
    output = model(example(name, "meta"))
    assert output.features.shape == (3, model.feature_dim)
    assert output.logits.shape == (3, 7)
    assert model.num_classes == 7


@pytest.mark.parametrize("name", QUICK)
def test_logits_are_the_head_of_the_features_and_every_parameter_receives_a_gradient(name):
    torch.manual_seed(0)
    model = create_model(name, 4, SHAPE)
    assert all(module.training for module in model.modules())
    for mode in (False, True):
        output = model.train(mode)(example(name))
        assert torch.equal(model.head(output.features), output.logits)
    torch.nn.functional.cross_entropy(output.logits, torch.tensor([0, 1, 2])).backward()
    for parameter_name, parameter in model.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.abs().sum() > 0, parameter_name


@pytest.mark.parametrize("name", QUICK)
def test_saved_states_copies_and_functional_calls_bring_the_same_outputs_back(name):
    torch.manual_seed(0)
    model, other, inputs = create_model(name, 4, SHAPE), create_model(name, 4, SHAPE), example(name)
    model(inputs)  # moves BatchNorm's running statistics
    other.load_state_dict(model.state_dict())
    state = {key: value.detach() for key, value in model.state_dict().items()}
    with torch.no_grad():
        expected = model.eval()(inputs).logits
        for found in (other.eval(), copy.deepcopy(model)):
            assert torch.equal(found(inputs).logits, expected)
        assert torch.equal(functional_call(model, state, (inputs,)).logits, expected)


@pytest.mark.parametrize("name", QUICK)
def test_one_sample_in_eval_mode_does_not_see_the_others(name):
    torch.manual_seed(0)
    model, inputs = create_model(name, 4, SHAPE).eval(), example(name)
    one = {key: value[:1] for key, value in inputs.items()} if isinstance(inputs, dict) else inputs[:1]
    torch.testing.assert_close(model(one).logits, model(inputs).logits[:1])


@pytest.mark.parametrize(
    ("name", "classes", "shape", "message"),
    [
        ("resnet_32x", 10, (), "unknown model 'resnet_32x': did you mean 'resnet32'"),
        ("tim:resnet18", 10, (), r"did you mean 'timm:resnet18'.*Known prefixes: hf, timm, torchvision"),
        ("hf:", 10, (), "after the colon"),
        ("resnet32", 10, (64,), r"resnet32 expects images.*'mlp' or 'linear'"),
        *(("mlp", classes, (4,), "at least two") for classes in (1, 0, -3)),
        *((name, 3, (), f"{name} needs the shape of one input") for name in ("mlp", "linear")),
    ],
)
def test_what_cannot_be_a_model_is_refused(name, classes, shape, message):
    with pytest.raises(ValueError, match=message):
        create_model(name, classes, shape)


def test_images_without_a_shape_are_rgb_and_hyphens_and_capitals_do_not_matter():
    assert image_channels("any", ()) == 3
    with torch.device("meta"):
        assert create_model("WRN-16-8", 4).encoder.stem.in_channels == 3


def stop_inside(*modules):
    with evaluating(*modules):
        assert not any(module.training for root in modules for module in root.modules())
        raise RuntimeError("stopped")


def test_every_module_gets_its_own_mode_back_even_after_an_error():
    network, frozen = nn.Sequential(nn.Dropout(), nn.BatchNorm1d(3)), nn.Dropout().eval()
    network[1].eval()
    with pytest.raises(RuntimeError, match="stopped"):
        stop_inside(network, frozen)
    assert [module.training for module in (network, network[0], network[1], frozen)] == [True, True, False, False]
