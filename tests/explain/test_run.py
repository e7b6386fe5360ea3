import json

import pytest
import torch

from icda.data.sources import FeatureArray
from icda.data.task import Split, Task
from icda.explain import explain_run
from icda.explain.margins import margins, run_pass, sample_strengths
from icda.explain.run import CHEAP_PARTS, PARTS
from icda.methods import Setup, create_method, method_names
from icda.methods.create import method_class
from icda.models import create_model


@pytest.fixture(scope="module")
def whole(coloured):
    """Every part, of coloured digits."""
    return explain_run(*coloured, parts=PARTS, top=5, gradcam=8, counterfactuals=3, seed=1)


def test_margins_are_those_of_the_split(whole, coloured):
    seen = run_pass(coloured.method, coloured.networks, coloured.task.test)
    values = margins(seen.logits, seen.targets)
    assert whole["margins"]["mean"] == pytest.approx(values.mean().item())
    assert whole["margins"]["share_negative"] == pytest.approx((seen.predicted != seen.targets).float().mean().item())
    assert sum(map(sum, whole["margins"]["counts"])) == len(coloured.task.test)
    assert len(whole["margins"]["group_counts"]) == 4
    assert whole["margins"]["adjusted"]["mean"] < whole["margins"]["mean"]


def test_the_most_tied_samples_are_named_with_all_that_a_page_shows(whole, coloured):
    train = coloured.task.train
    strength = sample_strengths(coloured.method, run_pass(coloured.method, coloured.networks, train))
    tied = whole["tied"]
    assert [entry["strength"] for entry in tied] == sorted((entry["strength"] for entry in tied), reverse=True)
    assert tied[0]["strength"] == pytest.approx(strength.per_class.max().item(), rel=1e-5)
    for entry in tied:
        assert entry["split"] == "train"
        assert entry["target"] == int(train.targets[entry["index"]])
        assert entry["group"] == int(train.groups[entry["index"]])
        assert entry["towards"] != entry["target"]
        assert entry["picture"].startswith("data:image/png;base64,")


def test_heat_maps_are_spread_over_groups(whole, coloured):
    samples = whole["gradcam"]["samples"]
    assert sorted(sample["group"] for sample in samples) == [0, 0, 1, 1, 2, 2, 3, 3]
    shares = [sample["centre_share"] for sample in samples if sample["centre_share"] is not None]
    assert whole["gradcam"]["mean_centre_share"] == pytest.approx(sum(shares) / len(shares))
    for sample in samples:
        assert sample["target"] == int(coloured.task.test.targets[sample["index"]])
        assert sample["heat"] != sample["picture"]


def test_counterfactuals_come_with_real_neighbours_that_are_not_themselves(whole):
    found = whole["counterfactuals"]
    assert (found["augmentation"], found["seed"], len(found["samples"])) == ("icda", 1, 3)
    for sample in found["samples"]:
        assert 0 <= sample["feature_error"] < 1  # nearer to the wanted feature than the source was
        assert sample["made"] != sample["picture"]
        assert len(sample["neighbours"]) == 3
        assert sample["index"] not in [neighbour["index"] for neighbour in sample["neighbours"]]


def test_it_is_plain_json_and_the_seed_makes_it_the_same_again(whole, coloured):
    assert json.loads(json.dumps(whole, allow_nan=False)) == whole
    assert set(whole) == {"split", *PARTS}
    again = explain_run(*coloured, parts=("gradcam", "counterfactuals"), gradcam=8, counterfactuals=3, seed=1)
    assert again["gradcam"] == whole["gradcam"]
    assert again["counterfactuals"] == whole["counterfactuals"]


def test_many_training_samples_are_looked_at_by_a_part_of_them(coloured, monkeypatch):
    monkeypatch.setattr("icda.explain.run.STRENGTH_SAMPLES", 50)
    found = explain_run(*coloured, top=3)["strengths"]
    assert found["samples"] == sum(map(sum, found["counts"])) == 50
    assert (found["of"], found["split"]) == (len(coloured.task.train), "train")
    assert [row[place] for place, row in enumerate(found["towards"])] == [0, 0]


@pytest.mark.parametrize("name", method_names())
def test_every_method_can_be_explained(name, coloured):
    task = coloured.task
    count = getattr(method_class(name), "num_networks", 1)
    networks = [create_model(task.default_model, task.num_classes, task.input_shape) for _ in range(count)]
    method = create_method(name, Setup.of(task, networks[0], epochs=2))
    found = explain_run(task, [method.prepare_network(network) for network in networks], method, top=2)
    assert set(found) == {"split", *CHEAP_PARTS}
    json.dumps(found, allow_nan=False)


def test_features_have_no_pictures_and_asking_for_some_is_an_error():
    split = Split(FeatureArray(torch.randn(20, 6)), torch.arange(20), torch.arange(20) % 2)
    task = Task("table", 2, split, None, split, input_kind="features", input_shape=(6,))
    network = create_model("linear", 2, (6,))
    method = create_method("icda", Setup.of(task, network, 1))
    found = explain_run(task, [network], method, parts=(*CHEAP_PARTS, "variances"))
    assert "picture" not in found["tied"][0]
    with pytest.raises(ValueError, match="gradcam needs images, but the samples of task 'table' are features"):
        explain_run(task, [network], method, parts=("gradcam",))


def test_an_unknown_part_or_split_is_refused(coloured):
    with pytest.raises(ValueError, match="an explanation has no part 'margin': did you mean 'margins'"):
        explain_run(*coloured, parts=("margin",))
    with pytest.raises(ValueError, match="'digits_coloured' has no tests split: choose from train, validation, test"):
        explain_run(*coloured, parts=("strengths",), split="tests")
