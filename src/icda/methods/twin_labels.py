"""Twin labels: two networks check each other's labels, and a third learns from what is left; no clean sample is needed."""

from collections.abc import Sequence
from typing import Any, ClassVar

from torch import Tensor
from torch.nn import functional as F

from icda.cross_fit import HeldOut
from icda.methods.base import METHODS, Batch, Context, FeatureClassifier, Inputs, Output, Setup, checked
from icda.methods.cross_fitted import BestEpoch, CrossFitEpochs
from icda.methods.per_sample import rows


@METHODS.register("twin_labels")
class TwinLabels(BestEpoch):
    """Refine wrong labels with networks that have not seen the sample; no clean data, no noise rate.

    First, twins: each sample trains one of two networks, and its label flips towards confident answers of the other.
    From the running mean of these answers at its best epoch and the given labels `refine_labels` finds each sample's
    true class. Second, the network that is kept learns from these probabilities as soft labels; with `balance` logits
    are adjusted by the classes' shares. Where no labels are wrong the method is plain training.

    A shortcut looks like wrong labels: the samples that contradict it would be relabelled. `icda audit` tells which it
    is.

    Ours, with the flips of Pezeshki et al., "Discovering environments with XRM", ICML 2024.
    """

    answers_later: ClassVar[bool] = False  # the twins answer with the class itself, not with a shortcut
    judges_waiting: ClassVar[bool] = True  # studies of the best epoch read a figure of every epoch

    @checked
    def __init__(self, setup: Setup, *, cross_fit_epochs: CrossFitEpochs = 0.5, balance: bool = True) -> None:
        super().__init__(setup, cross_fit_epochs=cross_fit_epochs)
        self.balance = balance

    def on_first_evidence(self, evidence: HeldOut) -> None:
        self.keep_evidence(HeldOut(*self.take_best(), evidence.agreement))

    def learn_from(self, held_out: HeldOut) -> None:
        self.found["held_out_agreement"] = self.agreement
        self.refine(held_out.logits, held_out.targets)

    def loss(self, output: Output, batch: Batch, context: Context) -> Tensor:
        logits = output.logits + rows(self.log_prior, batch, output.logits) if self.balance else output.logits
        return F.cross_entropy(logits, rows(self.soft_labels, batch, logits))

    def shortcut_answers(self, models: Sequence[FeatureClassifier], inputs: Inputs) -> Tensor | None:
        return None

    def get_extra_state(self) -> dict[str, Any]:
        # Not as evidence that other methods may reuse: these are no answers of the networks as they are at the end.
        state = super().get_extra_state()
        return {**state, "evidence": None, "answers": state["evidence"]}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        super().set_extra_state({**state, "evidence": state["answers"]})
