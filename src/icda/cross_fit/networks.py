"""Networks trained side by side, each without a part of the samples, for what they say of that part.

Network k does not learn from fold k. With two folds every sample trains one network and is held out from the other
(XRM's twins). Where labels flip, a sample's label gives way to what its held-out network says with confidence: the
networks confirm each other in what they find easiest, and what they answer in the end is the shortcut.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from icda.data.generators import generator_for
from icda.data.task import Batch, Inputs, rows_of
from icda.errors import InputError
from icda.functional.prior import conditional_log_prior, joint_counts
from icda.models.base import evaluating
from icda.ranks import all_gather_rows, all_reduce, rank, world_size

USUAL_AREA = 0.78  # what is read elsewhere, for runs from before this was asked: their limit was an area of 0.57
LEAST_AREA = 0.1  # over guessing: what is read elsewhere counts as at least that, or little over nothing would be much
FEWEST = 2  # samples a network learns from in one step: BatchNorm cannot normalise a single one


class HeldOut(NamedTuple):
    """What networks say of the training samples, on the CPU; the last three where a method asks for them.

    Where networks were trained several times over, logits are means over the repeats.
    """

    logits: Tensor  # (N, C) of the network that has not learned from the sample
    targets: Tensor  # (N,) the samples' own labels
    agreement: float  # how often two networks give a sample the same answer, whether they have learned from it or not
    unflipped: Tensor | None = None  # (N, C) held-out logits of networks that learned the labels as they are
    last: Tensor | None = None  # (N, C) by the networks that were trained last, where there were repeats
    running: Tensor | None = None  # (N, C) logarithms of held-out probabilities averaged over epochs
    read: tuple[float, ...] | None = None  # what `read_labels` found off features that never saw a label
    mark: dict[str, Any] | None = None  # the fields of a `marks.Mark`

    @property
    def answers(self) -> Tensor:
        return self.logits.argmax(1)

    @property
    def readability(self) -> float:
        """What is read of contradicted labels over what is read of others: 1 if they are as right, 0 if they are wrong."""
        area, _, elsewhere = (*(self.read or (0.5, 0.5)), USUAL_AREA)[:3]
        return min((area - 0.5) / max(elsewhere - 0.5, LEAST_AREA), 1.0)

    @property
    def errors(self) -> float:
        """The share of samples whose held-out answer is not their label."""
        return float((self.answers != self.targets).double().mean())

    @property
    def disagreement(self) -> float:
        """How many samples two networks answer differently, for each one that is answered wrongly; 0 without errors.

        Networks that answer with an attribute of the sample are wrong together; those that know too little are not.
        """
        return (1 - self.agreement) / self.errors if self.errors else 0.0


def averaged(earlier: HeldOut | None, now: HeldOut, count: int) -> HeldOut:
    """The mean of what `count` earlier repeats said and what the present one says, each counting the same.

    Up to a constant in each row a mean of logits is one of log probabilities. The first pass stays as it is.
    """
    if earlier is None:
        return now
    logits = (count * earlier.logits + now.logits) / (count + 1)
    agreement = (count * earlier.agreement + now.agreement) / (count + 1)
    return HeldOut(logits, now.targets, agreement, last=now.logits)


def answer_log_prior(answers: Tensor, targets: Tensor, num_classes: int) -> Tensor:
    """log P(y | answer) of every sample (N, C), counted over the samples: the answer is taken for an attribute.

    >>> answer_log_prior(torch.tensor([0, 0, 1, 1]), torch.tensor([0, 0, 1, 1]), 2).exp()[0]
    tensor([0.8333, 0.1667])
    """
    return conditional_log_prior(joint_counts(answers, targets, num_classes, num_classes)).float()[answers]


def flip_probability(logits: Tensor) -> Tensor:
    """(p_max - 1/C) C / (C - 1) of each row (N,): 0 for a uniform answer, 1 for a certain one.

    Reference: Pezeshki et al., "Discovering environments with XRM", ICML 2024.
    """
    num_classes = logits.shape[1]
    sure = torch.softmax(logits, 1).max(1).values
    return ((sure - 1 / num_classes) * num_classes / (num_classes - 1)).clamp(0, 1)


def flip_labels(labels: Tensor, logits: Tensor, uniform: Tensor) -> Tensor:
    """The labels (N,), each replaced by the held-out answer where a uniform draw (N,) lies below its flip probability."""
    return torch.where(uniform < flip_probability(logits), logits.argmax(1), labels)


def draw_folds(num_samples: int, folds: int, seed: int, repeat: int = 0) -> Tensor:
    """A fold for each sample (N,), by a die with as many sides as there are folds; each repeat throws again."""
    _check(folds)
    generator = generator_for(seed, "folds", folds) if repeat == 0 else generator_for(seed, "folds", folds, repeat)
    return torch.randint(folds, (num_samples,), generator=generator)


def stratified_folds(targets: Tensor, folds: int, seed: int, repeat: int = 0) -> Tensor:
    """A fold for each sample (N,), so that each class, and all samples, are split evenly: sizes differ by one at most.

    The samples stand in a row, class after class and at random within a class; folds are dealt out along it in turn.
    """
    _check(folds)
    generator = generator_for(seed, "stratified folds", folds, repeat)
    order = torch.randperm(len(targets), generator=generator)
    first = torch.randint(folds, (), generator=generator)  # else the first fold would always have the extra sample
    row = order[targets.cpu()[order].argsort(stable=True)]
    dealt = torch.empty(len(targets), dtype=torch.long)
    dealt[row] = (torch.arange(len(targets)) + first) % folds
    return dealt


def _check(folds: int) -> None:
    if folds < 2:
        raise InputError(f"cross-fitting needs 2 folds or more, got {folds}: a network is blind to its own fold alone.")


class HeldOutNetworks(nn.Module):
    """Which network a sample is held out from, which label it has by now, and how the networks take a step.

    Folds depend on the seed, and which labels flip on the seed, the epoch and the sample alone: a resumed run repeats both,
    and several ranks draw what one process would. Each network's loss is the mean over the classes of a class's mean cross
    entropy in the batch.
    """

    labels: Tensor  # (N,) what each sample has flipped to; -1 while it has its own label
    fold: Tensor  # (N,) the network each sample is held out from

    def __init__(self, num_samples: int, num_classes: int, folds: int, seed: int) -> None:
        super().__init__()
        self.num_classes, self.folds, self.seed = num_classes, folds, seed
        self.register_buffer("fold", draw_folds(num_samples, folds, seed), persistent=False)
        self.register_buffer("labels", torch.full((num_samples,), -1), persistent=False)
        self._drawn: tuple[int, Tensor] | None = None

    def begin(self, repeat: int, targets: Tensor | None = None) -> None:
        """Start the networks of a repeat: folds of its own, and every label as it was given.

        With the `targets` (N,) of all training samples each class is split evenly, without them a coin decides.
        """
        if targets is None:
            fold = draw_folds(len(self.fold), self.folds, self.seed, repeat)
        else:
            fold = stratified_folds(targets, self.folds, self.seed, repeat)
        self.fold = fold.to(self.fold.device)
        self.labels = torch.full_like(self.fold, -1)

    def step(
        self,
        batch: Batch,
        networks: Sequence[nn.Module],
        models: Sequence[nn.Module],
        apply: Callable[[Tensor], None],
        epoch: int,
        *,
        flips: bool = True,
    ) -> tuple[Tensor, Tensor, float]:
        """Each network learns from the samples that are not held out from it; then labels flip.

        Without `flips` it learns their own labels, whatever they have flipped to, and none flips. Returns the networks'
        mean loss, the held-out logits (N, C) after the step, and the share of labels that differ from the given ones.
        """
        fold, labels = self._facts(batch)
        labels = labels if flips else batch.targets
        losses = [self._loss(network, batch, labels, fold != k) for k, network in enumerate(networks)]
        learned = [loss for loss in losses if loss is not None]
        total = torch.stack(learned).sum() if learned else batch.targets.new_zeros((), dtype=torch.float)
        if learned:
            apply(total)
        held_out = self.held_out(batch.inputs, models, fold)
        if flips:
            labels = flip_labels(labels, held_out, self._uniform(epoch)[batch.index].to(held_out))
            self._keep(batch.index, labels, batch.targets)
        share = float((labels != batch.targets).float().mean())
        return total.detach() / max(len(learned), 1), held_out, share

    @torch.no_grad()
    def held_out(self, inputs: Inputs, models: Sequence[nn.Module], fold: Tensor) -> Tensor:
        """What each sample's held-out network says (N, C), in evaluation mode; modes are as before when it returns."""
        logits = torch.zeros(len(fold), self.num_classes, device=fold.device)
        with evaluating(*models):
            for k, model in enumerate(models):
                rows = (fold == k).nonzero().flatten()
                if len(rows):
                    logits[rows] = model(rows_of(inputs, rows)).logits.float()
        return logits

    @torch.no_grad()
    def ask(self, batches: Iterable[Batch], models: Sequence[nn.Module]) -> HeldOut:
        """What the networks say of all training samples; ranks share the work."""
        device, size = self.fold.device, len(self.fold)
        logits = torch.zeros(size, self.num_classes, device=device)
        targets, agree = torch.zeros(size, dtype=torch.long, device=device), torch.zeros(size, device=device)
        for number, batch in enumerate(batches):
            if number % world_size() == rank():
                with evaluating(*models):
                    said = torch.stack([model(batch.inputs).logits.float() for model in models], 1)  # (N, K, C)
                fold = self._facts(batch)[0]
                logits[batch.index] = said[torch.arange(len(fold)), fold]
                targets[batch.index] = batch.targets
                agree[batch.index] = pairwise_agreement(said.argmax(2), self.num_classes)
        logits, targets, agree = (all_reduce(values).cpu() for values in (logits, targets, agree))
        return HeldOut(logits, targets, float(agree.double().mean()))

    def _facts(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Fold and present label of the batch's samples."""
        index = batch.index.to(self.labels.device)
        flipped = self.labels[index].to(batch.targets)
        return self.fold[index].to(batch.targets), torch.where(flipped >= 0, flipped, batch.targets)

    def _loss(self, network: nn.Module, batch: Batch, labels: Tensor, learns: Tensor) -> Tensor | None:
        """Class-balanced cross entropy over the batch of all ranks; None where some rank has too few samples."""
        own = F.one_hot(labels[learns], self.num_classes).sum(0).double()
        short = own.new_tensor([float(own.sum() < FEWEST), float(len(labels))])
        *counts, lacking, size = all_reduce(torch.cat([own, short])).unbind()
        if lacking > 0:
            return None  # on every rank: a forward pass that no other rank makes would stop DDP
        seen = torch.stack(counts)
        # Written as a mean over the rank's samples, so that the trainer's average over ranks is the whole batch's loss.
        weights = torch.where(seen > 0, size / (seen.clamp(min=1) * (seen > 0).sum()), 0.0)
        rows = learns.nonzero().flatten()
        losses = F.cross_entropy(network(rows_of(batch.inputs, rows)).logits, labels[rows], reduction="none")
        return (weights[labels[rows]].to(losses) * losses).sum() / len(labels)

    def _uniform(self, epoch: int) -> Tensor:
        """One draw per training sample for this epoch, in which each sample is seen once."""
        if self._drawn is None or self._drawn[0] != epoch:
            self._drawn = epoch, torch.rand(len(self.fold), generator=generator_for(self.seed, "flips", epoch))
        return self._drawn[1]

    def _keep(self, index: Tensor, labels: Tensor, targets: Tensor) -> None:
        """Note the labels of the batch of all ranks; one that is back to the sample's own counts as not flipped."""
        device = self.labels.device
        noted = torch.where(labels == targets, -1, labels).to(device)
        rows = all_gather_rows(torch.stack([index.to(device), noted], 1))
        self.labels[rows[:, 0]] = rows[:, 1]

    def get_extra_state(self) -> dict[str, Any]:
        return {"labels": self.labels, "fold": self.fold}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        # Of any length, unlike a saved buffer: a trained model may be evaluated on data of another size.
        self.labels = state["labels"].to(self.labels.device)
        if "fold" in state:  # a checkpoint from before there was a choice has those of the coin
            self.fold = state["fold"].to(self.fold.device)


def pairwise_agreement(answers: Tensor, num_classes: int) -> Tensor:
    """How many pairs of K networks agree, as a share of all pairs (N,), from their answers (N, K).

    >>> pairwise_agreement(torch.tensor([[0, 0, 0], [0, 0, 1], [0, 1, 2]]), 3)
    tensor([1.0000, 0.3333, 0.0000])
    """
    votes, count = F.one_hot(answers, num_classes).sum(1).float(), answers.shape[1]
    return (votes * (votes - 1)).sum(1) / (count * (count - 1))
