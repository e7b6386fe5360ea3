"""Random generators made from names and numbers, so that every draw can be made again from its address alone."""

import hashlib

import torch


def generator_for(*key: int | str) -> torch.Generator:
    """A generator that depends on `key` and on nothing else.

    Nearby keys give unrelated streams: the key is hashed, because adding seeds up would make (seed 1, epoch 0) the same
    stream as (seed 0, epoch 1).
    """
    digest = hashlib.sha256(repr(key).encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)
