"""Any Hugging Face classifier behind the face that losses want: features, head, logits."""

import torch
from transformers import DistilBertConfig, DistilBertForSequenceClassification

import icda
from icda.models import from_huggingface

torch.manual_seed(0)
config = DistilBertConfig(dim=32, hidden_dim=64, n_layers=2, n_heads=2, vocab_size=200, num_labels=3)
model = from_huggingface(DistilBertForSequenceClassification(config))  # yours: .from_pretrained("path")

loss_fn = icda.ICDALoss(model.num_classes, model.feature_dim, class_counts=torch.tensor([80, 15, 5]))
inputs = {"input_ids": torch.randint(1, 200, (16, 12)), "attention_mask": torch.ones(16, 12, dtype=torch.long)}
targets = torch.arange(16) % 3

output = model(inputs)
loss = loss_fn(output.features, targets, model.head, progress=0.5, logits=output.logits)
loss.backward()
print(f"loss {loss.item():.3f}, features {tuple(output.features.shape)}")
