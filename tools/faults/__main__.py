"""Faults on purpose, and what is left after them: `python tools/faults --out runs/faults --table FILE.csv`.

Trains the smallest task again and again, disturbed in one way after the other: killed, on a full disk, by two processes in
one folder, with damaged files. After each disturbance the run is resumed, and what it leaves is compared bit for bit with
what an undisturbed run left. What fit, predict, embed, audit and export write is disturbed alike. Writes one row per kind
of fault; the exit code is 1 if anything was lost, mixed or obscure.
"""

from __future__ import annotations

import argparse
import csv
import shutil
import sys
from collections.abc import Callable
from dataclasses import asdict, fields
from pathlib import Path

from damage import damaged_files
from disk import full_disk
from kills import killed_runs
from outcome import Outcome
from outputs import killed_outputs, outputs_on_a_full_disk, two_outputs
from writers import killed_torchrun, two_writers

from training import make_whole_runs


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=Path("runs/faults"), help="folder for all runs; emptied first")
    parser.add_argument("--table", type=Path, help="CSV file to write the outcome to")
    parser.add_argument("--kills", type=int, default=120)
    parser.add_argument("--disks", type=int, default=40)
    parser.add_argument("--pairs", type=int, default=24)
    parser.add_argument("--torchruns", type=int, default=3)
    parser.add_argument("--damages", type=int, default=8, help="of each kind")
    parser.add_argument("--output-kills", type=int, default=400, help="at most; else before every operation on files")
    parser.add_argument("--output-disks", type=int, default=48)
    parser.add_argument("--output-pairs", type=int, default=42)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    shutil.rmtree(options.out, ignore_errors=True)
    options.out.mkdir(parents=True)
    if options.kills or options.disks or options.pairs or options.torchruns or options.damages:
        make_whole_runs(options.out)
    faults: list[tuple[Callable[[Path, int, int], Outcome], int]] = [
        (killed_runs, options.kills),
        (full_disk, options.disks),
        (two_writers, options.pairs),
        (killed_torchrun, options.torchruns),
        (damaged_files, options.damages),
        (killed_outputs, options.output_kills),
        (outputs_on_a_full_disk, options.output_disks),
        (two_outputs, options.output_pairs),
    ]
    outcomes = []
    for fault, number in faults:
        if number:
            outcomes.append(fault(options.out, number, options.seed))
            print(outcomes[-1].sentence(), flush=True)
    if options.table is not None:
        write_table(options.table, outcomes)
    return int(not all(outcome.is_good() for outcome in outcomes))


def write_table(path: Path, outcomes: list[Outcome]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, [entry.name for entry in fields(Outcome)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(outcome) for outcome in outcomes)


if __name__ == "__main__":
    sys.exit(main())
