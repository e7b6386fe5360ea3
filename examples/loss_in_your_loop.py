"""Your own training loop, two lines changed: make the loss, call it with features and head."""

import torch
from sklearn.datasets import load_digits
from torch import nn

import icda

torch.manual_seed(0)
digits = load_digits()
inputs = torch.tensor(digits.data, dtype=torch.float32) / 16
targets = torch.tensor(digits.target)
encoder, head = nn.Sequential(nn.Linear(64, 64), nn.ReLU()), nn.Linear(64, 10)

loss_fn = icda.ICDALoss(num_classes=10, feature_dim=64, class_counts=torch.bincount(targets))  # changed
optimizer = torch.optim.SGD([*encoder.parameters(), *head.parameters()], lr=0.1, momentum=0.9)

steps = 60
for step in range(steps):
    rows = torch.randint(len(targets), (128,))
    features = encoder(inputs[rows])
    loss = loss_fn(features, targets[rows], head, progress=step / steps)  # changed
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

accuracy = (head(encoder(inputs)).argmax(1) == targets).float().mean().item()  # inference: the plain classifier
print(f"accuracy on the training digits: {accuracy:.3f}")
