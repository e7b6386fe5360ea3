"""What things cost: time and memory, as ratios measured in one process."""
