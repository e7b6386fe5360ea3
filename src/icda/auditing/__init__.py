"""The audit: which samples are tied to which wrong class, how strongly and at what cost, before any group label exists."""

from icda.auditing.result import Audit
from icda.auditing.run import audit

__all__ = ["Audit", "audit"]
