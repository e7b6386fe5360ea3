"""Figures of every epoch, as JSON lines and, if wanted, for TensorBoard."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from icda.extras import require


class EpochLog:
    """Writes `log.jsonl`, one line an epoch; a resumed run starts from the epochs its checkpoint remembers."""

    def __init__(self, folder: Path, history: list[dict[str, Any]], tensorboard: bool = False) -> None:
        self.path = folder / "log.jsonl"
        self.path.write_text("".join(json.dumps(record) + "\n" for record in history))
        self._writer: Any = None
        if tensorboard:
            require("tensorboard", "tensorboard", "TensorBoard logs")
            from torch.utils.tensorboard import SummaryWriter

            self._writer = SummaryWriter(str(folder / "tensorboard"), purge_step=len(history))

    def write(self, record: dict[str, Any]) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps(record) + "\n")
        if self._writer is not None:
            for name, value in record.items():
                if isinstance(value, int | float) and name != "epoch":
                    self._writer.add_scalar(name, value, record["epoch"])

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
