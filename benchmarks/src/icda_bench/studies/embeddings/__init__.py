"""Linear heads on fixed features of real, biased data: every loss and variant of the estimators, side by side."""
