import pytest
import torch
from torch import nn

from icda.data.sources import FeatureArray
from icda.data.task import Split
from icda.explain.margins import balanced_sample, logged_variances, run_pass, subsample, variance_figures
from icda.methods.base import Method
from icda.models.base import FeatureClassifier, evaluating


def split(targets, groups=None):
    labels = torch.tensor(targets)
    known = None if groups is None else torch.tensor(groups)
    return Split(FeatureArray(torch.randn(len(targets), 3)), torch.arange(len(targets)), labels, known)


class Contrary(Method):
    """Predicts the class that the network thinks least of."""

    def predict(self, models, inputs):
        return -models[0](inputs).logits


def network():
    return FeatureClassifier(nn.Sequential(nn.BatchNorm1d(3), nn.Dropout(0.5)), nn.Linear(3, 2))


def test_a_pass_is_in_evaluation_mode_and_leaves_every_mode_and_buffer_as_it_was():
    net, data = network(), split([0, 1] * 700)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    net.encoder[1].eval()  # a user's own choice
    seen = run_pass(Method(), [net], data)
    assert net.training
    assert not net.encoder[1].training
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    with evaluating(net), torch.no_grad():
        output = net(data.source.fetch(data.rows))
    torch.testing.assert_close(seen.features, output.features)
    torch.testing.assert_close(seen.logits, output.logits)


def test_positions_are_kept_with_what_belongs_to_them_and_predictions_follow_the_rule_of_the_method():
    data, net = split([0, 1, 1, 0, 1], groups=[0, 2, 3, 1, 2]), network()
    seen = run_pass(Contrary(), [net], data, torch.tensor([4, 1, 3]))
    assert seen.index.tolist() == [4, 1, 3]
    assert seen.targets.tolist() == [1, 1, 0]
    assert seen.groups.tolist() == [2, 2, 1]
    assert torch.equal(seen.predicted, 1 - seen.logits.argmax(1))
    assert len(run_pass(Method(), [net], data)) == 5


def test_a_subsample_depends_on_the_seed_alone():
    data = split([0, 1] * 50)
    first, again, other = (subsample(data, 10, seed).tolist() for seed in (0, 0, 1))
    assert first == again != other
    assert first == sorted(set(first))
    assert len(first) == 10


def test_a_balanced_sample_takes_the_same_number_of_each_group():
    data = split([0] * 50 + [1] * 50, groups=[0] * 40 + [1] * 10 + [2] * 47 + [3] * 3)
    chosen = balanced_sample(data, 12, seed=3)
    assert torch.bincount(data.groups[chosen]).tolist() == [3, 3, 3, 3]
    assert torch.equal(chosen, balanced_sample(data, 12, seed=3))
    # Where a group has no more samples, the others fill up.
    assert torch.bincount(data.groups[balanced_sample(data, 16, seed=3)]).tolist() == [5, 4, 4, 3]
    assert sorted(balanced_sample(split([0, 1, 1]), 9, seed=0).tolist()) == [0, 1, 2]


def test_a_pass_gives_the_variance_of_logit_differences(coloured):
    seen = run_pass(coloured.method, coloured.networks, coloured.task.train)
    gap = (seen.logits[:, 1] - seen.logits[:, 0]).double()
    wanted = sum(gap[seen.targets == c].var(correction=0).item() for c in range(2)) / 2
    found = variance_figures(seen)["trained"]
    assert found["own"] == pytest.approx(wanted, rel=1e-3)
    assert found["unrelated"] is None


def test_logged_epochs_are_taken_from_the_history(long_tailed):
    seen = run_pass(long_tailed.method, long_tailed.networks, long_tailed.task.train)
    history = [{"epoch": k, "mapped_variance_own": k + 1.0, "mapped_variance_unrelated": k / 2} for k in range(3)]
    found = variance_figures(seen, history)
    assert (found["epochs"], found["own"], found["unrelated"]) == ([0, 1, 2], [1.0, 2.0, 3.0], [0.0, 0.5, 1.0])
    assert found["trained"]["own"] == pytest.approx(variance_figures(seen)["own"][0])
    once = variance_figures(seen, [{"epoch": 0}, {"epoch": 1}])  # a run that logged nothing
    assert (once["epochs"], once["own"]) == ([1], [once["trained"]["own"]])
    assert logged_variances([{"epoch": 0}]) == {"epochs": [], "own": [], "unrelated": []}
