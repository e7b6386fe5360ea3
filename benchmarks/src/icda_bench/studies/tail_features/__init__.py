"""Linear heads on frozen features of long-tailed pictures: where most users of the losses are."""
