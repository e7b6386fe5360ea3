"""Which epoch's model is kept: named rules on validation data."""

from icda.selection.rules import SELECTION_RULES, Observer, SelectionRule, Selector, ValidationView, check, get_rule

__all__ = ["SELECTION_RULES", "Observer", "SelectionRule", "Selector", "ValidationView", "check", "get_rule"]
