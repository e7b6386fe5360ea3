"""Evidence, verdicts and treatment together: what `icda.audit` and `icda.RobustClassifier` both rest on."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch

from icda.auditing.evidence import SAMPLES, Evidence, gather_evidence, make_sketch
from icda.auditing.treatment import Treatment, choose_treatment
from icda.auditing.verdicts import Verdict, decide
from icda.errors import InputError
from icda.heads.blocks import BlockRows, RowChunk
from icda.heads.dealing import draw_rows
from icda.heads.spreading import gather_rows
from icda.heads.threads import threads_for


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
        return summarise(self.verdicts)

    def as_dict(self) -> dict[str, Any]:
        return {
            "summary": self.summary,
            "verdicts": {kind: verdict.as_dict() for kind, verdict in self.verdicts.items()},
            "treatment": self.treatment.as_dict(),
            "evidence": self.evidence.as_dict(),
        }


def assess(rows: BlockRows) -> Assessment:
    """Verdicts and treatment by a sample of the rows, class sizes by all.

    The sample depends on the seed and on the rows' places alone: it is the same however rows are cut into blocks. A class
    with one row in it is left out: a head that has not seen that row would not know the class.
    """
    sample, seed = draw_sample(rows), rows.reading.seed
    kept = torch.bincount(sample.targets, minlength=rows.num_classes) >= 2
    if int(kept.sum()) < 2:
        count = len(sample.targets)
        raise InputError(f"a sample of {count} rows holds fewer than 2 classes twice: there are too many classes.")
    sample = RowChunk(*(part[kept[sample.targets]] for part in sample[:4]))
    sketch = make_sketch(sample.features, seed)
    with threads_for(sketch.features.numel() * rows.num_classes):
        evidence = gather_evidence(sketch, sample.targets, rows.num_classes, seed)
        evidence = replace(evidence, samples=rows.shape[0], class_counts=[int(count) for count in rows.counts])
        verdicts = decide(evidence)
        numbers = kept.cumsum(0) - 1  # logit adjustment knows no class without samples
        treatment = choose_treatment(sketch, numbers[sample.targets], int(kept.sum()), verdicts, seed)
    return Assessment(evidence, verdicts, treatment, sample)


def draw_sample(rows: BlockRows) -> RowChunk:
    """The rows that verdicts rest on."""
    return gather_rows(rows, draw_rows(rows.shape[0], SAMPLES, rows.reading.seed))


def summarise(verdicts: dict[str, Verdict]) -> str:
    """One line.

    >>> summarise({"shortcut": Verdict("yes", 0.9, []), "overlap": Verdict("no", 0.9, [])})
    'Found: shortcut.'
    """
    found = [kind.replace("_", " ") for kind, verdict in verdicts.items() if verdict.answer == "yes"]
    unclear = [kind.replace("_", " ") for kind, verdict in verdicts.items() if verdict.answer == "cannot tell"]
    said = f"Found: {', '.join(found)}." if found else "Nothing found that calls for more than plain training."
    return f"{said} Cannot tell: {', '.join(unclear)}." if unclear else said
