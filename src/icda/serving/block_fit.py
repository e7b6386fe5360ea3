"""`icda fit --on ray`: a head from rows that stay where they are."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from icda._version import __version__
from icda.auditing.assessment import Assessment
from icda.auditing.block_sample import BlockOutline, BlockSample, assess_sample, draw_sample, outline_blocks
from icda.auditing.inputs import default_inverse_decay
from icda.data.embedding.samples import Columns
from icda.data.own.blocks import find_blocks, names_split, number_kind
from icda.engines import Engine
from icda.linear.block_fit import BlockFit, Say, fit_blocks
from icda.linear.blocks import AttributeReader, Block
from icda.linear.objective import LossSettings
from icda.serving.head import HeadModel, ShortcutReader
from icda.serving.head_fit import AUTO, SENTENCES, check_method, fit_shortcut_reader
from icda.serving.reads import Reads

FOLDS = 5
NO_TRUST = (
    "The audit would let doubtful labels count less. Over blocks this is not done: logit adjustment was fitted. "
    "`icda audit --on blocks --out FOLDER` lists the labels to check."
)

ALL_ROWS = (
    "The file names a split. Over blocks all rows are fitted, those of the test split too: to judge the model, write the "
    "rows for the fit into a file of their own."
)


@dataclass(frozen=True)
class BlockAdvice:
    """What the audit of a sample says to fit: a loss, and how to read the shortcut where there is one."""

    loss: str
    done: str
    assessment: Assessment | None = None
    shortcut: ShortcutReader | None = None

    @property
    def attribute(self) -> AttributeReader | None:
        if self.shortcut is None or self.assessment is None:
            return None
        weight, bias = torch.from_numpy(self.shortcut.coef), torch.from_numpy(self.shortcut.intercept)
        return AttributeReader(weight, bias, self.assessment.treatment.strength)

    def facts(self) -> dict[str, object]:
        if self.assessment is None:
            return {"done": self.done}
        found, treatment = self.assessment.summary, self.assessment.treatment.as_dict()
        return {"done": self.done, "found": found, "treatment": treatment}


def fit_from_blocks(
    path: Path,
    wanted: Columns,
    method: str,
    engine: Engine,
    say: Callable[[str], None] | None = None,
    seed: int = 0,
) -> tuple[HeadModel, BlockFit]:
    """The model and how the fit went: the named loss, with the weight decay that `icda fit` has for large data.

    `auto` audits a sample of the rows and fits what it calls for: logit adjustment, or a prior over what the shortcut
    says of each row. There is no trial: judge the model with `icda predict` on rows that were kept apart.
    """
    name = check_method(method)
    blocks, say = find_blocks(path, wanted), say or (lambda _: None)
    notes = [ALL_ROWS] if names_split(blocks[0]) else []
    for note in notes:
        say(note)
    started = time.perf_counter()
    advice = BlockAdvice(name, SENTENCES[name]) if name != AUTO else advise(blocks, engine, seed, say)
    found = fit_blocks(
        blocks,
        LossSettings(advice.loss),  # type: ignore[arg-type]
        lambda rows, width: 1 / (default_inverse_decay(rows, width) * rows),
        engine,
        dtype=number_kind(blocks[0]),
        say=say,
        attribute=advice.attribute,
    )
    facts = {
        "icda": __version__,
        "method": name,
        **advice.facts(),
        "notes": notes,
        "samples": int(found.class_counts.sum()),
        "class_counts": dict(zip(map(str, found.classes), found.class_counts.tolist(), strict=True)),
        "iterations": found.iterations,
        "passes": found.passes,
        "seconds": round(time.perf_counter() - started, 1),
    }
    label = None if path.suffix.lower() == ".npy" else wanted.labels
    reads = Reads("features", found.coef.shape[1], label=label)
    return HeadModel(found.classes, found.coef, found.intercept, reads, advice.shortcut, facts), found


def advise(blocks: Sequence[Block], engine: Engine, seed: int = 0, say: Say | None = None) -> BlockAdvice:
    """Audit a sample of the rows, and say what to fit to all of them."""
    say = say or (lambda _: None)
    outline = outline_blocks(blocks, engine, say)
    sample = draw_sample(outline, engine, FOLDS, seed)
    say(f"Auditing a sample of {len(sample.targets)} rows ...")
    assessment, asked = assess_sample(sample, outline.counts, seed)
    treatment = assessment.treatment
    say(assessment.summary)
    if treatment.name == "shortcut_prior" and treatment.attributes is not None:
        reader = read_shortcut(outline, asked, treatment.attributes)
        return BlockAdvice("la", treatment.description, assessment, reader)
    done = NO_TRUST if treatment.name == "trust" else treatment.description
    return BlockAdvice("la", done, assessment)


def read_shortcut(outline: BlockOutline, sample: BlockSample, attributes: torch.Tensor) -> ShortcutReader:
    """A head that reads what the shortcut says off any row, learned from the sample; for features as they come."""
    targets = sample.targets.numpy()
    reader = fit_shortcut_reader(sample.features.numpy(), targets, attributes)
    mean, scale = outline.scaling.mean.numpy(), outline.scaling.scale.numpy()
    coef = reader.coef / scale
    points_to = np.unique(targets)[reader.classes]
    kind = reader.coef.dtype
    return ShortcutReader(coef.astype(kind), (reader.intercept - coef @ mean).astype(kind), points_to)
