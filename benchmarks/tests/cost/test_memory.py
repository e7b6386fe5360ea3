import torch

from icda_bench.cost.measures import peak_bytes

MIB = 2**20


def mebibytes(count):
    return torch.empty(count * MIB, dtype=torch.uint8)


def test_the_peak_is_what_is_held_at_once_not_what_is_asked_for_in_all():
    def step() -> None:
        kept = mebibytes(1)
        gone = mebibytes(3)
        del gone
        also_gone = mebibytes(2)
        del also_gone, kept

    assert peak_bytes(step) == 4 * MIB


def test_what_stood_before_counts_neither_when_used_nor_when_released():
    """Gradients are such memory: a step sets them to None and makes them again, with or without the loss in question."""
    held = [mebibytes(8)]

    def use() -> None:
        held[0].zero_()

    def make_again() -> None:
        held.clear()
        held.append(mebibytes(8))

    assert peak_bytes(use) == 0
    assert peak_bytes(make_again) == 8 * MIB


def test_what_only_the_first_call_takes_does_not_count():
    cache: list[torch.Tensor] = []

    def step() -> None:
        if not cache:
            cache.append(mebibytes(16))
        mebibytes(1)

    assert peak_bytes(step) == MIB
