"""Networks and heads that have not seen the sample they describe, and the prior that is read off what they say."""

from icda.cross_fit.calibration import Calibration, fit_calibration
from icda.cross_fit.networks import (
    HeldOut,
    HeldOutNetworks,
    answer_log_prior,
    averaged,
    draw_folds,
    flip_labels,
    flip_probability,
    stratified_folds,
)
from icda.functional.prior import conditional_log_prior, joint_counts

__all__ = ["Calibration", "HeldOut", "HeldOutNetworks", "answer_log_prior", "averaged", "conditional_log_prior"]
__all__ += ["draw_folds", "fit_calibration", "flip_labels", "flip_probability", "joint_counts", "stratified_folds"]
