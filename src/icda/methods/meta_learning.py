"""Learning on metadata: look ahead, correct the outer variables, take the real step; Meta-Weight-Net, MetaSAug and LSDA."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from icda.data.task import rows_of
from icda.errors import InputTypeError
from icda.functional.class_balance import effective_number_weights
from icda.functional.quadratic import sample_variance_form
from icda.losses.isda import ISDALoss
from icda.meta import Forward, MetaGradient, look_ahead
from icda.meta.lookahead import InnerLoss, Mode
from icda.meta.moments import normalised, symmetrised, with_values
from icda.meta.strength_network import StrengthLog, StrengthNetwork
from icda.methods.base import METHODS, Batch, Context, Figures, Inputs, Method, Output, Setup, StepResult, checked
from icda.methods.per_sample import weighted_mean
from icda.ranges import NotNegative, PositiveInt, Share, ShareBelowOne
from icda.statistics import Moments


class Outer(NamedTuple):
    """An inner loss and the tensors it is to be corrected in."""

    tensors: Sequence[Tensor]
    inner: InnerLoss


class MetaLearner(Method):
    """Algorithm 1 of arXiv 2304.13431 as a template: a subclass says what is learned on metadata, and how.

    `start` is the share of training before which the method trains without looking ahead; `every` looks ahead at each
    k-th iteration only. `meta_batch_size` is how many samples of metadata a step looks at, over all processes; by default
    as many as are trained on.
    """

    needs = frozenset({"metadata"})

    def __init__(
        self,
        *,
        lookahead: Mode = "full",
        every: PositiveInt = 1,
        start: Share = 0.0,
        meta_batch_size: PositiveInt | None = None,
    ) -> None:
        super().__init__()
        self.lookahead, self.every, self.start = lookahead, every, start
        self.meta_batch_size = meta_batch_size

    def observe(self, output: Output, batch: Batch, context: Context) -> None:
        """Fold the batch into whatever the method keeps, before anything is computed from it."""

    def outer(self, output: Output, batch: Batch, context: Context) -> Outer:
        """The inner loss of this batch and the tensors to correct."""
        raise InputTypeError(f"{type(self).__name__} does not define outer().")

    def correct(self, tensors: Sequence[Tensor], gradients: Sequence[Tensor], context: Context) -> None:
        """Step the tensors along their meta-gradients."""
        raise InputTypeError(f"{type(self).__name__} does not define correct().")

    def looks_ahead(self, context: Context) -> bool:
        return context.progress >= self.start and context.iteration % self.every == 0

    def step(self, batch: Batch, context: Context) -> StepResult:
        looks_ahead = self.looks_ahead(context)
        forward = Forward.of(context.network, batch.inputs, record=looks_ahead and self.lookahead != "head")
        output: Any = forward.output
        with torch.autocast(output.logits.device.type, enabled=False):  # it is for the network's passes alone
            self.observe(output, batch, context)
            extra = {}
            if looks_ahead:
                extra["meta_loss"] = self.meta_step(forward, batch, context)
            del forward  # the real backward pass lets go of activations layer by layer
            loss = self.loss(output, batch, context)
        context.apply(loss)
        return StepResult(loss.detach(), output.logits.detach(), extra)

    def meta_step(self, forward: Forward, batch: Batch, context: Context) -> float:
        """One look ahead on a batch of metadata; returns the metadata loss after the virtual step."""
        assert context.next_metadata is not None
        metadata = context.next_metadata()
        outer = self.outer(forward.output, batch, context)  # type: ignore[arg-type]
        ahead = self.look(forward, outer, metadata.inputs, metadata.targets, context)
        self.correct(outer.tensors, ahead.gradients, context)
        return float(ahead.meta_loss)

    def look(self, forward: Forward, outer: Outer, inputs: Inputs, targets: Tensor, context: Context) -> MetaGradient:
        """Gradients of the loss on some samples after a virtual step of the first network."""
        given = (outer.inner, outer.tensors, inputs, targets, context.learning_rate, self.lookahead)
        return look_ahead(context.models[0], forward, *given)


class OptimizerState(nn.Module):
    """A module whose optimisers are part of its state; `kept_optimizers` says under which names."""

    kept_optimizers: ClassVar[tuple[tuple[str, str], ...]] = (
        ("optimizer", "optimizer"),
    )  # name in the state, attribute

    def get_extra_state(self) -> dict[str, Any]:
        return {name: getattr(self, attribute).state_dict() for name, attribute in self.kept_optimizers}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        for name, attribute in self.kept_optimizers:
            getattr(self, attribute).load_state_dict(state[name])


def step_along(optimizer: torch.optim.Optimizer, gradients: Sequence[Tensor]) -> None:
    """An optimiser step with given gradients of its parameters, in their order."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient.detach().to(parameter)
    optimizer.step()
    optimizer.zero_grad()


RECIPES: dict[str, tuple[type[torch.optim.Optimizer], dict[str, Any]]] = {
    "noise": (torch.optim.Adam, {"lr": 1e-3, "weight_decay": 1e-4}),
    "long_tail": (torch.optim.SGD, {"lr": 1e-5, "weight_decay": 5e-4, "momentum": 0.9, "nesterov": True}),
}


@METHODS.register("meta_weight_net", "mwn")
class MetaWeightNet(OptimizerState, MetaLearner):
    """Weight samples by a small network that reads each loss, learned on metadata.

    w_i = sigmoid(MLP(l_i)); the network learns on metadata through a virtual SGD step. With `normalise` the weights of a
    batch are scaled to a mean of one. The authors published two recipes. "noise": l_i is detached, and the network learns
    by Adam, 1e-3. "long_tail": l_i is not detached in the virtual step, weights are always normalised, and the network
    learns by SGD, 1e-5, with Nesterov momentum 0.9. `weight_rate` and `weight_decay` are the recipe's where not given.

    Reference: Shu et al., "Meta-Weight-Net: learning an explicit mapping for sample weighting", NeurIPS 2019.
    Differs from the original in the meta-gradient, which is exact here too but needs no double backward.
    """

    @checked
    def __init__(
        self,
        setup: Setup,
        *,
        hidden: PositiveInt = 100,
        recipe: Literal["noise", "long_tail"] = "noise",
        weight_rate: NotNegative | None = None,
        weight_decay: NotNegative | None = None,
        normalise: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.weight_network = StrengthNetwork(1, hidden, layers=1, normalise_inputs=False)
        given = {"lr": weight_rate, "weight_decay": weight_decay}
        kind, usual = RECIPES[recipe]
        settings = {**usual, **{name: value for name, value in given.items() if value is not None}}
        self.optimizer = kind(self.weight_network.parameters(), **settings)
        self.recipe, self.normalise = recipe, normalise or recipe == "long_tail"
        self.log = StrengthLog(setup.num_classes, 0 if setup.group_counts is None else len(setup.group_counts))

    def weights(self, losses: Tensor) -> Tensor:
        """Weights (N,) of samples; where `losses` carry a gradient, so do the weights."""
        weights = self.weight_network(losses[:, None])
        return weights * len(weights) / weights.sum().clamp(min=1e-12) if self.normalise else weights

    def outer(self, output: Output, batch: Batch, context: Context) -> Outer:
        now = F.cross_entropy(output.logits, batch.targets, reduction="none").detach()

        def inner(logits: Tensor, weight: Tensor) -> Tensor:
            losses = F.cross_entropy(logits, batch.targets, reduction="none")
            return (self.weights(losses if self.recipe == "long_tail" else now) * losses).mean()

        return Outer(list(self.weight_network.parameters()), inner)

    def correct(self, tensors: Sequence[Tensor], gradients: Sequence[Tensor], context: Context) -> None:
        step_along(self.optimizer, gradients)

    def loss(self, output: Output, batch: Batch, context: Context) -> Tensor:
        losses = F.cross_entropy(output.logits, batch.targets, reduction="none")
        if context.progress < self.start:
            return losses.mean()
        weights = self.weights(losses.detach()).detach()
        self.log.add(weights, batch.targets, batch.groups)
        return (weights * losses).mean()

    def epoch_figures(self) -> Figures:
        return {name.replace("strength", "weight"): value for name, value in self.log.take().items()}


@METHODS.register("metasaug")
class MetaSAug(MetaLearner):
    """Class-balanced ISDA with covariances corrected on metadata, after a first part of plain training.

    Until `start` (four fifths of training, as published) it is cross entropy and keeps no statistics; then each iteration
    steps the covariances along the exact meta-gradient and uses them for that iteration. Class weights are those of the
    effective number of samples, in a weighted mean: rare classes count more, and the step is no smaller for it.
    Options not listed here are those of `ISDALoss`.

    Reference: Li et al., "MetaSAug: meta semantic augmentation for long-tailed visual recognition", CVPR 2021. Differs
    from the official code in merging the batch's statistics before the loss, and in reporting no best test epoch.
    """

    inner_loss = ISDALoss
    criterion: ISDALoss
    weights: Tensor

    @checked
    def __init__(
        self,
        setup: Setup,
        *,
        lookahead: Mode = "full",
        every: PositiveInt = 1,
        start: Share = 0.8,
        meta_batch_size: PositiveInt | None = None,
        statistics_rate: NotNegative = 0.1,
        effective_beta: ShareBelowOne = 0.9999,
        **options: Any,
    ) -> None:
        super().__init__(lookahead=lookahead, every=every, start=start, meta_batch_size=meta_batch_size)
        self.criterion = ISDALoss(setup.num_classes, setup.feature_dim, setup.class_counts, **options)
        self.statistics_rate = statistics_rate
        self.register_buffer("weights", effective_number_weights(setup.class_counts, effective_beta))
        self._corrected: Moments | None = None

    def observe(self, output: Output, batch: Batch, context: Context) -> None:
        self._corrected = None
        if context.progress >= self.start:
            self.criterion.statistics.update(output.features, batch.targets)

    def outer(self, output: Output, batch: Batch, context: Context) -> Outer:
        running = self.criterion.statistics.moments()
        mean, *parts = normalised(running)
        leaves = [part.detach().clone().requires_grad_() for part in parts]
        moments = with_values(running, [mean, *leaves])

        def inner(logits: Tensor, weight: Tensor) -> Tensor:
            return self._loss(logits, weight, batch.targets, context.progress, moments)

        return Outer(leaves, inner)

    def correct(self, tensors: Sequence[Tensor], gradients: Sequence[Tensor], context: Context) -> None:
        running = self.criterion.statistics.moments()
        stepped = [(t - self.statistics_rate * g).detach() for t, g in zip(tensors, gradients, strict=True)]
        self._corrected = symmetrised(with_values(running, [running.mean, *stepped]))

    def loss(self, output: Output, batch: Batch, context: Context) -> Tensor:
        if context.progress < self.start:
            return F.cross_entropy(output.logits, batch.targets)
        weight = context.head_weight
        moments = self._corrected or self.criterion.statistics.moments()
        return self._loss(output.logits, weight, batch.targets, context.progress, moments)

    def _loss(self, logits: Tensor, weight: Tensor, targets: Tensor, progress: float, moments: Moments) -> Tensor:
        adjustment = self.criterion.own_variance(targets, weight, progress, moments)
        adjusted = logits if adjustment is None else logits + adjustment
        losses = F.cross_entropy(adjusted, targets, reduction="none")
        return weighted_mean(losses, self.weights.to(losses)[targets])


@METHODS.register("lsda", "learnable_isda")
class LSDA(MetaLearner):
    """ISDA with a learned variance for every sample.

    The loss is the cross entropy of z_c + (lambda/2) d_c^T diag(v_i) d_c with v_i = sigmoid(MLP(h_i)).
    The network learns without metadata: a batch is cut in halves, and each serves as the other's metadata.

    Reference: Pu et al., "Fine-grained recognition with learnable semantic data augmentation", TIP 2024. Differs from the
    original in the virtual step, which is plain SGD (theirs replays momentum), and in lambda0: 10 there, for CUB.
    """

    needs = frozenset[str]()

    @checked
    def __init__(
        self,
        setup: Setup,
        *,
        lookahead: Mode = "full",
        every: PositiveInt = 1,
        start: Share = 0.0,
        lambda0: NotNegative = 0.5,
        hidden: PositiveInt = 512,
        covariance_rate: NotNegative = 1e-3,
    ) -> None:
        super().__init__(lookahead=lookahead, every=every, start=start)
        self.lambda0 = lambda0
        self.covariance_network = nn.Sequential(
            nn.Linear(setup.feature_dim, hidden), nn.ReLU(), nn.Linear(hidden, setup.feature_dim), nn.Sigmoid()
        )
        self.optimizer = torch.optim.SGD(self.covariance_network.parameters(), lr=covariance_rate)

    def outer(self, output: Output, batch: Batch, context: Context, rows: slice = slice(None)) -> Outer:
        variances = self.covariance_network(output.features.detach()[rows])

        def inner(logits: Tensor, weight: Tensor) -> Tensor:
            return self._loss(logits[rows], weight, batch.targets[rows], context.progress, variances)

        return Outer(list(self.covariance_network.parameters()), inner)

    def meta_step(self, forward: Forward, batch: Batch, context: Context) -> float:
        half = batch.num_samples // 2
        parts = (slice(0, half), slice(half, None))
        gradients, losses = [], []
        for rows, others in (parts, parts[::-1]):
            outer = self.outer(forward.output, batch, context, rows)  # type: ignore[arg-type]
            ahead = self.look(forward, outer, rows_of(batch.inputs, others), batch.targets[others], context)
            gradients.append(ahead.gradients)
            losses.append(float(ahead.meta_loss))
        self.correct(outer.tensors, [0.5 * (a + b) for a, b in zip(*gradients, strict=True)], context)
        return sum(losses) / 2

    def correct(self, tensors: Sequence[Tensor], gradients: Sequence[Tensor], context: Context) -> None:
        step_along(self.optimizer, gradients)

    def loss(self, output: Output, batch: Batch, context: Context) -> Tensor:
        weight = context.head_weight
        with torch.no_grad():
            variances = self.covariance_network(output.features.detach())
        return self._loss(output.logits, weight, batch.targets, context.progress, variances)

    def _loss(self, logits: Tensor, weight: Tensor, targets: Tensor, progress: float, variances: Tensor) -> Tensor:
        form = sample_variance_form(weight, targets, variances.to(weight))
        return F.cross_entropy(logits + 0.5 * self.lambda0 * progress * form, targets)
