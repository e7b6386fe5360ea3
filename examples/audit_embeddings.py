"""Look for shortcuts and wrong labels in embeddings before any group label exists."""

import numpy as np
from rich import print

from icda import audit

# Birds: a weak signal of the bird itself and a strong one of the place behind it, which agree in 19 cases of 20.
generator = np.random.default_rng(0)
bird = generator.integers(0, 2, 2000)
place = np.where(generator.random(2000) < 0.05, 1 - bird, bird)
features = generator.normal(size=(2000, 32))
features[:, :8] += 0.6 * (2 * bird[:, None] - 1)
features[:, 8:16] += 1.2 * (2 * place[:, None] - 1)

found = audit(features, bird, class_names=["landbird", "waterbird"])
print(found)

first = found.tie_ranking()[: (place != bird).sum()]
share = (place != bird)[first].mean()
print(f"{share:.0%} of the {len(first)} most tied samples stand before the other bird's place.")
found.to_html("audit.html")
