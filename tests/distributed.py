"""One rank of tests that need several: `python -P tests/distributed.py RANK`, and a line of JSON on stdin for each test.

Calls FUNCTION(rank) of the test file FILE inside a gloo process group and saves what it returns as FOLDER/rank<RANK>.pt;
the answer is a line with the exit code, what was printed lies in FOLDER/rank<RANK>.txt. Each call is a process of its
own, forked from this one: importing torch and icda takes longer than what it does. Every rank has its own such parent,
so that ranks differ in all that processes differ in (hash seeds, say). The fixture `run_on_ranks` in conftest.py asks.
"""

import datetime
import importlib.util
import json
import os
import signal
import sys
import traceback
from pathlib import Path

import numpy as np
import pytest  # noqa: F401 - what the forks would import otherwise, here and below
import sklearn.datasets  # noqa: F401
import torch
import torch._dynamo
import torch.distributed as dist

import icda.training  # noqa: F401
from icda.methods import METHODS

sys.path.append(str(Path(__file__).parent))  # support.py
TIMEOUT = 120  # seconds until a rank that waits for another is ended


def call(file, function, rank, world_size, folder):
    spec = importlib.util.spec_from_file_location("worker", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder / 'rendezvous'}",
        rank=rank,
        world_size=world_size,
        timeout=datetime.timedelta(seconds=60),
    )
    try:
        dist.barrier()  # a rank that ends at once would close connections that another still makes
        torch.save(getattr(module, function)(rank), folder / f"rank{rank}.pt")
    finally:
        dist.destroy_process_group()


def call_in_fork(rank, environment, folder, **request):
    """The exit code of a child that makes the call; minus the signal's number if one ended it."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = 1
    try:
        signal.alarm(TIMEOUT)
        for stream, mode in ((0, os.O_RDONLY), (1, os.O_WRONLY), (2, os.O_WRONLY)):
            name = f"{folder}/rank{rank}.txt" if stream else os.devnull
            os.dup2(os.open(name, mode | (os.O_CREAT | os.O_APPEND if stream else 0)), stream)
        os.environ.clear()
        os.environ.update(environment)
        np.random.seed()  # a seed by chance, as in a process that was not forked; Python's generator does so itself
        torch.seed()
        call(rank=rank, folder=Path(folder), **request)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    torch.set_num_threads(1)
    list(METHODS)  # the first look-up imports them all
    for line in sys.stdin:
        print(call_in_fork(int(sys.argv[1]), **json.loads(line)), flush=True)
