"""A CSV of texts with a label, a group and a split column: what `icda train --data reviews.csv` does."""

import csv
import random
import tempfile
from pathlib import Path

from icda.training import TrainConfig, train

random.seed(0)
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "reviews.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label", "attribute", "split"])
        for number in range(600):
            label = random.choice(["good", "bad"])
            # In training, long reviews are good nine times out of ten; at test time length says nothing.
            split = ("train", "validation", "test")[0 if number < 400 else 1 + number % 2]
            agrees = random.random() < (0.9 if split == "train" else 0.5)
            is_long = (label == "good") == agrees
            opinion = random.choice({"good": ["lovely", "great"], "bad": ["awful", "dull"]}[label])
            text = f"an {opinion} film" + " with much to say about it" * is_long
            writer.writerow([text, label, "long" if is_long else "short", split])
    config = TrainConfig(data=str(path), method="icda", epochs=5, learning_rate=0.5, out=f"{folder}/run")
    result = train(config)
    for group, accuracy in result["metrics"]["per_group_accuracy"].items():
        print(f"{group}: {accuracy:.3f}")
