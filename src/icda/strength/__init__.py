"""How strongly each sample is augmented towards each class."""

from icda.strength.angles import Strength, direct_strength
from icda.strength.augmentation import AugmentedFeatures, augment

__all__ = ["AugmentedFeatures", "Strength", "augment", "direct_strength"]
