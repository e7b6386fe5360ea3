from __future__ import annotations

import pytest
import torch
from torch import nn

from icda.statistics.precision import keep_precision


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.tensor([70_001.0], dtype=torch.float64))
        self.register_buffer("free", torch.tensor([1.0]))
        self.register_buffer("absent", None)

    def _apply(self, fn, recurse: bool = True) -> Counter:
        floors = {"count": torch.float64, "absent": torch.float32}
        keep_precision(self, lambda: super(Counter, self)._apply(fn, recurse), floors)
        return self


@pytest.mark.parametrize("cast", ["half", "bfloat16", "float"])
def test_a_cast_down_leaves_every_digit(cast: str) -> None:
    counter = getattr(Counter(), cast)()
    assert counter.count.dtype == torch.float64
    assert counter.count.item() == 70_001


def test_buffers_not_named_are_cast_as_usual() -> None:
    assert Counter().half().free.dtype == torch.float16


def test_a_module_on_the_meta_device_can_be_given_memory() -> None:
    counter = Counter().to("meta")
    assert counter.count.is_meta
    assert counter.to_empty(device="cpu").half().count.dtype == torch.float64
