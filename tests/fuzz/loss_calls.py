"""Calls of losses with up to three oddities: types, dtypes, shapes, sizes, values."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from fuzz.judge import VALUE, judge
from icda.losses import LOSSES, AdjustedLoss
from icda.losses.prior_loss import PriorLoss
from icda.statistics import ClassStatistics

NAMES = sorted(LOSSES)
Change = Callable[[Tensor], Any]


def put(value, row=0):
    def change(tensor: Tensor) -> Tensor:
        changed = tensor.clone()
        if changed.numel():
            changed.view(-1)[row % changed.numel()] = value
        return changed

    return change


FEATURES: dict[str, Change] = {
    "numpy": lambda x: x.numpy(),
    "list": lambda x: x.tolist(),
    "none": lambda x: None,
    "text": lambda x: "features",
    "integers": lambda x: x.long(),
    "bool": lambda x: x > 0,
    "complex": lambda x: x.to(torch.complex64),
    "double": lambda x: x.double(),
    "half": lambda x: x.half(),
    "bfloat16": lambda x: x.bfloat16(),
    "vector": lambda x: x[:, 0],
    "image": lambda x: x[:, :, None, None],
    "narrow": lambda x: x[:, 1:],
    "empty": lambda x: x[:0],
    "nan": put(float("nan"), 3),
    "infinite": put(float("inf"), 5),
    "huge": lambda x: x * 1e19,
    "nearly infinite": lambda x: x.sign() * 3e38,
    "one huge": put(1e25, 2),
    "large": lambda x: x * 1e9,
    "tiny": lambda x: x * 1e-30,
    "zero": torch.zeros_like,
    "equal": lambda x: x[:1].expand_as(x),
    "sparse": lambda x: x.to_sparse(),
    "meta": lambda x: x.to("meta"),
    "strided": lambda x: x.T.contiguous().T,
    "leaf": lambda x: x.clone().requires_grad_(),
}
TARGETS: dict[str, Change] = {
    "numpy": lambda y: y.numpy(),
    "list": lambda y: y.tolist(),
    "none": lambda y: None,
    "floats": lambda y: y.float(),
    "bool": lambda y: y > 0,
    "int8": lambda y: y.to(torch.int8),
    "int32": lambda y: y.int(),
    "uint8": lambda y: y.to(torch.uint8),
    "uint16": lambda y: y.to(torch.uint16),
    "complex": lambda y: y.to(torch.complex64),
    "short": lambda y: y[1:],
    "matrix": lambda y: y[:, None],
    "too large": lambda y: y + 50,
    "negative": lambda y: y - 7,
    "some ignored": put(-100, 1),
    "all ignored": lambda y: torch.full_like(y, -100),
    "one class": torch.zeros_like,
    "meta": lambda y: y.to("meta"),
    "soft": lambda y: nn.functional.one_hot(y, 3).float() * 0.7 + 0.1,
    "soft, wrong sum": lambda y: nn.functional.one_hot(y, 3).float() * 2,
    "soft, nan": lambda y: nn.functional.one_hot(y, 3).float() * float("nan"),
    "soft, other width": lambda y: nn.functional.one_hot(y, 9).float(),
}
LOGITS: dict[str, Change] = {
    "right": lambda z: z,
    "double": lambda z: z.double(),
    "half": lambda z: z.half(),
    "numpy": lambda z: z.numpy(),
    "list": lambda z: z.tolist(),
    "integers": lambda z: z.long(),
    "narrow": lambda z: z[:, 1:],
    "nan": put(float("nan"), 4),
    "infinite": put(float("inf"), 4),
    "one masked": put(-float("inf"), 1),
    "all masked": lambda z: torch.full_like(z, -float("inf")),
    "huge": lambda z: z * 1e30,
    "nearly infinite": lambda z: z.sign() * 3e38,
}
HEADS: dict[str, Callable[[nn.Linear], Any]] = {
    "pair": lambda h: (h.weight, h.bias),
    "no bias": lambda h: (h.weight, None),
    "convolution": lambda h: nn.Conv2d(h.in_features, h.out_features, 1),
    "triple": lambda h: (h.weight, h.bias, None),
    "none": lambda h: None,
    "text": lambda h: "head",
    "sequential": lambda h: nn.Sequential(h),
    "lazy": lambda h: nn.LazyLinear(h.out_features),
    "double": lambda h: (h.weight.detach().double(), h.bias.detach().double()),
    "half": lambda h: (h.weight.detach().half(), h.bias.detach().half()),
    "double bias": lambda h: (h.weight, h.bias.detach().double()),
    "numpy": lambda h: (h.weight.detach().numpy(), h.bias.detach().numpy()),
    "integers": lambda h: (h.weight.detach().long(), None),
    "other shape": lambda h: nn.Linear(h.in_features + 1, h.out_features),
    "nan": lambda h: (put(float("nan"), 1)(h.weight.detach()), h.bias),
    "infinite bias": lambda h: (h.weight, put(float("inf"), 1)(h.bias.detach())),
    "huge": lambda h: (h.weight.detach() * 1e19, h.bias),
    "nearly infinite": lambda h: (h.weight.detach().sign() * 1e38, h.bias),
    "zero": lambda h: (torch.zeros_like(h.weight), h.bias),
    "meta": lambda h: (h.weight.detach().to("meta"), None),
}
PROGRESS: list[Any] = [0, 0.0, 0.3, 1, np.float32(0.5), torch.tensor(0.5), None, "x", True, float("nan"), 2, -1e-9]
PROGRESS += [float("inf"), torch.zeros(2), 1j, torch.tensor(float("nan"))]
OPTIONS: dict[str, list[Any]] = {
    "reduction": ["none", "sum", "average", None],
    "label_smoothing": [0.1, 0.9, 1.0, -1, "x", None],
    "class_weight": [torch.tensor([1.0, 0.0, 2.0]), torch.ones(2), [1, 2, 3], "x", torch.zeros(3)],
    "ignore_index": [0, 2, 255, 1.5, None],
    "lambda0": [0, 0.0, 1e3, -1, float("nan"), float("inf"), "x", None],
    "beta": [0.0, 1e3, -1, float("nan"), "x"],
    "covariance": ["full", "diagonal", "low_rank", "other", None, 3],
    "rank": [1, 2, 100, 0, -1, 2.5, "x"],
    "forgetting": [0.5, 1e-6, 0, 2, float("nan"), "x"],
    "shrinkage": [0.5, 1, -1, float("nan"), "x"],
    "variance_bound": [1e-3, float("inf"), 0, -1, float("nan"), "x", None],
    "semantic": [False, "x"],
    "counterfactual": [False],
    "class_margin": [False],
    "sample_strength": ["mean", "x"],
    "gamma": [0.0, 5.0, -1, float("inf"), "x"],
    "tau": [0.0, 2.0, float("nan"), "x"],
    "scale": [1.0, 0, float("inf"), "x"],
    "q": [0.0, 1.0, 2.0, "x"],
    "margin": [1, 4, 7, "x"],
    "weight": [0.0, 1.0, -1, "x"],
    "max_margin": [0.0, 1e3, -1, "x"],
    "mean_strength": [0.0, float("nan"), "x"],
    "head_classes": [1, 9, "x"],
    "smoothing": [0.0, 1.0, 2, "x"],
    "triplet_weight": [0.0, 1e3, -1, "x"],
    "prior": [torch.ones(2, 3), torch.ones(2, 2), "x", [[1, 2, 3]]],
    "form": ["softmax", "x"],
    "effective_beta": [0.0, 0.5, 1.0, "x"],
}
COUNTS: list[Any] = [None, [5, 3, 2], torch.tensor([5, 0, 2]), torch.ones(2), "x", [1, float("nan"), 2], [0, 0, 0], 7]
GIVEN: dict[str, list[Any]] = {
    "attributes": [torch.zeros(6).long(), torch.zeros(6), torch.zeros(5).long(), torch.full((6,), 9), [0] * 6, "x"],
    "log_prior": [torch.zeros(6, 3), torch.zeros(6, 2), torch.full((6, 3), -float("inf")), [[0, 0, 0]] * 6, "x"],
}


class LossCall(NamedTuple):
    """What to make, what to call it with, and how often it was called rightly before."""

    name: str
    counts: Any
    options: dict[str, Any]
    features: str | None
    targets: str | None
    head: str | None
    logits: str | None
    progress: Any
    given: dict[str, Any]
    training: bool
    method: str
    before: int
    seed: int

    def make(self) -> AdjustedLoss:
        kind = LOSSES.get(self.name)
        known = kind.__signature__.parameters
        options = {name: value for name, value in self.options.items() if name in known}
        return kind(3, 4, self.counts, **options)

    def prepare(self, loss: AdjustedLoss) -> Callable[[], Any]:
        """The call itself, after the right ones."""
        generator = torch.Generator().manual_seed(self.seed)
        head = nn.Linear(4, 3)
        with torch.no_grad():
            for parameter in head.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=generator))
        labels = torch.tensor([0, 2, 0, 2, 0, 2]) if self.counts is COUNTS[2] else torch.tensor([0, 1, 2, 0, 1, 2])
        known = {} if getattr(loss, "prior", None) is None else {"attributes": torch.zeros(6).long()}
        for _ in range(self.before):
            loss(torch.randn(6, 4, generator=generator), labels, head, **known)
        plain = torch.randn(6, 4, generator=generator)
        logits = None if self.logits is None else LOGITS[self.logits](head(plain).detach())
        features = plain if self.features is None else FEATURES[self.features](plain)
        targets = labels if self.targets is None else TARGETS[self.targets](labels)
        layer = head if self.head is None else HEADS[self.head](head)
        given = {**known, **self.given} if isinstance(loss, PriorLoss) else {}
        loss.train(self.training)
        function = loss if self.method == "forward" else loss.adjustment
        return lambda: function(features, targets, layer, self.progress, logits, **given)


def odd(table):
    return st.one_of(st.none(), st.none(), st.sampled_from(sorted(table)))


options = st.dictionaries(st.sampled_from(sorted(OPTIONS)), st.none(), max_size=2).flatmap(
    lambda chosen: st.fixed_dictionaries({name: st.sampled_from(OPTIONS[name]) for name in chosen})
)
given = st.one_of(
    st.just({}),
    st.just({}),
    st.sampled_from(sorted(GIVEN)).flatmap(lambda name: st.fixed_dictionaries({name: st.sampled_from(GIVEN[name])})),
)
loss_calls = st.builds(
    LossCall,
    name=st.sampled_from(NAMES),
    counts=st.one_of(st.just(COUNTS[1]), st.just(COUNTS[1]), st.sampled_from(COUNTS)),
    options=options,
    features=odd(FEATURES),
    targets=odd(TARGETS),
    head=odd(HEADS),
    logits=odd(LOGITS),
    progress=st.one_of(st.just(0.7), st.just(1.0), st.sampled_from(PROGRESS)),
    given=given,
    training=st.booleans(),
    method=st.sampled_from(["forward", "forward", "adjustment"]),
    before=st.integers(0, 2),
    seed=st.integers(0, 2**31),
)


class StatisticsCall(NamedTuple):
    """One update of class statistics."""

    covariance: str
    features: str | None
    targets: str | None
    weights: Any
    seed: int

    def prepare(self, statistics: ClassStatistics) -> Callable[[], Any]:
        generator = torch.Generator().manual_seed(self.seed)
        labels = torch.tensor([0, 1, 2, 0, 1, 2])
        statistics.update(torch.randn(6, 4, generator=generator), labels)
        plain = torch.randn(6, 4, generator=generator)
        features = plain if self.features is None else FEATURES[self.features](plain)
        targets = labels if self.targets is None else TARGETS[self.targets](labels)
        return lambda: statistics.update(features, targets, self.weights)


WEIGHTS: list[Any] = [
    torch.ones(6),
    torch.zeros(6),
    torch.full((6,), 1e38),
    torch.ones(5),
    -torch.ones(6),
    [1] * 6,
    "x",
]
WEIGHTS += [torch.full((6,), float("nan")), torch.ones(6, dtype=torch.complex64), torch.ones(6).long()]
statistics_calls = st.builds(
    StatisticsCall,
    covariance=st.sampled_from(["full", "diagonal", "low_rank"]),
    features=odd(FEATURES),
    targets=odd(TARGETS),
    weights=st.one_of(st.none(), st.sampled_from(WEIGHTS)),
    seed=st.integers(0, 2**31),
)


def try_loss(call):
    made: list = []
    outcome = judge(lambda: made.append(call.make()))
    if outcome[0] != VALUE:
        return outcome
    prepared: list = []
    outcome = judge(lambda: prepared.append(call.prepare(made[0])))
    if outcome[0] != VALUE:
        return outcome
    run = prepared[0]
    if call.method == "adjustment":  # -inf is how it rules a class without samples out
        return judge(lambda: run().double().clamp(min=-1e30), made[0])
    return judge(run, made[0])


def try_statistics(call):
    statistics = ClassStatistics(3, 4, call.covariance)
    return judge(call.prepare(statistics), statistics)
