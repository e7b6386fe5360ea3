import math

import pytest
import torch
from torch import nn

from icda.methods import Setup
from icda.methods.post_hoc_logit_adjustment import PostHocLogitAdjustment
from icda.models.base import FeatureClassifier
from icda.training import TrainConfig, evaluate_folder, train

COUNTS = [90, 9, 1]
SETUP = Setup(num_classes=3, feature_dim=4, class_counts=torch.tensor(COUNTS), epochs=2, num_samples=100)


@pytest.fixture
def model():
    return FeatureClassifier(nn.Identity(), nn.Linear(4, 3)).double()


@pytest.mark.parametrize("tau", [1.0, 0.5, 2.0])
def test_predictions_are_logits_minus_tau_log_prior(model, tau):
    inputs = torch.randn(6, 4, dtype=torch.float64)
    found = PostHocLogitAdjustment(SETUP, tau=tau).predict([model], inputs).tolist()
    for row, logits in zip(found, model(inputs).logits.tolist(), strict=True):
        expected = [z - tau * math.log(n / 100) for z, n in zip(logits, COUNTS, strict=True)]
        assert row == pytest.approx(expected, rel=1e-12)


def test_tau_zero_and_equal_counts_predict_as_cross_entropy_does(model):
    inputs = torch.randn(6, 4, dtype=torch.float64)
    logits = model(inputs).logits
    assert torch.equal(PostHocLogitAdjustment(SETUP, tau=0.0).predict([model], inputs), logits)
    equal = Setup(num_classes=3, feature_dim=4, class_counts=torch.tensor([7, 7, 7]), epochs=2, num_samples=21)
    shifted = PostHocLogitAdjustment(equal).predict([model], inputs)
    torch.testing.assert_close(shifted.softmax(1), logits.softmax(1), rtol=0, atol=1e-14)


def test_the_prior_is_that_of_training_also_for_a_method_made_for_other_data():
    method = PostHocLogitAdjustment(SETUP)
    other = Setup(num_classes=3, feature_dim=4, class_counts=torch.tensor([5, 5, 5]), epochs=2, num_samples=15)
    restored = PostHocLogitAdjustment(other)
    restored.load_state_dict(method.state_dict())
    assert torch.equal(restored.log_prior, method.log_prior)


def test_a_class_without_samples_is_refused():
    absent = Setup(num_classes=3, feature_dim=4, class_counts=torch.tensor([5, 0, 5]), epochs=2, num_samples=10)
    with pytest.raises(ValueError, match="class 1 has no training sample"):
        PostHocLogitAdjustment(absent)


def test_it_ends_with_the_network_of_cross_entropy_and_answers_rare_classes_more_often(tmp_path):
    def run(method):
        settings = {"model": "mlp", "epochs": 4, "out": str(tmp_path / method), "method": method}
        return train(TrainConfig(task="digits_lt", **settings))

    plain, adjusted = run("ce"), run("post_hoc_la")
    assert [line["train_loss"] for line in plain["history"]] == [line["train_loss"] for line in adjusted["history"]]
    rare = [sum(sum(row[5:]) for row in result["confusion"]) for result in (plain, adjusted)]
    assert rare[1] > rare[0]
    assert evaluate_folder(tmp_path / "post_hoc_la")["confusion"] == adjusted["confusion"]
