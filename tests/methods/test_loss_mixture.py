"""The mixture of two normal distributions beside scikit-learn's, and the loss beside its formula."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from sklearn.mixture import GaussianMixture
from torch import Tensor, nn
from torch.nn import functional as F

from icda.data.task import Batch
from icda.methods import Setup
from icda.methods.loss_mixture import LossMixture, lower_component
from icda.models.base import FeatureClassifier, Output
from support import make_context

SETUP = Setup(num_classes=3, feature_dim=4, class_counts=torch.tensor([8, 8, 8]), epochs=20, num_samples=24)
INPUTS = torch.randn(24, 4, generator=torch.Generator().manual_seed(1))
TARGETS = torch.arange(24) % 3
context_of = partial(make_context, data=(INPUTS, TARGETS), num_epochs=20)


def losses(seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    low, high = torch.randn(300, generator=generator).abs(), 4 + torch.randn(200, generator=generator)
    return torch.cat([low, high])


@pytest.mark.parametrize("seed", range(3))
def test_the_lower_component_is_that_of_scikit_learns_mixture(seed: int) -> None:
    values = losses(seed).double()
    scaled = ((values - values.min()) / (values.max() - values.min()))[:, None].numpy()
    mixture = GaussianMixture(2, reg_covar=1e-4, tol=1e-9, max_iter=500, random_state=0).fit(scaled)
    wanted = torch.from_numpy(mixture.predict_proba(scaled)[:, mixture.means_.argmin()])
    torch.testing.assert_close(lower_component(values), wanted, atol=1e-3, rtol=0)


def test_losses_that_are_all_alike_are_trusted() -> None:
    assert torch.equal(lower_component(torch.full((5,), 0.7)), torch.ones(5))


def test_labels_are_trusted_until_the_start_and_then_by_the_losses_of_a_pass() -> None:
    torch.manual_seed(0)
    model = FeatureClassifier(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), nn.Linear(4, 3))
    method = LossMixture(SETUP, start=0.1)
    method.on_epoch_start(context_of(model, epoch=1))
    assert torch.equal(method.clean, torch.ones(24))
    method.on_epoch_start(context_of(model.train(), epoch=2))
    model.eval()
    with torch.no_grad():
        wanted = lower_component(F.cross_entropy(model(INPUTS).logits, TARGETS, reduction="none"))
    torch.testing.assert_close(method.clean, wanted)
    assert method.epoch_figures()["label_trust"] == pytest.approx(float(wanted.mean()))


def test_the_loss_mixes_label_and_own_answer_by_trust() -> None:
    method = LossMixture(SETUP)
    method.clean.copy_(torch.rand(24, generator=torch.Generator().manual_seed(2)))
    logits, rows = torch.randn(6, 3, generator=torch.Generator().manual_seed(3)), torch.tensor([3, 1, 20, 7, 9, 11])
    wanted = 0.0
    for z, row in zip(logits, rows.tolist(), strict=True):
        chances, trust = z.softmax(0), float(method.clean[row])
        wanted += -trust * float(chances[TARGETS[row]].log()) - (1 - trust) * float(chances.max().log())
    found = method.loss(Output(logits, logits), Batch(logits, TARGETS[rows], None, rows), make_context())
    assert float(found) == pytest.approx(wanted / 6, rel=1e-5)
