"""Classifiers of other packages beside ours, on the same splits and features."""
