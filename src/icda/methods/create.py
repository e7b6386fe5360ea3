"""From a name and options to a method; a loss becomes one of one forward pass, one loss, one step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from torch import Tensor, nn

from icda.data.task import Batch
from icda.functional.mapped_variance import mean_mapped_variances
from icda.losses import LOSSES, AdjustedLoss
from icda.losses.augmented import StatisticsLoss
from icda.losses.head import head_parameters
from icda.methods.base import METHODS, Context, Figures, Method, Setup
from icda.models.base import FeatureClassifier, Output
from icda.registry import UnknownNameError, did_you_mean
from icda.settings import check, check_names, option_kinds


class LossMethod(Method):
    """Training with one of the losses; its statistics live in the method's state."""

    criterion: AdjustedLoss

    def __init__(self, criterion: AdjustedLoss) -> None:
        super().__init__()
        self.criterion = criterion
        self._figures: dict[str, float] = {}

    def prepare_network(self, network: FeatureClassifier) -> FeatureClassifier:
        network.head = self.criterion.prepare_head(network.head)
        return network

    def loss(self, output: Output, batch: Batch, context: Context) -> Tensor:
        return self.criterion(output.features, batch.targets, context.head, context.progress, output.logits)

    def on_epoch_end(self, context: Context) -> None:
        """Keep the mapped variances of the epoch for the log: of little cost, and gone when training is over."""
        if isinstance(self.criterion, StatisticsLoss):
            weight, _ = head_parameters(context.head)
            mapped = mean_mapped_variances(weight.detach(), self.criterion.statistics.moments())
            self._figures = {
                f"mapped_variance_{name}": value for name, value in mapped._asdict().items() if value is not None
            }

    def epoch_figures(self) -> Figures:
        return dict(self._figures)


# What a loss can do, but a training under one recipe leaves as it is.
NOT_CHOSEN = ("reduction", "ignore_index", "class_weight", "validate")


def method_names() -> list[str]:
    """All methods, losses included.

    >>> "icda" in method_names() and "cross_entropy" in method_names()
    True
    """
    return sorted({*METHODS, *LOSSES})


def resolve_method(name: str) -> str:
    """The registered name behind a name or alias such as "ce" or "la".

    >>> resolve_method("LA")
    'logit_adjustment'
    >>> resolve_method("idcda")
    Traceback (most recent call last):
    icda.registry.UnknownNameError: unknown method 'idcda': did you mean 'icda'? Known: ...
    """
    for registry in (METHODS, LOSSES):
        if name in registry:
            return registry.resolve(name)
    hint = did_you_mean(name, method_names())
    raise UnknownNameError(f"unknown method {name!r}: {hint}Known: {', '.join(method_names())}.")


def method_class(name: str) -> type[Any]:
    """The class behind a name: a Method, or a loss that becomes one."""
    name = resolve_method(name)
    return METHODS.get(name) if name in METHODS else LOSSES.get(name)  # type: ignore[return-value]


def method_type(name: str) -> type[Method]:
    """The Method behind a name; a loss is trained by LossMethod."""
    return method_class(name) if resolve_method(name) in METHODS else LossMethod


def method_needs(name: str) -> frozenset[str]:
    """What a task must have for a method, such as groups or metadata."""
    return method_type(name).needs


def num_networks(name: str) -> int:
    """How many networks a method trains."""
    return method_type(name).num_networks


def create_method(name: str, setup: Setup, options: Mapping[str, Any] | None = None) -> Method:
    """Make a method; an option it does not know is refused with the nearest one it does, and so is a wrong value.

    >>> import torch
    >>> setup = Setup(num_classes=3, feature_dim=4, class_counts=torch.ones(3), epochs=1, num_samples=3)
    >>> create_method("icda", setup, {"lambda0": 0.25}).criterion.lambda0
    0.25
    """
    cls, given = method_class(name), dict(options or {})
    check_names(given, option_names(cls), f"method {name!r}", "option")
    if not hasattr(cls.__init__, "checks_options"):  # a loss, or a method of somebody's own
        check(given, option_kinds(cls))
    if method_type(name) is LossMethod:
        return LossMethod(cls(setup.num_classes, setup.feature_dim, setup.class_counts, **given))
    made: Method = cls(setup, **given)
    return made


def option_names(cls: type[Any]) -> list[str]:
    """The options of a method or loss that can be written in a command: tensors and modules cannot."""
    return [name for name, kind in option_kinds(cls).items() if name not in NOT_CHOSEN and not _is_object(kind)]


def _is_object(kind: Any) -> bool:
    return any(isinstance(part, type) and issubclass(part, Tensor | nn.Module) for part in (kind, *get_args(kind)))
