from pathlib import Path

import torch

from icda.data import Split, Task
from icda.data.sources import FeatureArray


def two_moons(root: Path | None, seed: int) -> Task:
    """Two half circles in the plane, 540 samples and 60."""
    from sklearn.datasets import make_moons  # a slow import, only here

    points, labels = make_moons((540, 60), noise=0.2, random_state=seed)
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(points), generator=generator)
    source = FeatureArray(points[order].astype("float32"))
    targets = torch.from_numpy(labels).long()[order]

    def split(first: int, last: int) -> Split:
        return Split(source, torch.arange(first, last), targets[first:last])

    return Task(
        name="two_moons",
        num_classes=2,
        train=split(0, 400),
        validation=split(400, 500),
        test=split(500, 600),
        input_kind="features",
        input_shape=(2,),
        default_model="mlp",
    )
