"""Meta-ICDA in Lightning and in Hugging Face's Trainer: its loss is what their steps return."""

import itertools
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
import transformers
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import icda
from icda.models import from_huggingface, from_torch

TARGETS = torch.arange(120) % 3


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.fc = nn.Sequential(nn.Linear(8, 16), nn.ReLU()), nn.Linear(16, 3)

    def forward(self, inputs):
        return self.fc(self.body(inputs))


class Module(pl.LightningModule):
    def __init__(self, data):
        super().__init__()
        self.network, self.criterion = from_torch(Net()), icda.ICDALoss(3, 16, [40, 40, 40])
        self.clean = itertools.cycle(DataLoader(data, batch_size=12))

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.network.parameters(), lr=0.1)
        self.meta = icda.MetaICDA(self.network, self.criterion, optimizer=optimizer)
        return optimizer

    def training_step(self, batch, index):
        progress = self.trainer.global_step / self.trainer.estimated_stepping_batches
        return self.meta.loss(batch, next(self.clean), progress)


@pytest.mark.parametrize("options", [{}, {"accumulate_grad_batches": 2, "gradient_clip_val": 1.0}])
def test_a_lightning_module_returns_its_loss(options):
    torch.manual_seed(0)
    inputs = torch.randn(120, 8)
    inputs[:, :3] += 3 * nn.functional.one_hot(TARGETS, 3)
    data = TensorDataset(inputs, TARGETS)
    module = Module(data)
    quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    trainer = pl.Trainer(max_epochs=4, accelerator="cpu", **quiet, **options)
    trainer.fit(module, DataLoader(data, batch_size=20, shuffle=True))
    assert float((module.network(inputs).logits.argmax(1) == TARGETS).float().mean()) > 0.9
    assert float(module.criterion.statistics.count.sum()) == 480
    assert all(torch.isfinite(value["exp_avg"]).all() for value in module.meta.method.optimizer.state.values())


class MetaTrainer(transformers.Trainer):
    meta: icda.MetaICDA | None = None
    clean: Any

    def compute_loss(self, model, inputs, return_outputs=False, **_):
        labels = inputs.pop("labels")
        if self.meta is None:
            loss = icda.ICDALoss(3, model.feature_dim, [20, 20, 20])
            self.meta = icda.MetaICDA(model, loss, optimizer=self.optimizer)
        return self.meta.loss((inputs, labels), self.clean, self.state.global_step / self.state.max_steps)


def test_a_trainer_of_transformers_returns_its_loss(tmp_path):
    torch.manual_seed(0)
    config = transformers.DistilBertConfig(dim=16, hidden_dim=32, n_layers=1, n_heads=2, vocab_size=60, num_labels=3)
    model = from_huggingface(transformers.DistilBertForSequenceClassification(config))
    tokens, labels = torch.randint(1, 19, (60, 6)) + 20 * TARGETS[:60, None], TARGETS[:60]
    samples = [{"input_ids": row, "labels": int(label)} for row, label in zip(tokens, labels, strict=True)]
    quiet = {
        "use_cpu": True,
        "save_strategy": "no",
        "disable_tqdm": True,
        "report_to": [],
        "remove_unused_columns": False,
    }
    plan = {"max_steps": 30, "learning_rate": 0.01, "gradient_accumulation_steps": 2}
    arguments = transformers.TrainingArguments(str(tmp_path), **plan, **quiet)
    trainer = MetaTrainer(model, arguments, train_dataset=samples)
    trainer.clean = {"input_ids": tokens[:15]}, labels[:15]
    trainer.train()
    assert float((model.eval()({"input_ids": tokens}).logits.argmax(1) == labels).float().mean()) > 0.9
