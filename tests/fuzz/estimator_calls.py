"""Fits and audits with up to three oddities."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

import icda
from fuzz.loss_calls import odd
from icda import ICDAClassifier, MetaICDAClassifier, RobustClassifier

Change = Callable[[np.ndarray], Any]


def put(value, place=0):
    def change(array: np.ndarray) -> np.ndarray:
        changed = array.copy() if isinstance(value, float) and array.dtype.kind == "f" else array.astype(object)
        changed.flat[place] = value
        return changed

    return change


X: dict[str, Change] = {
    "list": lambda x: x.tolist(),
    "none": lambda x: None,
    "text": lambda x: "X",
    "strings": lambda x: x.astype(str),
    "words": lambda x: np.full(x.shape, "a"),
    "integers": lambda x: (10 * x).astype(int),
    "float32": lambda x: x.astype(np.float32),
    "float16": lambda x: x.astype(np.float16),
    "complex": lambda x: x.astype(complex),
    "bool": lambda x: x > 0,
    "vector": lambda x: x[:, 0],
    "cube": lambda x: x[:, :, None],
    "empty": lambda x: x[:0],
    "no columns": lambda x: x[:, :0],
    "short": lambda x: x[1:],
    "nan": put(float("nan"), 7),
    "infinite": put(float("inf"), 3),
    "none inside": put(None, 2),
    "huge": lambda x: x * 1e150,
    "too huge": lambda x: np.sign(x) * 1e308,
    "large": lambda x: x * 1e12,
    "tiny": lambda x: x * 1e-200,
    "constant": np.ones_like,
    "equal rows": lambda x: np.repeat(x[:1], len(x), 0),
    "sparse": csr_matrix,
    "read only": lambda x: np.frombuffer(x.tobytes()).reshape(x.shape),
    "fortran": np.asfortranarray,
    "one column": lambda x: x[:, :1],
}
Y: dict[str, Change] = {
    "list": lambda y: y.tolist(),
    "none": lambda y: None,
    "strings": lambda y: y.astype(str),
    "floats": lambda y: y + 0.5,
    "bool": lambda y: y > 0,
    "uint16": lambda y: y.astype(np.uint16),
    "one class": np.zeros_like,
    "three of one": lambda y: np.where(np.arange(len(y)) < 3, y, 1),
    "every own": lambda y: np.arange(len(y)),
    "short": lambda y: y[1:],
    "matrix": lambda y: np.stack([y, y], 1),
    "column": lambda y: y[:, None],
    "none inside": put(None, 1),
    "nan inside": lambda y: np.where(np.arange(len(y)) == 1, np.nan, y),
    "mixed": put("cat", 1),
    "complex": lambda y: y.astype(complex),
    "objects": lambda y: np.array([{} for _ in y], dtype=object),
    "text": lambda y: "y",
}
PER_SAMPLE: list[Any] = [None, None, np.ones(30), np.zeros(30), -np.ones(30), np.full(30, np.nan), np.ones(29), "x"]
PER_SAMPLE += [
    np.full(30, 1e300),
    np.arange(30) % 2,
    ["a", None] * 15,
    ["a", "b"] * 15,
    [[1]] * 30,
    3,
    np.ones((30, 2)),
]
SETTINGS: dict[str, list[Any]] = {
    "C": [1e-300, 1e300, 0, -1, float("nan"), float("inf"), "x", None],
    "lambda0": [0.0, 1e6, -1, float("nan"), "x", None],
    "beta": [0.0, 1e6, -1, "x"],
    "loss": ["ce", "la", "isda", "risda", "x", None, 3],
    "balance": [None, "class", "group", "errors", "contrast", "strength", "x", 3],
    "through": ["statistics", "prior", "x", None],
    "strength": ["cross_fitted", "x"],
    "max_iter": [0, 1, -1, 2.5, "x", None],
    "tol": [0.0, -1, float("nan"), "x"],
    "random_state": [None, 1, "x", 2.5, -1],
    "class_weight": ["balanced", {0: 1.0}, {0: 0.0, 1: 1.0}, {7: 1.0}, "x", 3, {0: -1.0, 1: 1.0}, {0: "x"}],
    "steps": [0, 2, -1, 1.5, "x"],
    "folds": [2, 1, 1000, "x"],
    "learning_rate": [1e6, 0, "x"],
    "prior": ["class", "x"],
    "strengths_as": ["weights", "x"],
    "use_metadata": [False, "x"],
}
KINDS: dict[str, Any] = {"icda": ICDAClassifier, "meta_icda": MetaICDAClassifier, "robust": RobustClassifier}


class FitCall(NamedTuple):
    """A fit, and predictions of the same or of odd features."""

    kind: str
    x: str | None
    y: str | None
    settings: dict[str, Any]
    sample_weight: Any
    groups: Any
    asked: str | None
    seed: int

    def __call__(self) -> np.ndarray:
        generator = np.random.default_rng(self.seed)
        plain, labels = generator.normal(size=(30, 4)), np.arange(30) % 2
        x = plain if self.x is None else X[self.x](plain)
        y = labels if self.y is None else Y[self.y](labels)
        kind = KINDS[self.kind]
        known = kind().get_params()
        quick = {"max_iter": 5, **({"steps": 1} if "steps" in known else {})}
        model = kind(**{**quick, **{name: value for name, value in self.settings.items() if name in known}})
        given = {"sample_weight": self.sample_weight}
        if self.kind == "meta_icda":
            given |= {"X_meta": x, "y_meta": y, "groups_meta": self.groups}
        else:
            given |= {"groups": self.groups}
        model.fit(x, y, **given)
        return model.predict_proba(x if self.asked is None else X[self.asked](plain))


class AuditCall(NamedTuple):
    """One audit."""

    x: str | None
    y: str | None
    settings: dict[str, Any]
    seed: int

    def __call__(self) -> Any:
        generator = np.random.default_rng(self.seed)
        plain, labels = generator.normal(size=(30, 4)), np.arange(30) % 2
        x = plain if self.x is None else X[self.x](plain)
        y = labels if self.y is None else Y[self.y](labels)
        found = icda.audit(x, y, **self.settings)
        return found.probabilities


AUDIT_SETTINGS: dict[str, list[Any]] = {
    "C": [1e-300, 0, -1, float("nan"), float("inf"), "x"],
    "folds": [2, 1, 2.5, 1000, "x", None],
    "repeats": [2, 0, 1.5, "x", None],
    "seed": [1, -1, "x", None, 2.5],
    "class_names": [["a", "b"], ["a"], "ab", 3, {0: "a", 1: "b"}],
    "sample_names": [[str(i) for i in range(30)], ["a"], 3, [None] * 30],
}


def some(table):
    return st.lists(st.sampled_from(sorted(table)), max_size=2, unique=True).flatmap(
        lambda names: st.fixed_dictionaries({name: st.sampled_from(table[name]) for name in names})
    )


def fit_calls(*kinds):
    return st.builds(
        FitCall,
        kind=st.sampled_from(kinds),
        x=odd(X),
        y=odd(Y),
        settings=some(SETTINGS),
        sample_weight=st.sampled_from(PER_SAMPLE),
        groups=st.sampled_from(PER_SAMPLE),
        asked=odd(X),
        seed=st.integers(0, 2**31),
    )


audit_calls = st.builds(AuditCall, x=odd(X), y=odd(Y), settings=some(AUDIT_SETTINGS), seed=st.integers(0, 2**31))
