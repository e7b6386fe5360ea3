from collections import OrderedDict

import pytest
import torch
from torch import nn

from icda.explain.grad_cam import find_layer
from icda.models import create_model
from icda.models.adapters import from_torch
from icda.models.convolutional import BasicBlock, DenseLayer, DenseNet, Transition, WideBlock, WideResNet
from icda.models.huggingface import from_huggingface
from icda.models.two_branches import TwoBatches, two_branches

IMAGE = (3, 16, 16)


def make_encoder(name):
    if name == "wide_resnet":
        return WideResNet(depth=16, widen=1)
    if name == "densenet":
        return DenseNet(blocks=(2, 3), growth=4)
    return create_model(name, 3, IMAGE).encoder


def settle(encoder):
    """BatchNorm figures that are not those of the first day, so that a norm left out is noticed."""
    for module in encoder.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.running_mean)
            nn.init.uniform_(module.running_var, 0.5, 2.0)
            nn.init.normal_(module.weight)


class LikeTorchvision(nn.Module):
    """The layout of torchvision's ResNets: stages by name, a pool, a functional flatten, `fc`."""

    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 16, 3, bias=False), nn.BatchNorm2d(16)
        self.relu, self.maxpool = nn.ReLU(inplace=True), nn.MaxPool2d(2)
        self.layer1 = nn.Sequential(BasicBlock(16, 16), BasicBlock(16, 16))
        self.layer2 = nn.Sequential(BasicBlock(16, 32, stride=2), BasicBlock(32, 32))
        self.avgpool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(32, 10)

    def forward(self, images):
        maps = self.maxpool(self.relu(self.bn1(self.conv1(images))))
        return self.fc(torch.flatten(self.avgpool(self.layer2(self.layer1(maps))), 1))


class WithMoreThanItsLayers(LikeTorchvision):
    """Its layers one after the other run, but give something else."""

    def forward(self, images):
        return super().forward(images.square())


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("resnet8", [BasicBlock]),
        ("resnet14", [BasicBlock]),
        ("wide_resnet", [WideBlock, nn.BatchNorm2d]),
        ("densenet", [DenseLayer, DenseLayer, DenseLayer, nn.BatchNorm2d]),
        ("small_cnn", [nn.Conv2d, nn.BatchNorm2d, nn.ReLU]),
        ("mlp", [nn.Linear, nn.ReLU]),
    ],
)
def test_the_last_block_is_doubled_and_nothing_else_and_gives_the_features_of_the_whole_one_twice(name, kinds):
    encoder, images = make_encoder(name), torch.randn(4, *IMAGE)
    settle(encoder)
    wanted = encoder.eval()(images)
    size = sum(value.numel() for value in encoder.parameters())
    cut = two_branches(encoder, IMAGE)
    assert not cut.training
    torch.testing.assert_close(cut(images), torch.cat([wanted, wanted], 1))
    torch.testing.assert_close(cut.pool(cut.conventional(cut.trunk(images))), wanted)
    for branch in (cut.conventional, cut.rebalancing):
        assert [type(layer) for layer in branch.children()] == kinds
    assert not any(isinstance(layer, Transition) for layer in cut.rebalancing.modules())
    doubled = sum(value.numel() for value in cut.rebalancing.parameters())
    assert sum(value.numel() for value in cut.parameters()) == size + doubled
    shared = {id(value) for value in cut.conventional.parameters()} & {id(v) for v in cut.rebalancing.parameters()}
    assert not shared


@pytest.mark.parametrize("share", [0.0, 0.3])
def test_two_batches_go_through_their_own_branch_and_are_weighted_by_their_share(share):
    cut = two_branches(make_encoder("resnet8"), IMAGE).double().eval()
    with torch.no_grad():
        for value in cut.rebalancing.parameters():
            value.mul_(1.5)
    first, second = torch.randn(2, 3, *IMAGE, dtype=torch.float64).unbind(0)
    found = cut(TwoBatches(first, second, share))
    for row in range(3):
        one = cut.conventional(cut.trunk(first[row : row + 1])).mean((2, 3))[0]
        two = cut.rebalancing(cut.trunk(second[row : row + 1])).mean((2, 3))[0]
        expected = torch.tensor([2 * share * v for v in one.tolist()] + [2 * (1 - share) * v for v in two.tolist()])
        torch.testing.assert_close(found[row].detach(), expected.double(), rtol=1e-6, atol=1e-6)


def test_batch_norm_of_the_trunk_sees_the_batches_one_after_the_other():
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    cut = two_branches(encoder, (4,)).train()
    norm, hidden = cut.trunk[2], cut.trunk[1]
    first, second = torch.randn(5, 4), 3 + torch.randn(5, 4)
    cut(TwoBatches(first, second, 0.5))
    expected = 0.9 * (0.1 * hidden(first).mean(0)) + 0.1 * hidden(second).mean(0)
    torch.testing.assert_close(norm.running_mean, expected.detach())


def test_cutting_draws_nothing_and_leaves_modes_and_figures_of_the_layers():
    encoder = make_encoder("resnet8").train()
    encoder.stem_norm.eval()
    figures = {name: value.clone() for name, value in encoder.state_dict().items()}
    before = torch.get_rng_state()
    cut = two_branches(encoder, IMAGE)
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(value, figures[name]) for name, value in encoder.state_dict().items())
    modes = {name: module.training for name, module in cut.named_modules()}
    assert [name for name, training in modes.items() if not training] == ["trunk.1"]


def test_a_resnet_in_torchvisions_layout_is_cut_before_its_last_block():
    network = from_torch(LikeTorchvision(), num_classes=3).eval()
    settle(network.encoder)
    images = torch.randn(2, *IMAGE)
    wanted = network(images).features
    cut = two_branches(network.encoder, IMAGE)
    assert [type(layer) for layer in cut.conventional.children()] == [BasicBlock]
    torch.testing.assert_close(cut(images), torch.cat([wanted, wanted], 1))


def test_maps_of_both_branches_stand_in_one_layer_for_grad_cam():
    network = create_model("resnet8", 3, (3, 32, 32))
    network.encoder, network.head = two_branches(network.encoder, (3, 32, 32)), nn.Linear(128, 3)
    assert find_layer(network, torch.rand(1, 3, 32, 32)) == "encoder.join"


def hugging_face():
    transformers = pytest.importorskip("transformers")
    config = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], num_labels=3)
    return from_huggingface(transformers.ResNetForImageClassification(config))


class Backwards(nn.Sequential):
    """Layers that fit together in another order than they stand in."""

    def __init__(self):
        layers = OrderedDict(second=nn.Linear(6, 4), first=nn.Linear(16, 6), fc=nn.Linear(4, 10))
        super().__init__(layers)

    def forward(self, images):
        return self.fc(self.second(self.first(images.mean((1, 2)))))


@pytest.mark.parametrize(
    ("make", "shape", "message"),
    [
        (hugging_face, IMAGE, "ResNetForImageClassification is not one layer after another.*TwoBranches"),
        (lambda: create_model("bag_of_words", 3), IMAGE, "BagOfWords is not one layer after another"),
        (lambda: from_torch(WithMoreThanItsLayers(), 3), IMAGE, "WithMoreThanItsLayers is not one layer after another"),
        (lambda: from_torch(Backwards(), 3), IMAGE, "Backwards is not one layer after another"),
        (
            lambda: create_model("linear", 3, (5,)),
            (5,),
            r"Flatten has no layer with weights.*'linear' is a head alone.*'mlp'",
        ),
        (lambda: create_model("mlp", 3, IMAGE), (), "need the shape of one input"),
    ],
)
def test_an_encoder_that_cannot_be_cut_is_refused(make, shape, message):
    with pytest.raises(ValueError, match=message):
        two_branches(make().encoder, shape)
