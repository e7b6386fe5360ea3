"""Methods against wrong labels: ELR, the loss mixture and truncated Lq remember each sample, L_DMI takes a determinant."""

from __future__ import annotations

import math
import warnings

import torch
from torch import Tensor
from torch.nn import functional as F

from icda.errors import InputError
from icda.losses.generalized_cross_entropy import generalized_cross_entropy
from icda.methods.base import METHODS, Batch, Context, Figures, Method, Output, Setup, Stage, StepResult, checked
from icda.methods.per_sample import PerSample, label_probability, over_training_set, rows, write_rows
from icda.ranges import NotNegative, OpenShare, Positive, PositiveInt, Share, ShareBelowOne
from icda.ranks import all_reduce

LEAST = 1e-4  # probabilities are kept this far from 0 and 1, so that the logarithm stays finite


@METHODS.register("elr", "early_learning_regularisation")
class ELR(PerSample, Method):
    """Cross entropy plus a term that keeps predictions near their own running mean, against memorised labels.

    The loss is CE + weight log(1 - <p_i, t_i>), with t_i the running mean of the predictions p_i:
    t_i <- momentum t_i + (1 - momentum) p_i at each visit, before the loss is computed. The regulariser's gradient pulls p
    back to t where cross entropy pulls it to a label that it has never believed: wrong labels are memorised late, and by
    then t says otherwise. No rate is needed. The running means are part of the state.

    Reference: Liu et al., "Early-learning regularization prevents memorization of noisy labels", NeurIPS 2020.
    """

    per_sample = ("means",)
    means: Tensor  # (N, C)

    @checked
    def __init__(self, setup: Setup, *, weight: NotNegative = 3.0, momentum: ShareBelowOne = 0.7) -> None:
        super().__init__()
        self.weight, self.momentum = weight, momentum
        self.keep("means", torch.zeros(setup.num_samples, setup.num_classes))

    def loss(self, output: Output, batch: Batch, context: Context) -> Tensor:
        probabilities = output.logits.float().softmax(1).clamp(LEAST, 1 - LEAST)
        means = self._update(batch.index, probabilities.detach())
        agreement = (probabilities * means.to(probabilities)).sum(1)
        return F.cross_entropy(output.logits, batch.targets) + self.weight * torch.log(1 - agreement).mean()

    def _update(self, index: Tensor, probabilities: Tensor) -> Tensor:
        """The running means of the batch with what was just said; those of all ranks are kept."""
        index = index.to(self.means.device)
        share = probabilities / probabilities.sum(1, keepdim=True)
        means = self.momentum * self.means[index] + (1 - self.momentum) * share.to(self.means)
        write_rows(self.means, index, means)
        return means


ROUNDS, SAME, LEAST_VARIANCE = 100, 1e-6, 1e-4


@METHODS.register("loss_mixture", "dynamic_bootstrapping")
class LossMixture(PerSample, Method):
    """Split losses into clean and noisy by a mixture model, and replace labels that look wrong by predictions.

    The loss is w CE(y) + (1 - w) CE(prediction), w the probability that a sample's loss is of the lower component.
    Until `start` of the epochs are over this is cross entropy. Then each epoch begins with a pass over the training set in
    evaluation mode, and a mixture of two normal distributions is fitted to the losses, scaled to [0, 1]: networks learn
    right labels first, so that wrong ones form the upper component. No rate is needed.

    Reference: Arazo et al., "Unsupervised label noise modeling and loss correction", ICML 2019 (hard dynamic
    bootstrapping, with beta distributions); normal ones as in Li et al., "DivideMix", ICLR 2020. Differs from both in
    leaving mixup and semi-supervised training out.
    """

    per_sample = ("clean",)
    clean: Tensor  # (N,) probability that a label is right

    @checked
    def __init__(self, setup: Setup, *, start: Share = 0.1) -> None:
        super().__init__()
        self.first_epoch = max(1, round(start * setup.epochs))
        self.keep("clean", torch.ones(setup.num_samples))

    def on_epoch_start(self, context: Context) -> None:
        if context.epoch >= self.first_epoch:
            losses, _ = over_training_set(context, self.clean, _losses)
            self.clean.copy_(lower_component(losses))

    def loss(self, output: Output, batch: Batch, context: Context) -> Tensor:
        given = F.cross_entropy(output.logits, batch.targets, reduction="none")
        own = F.cross_entropy(output.logits, output.logits.detach().argmax(1), reduction="none")
        trust = rows(self.clean, batch, given)
        return (trust * given + (1 - trust) * own).mean()

    def epoch_figures(self) -> Figures:
        return {"label_trust": float(self.clean.double().mean())}


def _losses(output: Output, batch: Batch) -> Tensor:
    return F.cross_entropy(output.logits.float(), batch.targets, reduction="none")


def lower_component(losses: Tensor) -> Tensor:
    """Probability (N,) of each loss to come from the lower of two normal distributions fitted to all (EM).

    Losses that are all alike belong to the lower one.
    """
    values = losses.double()
    low, high = values.min(), values.max()
    if not high > low:
        return torch.ones_like(losses)
    values = ((values - low) / (high - low))[:, None]
    means = torch.tensor([0.0, 1.0], dtype=torch.double, device=values.device)
    variances, shares = torch.full_like(means, float(values.var(correction=0))), torch.full_like(means, 0.5)
    posterior = torch.zeros(len(values), 2, dtype=torch.double, device=values.device)
    for _ in range(ROUNDS):
        before = means
        scores = shares.log() - 0.5 * variances.log() - (values - means).square() / (2 * variances)
        posterior = scores.softmax(1)
        mass = posterior.sum(0).clamp(min=1e-12)
        means = (posterior * values).sum(0) / mass
        variances = (posterior * (values - means).square()).sum(0) / mass + LEAST_VARIANCE
        shares = mass / mass.sum()
        if (means - before).abs().max() < SAME:
            break
    return posterior[:, int(means.argmin())].to(losses)


@METHODS.register("truncated_lq", "truncated_gce")
class TruncatedLq(PerSample, Method):
    """Generalized cross entropy that drops samples whose label has a probability below `threshold`.

    The loss is (1 - p_y^q) / q, and a constant, without gradient, for dropped samples.
    Which samples those are is found by a pass over the training set, first when `start` of the epochs are over (the paper's
    40 of 120) and again every `refresh` epochs; a sample may come back. Until then all count. The choice is part of the
    state. If no sample passes, all are kept until the next pass, and a warning says so.

    Reference: Zhang and Sabuncu, NeurIPS 2018, section 3.3. Differs from the public code in that the pass uses the network
    as it is, not the one that was best so far on validation data.
    """

    per_sample = ("kept",)
    kept: Tensor

    @checked
    def __init__(
        self,
        setup: Setup,
        *,
        q: Share = 0.7,
        threshold: OpenShare = 0.5,
        start: Share = 1 / 3,
        refresh: PositiveInt = 10,
    ) -> None:
        super().__init__()
        self.q, self.threshold, self.start, self.refresh = q, threshold, start, refresh
        self._first_epoch = round(start * setup.epochs)
        self.keep("kept", torch.ones(setup.num_samples, dtype=torch.bool))

    def is_pass_due(self, epoch: int) -> bool:
        """Whether an epoch starts with a new choice of samples."""
        return epoch >= self._first_epoch and (epoch - self._first_epoch) % self.refresh == 0

    def on_epoch_start(self, context: Context) -> None:
        if not self.is_pass_due(context.epoch):
            return
        probabilities, _ = over_training_set(context, self.kept.double(), label_probability)
        kept = probabilities >= self.threshold
        if not kept.any():
            warnings.warn(
                f"truncated_lq: no training sample reaches p_y >= {self.threshold} in epoch {context.epoch + 1}, so all "
                "are kept until the next pass. A later start or a lower threshold lets the truncation begin.",
                stacklevel=2,
            )
            kept = torch.ones_like(kept)
        self.kept.copy_(kept)

    def loss(self, output: Output, batch: Batch, context: Context) -> Tensor:
        losses = generalized_cross_entropy(output.logits, batch.targets, self.q)
        given_up = _lq_at(self.threshold, self.q)
        return torch.where(self.kept[batch.index.to(self.kept.device)], losses, given_up).mean()

    def epoch_figures(self) -> Figures:
        return {"kept_share": float(self.kept.double().mean())}


def _lq_at(probability: float, q: float) -> float:
    """The loss of a sample with p_y = probability."""
    logits = torch.tensor([[probability, 1 - probability]], dtype=torch.float64).log()
    return float(generalized_cross_entropy(logits, torch.tensor([0]), q))


FEW = 10  # samples of a class in a batch
FLOOR = 1e-3  # added to the determinant, as published
PUBLISHED_RATE, PUBLISHED_STEPS, PUBLISHED_BATCH = 1e-6, 39_000, 128  # of the second stage: 100 epochs of CIFAR-10


def determinant_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """-log(|det(Y^T P)| + 1e-3) of a batch, Y (N, C) one-hot labels and P (N, C) softmax.

    Labels that were corrupted by any fixed transition T turn Y^T P into T^T Y^T P: the loss moves by -log|det T|, a
    constant. A batch that lacks a class has determinant zero and no gradient. The determinant is taken in logarithms,
    for N/C to the power of C overflows.
    """
    probabilities = logits.to(torch.promote_types(logits.dtype, torch.float32)).softmax(1)
    joint = F.one_hot(targets, logits.shape[1]).to(probabilities).T @ probabilities
    size = torch.linalg.slogdet(joint).logabsdet
    if not torch.isfinite(size):  # singular: what is left is the floor, and slogdet's gradient would be infinite
        return probabilities.sum() * 0 - math.log(FLOOR)
    return -torch.logaddexp(size, size.new_tensor(math.log(FLOOR)))


@METHODS.register("ldmi", "l_dmi")
class LDMI(Method):
    """Cross entropy first, then a determinant-based loss that class-dependent label noise does not change.

    The second loss is -log|det(Y^T P)|, with Y the one-hot labels and P the softmax of a batch.
    The determinant says how much labels and answers share, not which answer is which class, so it can only refine a
    network that has learned the classes: `first_stage` is the share of epochs spent on cross entropy, with a whole
    learning-rate schedule of its own. Then optimiser and schedule start again from `second_rate`; if it is not given,
    rate times steps is as published, 1e-6 times 39,000. Only full batches are learned from in the second stage; a
    batch needs many samples of every class.

    Reference: Xu et al., "L_DMI: a novel information-theoretic loss function for training deep nets robust to label
    noise", NeurIPS 2019. Differs from the official code in following the configuration's schedule in the second stage
    (theirs stays at 1e-6 for 100 epochs) and in selecting no epoch by noisy validation accuracy.
    """

    @checked
    def __init__(self, setup: Setup, *, first_stage: OpenShare = 0.5, second_rate: Positive | None = None) -> None:
        super().__init__()
        if setup.batch_size is not None and setup.batch_size < setup.num_classes:
            raise InputError(
                f"LDMI needs every class in a batch, and many samples of each: a batch of {setup.batch_size} cannot hold "
                f"{setup.num_classes} classes. Raise --batch-size to several times the number of classes."
            )
        if setup.batch_size is not None and setup.batch_size < FEW * setup.num_classes:
            warnings.warn(
                f"LDMI: a batch of {setup.batch_size} has fewer than {FEW} samples of each of {setup.num_classes} classes. "
                "Its determinant is often near zero, where the gradient is huge, or zero, where there is none: raise "
                "--batch-size, or at least set --clip-norm.",
                stacklevel=2,
            )
        self.first_stage, self.second_rate = first_stage, second_rate
        self.full_batch = setup.batch_size or 0
        self.steps_an_epoch = max(1, setup.num_samples // (setup.batch_size or PUBLISHED_BATCH))

    def stages(self, epochs: int) -> list[Stage]:
        first = min(max(1, round(epochs * self.first_stage)), epochs)
        stages = [Stage(first, "cross_entropy", restart=True)]
        if rest := epochs - first:
            rate = self.second_rate or PUBLISHED_RATE * PUBLISHED_STEPS / (rest * self.steps_an_epoch)
            stages.append(Stage(rest, "determinant", restart=True, learning_rate=rate, step=self.determinant_step))
        return stages

    def determinant_step(self, batch: Batch, context: Context) -> StepResult:
        # Whether the ranks together have a full batch; they must not disagree about it.
        learns = int(all_reduce(torch.tensor(batch.num_samples, device=batch.targets.device))) >= self.full_batch
        with torch.set_grad_enabled(learns):  # a forward pass that no backward follows would stop DDP
            output = context.network(batch.inputs)
            loss = determinant_loss(output.logits, batch.targets)
        if learns:
            context.apply(loss)
        return StepResult(loss.detach(), output.logits.detach())
