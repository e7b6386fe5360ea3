"""Meta-ICDA in your own loop: ten clean images a class decide how strongly each training image is augmented."""

import torch
from sklearn.datasets import load_digits

import icda
from icda.models import create_model

torch.manual_seed(0)
digits = load_digits()
inputs, targets = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
rows = [(targets == c).nonzero().flatten() for c in range(10)]
clean = torch.cat([row[:10] for row in rows])  # the metadata
train = torch.cat([row[10 : 10 + int(100 * 50 ** (-c / 9))] for c, row in enumerate(rows)])  # 100 zeros, 2 nines
test = torch.cat([row[110:] for row in rows])

model = create_model("mlp", num_classes=10, input_shape=(64,))  # yours: icda.models.from_torch(network)
loss = icda.ICDALoss(10, model.feature_dim, class_counts=torch.bincount(targets[train]))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
meta = icda.MetaICDA(model, loss, optimizer=optimizer)

epochs = 30
for epoch in range(epochs):
    for batch in train[torch.randperm(len(train))].split(64):
        meta.step((inputs[batch], targets[batch]), (inputs[clean], targets[clean]), progress=epoch / epochs)
    figures = meta.end_epoch()  # the characteristics compare a sample with its class in the epoch before

accuracy = (model.eval()(inputs[test]).logits.argmax(1) == targets[test]).float().mean().item()
print(f"accuracy on balanced digits: {accuracy:.3f}")
print("mean strength by class:", " ".join(f"{strength:.2f}" for strength in figures["strength_by_class"]))
