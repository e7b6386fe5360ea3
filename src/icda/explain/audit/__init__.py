"""The audit: which samples are tied to which wrong class, how strongly and at what cost, before any group label exists."""

from icda.explain.audit.result import Audit
from icda.explain.audit.run import audit

__all__ = ["Audit", "audit"]
