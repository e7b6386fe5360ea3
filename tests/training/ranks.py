"""Trainings on several ranks: `torchrun --nproc-per-node 2 tests/training/ranks.py FOLDER`.

Each rank writes FOLDER/rank<RANK>.json: the results it was given, and the names of the files it wrote.
"""

import json
import os
import sys
from pathlib import Path

from icda.cli.main import main
from icda.results import run_result
from icda.training import TrainConfig, checkpoint, run, train

sys.path.append(str(Path(__file__).parents[1]))
from support import train_until

BASE = {"model": "mlp", "epochs": 3, "batch_size": 64}
RUNS = {
    "icda": {**BASE, "method": "icda", "selection": "validation_accuracy"},
    "risda": {**BASE, "method": "risda", "clip_norm": 1.0},
    "risda_two_stage": {**BASE, "method": "risda_two_stage"},
    "resumed": {**BASE, "method": "icda", "checkpoint_every": 2},
}


def record_writes(into):
    write = checkpoint.write_atomically

    def recorded(path, content):
        into.append(path.name)
        write(path, content)

    checkpoint.write_atomically = run.write_atomically = run_result.write_atomically = recorded


if __name__ == "__main__":
    folder, written = Path(sys.argv[1]), []
    record_writes(written)
    results = {}
    for name, settings in RUNS.items():
        config = TrainConfig(**settings, out=str(folder / name))
        if name == "resumed":
            train_until(config, 8)
        results[name] = train(config, resume=True)
    words = ["train", "--model", "mlp", "--epochs", "1", "--out", str(folder / "command")]
    results["command"] = {"code": main(words)}
    (folder / f"rank{os.environ['RANK']}.json").write_text(json.dumps({"results": results, "written": written}))
