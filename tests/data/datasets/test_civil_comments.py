import csv
import random

import pytest
import torch

from icda.data import create_task
from icda.data.datasets.civil_comments import GROUPS, IDENTITIES, MEMBERSHIPS, civil_comments
from icda.data.sources import TextArray
from icda.data.tokens import hash_tokens
from icda.training import TrainConfig, train

WILDS_COLUMNS = ["", "id", "comment_text", "created_date", "toxicity", *IDENTITIES, "identity_any", "split"]


def comments(count=80, seed=0):
    """Comments with random shares of annotators, some exactly one half, in all three splits."""
    draw = random.Random(seed)
    rows = []
    for number in range(count):
        toxicity = draw.choice([0.0, 0.2, 0.499, 0.5, 0.8, 1.0])
        row = {name: draw.choice(["", 0.0, 0.3, 0.5, 1.0]) for name in IDENTITIES}
        word = "awful" if toxicity >= 0.5 else "kind"
        text = f'a {word} thing,\nsaid "number {number}"'
        rows.append(
            {**row, "comment_text": text, "toxicity": toxicity, "split": ("train", "train", "val", "test")[number % 4]}
        )
    return rows


def write_comments(root, rows, columns=WILDS_COLUMNS, folder="civilcomments_v1.0"):
    """The CSV of WILDS with the columns that count and some that do not."""
    path = root / folder / "all_data_with_identities.csv"
    path.parent.mkdir(parents=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, restval="0", extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    return path


def test_labels_training_groups_and_overlapping_groups_of_every_comment(tmp_path):
    rows = comments()
    write_comments(tmp_path, rows)
    task = create_task("civil_comments", root=tmp_path)
    for word, split in zip(("train", "val", "test"), (task.train, task.validation, task.test), strict=True):
        of_split = [row for row in rows if row["split"] == word]
        assert len(split) == len(of_split)
        for i, row in enumerate(of_split):
            toxic = int(row["toxicity"] >= 0.5)
            mentioned = [identity for identity in IDENTITIES if row[identity] != "" and row[identity] >= 0.5]
            assert int(split.targets[i]) == toxic
            assert int(split.groups[i]) == 2 * toxic + ("black" in mentioned)
            belongs = {MEMBERSHIPS[k] for k in split.memberships[i].nonzero().flatten().tolist()}
            assert belongs == {f"{identity}, {('not toxic', 'toxic')[toxic]}" for identity in mentioned}
    assert len(MEMBERSHIPS) == 16
    assert (task.membership_names, task.group_names, task.group_attributes) == (MEMBERSHIPS, GROUPS, (0, 1, 0, 1))
    assert task.input_kind == "text"
    assert create_task("civil_comments", tmp_path, data_seed=1).data_hash == task.data_hash


def test_texts_are_kept_whole_and_the_tokeniser_can_be_exchanged(tmp_path):
    rows = [*comments(), {**comments(1)[0], "comment_text": "word " * 500}]
    write_comments(tmp_path, rows)
    usual = create_task("civil_comments", root=tmp_path)
    assert isinstance(usual.train.source, TextArray)
    assert usual.train.source.texts == [row["comment_text"] for row in rows]
    assert usual.train.batch(torch.tensor([len(usual.train) - 1])).inputs["input_ids"].shape == (1, 300)  # as in WILDS
    assert usual.input_shape == (300,)
    ids = usual.train.batch(torch.tensor([0])).inputs["input_ids"]
    assert ids[0].tolist() == hash_tokens(rows[0]["comment_text"])
    letters = civil_comments(
        tmp_path, 0, lambda texts: [[ord(letter) for letter in text] for text in texts], max_length=5
    )
    assert letters.train.batch(torch.tensor([0])).inputs["input_ids"].tolist() == [
        [ord(c) for c in rows[0]["comment_text"][:5]]
    ]
    assert letters.input_shape == (5,)
    assert letters.data_hash != usual.data_hash


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"toxicity": ""}, "toxicity must hold a number in each row"),
        ({"black": "yes"}, "black must hold a number in each row"),
        ({"split": "dev"}, "split holds 'dev', expected train, val, test"),
        ({}, "lacks male, female, LGBTQ, christian"),  # the columns of identities
    ],
)
def test_values_that_cannot_be_are_refused(change, message, tmp_path):
    rows = comments()
    write_comments(
        tmp_path, [{**rows[0], **change}, *rows[1:]], WILDS_COLUMNS if change else ["comment_text", "toxicity", "split"]
    )
    with pytest.raises(ValueError, match=message):
        create_task("civil_comments", root=tmp_path)


def test_training_judges_the_sixteen_overlapping_groups(tmp_path):
    write_comments(tmp_path, comments(160))
    settings = {
        "batch_size": 16,
        "learning_rate": 0.5,
        "selection": "validation_worst_group",
        "out": str(tmp_path / "run"),
    }
    metrics = train(TrainConfig(task="civil_comments", root=str(tmp_path), epochs=2, **settings))["metrics"]
    assert tuple(metrics["per_group_accuracy"]) == MEMBERSHIPS
    assert metrics["worst_group_accuracy"] == min(metrics["per_group_accuracy"].values())
    assert metrics["train_weighted_accuracy"] is not None
