"""One rank of a test that needs several: `python -P tests/distributed.py FILE FUNCTION RANK WORLD_SIZE FOLDER`.

Calls FUNCTION(rank) of the test file FILE inside a gloo process group and saves what it returns as FOLDER/rank<RANK>.pt.
The fixture `run_on_ranks` in conftest.py starts one such process a rank.
"""

from __future__ import annotations

import datetime
import importlib.util
import sys
from pathlib import Path

import torch
import torch.distributed as dist


def main(file: str, function: str, rank: int, world_size: int, folder: Path) -> None:
    torch.set_num_threads(1)
    spec = importlib.util.spec_from_file_location("worker", file)
    assert spec is not None
    assert spec.loader is not None
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
        torch.save(getattr(module, function)(rank), folder / f"rank{rank}.pt")
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), Path(sys.argv[5]))
