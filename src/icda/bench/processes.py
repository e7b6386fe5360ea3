"""Several processes beside this one."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager

import torch


@contextmanager
def process_pool(jobs: int) -> Iterator[ProcessPoolExecutor]:
    """Processes of one torch thread each: small networks gain nothing from more. Work not begun at the end is dropped."""
    # spawn, not fork: a fork of a process whose torch has started its threads can hang.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        try:
            yield pool
        finally:
            pool.shutdown(cancel_futures=True)
