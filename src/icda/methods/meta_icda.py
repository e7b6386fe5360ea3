"""Meta-ICDA: strengths and statistics learned on a small clean set."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from icda.cross_fit import HeldOut, fit_calibration
from icda.errors import InputError
from icda.functional.strength import Strength
from icda.losses.icda import ICDALoss
from icda.meta.characteristics import HISTORY_NAMES, NAMES, Characteristics, SampleHistory
from icda.meta.lookahead import Mode
from icda.meta.moments import assign, normalised, symmetrised, with_values
from icda.meta.strength_network import InputNorm, StrengthLog, StrengthNetwork, StrengthOutput
from icda.methods.base import METHODS, Batch, Context, Figures, Output, Setup, checked
from icda.methods.cross_fitted import read_earlier
from icda.methods.meta_learning import MetaLearner, Outer, step_along
from icda.methods.per_sample import Keeps, write_rows
from icda.ranges import NotNegative, PositiveInt, Share
from icda.statistics import Moments

HELD_OUT_NAMES = ("held_out_loss", "held_out_entropy")


class HeldOutFigures(NamedTuple):
    """-log p(y | x) and the entropy of p (N, 2), by networks blind to the sample, and the labels (N,) that were read."""

    values: Tensor
    targets: Tensor

    def rows(self, index: Tensor, targets: Tensor, otherwise: Tensor) -> Tensor:
        """The figures (n, 2) of the samples at `index`; `otherwise` (2,) of those that were not among the networks'."""
        index = index.cpu()
        place = index.clamp(max=len(self.targets) - 1)
        known = (index < len(self.targets)) & (self.targets[place] == targets.cpu())
        return torch.where(known[:, None], self.values[place].to(otherwise.device), otherwise)


def held_out_figures(held_out: HeldOut) -> HeldOutFigures:
    """From networks that learned the labels as they are, where there were any, else from those whose labels flipped."""
    logits = held_out.logits if held_out.unflipped is None else held_out.unflipped
    log_probabilities = fit_calibration(logits, held_out.targets).log_probabilities(logits)
    loss = -log_probabilities.gather(1, held_out.targets[:, None])[:, 0]
    entropy = -(log_probabilities.exp() * log_probabilities).sum(1)
    return HeldOutFigures(torch.stack([loss, entropy], 1), held_out.targets)


@METHODS.register("meta_icda")
class MetaICDAMethod(Keeps, MetaLearner):
    """ICDA with sample strengths and statistics learned on metadata.

    Each iteration tries a virtual SGD step on the ICDA loss, measures it on metadata, and steps the strength network
    (AdamW), which reads ten training characteristics of a sample, the class means and the covariances (SGD with
    `statistics_rate`) along the exact gradient; then the real step is taken with what was corrected. Corrected
    statistics serve one step, or stay for good with `persist` (covariances are then kept positive semidefinite). With
    `held_out`, the folder of a finished run of a method with cross-fitted networks on the same samples, the strength
    network also reads what those say of a sample they have not learned from; with `memory` its mean loss and margin over
    all epochs so far. `withdrawal` multiplies negative strengths. Options not listed are those of `ICDALoss`.

    Reference: section 4.2 and algorithm 1 of arXiv 2304.13431; mathematics 4.13 to 4.20.
    """

    inner_loss = ICDALoss
    criterion: ICDALoss
    saved = ("given", "optimizer")
    given: Tensor  # (N, 2) the strength each training sample was given in this epoch, and whether it was
    held_out_figures: HeldOutFigures | None  # of an earlier run, where its folder was given

    @checked
    def __init__(
        self,
        setup: Setup,
        *,
        lookahead: Mode = "full",
        every: PositiveInt = 1,
        start: Share = 0.0,
        meta_batch_size: PositiveInt | None = None,
        strength_rate: NotNegative = 1e-3,
        strength_decay: NotNegative = 1e-4,
        statistics_rate: NotNegative = 0.1,
        correct_statistics: bool = True,
        persist: bool = False,
        strength_output: StrengthOutput = "sigmoid",
        centre_strengths: bool = True,
        withdrawal: NotNegative = 1.0,
        memory: bool = False,
        held_out: str = "",
        criterion: ICDALoss | None = None,
        strength_network: StrengthNetwork | None = None,
        **options: Any,
    ) -> None:
        super().__init__(lookahead=lookahead, every=every, start=start, meta_batch_size=meta_batch_size)
        self.criterion = criterion or ICDALoss(setup.num_classes, setup.feature_dim, setup.class_counts, **options)
        if self.criterion.prior is not None:
            raise InputError(
                "Meta-ICDA reads its prior from the class counts: an ICDALoss with a table of attributes (prior=) needs "
                "the attributes of each batch, which its look-ahead does not have. Leave prior out, or use group_prior."
            )
        self.characteristics = Characteristics(setup.class_counts)
        self.history = SampleHistory(setup.num_samples) if memory else None
        self.held_out, self.held_out_figures = held_out, None
        self.strength_network = strength_network or StrengthNetwork(
            len(NAMES) + len(HISTORY_NAMES) * memory + len(HELD_OUT_NAMES) * bool(held_out),
            output=strength_output,
            centred=centre_strengths and strength_output != "sigmoid",
            withdrawal=withdrawal,
        )
        # Decoupled decay: inside Adam's normalised step it would outweigh a meta-gradient of order beta * eta / n.
        self.optimizer = torch.optim.AdamW(
            self.strength_network.parameters(), lr=strength_rate, weight_decay=strength_decay
        )
        self.statistics_rate, self.persist = statistics_rate, persist
        self._class_counts = setup.class_counts
        self.correct_statistics = correct_statistics and statistics_rate > 0
        self._corrected: Moments | None = None
        groups = 0 if setup.group_counts is None else len(setup.group_counts)
        self.log = StrengthLog(setup.num_classes, groups)
        self.keep("given", torch.zeros(setup.num_samples, 2))

    def observe(self, output: Output, batch: Batch, context: Context) -> None:
        self.criterion.statistics.update(output.features, batch.targets)
        self.characteristics.observe(output.logits, batch.targets)
        self._corrected = None

    def strength(self, output: Output, batch: Batch, context: Context) -> Strength:
        """alpha_{i,c} by angles, alpha_i by the network (by angles too until `start`); only the latter has a graph."""
        weight, features = context.head_weight.detach(), output.features.detach()
        direct = self.criterion.strength(features, batch.targets, weight)
        if context.progress < self.start:
            if self.strength_network.is_signed:  # beta belongs to the network's strengths, which start at 0
                return direct._replace(per_sample=torch.zeros_like(direct.per_sample))
            return direct
        described = self.describe(output.logits, features, batch.targets, weight, batch.index)
        return direct._replace(per_sample=self.strength_network(described, batch.targets).to(direct.per_class))

    def describe(self, logits: Tensor, features: Tensor, targets: Tensor, weight: Tensor, index: Tensor) -> Tensor:
        """What the strength network reads of samples (N, K); those no earlier network knows get the means of the rest."""
        described = self.characteristics(logits, features, targets, weight)
        if self.history is not None:
            described = torch.cat([described, self.history(logits, targets, index).to(described)], 1)
        if not self.held_out:
            return described
        norm = self.strength_network.layers[0]
        means = norm.running_mean[-len(HELD_OUT_NAMES) :] if isinstance(norm, InputNorm) else described.new_zeros(2)
        assert self.held_out_figures is not None, "they are read before training, and kept with the model"
        return torch.cat([described, self.held_out_figures.rows(index, targets, means).to(described)], 1)

    def before_training(self, folder: Path) -> None:
        if self.held_out:
            _, said = read_earlier(self.held_out, self._class_counts, option="held_out", own=folder)
            self.held_out_figures = held_out_figures(said)

    def outer(self, output: Output, batch: Batch, context: Context) -> Outer:
        strength = self.strength(output, batch, context)
        moments, leaves = self.criterion.statistics.moments(), list[Tensor]()
        if self.correct_statistics:
            leaves = [leaf.detach().clone().requires_grad_() for leaf in normalised(moments)]
            moments = with_values(moments, leaves)

        def inner(logits: Tensor, weight: Tensor) -> Tensor:
            return self._loss(logits, weight, batch.targets, context.progress, strength, moments)

        return Outer([*self.strength_network.parameters(), *leaves], inner)

    def correct(self, tensors: Sequence[Tensor], gradients: Sequence[Tensor], context: Context) -> None:
        count = len(list(self.strength_network.parameters()))
        step_along(self.optimizer, gradients[:count])
        if len(tensors) == count:
            return
        pairs = zip(tensors[count:], gradients[count:], strict=True)
        stepped = [(value - self.statistics_rate * gradient).detach() for value, gradient in pairs]
        self._corrected = symmetrised(with_values(self.criterion.statistics.moments(), stepped))
        if self.persist:
            assign(self.criterion.statistics, self._corrected)
            self._corrected = None

    def loss(self, output: Output, batch: Batch, context: Context) -> Tensor:
        weight = context.head_weight
        with torch.no_grad():
            strength = self.strength(output, batch, context)
        self.log.add(strength.per_sample, batch.targets, batch.groups)
        if len(self.given):  # in a loop of one's own samples have no numbers
            given = strength.per_sample
            write_rows(self.given, batch.index, torch.stack([given, torch.ones_like(given)], 1))
        if self.history is not None:
            self.history.observe(output.logits, batch.targets, batch.index)
        moments = self._corrected or self.criterion.statistics.moments()
        return self._loss(output.logits, weight, batch.targets, context.progress, strength, moments)

    def on_epoch_end(self, context: Context) -> None:
        self.characteristics.end_epoch()

    def epoch_figures(self) -> Figures:
        return self.log.take()

    def sample_figures(self) -> Mapping[str, Tensor]:
        """The strength each sample was given in the epoch that just ended; starts a new epoch."""
        (strengths, seen), self.given = self.given.T, torch.zeros_like(self.given)
        return {"strength": torch.where(seen > 0, strengths, torch.nan)} if len(seen) else {}

    def get_extra_state(self) -> dict[str, Any]:
        state, figures = super().get_extra_state(), self.held_out_figures
        return state if figures is None else {**state, "held_out_figures": figures._asdict()}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        super().set_extra_state(state)
        if self.given.shape[1] != 2:  # a row for strengths and one for whether, as earlier versions kept them
            self.given = self.given.T
        if "held_out_figures" in state:
            self.held_out_figures = HeldOutFigures(**state["held_out_figures"])

    def _loss(
        self, logits: Tensor, weight: Tensor, targets: Tensor, progress: float, strength: Strength, moments: Moments
    ) -> Tensor:
        adjustment = self.criterion.combine(targets, weight, progress, strength, moments)
        return F.cross_entropy(logits if adjustment is None else logits + adjustment, targets)
