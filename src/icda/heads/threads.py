"""How many threads a fit is worth: small products are slower on two threads than on one.

Handing hundreds of short operations to several threads costs more than it saves, and much more where another process has
the other core. The same goes for L-BFGS: the threads of scipy's BLAS go on turning after each of its short sums.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock

import torch
from threadpoolctl import ThreadpoolController

# Products of features and weights in one evaluation; below, one thread is faster (docs/evidence/speed.md).
SMALL = 2 * 10**8


@contextmanager
def threads_for(products: int) -> Iterator[None]:
    """One thread within, if an evaluation multiplies fewer than `SMALL` numbers; else as many as torch has been given.

    >>> before = torch.get_num_threads()
    >>> with threads_for(1000):
    ...     print(torch.get_num_threads())
    1
    >>> torch.get_num_threads() == before
    True
    """
    before = torch.get_num_threads()
    if products >= SMALL or before == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def quiet_blas() -> Iterator[None]:
    """One thread for the BLAS of scipy and numpy within; torch has its own, which keeps its threads.

    BLAS has one number of threads for the whole process. So of fits in several threads only the first one lowers it and
    gives it back: a second one would meet the lowered number, and leave it behind for good.
    """
    if not _LOWERED.acquire(blocking=False):
        yield
        return
    try:
        with _controller().limit(limits=1, user_api="blas"):
            yield
    finally:
        _LOWERED.release()


_LOWERED = Lock()


@cache
def _controller() -> ThreadpoolController:
    """Looked for once: it takes milliseconds, and fits are many."""
    return ThreadpoolController().select(internal_api="openblas")
