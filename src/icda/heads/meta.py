"""Meta-ICDA on fixed features: sample strengths, class margins and the metadata's share, learned on metadata.

Every outer step fits heads to their optimum, judges them on metadata they have not seen, and follows the exact gradient
through the optimum (`icda.heads.implicit`). What the paper's look-ahead does with one step of SGD is done here with all of
them. Strengths as weights, margins of classes and metadata in the fit are ours and can be switched off.
"""

from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from icda.functional.grouping import LabelGroups
from icda.functional.strength import Strength, direct_strength
from icda.functional.tables import LogitMoments, icda_logits, icda_table, label_table
from icda.heads.cross_fit import cross_fitted_logits, folds_of_strata
from icda.heads.implicit import Optimum
from icda.heads.problem import LossSettings, Problem
from icda.heads.solver import LinearHead, fit_head
from icda.meta.characteristics import Characteristics
from icda.meta.strength_network import StrengthNetwork, StrengthOutput

StrengthsAs = Literal["weights", "margins"]
ROUNDS = 2  # fits with strengths after the first without
FLOOR = 0.01  # added to strengths that are weights: no sample counts a hundred times less than another of its class


@dataclass(frozen=True)
class MetaSettings:
    """What is learned on metadata, and for how long."""

    strengths_as: StrengthsAs = "margins"  # the paper's: beta * alpha_i is added to the other classes
    strength_output: StrengthOutput = "sigmoid"  # "tanh" and "linear" have a sign: a sample can be withdrawn
    use_metadata: bool = True  # heads are fitted to metadata too, but never judged on what they were fitted to
    class_margins: bool = True
    steps: int = 30
    rate: float = 0.05  # of margins and share
    network_rate: float = 0.01
    folds: int = 2
    temperature: float = 0.5  # of the soft maximum over groups; large is their mean
    max_iter: int = 10  # of the heads on the way, each of which starts from the one before
    tol: float = 1e-3
    last_max_iter: int = 200
    last_tol: float = 1e-4
    seed: int = 0


@dataclass
class MetaHead:
    """The head, and what was learned on the way."""

    head: LinearHead
    strengths: Tensor  # (N,) alpha_i of the training samples
    margins: Tensor  # (C,)
    share: float  # of the metadata in the fit
    metadata_logits: Tensor  # (M, C), each by a head that was not fitted to that sample
    outer_losses: list[float] = field(default_factory=list)


class MetaVariables(nn.Module):
    """theta: the strength network, a margin for each class, and the metadata's share of the fit."""

    def __init__(self, problem: Problem, num_metadata: int, settings: MetaSettings) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(settings.seed)
            self.network = StrengthNetwork(normalise_inputs=False, output=settings.strength_output)
        self.margins = nn.Parameter(torch.zeros(problem.num_classes), requires_grad=settings.class_margins)
        share = torch.tensor(num_metadata / (num_metadata + len(problem.targets)))
        self.share_logit = nn.Parameter(torch.logit(share), requires_grad=settings.use_metadata)
        self.log_scale = nn.Parameter(torch.zeros(()))
        self.described: Tensor = describe(problem, settings)
        self.settings, self.targets = settings, problem.targets
        self.own_weights = problem.weights

    @property
    def share(self) -> Tensor:
        return torch.sigmoid(self.share_logit) if self.settings.use_metadata else torch.zeros(())

    def strengths(self) -> Tensor:
        return self.network(self.described, self.targets)

    def training_weights(self, strengths: Tensor) -> Tensor:
        """Weights (N,) of sum one: each class the same mass, within it by strength if strengths are weights."""
        inside = self.own_weights.to(strengths)
        if self.settings.strengths_as == "weights":
            inside = inside * (strengths + FLOOR)
            masses = torch.zeros(int(self.targets.max()) + 1).index_add(0, self.targets, inside)
            return inside / (masses * len(masses))[self.targets]
        return inside / inside.sum()


@torch.no_grad()
def describe(problem: Problem, settings: MetaSettings) -> Tensor:
    """The ten characteristics (N, 10) under heads that have not seen the sample, standardised."""
    balanced = problem.targets
    logits = cross_fitted_logits(problem, LossSettings("la"), balanced, seed=settings.seed, max_iter=settings.max_iter)
    head = fit_head(problem, LossSettings("la"), settings.max_iter, settings.tol)
    characteristics = Characteristics(problem.class_counts)
    characteristics.observe(logits, problem.targets)
    characteristics.end_epoch()
    rows = characteristics(logits, problem.features, problem.targets, head.weight).float()
    return (rows - rows.mean(0)) / rows.std(0).clamp(min=1e-6)


def fit_meta_head(
    problem: Problem, metadata: Problem, labels: Tensor, loss: LossSettings, settings: MetaSettings
) -> MetaHead:
    """Learn theta on `metadata`, whose `labels` (M,) say what counts equally there: classes, or classes and groups."""
    outer = MetaVariables(problem, len(labels), settings)
    optimizer = torch.optim.Adam(
        [
            {"params": outer.network.parameters(), "lr": settings.network_rate},
            {"params": [outer.margins, outer.share_logit, outer.log_scale], "lr": settings.rate},
        ]
    )
    fold = folds_of_strata(labels, settings.folds, settings.seed)
    folds = [_Fold(problem, metadata, fold != k, fold == k, labels, settings) for k in range(settings.folds)]
    losses = []
    for _ in range(settings.steps):
        optimizer.zero_grad()
        losses.append(sum(part.backward(outer, loss) for part in folds) / len(folds))
        optimizer.step()
    judged = torch.zeros(len(labels), problem.num_classes, dtype=problem.features.dtype)
    for part in folds:
        judged[part.judging] = part.fit(outer, loss).logits(part.judged)
    everything = torch.ones_like(fold, dtype=torch.bool)
    last = _Fold(problem, metadata, everything, everything, labels, settings)
    head = last.fit(outer, loss, last=True)
    strengths = outer.strengths().detach()
    return MetaHead(head, strengths, outer.margins.detach(), float(outer.share.detach()), judged, losses)


class _Fold:
    """Training data with part of the metadata to fit, and another part of the metadata to judge."""

    def __init__(
        self,
        problem: Problem,
        metadata: Problem,
        fitting: Tensor,
        judging: Tensor,
        labels: Tensor,
        settings: MetaSettings,
    ) -> None:
        self.problem, self.settings, self.judging = problem, settings, judging
        training, trusted = problem.features, metadata.features
        assert isinstance(training, Tensor)
        assert isinstance(trusted, Tensor)
        self.judged, self.judged_targets = trusted[judging], metadata.targets[judging]
        self.judged_labels = torch.unique(labels[judging], return_inverse=True)[1]
        self.features, self.targets = training, problem.targets
        self.metadata_weights = torch.zeros(0)
        if settings.use_metadata:
            self.features = torch.cat([training, trusted[fitting]])
            self.targets = torch.cat([problem.targets, metadata.targets[fitting]])
            dense = torch.unique(labels[fitting], return_inverse=True)[1]
            counts = torch.bincount(dense).double()
            self.metadata_weights = (1 / (len(counts) * counts[dense])).float()
        self.groups = LabelGroups.of(self.targets, problem.num_classes)
        self.log_prior = problem.log_prior
        if self.log_prior is not None:  # metadata are balanced by their weights: their prior is even
            if settings.strengths_as == "weights":  # which give every class the same mass: it must not be counted twice
                self.log_prior = self.log_prior - problem.class_counts.log().to(self.log_prior)
            rest = len(self.targets) - len(problem.targets)
            self.log_prior = torch.cat([self.log_prior, self.log_prior.new_zeros(rest, problem.num_classes)])
        self.head: LinearHead | None = None

    @torch.no_grad()
    def fit(self, outer: MetaVariables, loss: LossSettings, last: bool = False) -> LinearHead:
        """The head at theta's optimum; the next fit starts from here."""
        settings = self.settings
        max_iter, tol = (settings.last_max_iter, settings.last_tol) if last else (settings.max_iter, settings.tol)
        # Angles are read off a head, so that the learned strengths come in with the second one.
        for _ in range(1 + ROUNDS if self.head is None else 1):
            self.head = fit_head(self._problem(outer), loss, max_iter, tol, rounds=1, start=self.head)
        assert self.head is not None
        return self.head

    def backward(self, outer: MetaVariables, loss: LossSettings) -> float:
        """Add the outer loss's gradient in theta; returns the loss."""
        head = self.fit(outer, loss)
        problem = self._problem(outer)
        optimum = Optimum(self.features, head, problem.decay, lambda z, b: mean_loss(problem, loss, self.groups, z, b))
        weight, bias = head.weight.clone().requires_grad_(), head.bias.clone().requires_grad_()
        value = self._outer_loss(outer.log_scale.exp() * F.linear(self.judged, weight, bias))
        *slope, to_scale = torch.autograd.grad(value, (weight, bias, outer.log_scale))
        outer.log_scale.grad = to_scale if outer.log_scale.grad is None else outer.log_scale.grad + to_scale
        optimum.response(optimum.solve((slope[0], slope[1]))).backward()
        return float(value.detach())

    def _problem(self, outer: MetaVariables) -> Problem:
        alpha = outer.strengths()
        share = outer.share
        training, total = outer.training_weights(alpha), len(self.targets)
        weights = torch.cat([(1 - share) * training, share * self.metadata_weights]) * total
        weights = weights.to(self.features)
        counts = torch.bincount(self.targets, weights.detach().double(), minlength=self.problem.num_classes)
        strength = None
        if self.head is not None:
            strength = direct_strength(self.features, self.targets, self.head.weight)
            if self.settings.strengths_as == "margins":
                per_sample = torch.cat([alpha.to(self.features), strength.per_sample[len(alpha) :]])
                strength = Strength(strength.per_class, per_sample)
        return replace(
            self.problem,
            features=self.features,
            targets=self.targets,
            weights=weights,
            statistics_weights=weights.detach(),
            class_counts=counts,
            strength=strength,
            log_prior=self.log_prior,
            margins=outer.margins.to(self.features),
        )

    def _outer_loss(self, logits: Tensor) -> Tensor:
        """A soft maximum of the mean losses of the judged labels."""
        each = F.cross_entropy(logits, self.judged_targets, reduction="none")
        counts = torch.bincount(self.judged_labels)
        means = torch.zeros(len(counts), dtype=each.dtype).index_add(0, self.judged_labels, each) / counts
        warmth = self.settings.temperature
        return warmth * (torch.logsumexp(means / warmth, 0) - torch.log(torch.tensor(float(len(counts)))))


def mean_loss(problem: Problem, loss: LossSettings, groups: LabelGroups, plain: Tensor, bias: Tensor) -> Tensor:
    adjusted = plain + bias + problem.constants(loss.name)
    if loss.name == "icda":
        assert problem.strength is not None
        table = icda_table(LogitMoments.of(plain, groups, problem.statistics_weights), loss.lam)
        adjusted = adjusted + icda_logits(table, groups, problem.strength, loss.beta)
    elif loss.name == "isda":
        moments = LogitMoments.of(plain, groups, problem.statistics_weights)
        adjusted = adjusted + label_table(moments, loss.lam)[problem.targets]
    if problem.added is not None:
        adjusted = adjusted + problem.added
    losses = F.cross_entropy(adjusted, problem.targets, reduction="none")
    return (problem.weights * losses).sum() / problem.weights.sum()
