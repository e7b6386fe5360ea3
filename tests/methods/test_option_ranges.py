"""No option of any method takes a value without sense, however the method is made."""

import copy
import pickle
from typing import Literal, get_args, get_origin

import pytest
import torch

from icda.errors import InputError
from icda.losses import ICDALoss
from icda.methods import Setup, create_method, method_names
from icda.methods.create import method_class, option_names
from icda.ranges import COUNTABLE
from icda.settings import option_kinds

SETUP = Setup(
    num_classes=10,
    feature_dim=16,
    class_counts=torch.full((10,), 50),
    epochs=10,
    num_samples=500,
    group_counts=torch.full((20,), 25),
    batch_size=64,
    input_shape=(3, 32, 32),
    group_domains=torch.arange(20) // 10,
    domain_counts=torch.full((2, 10), 25),
)
# The exponent of a prior, and the weight of what TDE takes away: a negative one turns the correction round.
MAY_BE_NEGATIVE = {("logit_adjustment", "tau"), ("post_hoc_logit_adjustment", "tau"), ("tde", "alpha")}
SENSELESS = {
    float: [float("nan"), float("inf"), -float("inf"), -1e30, 10**400],
    int: [-(10**30), 10**30, COUNTABLE + 1],
}
OUT_OF_RANGE = {
    "acgan": {"share": [0.0, 1.5], "start": [-0.1], "width": [12], "noise_dim": [0], "gan_rate": [0.0]},
    "afr": {"held_share": [0.0, 1.0], "gamma": [-1.0], "decay": [-0.1], "first_stage": [0.0, 1.0]},
    "cgan": {"share": [0.0], "width": [12]},
    "co_teaching": {"noise_rate": [1.0, -0.1], "ramp_epochs": [-3]},
    "coral": {"gamma": [-1.0], "sampling": ["own"]},
    "crt": {"first_stage": [0.0, 1.0, -0.5]},
    "d2l": {"neighbours": [1], "window": [1], "start": [1.5]},
    "dfr": {"l1": [-0.1]},
    "disturb_label": {"alpha": [-0.1, 1.1]},
    "domain_mix": {"alpha": [0.0, -1.0]},
    "elr": {"weight": [-1.0], "momentum": [1.0, -0.1]},
    "fish": {"epsilon": [0.0, 1.5], "start": [-0.1]},
    "group_dro": {"eta": [-0.1], "adjustment": [-1.0]},
    "ib_irm": {"ib": [-1.0], "penalty": [-2.0], "anneal_steps": [-3]},
    "ifl": {
        "loss": ["focal"],
        "milestones": [[0.8, 0.6], [0.6, 80]],
        "centre_weights": [[0.1, 0.2], [0, 0, -1], [0, 0, float("nan")]],
        "centre_rate": [1.5],
        "ratio": [1.0],
    },
    "infogan": {"codes": [0, 65], "code_weight": [-0.1], "start": [1.5]},
    "irm": {"penalty": [-1.0], "anneal_steps": [-1, 2.5]},
    "jocor": {"agreement": [-0.1, 1.0], "noise_rate": [1.0]},
    "jtt": {"first_stage": [0.0, 1.0], "up_weight": [0.5]},
    "ldam_drw": {"start": [1.5], "effective_beta": [1.0], "max_margin": [-1.0]},
    "ldmi": {"first_stage": [0.0, 1.0], "second_rate": [0.0, -1.0]},
    "lff": {"q": [0.0, 1.5], "smoothing": [-0.1, 1.0]},
    "lisa": {"p_sel": [1.1], "alpha": [0.0], "mix": ["manifold"]},
    "loss_mixture": {"start": [1.5]},
    "lws": {"first_stage": [0.0, 1.0]},
    "mat": {"tau": [-1.0]},
    "mentornet": {"noise_rate": [-0.1, 0.0, 1.0]},
    "meta_icda": {"lookahead": ["half"], "every": [0], "start": [1.5, -0.1], "meta_batch_size": [0]},
    "meta_icda_signed": {"strength_output": ["softmax"]},
    "oltr": {
        "scale": [0.0],
        "reach": [0.0],
        "weight": [-0.1],
        "repel": [-0.1],
        "margin": [-1.0],
        "centroid_rate": [1.5],
    },
    "risda_two_stage": {"first_stage": [0.0, 1.0]},
    "self_paced": {"percentile": [0.0, 1.1], "moving_average": [1.0], "burn_in": [-0.1], "dropout": [-0.5, 1.0]},
    "shortcut_prior": {"cross_fit_epochs": [0.0], "form": ["hard"]},
    "tde": {"num_heads": [0, 3], "tau": [0.0], "gamma": [-1.0], "momentum": [1.0]},
    "truncated_lq": {"q": [1.5], "threshold": [0.0, 1.0], "start": [1.5], "refresh": [0, 2.5]},
    "uw": {"weighting": ["both", None]},
    "v_rex": {"penalty": [-0.5], "anneal_steps": [1.5]},
    "wgan": {"penalty": [0.0], "critic_steps": [0], "gan_rate": [-1.0]},
    "xrm": {"cross_fit_epochs": [11.0], "repeats": [0, 101]},
}


def numeric_options():
    found = []
    for name in method_names():
        kinds = option_kinds(method_class(name))
        for option in option_names(method_class(name)):
            kind = str(kinds[option])
            if "float" in kind or "int" in kind:
                found.append((name, option, float if "float" in kind else int))
    return found


@pytest.mark.parametrize(("name", "option", "kind"), numeric_options())
def test_a_number_without_sense_is_refused_in_a_sentence(name, option, kind):
    is_list = "Sequence" in str(option_kinds(method_class(name))[option])
    for value in SENSELESS[kind]:
        if (name, option) in MAY_BE_NEGATIVE and value == -1e30:
            continue
        with pytest.raises(InputError):
            create_method(name, SETUP, {option: [value] if is_list else value})


@pytest.mark.parametrize("name", OUT_OF_RANGE)
def test_a_value_out_of_its_options_range_is_refused_with_its_name(name):
    for option, values in OUT_OF_RANGE[name].items():
        for value in values:
            with pytest.raises(InputError, match=option):
                create_method(name, SETUP, {option: value})
            with pytest.raises(InputError, match=option):
                method_class(name)(SETUP, **{option: value})  # plain construction in Python


def test_every_choice_is_checked():
    choices = 0
    for name in method_names():
        for option in option_names(method_class(name)):
            kind = option_kinds(method_class(name))[option]
            if get_origin(kind) is Literal:
                choices += 1
                for value in ("no such", None, 3):
                    with pytest.raises(ValueError, match=option):
                        create_method(name, SETUP, {option: value})
                assert get_args(kind)
    assert choices > 5


def test_copies_and_pickles_are_made_without_options():
    loss = ICDALoss(3, 4, lambda0=0.25)
    assert copy.deepcopy(loss).lambda0 == pickle.loads(pickle.dumps(loss)).lambda0 == 0.25
