import json
import warnings

import pytest
import sklearn.metrics
import torch

from icda.metrics import evaluate_predictions

KEYS = {
    "accuracy",
    "balanced_accuracy",
    "per_class_accuracy",
    "worst_class_accuracy",
    "many_accuracy",
    "medium_accuracy",
    "few_accuracy",
    "macro_precision",
    "calibration_error",
    "nll",
    "per_group_accuracy",
    "worst_group_accuracy",
    "average_group_accuracy",
    "train_weighted_accuracy",
}


def problem(seed=0, samples=120, num_classes=6):
    generator = torch.Generator().manual_seed(seed)
    return {
        "logits": torch.randn(samples, num_classes, generator=generator),
        "targets": torch.randint(num_classes, (samples,), generator=generator),
        "groups": torch.randint(4, (samples,), generator=generator),
    }


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("num_classes", [2, 6, 100])
def test_accuracies_agree_with_scikit_learn(seed, num_classes):
    given = problem(seed, num_classes=num_classes)
    found = evaluate_predictions(**given)
    predictions, targets = given["logits"].argmax(1), given["targets"]
    assert found["accuracy"] == pytest.approx(sklearn.metrics.accuracy_score(targets, predictions))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn speaks up about classes that are predicted but absent
        expected = sklearn.metrics.balanced_accuracy_score(targets, predictions)
    assert found["balanced_accuracy"] == pytest.approx(expected)
    present = sklearn.metrics.recall_score(targets, predictions, labels=targets.unique(), average=None)
    assert found["worst_class_accuracy"] == pytest.approx(present.min())


@pytest.mark.parametrize("seed", range(3))
def test_group_figures_come_from_the_accuracy_of_each_group(seed):
    given = problem(seed)
    counts, names = [40, 30, 20, 10, 5], ["a", "b", "c", "d", "nobody"]
    found = evaluate_predictions(**given, num_groups=5, train_group_counts=counts, group_names=names)
    correct = given["logits"].argmax(1) == given["targets"]
    each = [correct[given["groups"] == g].double().mean().item() for g in range(4)]
    assert found["per_group_accuracy"] == pytest.approx({**dict(zip(names, each, strict=False)), "nobody": None})
    assert found["worst_group_accuracy"] == pytest.approx(min(each))
    assert found["average_group_accuracy"] == pytest.approx(sum(each) / 4)
    expected = sum(a * n for a, n in zip(each, counts, strict=False)) / 100
    assert found["train_weighted_accuracy"] == pytest.approx(expected)


@pytest.mark.parametrize("seed", range(3))
def test_overlapping_groups_take_the_place_of_disjoint_ones_in_all_but_the_train_weighted_accuracy(seed):
    given = problem(seed)
    generator = torch.Generator().manual_seed(seed)
    memberships = torch.rand(120, 6, generator=generator) < torch.tensor([0.9, 0.5, 0.3, 0.2, 0.1, 0.0])
    names, counts = [f"identity {number}" for number in range(6)], [40, 30, 20, 10]
    found = evaluate_predictions(**given, train_group_counts=counts, memberships=memberships, membership_names=names)
    plain = evaluate_predictions(**given, train_group_counts=counts)
    each = {}
    for column, name in enumerate(names):
        inside = [i for i in range(120) if memberships[i, column]]
        hits = sum(int(given["logits"][i].argmax()) == int(given["targets"][i]) for i in inside)
        each[name] = hits / len(inside) if inside else None
    known = [value for value in each.values() if value is not None]
    assert each["identity 5"] is None
    assert found["per_group_accuracy"] == each
    assert found["worst_group_accuracy"] == min(known)
    assert found["average_group_accuracy"] == pytest.approx(sum(known) / 5)
    overlapping = {"per_group_accuracy", "worst_group_accuracy", "average_group_accuracy"}
    assert {name: found[name] for name in KEYS - overlapping} == {name: plain[name] for name in KEYS - overlapping}


def test_overlapping_groups_alone_have_no_train_weighted_accuracy_and_may_be_empty():
    given = problem()
    given.pop("groups")
    memberships = torch.ones(120, 3).bool()
    memberships[:, 2] = False
    found = evaluate_predictions(**given, train_group_counts=[1, 2, 3], memberships=memberships)
    assert found["train_weighted_accuracy"] is None
    assert found["per_group_accuracy"] == {"0": found["accuracy"], "1": found["accuracy"], "2": None}
    assert found.keys() == KEYS
    nobody = evaluate_predictions(**given, memberships=torch.zeros(120, 3).bool())
    assert nobody["worst_group_accuracy"] is nobody["average_group_accuracy"] is None


def test_the_same_keys_come_without_options_and_worst_group_is_never_the_worst_class():
    given = problem()
    full = evaluate_predictions(**given, train_class_counts=[1] * 6, train_group_counts=torch.ones(4).long())
    assert json.loads(json.dumps(full, allow_nan=False)) == full
    bare = evaluate_predictions(given["logits"], given["targets"], train_group_counts=[1, 2])
    assert full.keys() == bare.keys() == KEYS
    for name in ("per_group_accuracy", "worst_group_accuracy", "average_group_accuracy", "train_weighted_accuracy"):
        assert bare[name] is None
    assert bare["worst_class_accuracy"] is not None


def test_groups_are_counted_from_names_then_counts_then_labels():
    given = problem()
    assert len(evaluate_predictions(**given, group_names=list("abcdef"))["per_group_accuracy"]) == 6
    assert len(evaluate_predictions(**given, train_group_counts=[1] * 5)["per_group_accuracy"]) == 5
    assert list(evaluate_predictions(**given, group_names=())["per_group_accuracy"]) == ["0", "1", "2", "3"]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_any_float_type_and_gradient_is_taken(dtype):
    given = problem()
    given["logits"] = given["logits"].to(dtype).requires_grad_()
    given["targets"] = given["targets"].to(torch.int32)
    found = evaluate_predictions(**given)
    assert found["nll"] == pytest.approx(evaluate_predictions(**problem())["nll"], rel=1e-2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"logits": torch.zeros(120)}, r"logits of shape .*got \(120,\)"),
        ({"logits": torch.zeros(120, 1)}, r"got \(120, 1\)"),
        ({"logits": torch.zeros(0, 6)}, r"logits .*got \(0, 6\)"),
        ({"logits": torch.zeros(120, 6).long()}, "floating point logits, got torch.int64"),
        ({"logits": torch.full((120, 6), float("nan"))}, "for 120 of 120 samples: the model has diverged"),
        ({"targets": torch.zeros(119).long()}, r"targets of shape \(120,\).* got \(119,\)"),
        ({"targets": torch.zeros(120)}, r"integer targets, got torch.float32: use targets.long\(\)"),
        ({"targets": torch.full((120,), 6)}, "targets in 0..5, got 6"),
        ({"groups": torch.full((120,), -1)}, r"groups in 0..0, got -1"),
        ({"groups": torch.zeros(7).long()}, r"groups of shape \(120,\)"),
        ({"num_groups": 2}, "groups in 0..1, got 3"),
        ({"num_groups": -1}, r"num_groups .*got -1"),
        ({"train_class_counts": [1, 2]}, "expects 6 train_class_counts, one per class, got 2"),
        ({"num_groups": 4, "group_names": ["a"]}, "expects 4 group_names, one per group, got 1"),
        ({"num_groups": 4, "train_group_counts": [1]}, "expects 4 train_group_counts, one per group, got 1"),
        ({"group_names": ["a", "a", "b", "c"]}, "distinct group_names, got a, a, b, c"),
        ({"memberships": torch.zeros(120).bool()}, r"memberships of shape \(120, M\).* got \(120,\)"),
        ({"memberships": torch.zeros(7, 2).bool()}, r"memberships of shape \(120, M\).* got \(7, 2\)"),
        ({"memberships": torch.zeros(120, 0).bool()}, r"got \(120, 0\)"),
        ({"memberships": torch.zeros(120, 2)}, "true or false, got torch.float32: use memberships >= 0.5"),
        ({"memberships": torch.full((120, 2), 3)}, r"memberships of 0 and 1, got 3 to 3"),
        (
            {"memberships": torch.zeros(120, 2).bool(), "membership_names": ["a"]},
            "expects 2 membership_names, one per column of memberships, got 1",
        ),
        (
            {"memberships": torch.zeros(120, 2).bool(), "membership_names": ["a", "a"]},
            "distinct membership_names, got a, a",
        ),
    ],
)
def test_bad_input_says_what_was_given_and_what_was_wanted(change, message):
    with pytest.raises(ValueError, match=message):
        evaluate_predictions(**{**problem(), **change})
