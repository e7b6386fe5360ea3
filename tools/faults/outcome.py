"""What came of faults of one kind."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Outcome:
    """Counts of one kind of fault; all but `faults` and `refused` should be 0."""

    kind: str
    faults: int = 0
    detail: str = ""  # what the faults were
    refused: int = 0  # ended with a sentence, as it should be
    different: int = 0  # runs that ended with other weights, figures or logs than an undisturbed one
    missing: int = 0  # finished runs without a report or configuration
    mixed: int = 0  # results that hold another run's figures
    obscure: int = 0  # tracebacks, and failures without a sentence
    scraps: int = 0  # half-written files left in the end

    def is_good(self) -> bool:
        return self.faults > 0 and not (self.different or self.missing or self.mixed or self.obscure or self.scraps)

    def sentence(self) -> str:
        return (
            f"{self.kind}: {self.faults} ({self.detail}); refused {self.refused}, different {self.different}, "
            f"missing {self.missing}, mixed {self.mixed}, obscure {self.obscure}, scraps {self.scraps}"
        )
