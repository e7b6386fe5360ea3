"""Verdicts on networks: what made-up answers are called, and whether labels can be read where networks contradict them."""

import pytest
import torch
from torch.nn import functional as F

from icda.cross_fit import HeldOut
from icda.cross_fit.network_verdicts import Figures, judge_networks, read_labels
from icda.cross_fit.rules import LIMITS, noise_chance

CLASSES, SIZE = 4, 800
TARGETS = torch.arange(SIZE) % CLASSES
UNREAD, READ = (0.5, 0.03, 0.9), (0.85, 0.03, 0.9)


def answers(errors, sure=True, seed=0):
    """Logits that contradict a share of the labels, as surely as they confirm the others or far less so."""
    generator = torch.Generator().manual_seed(seed)
    wrong = torch.rand(SIZE, generator=generator) < errors
    said = torch.where(wrong, (TARGETS + 1) % CLASSES, TARGETS)
    size = torch.where(wrong & (not sure), 0.5, 5.0) + 0.5 * torch.randn(SIZE, generator=generator).abs()
    return size[:, None] * F.one_hot(said, CLASSES)


def held_out(logits, agreement, read):
    return HeldOut(logits, TARGETS, agreement, running=logits, read=read)


def called(evidence):
    verdicts = judge_networks(evidence)
    return verdicts["shortcut"].answer, verdicts["label_noise"].answer


@pytest.mark.parametrize("errors", [0.1, 0.2])
def test_sure_contradictions_are_a_shortcut_where_labels_can_be_read_and_wrong_labels_where_not(errors):
    logits = answers(errors)
    assert called(held_out(logits, 0.985, READ)) == ("yes", "no")
    assert called(held_out(logits, 0.985, UNREAD)) == ("no", "yes")


def test_many_contradictions_are_wrong_labels_unless_these_can_be_read():
    assert called(held_out(answers(0.45), 0.97, UNREAD)) == ("no", "yes")
    part = (0.64, 0.01, 0.9)  # a third of what is read elsewhere
    assert called(held_out(answers(0.45), 0.97, part)) == ("no", "yes"), "the networks' own mistakes"
    assert called(held_out(answers(0.1), 0.985, part))[1] == "no", "of so few contradictions these are no such part"
    assert called(held_out(answers(0.45), 0.97, READ)) == ("no", "no"), "then the networks are wrong, not the labels"


def test_unsure_contradictions_and_scattered_ones_are_neither():
    assert called(held_out(answers(0.06, sure=False), 0.97, READ)) == ("no", "no")
    assert called(held_out(answers(0.1), 0.92, READ)) == ("no", "no")  # 0.8 disagreements for each error


def test_networks_that_agree_on_everything_and_leave_nothing_to_read_cannot_be_told_apart():
    shortcut, noise = called(held_out(answers(0.1), 1.0, UNREAD))
    assert noise == "cannot tell"
    assert shortcut != "yes"
    assert called(held_out(answers(0.1), 1.0, (0.6, 0.03, 0.9))) == (
        "yes",
        "no",
    )  # less is needed where they agree so well


def test_a_handful_of_contradictions_is_no_shortcut_for_sure():
    few = torch.zeros(SIZE, dtype=torch.bool)
    few[:5] = True
    logits = 5.0 * F.one_hot(torch.where(few, (TARGETS + 1) % CLASSES, TARGETS), CLASSES)
    assert called(held_out(logits, 1.0, (0.9, 0.1, 0.95)))[0] == "cannot tell"


@pytest.mark.parametrize("read", [READ, UNREAD])
def test_networks_that_know_less_than_the_largest_class_contradict_nothing(read):
    """A tenth of the samples are of class 1; what contradicts a fifth of the labels tells less than always class 0."""
    targets = (torch.arange(SIZE) % 10 == 0).long()
    said = torch.where(torch.arange(SIZE) % 5 == 1, 1 - targets, targets)
    assert called(HeldOut(5.0 * F.one_hot(said, 2), targets, 0.99, read=read)) == ("no", "no")
    even = torch.arange(SIZE) % 2
    said = torch.where(torch.arange(SIZE) % 5 == 1, 1 - even, even)
    assert "yes" in called(HeldOut(5.0 * F.one_hot(said, 2), even, 0.99, read=read))


def test_the_chance_of_noise_is_the_audits():
    evidence = held_out(answers(0.45), 0.97, UNREAD)
    found = Figures.of(evidence)
    chance = judge_networks(evidence)["label_noise"].chance
    assert chance == pytest.approx(noise_chance(found.skill, found.overall, found.sided, LIMITS), abs=0.01)
    assert found.skill == pytest.approx((1 - found.errors - 0.25) / 0.75, abs=0.02)


def test_a_tail_is_judged_by_class_sizes():
    targets = torch.cat([torch.zeros(400), torch.ones(40)]).long()
    logits = 5.0 * F.one_hot(targets, 2) + torch.randn(440, 2, generator=torch.Generator().manual_seed(0))
    verdicts = judge_networks(HeldOut(logits, targets, 0.99, running=logits, read=UNREAD))
    assert verdicts["long_tail"].answer == "yes"
    assert "10 times" in verdicts["long_tail"].reasons[0]


def planted(noise):
    """Features that show the class, labels, and answers: the truth behind wrong labels, or a mark that most labels have."""
    generator = torch.Generator().manual_seed(1)
    other = torch.rand(SIZE, generator=generator) < 0.15
    moved = (TARGETS + torch.randint(1, CLASSES, (SIZE,), generator=generator)) % CLASSES
    labels, said = (
        (torch.where(other, moved, TARGETS), TARGETS) if noise else (TARGETS, torch.where(other, moved, TARGETS))
    )
    features = torch.randn(SIZE, 6, generator=generator)
    features[:, :CLASSES] += 2 * F.one_hot(TARGETS, CLASSES)
    return features, labels, 5.0 * F.one_hot(said, CLASSES) + 0.1 * torch.rand(SIZE, CLASSES, generator=generator)


def test_labels_are_read_beside_a_shortcut_and_not_where_they_are_wrong():
    area, _, elsewhere = read_labels(*planted(noise=False), seed=0)
    assert area > 0.8
    assert area == pytest.approx(elsewhere, abs=0.05)
    area, error, elsewhere = read_labels(*planted(noise=True), seed=0)
    assert abs(area - 0.5) < 3 * error
    assert elsewhere > 0.55, "the answers say nearly all, and leave the heads little to learn"


def test_what_is_read_of_contradicted_labels_counts_by_what_is_read_elsewhere():
    def readability(*read):
        return held_out(answers(0.1), 1.0, read).readability

    assert readability(0.7, 0.02, 0.9) == pytest.approx(0.5)
    assert readability(0.5, 0.02, 0.9) == 0
    assert readability(0.52, 0.01, 0.52) == pytest.approx(0.2), "little over little is not much"
    assert HeldOut(answers(0.1), TARGETS, 1.0).readability == 0


def test_unsure_answers_are_not_asked_about():
    features, labels, logits = planted(noise=True)
    truth = TARGETS
    mistaken = torch.arange(SIZE) % 5 == 0  # the networks' own mistakes, whose labels are right and can be read
    logits[mistaken] = 0.3 * F.one_hot((truth[mistaken] + 1) % CLASSES, CLASSES).float()
    labels = torch.where(mistaken, truth, labels)
    area, error, _ = read_labels(features, labels, logits, seed=0)
    assert abs(area - 0.5) < 3 * error
    loud = torch.where(mistaken[:, None], 20 * logits, logits)
    assert read_labels(features, labels, loud, seed=0)[0] > 0.65
