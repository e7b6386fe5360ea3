"""Networks and heads that have not seen the sample they describe, and the prior that is read off what they say."""

from icda.cross_fit.calibration import Calibration, fit_calibration
from icda.cross_fit.conditional_prior import answer_log_prior, conditional_log_prior, joint_counts
from icda.cross_fit.flips import flip_labels, flip_probability
from icda.cross_fit.networks import HeldOut, HeldOutNetworks

__all__ = [
    "Calibration",
    "HeldOut",
    "HeldOutNetworks",
    "answer_log_prior",
    "conditional_log_prior",
    "fit_calibration",
    "flip_labels",
    "flip_probability",
    "joint_counts",
]
