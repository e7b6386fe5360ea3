"""How strongly each sample is augmented towards each class."""

from icda.strength.angles import Strength, direct_strength
from icda.strength.augmentation import AugmentedFeatures, augment
from icda.strength.characteristics import Characteristics
from icda.strength.log import StrengthLog
from icda.strength.network import StrengthNetwork

__all__ = [
    "AugmentedFeatures",
    "Characteristics",
    "Strength",
    "StrengthLog",
    "StrengthNetwork",
    "augment",
    "direct_strength",
]
