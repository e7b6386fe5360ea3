import torch
from torch.nn import functional as F

from icda.selection import Selector, ValidationView
from icda.selection.pseudo_groups import METRIC, PseudoGroupObserver, strength_groups


def test_a_quarter_of_each_class_with_the_largest_strengths_is_set_apart():
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(60, 5, generator=generator, dtype=torch.float64)
    weight = torch.randn(3, 5, generator=generator, dtype=torch.float64)
    targets = torch.arange(60) % 3
    groups = strength_groups(features, targets, weight)
    assert torch.equal(groups // 2, targets)
    for label in range(3):
        strengths = {
            i: float(1 - F.cosine_similarity(features[i], weight[label], dim=0)) / 2
            for i in range(60)
            if targets[i] == label
        }
        wanted = sorted(strengths, key=lambda i: -strengths[i])[:5]
        assert sorted(wanted) == (groups == 2 * label + 1).nonzero().flatten().tolist()


def test_groups_are_guessed_early_and_never_after_the_training():
    for epochs in (1, 2, 10, 200):
        observer, when = PseudoGroupObserver(), []
        for epoch in range(epochs):
            when += [epoch] if observer.observe(view(epoch, epochs))[METRIC] is not None else []
        assert when[0] == max(0, round(0.1 * epochs) - 1)


def view(epoch, num_epochs=30, calls=None):
    """Twelve samples of two classes, with other features and logits in each epoch."""
    generator = torch.Generator().manual_seed(epoch)
    features, logits = (torch.randn(12, size, generator=generator, dtype=torch.float64) for size in (4, 2))

    def encode():
        if calls is not None:
            calls.append(epoch)
        return features

    weight = torch.eye(2, 4, dtype=torch.float64)
    return ValidationView(epoch, num_epochs, {"accuracy": 0.5}, logits, torch.arange(12) % 2, encode, lambda: weight)


def test_groups_are_guessed_once_and_every_later_epoch_is_judged_by_them():
    observer, calls = PseudoGroupObserver(), []
    assert [observer.observe(view(epoch, calls=calls)) for epoch in (0, 1)] == [{METRIC: None}] * 2
    early = view(2)
    groups = strength_groups(early.features(), early.targets, early.head_weight())
    for epoch in (2, 3, 9):
        seen = view(epoch, calls=calls)
        right = (seen.logits.argmax(1) == seen.targets).double()
        assert observer.observe(seen) == {
            METRIC: min(right[groups == group].mean().item() for group in groups.unique())
        }
    assert calls == [2]  # features are encoded in the epoch of the guess and in no other


def test_an_epoch_before_the_guess_is_kept_until_one_after_it_comes():
    selector = Selector("validation_worst_pseudo_group")
    answers = []
    for epoch in range(4):
        seen = view(epoch)
        answers.append(selector.update(epoch, {**seen.metrics, **selector.observe(seen)}))
    assert answers[:3] == [True, False, True]
    assert selector.best_score >= 0


def test_guessed_groups_are_in_the_state_of_the_selector_and_come_back():
    whole = Selector("validation_worst_pseudo_group")
    assert "pseudo_groups" not in whole.state_dict()
    whole.observe(view(2))
    resumed = Selector("validation_worst_pseudo_group")
    resumed.load_state_dict(whole.state_dict())
    assert resumed.observe(view(5)) == whole.observe(view(5))


def test_a_rule_without_an_observer_observes_nothing():
    assert Selector("validation_accuracy").observe(view(2)) == {}


def test_where_biased_networks_will_answer_groups_wait_for_them_and_are_what_they_get_wrong():
    observer, answers = PseudoGroupObserver(), [None, torch.tensor([0, 1, 1, 0])]
    targets = torch.tensor([0, 0, 1, 1])

    def never():
        raise AssertionError("strengths are not asked for")

    def view(epoch, logits):
        return ValidationView(
            epoch, 4, {"accuracy": 0.5}, logits, targets, never, never, lambda: answers[min(epoch, 1)], True
        )

    right = F.one_hot(targets, 2).float()
    assert observer.observe(view(0, right)) == {METRIC: None}
    assert observer.observe(view(1, right)) == {METRIC: 1.0}
    assert observer.groups.tolist() == [0, 1, 2, 3]
    answers[1] = None
    wrong = right.clone()
    wrong[3] = wrong[3].flip(0)
    assert observer.observe(view(2, wrong)) == {METRIC: 0.0}
