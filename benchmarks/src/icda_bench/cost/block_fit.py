"""Fits to blocks of rows, here and on Ray, beside a cost model."""

import os
import pickle
import signal
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import tyro

from icda.auditing.inputs import DECAY
from icda.data.embedding.samples import Columns
from icda.data.own.blocks import Block, find_blocks
from icda.engines import Engine, Here, OnRay
from icda.heads.block_problem import BlockProblem, answer
from icda.heads.blocks import BlockRows, sum_chunks, summarise
from icda.heads.objective import to_rows
from icda.heads.problem import AUGMENTED, LossName, LossSettings
from icda.heads.solver import LinearHead, fit_head
from icda_bench.cost.child import peak_mib
from icda_bench.cost.large_fit import make_biased_files
from icda_bench.rows import Row, publish


@dataclass
class Arguments:
    """Make float16 features on disk, fit them in one process and on a Ray of this machine, and predict the time."""

    folder: tyro.conf.Positional[Path]
    """Folder for features.npy and labels.npy; they are made if they are not there."""
    out: tyro.conf.Positional[Path]
    """CSV to write."""
    rows: int = 5_000_000
    features: int = 384
    classes: int = 10
    jobs: int = 2
    """Workers of the Ray."""
    losses: tuple[LossName, ...] = ("la", "icda")
    here: bool = True
    """Fit in one process too, to compare heads and times."""
    kill_after: float = 0.0
    """Seconds into the fit on Ray after which one of its workers is killed; 0 kills none."""


@dataclass(frozen=True)
class Terms:
    """What the cost model is made of: processor seconds per row of a pass, and bytes that travel per block."""

    statistics_seconds: float
    pass_seconds: float
    summary_bytes: int
    answer_bytes: int

    def seconds(self, rows: int, passes: int, workers: int) -> float:
        """Of a fit with `passes` over the rows, of which the first reads labels only and the second gathers statistics."""
        return rows * (self.statistics_seconds + (passes - 2) * self.pass_seconds) / workers


def measure_terms(blocks: Sequence[Block], loss: LossName) -> Terms:
    """On the second block, after the first has warmed everything up."""
    settings = LossSettings(loss)
    rows = BlockRows.gather(blocks[:2], full=loss in AUGMENTED)
    classes, place = rows.reading.classes, rows.places[-1]
    begun = time.process_time()
    summary = summarise(place.block, classes, loss in AUGMENTED, 1000)
    gathered = (time.process_time() - begun) / len(place)
    width = rows.shape[1]
    weight = torch.randn(len(classes), width, generator=torch.Generator().manual_seed(0)) / width
    head = LinearHead(weight, torch.zeros(len(classes)))
    question = BlockProblem(rows, 1.0).objective(settings).question
    parameters = to_rows(head.parameters[None])
    question = replace(question, weight=parameters[:, :-1].contiguous(), bias=parameters[:, -1])
    if loss in AUGMENTED:
        table = torch.zeros((len(classes),) * (3 if loss == "icda" else 2))
        angles = weight if loss == "icda" else None
        question = replace(question, weight=weight, bias=head.bias, table=table, angles=angles)
    sum_chunks(rows.places[0], rows.reading, answer, question)
    begun = time.process_time()
    found = sum_chunks(place, rows.reading, answer, question)
    spent = (time.process_time() - begun) / len(place)
    return Terms(gathered, spent, len(pickle.dumps(summary)), len(pickle.dumps(found)))


class BlockFit(NamedTuple):
    head: LinearHead
    passes: int


def fit_blocks(blocks: Sequence[Block], loss: LossName, engine: Engine) -> BlockFit:
    rows = BlockRows.gather(blocks, engine, full=loss in AUGMENTED)
    head = fit_head(BlockProblem(rows, DECAY * rows.shape[1]), LossSettings(loss), 200)
    return BlockFit(head, rows.passes)


def measure(options: Arguments) -> list[Row]:
    torch.set_num_threads(1)
    paths = make_biased_files(options.folder, options.rows, options.features, options.classes, np.float16)
    blocks = find_blocks(paths[0], Columns(labels=str(paths[1])))
    rows = []
    for loss in options.losses:
        terms = measure_terms(blocks, loss)
        reference: BlockFit | None = None
        engines: list[Engine] = [Here()] if options.here else []
        for engine in [*engines, OnRay(options.jobs)]:
            row, found = _fit(options, blocks, loss, terms, engine, reference)
            reference = reference or found
            rows.append(row)
            print(row, flush=True)
    return rows


def _fit(
    options: Arguments,
    blocks: Sequence[Block],
    loss: LossName,
    terms: Terms,
    engine: Engine,
    reference: BlockFit | None,
) -> tuple[Row, BlockFit]:
    """One fit. Seconds are wall time; the terms of the prediction are processor time of one block, measured before.

    `statistics_microseconds` and `pass_microseconds` are processor time per row, `summary_mib` that of a block,
    `answer_kib` that of a block and pass; `peak_mib` is resident memory of the largest worker, and `difference` that of the
    head to the head of one process: the largest entry, over the head's largest.
    """
    workers, many = options.jobs if isinstance(engine, OnRay) else 1, range(8 * options.jobs)
    killed = int(isinstance(engine, OnRay) and options.kill_after > 0)
    with engine:
        timer = threading.Timer(options.kill_after, os.kill, (min(engine.each(worker_pid, many)), signal.SIGKILL))
        if killed:
            timer.start()
        begun = time.perf_counter()
        found = fit_blocks(blocks, loss, engine)
        seconds = time.perf_counter() - begun
        timer.cancel()
        peak = max(engine.each(worker_peak, many))
    difference = None
    if reference is not None:
        largest = reference.head.weight.abs().max()
        difference = float((found.head.weight - reference.head.weight).abs().max() / largest)
    row = {
        "loss": loss,
        "where": "ray" if isinstance(engine, OnRay) else "one process",
        "workers": workers,
        "rows": options.rows,
        "features": options.features,
        "classes": options.classes,
        "file_gib": round(options.rows * options.features * 2 / 2**30, 2),
        "blocks": len(blocks),
        "seconds": round(seconds, 1),
        "predicted_seconds": round(terms.seconds(options.rows, found.passes, workers), 1),
        "passes": found.passes,
        "iterations": found.head.iterations,
        "statistics_microseconds": round(1e6 * terms.statistics_seconds, 2),
        "pass_microseconds": round(1e6 * terms.pass_seconds, 2),
        "summary_mib": round(terms.summary_bytes / 2**20, 2),
        "answer_kib": round(terms.answer_bytes / 2**10, 1),
        "peak_mib": round(peak),
        "killed": killed,
        "difference": difference,
    }
    return row, found


def worker_pid(_: int) -> int:
    time.sleep(0.05)  # or the first worker would answer for all
    return os.getpid()


def worker_peak(_: int) -> float:
    time.sleep(0.05)
    return peak_mib()


def run(options: Arguments) -> None:
    publish("block-fit", measure(options), options.out)
