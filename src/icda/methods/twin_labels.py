"""Twin labels: two networks check each other's labels, and a third learns from what is left; no clean sample is needed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from icda.cross_fit import HeldOut
from icda.cross_fit.refined_labels import refine_labels
from icda.methods.base import METHODS, Batch, Context, FeatureClassifier, Inputs, Output, Setup, StepResult, checked
from icda.methods.cross_fitted import CrossFitEpochs, CrossFittedMethod
from icda.methods.per_sample import PerSample, rows, write_rows

NEW = 0.5  # what the present epoch counts in the running mean of held-out answers


@METHODS.register("twin_labels")
class TwinLabels(PerSample, CrossFittedMethod):
    """Wrong labels without a clean set and without a known rate: soft labels from networks that have not seen the sample.

    First, twins: each sample trains one of two networks, and its label flips towards confident answers of the other. What
    the other says of it is averaged over epochs, the last counting half; the epoch whose average agrees most with the given
    labels is kept, which stops before the twins harm and reads nothing clean. From these answers and the given labels
    `refine_labels` finds how often each class turns into which, and each sample's true class. Second, the network that is
    kept learns from these probabilities as soft labels; with `balance` logits are adjusted by the classes' shares, as in
    logit adjustment. Where no labels are wrong they stay as they are, and the method is plain training.

    A shortcut looks like wrong labels: the samples that contradict it would be relabelled. `icda audit` tells which it is.

    Ours. The flips are those of Pezeshki et al., "Discovering environments with XRM", ICML 2024; a matrix of transitions
    between classes found from confident answers is in Northcutt et al., "Confident learning", JAIR 2021.
    """

    answers_later: ClassVar[bool] = False  # the twins answer with the class itself, not with a shortcut
    judges_waiting: ClassVar[bool] = True  # studies of the best epoch read a figure of every epoch
    per_sample = ("given", "said", "average", "kept")  # noted while the twins train, empty after
    given: Tensor  # (N,) labels
    said: Tensor  # (N, C) held-out probabilities of this epoch
    average: Tensor  # (N, C) running mean over epochs
    kept: Tensor  # (N, C) the running mean of the best epoch
    soft_labels: Tensor  # (N, C)
    log_prior: Tensor  # (C,)

    @checked
    def __init__(self, setup: Setup, *, cross_fit_epochs: CrossFitEpochs = 0.5, balance: bool = True) -> None:
        super().__init__(setup, cross_fit_epochs=cross_fit_epochs)
        self.balance = balance
        self.agreement = 0.0  # of the kept answers with the given labels
        shape = (setup.num_samples, setup.num_classes)
        for name in self.per_sample[1:]:
            self.keep(name, torch.zeros(shape))
        self.keep("given", torch.zeros(shape[0], dtype=torch.long))
        self.register_buffer("soft_labels", torch.zeros(0, setup.num_classes), persistent=False)
        self.register_buffer("log_prior", torch.zeros(setup.num_classes), persistent=False)

    def cross_fit_step(self, batch: Batch, context: Context, flips: bool = True) -> StepResult:
        result = super().cross_fit_step(batch, context, flips)
        assert result.logits is not None
        write_rows(self.said, batch.index, result.logits.softmax(1))
        write_rows(self.given, batch.index, batch.targets)
        return result

    def on_epoch_end(self, context: Context) -> None:
        if self.evidence is not None:  # the twins have answered
            return
        self.average = self.said.clone() if context.epoch == 0 else torch.lerp(self.average, self.said, NEW)
        agreement = float((self.average.argmax(1) == self.given).double().mean())
        if agreement > self.agreement:
            self.agreement, self.kept = agreement, self.average.clone()
        self.found = {"held_out_agreement": agreement}

    def first_heard(self, evidence: HeldOut) -> None:
        floor = torch.finfo(self.kept.dtype).tiny
        self.keep_heard(HeldOut(self.kept.clamp(min=floor).log().cpu(), self.given.cpu(), evidence.agreement))
        for name in self.per_sample:
            setattr(self, name, getattr(self, name)[:0])

    def learn_from(self, held_out: HeldOut) -> None:
        refined = refine_labels(held_out.logits, held_out.targets)
        moved = refined.probabilities.argmax(1) != held_out.targets
        self.soft_labels = refined.probabilities.to(self.soft_labels.device)
        self.log_prior = refined.probabilities.double().mean(0).log().to(self.log_prior)
        self.found["held_out_agreement"] = self.agreement  # the best
        self.found |= {"wrong_labels": refined.wrong, "relabelled": float(moved.double().mean())}

    def loss(self, output: Output, batch: Batch, context: Context) -> Tensor:
        labels = rows(self.soft_labels, batch, output.logits)
        logits = output.logits + self.log_prior.to(output.logits) if self.balance else output.logits
        return F.cross_entropy(logits, labels)

    def shortcut_answers(self, models: Sequence[FeatureClassifier], inputs: Inputs) -> Tensor | None:
        return None

    def get_extra_state(self) -> dict[str, Any]:
        # Not as evidence that other methods may reuse: these are no answers of the networks as they are at the end.
        answers = None if self.evidence is None else self.evidence._asdict()
        return {"evidence": None, "answers": answers, **super().get_extra_state(), "agreement": self.agreement}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        super().set_extra_state(state)
        self.agreement = state["agreement"]
        if state["answers"] is not None:
            self.keep_heard(HeldOut(**state["answers"]))
