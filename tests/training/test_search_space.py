import pytest

from icda.registry import UnknownNameError
from icda.training.tuning import Dimension, check_space, parse_space


class FakeTrial:
    """Answers like an Optuna trial, and remembers what it was asked."""

    def suggest_float(self, name, low, high, log):
        return ("float", name, low, high, log)

    def suggest_int(self, name, low, high):
        return ("int", name, low, high)

    def suggest_categorical(self, name, choices):
        return ("choice", name, choices)


@pytest.mark.parametrize(
    ("word", "asked"),
    [
        ("beta=0:0.5", ("float", "beta", 0.0, 0.5, False)),
        ("learning_rate=1e-3:0.3:log", ("float", "learning_rate", 1e-3, 0.3, True)),
        ("hidden=32:64:int", ("int", "hidden", 32, 64)),
        ("semantic=true,false", ("choice", "semantic", [True, False])),
        ("covariance=full", ("choice", "covariance", ["full"])),
    ],
)
def test_each_way_of_writing_a_range_asks_for_it(word, asked):
    (dimension,) = parse_space([word])
    assert dimension.draw(FakeTrial()) == asked


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "--space is empty"),
        (["beta"], "expects name=low:high"),
        (["=1:2"], "expects name=low:high"),
        (["beta=a:b"], "expected two numbers"),
        (["beta=1:2:3:4"], "expected two numbers"),
        (["beta=1:2:loggy"], "comes log or int, got 'loggy'"),
        (["beta=2:1"], "expected low < high"),
        (["beta=0:1:log"], "low > 0 for log"),
        (["beta=0:1", "beta=0:2"], "names something twice"),
    ],
)
def test_a_space_that_makes_no_sense_is_refused(words, message):
    with pytest.raises(ValueError, match=message):
        parse_space(words)


def test_settings_of_training_and_options_of_the_method_are_known():
    check_space(
        [Dimension("weight_decay", 0, 1), Dimension("statistics_rate", 0, 1), Dimension("beta", 0, 1)], "meta_icda"
    )
    with pytest.raises(UnknownNameError, match="did you mean 'weight_decay'"):
        check_space([Dimension("weight_decai", 0, 1)], "icda")
