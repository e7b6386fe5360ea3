"""Networks that give strengths, and the log of what they gave."""

import pytest
import torch
from torch import nn

from icda.errors import InputError
from icda.meta.strength_network import InputNorm, StrengthLog, StrengthNetwork, centre

SIZE = 5


def inputs(seed, size=12):
    drawn = torch.randn(size, SIZE, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return drawn * torch.tensor([1.0, 10.0, 0.1, 3.0, 2.0]) + torch.tensor([0.0, 50.0, 1.0, -3.0, 0.5])


def pair_of_norms():
    """Ours and torch's, with the same scale and shift."""
    ours, theirs = InputNorm(SIZE).double(), nn.BatchNorm1d(SIZE).double()
    with torch.no_grad():
        for mine, other in ((ours.scale, theirs.weight), (ours.shift, theirs.bias)):
            mine.copy_(torch.randn(SIZE))
            other.copy_(mine)
    return ours, theirs


def test_input_norm_gives_the_output_and_gradients_of_batch_norm_in_training():
    ours, theirs = pair_of_norms()
    towards = torch.randn(12, SIZE, dtype=torch.float64)
    for seed in range(3):
        found, wanted = ours(inputs(seed)), theirs(inputs(seed))
        torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)
        (found * towards).sum().backward()
        (wanted * towards).sum().backward()
    torch.testing.assert_close(ours.scale.grad, theirs.weight.grad)
    torch.testing.assert_close(ours.shift.grad, theirs.bias.grad)


def test_input_norm_keeps_the_running_mean_of_batch_norm_and_the_biased_variance():
    """torch's running variance divides by n - 1, ours by n: theirs starts at one too, so compare what was added."""
    ours, theirs = pair_of_norms()
    for seed in range(3):
        ours(inputs(seed))
        theirs(inputs(seed))
    torch.testing.assert_close(ours.running_mean, theirs.running_mean)
    started = (1 - 0.1) ** 3
    torch.testing.assert_close(
        (ours.running_variance - started) * 12 / 11, theirs.running_var - started, rtol=1e-12, atol=1e-12
    )


def test_input_norm_equals_batch_norm_in_evaluation_and_learns_nothing_there():
    ours, theirs = pair_of_norms()
    ours(inputs(0))
    theirs.running_mean, theirs.running_var = ours.running_mean.clone(), ours.running_variance.clone()
    ours.eval()
    theirs.eval()
    torch.testing.assert_close(ours(inputs(1)), theirs(inputs(1)), rtol=1e-12, atol=1e-12)
    assert torch.equal(ours.running_mean, theirs.running_mean)
    assert torch.equal(ours.running_variance, theirs.running_var)


def test_a_batch_of_one_is_normalised_to_the_shift():
    ours, _ = pair_of_norms()
    torch.testing.assert_close(ours(inputs(0, size=1))[0], ours.shift)


def norm_on_rank(rank):
    torch.manual_seed(0)
    norm = InputNorm(SIZE).double()
    out = norm(inputs(0)[:7] if rank == 0 else inputs(0)[7:])  # unequal shares
    return {"out": out.detach(), "state": dict(norm.state_dict())}


def test_two_ranks_normalise_as_one_process_does(run_on_ranks):
    one = InputNorm(SIZE).double()
    wanted = one(inputs(0)).detach()
    ranks = run_on_ranks(norm_on_rank)
    torch.testing.assert_close(torch.cat([rank["out"] for rank in ranks]), wanted, rtol=1e-12, atol=1e-12)
    for rank in ranks:
        for name, value in one.state_dict().items():
            torch.testing.assert_close(rank["state"][name], value, rtol=1e-12, atol=1e-12)


def test_strengths_are_about_one_half_at_the_start():
    for seed in range(5):
        torch.manual_seed(seed)
        strengths = StrengthNetwork()(100 * torch.randn(256, 10) + 30).detach()
        assert strengths.shape == (256,)
        assert 0.4 < float(strengths.mean()) < 0.6
        assert 0.2 < float(strengths.min()) < float(strengths.max()) < 0.8


def test_the_strength_network_is_two_hidden_layers_of_a_hundred_behind_a_norm():
    torch.manual_seed(0)
    network = StrengthNetwork().eval()
    norm, first, _, second, _, last = network.layers
    assert [tuple(layer.weight.shape) for layer in (first, second, last)] == [(100, 10), (100, 100), (1, 100)]
    rows = torch.randn(4, 10)
    hidden = torch.relu(norm(rows) @ first.weight.T + first.bias)
    hidden = torch.relu(hidden @ second.weight.T + second.bias)
    wanted = 1 / (1 + torch.exp(-(hidden @ last.weight[0] + last.bias)))
    torch.testing.assert_close(network(rows), wanted)


@pytest.mark.parametrize("layers", [1, 3])
def test_inputs_layers_and_normalisation_can_be_chosen(layers):
    network = StrengthNetwork(1, hidden=7, layers=layers, normalise_inputs=False)
    linear = [module for module in network.modules() if isinstance(module, nn.Linear)]
    assert [layer.out_features for layer in linear] == [7] * layers + [1]
    assert not any(isinstance(module, InputNorm) for module in network.modules())
    assert network(torch.randn(3, 1)).shape == (3,)


LABELS = torch.tensor([0, 1, 0, 0, 2, 0, 1, 1, 1, 1, 3, 0])  # five of 0 and of 1; 2 and 3 have one sample each
ALONE = torch.tensor([4, 10])


def naive_centre(values, labels):
    """Sample by sample: less the mean of the samples of its class, or of all that belong to rare classes."""
    names = labels.tolist()
    rare = {label for label in names if names.count(label) < 4}
    parts = []
    for i, label in enumerate(names):
        fellows = [j for j, other in enumerate(names) if other == label or (label in rare and other in rare)]
        parts.append(values[i] - sum(values[j] for j in fellows) / len(fellows))
    return torch.stack(parts)


def test_values_are_centred_within_frequent_classes_and_rare_ones_are_taken_together():
    values = torch.randn(12, dtype=torch.float64, requires_grad=True)
    towards = torch.randn(12, dtype=torch.float64)
    found, wanted = centre(values, LABELS), naive_centre(values, LABELS)
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)
    mine, other = (torch.autograd.grad((part * towards).sum(), values)[0] for part in (found, wanted))
    torch.testing.assert_close(mine, other, rtol=1e-12, atol=1e-12)
    assert float(found.detach()[ALONE].abs().min()) > 0, "a sample alone in its class keeps a strength"


@pytest.mark.parametrize("output", ["tanh", "linear"])
def test_signed_outputs_are_the_plain_ones_less_their_means(output):
    torch.manual_seed(0)
    centred = StrengthNetwork(SIZE, output=output).double().train()
    plain = StrengthNetwork(SIZE, output=output, centred=False).double().train()
    plain.load_state_dict(centred.state_dict())
    raw = plain.layers(inputs(1)).squeeze(1)
    wanted = (raw.exp() - (-raw).exp()) / (raw.exp() + (-raw).exp()) if output == "tanh" else raw
    torch.testing.assert_close(plain(inputs(1), LABELS), wanted)
    torch.testing.assert_close(centred(inputs(1), LABELS), naive_centre(wanted, LABELS))
    torch.testing.assert_close(centred(inputs(1)), wanted - wanted.mean())
    assert (centred(inputs(1)) < 0).any()


def test_withdrawal_multiplies_negative_strengths_after_centring_and_their_gradients():
    torch.manual_seed(0)
    plain = StrengthNetwork(SIZE, output="tanh").double().train()
    harder = StrengthNetwork(SIZE, output="tanh", withdrawal=3.0).double().train()
    harder.load_state_dict(plain.state_dict())
    inputs = torch.randn(9, SIZE, dtype=torch.float64)
    strengths, found = plain(inputs), harder(inputs)
    wanted = torch.tensor([value * 3 if value < 0 else value for value in strengths.tolist()], dtype=torch.float64)
    assert (strengths < 0).any()
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=0)
    slopes = torch.where(strengths < 0, 3.0, 1.0).double()
    expected = torch.autograd.grad((slopes * strengths).sum(), list(plain.parameters()), allow_unused=True)
    gradients = torch.autograd.grad(found.sum(), list(harder.parameters()), allow_unused=True)
    for one, two in zip(gradients, expected, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-10, atol=1e-14)
    with pytest.raises(InputError, match="a number of 0 or more, got -1"):
        StrengthNetwork(withdrawal=-1)


def test_the_sigmoid_is_neither_signed_nor_centred_and_its_state_is_that_of_the_first_version():
    network = StrengthNetwork()
    assert not network.is_signed
    assert not network.centred
    assert {name.split(".")[0] for name in network.state_dict()} == {"layers"}
    torch.testing.assert_close(network.eval()(torch.ones(2, 10), torch.tensor([0, 1])), network(torch.ones(2, 10)))


def test_an_unknown_output_is_refused_with_the_known_ones():
    with pytest.raises(InputError, match="one of sigmoid, tanh, linear, got 'relu'"):
        StrengthNetwork(output="relu")


def signed_on_rank(rank):
    rows = slice(0, 7) if rank == 0 else slice(7, 12)  # unequal shares
    torch.manual_seed(0)
    network = StrengthNetwork(SIZE, output="tanh").double()
    out = network(inputs(0)[rows], LABELS[rows])
    (out * torch.arange(12.0)[rows].double()).sum().backward()
    return {"out": out.detach(), "slopes": [parameter.grad for parameter in network.parameters()]}


def test_two_ranks_centre_as_one_process_does(run_on_ranks):
    torch.manual_seed(0)
    one = StrengthNetwork(SIZE, output="tanh").double()
    wanted = one(inputs(0), LABELS)
    (wanted * torch.arange(12.0).double()).sum().backward()
    ranks = run_on_ranks(signed_on_rank)
    torch.testing.assert_close(torch.cat([rank["out"] for rank in ranks]), wanted.detach(), rtol=1e-12, atol=1e-12)
    for k, parameter in enumerate(one.parameters()):
        found = sum(rank["slopes"][k] for rank in ranks)
        torch.testing.assert_close(found, parameter.grad, rtol=1e-9, atol=1e-11)


CLASSES, GROUPS = 4, 3


def draws(seed, size=20):
    """Strengths, targets that leave the last class out, and groups."""
    generator = torch.Generator().manual_seed(seed)
    targets = torch.randint(CLASSES - 1, (size,), generator=generator)
    return torch.rand(size, generator=generator), targets, torch.randint(GROUPS, (size,), generator=generator)


def mean(values):
    return sum(values) / len(values) if values else None


def reference(batches):
    rows = [row for batch in batches for row in zip(*(part.tolist() for part in batch), strict=True)]
    return {
        "strength_mean": mean([strength for strength, _, _ in rows]),
        "strength_by_class": [mean([s for s, y, _ in rows if y == c]) for c in range(CLASSES)],
        "strength_by_group": [mean([s for s, _, g in rows if g == group]) for group in range(GROUPS)],
    }


def same(found, wanted):
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        values, figures = (entry if isinstance(entry, list) else [entry] for entry in (found[name], value))
        for mine, other in zip(values, figures, strict=True):
            assert (mine is None) == (other is None)
            assert mine is None or mine == pytest.approx(other, rel=1e-6)


def test_means_are_those_of_all_samples_and_none_where_there_are_none():
    log, batches = StrengthLog(CLASSES, GROUPS), [draws(1), draws(2, size=5)]
    for batch in batches:
        log.add(*batch)
    figures = log.take()
    assert figures["strength_by_class"][-1] is None
    same(figures, reference(batches))


def test_taking_the_means_starts_a_new_epoch():
    log = StrengthLog(CLASSES, GROUPS)
    log.add(*draws(1))
    log.take()
    assert log.take() == {}
    log.add(*draws(2))
    same(log.take(), reference([draws(2)]))


def test_groups_are_left_out_where_none_are_known():
    strengths, targets, groups = draws(1)
    known, withheld = StrengthLog(CLASSES, 0), StrengthLog(CLASSES, 0)
    known.add(strengths, targets, groups)
    withheld.add(strengths, targets)
    for log in (known, withheld):
        figures = log.take()
        assert figures.keys() == {"strength_mean", "strength_by_class"}


def log_on_rank(rank):
    """Half of every batch; in between the first rank's state replaces that of all, as on resuming."""
    log = StrengthLog(CLASSES, GROUPS)
    log.add(*(part[rank::2] for part in draws(1)))
    states = [None, None]
    torch.distributed.all_gather_object(states, log.state_dict())
    log.load_state_dict(states[0])
    log.add(*(part[rank::2] for part in draws(2, size=9)))
    return log.take()


def test_two_ranks_report_the_means_of_one_process_even_when_resumed(run_on_ranks):
    for figures in run_on_ranks(log_on_rank):
        same(figures, reference([draws(1), draws(2, size=9)]))
