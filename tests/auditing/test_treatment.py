"""Which treatment follows from which verdicts, and how much of it."""

import pytest
import torch

from icda.auditing.evidence import Sketch
from icda.auditing.treatment import MOST_STRENGTH, choose_treatment
from icda.cross_fit.rules import Verdict, answered
from support import shortcut_data


@pytest.fixture(scope="module")
def birds():
    """Two classes told by four weak features, and by two strong ones that go with 95 % of them."""
    X, y, _ = shortcut_data(800, 0.95, 20, (4, 0.6), (2, 2.5))
    return Sketch(torch.from_numpy(X).float(), torch.arange(800)), torch.from_numpy(y)


def choose(birds, shortcut, noise=0.1):
    sketch, y = birds
    return choose_treatment(sketch, y, 2, {"shortcut": shortcut, "label_noise": answered(noise, [])})


@pytest.mark.parametrize("chance", [0.65, 0.85])
def test_the_prior_is_as_strong_as_a_shortcut_is_likely(birds, chance):
    found = choose(birds, answered(chance, []))
    assert (found.name, found.strength) == ("shortcut_prior", chance)


def test_a_guess_is_never_given_whole(birds):
    assert choose(birds, answered(0.98, [])).strength == MOST_STRENGTH


@pytest.mark.parametrize("chance", [0.45, 0.55])
def test_what_cannot_be_told_is_asked_and_not_guessed(birds, chance):
    found = choose(birds, answered(chance, []))
    assert found.name == "logit_adjustment"
    assert "icda ask" in str(found)


def test_an_unlikely_shortcut_is_left_alone(birds):
    assert choose(birds, answered(0.35, [])).name == "logit_adjustment"
    # Where the sketch lacks directions, "no" becomes "cannot tell"; that makes a shortcut no likelier.
    assert choose(birds, Verdict("cannot tell", 0.5, [], 0.2)).name == "logit_adjustment"


def test_nothing_measured_is_no_reason_to_treat(birds):
    assert choose(birds, Verdict("cannot tell", 0.5, ["The features do not tell the classes apart."])).strength == 1.0
    assert choose(birds, Verdict("cannot tell", 0.5, [])).name == "logit_adjustment"


def test_beside_wrong_labels_only_a_shortcut_that_was_found_is_treated(birds):
    assert choose(birds, answered(0.5, []), noise=0.9).name != "shortcut_prior"
    assert choose(birds, answered(0.9, []), noise=0.9).name == "shortcut_prior"
