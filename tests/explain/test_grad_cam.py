import pytest
import torch
from torch import nn

from icda.explain.grad_cam import as_shares, centre_share, grad_cam
from icda.models import create_model, from_huggingface
from icda.models.base import FeatureClassifier
from icda.models.convolutional import DenseNet, WideResNet


def vit(**options):
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    config = transformers.ViTConfig(**sizes, image_size=32, patch_size=8, num_labels=3, **options)
    return from_huggingface(transformers.ViTForImageClassification(config))


def build(name):
    if name == "wide_resnet":
        return FeatureClassifier(WideResNet(10, 2), nn.Linear(128, 3))
    if name == "densenet":
        encoder = DenseNet((2, 2), growth=4)
        return FeatureClassifier(encoder, nn.Linear(encoder.feature_dim, 3))
    return vit() if name == "vit" else create_model(name, 3, (3, 32, 32))


class MeanOfMaps(nn.Module):
    """Linear in its one map layer, so that Grad-CAM can be written down by hand."""

    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv2d(1, 2, 1, bias=False)

    def forward(self, images):
        return self.convolution(images).mean((2, 3))


LAYERS = {
    "resnet8": "encoder.stages.2.0",
    "resnet32": "encoder.stages.2.4",
    "small_cnn": "encoder.layers.8",
    "wide_resnet": "encoder.norm",
    "densenet": "encoder.norm",
    "vit": "encoder.network.vit.layers.1.layernorm_before",
}


@pytest.mark.parametrize("name", list(LAYERS))
def test_every_network_gives_shares_of_heat_and_stays_as_it_was(name):
    network, images = build(name), torch.rand(3, 3, 32, 32)
    before = {key: value.clone() for key, value in network.state_dict().items()}
    modules = dict(network.named_modules())
    maps = grad_cam(network, images)
    assert maps.layer == LAYERS[name]
    assert maps.heat.shape == (3, 32, 32)
    assert (maps.heat >= 0).all()
    totals = maps.heat.sum((1, 2))
    assert ((totals - 1).abs() < 1e-4).logical_or(totals == 0).all()
    assert totals.max() > 0
    assert network.training
    assert {key: id(value) for key, value in network.named_modules()} == {k: id(v) for k, v in modules.items()}
    assert all(torch.equal(value, before[key]) for key, value in network.state_dict().items())
    assert all(value.grad is None for value in network.parameters())


def test_heat_is_the_mean_gradient_times_the_map_cut_at_zero():
    network = FeatureClassifier(MeanOfMaps(), nn.Linear(2, 2))
    images = torch.randn(2, 1, 6, 6)
    classes = torch.tensor([1, 0])
    maps = grad_cam(network, images, classes)
    for image, c, found in zip(images, classes.tolist(), maps.heat, strict=True):
        with torch.no_grad():
            acts = network.encoder.convolution(image[None])[0]
            # d z_c / d map_k is w_ck / 36 at every pixel.
            heat = sum(network.head.weight[c, k] / 36 * acts[k] for k in range(2)).clamp(min=0)
        torch.testing.assert_close(found, heat / heat.sum().clamp(min=1e-20), rtol=1e-4, atol=1e-6)


def test_tokens_are_laid_out_as_their_patches_lie_in_the_picture():
    """A network that reads one patch only must be hot there."""

    class OnePatch(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.LayerNorm(4, elementwise_affine=False)

        def forward(self, images):
            patches = images.unfold(2, 4, 4).unfold(3, 4, 4).flatten(4).mean(4)  # (N, 4, 4, 4)
            tokens = patches.flatten(2).transpose(1, 2)
            tokens = torch.cat([tokens.new_zeros(len(tokens), 1, 4), tokens], 1)
            weights = torch.full((17, 1), 1e-3)
            weights[1 + 4 * 2 + 1] = 1.0  # row 2, column 1
            return (self.norm(tokens) * weights).sum(1)

    network = FeatureClassifier(OnePatch(), nn.Linear(4, 2))
    images = torch.zeros(1, 4, 16, 16)
    images[0, 0] = 1.0
    network.head.weight.data = torch.tensor([[1.0, 0, 0, 0], [0, 0, 0, 0]])
    images[:, 0, 8:12, 4:8] = 5.0
    images[:, 1, :8] = 3.0  # elsewhere the first feature is not the largest
    maps = grad_cam(network, images, torch.tensor([0]))
    assert maps.resolution == (4, 4)
    row, column = divmod(int(maps.heat[0].argmax()), 16)
    assert 8 <= row < 12
    assert 4 <= column < 8


def test_a_class_and_a_layer_may_be_asked_for_and_batches_change_nothing(monkeypatch):
    network, images = create_model("resnet8", 3, (3, 32, 32)), torch.rand(4, 3, 32, 32)
    assert grad_cam(network, images, layer="encoder.stages.0").resolution == (32, 32)
    free = grad_cam(network, images)
    monkeypatch.setattr("icda.explain.grad_cam.BATCH", 3)
    asked = grad_cam(network, images, free.predicted)
    torch.testing.assert_close(free.heat, asked.heat)
    other = grad_cam(network, images, (free.predicted + 1) % 3)
    assert not torch.allclose(free.heat, other.heat)


@pytest.mark.parametrize(
    ("model", "shape", "layer", "message"),
    [
        ("resnet8", (3, 32, 32), "encoder.stage", "no layer 'encoder.stage'"),
        ("resnet8", (3, 32, 32), "head", "Grad-CAM needs maps"),
        ("mlp", (1, 8, 8), None, "yields maps or tokens larger than one place"),
        ("mlp", (8,), None, r"needs images of shape \(N, C, H, W\), got \(1, 8\)"),
    ],
)
def test_where_there_are_no_maps_it_is_refused(model, shape, layer, message):
    with pytest.raises(ValueError, match=message):
        grad_cam(create_model(model, 3, shape), torch.rand(1, *shape), layer=layer)


def test_tiny_images_are_looked_at_where_maps_can_still_say_where():
    maps = grad_cam(create_model("small_cnn", 3, (1, 8, 8)), torch.rand(2, 1, 8, 8))
    assert maps.resolution == (4, 4)
    coarse = grad_cam(create_model("small_cnn", 3, (1, 8, 8)), torch.rand(2, 1, 8, 8), layer="encoder.layers.8")
    assert coarse.resolution == (2, 2)
    assert coarse.centre_share.isnan().all()


def test_the_share_of_heat_in_the_centre_box():
    for size in ((8, 8), (64, 32), (4, 4)):
        assert centre_share(as_shares(torch.ones(1, *size))).item() == pytest.approx(0.25)
    heat = torch.zeros(3, 8, 8)
    heat[0, 2:6, 2:6] = 1
    heat[1, 0] = 1
    assert centre_share(as_shares(heat)).tolist() == pytest.approx([1.0, 0.0, float("nan")], nan_ok=True)
