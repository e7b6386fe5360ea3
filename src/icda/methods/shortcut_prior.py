"""Logit adjustment by what cross-fitted networks expect of each sample: the prior of a shortcut nobody named."""

import warnings
from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from icda.cross_fit import HeldOut, answer_log_prior, fit_calibration
from icda.errors import InputError
from icda.losses.icda import ICDALoss
from icda.losses.prior_loss import PriorLoss
from icda.methods.base import METHODS, Batch, Context, Output, Setup, Stage, checked
from icda.methods.cross_fitted import CrossFitEpochs, CrossFittedMethod, Repeats, first_stage_epochs, pass_cost
from icda.methods.group_prior import LossName, prior_criterion
from icda.methods.per_sample import rows

REPEATED = 0.99  # an agreement from which on the networks answer with an attribute of the sample
SCATTERED = 0.3  # and above this they are wrong each in its own way: digits without a shortcut have 0.5 to 0.9
SOFT_EPOCHS = 0.5  # of the run's epochs: what networks are trained for that read the labels as they are
MOST_ERRORS = 0.25  # a share of wrong answers above this: they tell too few labels to be a shortcut


@METHODS.register("shortcut_prior", "counterfactual_prior")
class ShortcutPrior(CrossFittedMethod):
    """Logit adjustment by what networks that rely on a shortcut predict for samples they have not seen.

    The loss is the cross entropy of z + log p(c | x), with p that prediction. Four networks are trained as XRM's twins
    are. Where they repeat each other's errors, the answer is an attribute of the sample: form "counted", p(c | x) is the
    share of class c among the samples with that answer. Where they do not, form "soft": four networks are trained again
    for half the run's epochs on the labels as they are, and p is the softmax of their calibrated held-out logits. "auto"
    takes the first if two networks agree on 99 of 100 samples. Where there is no sign of a shortcut (`chosen_form`), p
    are the classes' shares, with a warning: then the method is logit adjustment.

    No group label is read. With loss="icda" ICDA's other terms are added, and their options are taken.
    """

    inner_loss = ICDALoss
    criterion: PriorLoss
    folds: ClassVar[int] = 4
    num_networks: ClassVar[int] = 5
    prior_per_sample: ClassVar[bool] = True
    log_prior: Tensor  # (N, C)

    @checked
    def __init__(
        self,
        setup: Setup,
        *,
        cross_fit_epochs: CrossFitEpochs = 1 / 3,
        form: Literal["auto", "counted", "soft"] = "auto",
        loss: LossName = "la",
        reuse: str = "",
        stratified: bool = False,
        repeats: Repeats = 1,
        **options: Any,
    ) -> None:
        super().__init__(setup, cross_fit_epochs=cross_fit_epochs, reuse=reuse, stratified=stratified, repeats=repeats)
        self.form = form
        self.criterion = prior_criterion(setup, loss, options)
        self.register_buffer("log_prior", torch.zeros(0, setup.num_classes), persistent=False)  # made of the evidence

    @classmethod
    def cost_note(cls, epochs: int, options: Mapping[str, Any]) -> str:
        note = super().cost_note(epochs, options)
        if options.get("reuse") or options.get("form", "auto") == "counted":
            return note
        again = first_stage_epochs(SOFT_EPOCHS, epochs)
        more = int(options.get("repeats", 1)) * pass_cost(cls.folds, again / epochs)
        return f"{note} Networks that do not repeat each other are trained again, {again} epochs: {more:.1f} more."

    def stages(self, epochs: int) -> list[Stage]:
        *first, second = super().stages(epochs)
        if not first or self.evidence is None or self._form(self.evidence) != "soft":
            return [*first, second]
        step = partial(self.cross_fit_step, flips=False)
        again = self.passes("cross_fit_again", SOFT_EPOCHS, epochs, step, self.on_second_evidence, afresh=True)
        return [*first, *again, second]

    def _check_earlier(self, evidence: HeldOut) -> None:
        if self._form(evidence) == "soft" and evidence.unflipped is None:
            raise InputError(
                f"reuse={self.reuse}: the run there trained no networks on the labels as they are, which the soft form "
                "reads. Give a run with the soft form, or leave reuse out."
            )

    def _form(self, held_out: HeldOut) -> Literal["counted", "soft", "shares"]:
        return chosen_form(held_out) if self.form == "auto" else self.form

    def learn_from(self, held_out: HeldOut) -> None:
        form, targets = self._form(held_out), held_out.targets
        if form == "soft":
            logits = held_out.logits if held_out.unflipped is None else held_out.unflipped
            log_prior = fit_calibration(logits, targets).log_probabilities(logits)
        else:  # one answer for all says no more than the classes' shares
            answers = self._answers(held_out) if form == "counted" else torch.zeros_like(targets)
            log_prior = answer_log_prior(answers, targets, self.num_classes)
        self.log_prior = log_prior.to(self.log_prior.device)
        figures = {"held_out_nll": float(F.nll_loss(log_prior, targets)), "counted": float(form == "counted")}
        self.found |= {**figures, "no_shortcut": float(form == "shares")}

    def _answers(self, held_out: HeldOut) -> Tensor:
        """The class (N,) that the shortcut stands for in each sample."""
        return held_out.answers

    def on_second_evidence(self, again: HeldOut) -> None:
        assert self.evidence is not None, "the first networks come before"
        self.keep_evidence(self.evidence._replace(unflipped=again.logits, last=again.last))

    def on_first_evidence(self, evidence: HeldOut) -> None:
        super().on_first_evidence(evidence)
        if self.found["no_shortcut"]:
            warnings.warn(
                f"shortcut_prior: {self.found['held_out_errors']:.0%} of the held-out answers are wrong, and two networks "
                f"disagree on {self.found['disagreement']:.2f} samples for each of them: no sign of a shortcut. The prior "
                "is that of the class sizes, as in logit adjustment.",
                stacklevel=2,
            )

    def loss(self, output: Output, batch: Batch, context: Context) -> Tensor:
        prior = rows(self.log_prior, batch, output.logits.float())
        progress = self.second_stage_progress(context)
        return self.criterion(output.features, batch.targets, context.head, progress, output.logits, log_prior=prior)


def chosen_form(held_out: HeldOut) -> Literal["counted", "soft", "shares"]:
    """What the networks' answers are good for, by how many are wrong and whether the networks repeat each other."""
    if held_out.errors > MOST_ERRORS or held_out.disagreement > SCATTERED:
        return "shares"
    return "counted" if held_out.agreement >= REPEATED else "soft"
