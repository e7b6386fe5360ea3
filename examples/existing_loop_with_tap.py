"""A model that returns only logits, in the loop you have: two lines changed, nothing about the model."""

import torch
from sklearn.datasets import load_digits
from torch import nn

import icda
from icda.integrations import FeatureTap

torch.manual_seed(0)
digits = load_digits()
inputs = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16
targets = torch.tensor(digits.target)
model = nn.Sequential(
    *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
    *(nn.Flatten(), nn.Linear(256, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 10)),
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
loss_fn = icda.ICDALoss(num_classes=10, feature_dim=64, class_counts=torch.bincount(targets))
tap = FeatureTap(model)  # changed

steps = 80
for step in range(steps):
    rows = torch.randint(len(targets), (128,))
    logits = model(inputs[rows])
    loss = loss_fn(tap.features, targets[rows], tap.head, step / steps, tap.logits)  # changed
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

tap.remove()
accuracy = (model.eval()(inputs).argmax(1) == targets).float().mean().item()
print(f"head {tap.head}, accuracy on the training digits: {accuracy:.3f}")
