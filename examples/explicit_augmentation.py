"""What the ICDA loss averages over: counterfactual features drawn one by one, and the loss they approach."""

import torch
from torch.nn import functional as F

import icda

generator = torch.Generator().manual_seed(0)
features = torch.randn(200, 8, generator=generator)
targets = torch.randint(3, (200,), generator=generator)
head = torch.nn.Linear(8, 3)

statistics = icda.ClassStatistics(num_classes=3, feature_dim=8)
statistics.update(features, targets)
strength = icda.direct_strength(features, targets, head.weight)
print("strongest tie of the first sample: class", int(strength.per_class[0].argmax()))

for count in (100, 10_000):
    drawn = icda.augment(features, targets, statistics, strength, lam=0.5, num_samples=count, generator=generator)
    loss = F.cross_entropy(head(drawn.features), drawn.targets)
    print(f"{count:>6} augmented features: cross entropy {loss.item():.4f}")
