"""DomainMix: pairs from different domains, and what is left without any."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from icda.data.generators import generator_for
from icda.data.task import Batch
from icda.methods import Setup
from icda.methods.mixing import DomainMix, draw_mix
from icda.models import FeatureClassifier, create_model
from support import make_context, mixed_inputs, mixture_loss

SETUP = Setup(2, 6, torch.tensor([60, 40]), epochs=1, num_samples=100, seed=3, group_domains=torch.tensor([0, 1, 0, 1]))
INPUTS = torch.randn(10, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
GROUPS = torch.tensor([0, 0, 1, 2, 3, 3, 1, 0, 2, 0])
BATCH = Batch(INPUTS, GROUPS // 2, GROUPS, torch.arange(10))


@pytest.fixture
def model() -> FeatureClassifier:
    return create_model("mlp", 2, (5,), hidden=6).double()


def test_a_step_is_the_mixed_cross_entropy_of_pairs_from_different_domains(model: FeatureClassifier) -> None:
    for iteration in (0, 7):
        applied: list[Tensor] = []
        result = DomainMix(SETUP).step(BATCH, make_context(model, apply=applied.append, iteration=iteration))
        domains = GROUPS % 2
        mix = draw_mix(domains[:, None] != domains, 0.2, generator_for(3, "mixing", iteration, 0))
        assert (domains != domains[mix.partner]).all()
        wanted = mixture_loss(model, mixed_inputs(INPUTS, mix), BATCH.targets, mix)
        torch.testing.assert_close(applied, [wanted])
        torch.testing.assert_close(result.loss, wanted.detach())
        assert result.extra == {"mixed": 1.0}
        assert result.logits is None


def test_a_batch_of_one_domain_is_plain_cross_entropy(model: FeatureClassifier) -> None:
    batch = BATCH._replace(groups=torch.tensor([0, 2] * 5))
    result = DomainMix(SETUP).step(batch, make_context(model))
    torch.testing.assert_close(result.loss, F.cross_entropy(model(INPUTS).logits, batch.targets).detach())
    assert result.extra == {"mixed": 0.0}
