"""DomainMix: pairs from different domains, and what is left without any."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from icda.data.generators import generator_for
from icda.data.task import Batch
from icda.methods import Context, Setup
from icda.methods.domain_mix import DomainMix
from icda.methods.mixing import draw_mix
from icda.models import FeatureClassifier, create_model
from support import make_context

SETUP = Setup(2, 6, torch.tensor([60, 40]), epochs=1, num_samples=100, seed=3, group_domains=torch.tensor([0, 1, 0, 1]))
INPUTS = torch.randn(10, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
GROUPS = torch.tensor([0, 0, 1, 2, 3, 3, 1, 0, 2, 0])
BATCH = Batch(INPUTS, GROUPS // 2, GROUPS, torch.arange(10))


def context_of(model: FeatureClassifier, iteration: int = 0, losses: list[Tensor] | None = None) -> Context:
    return make_context(model, apply=[].append if losses is None else losses.append, iteration=iteration)


@pytest.fixture
def model() -> FeatureClassifier:
    return create_model("mlp", 2, (5,), hidden=6).double()


def test_a_step_is_the_mixed_cross_entropy_of_pairs_from_different_domains(model: FeatureClassifier) -> None:
    for iteration in (0, 7):
        applied: list[Tensor] = []
        result = DomainMix(SETUP).step(BATCH, context_of(model, iteration, applied))
        domains = GROUPS % 2
        mix = draw_mix(domains[:, None] != domains, 0.2, generator_for(3, "mixing", iteration, 0))
        total = torch.zeros((), dtype=torch.float64)
        for i in range(10):
            j, share = int(mix.partner[i]), float(mix.share[i])
            assert domains[i] != domains[j]
            log_p = model((share * INPUTS[i] + (1 - share) * INPUTS[j])[None]).logits.log_softmax(1)[0]
            total = total - share * log_p[BATCH.targets[i]] - (1 - share) * log_p[BATCH.targets[j]]
        torch.testing.assert_close(applied, [total / 10])
        torch.testing.assert_close(result.loss, total.detach() / 10)
        assert result.extra == {"mixed": 1.0}
        assert result.logits is None


def test_a_batch_of_one_domain_is_plain_cross_entropy(model: FeatureClassifier) -> None:
    batch = BATCH._replace(groups=torch.tensor([0, 2] * 5))
    result = DomainMix(SETUP).step(batch, context_of(model))
    torch.testing.assert_close(result.loss, F.cross_entropy(model(INPUTS).logits, batch.targets).detach())
    assert result.extra == {"mixed": 0.0}
