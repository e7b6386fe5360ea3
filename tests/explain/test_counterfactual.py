import pytest
import torch
from torch import nn

from icda.data.augmentation import Normaliser
from icda.explain.counterfactual import AUGMENTATIONS, TiedSamples, nearest_real, paint, total_variation
from icda.explain.margins import Pass
from icda.models.base import FeatureClassifier

C, A = 3, 4
DRAWS = 4000


@pytest.fixture
def space():
    features, targets = torch.randn(300, A) * torch.tensor([1.0, 0.5, 2.0, 1.5]), torch.arange(300) % C
    features = features + 3 * torch.eye(C, A)[targets]
    logits = torch.randn(300, C) + 2 * torch.eye(C)[targets]
    return Pass(torch.arange(300), features, logits, logits.argmax(1), targets, None, torch.randn(C, A), None)


def tied(space, places, towards, strengths):
    return TiedSamples(None, space, torch.tensor(places), torch.tensor(towards), torch.tensor(strengths))


@pytest.mark.parametrize("kind", AUGMENTATIONS)
def test_augmented_features_have_the_mean_and_covariance_of_their_method(kind, space):
    mean, covariance = space.statistics.mean, space.statistics.covariance
    start, lam = space.features[0], 0.5  # of class 0
    relations = space.confusion[0].float()
    shifts = {
        "isda": torch.zeros(A),
        "risda": sum(relations[j] * mean[j] for j in range(C)) - mean[0],
        "icda": 0.4 * mean[2],
    }
    spreads = {
        "isda": covariance[0],
        "risda": sum(relations[j] * covariance[j] for j in range(C)),
        "icda": covariance[0] + 0.4 * covariance[2],
    }
    found = tied(space, [0] * DRAWS, [2] * DRAWS, [0.4] * DRAWS).augmented(kind, lam)
    torch.testing.assert_close(found.mean(0), start + lam * shifts[kind], rtol=0, atol=0.12)
    torch.testing.assert_close(torch.cov(found.T), lam * spreads[kind], rtol=0.12, atol=0.12)


def test_the_space_holds_statistics_and_the_confusion_of_the_pass(space):
    assert space.statistics.count.tolist() == [100, 100, 100]
    torch.testing.assert_close(space.confusion.sum(1), torch.ones(C, dtype=torch.float64))
    assert (space.confusion.diagonal() < 1).all()  # else RISDA would be ISDA, and the test above say nothing


def test_the_seed_decides_and_neighbours_do_not(space):
    def draw(count, seed):
        return tied(space, [0, 1, 2][:count], [1, 2, 0][:count], [0.3, 0.2, 0.1][:count]).augmented("icda", 0.5, seed)

    assert torch.equal(draw(3, 0), draw(3, 0))
    assert torch.equal(draw(3, 0)[:1], draw(1, 0))
    assert not torch.equal(draw(3, 0), draw(3, 1))


def test_without_strength_icda_moves_as_isda_does_and_lambda_zero_moves_nothing(space):
    untied, whole = tied(space, [0, 1], [1, 0], [0.0, 0.0]), tied(space, [0, 1], [1, 0], [1.0, 1.0])
    assert torch.equal(untied.augmented("icda", 0.5), untied.augmented("isda", 0.5))
    for kind in AUGMENTATIONS:
        torch.testing.assert_close(whole.augmented(kind, 0.0), space.features[:2])


class Blocks(nn.Module):
    """Features are the means of the four quarters of a picture: any of them can be had."""

    def forward(self, images):
        return nn.functional.avg_pool2d(images, 4).flatten(1)


class TestPaint:
    network = FeatureClassifier(Blocks(), nn.Linear(4, 2))
    normaliser = Normaliser((0.5,), (0.25,))

    def test_a_picture_with_the_wanted_feature_is_found(self):
        inputs, wanted = torch.zeros(2, 1, 8, 8), torch.tensor([[1.0, -1.0, 0.5, 0.0], [0.0, 0.0, 1.5, 1.5]])
        made, errors = paint(self.network, inputs, wanted, self.normaliser, smoothness=0.0)
        assert errors.max() < 0.02
        assert 0 <= made.min() <= made.max() <= 1
        torch.testing.assert_close(self.network.encoder((made - 0.5) / 0.25), wanted, rtol=0, atol=0.05)
        _, errors = paint(self.network, inputs[:1], torch.full((1, 4), 20.0), self.normaliser)  # out of reach
        assert errors.item() == pytest.approx(18 / 20, abs=0.01)  # white is 2, and 20 is wanted

    def test_the_prior_makes_the_change_smoother(self):
        # A noisy filter in front: the feature is cheapest to have by painting noise.
        torch.manual_seed(3)
        network = FeatureClassifier(nn.Sequential(nn.Conv2d(1, 1, 3, padding=1), Blocks()), nn.Linear(4, 2))
        inputs, wanted = torch.randn(1, 1, 8, 8) * 0.3, torch.tensor([[0.5, -0.5, 0.5, -0.5]])
        start = inputs * 0.25 + 0.5
        rough, smooth = (
            total_variation(paint(network, inputs, wanted, self.normaliser, smoothness=weight)[0] - start).item()
            for weight in (0.0, 1.0)
        )
        assert smooth < 0.7 * rough

    def test_it_is_deterministic_and_each_picture_is_sought_for_itself(self):
        inputs, wanted = torch.randn(3, 1, 8, 8) * 0.5, torch.randn(3, 4) * 0.5
        whole, again = (paint(self.network, inputs, wanted, self.normaliser)[0] for _ in range(2))
        assert torch.equal(whole, again)
        alone = paint(self.network, inputs[1:2], wanted[1:2], self.normaliser)[0]
        torch.testing.assert_close(alone[0], whole[1], rtol=1e-4, atol=1e-4)

    def test_the_network_is_left_as_it_was(self, coloured):
        network, task = coloured.networks[0].train(), coloured.task
        before = {name: value.clone() for name, value in network.state_dict().items()}
        inputs = task.train.batch(torch.arange(2)).inputs
        paint(network, inputs, torch.zeros(2, network.feature_dim), None, steps=3)
        assert network.training
        assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


def test_total_variation_is_the_mean_step_between_neighbours():
    pixels = torch.rand(2, 3, 4, 5, dtype=torch.float64)
    for image, found in zip(pixels, total_variation(pixels).tolist(), strict=True):
        down = [abs(image[c, i + 1, j] - image[c, i, j]) for c in range(3) for i in range(3) for j in range(5)]
        across = [abs(image[c, i, j + 1] - image[c, i, j]) for c in range(3) for i in range(4) for j in range(4)]
        assert found == pytest.approx(float(sum(down) / len(down) + sum(across) / len(across)))


def test_the_nearest_real_samples_are_those_of_a_search_by_hand():
    wanted, features, without = torch.randn(4, A), torch.randn(30, A), torch.tensor([3, 1, 4, 15])
    found = nearest_real(wanted, features, 3, without)
    for row, own, places in zip(wanted, without.tolist(), found.tolist(), strict=True):
        order = sorted((i for i in range(30) if i != own), key=lambda i, row=row: float((features[i] - row).norm()))
        assert places == order[:3]
    assert nearest_real(wanted, features[:3], 9, torch.zeros(4).long()).shape == (4, 2), "all there is"
