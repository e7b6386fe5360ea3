"""The ten characteristics against their definitions, and what a sample was like in all epochs so far."""

import math

import pytest
import torch

from icda.meta.characteristics import NAMES, Characteristics, SampleHistory

COUNTS = torch.tensor([40, 20, 10, 5])
CLASSES, DIM = 4, 6


def samples(size, seed):
    """Logits, features, targets and a weight, in float64."""
    generator = torch.Generator().manual_seed(seed)
    logits, features, weight = (
        torch.randn(*shape, generator=generator, dtype=torch.float64)
        for shape in ((size, CLASSES), (size, DIM), (CLASSES, DIM))
    )
    return 3 * logits, features, torch.randint(CLASSES, (size,), generator=generator), weight


def probabilities(logits):
    exponents = [math.exp(z) for z in logits]
    return [e / sum(exponents) for e in exponents]


def loss_and_margin(logits, y):
    p = probabilities(logits)
    return -math.log(p[y]), p[y] - max(p[c] for c in range(len(p)) if c != y)


def reference(logits, h, y, weight, mean_loss, mean_margin):
    """mathematics 1, one row of the table after the other."""
    p, w = probabilities(logits), weight[y]
    loss, margin = loss_and_margin(logits, y)
    length = math.sqrt(sum(a * a for a in h)) * math.sqrt(sum(b * b for b in w))
    return {
        "loss": loss,
        "margin": margin,
        "gradient_norm": math.sqrt(sum(((c == y) - p[c]) ** 2 for c in range(len(p)))),
        "cosine": sum(a * b for a, b in zip(h, w, strict=True)) / length,
        "entropy": -sum(q * math.log(q) for q in p),
        "class_proportion": int(COUNTS[y]) / int(COUNTS.sum()),
        "class_mean_loss": mean_loss,
        "class_weight_norm": math.sqrt(sum(b * b for b in w)),
        "relative_loss": loss - mean_loss,
        "relative_margin": margin - mean_margin,
    }


def class_means(batches):
    """Mean loss and margin of every class that is there."""
    rows = {}
    for logits, targets in batches:
        for z, y in zip(logits.tolist(), targets.tolist(), strict=True):
            rows.setdefault(y, []).append(loss_and_margin(z, y))
    return {
        y: (sum(loss for loss, _ in values) / len(values), sum(margin for _, margin in values) / len(values))
        for y, values in rows.items()
    }


@pytest.mark.parametrize("epochs", [0, 1])
def test_every_row_equals_the_definitions(epochs):
    characteristics = Characteristics(COUNTS).double()
    means = dict.fromkeys(range(CLASSES), (5.0, 1.0))
    for _ in range(epochs):
        earlier, _, targets, _ = samples(30, seed=7)
        characteristics.observe(earlier, targets)
        characteristics.end_epoch()
        means = class_means([(earlier, targets)])
    characteristics.observe(*_pair(samples(20, 3)))  # what the running epoch has seen does not count yet
    logits, features, targets, weight = samples(9, seed=1)
    found = characteristics(logits, features, targets, weight)
    assert found.shape == (9, 10)
    for i, y in enumerate(targets.tolist()):
        wanted = reference(logits[i].tolist(), features[i].tolist(), y, weight.tolist(), *means[y])
        for name, value in zip(NAMES, found[i].tolist(), strict=True):
            assert value == pytest.approx(wanted[name], rel=1e-6, abs=1e-9), name


def test_class_means_are_those_of_the_last_epoch_alone():
    characteristics = Characteristics(COUNTS).double()
    for seed in (1, 2, 3):  # three epochs of two batches: an average over epochs would show
        batches = [_pair(samples(25, 10 * seed + k)) for k in range(2)]
        for logits, targets in batches:
            characteristics.observe(logits, targets)
        characteristics.end_epoch()
        for y, (loss, margin) in class_means(batches).items():
            assert float(characteristics.mean_loss[y]) == pytest.approx(loss, rel=1e-9)
            assert float(characteristics.mean_margin[y]) == pytest.approx(margin, rel=1e-9)


def test_a_class_without_samples_keeps_its_means():
    characteristics = Characteristics(COUNTS).double()
    logits, _, targets, _ = samples(25, 1)
    characteristics.observe(logits, targets)
    characteristics.end_epoch()
    loss, margin = characteristics.mean_loss.clone(), characteristics.mean_margin.clone()
    characteristics.observe(logits[:2], torch.tensor([1, 1]))
    characteristics.end_epoch()
    kept, moved = [0, 2, 3], 1
    assert torch.equal(characteristics.mean_loss[kept], loss[kept])
    assert torch.equal(characteristics.mean_margin[kept], margin[kept])
    assert characteristics.mean_loss[moved] != loss[moved]


def test_nothing_carries_a_gradient():
    logits, features, targets, weight = samples(9, 1)
    characteristics = Characteristics(COUNTS)
    inputs = [value.requires_grad_() for value in (logits, features, weight)]
    assert not characteristics(inputs[0], inputs[1], targets, inputs[2]).requires_grad
    characteristics.observe(inputs[0], targets)
    assert not characteristics.sums.requires_grad
    assert not list(characteristics.parameters())


def test_sure_predictions_and_zero_features_stay_finite():
    logits = torch.tensor([[1e4, 0.0, 0.0, 0.0], [-1e4, 1e4, 0.0, 0.0]])
    rows = Characteristics(COUNTS)(logits, torch.zeros(2, DIM), torch.tensor([0, 0]), torch.zeros(CLASSES, DIM))
    assert torch.isfinite(rows).all()
    column = dict(zip(NAMES, rows.T.tolist(), strict=True))
    assert column["cosine"] == [0, 0]
    assert column["entropy"] == [0, 0]
    assert column["margin"] == [1, -1]


def test_half_precision_logits_are_described_in_single_precision():
    logits, features, targets, weight = samples(9, 1)
    halved = [value.bfloat16() for value in (logits, features, weight)]
    rows = Characteristics(COUNTS)(halved[0], halved[1], targets, halved[2])
    assert rows.dtype == torch.float32
    wanted = Characteristics(COUNTS)(halved[0].float(), halved[1].float(), targets, halved[2].float())
    torch.testing.assert_close(rows, wanted, rtol=0.02, atol=0.02)


def observe_on_rank(rank):
    """Half of every batch; within the second epoch the first rank's state replaces that of all, as on resuming."""
    characteristics = Characteristics(COUNTS)
    for seed in (1, 2):
        logits, targets = _pair(samples(12, seed))
        characteristics.observe(logits[rank::2], targets[rank::2])
        if seed == 1:
            characteristics.end_epoch()
    states = [None, None]
    torch.distributed.all_gather_object(states, characteristics.state_dict())
    characteristics.load_state_dict(states[0])
    logits, targets = _pair(samples(12, 3))
    characteristics.observe(logits[rank::2], targets[rank::2])
    characteristics.end_epoch()
    return dict(characteristics.state_dict())


def test_two_ranks_have_the_means_of_one_process_even_when_resumed(run_on_ranks):
    one = Characteristics(COUNTS)
    for seed in (1, 2, 3):
        one.observe(*_pair(samples(12, seed)))
        if seed != 2:
            one.end_epoch()
    for state in run_on_ranks(observe_on_rank):
        for name, value in one.state_dict().items():
            torch.testing.assert_close(state[name], value, rtol=1e-6, atol=1e-7)


def _pair(drawn):
    logits, _, targets, _ = drawn
    return logits, targets


EPOCHS, SAMPLES = 3, 7


def answers():
    """Logits (epochs, N, C) and labels."""
    torch.manual_seed(0)
    return 2 * torch.randn(EPOCHS, SAMPLES, CLASSES, dtype=torch.float64), torch.arange(SAMPLES) % CLASSES


def test_means_are_those_of_all_epochs_and_of_what_is_said_now():
    logits, targets = answers()
    history = SampleHistory(SAMPLES).double()
    for epoch in range(EPOCHS - 1):
        for rows in torch.randperm(SAMPLES).split(3):  # in another order each time
            history.observe(logits[epoch, rows], targets[rows], rows)
    found = history(logits[-1], targets, torch.arange(SAMPLES))
    for i in range(SAMPLES):
        each = [loss_and_margin(logits[epoch, i].tolist(), int(targets[i])) for epoch in range(EPOCHS)]
        wanted = [sum(values) / EPOCHS for values in zip(*each, strict=True)]
        torch.testing.assert_close(found[i], torch.tensor(wanted, dtype=torch.float64), rtol=1e-12, atol=0)


def test_reading_changes_nothing():
    logits, targets = answers()
    history = SampleHistory(SAMPLES)
    history.observe(logits[0], targets, torch.arange(SAMPLES))
    first = history(logits[1], targets, torch.arange(SAMPLES))
    assert torch.equal(history(logits[1], targets, torch.arange(SAMPLES)), first)


def test_a_sample_with_another_label_or_number_has_its_present_figures():
    logits, targets = answers()
    history = SampleHistory(3).double()
    history.observe(logits[0, :3], targets[:3], torch.arange(3))
    now = SampleHistory(0).double()(logits[1], targets, torch.arange(SAMPLES))
    found = history(logits[1], targets, torch.arange(SAMPLES))
    assert torch.equal(found[3:], now[3:])
    assert not torch.isclose(found[:3], now[:3]).any()
    changed = (targets + 1) % CLASSES
    assert torch.equal(
        history(logits[1], changed, torch.arange(SAMPLES)), SampleHistory(0)(logits[1], changed, targets)
    )


def test_state_is_read_back_and_may_be_of_another_length():
    logits, targets = answers()
    history = SampleHistory(SAMPLES)
    history.observe(logits[0], targets, torch.arange(SAMPLES))
    other = SampleHistory(2)
    other.load_state_dict(history.state_dict())
    index = torch.arange(SAMPLES)
    assert torch.equal(other(logits[1], targets, index), history(logits[1], targets, index))


def on_rank(rank):
    logits, targets = answers()
    history, rows = SampleHistory(SAMPLES), (torch.arange(5), torch.arange(5, SAMPLES))[rank]
    history.observe(logits[0, rows], targets[rows], rows)
    return {"sums": history.sums, "labels": history.labels}


def test_every_rank_remembers_the_samples_of_all(run_on_ranks):
    logits, targets = answers()
    whole = SampleHistory(SAMPLES)
    whole.observe(logits[0], targets, torch.arange(SAMPLES))
    for rank in run_on_ranks(on_rank):
        assert torch.equal(rank["labels"], whole.labels)
        torch.testing.assert_close(rank["sums"], whole.sums, rtol=1e-6, atol=0)
