"""Evidence, verdicts and treatment together: what `icda.audit` and `icda.RobustClassifier` both rest on."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from icda.auditing.evidence import SAMPLES, Evidence, Sketch, gather_evidence, make_sketch
from icda.auditing.treatment import Treatment, choose_treatment
from icda.auditing.verdicts import Verdict, decide
from icda.errors import InputError
from icda.heads.blocks import BlockRows, RowChunk
from icda.heads.dealing import draw_rows
from icda.heads.threads import threads_for

TIMES = 7  # that the question for a shortcut is asked before anything is done about one


@dataclass(frozen=True)
class Assessment:
    """The figures, one verdict per kind of trouble, what to do, and the rows that were asked."""

    evidence: Evidence
    verdicts: dict[str, Verdict]
    treatment: Treatment
    sample: RowChunk = field(compare=False, repr=False)

    @property
    def summary(self) -> str:
        """What was found and what is not clear, in one line."""
        named: dict[str, list[str]] = {answer: [] for answer in ("yes", "no", "cannot tell")}
        for kind, verdict in self.verdicts.items():
            named[verdict.answer].append(kind.replace("_", " "))
        found, unclear = ", ".join(named["yes"]), ", ".join(named["cannot tell"])
        said = f"Found: {found}." if found else "Nothing found that calls for more than plain training."
        return f"{said} Cannot tell: {unclear}." if unclear else said

    def as_dict(self) -> dict[str, Any]:
        return {
            "summary": self.summary,
            "verdicts": {kind: verdict.as_dict() for kind, verdict in self.verdicts.items()},
            "treatment": self.treatment.as_dict(),
            "evidence": self.evidence.as_dict(),
        }


def assess(rows: BlockRows) -> Assessment:
    """Verdicts and treatment by a sample of the rows, class sizes by all.

    The sample depends on the rows' places alone: it is the same however rows are cut into blocks. It is put into an order
    of its own first, so that up to `SAMPLES` rows give the same answer in any order, and no seed matters. A class with one
    row in it is left out: a head that has not seen that row would not know the class.
    """
    sample = draw_sample(rows)
    kept = torch.bincount(sample.targets, minlength=rows.num_classes) >= 2
    if int(kept.sum()) < 2:
        count = len(sample.targets)
        raise InputError(f"a sample of {count} rows holds fewer than 2 classes twice: there are too many classes.")
    sample = RowChunk(*(part[kept[sample.targets]] for part in sample[:4]))
    order = own_order(sample)
    sketch, targets = make_sketch(sample.features[order]), sample.targets[order]
    numbers = kept.cumsum(0) - 1  # logit adjustment knows no class without samples
    with threads_for(sketch.features.numel() * rows.num_classes):
        evidence = _asked(rows, sketch, targets, 0)
        answers = (decide(_asked(rows, sketch, targets, seed)) for seed in range(1, TIMES))
        verdicts = confirmed(decide(evidence), answers)
        treatment = choose_treatment(sketch, numbers[targets], int(kept.sum()), verdicts)
    if treatment.attributes is not None:
        treatment = replace(treatment, attributes=treatment.attributes[order.argsort()])
    return Assessment(evidence, verdicts, treatment, sample)


def _asked(rows: BlockRows, sketch: Sketch, targets: Tensor, seed: int) -> Evidence:
    evidence = gather_evidence(sketch, targets, rows.num_classes, seed)
    return replace(evidence, samples=rows.shape[0], class_counts=[int(count) for count in rows.counts])


def confirmed(first: dict[str, Verdict], others: Iterable[dict[str, Verdict]]) -> dict[str, Verdict]:
    """The first verdicts; a shortcut is one only if it is named each time that it is asked for.

    Other halves of the samples give the same answer about a true shortcut; a false alarm comes and goes.
    """
    shortcut = first["shortcut"]
    if shortcut.answer != "yes":
        return first
    for times, verdicts in enumerate(others, start=2):
        if verdicts["shortcut"].answer != "yes":
            why = (
                f"Asked again with other halves of the samples, the answer was another the {times}. time: not settled."
            )
            return {**first, "shortcut": Verdict("cannot tell", 0.5, [*shortcut.reasons, why], shortcut.chance)}
    return first


def own_order(sample: RowChunk) -> Tensor:
    """An order of the rows that follows from what they hold, not from where they stand."""
    weights = torch.randn(sample.features.shape[1], generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return torch.from_numpy(np.lexsort(((sample.features.double() @ weights).numpy(), sample.targets.numpy())))


def draw_sample(rows: BlockRows, seed: int = 0) -> RowChunk:
    """The rows that verdicts, or a decay, rest on."""
    return rows.taken(draw_rows(rows.shape[0], SAMPLES, seed))
