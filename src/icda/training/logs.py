"""Figures of every epoch, as JSON lines and, if asked for, for TensorBoard."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from icda.extras import require
from icda.results.epoch import EpochRecord
from icda.results.files import LOG, TENSORBOARD, write_atomically


class EpochLog:
    """Writes `log.jsonl`, one line per epoch; a resumed run starts from the epochs its checkpoint remembers."""

    def __init__(self, folder: Path, history: Sequence[EpochRecord], tensorboard: bool = False) -> None:
        self.path = folder / LOG
        write_atomically(self.path, "".join(_line(record) for record in history).encode())
        self._writer: Any = None
        if tensorboard:
            require("tensorboard", "tensorboard", "TensorBoard logs")
            from torch.utils.tensorboard import SummaryWriter

            self._writer = SummaryWriter(str(folder / TENSORBOARD), purge_step=len(history))

    def write(self, record: EpochRecord) -> None:
        # Not through a link that somebody laid there since.
        handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
        with os.fdopen(handle, "a", encoding="utf-8") as file:
            file.write(_line(record))
        if self._writer is not None:
            for name, value in record.items():
                if isinstance(value, int | float) and name != "epoch":
                    self._writer.add_scalar(name, value, record.epoch)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


def _line(record: EpochRecord) -> str:
    return json.dumps(record.as_dict()) + "\n"
