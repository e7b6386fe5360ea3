"""Linear heads on fixed features: all samples at once, cross-fitted, and groups guessed from them."""
