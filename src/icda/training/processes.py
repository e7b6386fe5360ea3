"""Several processes beside this one."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

import torch

P = ParamSpec("P")
T = TypeVar("T")


@contextmanager
def process_pool(jobs: int) -> Iterator[ProcessPoolExecutor]:
    """Processes of one torch thread each: small networks gain nothing from more. Work not begun at the end is dropped.

    The processes end with this one, however it ends, and at Ctrl-C without a word of their own.
    """
    # spawn, not fork: a fork of a process whose torch has started its threads can hang.
    context = multiprocessing.get_context("spawn")
    others = set(multiprocessing.active_children())
    with _Pool(jobs, mp_context=context, initializer=_begin) as pool:
        try:
            yield pool
        except (KeyboardInterrupt, GeneratorExit):  # nobody waits for what is being worked on
            for process in set(multiprocessing.active_children()) - others:
                process.terminate()
            raise
        finally:
            pool.shutdown(cancel_futures=True)


class _Pool(ProcessPoolExecutor):
    """Its processes never see Ctrl-C, not even while they start: they inherit that the signal is blocked."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            return super().submit(fn, *args, **kwargs)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)  # one that came meanwhile arrives now


def _begin() -> None:
    torch.set_num_threads(1)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A process whose parent was killed would finish its cell and then wait for ever for the next."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
