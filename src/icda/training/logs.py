"""Figures of every epoch, as JSON lines and, if asked for, for TensorBoard."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from icda.extras import require
from icda.results.epoch import EpochRecord
from icda.results.files import LOG, TENSORBOARD


class EpochLog:
    """Writes `log.jsonl`, one line per epoch; a resumed run starts from the epochs its checkpoint remembers."""

    def __init__(self, folder: Path, history: Sequence[EpochRecord], tensorboard: bool = False) -> None:
        self.path = folder / LOG
        self.path.write_text("".join(_line(record) for record in history))
        self._writer: Any = None
        if tensorboard:
            require("tensorboard", "tensorboard", "TensorBoard logs")
            from torch.utils.tensorboard import SummaryWriter

            self._writer = SummaryWriter(str(folder / TENSORBOARD), purge_step=len(history))

    def write(self, record: EpochRecord) -> None:
        with self.path.open("a") as file:
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
