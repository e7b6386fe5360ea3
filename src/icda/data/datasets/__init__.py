"""Public datasets, one a file with its parser: each registers its tasks by name."""
