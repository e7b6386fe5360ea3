"""LISA: same label across domains or same domain across labels, by one coin a batch."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from icda.data.generators import generator_for
from icda.data.task import Batch
from icda.methods import Setup, create_method
from icda.methods.mixing import LISA, cut_boxes, draw_mix
from icda.models import FeatureClassifier, create_model
from icda.training import TrainConfig, train
from support import make_context, mixed_inputs, mixture_loss

DOMAINS = torch.tensor([0, 1, 0, 1])
SETUP = Setup(2, 6, torch.tensor([60, 40]), epochs=1, num_samples=100, seed=3, group_domains=DOMAINS)
IMAGES = Setup(2, 6, torch.tensor([60, 40]), 1, 100, input_shape=(3, 6, 6), seed=3, group_domains=DOMAINS)
INPUTS = torch.randn(10, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
GROUPS = torch.tensor([0, 0, 1, 2, 3, 3, 1, 0, 2, 0])
BATCH = Batch(INPUTS, GROUPS // 2, GROUPS, torch.arange(10))


@pytest.fixture
def model() -> FeatureClassifier:
    return create_model("mlp", 2, (5,), hidden=6).double()


@pytest.mark.parametrize("p_sel", [0.0, 1.0])
def test_pairs_agree_in_exactly_the_label_or_exactly_the_domain(p_sel: float) -> None:
    method = LISA(SETUP, p_sel=p_sel)
    targets, domains = GROUPS // 2, GROUPS % 2
    found = method.eligible(targets, domains, make_context())
    for i in range(10):
        for j in range(10):
            same_label, same_domain = bool(targets[i] == targets[j]), bool(domains[i] == domains[j])
            wanted = (same_label and not same_domain) if p_sel else (same_domain and not same_label)
            assert bool(found[i, j]) == wanted


def test_the_coin_is_one_a_batch_with_probability_p_sel_and_a_function_of_seed_and_iteration() -> None:
    method, again = LISA(SETUP, p_sel=0.3), LISA(SETUP, p_sel=0.3)
    tosses = [method.same_label(iteration) for iteration in range(4000)]
    assert sum(tosses) / 4000 == pytest.approx(0.3, abs=0.029)  # four standard deviations
    assert [again.same_label(iteration) for iteration in reversed(range(50))] == tosses[49::-1]


@pytest.mark.parametrize("p_sel", [0.0, 1.0])
def test_a_step_is_lambda_ce_of_one_label_plus_the_rest_of_the_other(p_sel: float, model: FeatureClassifier) -> None:
    method = LISA(SETUP, p_sel=p_sel)
    applied: list[Tensor] = []
    result = method.step(BATCH, make_context(model, apply=applied.append, iteration=5))
    eligible = method.eligible(BATCH.targets, GROUPS % 2, make_context(iteration=5))
    mix = draw_mix(eligible, 2.0, generator_for(3, "mixing", 5, 0))
    assert eligible[torch.arange(10), mix.partner].all()
    wanted = mixture_loss(model, mixed_inputs(INPUTS, mix), BATCH.targets, mix)
    torch.testing.assert_close(applied, [wanted])
    torch.testing.assert_close(result.loss, wanted.detach())
    assert result.extra == {"mixed": 1.0}


def test_samples_without_a_partner_stay_unmixed(model: FeatureClassifier) -> None:
    batch = BATCH._replace(targets=torch.zeros(10, dtype=torch.long), groups=torch.tensor([0] * 10))
    for p_sel in (0.0, 1.0):
        result = LISA(SETUP, p_sel=p_sel).step(batch, make_context(model))
        torch.testing.assert_close(result.loss, F.cross_entropy(model(INPUTS).logits, batch.targets).detach())
        assert result.extra == {"mixed": 0.0}


def test_cutmix_gives_the_network_pasted_images_and_the_loss_the_share_of_pixels() -> None:
    model = create_model("mlp", 2, (3, 6, 6), hidden=6).double()
    images = torch.randn(10, 3, 6, 6, dtype=torch.float64)
    method = LISA(IMAGES, p_sel=0.0, mix="cutmix")
    result = method.step(BATCH._replace(inputs=images), make_context(model, iteration=2))
    generator = generator_for(3, "mixing", 2, 0)
    eligible = method.eligible(BATCH.targets, GROUPS % 2, make_context(iteration=2))
    boxes, mix = cut_boxes(draw_mix(eligible, 2.0, generator), (6, 6), generator)
    mixtures = images.clone()
    for i in range(10):
        mixtures[i][:, boxes[i]] = images[mix.partner[i]][:, boxes[i]]
        assert float(mix.share[i]) == pytest.approx(1 - int(boxes[i].sum()) / 36)
    torch.testing.assert_close(result.loss, mixture_loss(model, mixtures, BATCH.targets, mix).detach())


def test_boxes_are_not_cut_out_of_what_is_no_image() -> None:
    with pytest.raises(ValueError, match="it needs inputs of shape"):
        create_method("lisa", SETUP, {"mix": "cutmix"})


def test_one_domain_is_enough_when_only_labels_are_mixed() -> None:
    one = Setup(2, 6, torch.tensor([60, 40]), 1, 100, group_domains=torch.zeros(2, dtype=torch.long))
    LISA(one, p_sel=0.0)
    with pytest.raises(ValueError, match="LISA compares domains"):
        LISA(one)


@pytest.mark.parametrize("mix", ["mixup", "cutmix"])
def test_it_trains_a_network_on_images_and_nearly_every_sample_finds_a_partner(mix: str, tmp_path: Path) -> None:
    config = TrainConfig(
        task="digits_coloured", method="lisa", options={"mix": mix}, epochs=1, batch_size=64, out=str(tmp_path)
    )
    (line,) = train(config)["history"]
    assert line["mixed"] > 0.95
