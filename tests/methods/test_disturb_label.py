import pytest
import torch
from torch.nn import functional as F

from icda.data.generators import generator_for
from icda.data.task import Batch
from icda.methods import Setup
from icda.methods.disturb_label import DisturbLabel
from icda.models.base import Output
from support import make_context


def make(alpha, classes=4, samples=20_000, seed=0):
    counts = torch.full((classes,), samples // classes)
    return DisturbLabel(Setup(classes, 3, counts, epochs=2, num_samples=samples, seed=seed), alpha=alpha)


def make_batch(size=60, classes=4):
    logits = torch.randn(size, classes, dtype=torch.float64, requires_grad=True)
    index = torch.randperm(20_000)[:size]
    return Output(torch.zeros(size, 3), logits), Batch(torch.zeros(size, 1), torch.arange(size) % classes, None, index)


def test_alpha_zero_is_cross_entropy_bit_for_bit():
    output, batch = make_batch()
    value = make(0.0).loss(output, batch, make_context(epoch=1))
    assert torch.equal(value, F.cross_entropy(output.logits, batch.targets))


@pytest.mark.parametrize("classes", [2, 4])
def test_it_is_the_cross_entropy_of_labels_that_an_address_decides(classes):
    output, batch = make_batch(classes=classes)
    method = make(0.3, classes, seed=5)
    for epoch in (3, 4, 3):  # going back gives the same again
        generator = generator_for(5, "disturb_label", epoch)
        draws = torch.rand(20_000, generator=generator).tolist()
        drawn = torch.randint(classes, (20_000,), generator=generator).tolist()
        labels = [drawn[i] if draws[i] < 0.3 else y for i, y in zip(batch.index.tolist(), batch.targets, strict=True)]
        expected = F.cross_entropy(output.logits, torch.tensor(labels))
        assert torch.equal(method.loss(output, batch, make_context(epoch=epoch)), expected)


@pytest.mark.parametrize("alpha", [0.4, 1.0])
def test_a_label_stays_with_probability_one_minus_alpha_plus_alpha_over_classes_and_is_uniform_elsewhere(alpha):
    index, targets = torch.arange(20_000), torch.full((20_000,), 2)
    shares = make(alpha).disturbed(targets, index, epoch=0).bincount(minlength=4) / 20_000
    for c, share in enumerate(shares.tolist()):
        assert share == pytest.approx(alpha / 4 + (1 - alpha) * (c == 2), abs=0.013)  # four standard deviations


def test_epochs_and_seeds_draw_anew():
    index, targets = torch.arange(20_000), torch.zeros(20_000, dtype=torch.long)
    draws = [make(0.5, seed=seed).disturbed(targets, index, epoch) for seed, epoch in ((0, 0), (0, 1), (1, 0))]
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert 0.3 < float((draws[one] == draws[other]).double().mean()) < 0.7


def test_the_share_of_a_batch_does_not_change_what_its_samples_draw():
    """Two ranks see every other sample of what one process sees."""
    index = torch.randperm(20_000)[:50]
    targets = torch.arange(50) % 4
    whole = make(0.5).disturbed(targets, index, epoch=7)
    for rank in (0, 1):
        assert torch.equal(make(0.5).disturbed(targets[rank::2], index[rank::2], epoch=7), whole[rank::2])


def test_the_global_generator_is_left_alone():
    before = torch.get_rng_state()
    make(0.5).disturbed(torch.zeros(4, dtype=torch.long), torch.arange(4), epoch=0)
    assert torch.equal(torch.get_rng_state(), before)
