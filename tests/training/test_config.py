import dataclasses
import re
from pathlib import Path
from typing import get_args, get_type_hints

import pytest
import yaml

from icda import plugins
from icda.errors import InputError
from icda.training import TrainConfig, load_config
from icda.training.config import NOT_SHAPING, config_from_dict, describe_changes, save_config

OTHER = {
    "task": "digits",
    "data": "cats",
    "labels": "people.txt",
    "root": "elsewhere",
    "method": "isda",
    "options": {"lambda0": 0.25},
    "model": "mlp",
    "epochs": 7,
    "batch_size": 8,
    "optimizer": "adam",
    "learning_rate": 0.5,
    "momentum": 0.0,
    "weight_decay": 0.0,
    "schedule": "cosine",
    "milestones": (3, 5),
    "decay": 0.5,
    "warmup_epochs": 1.5,
    "clip_norm": 2.0,
    "attributes": "unknown",
    "subset": 0.5,
    "selection": "validation_accuracy",
    "seed": 3,
    "data_seed": 4,
    "precision": "bf16",
    "out": "there",
    "checkpoint_every": 5,
    "tensorboard": True,
    "image_size": 16,
    "image_column": "picture",
    "text_column": "words",
    "label_column": "kind",
    "group_column": "place",
    "split_column": "part",
    "skip_unreadable": True,
    "allow_outside": True,
    "plugin": ("mine.py",),
}


def test_every_setting_survives_the_way_through_yaml(tmp_path, monkeypatch):
    for config in (TrainConfig(plugin=()), TrainConfig(**OTHER)):
        monkeypatch.setattr(plugins, "_given", dict.fromkeys(config.plugin))
        save_config(config, tmp_path / "config.yaml")
        assert load_config(tmp_path / "config.yaml") == config


def test_an_empty_file_means_the_defaults(tmp_path):
    (tmp_path / "config.yaml").write_text("# nothing yet\n")
    assert load_config(tmp_path / "config.yaml") == TrainConfig()


def test_the_hash_changes_with_every_setting_that_shapes_the_numbers_and_with_no_other():
    assert OTHER.keys() == {field.name for field in dataclasses.fields(TrainConfig)}
    plain = TrainConfig().hash()
    for name, value in OTHER.items():
        changed = dataclasses.replace(TrainConfig(), **{name: value}).hash()
        assert (changed == plain) == (name in NOT_SHAPING), name
    assert {"out", "root"} <= set(NOT_SHAPING)


def test_settings_added_later_leave_the_hashes_of_earlier_runs_as_they_were():
    """The literals were written by version 0.1.0."""
    assert TrainConfig().hash() == "f0ec8f9be700"
    assert TrainConfig(epochs=3, method="isda").hash() == "da724fd9b063"


def test_the_default_rule_follows_whether_groups_are_known_and_leaves_earlier_hashes_alone():
    assert TrainConfig().selection == "last"
    unknown = TrainConfig(attributes="unknown")
    assert unknown.selection == "validation_worst_class"
    assert unknown.hash() == TrainConfig(attributes="unknown", selection="validation_worst_class").hash()
    # What an earlier run wrote down names its rule.
    earlier = {**TrainConfig(attributes="unknown", selection="last").as_dict()}
    assert earlier["selection"] == "last"
    assert config_from_dict(earlier).hash() == TrainConfig(attributes="unknown", selection="last").hash()
    assert unknown.hash() != config_from_dict(earlier).hash()


def test_the_hash_is_the_same_after_a_round_trip_and_in_any_order_of_options(tmp_path):
    one = TrainConfig(options={"lambda0": 0.25, "beta": 0}, milestones=(3, 0.5))
    two = TrainConfig(options={"beta": 0, "lambda0": 0.25}, milestones=(3, 0.5))
    save_config(one, tmp_path / "config.yaml")
    assert one.hash() == two.hash() == load_config(tmp_path / "config.yaml").hash()


@pytest.mark.parametrize(("typo", "meant"), [("epoch", "epochs"), ("learning_rat", "learning_rate"), ("ouT", "out")])
def test_an_unknown_key_gives_the_nearest_one_and_the_file(typo, meant, tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text(f"{typo}: 3\n")
    with pytest.raises(ValueError, match=rf"{re.escape(str(path))} .*'{typo}': did you mean '{meant}'\?"):
        load_config(path)
    with pytest.raises(ValueError, match=r"'zzzzzz': Known: task, .*\.$"):
        config_from_dict({"zzzzzz": 1})


@pytest.mark.parametrize("number", ["1e-3", "1E-3", "0.001", "1.0e-3"])
def test_a_number_means_the_same_in_every_notation(number, tmp_path):
    """YAML 1.1 takes 1e-3, without a point, for text."""
    path = tmp_path / "config.yaml"
    path.write_text(f"learning_rate: {number}\nclip_norm: {number}\n")
    assert (load_config(path).learning_rate, load_config(path).clip_norm) == (0.001, 0.001)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("epochs: [1, 2]", r"epochs .*got \(1, 2\)"),
        ("epochs: 2.5", r"epochs .*got 2.5"),
        ("epochs: yes", r"epochs .*got True"),
        ("learning_rate: fast", r"learning_rate .*got 'fast'"),
        ("milestones: 0.6", r"milestones .*got 0.6"),
        ("model: 3", r"model .*got 3"),
        ("optimizer: adm", r"optimizer must be 'sgd' or 'adam', got 'adm': did you mean 'adam'\?"),
        ("schedule: cosin", r"schedule .*got 'cosin': did you mean 'cosine'\?"),
        ("epochs: 0", r"epochs .*got 0"),
        ("- epochs", "expected settings as `name: value` lines, got list"),
        ("epochs: [", "cannot be read as YAML"),
    ],
)
def test_a_value_that_makes_no_sense_is_named_with_its_file(text, message, tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match=message) as caught:
        load_config(path)
    assert str(path) in str(caught.value)


MAY_BE_LARGE = ("learning_rate", "weight_decay", "milestones", "warmup_epochs", "clip_norm", "subset")
NUMBERS = [name for name, kind in get_type_hints(TrainConfig).items() if {int, float} & {kind, *get_args(kind)}]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (name, value)
        for name in NUMBERS
        for value in (float("nan"), float("inf"), -float("inf"), -(10**30), 10**30)
        if not (name in MAY_BE_LARGE and value == 10**30)
    ],
)
def test_no_setting_takes_a_number_without_sense(name, value, tmp_path):
    given = (value,) if name == "milestones" else value
    with pytest.raises(ValueError, match=rf"{name}.* must "):
        TrainConfig(**{name: given})
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({name: [value] if name == "milestones" else value}))
    with pytest.raises(ValueError, match=rf"config\.yaml: {name}.* must "):
        load_config(tmp_path / "config.yaml")


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("clip_norm", [-1, 0, "often"]),  # -1 is gradient ascent
        ("decay", [-3]),
        ("momentum", [1.5]),
        ("milestones", [("a",), (0.5, -1)]),
        ("seed", [2**70]),
        *((name, [0, -1]) for name in ("epochs", "batch_size", "learning_rate")),
        *((name, [-1]) for name in ("weight_decay", "warmup_epochs", "checkpoint_every")),
    ],
)
def test_a_value_out_of_range_is_refused_in_a_sentence(name, values):
    for value in values:
        with pytest.raises(InputError, match=rf"{name}.* must be .*got "):
            TrainConfig(**{name: value})


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no configuration file at .*nowhere\.yaml"):
        load_config(tmp_path / "nowhere.yaml")


def test_the_folder_is_named_after_task_method_and_seed_or_after_the_data():
    assert TrainConfig(seed=3).folder() == Path("runs/digits_lt/icda/seed3")
    assert TrainConfig(data="somewhere/birds.csv", method="isda").folder() == Path("runs/birds/isda/seed0")
    for out in ("runs/{model}", "runs/{}", "runs/{task"):
        with pytest.raises(ValueError, match=r"out may hold \{task\}, \{method\} and \{seed\}"):
            TrainConfig(out=out).folder()


def test_changes_are_told_by_name_and_those_that_shape_nothing_are_left_out():
    then = TrainConfig(learning_rate=0.1, out="here").as_dict()
    assert describe_changes(then, TrainConfig(learning_rate=0.2, out="there")) == "learning_rate 0.1 -> 0.2"


def test_the_saved_file_is_plain_yaml_in_the_order_of_the_help(tmp_path):
    save_config(TrainConfig(**OTHER), tmp_path / "config.yaml")
    assert list(yaml.safe_load((tmp_path / "config.yaml").read_text())) == list(OTHER)


@pytest.mark.parametrize(
    ("given", "norm"),
    [({}, None), ({"data": "photos"}, 1.0), ({"data": "photos", "clip_norm": None}, None), ({"clip_norm": 3}, 3.0)],
)
def test_gradients_of_own_data_are_clipped_unless_said_otherwise(given, norm):
    config = TrainConfig(**given)
    assert config.largest_gradient == norm
    assert config.as_dict()["clip_norm"] == norm  # a run's files say what was done


def test_a_default_is_hashed_as_what_it_means():
    assert TrainConfig().hash() == TrainConfig(clip_norm=None).hash()
    assert TrainConfig(data="x").hash() == TrainConfig(data="x", clip_norm=1.0).hash()
    assert TrainConfig(data="x").hash() != TrainConfig(data="x", clip_norm=None).hash()
