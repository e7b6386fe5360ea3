"""Names, errors, and what every registered model keeps to."""

import copy

import pytest
import torch
from torch.func import functional_call

from icda.models import MODELS, FeatureClassifier, create_model
from icda.models.registry import image_channels
from icda.registry import UnknownNameError

NAMES = [
    "bag_of_words",
    "densenet_bc_100_12",
    "densenet_bc_121",
    "densenet_bc_265",
    "linear",
    "mlp",
    "resnet110",
    "resnet14",
    "resnet20",
    "resnet32",
    "resnet44",
    "resnet56",
    "resnet8",
    "small_cnn",
    "tiny_cnn",
    "wrn_16_8",
    "wrn_28_10",
]
# Weights of their own: tests/models/test_minilm.py and test_efficientnet_lite0.py
PRETRAINED = ["efficientnet_lite0", "efficientnet_lite0_frozen", "minilm", "minilm_frozen", "minilm_top3"]
QUICK = ["bag_of_words", "linear", "mlp", "resnet8", "small_cnn", "densenet_bc_100_12"]
SHAPE = (3, 16, 16)


def example(name: str, device: str = "cpu") -> object:
    if name == "bag_of_words":
        ids = torch.randint(1, 32768, (3, 5), device=device)
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    return torch.randn(3, *SHAPE, device=device)


def test_every_network_of_the_house_is_registered() -> None:
    assert list(MODELS) == sorted([*NAMES, *PRETRAINED])


@pytest.mark.parametrize("name", NAMES)
def test_every_model_gives_features_and_logits_of_the_right_shape(name: str) -> None:
    with torch.device("meta"):
        model = create_model(name, 7, SHAPE)
    assert isinstance(model, FeatureClassifier)
    output = model(example(name, "meta"))
    assert output.features.shape == (3, model.feature_dim)
    assert output.logits.shape == (3, 7)
    assert model.num_classes == 7


@pytest.mark.parametrize("name", QUICK)
def test_logits_are_exactly_the_head_applied_to_the_features(name: str) -> None:
    torch.manual_seed(0)
    model = create_model(name, 4, SHAPE)
    for mode in (True, False):
        output = model.train(mode)(example(name))
        assert torch.equal(model.head(output.features), output.logits)


@pytest.mark.parametrize("name", QUICK)
def test_every_parameter_receives_a_gradient(name: str) -> None:
    torch.manual_seed(0)
    model = create_model(name, 4, SHAPE)
    torch.nn.functional.cross_entropy(model(example(name)).logits, torch.tensor([0, 1, 2])).backward()
    for parameter_name, parameter in model.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.abs().sum() > 0, parameter_name


@pytest.mark.parametrize("name", QUICK)
def test_a_saved_state_brings_the_same_outputs_back(name: str) -> None:
    torch.manual_seed(0)
    model, other, inputs = create_model(name, 4, SHAPE), create_model(name, 4, SHAPE), example(name)
    model(inputs)  # moves BatchNorm's running statistics
    other.load_state_dict(model.state_dict())
    with torch.no_grad():
        assert torch.equal(model.eval()(inputs).logits, other.eval()(inputs).logits)


@pytest.mark.parametrize("name", QUICK)
def test_copies_and_functional_calls_agree_with_the_model(name: str) -> None:
    torch.manual_seed(0)
    model, inputs = create_model(name, 4, SHAPE).eval(), example(name)
    expected = model(inputs).logits
    assert torch.equal(copy.deepcopy(model)(inputs).logits, expected)
    state = {key: value.detach() for key, value in model.state_dict().items()}
    assert torch.equal(functional_call(model, state, (inputs,)).logits, expected)


@pytest.mark.parametrize("name", QUICK)
def test_one_sample_in_eval_mode_does_not_see_the_others(name: str) -> None:
    torch.manual_seed(0)
    model, inputs = create_model(name, 4, SHAPE).eval(), example(name)
    one = {key: value[:1] for key, value in inputs.items()} if isinstance(inputs, dict) else inputs[:1]
    torch.testing.assert_close(model(one).logits, model(inputs).logits[:1])


def test_a_new_model_is_in_training_mode() -> None:
    assert all(module.training for module in create_model("resnet8", 4).modules())


def test_the_same_seed_draws_the_same_weights() -> None:
    weights = []
    for _ in range(2):
        torch.manual_seed(3)
        weights.append(create_model("resnet8", 4).encoder.stem.weight)
    assert torch.equal(*weights)


def test_hyphens_and_capitals_do_not_matter() -> None:
    with torch.device("meta"):
        assert create_model("WRN-16-8", 10).feature_dim == 512


def test_a_typo_gets_the_nearest_name() -> None:
    with pytest.raises(UnknownNameError, match="unknown model 'resnet_32x': did you mean 'resnet32'"):
        create_model("resnet_32x", 10)


def test_a_wrong_prefix_gets_the_nearest_prefix() -> None:
    with pytest.raises(UnknownNameError, match=r"did you mean 'timm:resnet18'.*Known prefixes: hf, timm, torchvision"):
        create_model("tim:resnet18", 10)


def test_a_prefix_without_a_model_is_refused() -> None:
    with pytest.raises(ValueError, match="after the colon"):
        create_model("hf:", 10)


@pytest.mark.parametrize("num_classes", [1, 0, -3])
def test_fewer_than_two_classes_are_refused(num_classes: int) -> None:
    with pytest.raises(ValueError, match="at least two"):
        create_model("mlp", num_classes, (4,))


def test_image_models_refuse_feature_vectors_and_name_those_that_take_them() -> None:
    with pytest.raises(ValueError, match=r"resnet32 expects images.*'mlp' or 'linear'"):
        create_model("resnet32", 10, (64,))


def test_images_without_a_shape_are_rgb() -> None:
    assert image_channels("any", ()) == 3
    assert create_model("resnet8", 4).encoder.stem.in_channels == 3
