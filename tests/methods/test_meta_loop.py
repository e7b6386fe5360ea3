"""Meta-ICDA in a loop of one's own: plain networks, Hugging Face models, autocast, compiled models, several processes."""

import copy
import io

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import icda
from icda.data.task import Batch
from icda.models import FeatureClassifier, create_model, from_huggingface
from support import assert_same, make_context

CLASSES, COUNTS = 3, torch.tensor([30, 20, 10])


def plain_model(dropout=0.2):
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Linear(8, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Dropout(dropout))
    return FeatureClassifier(encoder, nn.Linear(12, CLASSES))


def learner(model, **options):
    loss = icda.ICDALoss(CLASSES, model.feature_dim, COUNTS)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return icda.MetaICDA(model, loss, optimizer=optimizer, **options)


def pair(seed, size=12):
    """Inputs and targets; the first three inputs tell the class."""
    targets = torch.arange(size) % CLASSES
    inputs = torch.randn(size, 8, generator=torch.Generator().manual_seed(seed))
    inputs[:, :CLASSES] += 3 * nn.functional.one_hot(targets, CLASSES)
    return inputs, targets


def test_a_plain_loop_learns_and_reports_the_strengths():
    model = plain_model().train()
    meta = learner(model)
    losses = [float(meta.step(pair(k), pair(1000 + k), progress=k / 40)) for k in range(40)]
    assert sum(losses[-5:]) < 0.5 * sum(losses[:5])
    figures = meta.end_epoch()
    assert 0 < figures["strength_mean"] < 1
    assert len(figures["strength_by_class"]) == CLASSES
    assert meta.end_epoch() == {}
    inputs, targets = pair(7, size=60)
    assert float((model.eval()(inputs).logits.argmax(1) == targets).float().mean()) > 0.8


def test_a_step_is_that_of_the_method_meta_icda():
    model, other = (create_model("mlp", CLASSES, (8,)).double() for _ in range(2))
    other.load_state_dict(model.state_dict())
    meta = learner(model)
    meta.method.double()
    method = copy.deepcopy(meta.method).train()
    optimizer = torch.optim.SGD(other.parameters(), lr=0.1, momentum=0.9)

    def double(seed):
        inputs, targets = pair(seed)
        return inputs.double(), targets

    context = make_context(other, optimizers=[optimizer])
    for k in range(3):
        context.iteration, context.progress = k, k / 3
        context.next_metadata = lambda k=k: Batch(*double(100 + k), None, torch.arange(12))
        wanted = method.step(Batch(*double(k), None, torch.arange(12)), context)
        found = meta.detailed_step(double(k), double(100 + k), progress=k / 3)
        assert torch.equal(found.loss, wanted.loss)
        assert found.extra == wanted.extra
    for mine, theirs in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def run(meta, steps):
    for k in steps:
        torch.manual_seed(k)  # dropout's masks
        meta.step(pair(k), pair(100 + k), progress=k / 8)
        if k == 5:
            meta.end_epoch()


def test_state_taken_within_an_epoch_continues_identically():
    models = [plain_model().train() for _ in range(2)]
    whole, resumed = (learner(model, every=2) for model in models)
    run(whole, range(3))
    parts = [[meta, model, meta.context.optimizers[0]] for meta, model in zip((whole, resumed), models, strict=True)]
    buffer = io.BytesIO()
    torch.save([part.state_dict() for part in parts[0]], buffer)
    buffer.seek(0)
    for part, state in zip(parts[1], torch.load(buffer, weights_only=True), strict=True):
        part.load_state_dict(state)
    for meta in (whole, resumed):
        run(meta, range(3, 8))
    for one, other in zip(*parts, strict=True):
        assert_same(one.state_dict(), other.state_dict())
    assert whole.end_epoch() == resumed.end_epoch()


@pytest.mark.parametrize("progress", [-0.01, 1.01, float("nan")])
def test_progress_outside_the_unit_interval_is_refused_before_anything_moves(progress):
    model = plain_model()
    meta, before = learner(model), copy.deepcopy(model.state_dict())
    with pytest.raises(ValueError, match=r"progress is t/T in \[0, 1\]"):
        meta.step(pair(1), pair(2), progress)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_a_step_looks_ahead_at_its_own_every_kth_iteration():
    meta = learner(plain_model(), every=3)
    looked = ["meta_loss" in meta.detailed_step(pair(k), pair(9), 0.5).extra for k in range(5)]
    assert looked == [True, False, False, True, False]


def test_a_strength_network_and_a_loss_of_ones_own_are_used():
    model, network = plain_model(), icda.StrengthNetwork(hidden=5)
    meta = learner(model, strength_network=network, strength_rate=0.1)
    before = copy.deepcopy(network.state_dict())
    meta.step(pair(1), pair(2), progress=0.5)
    assert meta.method.strength_network is network
    assert any(not torch.equal(before[name], value) for name, value in network.state_dict().items())
    balanced = icda.ICDALoss(CLASSES, model.feature_dim)  # no class counts: every class is as likely
    meta = icda.MetaICDA(model, balanced, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    meta.step(pair(1), pair(2), progress=0.5)
    assert float(balanced.statistics.count.sum()) == 12
    assert meta.method.characteristics.proportions.tolist() == pytest.approx([1 / 3] * 3)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize("lookahead", ["full", "head"])
def test_a_hugging_face_text_model_with_dict_inputs_trains(lookahead, dropout, attention):
    from transformers import DistilBertConfig, DistilBertForSequenceClassification

    sizes = {"dim": 16, "hidden_dim": 32, "n_layers": 1, "n_heads": 2, "vocab_size": 50, "num_labels": 3}
    config = DistilBertConfig(**sizes, attention_dropout=dropout, attn_implementation=attention)
    model = from_huggingface(DistilBertForSequenceClassification(config)).train()
    meta = learner(model, lookahead=lookahead)

    def words(seed):
        tokens = torch.randint(1, 50, (6, 7), generator=torch.Generator().manual_seed(seed))
        return {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}, torch.arange(6) % CLASSES

    before = copy.deepcopy(meta.method.strength_network.layers[-1].weight)
    for k in range(2):
        result = meta.detailed_step(words(k), words(10 + k), progress=0.5)
        assert torch.isfinite(result.loss)
        assert result.extra["meta_loss"] > 0
    assert not torch.equal(before, meta.method.strength_network.layers[-1].weight)


@pytest.mark.parametrize("batch", [{"input_ids": torch.zeros(2, 4), "labels": torch.zeros(2)}, [torch.zeros(2, 4)]])
def test_a_batch_that_is_no_pair_is_refused_in_a_sentence(batch):
    from icda.methods.meta_loop import _as_batch

    with pytest.raises(TypeError, match=r"\(inputs, targets\)"):
        _as_batch(batch)


def steady_learner(model, **options):
    torch.manual_seed(1)  # the strength network's weights
    loss = icda.ICDALoss(CLASSES, 12, COUNTS)
    return icda.MetaICDA(model, loss, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), **options)


def moments(meta):
    """What one step told the strength network, as Adam keeps it."""
    return [state["exp_avg"] for state in meta.method.optimizer.state.values()]


def one_step(model, **options):
    meta = steady_learner(model, **options)
    torch.manual_seed(2)  # dropout's masks
    meta.step(pair(1), pair(2), progress=0.5)
    return moments(meta)


@pytest.mark.parametrize("compiled", ["whole", "encoder"])
@pytest.mark.parametrize("lookahead", ["full", "head", "difference"])
def test_a_compiled_model_learns_the_same_strengths(compiled, lookahead):
    wanted = one_step(plain_model(), lookahead=lookahead)
    model = plain_model()
    if compiled == "whole":
        model = torch.compile(model, backend="eager")
    else:
        model.encoder = torch.compile(model.encoder, backend="eager")
    for found, value in zip(one_step(model, lookahead=lookahead), wanted, strict=True):
        torch.testing.assert_close(found, value, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("lookahead", ["full", "head"])
def test_autocast_gives_the_strengths_of_single_precision_up_to_rounding(lookahead):
    wanted = torch.cat([part.flatten() for part in one_step(plain_model(), lookahead=lookahead)])
    with torch.autocast("cpu", torch.bfloat16):
        found = torch.cat([part.flatten() for part in one_step(plain_model(), lookahead=lookahead)])
    assert found.dtype == torch.float32
    assert float((found - wanted).norm() / wanted.norm()) < 0.05
    assert float(wanted.norm()) > 1e-5


def test_steps_inside_of_one_autocast_see_the_weights_of_the_step_before():
    apart, together = (plain_model(dropout=0.0) for _ in range(2))
    meta = steady_learner(apart)
    for k in range(3):
        with torch.autocast("cpu", torch.bfloat16):
            meta.step(pair(k), pair(10 + k), 0.5)
    meta = steady_learner(together)
    with torch.autocast("cpu", torch.bfloat16):
        for k in range(3):
            meta.step(pair(k), pair(10 + k), 0.5)
    for one, other in zip(apart.parameters(), together.parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_difference_of_half_precision_is_refused_before_anything_changes():
    model = plain_model()
    meta, before = steady_learner(model, lookahead="difference"), copy.deepcopy(model.state_dict())
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(ValueError, match="half precision"):
        meta.loss(pair(1), pair(2), 0.5)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert float(meta.method.criterion.statistics.count.sum()) == 0


def test_the_loss_and_a_loop_of_ones_own_do_what_step_does():
    models = [plain_model(dropout=0.0) for _ in range(2)]
    ours, theirs = (steady_learner(model) for model in models)
    optimizer = ours.context.optimizers[0]
    for k in range(3):
        loss = ours.loss(pair(k), pair(10 + k), k / 3)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(models[0].parameters(), 1e9)
        optimizer.step()
        assert torch.equal(loss.detach(), theirs.step(pair(k), pair(10 + k), k / 3))
    for mine, other in zip(models[0].parameters(), models[1].parameters(), strict=True):
        assert torch.equal(mine, other)


def test_gradients_of_several_calls_add_up_and_can_be_clipped():
    models = [plain_model(dropout=0.0) for _ in range(2)]
    together, apart = (steady_learner(model) for model in models)
    sums = [torch.zeros_like(value) for value in models[1].parameters()]
    for k in range(2):
        (together.loss(pair(k), pair(10 + k), 0.5) / 2).backward()
        models[1].zero_grad()
        (apart.loss(pair(k), pair(10 + k), 0.5) / 2).backward()
        for total, value in zip(sums, models[1].parameters(), strict=True):
            total += value.grad
    for total, value in zip(sums, models[0].parameters(), strict=True):
        torch.testing.assert_close(value.grad, total)
    nn.utils.clip_grad_norm_(models[0].parameters(), 0.01)
    grads = [value.grad.norm() for value in models[0].parameters() if value.grad is not None]
    assert float(torch.stack(grads).norm()) == pytest.approx(0.01, rel=1e-4)


@pytest.mark.parametrize(
    ("option", "named"), [({"lookahed": "head"}, "lookahead"), ({"foo": 1}, "foo"), ({"lambda0": 9.0}, "ICDALoss")]
)
def test_an_option_that_nobody_takes_is_refused(option, named):
    with pytest.raises((ValueError, KeyError), match=named):
        steady_learner(plain_model(), **option)


def test_a_model_that_returns_logits_alone_is_told_what_makes_one_that_does_not():
    plain = nn.Sequential(nn.Linear(8, 12), nn.ReLU(), nn.Linear(12, CLASSES))
    with pytest.raises(TypeError, match="from_torch"):
        steady_learner(plain)


def test_sharded_parameters_are_refused():
    model = plain_model()
    model.head.weight.device_mesh = object()  # what a DTensor has
    with pytest.raises(TypeError, match="FSDP"):
        steady_learner(model)


MODES = ("full", "head", "difference")


def trained(rows, wrap, lookahead):
    torch.manual_seed(0)
    model = FeatureClassifier(nn.Sequential(nn.Linear(8, 12), nn.ReLU()), nn.Linear(12, CLASSES)).double()
    meta = steady_learner(DistributedDataParallel(model) if wrap else model, lookahead=lookahead)
    meta.method.double()
    for k in range(6):
        batch, clean = ((inputs.double()[rows], targets[rows]) for inputs, targets in (pair(k), pair(100 + k)))
        meta.step(batch, clean, progress=k / 6)
    return [*model.parameters(), *meta.method.strength_network.parameters()]


def on_rank(rank):
    rows = slice(6 * rank, 6 * rank + 6)
    found = {mode: [value.detach() for value in trained(rows, True, mode)] for mode in MODES}
    try:
        trained(rows, False, "full")
    except ValueError as error:
        found["refusal"] = str(error)
    return found


def test_two_ranks_train_as_one_process_does_and_an_unwrapped_model_is_refused(run_on_ranks):
    wanted = {mode: trained(slice(None), False, mode) for mode in MODES}
    for rank in run_on_ranks(on_rank):
        for mode in MODES:
            for found, value in zip(rank[mode], wanted[mode], strict=True):
                rtol = 1e-5 if mode == "difference" else 1e-9  # whose rounding the small step makes larger
                torch.testing.assert_close(found, value.detach(), rtol=rtol, atol=1e-9)
        assert "DistributedDataParallel" in rank["refusal"]
