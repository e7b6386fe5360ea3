"""Twin labels: which epoch is kept, what the second network learns from, and runs on noisy, clean and long-tailed data."""

import pytest
import torch

from icda.cross_fit import HeldOut
from icda.cross_fit.refined_labels import refine_labels
from icda.data.task import Batch
from icda.errors import InputError
from icda.methods import Setup
from icda.methods.twin_labels import TwinLabels
from icda.training import TrainConfig, train
from support import make_context

SETUP = Setup(3, 5, torch.tensor([4, 4, 4]), epochs=4, num_samples=12, seed=3)
TARGETS = torch.arange(12) % 3


def answers(right, sure=4.0):
    """Probabilities (12, 3): the label for the first `right` samples, the next class for the others."""
    said = torch.where(torch.arange(12) < right, TARGETS, (TARGETS + 1) % 3)
    return (sure * torch.nn.functional.one_hot(said, 3)).float().softmax(1)


def end_epoch(method, said, epoch):
    method.latest, method.given = said.clone(), TARGETS.clone()
    method.on_epoch_end(make_context(epoch=epoch))


def test_the_epoch_whose_running_mean_agrees_most_with_the_given_labels_is_kept():
    method, running, kept = TwinLabels(SETUP), torch.zeros(12, 3), []
    shares = [6, 11, 9, 2, 3]
    for epoch, right in enumerate(shares):
        end_epoch(method, answers(right, sure=4.0 - epoch / 10), epoch)
        said = answers(right, sure=4.0 - epoch / 10)
        running = said if epoch == 0 else (running + said) / 2
        kept.append((float((running.argmax(1) == TARGETS).float().mean()), running.clone()))
        assert method.found["held_out_agreement"] == pytest.approx(kept[-1][0])
    best = max(range(5), key=lambda epoch: kept[epoch][0])
    assert 0 < best < 4
    torch.testing.assert_close(method.kept, kept[best][1])


def test_the_second_network_learns_from_refined_labels_with_adjusted_logits():
    generator = torch.Generator().manual_seed(0)
    held_out = HeldOut(torch.randn(12, 3, generator=generator) + 2 * torch.eye(3)[TARGETS], TARGETS, 0.9)
    refined = refine_labels(held_out.logits, TARGETS).probabilities
    logits, rows = torch.randn(5, 3, generator=generator), torch.tensor([7, 0, 3, 3, 11])
    output = type("Output", (), {"logits": logits})
    context = make_context()
    for balance in (True, False):
        method = TwinLabels(SETUP, balance=balance)
        method.learn_from(held_out)
        shift = refined.double().mean(0).log().float() if balance else torch.zeros(3)
        wanted = -sum(float(refined[row] @ (z + shift).log_softmax(0)) for z, row in zip(logits, rows, strict=True)) / 5
        found = method.loss(output, Batch(logits, TARGETS[rows], None, rows), context)
        assert float(found) == pytest.approx(wanted, rel=1e-5)


def run(folder, task, method, **settings):
    common = {"model": "mlp", "epochs": 12, "batch_size": 64, "learning_rate": 0.05}
    return train(TrainConfig(**{**common, "task": task, "method": method, "out": str(folder / method), **settings}))


def test_a_task_with_wrong_labels_is_learned_far_better_than_by_cross_entropy(tmp_path):
    plain, twins = (run(tmp_path, "digits_flip_noise", method) for method in ("cross_entropy", "twin_labels"))
    assert twins["metrics"]["accuracy"] > plain["metrics"]["accuracy"] + 0.1
    last = twins["history"][-1]
    assert last["wrong_labels"] == pytest.approx(0.4, abs=0.06), "nobody said the rate"
    assert last["relabelled"] == pytest.approx(0.4, abs=0.08)
    assert len({line["held_out_agreement"] for line in twins["history"][:6]}) > 1


def test_right_labels_stay_and_so_do_those_of_rare_classes(tmp_path):
    for task in ("digits", "digits_lt"):
        last = run(tmp_path / task, task, "twin_labels", epochs=8)["history"][-1]
        assert last["wrong_labels"] < 0.05
        assert last["relabelled"] < 0.03


def test_it_answers_no_shortcut_and_frees_what_it_noted(tmp_path):
    method = TwinLabels(SETUP)
    assert method.shortcut_answers([], torch.zeros(1)) is None
    assert not method.answers_later
    result = run(tmp_path, "digits_lt", "twin_labels", epochs=2)
    state = torch.load(tmp_path / "twin_labels" / "model.pt", weights_only=True)["method"]["_extra_state"]
    assert all(state[name].numel() == 0 for name in ("given", "latest", "average", "kept"))
    assert state["answers"]["logits"].shape == (sum(result["class_counts"]), 10)


def test_its_answers_are_not_taken_for_those_of_the_networks_at_the_end(tmp_path):
    run(tmp_path, "digits_lt", "twin_labels", epochs=2)
    with pytest.raises(InputError, match="trained no cross-fitted networks"):
        run(tmp_path, "digits_lt", "xrm", epochs=2, options={"reuse": str(tmp_path / "twin_labels")})
