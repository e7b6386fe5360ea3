"""Fish: inner steps on a clone and interpolation, written out; what is left with one domain; buffers; two ranks."""

import copy
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import support
from icda.data.generators import generator_for
from icda.data.task import Batch
from icda.methods import Setup
from icda.methods.fish import Fish
from icda.models import FeatureClassifier, create_model

DOMAINS = torch.tensor([0, 1, 2, 0, 1, 2])
SETUP = Setup(2, 6, torch.tensor([60, 40]), epochs=1, num_samples=100, seed=3, group_domains=DOMAINS)
INPUTS = torch.randn(12, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
GROUPS = torch.tensor([0, 0, 1, 2, 3, 3, 1, 0, 2, 5, 4, 0])  # of domains 0, 1 and 2: 6, 3 and 3
BATCH = Batch(INPUTS, GROUPS // 3, GROUPS, torch.arange(12))


def make_model(normalised=False):
    torch.manual_seed(0)
    if normalised:  # no bias before BatchNorm: its gradient is rounding error, which Adam would make a step of
        encoder = nn.Sequential(nn.Linear(5, 6, bias=False), nn.BatchNorm1d(6), nn.ReLU())
        return FeatureClassifier(encoder, nn.Linear(6, 2)).double()
    return create_model("mlp", 2, (5,), hidden=6).double()


def make_context(model, optimizer, iteration=0, share=1.0):
    context = support.make_context(model, optimizers=[optimizer], iteration=iteration)
    return replace(context, apply=lambda loss: context.apply(loss * share))


def optimizer_of(model, kind):
    if kind == "adam":
        return torch.optim.Adam(model.parameters(), lr=0.01)
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01)


@pytest.mark.parametrize("kind", ["sgd", "adam"])
@pytest.mark.parametrize("normalised", [False, True], ids=["plain", "batchnorm"])
def test_steps_are_those_of_a_clone_whose_optimiser_keeps_its_state(kind, normalised):
    """The original: a fresh clone each step, the inner optimiser's state carried over, all of the state interpolated."""
    model = make_model(normalised)
    wanted, carried = copy.deepcopy(model), None
    optimizer = optimizer_of(model, kind)
    for iteration in range(3):
        result = Fish(SETUP, epsilon=0.3).step(BATCH, make_context(model, optimizer, iteration))
        clone = copy.deepcopy(wanted)
        inner = optimizer_of(clone, kind)
        if carried is not None:
            inner.load_state_dict(carried)
        losses = []
        for domain in torch.randperm(3, generator=generator_for(3, "fish", iteration)).tolist():
            rows = [i for i in range(12) if GROUPS[i] % 3 == domain]
            loss = F.cross_entropy(clone(INPUTS[rows]).logits, BATCH.targets[rows])
            inner.zero_grad()
            loss.backward()
            inner.step()
            losses.append(float(loss.detach()))
        carried = copy.deepcopy(inner.state_dict())
        after, before = clone.state_dict(), wanted.state_dict()
        for name, value in before.items():
            new = after[name]
            before[name] = value + 0.3 * (new - value) if value.is_floating_point() else new
        wanted.load_state_dict(before)
        assert float(result.loss) == pytest.approx(sum(losses) / 3, abs=1e-12)
        assert result.extra == {"inner_steps": 3.0}
        for name, value in wanted.state_dict().items():
            torch.testing.assert_close(model.state_dict()[name], value, rtol=0, atol=1e-12)


def test_one_domain_and_epsilon_one_is_cross_entropy_bit_for_bit():
    model, wanted = make_model(), make_model()
    batch = BATCH._replace(groups=torch.tensor([0, 3] * 6))
    optimizer, plain = optimizer_of(model, "sgd"), optimizer_of(wanted, "sgd")
    for iteration in range(3):
        result = Fish(SETUP, epsilon=1.0).step(batch, make_context(model, optimizer, iteration))
        loss = F.cross_entropy(wanted(INPUTS).logits, batch.targets)
        make_context(wanted, plain).apply(loss)
        assert torch.equal(result.loss, loss.detach())
        for found, value in zip(model.parameters(), wanted.parameters(), strict=True):
            assert torch.equal(found, value)


def test_before_start_it_is_cross_entropy_on_the_whole_batch():
    model, wanted = make_model(), make_model()
    context = make_context(model, optimizer_of(model, "sgd"))
    method = Fish(SETUP, start=0.5)
    context.progress = 0.49
    method.step(BATCH, context)
    make_context(wanted, optimizer_of(wanted, "sgd")).apply(F.cross_entropy(wanted(INPUTS).logits, BATCH.targets))
    for found, value in zip(model.parameters(), wanted.parameters(), strict=True):
        assert torch.equal(found, value)
    context.progress = 0.5
    assert method.step(BATCH, context).extra == {"inner_steps": 3.0}


def test_all_domains_come_first_at_some_iteration():
    method = Fish(SETUP)
    firsts = {int(GROUPS[method.parts(BATCH, iteration)[0][0].positions[0]]) % 3 for iteration in range(30)}
    assert firsts == {0, 1, 2}


def test_a_domain_with_a_single_sample_is_left_out_and_then_no_accuracy_is_told():
    batch = BATCH._replace(groups=torch.tensor([0] * 6 + [1] * 5 + [2]))
    parts, complete = Fish(SETUP).parts(batch, 0)
    assert sorted(len(part.positions) for part in parts) == [5, 6]
    assert not complete
    model = make_model(normalised=True)
    assert Fish(SETUP).step(batch, make_context(model, optimizer_of(model, "sgd"))).logits is None


def test_a_short_batch_of_single_samples_is_one_step():
    batch = Batch(INPUTS[:3], BATCH.targets[:3], torch.tensor([0, 1, 2]), torch.arange(3))
    (part,), complete = Fish(SETUP).parts(batch, 0)
    assert part.positions.tolist() == [0, 1, 2]
    assert part.scale == 1
    assert complete


def test_token_ids_in_a_dict_are_cut_by_domain_too():
    model = create_model("bag_of_words", 2, ())
    ids = torch.randint(1, 100, (12, 4))
    batch = BATCH._replace(inputs={"input_ids": ids, "attention_mask": torch.ones_like(ids)})
    wanted = model(batch.inputs).logits.detach()
    result = Fish(SETUP).step(batch, make_context(model, torch.optim.SGD(model.parameters(), lr=0.0)))
    torch.testing.assert_close(result.logits, wanted)


def test_a_batch_too_small_for_two_samples_of_each_domain_is_refused():
    counts = torch.tensor([9, 9, 0, 9, 9, 0])  # nobody comes from domain 2: four samples are enough
    tight = Setup(2, 6, torch.tensor([60, 40]), 1, 100, counts, batch_size=4, group_domains=DOMAINS)
    Fish(tight)
    with pytest.raises(ValueError, match=r"4 samples cannot hold 2 of each of 3 domains\. Set --batch-size to 6"):
        Fish(Setup(2, 6, torch.tensor([60, 40]), 1, 100, batch_size=4, group_domains=DOMAINS))
