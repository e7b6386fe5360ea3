"""What a call came to: a finite value, a sentence, or something that must not happen."""

import traceback
import warnings

import numpy as np
import torch
from sklearn.exceptions import NotFittedError
from torch import Tensor

from icda.errors import IcdaError

VALUE, REFUSED = "value", "refused"
OBSCURE, SILENT, CHANGED = "obscure", "silent", "changed"
BAD = (OBSCURE, SILENT, CHANGED)


def state_of(module):
    return {} if module is None else {name: buffer.detach().clone() for name, buffer in module.named_buffers()}


def same(before, after):
    return before.keys() == after.keys() and all(
        torch.equal(before[name].nan_to_num(), after[name].nan_to_num()) for name in before
    )


def is_sentence(error):
    """Ours, or scikit-learn's own word about data, which its users know."""
    if isinstance(error, IcdaError | NotFittedError):
        return bool(str(error).strip())
    frames = traceback.extract_tb(error.__traceback__)
    in_checks = any("sklearn/utils/" in frame.filename for frame in frames[-3:])
    return isinstance(error, ValueError | TypeError) and in_checks and len(str(error)) > 20


def is_finite(value):
    if isinstance(value, Tensor):
        return bool(torch.isfinite(value.detach().double()).all())
    if isinstance(value, np.ndarray):
        return value.dtype.kind not in "fc" or bool(np.isfinite(value).all())
    return True


def judge(call, module=None):
    """The outcome, and for a bad one what was seen."""
    before = state_of(module)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            value = call()
        except Exception as error:
            if not is_sentence(error):
                return OBSCURE, "".join(traceback.format_exception(error)[-4:])
            if not same(before, state_of(module)):
                return CHANGED, str(error)
            return REFUSED, str(error)
    if not is_finite(value) or not all(is_finite(buffer) for buffer in state_of(module).values()):
        return SILENT, repr(value)[:200]
    return VALUE, ""
