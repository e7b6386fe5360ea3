"""Refined labels: against a model whose truth is known, limits, and the protection of rare classes."""

import pytest
import torch
from torch.nn import functional as F

from icda.cross_fit.refined_labels import protect_classes, refine_labels
from icda.errors import InputError

TO = torch.tensor([[1, 2], [2, 3], [3, 0], [0, 1]])  # the two classes that each class is taken for


def drawn(size, rate, sureness, seed=0):
    """True classes, labels of which `rate` are wrong in two ways per class, and logits of a network that is often right."""
    generator = torch.Generator().manual_seed(seed)
    truth = torch.arange(size) % 4
    other = TO[truth, torch.randint(0, 2, (size,), generator=generator)]
    labels = torch.where(torch.rand(size, generator=generator) < rate, other, truth)
    logits = sureness * F.one_hot(truth, 4) + torch.randn(size, 4, generator=generator)
    return truth, labels, logits


def naive_posterior(logits, labels, rate):
    """Bayes' rule with the generating model: the logits' likelihood is exactly softmax(sureness z) there."""
    transition = torch.eye(4, dtype=torch.double) * (1 - rate)
    for c, others in enumerate(TO.tolist()):
        for other in others:
            transition[c, other] = rate / 2
    rows = []
    for z, y in zip(logits.double(), labels.tolist(), strict=True):
        joint = torch.stack([(3.0 * z[c]).exp() * transition[c, y] for c in range(4)])
        rows.append(joint / joint.sum())
    return torch.stack(rows)


@pytest.mark.parametrize("rate", [0.2, 0.4])
def test_many_samples_give_bayes_rule_of_the_model_that_made_them(rate):
    truth, labels, logits = drawn(6000, rate, sureness=3.0)
    refined = refine_labels(logits, labels, pseudo_samples=1.0)
    wanted = naive_posterior(logits, labels, rate)
    assert refined.wrong == pytest.approx(rate, abs=0.02)
    assert float((refined.probabilities - wanted).abs().mean()) < 0.01
    transition = torch.zeros(4, 4).index_put((truth, labels), torch.ones(6000), accumulate=True) / 1500
    torch.testing.assert_close(refined.transition.float(), transition, atol=0.03, rtol=0)


@pytest.mark.parametrize("sureness", [1.0, 3.0, 8.0])
def test_right_labels_stay_however_little_the_network_knows(sureness):
    """A network that is wrong in a third of the cases and more is no reason to change labels."""
    truth, labels, logits = drawn(1200, 0.0, sureness)
    assert torch.equal(truth, labels)
    refined = refine_labels(logits, labels)
    assert refined.wrong < (0.05 if sureness == 1.0 else 0.01)  # the less is known, the less the rate can be told
    assert float((refined.probabilities.argmax(1) == truth).float().mean()) > 0.99
    if sureness == 1.0:
        assert float((logits.argmax(1) == truth).float().mean()) < 0.7


def test_the_scale_of_the_logits_does_not_matter():
    _, labels, logits = drawn(400, 0.3, sureness=3.0)
    small, large = (refine_labels(scale * logits, labels).probabilities for scale in (0.1, 40.0))
    torch.testing.assert_close(small, large, atol=1e-3, rtol=0)


def test_probabilities_sum_to_one_and_have_the_dtype_of_the_logits():
    _, labels, logits = drawn(100, 0.3, sureness=3.0)
    for dtype in (torch.float32, torch.float64):
        refined = refine_labels(logits.to(dtype), labels)
        assert refined.probabilities.dtype == dtype
        torch.testing.assert_close(refined.probabilities.sum(1), torch.ones(100, dtype=dtype))


def test_a_rare_class_that_nobody_predicts_keeps_its_labels_and_a_frequent_one_does_not():
    posterior = torch.zeros(102, 2, dtype=torch.double)
    posterior[:, 0] = 1  # all samples look like class 0
    targets = torch.cat([torch.zeros(100, dtype=torch.long), torch.ones(2, dtype=torch.long)])
    kept = protect_classes(posterior, targets, wrong=0.02, pseudo_samples=30.0)
    assert torch.equal(kept[:100], posterior[:100])
    lost = 2 * (2 + 30 * 0.02) / 32  # of two samples
    assert float(kept[100:, 0].sum()) == pytest.approx(lost)
    many = torch.cat([torch.zeros(100, dtype=torch.long), torch.ones(1000, dtype=torch.long)])
    kept = protect_classes(torch.tensor([[1.0, 0.0]]).double().repeat(1100, 1), many, 0.9, 30.0)
    assert float(kept[100:, 0].mean()) > 0.99


def test_what_a_label_may_lose_is_never_more_than_it_loses():
    _, labels, logits = drawn(200, 0.3, sureness=2.0)
    posterior = torch.softmax(logits.double(), 1)
    kept = protect_classes(posterior, labels, wrong=0.9)
    assert (kept.gather(1, labels[:, None]) >= posterior.gather(1, labels[:, None]) - 1e-12).all()


@pytest.mark.parametrize(
    ("logits", "targets", "message"),
    [
        (torch.zeros(3), torch.zeros(3).long(), "needs logits"),
        (torch.zeros(3, 2), torch.zeros(2).long(), r"got \(3, 2\) and \(2,\)"),
        (torch.zeros(3, 1), torch.zeros(3).long(), "two classes or more"),
        (torch.full((3, 2), torch.nan), torch.zeros(3).long(), "diverged"),
    ],
)
def test_other_shapes_and_values_are_refused(logits, targets, message):
    with pytest.raises(InputError, match=message):
        refine_labels(logits, targets)
