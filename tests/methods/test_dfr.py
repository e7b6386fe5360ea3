"""DFR: a plain training, then the L1 head of standardised validation features with groups of equal mass."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from icda.data import create_task
from icda.heads.sparse import fit_sparse_head
from icda.methods import Setup
from icda.methods.dfr import DFR, STRENGTHS, Encoded, choose_l1, fit_balanced
from icda.models.base import FeatureClassifier
from icda.training import TrainConfig, train
from icda.training.checkpoint import load_checkpoint
from support import make_context, short_run

SETUP = Setup(2, 5, torch.tensor([30, 30]), epochs=10, num_samples=60)
GROUPS = torch.arange(4).repeat_interleave(torch.tensor([40, 6, 4, 30]))  # class x attribute
TARGETS = GROUPS // 2
HEAD = DFR(SETUP).stages(10)[1]


def make_inputs():
    """The first column speaks of the attribute, loudly, the second of the class; the third never changes."""
    inputs = torch.randn(80, 4, generator=torch.Generator().manual_seed(1))
    inputs[:, 0] = 4 * (GROUPS % 2) + inputs[:, 0]
    inputs[:, 1] += TARGETS
    inputs[:, 2] = 0.7
    return inputs


INPUTS = make_inputs()


@pytest.fixture
def model():
    encoder = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Dropout(0.5))
    with torch.no_grad():
        encoder[0].weight[4] = 0  # a feature that never changes
    return FeatureClassifier(encoder, nn.Linear(5, 2))


def context_of(model, stage):
    no_step = {"apply": lambda loss: pytest.fail("a step")}
    return make_context(model, data=(INPUTS, TARGETS, GROUPS), stage=stage, **no_step)


def standardised(model):
    """Features by the definition: a loop over columns, in double precision."""
    with torch.no_grad():
        features = model.eval()(INPUTS).features.double()
    mean, scale = torch.zeros(5, dtype=torch.float64), torch.ones(5, dtype=torch.float64)
    for j in range(5):
        mean[j] = sum(features[:, j]) / 80
        deviation = float(sum((x - mean[j]) ** 2 for x in features[:, j]) / 80) ** 0.5
        scale[j] = deviation if j != 4 else 1.0
    return (features - mean) / scale, mean, scale


def test_the_head_is_the_balanced_l1_head_of_standardised_features(model):
    model.train()
    model.encoder.eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    method = DFR(SETUP, l1=0.02)
    first, head = method.stages(10)
    assert first.on_start is None
    head.on_start(context_of(model, head))
    assert (model.training, model.encoder.training) == (True, False)
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]) != name.startswith("head."), name
    features, _, _ = standardised(model)
    weights = torch.tensor([1 / (4 * int((group == GROUPS).sum())) for group in GROUPS], dtype=torch.float64)
    wanted = fit_sparse_head(features, TARGETS, 2, 0.02, weights, max_iter=50_000, tol=1e-9)
    with torch.no_grad():
        logits = model.eval()(INPUTS).logits.double()
    torch.testing.assert_close(logits.diff(dim=1), wanted.logits(features).diff(dim=1), rtol=0, atol=0.01)
    assert method.epoch_figures() == {"l1": pytest.approx(0.02)}


def test_the_head_leaves_the_attribute_aside_that_a_plain_one_follows():
    encoded = Encoded((INPUTS[:, :2] - INPUTS[:, :2].mean(0)) / INPUTS[:, :2].std(0), TARGETS, GROUPS)
    plain = fit_sparse_head(encoded.features, TARGETS, 2, 0.01)
    balanced = fit_balanced(encoded, 2, 0.01)

    def ratio(weight):
        spurious, core = (weight[1] - weight[0]).abs().tolist()
        return spurious / core

    assert ratio(balanced.weight) < 0.2 < 1 < ratio(plain.weight)


def test_the_penalty_is_chosen_by_the_worst_group_of_the_other_half(monkeypatch):
    """Heads that answer always or never right, by penalty: the best one is found, and the stronger of equals."""
    encoded, learned_from = Encoded(torch.stack([TARGETS, GROUPS], 1), TARGETS, GROUPS), []
    right = {0.3: 0, 0.1: 1, 0.03: 3, 0.01: 3, 0.003: 2, 0.001: 0}  # so many samples of group 1, and all of the others

    class Pretended:
        def __init__(self, l1):
            self.l1 = l1

        def logits(self, features):
            targets, groups = features.T
            is_wrong = (groups == 1) & ((groups == 1).cumsum(0) > right[self.l1])
            return F.one_hot(torch.where(is_wrong, 1 - targets, targets), 2).float()

    def pretend(part, num_classes, l1, start=None):
        learned_from.append(part.groups)
        return Pretended(l1)

    monkeypatch.setattr("icda.methods.dfr.fit_balanced", pretend)
    assert choose_l1(encoded, 2, seed=0) == 0.03
    assert len(learned_from) == len(STRENGTHS)
    assert torch.bincount(learned_from[0]).tolist() == [20, 3, 2, 15]


def watched(patch):
    """What heads are fitted to from now on."""
    seen = []

    def watch(encoded, *arguments, **named):
        seen.append(encoded)
        return fit_balanced(encoded, *arguments, **named)

    patch.setattr("icda.methods.dfr.fit_balanced", watch)
    return seen


def test_which_half_is_learned_from_depends_on_the_seed_alone(monkeypatch):
    fitted = watched(monkeypatch)
    for seed in (0, 0, 1):
        choose_l1(Encoded(INPUTS, TARGETS, GROUPS), 2, seed)
    first, again, other = (part.features for part in fitted[:: len(STRENGTHS)])
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_groups_of_one_sample_each_get_the_strongest_penalty():
    assert choose_l1(Encoded(torch.eye(3), torch.tensor([0, 1, 1]), torch.arange(3)), 2, seed=0) == STRENGTHS[0]


def test_the_head_stage_takes_no_step_and_reports_what_the_head_gets_right(model):
    context = context_of(model, HEAD)
    model.eval()
    batch = next(context.training_batches())
    found = HEAD.step(batch, context)
    output = model(batch.inputs)
    assert torch.equal(found.logits, output.logits)
    assert torch.equal(found.loss, F.cross_entropy(output.logits, batch.targets))
    assert not found.loss.requires_grad


def test_a_head_without_a_bias_is_refused(model):
    bare = FeatureClassifier(model.encoder, nn.Linear(5, 2, bias=False))
    with pytest.raises(ValueError, match="dfr fits a head with a bias, and the network's last layer has none"):
        DFR(SETUP, l1=0.1).fit_head(context_of(bare, HEAD))


def test_a_training_fits_a_new_head_on_the_encoder_of_a_plain_training(tmp_path, monkeypatch):
    seen, cnn = watched(monkeypatch), {"model": "small_cnn", "batch_size": 60}
    result = train(short_run(tmp_path / "dfr", "dfr", epochs=3, options={"l1": 0.01}, **cnn))
    train(short_run(tmp_path / "erm", "cross_entropy", **cnn))
    found, plain = (load_checkpoint(tmp_path / name / "model.pt")["networks"][0] for name in ("dfr", "erm"))
    assert any("running_mean" in name for name in plain)
    for name, value in plain.items():
        assert torch.equal(found[name], value) == name.startswith("encoder."), name
    validation = create_task("digits_coloured").validation
    assert len(seen) == 1
    assert torch.equal(seen[0].targets, validation.targets)
    assert torch.equal(seen[0].groups, validation.groups)
    torch.testing.assert_close(seen[0].features.mean(0), torch.zeros(seen[0].features.shape[1]), rtol=0, atol=1e-5)
    assert [line["stage"] for line in result["history"]] == ["representation"] * 2 + ["head"]
    assert [line.get("l1") for line in result["history"]] == [None, None, pytest.approx(0.01)]
    assert result["history"][-1]["train_accuracy"] == pytest.approx(result["history"][-1]["validation_accuracy"])


def test_selection_on_the_samples_it_learns_from_is_refused_before_training(tmp_path):
    config = TrainConfig("digits_coloured", method="dfr", epochs=4, selection="validation_accuracy", out=str(tmp_path))
    with pytest.raises(ValueError, match=r"'dfr' trains on the validation split, .*: use --selection last"):
        train(config)
    assert not (tmp_path / "result.json").exists()
