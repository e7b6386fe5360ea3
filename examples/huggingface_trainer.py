"""Hugging Face's Trainer with a loss of icda: another class name, one argument."""

import tempfile

import torch
from transformers import DistilBertConfig, DistilBertForSequenceClassification, TrainingArguments

from icda.integrations import RobustTrainer

torch.manual_seed(0)
config = DistilBertConfig(dim=32, hidden_dim=64, n_layers=2, n_heads=2, vocab_size=200, initializer_range=0.2)
model = DistilBertForSequenceClassification(config)  # yours: .from_pretrained("path")

labels = torch.tensor([0] * 100 + [1] * 20)  # a rare class: the counts are read from the training set
samples = [{"input_ids": torch.randint(60 * label, 60 * label + 80, (12,)), "labels": label} for label in labels]

with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        folder, max_steps=40, learning_rate=3e-3, per_device_train_batch_size=16, use_cpu=True, disable_tqdm=True
    )
    trainer = RobustTrainer(model, arguments, train_dataset=samples, loss="icda")
    trainer.train()
    predictions = torch.tensor(trainer.predict(samples).predictions).argmax(1)

worst = min((predictions[labels == c] == c).float().mean().item() for c in range(2))
print(f"class counts {trainer.criterion.class_counts.tolist()}, accuracy of the worst class: {worst:.3f}")
