"""Meta-ICDA with signed strengths, with memory, and with what held-out networks say."""

import copy
import math

import pytest
import torch

from icda import ICDALoss, MetaICDA
from icda.cross_fit import HeldOut
from icda.errors import InputError
from icda.methods import Setup, create_method
from icda.methods.meta_icda import HeldOutFigures, MetaICDAMethod, held_out_figures
from icda.models import create_model
from icda.training import TrainConfig, train
from support import make_batch, make_context

SETUP = Setup(3, 6, torch.tensor([30, 20, 10]), epochs=1, num_samples=60)
DEFAULTS = {"strength_output": "tanh", "beta": 10.0, "memory": True}


def test_it_is_meta_icda_with_other_defaults():
    torch.manual_seed(0)
    signed = create_method("meta_icda_signed", SETUP, {"lookahead": "head", "lambda0": 0.25})
    torch.manual_seed(0)
    plain = create_method("meta_icda", SETUP, {**DEFAULTS, "lookahead": "head", "lambda0": 0.25})
    for method in (signed, plain):
        assert (method.lookahead, method.criterion.lambda0, method.criterion.beta) == ("head", 0.25, 10.0)
        assert (method.strength_network.output, method.strength_network.centred) == ("tanh", True)
    for name, value in plain.strength_network.state_dict().items():
        assert torch.equal(signed.strength_network.state_dict()[name], value), name


def test_the_papers_form_stays_the_default_of_meta_icda():
    method = create_method("meta_icda", SETUP)
    assert (method.strength_network.output, method.strength_network.centred) == ("sigmoid", False)
    assert method.criterion.beta == 0.1
    assert method.history is None


def test_before_the_start_signed_strengths_are_zero_and_the_margin_with_them():
    torch.manual_seed(0)
    model = create_model("mlp", 3, (5,), hidden=6).double()
    method = MetaICDAMethod(SETUP, start=0.5, strength_output="tanh", beta=5.0).double().train()
    without = MetaICDAMethod(SETUP, start=0.5, sample_margin=False).double().train()
    batch = make_batch(1, classes=3)
    losses = []
    for each in (method, without):
        losses.append(each.step(batch, make_context(copy.deepcopy(model), rate=0.1, progress=0.4)).loss)
    torch.testing.assert_close(losses[0], losses[1], rtol=1e-12, atol=0)


def test_a_loop_of_ones_own_takes_signed_strengths():
    model = create_model("mlp", num_classes=3, input_shape=(8,))
    loss = ICDALoss(3, model.feature_dim, class_counts=torch.tensor([3, 2, 1]), beta=5.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    meta = MetaICDA(model, loss, optimizer=optimizer, strength_output="tanh")
    batch, clean = [(torch.randn(12, 8), torch.arange(12) % 3) for _ in range(2)]  # more samples than the counts say
    assert torch.isfinite(meta.step(batch, clean, progress=0.5))
    assert abs(meta.end_epoch()["strength_mean"]) < 1e-6


def test_metadata_make_it_withdraw_wrong_labels(tmp_path):
    """Against the same run with strengths that cannot be negative; both read the same metadata."""
    runs = {}
    for name in ("meta_icda", "meta_icda_signed"):
        config = TrainConfig(task="digits_flip_noise", method=name, model="mlp", epochs=12, out=str(tmp_path / name))
        runs[name] = train(config)
    last = runs["meta_icda_signed"]["history"][-1]
    assert last["strength_wrong_labels"] < 0 < last["strength_right_labels"]
    assert last["strength_auroc_wrong"] > 0.8
    accuracies = {name: run["metrics"]["accuracy"] for name, run in runs.items()}
    assert accuracies["meta_icda_signed"] > accuracies["meta_icda"] + 0.05


def test_with_memory_the_network_reads_two_numbers_more_and_a_sample_keeps_its_past():
    torch.manual_seed(0)
    method = MetaICDAMethod(SETUP, memory=True).train()
    features, targets, index = torch.randn(4, 6), torch.tensor([0, 1, 2, 0]), torch.tensor([3, 40, 59, 0])
    first, second, weight = torch.randn(4, 3), torch.randn(4, 3), torch.randn(3, 6)
    method.history.observe(first, targets, index)
    described = method.describe(second, features, targets, weight, index)
    assert described.shape == (4, 12)
    losses = [torch.nn.functional.cross_entropy(logits, targets, reduction="none") for logits in (first, second)]
    torch.testing.assert_close(described[:, 10], (losses[0] + losses[1]) / 2)
    torch.testing.assert_close(described[:, 0], losses[1])


def test_a_loop_of_ones_own_with_memory_gives_sample_numbers():
    model = create_model("mlp", num_classes=3, input_shape=(8,))
    loss = ICDALoss(3, model.feature_dim, class_counts=torch.tensor([10, 10, 10]), beta=10.0)
    meta = MetaICDA(
        model, loss, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), strength_output="tanh", memory=True
    )
    inputs, targets, index = torch.randn(12, 8), torch.arange(12) % 3, torch.arange(12, 24)
    clean = (torch.randn(6, 8), torch.arange(6) % 3)
    assert torch.isfinite(meta.step((inputs, targets, index), clean, progress=0.5))
    assert meta.method.history.sums[2].nonzero().flatten().tolist() == list(range(12, 24))
    with pytest.raises(InputError, match=r"give a batch as \(inputs, targets, index\)"):
        meta.step((inputs, targets), clean, progress=0.5)
    with pytest.raises(InputError, match=r"sample numbers from 0 to 29, .* got 20 to 31"):
        meta.step((inputs, targets, index + 8), clean, progress=0.5)


def test_figures_are_the_loss_and_the_entropy_of_the_classes_shares_where_logits_say_nothing():
    targets = torch.tensor([0, 0, 0, 1])
    found = held_out_figures(HeldOut(torch.zeros(4, 2), targets, 1.0)).values.double()
    entropy = -0.75 * math.log(0.75) - 0.25 * math.log(0.25)
    expected = [[-math.log(0.75), entropy]] * 3 + [[-math.log(0.25), entropy]]
    assert torch.allclose(found, torch.tensor(expected, dtype=torch.float64), atol=1e-5)


def test_networks_that_learned_the_labels_as_they_are_come_first():
    targets = torch.tensor([0, 1, 0, 1])
    plain = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0], [0.0, 1.0]])
    with_both = HeldOut(torch.zeros(4, 2), targets, 1.0, unflipped=plain)
    assert torch.equal(held_out_figures(with_both).values, held_out_figures(HeldOut(plain, targets, 1.0)).values)


def test_samples_with_another_label_or_number_get_what_stands_for_the_rest():
    figures = HeldOutFigures(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([0, 1]))
    found = figures.rows(torch.tensor([0, 1, 1, 5]), torch.tensor([0, 1, 0, 0]), torch.tensor([-1.0, -2.0]))
    assert found.tolist() == [[1.0, 2.0], [3.0, 4.0], [-1.0, -2.0], [-1.0, -2.0]]


@pytest.fixture(scope="module")
def earlier(tmp_path_factory):
    folder = tmp_path_factory.mktemp("earlier") / "xrm"
    train(TrainConfig(task="digits_coloured_noise", method="xrm", model="mlp", epochs=2, out=str(folder)))
    return folder


def config(earlier, folder, **more):
    options = {"held_out": str(earlier)}
    settings = {"task": "digits_coloured_noise", "method": "meta_icda_signed", "model": "mlp", "epochs": 2, **more}
    return TrainConfig(**settings, options=options, out=str(folder))


def test_a_model_trained_with_them_is_explained_without_the_earlier_folder(earlier, tmp_path):
    from icda.training.run import load_folder

    train(config(earlier, tmp_path))
    earlier_elsewhere = earlier.rename(earlier.parent / "moved")
    try:
        _, task, networks, method = load_folder(tmp_path)
    finally:
        earlier_elsewhere.rename(earlier)
    batch = task.train.batch(torch.arange(8))
    with torch.no_grad():
        output = networks[0](batch.inputs)
        described = method.describe(output.logits, output.features, batch.targets, networks[0].head_weight, batch.index)
    assert described.shape == (8, 14)  # ten characteristics, two of the past, two of the networks
    assert torch.equal(described[:, 12:], method.held_out_figures.values[:8])


def test_the_run_itself_other_samples_and_runs_without_such_networks_are_refused(earlier, tmp_path):
    with pytest.raises(InputError, match="folder of this run itself"):
        train(config(tmp_path / "own", tmp_path / "own"))
    with pytest.raises(InputError, match=r"held_out=.*its samples have classes of"):
        train(config(earlier, tmp_path / "other", task="digits"))
    train(
        TrainConfig(
            task="digits_coloured_noise", method="cross_entropy", model="mlp", epochs=1, out=str(tmp_path / "ce")
        )
    )
    with pytest.raises(InputError, match=r"held_out=.*trained no cross-fitted networks"):
        train(config(tmp_path / "ce", tmp_path / "third"))
