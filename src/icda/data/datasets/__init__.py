"""Public datasets, one per file with its parser: each registers its tasks by name."""
