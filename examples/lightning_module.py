"""A LightningModule of your own: the loss asks for the targets only, a callback drives it and logs the worst class."""

import lightning.pytorch as pl
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

import icda
from icda.integrations import RobustCallback, TappedLoss


class Digits(pl.LightningModule):
    def __init__(self, class_counts: torch.Tensor) -> None:
        super().__init__()
        maps = (nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
        self.network = nn.Sequential(*maps, nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 10))
        self.criterion = TappedLoss(self.network, icda.ICDALoss(10, 64, class_counts))  # changed

    def training_step(self, batch, index):
        inputs, targets = batch
        self.network(inputs)
        return self.criterion(targets)  # changed

    def validation_step(self, batch, index):
        inputs, targets = batch
        self.network(inputs)
        self.log("val_loss", self.criterion(targets))

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=3e-3)


pl.seed_everything(0, verbose=False)
digits = load_digits()
targets = torch.tensor(digits.target)
data = TensorDataset(torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16, targets)
train, validation = random_split(data, [1500, 297])

module = Digits(torch.bincount(targets[train.indices]))
trainer = pl.Trainer(
    max_epochs=4,
    callbacks=[RobustCallback()],  # changed
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
)
trainer.fit(module, DataLoader(train, 64, shuffle=True), DataLoader(validation, 297))
print({name: round(value.item(), 3) for name, value in trainer.callback_metrics.items()})
