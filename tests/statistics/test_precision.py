from __future__ import annotations

from typing import ClassVar

import pytest
import torch

from icda.statistics.class_statistics import KeepsPrecision


class Counter(KeepsPrecision):
    least_precision: ClassVar = {"mean": torch.float32}

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.tensor([70_001.0], dtype=torch.float64))
        self.register_buffer("mean", torch.tensor([1.1]))
        self.register_buffer("absent", None)
        self.register_buffer("flags", torch.tensor([True]))


@pytest.mark.parametrize("cast", ["half", "bfloat16", "float"])
def test_a_cast_down_leaves_every_digit(cast: str) -> None:
    counter = getattr(Counter(), cast)()
    assert counter.count.dtype == torch.float64
    assert counter.count.item() == 70_001
    assert counter.mean.dtype == torch.float32
    assert counter.mean.item() == torch.tensor(1.1).item()
    assert counter.flags.dtype == torch.bool


def test_a_module_on_the_meta_device_can_be_given_memory() -> None:
    counter = Counter().to("meta")
    assert counter.count.is_meta
    assert counter.to_empty(device="cpu").half().count.dtype == torch.float64
