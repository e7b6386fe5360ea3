"""Networks that look like timm's and torchvision's; neither library is needed."""

import copy
import sys
from collections import OrderedDict
from types import ModuleType

import pytest
import torch
from torch import nn

from icda.models import create_model, from_torch
from icda.models.adapters import Headless, is_linear, join, named_layer, take_off


class Body(nn.Module):
    """Eight feature maps, to which a subclass adds a head."""

    def __init__(self, channels=3):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(channels, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())


class TimmNet(Body):
    """As timm writes them: forward_features, forward_head, a head that holds pooling, dropout and `fc`."""

    def __init__(self, num_classes=5, in_chans=3, convolution=False):
        super().__init__(in_chans)
        fc = nn.Conv2d(8, num_classes, 1) if convolution else nn.Linear(8, num_classes)
        self.head = nn.ModuleDict({"fc": fc if num_classes else nn.Identity()})
        self.convolution = convolution

    def get_classifier(self):
        return self.head["fc"]

    def forward_head(self, maps, pre_logits=False):
        pooled = maps.mean(dim=(2, 3), keepdim=self.convolution)
        return (pooled if pre_logits else self.head["fc"](pooled)).flatten(1)

    def forward(self, images):
        return self.forward_head(self.stem(images))


class TorchvisionNet(Body):
    """As torchvision writes them: pooled features go through a module with one of four names."""

    def __init__(self, name, head, flatten=True):
        super().__init__()
        self.flatten = flatten
        self.name = name
        self.add_module(name, head)

    def forward(self, images):
        maps = self.stem(images)
        return getattr(self, self.name)(maps.mean(dim=(2, 3)) if self.flatten else maps)


def hidden_then_linear():
    return nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Dropout(0.5), nn.Linear(6, 5))


LOOKALIKES = {
    "timm": TimmNet(),
    "timm with a 1x1 convolution": TimmNet(convolution=True),
    "resnet": TorchvisionNet("fc", nn.Linear(8, 5)),
    "vgg": TorchvisionNet("classifier", hidden_then_linear()),
    "swin": TorchvisionNet("head", nn.Linear(8, 5, bias=False)),
    "vit": TorchvisionNet("heads", nn.Sequential(OrderedDict(head=nn.Linear(8, 5)))),
    "convolution, then pooling": TorchvisionNet(
        "classifier", nn.Sequential(nn.Conv2d(8, 5, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten()), flatten=False
    ),
}


@pytest.fixture
def images():
    return torch.randn(4, 3, 6, 6, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("kind", LOOKALIKES)
def test_logits_stay_what_they_were_and_gradients_reach_every_parameter(kind, images):
    network = copy.deepcopy(LOOKALIKES[kind]).eval()
    expected = network(images)
    model = from_torch(network)
    output = model(images)
    output.logits.square().sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    torch.testing.assert_close(output.logits, expected)
    assert torch.equal(model.head(output.features), output.logits)
    assert output.features.shape == (4, model.feature_dim)
    assert isinstance(model.head, nn.Linear)
    assert not model.training
    other = from_torch(copy.deepcopy(LOOKALIKES[kind])).eval()
    nn.init.zeros_(other.head.weight)
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(images).logits, output.logits), "a saved state comes back"


@pytest.mark.parametrize("kind", LOOKALIKES)
def test_another_number_of_classes_brings_a_new_head_and_keeps_the_features(kind, images):
    network = copy.deepcopy(LOOKALIKES[kind]).eval()
    expected = from_torch(copy.deepcopy(network))(images).features
    output = from_torch(network, num_classes=3)(images)
    assert output.logits.shape == (4, 3)
    assert torch.equal(output.features, expected)
    elsewhere = nn.Linear(108, 9, bias=False, dtype=torch.float64)
    named = nn.Sequential(OrderedDict(body=nn.Flatten(), top=nn.Sequential(elsewhere)))
    head = from_torch(named, num_classes=3, head="top.0").head
    assert (head.weight.shape, head.weight.dtype, head.bias) == ((3, 108), torch.float64, None)


def classified(classifier):
    network = TimmNet()
    network.get_classifier = lambda: classifier
    return network


@pytest.mark.parametrize(
    ("network", "message"),
    [
        (
            nn.Sequential(OrderedDict(body=nn.Flatten(), top=nn.Linear(108, 5))),
            r"no linear head in Sequential.*found only body, top\. Name",
        ),
        (
            TorchvisionNet("classifier", nn.Sequential(nn.Conv2d(8, 5, 1), nn.ReLU()), flatten=False),
            "'classifier' ending in ReLU",
        ),
        (classified(nn.Identity()), r"call model\.reset_classifier"),
        (classified((nn.Linear(8, 5), nn.Linear(8, 5))), "2 heads"),
        (classified(hidden_then_linear()), "returns a Sequential"),
    ],
)
def test_a_network_without_a_linear_head_is_refused_with_what_it_has(network, message):
    with pytest.raises(ValueError, match=message):
        from_torch(network)


def test_a_timm_name_goes_to_timm_with_classes_and_channels(monkeypatch):
    fake = ModuleType("timm")
    fake.create_model = lambda name, **options: TimmNet(**options)
    monkeypatch.setitem(sys.modules, "timm", fake)
    model = create_model("timm:any", 7, (1, 8, 8), convolution=True)
    assert model(torch.randn(2, 1, 8, 8)).logits.shape == (2, 7)
    assert model.training


def test_a_torchvision_name_goes_to_torchvision_and_gets_its_classes(monkeypatch):
    fake = ModuleType("torchvision.models")
    fake.get_model = lambda name: TorchvisionNet("fc", nn.Linear(8, 1000))
    monkeypatch.setitem(sys.modules, "torchvision", ModuleType("torchvision"))
    monkeypatch.setitem(sys.modules, "torchvision.models", fake)
    assert create_model("torchvision:any", 7)(torch.randn(2, 3, 8, 8)).logits.shape == (2, 7)
    with pytest.raises(ValueError, match="take RGB images"):
        create_model("torchvision:any", 7, (1, 8, 8))


def test_a_layer_known_by_two_names_is_taken_off_both():
    network = nn.Sequential(OrderedDict(body=nn.Flatten(), fc=nn.Linear(4, 2)))
    network.add_module("alias", network.fc)
    layer = network.fc
    assert take_off(network, layer) is layer
    assert isinstance(network.fc, nn.Identity)
    assert isinstance(network.alias, nn.Identity)
    assert not list(network.parameters())


@pytest.mark.parametrize(("bias", "trained"), [(True, True), (False, False)])
def test_a_convolution_becomes_the_same_linear_map_and_draws_no_random_number(bias, trained):
    convolution = nn.Conv2d(5, 3, 1, bias=bias).requires_grad_(trained)
    network = nn.Sequential(convolution, nn.Flatten())
    maps = torch.randn(2, 5, 1, 1)
    expected, before = network(maps), torch.get_rng_state()
    head = take_off(network, convolution)
    assert torch.equal(torch.get_rng_state(), before)
    torch.testing.assert_close(head(network(maps)), expected)
    assert (head.bias is not None) == bias
    assert {parameter.requires_grad for parameter in head.parameters()} == {trained}


@pytest.mark.parametrize(
    "layer", [nn.Conv2d(4, 2, 3), nn.Conv2d(4, 2, 1, stride=2), nn.Conv2d(4, 2, 1, groups=2), nn.ReLU(), None]
)
def test_other_layers_are_not_linear(layer):
    assert not is_linear(layer)


@pytest.mark.parametrize(("name", "found"), [("body", "a Flatten"), ("nowhere", "nothing"), ("", "a Sequential")])
def test_a_wrongly_named_head_is_refused_with_the_layers_there_are(name, found):
    network = nn.Sequential(OrderedDict(body=nn.Flatten(), fc=nn.Linear(4, 2)))
    with pytest.raises(ValueError, match=f"is {found} in Sequential.*The last ones are: fc"):
        named_layer(network, name)


@pytest.mark.parametrize(
    ("network", "found"),
    [(nn.Identity(), r"shape \(2, 3, 4\)"), (nn.Flatten(), r"shape \(2, 12\)"), (nn.LSTM(4, 4), "a tuple")],
)
def test_an_output_that_is_no_feature_batch_is_refused(network, found):
    with pytest.raises(ValueError, match=f"returned {found}, expected features of shape"):
        Headless(network, 4)(torch.zeros(2, 3, 4))


def test_parts_set_to_eval_stay_so():
    network = nn.Sequential(nn.BatchNorm1d(4).eval(), nn.Linear(4, 2))
    head = take_off(network, network[1])
    model = join(Headless(network, 4), head)
    assert model.training
    assert not network[0].training
