"""Procedures larger than a loss, one per file, and the interface they share with losses."""

from icda.methods.base import METHODS, Context, Method, Setup, Stage, StepResult, check_needs
from icda.methods.create import create_method, method_names, method_needs, resolve_method

__all__ = ["METHODS", "Context", "Method", "Setup", "Stage", "StepResult"]
__all__ += ["check_needs", "create_method", "method_names", "method_needs", "resolve_method"]
