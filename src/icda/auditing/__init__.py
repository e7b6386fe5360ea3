"""The audit: which samples are tied to which wrong class, how strongly and at what cost, before any group label exists."""

from icda.auditing.questions import Questions, ask
from icda.auditing.result import Audit
from icda.auditing.run import audit
from icda.cross_fit.rules import Verdict

__all__ = ["Audit", "Questions", "Verdict", "ask", "audit"]
