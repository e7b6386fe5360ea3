"""What docs/evidence/parity.md says is held by tests is: they exist, and the long loops among them stand here.

The loops follow the order of the released codes and are written by us.
"""

import math
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from cleanlab.count import estimate_joint, num_label_issues

from icda import ClassStatistics
from icda.auditing.rows import scaled_joint, sum_figures
from icda.data.task import Batch
from icda.methods.base import Setup
from icda.methods.group_dro import GroupDRO
from icda.models.base import Output

PAGE = Path(__file__).parents[1] / "docs" / "evidence" / "parity.md"
NAMED = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE.read_text())
# The methods that were compared outside; each has a line.
COMPARED = (
    "ISDA LDAM Focal LA ALA GroupDRO Meta-Weight-Net Co-teaching JoCoR L_DMI APL GCE IRM V-REx CORAL IB-IRM Fish LISA TDE "
    "L-softmax OLTR IFL D2L"
)


@pytest.mark.parametrize(("path", "name"), NAMED)
def test_every_test_that_the_page_names_is_there(path, name):
    assert f"def {name}(" in (PAGE.parents[2] / path).read_text()


@pytest.mark.parametrize("method", COMPARED.split())
def test_every_method_that_was_compared_has_a_line(method):
    table = PAGE.read_text().split("## Different")[0]
    assert re.search(rf"^\| \[?{re.escape(method)}\b.*`tests/", table, re.MULTILINE)


def isda_update(state, features, targets):
    """One batch into (amount, mean, covariance), class by class: weights n / (n + N), and w (1 - w) of the means' gap."""
    amount, mean, covariance = (part.clone() for part in state)
    for c in range(len(amount)):
        rows = features[targets == c]
        if not len(rows):
            continue
        w = len(rows) / (len(rows) + amount[c])
        batch_mean = rows.mean(0)
        spread = sum(torch.outer(row - batch_mean, row - batch_mean) for row in rows) / len(rows)
        gap = mean[c] - batch_mean
        covariance[c] = covariance[c] * (1 - w) + spread * w + w * (1 - w) * torch.outer(gap, gap)
        mean[c] = mean[c] * (1 - w) + batch_mean * w
        amount[c] += len(rows)
    return [amount, mean, covariance]


def test_class_statistics_are_isdas_running_update_over_200_batches():
    generator = torch.Generator().manual_seed(0)
    state = [torch.zeros(5), torch.zeros(5, 4), torch.zeros(5, 4, 4)]
    state, statistics = [part.double() for part in state], ClassStatistics(5, 4).double()
    for number in range(200):
        targets = torch.randint(5, (12,), generator=generator)
        noise = torch.randn(12, 4, generator=generator, dtype=torch.float64)
        features = noise * (1 + targets[:, None]) + 0.02 * number  # features drift, as in training
        state = isda_update(state, features, targets)
        statistics.update(features, targets)
    amount, mean, covariance = state
    assert torch.equal(statistics.count, amount)
    torch.testing.assert_close(statistics.mean, mean, rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(statistics.covariance, covariance, rtol=1e-11, atol=1e-11)


def test_group_dro_follows_the_released_update_over_50_steps():
    setup = Setup(3, 4, torch.full((3,), 20), epochs=1, num_samples=60, group_counts=torch.full((4,), 15))
    method, q = GroupDRO(setup, eta=0.2).double(), [0.25] * 4
    context = SimpleNamespace(progress=0.5)
    for step in range(50):
        generator = torch.Generator().manual_seed(step)
        logits = torch.randn(16, 3, generator=generator, dtype=torch.float64).requires_grad_()
        targets, groups = torch.randint(3, (16,), generator=generator), torch.arange(16) % 4
        means = []
        for group in range(4):  # the mean loss of each group, then q_g <- q_g exp(eta loss_g), scaled to sum to one
            rows = [row for row in range(16) if int(groups[row]) == group]
            means.append(sum(-logits[row].log_softmax(0)[targets[row]] for row in rows) / len(rows))
            q[group] *= math.exp(0.2 * float(means[group].detach()))
        q = [value / sum(q) for value in q]
        wanted = sum(value * mean for value, mean in zip(q, means, strict=True))
        batch = Batch(logits, targets, groups, torch.arange(16))
        found = method.loss(Output(logits, logits), batch, context)
        torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)
        slopes = [torch.autograd.grad(value, [logits])[0] for value in (found, wanted)]
        torch.testing.assert_close(slopes[0], slopes[1], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(method.q, torch.tensor(q, dtype=torch.float64), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_the_share_of_wrong_labels_is_cleanlabs(seed):
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 3, 400)
    probabilities = np.exp(generator.normal(size=(400, 3)) + 1.5 * np.eye(3)[labels])
    probabilities /= probabilities.sum(1, keepdims=True)
    labels[:60] = (labels[:60] + 1) % 3
    thresholds = [probabilities[labels == c, c].mean() for c in range(3)]
    logits, targets = torch.from_numpy(np.log(probabilities)), torch.from_numpy(labels)
    found = sum_figures(0, logits, torch.zeros(400), targets, np.array(thresholds))
    assert found.issues == num_label_issues(labels, probabilities, estimation_method="off_diagonal")
    theirs = 400 * estimate_joint(labels, probabilities)  # whole numbers: cleanlab rounds the joint
    np.testing.assert_allclose(theirs, np.round(theirs), atol=1e-9)
    assert np.abs(scaled_joint(found.confident, np.bincount(labels)) - theirs).max() < 1.0
