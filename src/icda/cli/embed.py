"""`icda embed`"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from icda.cli.fit import InputArguments
from icda.cli.output import Bar, counted, listed, say
from icda.data.embedding import Features, embed
from icda.data.embedding.run import CHUNK_BATCHES
from icda.data.embedding.samples import Columns
from icda.data.images import DECODER_THREADS
from icda.data.own.reading import read_samples
from icda.engines import Where, make_engine, thread_budget
from icda.errors import InputError
from icda.models.encoders import create_encoder

CHUNKS_EACH = 4  # chunks for each process from which its start, some seconds, is worth it


@dataclass
class EmbedArguments(InputArguments):
    """Turn a folder of images, or a CSV of images or texts, into a file of features."""

    data: tyro.conf.Positional[Path]
    """A folder, DATA/<class>/*.jpg or DATA/train/<class>/*.jpg, or a CSV table."""
    out: Path = Path("features.npz")
    """File to write; np.load reads it."""
    batch_size: int = 32
    """Inputs that go through the encoder at once."""
    resume: bool = False
    """Go on with an unfinished run from its chunks in OUT.part; a finished one is shown, not run again."""
    unlabelled: bool = False
    """The folder has no class folders, or the table no labels."""
    label_column: str | None = None
    """CSV column with class labels."""
    group_column: str | None = None
    """CSV column with groups."""
    split_column: str | None = None
    """CSV column with train, validation or test."""
    on: Where = "local"
    """Where inputs are encoded: local, or ray (the cluster RAY_ADDRESS names, else a Ray on this machine)."""
    jobs: int | None = None
    """Processes on this machine, which share its cores; by default one for every four, and with --on ray one per core."""

    def columns(self) -> Columns:
        return Columns(self.image_column, self.text_column, self.label_column, self.group_column, self.split_column)


def main(arguments: Sequence[str]) -> int:
    options = tyro.cli(EmbedArguments, args=list(arguments), prog="icda embed")
    if options.out.suffix != ".npz":
        raise InputError(f"--out is {options.out}, expected a name that ends in .npz.")
    samples = read_samples(
        options.data, options.columns(), unlabelled=options.unlabelled, allow_outside=options.allow_outside, table=False
    )
    if samples.features is not None:
        raise InputError(
            f"{options.data} holds features already: give a folder of images, or a CSV of images or texts."
        )
    encoder = create_encoder(options.encoder, samples.kind, options.image_size)
    jobs = options.jobs
    if options.on != "ray":
        jobs = local_jobs(jobs, len(samples), options.batch_size, encoder.device)
    with make_engine(options.on, jobs) as engine, Bar(f"{samples.kind}s") as bar:
        result = embed(
            samples,
            encoder,
            options.out,
            batch_size=options.batch_size,
            skip_unreadable=options.skip_unreadable,
            resume=options.resume,
            progress=bar.update,
            engine=engine,
        )
    say(_summary(options.out, result))
    return 0


def local_jobs(asked: int | None, inputs: int, batch_size: int, device: str) -> int:
    """How many processes encode on this machine: what was asked for, else one for every four cores.

    On two cores two processes were no faster than two threads of one. Above four its decoders would keep the others
    waiting. A process that has too few chunks to do is not worth its start. The number depends on all inputs, not on those
    that are left, so that a run that goes on has the threads of its beginning.

    >>> local_jobs(None, 100, 32, "cpu"), local_jobs(3, 100, 32, "cpu"), local_jobs(None, 10**6, 32, "cuda")
    (1, 3, 1)
    """
    if asked is not None and asked < 1:
        raise InputError(f"--jobs is {asked}, expected 1 or more.")
    if asked is not None or device != "cpu":
        return asked or 1
    return max(1, min(thread_budget() // DECODER_THREADS, inputs // (max(batch_size, 1) * CHUNK_BATCHES * CHUNKS_EACH)))


def _summary(out: Path, result: Features) -> str:
    lines = [f"{out}: {len(result)} x {result.features.shape[1]} features by {result.encoder}"]
    for noun, names in (("classes", result.class_names), ("groups", result.group_names)):
        if names is not None:
            lines.append(f"{len(names)} {noun}: {counted(list(names))}")
    lines += listed("unreadable, left out and listed in the file as 'skipped'", result.skipped.tolist())
    return "\n".join(lines)
