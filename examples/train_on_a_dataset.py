"""icda.train on a torch Dataset: your network is trained itself, methods and selection rules have names."""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import Dataset, Subset

import icda


class Digits(Dataset):
    """Any torch Dataset will do. Items are drawn when they are needed; `targets` spares drawing them to count classes."""

    def __init__(self):
        digits = load_digits()
        self.images = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16
        self.targets = digits.target.tolist()

    def __len__(self):
        return len(self.targets)

    def __getitem__(self, index):
        return self.images[index], self.targets[index]


digits = Digits()
rows = [torch.tensor([i for i, y in enumerate(digits.targets) if y == c]) for c in range(10)]
train = Subset(
    digits, torch.cat([row[: int(100 * 50 ** (-c / 9))] for c, row in enumerate(rows)])
)  # 100 zeros, 2 nines
validation = Subset(digits, torch.cat([row[100:130] for row in rows]))
test = Subset(digits, torch.cat([row[130:] for row in rows]))

for method in ("cross_entropy", "icda"):
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(576, 64), nn.ReLU(), nn.Linear(64, 10)
    )
    result = icda.train(
        model=network,
        train=train,
        validation=validation,
        test=test,
        method=method,
        epochs=15,
        batch_size=64,
        learning_rate=0.05,
        selection="validation_worst_class",
    )
    assert result.network is network  # trained, nothing on disk
    print(
        f"{method:>13}: accuracy {result.metric('accuracy'):.3f}, worst class {result.metric('worst_class_accuracy'):.3f}"
    )
