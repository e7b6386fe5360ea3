"""Which label is right, from the label and from what a network says that has not seen it; no rate is given.

A sample's true class c has probability p(c | x), the held-out answer after one temperature and one bias per class, and
turns into the label y with probability T[c, y]. Temperature, biases and T are those under which the labels are likeliest
(EM). A network that knows too little is unsure where it contradicts labels, and the temperature explains that; labels that
are wrong are contradicted however sure it is, and only T explains that. So clean labels stay as they are.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from icda.cross_fit.calibration import check_logits, fit_scale

PSEUDO_SAMPLES = 30.0  # what the rate common to all classes weighs against a class's own counts
ROUNDS, SEARCH_STEPS, SAME = 200, 10, 1e-5
FIRST_SCALE = 3.0  # of logits with spread one: sure enough that the first T is that of the answers
SCALE_DECAY, BIAS_DECAY = 1e-4, 1e-3
LEAST_RATE = 1e-4  # a rate of exactly zero could never rise again


class RefinedLabels(NamedTuple):
    """What is behind given labels."""

    probabilities: Tensor  # (N, C) of each sample's true class
    wrong: float  # the share of wrong labels
    transition: Tensor  # (C, C) T
    sizes: Tensor  # (C,) the classes' true ones, to which rare classes that are protected add nothing


def refine_labels(logits: Tensor, targets: Tensor, pseudo_samples: float = PSEUDO_SAMPLES) -> RefinedLabels:
    """The true classes' probabilities from held-out logits (N, C) and labels (N,) of which some may be wrong.

    >>> truth = torch.arange(300) % 3
    >>> generator = torch.Generator().manual_seed(0)
    >>> wrong = torch.rand(300, generator=generator) < 0.3
    >>> targets = torch.where(wrong, (truth + 1) % 3, truth)
    >>> logits = 4 * F.one_hot(truth, 3) + torch.randn(300, 3, generator=generator)
    >>> refined = refine_labels(logits, targets)
    >>> round(refined.wrong, 1), bool((refined.probabilities.argmax(1) == truth).float().mean() > 0.98)
    (0.3, True)
    """
    check_logits("refining labels", logits, targets)
    values = logits.detach().double()
    values = values - values.mean(1, keepdim=True)
    values = values / values.std(correction=0).clamp(min=1e-12)
    classes = values.shape[1]
    labels = F.one_hot(targets, classes).double()
    scale, bias = values.new_tensor(FIRST_SCALE), values.new_zeros(classes)
    posterior = torch.softmax(values * scale, 1)
    wrong = 1.0
    for _ in range(ROUNDS):
        before = wrong
        transition, wrong = _transition(posterior.T @ labels, pseudo_samples)
        posterior = _posterior(values * scale + bias, transition, targets)
        scale, bias = fit_scale(values, posterior, (scale, bias), SCALE_DECAY, BIAS_DECAY, max_iter=SEARCH_STEPS)
        if abs(wrong - before) < SAME:
            break
    posterior = _posterior(values * scale + bias, transition, targets)
    kept = protect_classes(posterior, targets, wrong, pseudo_samples)
    return RefinedLabels(kept.to(logits.dtype), wrong, transition, posterior.sum(0))


def protect_classes(posterior: Tensor, targets: Tensor, wrong: float, pseudo_samples: float = PSEUDO_SAMPLES) -> Tensor:
    """Probabilities (N, C) of which no label loses more than its samples can vouch for.

    Let M be what the labels y lose, the sum of 1 - q_i(y) over their n samples. At most a share (M + s wrong) / (n + s)
    may go, with s pseudo-samples at the common rate; what is over goes back to the label, the same share of each sample.
    Without this, the few samples of a rare class would be relabelled away.
    """
    classes = posterior.shape[1]
    counts = torch.bincount(targets, minlength=classes).to(posterior)
    lost = 1 - posterior.gather(1, targets[:, None])[:, 0]
    mass = torch.zeros_like(counts).index_add(0, targets, lost)
    allowed = counts * (mass + pseudo_samples * wrong) / (counts + pseudo_samples)
    share = (allowed / mass.clamp(min=1e-12)).clamp(max=1)[targets, None]
    return share * posterior + (1 - share) * F.one_hot(targets, classes).to(posterior)


def _transition(counts: Tensor, pseudo_samples: float) -> tuple[Tensor, float]:
    """T from expected counts (true class, label), each row drawn to the rate common to all; and that rate."""
    classes = len(counts)
    wrong = max(1 - float(counts.diagonal().sum() / counts.sum()), LEAST_RATE)
    common = torch.full_like(counts, wrong / (classes - 1)).fill_diagonal_(1 - wrong)
    return (counts + pseudo_samples * common) / (counts.sum(1, keepdim=True) + pseudo_samples), wrong


def _posterior(logits: Tensor, transition: Tensor, targets: Tensor) -> Tensor:
    return torch.softmax(torch.log_softmax(logits, 1) + transition.log()[:, targets].T, 1)
