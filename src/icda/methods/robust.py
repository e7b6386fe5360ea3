"""One method that decides for itself: cross-fitted networks say what is wrong with the labels, and how to train."""

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from icda.cross_fit import HeldOut
from icda.cross_fit.marks import Mark, filtered, find_mark, shrink
from icda.cross_fit.network_verdicts import READ_SAMPLES, is_independent, judge_networks, read_labels, seen_mark
from icda.cross_fit.networks import rows_of
from icda.cross_fit.rules import Verdict, tail_verdict
from icda.data.generators import generator_for
from icda.data.task import Batch
from icda.errors import InputError
from icda.first_rank import from_first_rank
from icda.methods.base import METHODS, Context, Setup, checked
from icda.methods.cross_fitted import BestEpoch, CrossFitEpochs, End, first_stage_epochs, pass_cost
from icda.methods.group_prior import LossName
from icda.methods.per_sample import rows
from icda.methods.shortcut_prior import REPEATED, SOFT_EPOCHS, ShortcutPrior
from icda.models.base import Output, evaluating
from icda.ranks import all_mean

# Of what is read elsewhere: networks that learn labels as they are then know the class, too, and a soft prior of theirs
# would take it away.
EASILY_READ = 0.6
MOST_CLASSES = 150  # with more, too few of those looked at are of one class
ASK = "A few answers of a person would settle it: `icda ask`."


@METHODS.register("robust")
class Robust(BestEpoch, ShortcutPrior):
    """Find wrong labels, a shortcut or a long tail, and train accordingly: for data you know nothing about.

    Four networks are cross-fitted once, as in `shortcut_prior`; what they say of samples they have not seen is judged by
    the audit's rules (`icda.cross_fit.network_verdicts`). Wrong labels: the kept network learns from labels refined as
    in `twin_labels`. A shortcut: what the networks answer is given as a prior, as in `shortcut_prior`; in its soft form
    only where they do not repeat each other and the class is hard to read. Neither, or no telling which: ICDA, whose
    options are taken; loss="la" leaves logit adjustment of it.

    No group label, no clean sample and no rate is read. `findings` says in a sentence or two what was found and done.
    """

    num_networks: ClassVar[int] = 5
    as_first: ClassVar[bool] = True  # where nothing is found, it is ICDA, apart from rounding

    @checked
    def __init__(
        self,
        setup: Setup,
        *,
        cross_fit_epochs: CrossFitEpochs = 1 / 3,
        loss: LossName = "icda",
        reuse: str = "",
        **options: Any,
    ) -> None:
        super().__init__(setup, cross_fit_epochs=cross_fit_epochs, loss=loss, reuse=reuse, **options)
        self.seed = setup.seed
        self.verdicts: dict[str, Verdict] = {}
        self.mark: Mark | None = None  # the part of the picture that is the shortcut

    @classmethod
    def cost_note(cls, epochs: int, options: Mapping[str, Any]) -> str:
        note = super().cost_note(epochs, {**options, "form": "counted"})
        if options.get("reuse"):
            return note
        more = pass_cost(cls.folds, first_stage_epochs(SOFT_EPOCHS, epochs) / epochs)
        return f"{note} A shortcut that is hard to see past costs {more:.1f} more."

    def end_pass(self, context: Context, repeat: int, keep: End) -> None:
        super().end_pass(context, repeat, partial(self._read, context, keep) if self.evidence is None else keep)

    def _read(self, context: Context, keep: End, evidence: HeldOut) -> None:
        """Whether labels can be read where the networks contradict them, off what never saw a label."""
        targets, looks = evidence.targets, self.num_classes <= MOST_CLASSES
        order = torch.randperm(len(targets), generator=generator_for(self.seed, "read labels"))
        chosen = order[:READ_SAMPLES].sort().values
        wanted = torch.full((len(targets),), looks)
        wanted[chosen] = True
        images = shrunken_pictures(context, wanted)
        if images is None:
            features = untrained_features(context, chosen)
        else:
            features = filtered(images[chosen] if looks else images, self.seed)

        def judge() -> dict[str, Any]:
            read = read_labels(features, targets[chosen], evidence.logits[chosen], self.seed)
            if images is None or not looks:
                return {"read": read}
            return {"read": read, "mark": find_mark(images, targets, self.num_classes, self.seed)._asdict()}

        keep(evidence._replace(**from_first_rank(judge)))  # all ranks go by the same figures

    def on_first_evidence(self, evidence: HeldOut) -> None:
        self.keep_evidence(evidence._replace(running=self.take_best()[0]))

    def learn_from(self, held_out: HeldOut) -> None:
        self.verdicts, self.mark = judge_networks(held_out), seen_mark(held_out)
        super().learn_from(held_out)
        if self.treatment == "labels":
            assert held_out.running is not None
            refined = self.refine(held_out.running, held_out.targets)
            if refined.wrong < 0.5:  # else sizes are guesses
                self.verdicts["long_tail"] = tail_verdict(refined.sizes.round().clamp(min=1).int().tolist())
        for kind, verdict in self.verdicts.items():
            assert verdict.chance is not None, "networks are judged by chances"
            self.found[f"{kind}_chance"] = verdict.chance
        if held_out.read is not None:
            self.found["readability"] = held_out.readability

    @property
    def treatment(self) -> Literal["prior", "labels", "adjustment"]:
        """What the verdicts call for; a shortcut comes first, because it would be taken for wrong labels."""
        if self.verdicts["shortcut"].answer == "yes" and (self.mark is None or is_independent(self.mark)):
            return "prior"
        return "labels" if self.verdicts["label_noise"].answer == "yes" else "adjustment"

    def _form(self, held_out: HeldOut) -> Literal["counted", "soft", "shares"]:
        if self.treatment != "prior":
            return "shares"
        is_plain = held_out.agreement >= REPEATED or held_out.readability >= EASILY_READ or self.mark is not None
        return "counted" if is_plain else "soft"

    def _answers(self, held_out: HeldOut) -> Tensor:
        return self.mark.answers if self.mark else held_out.answers

    def loss(self, output: Output, batch: Batch, context: Context) -> Tensor:
        if self.treatment == "adjustment":
            return super().loss(output, batch, context)
        logits = output.logits + rows(self.log_prior, batch, output.logits)
        is_refined = len(self.soft_labels) > 0
        return F.cross_entropy(logits, rows(self.soft_labels, batch, logits) if is_refined else batch.targets)

    def _check_earlier(self, evidence: HeldOut) -> None:
        if evidence.running is None or len(evidence.read or ()) != 3:
            raise InputError(
                f"reuse={self.reuse}: the run there is not one of robust, or of an earlier version, and lacks what it "
                "judges by: leave reuse out."
            )
        self.verdicts, self.mark = judge_networks(evidence), seen_mark(evidence)
        super()._check_earlier(evidence)

    @property
    def _told(self) -> str:
        assert self.mark is not None
        return (
            f"a part of the picture ({self.mark.place}) alone tells {100 * (1 - self.mark.errors):.0f} % of the labels"
        )

    def findings(self) -> str:
        if not self.verdicts:
            return ""
        noise, shortcut, tail = (self.verdicts[kind].answer for kind in ("label_noise", "shortcut", "long_tail"))
        if self.treatment == "labels":
            share = f"{100 * self.found['wrong_labels']:.0f}"
            sentences = [
                f"Wrong labels, about {share} % of them: it learned from labels put right by networks that had not seen "
                "them; rare classes kept theirs."
            ]
        elif self.treatment == "prior" and self.mark:
            sentences = [f"A shortcut: {self._told}. It learned what that does not tell."]
        elif self.treatment == "prior":
            share = f"{100 * self.found['held_out_errors']:.1f}"
            sentences = [
                f"A shortcut, which contradicts {share} % of the labels: it learned what the shortcut does not tell."
            ]
        elif self.mark:
            sentences = []
        elif "cannot tell" in (noise, shortcut):
            sentences = [f"It cannot tell whether there is a shortcut, or labels are wrong: nothing was risked. {ASK}"]
        else:
            sentences = ["Neither a shortcut nor wrong labels."]
        if self.mark and self.treatment != "prior":
            sentences.append(f"A shortcut, unless it is what makes the class: {self._told}. Nothing was done about it.")
        if tail == "yes":
            sentences.append("A long tail: rare classes count as much as frequent ones.")
        return " ".join(sentences)


def shrunken_pictures(context: Context, wanted: Tensor) -> Tensor | None:
    """Those of the training samples (n, C, h, w) that are wanted (N,), shrunk; None if the inputs are no pictures."""
    parts = []
    for batch in context.training_batches():
        if not isinstance(batch.inputs, Tensor) or batch.inputs.dim() != 4 or batch.inputs.shape[1] > 4:
            return None
        index = batch.index.cpu()
        mine = wanted[index]
        parts.append((index[mine], shrink(batch.inputs[mine.to(batch.inputs.device)]).cpu()))
    order = torch.cat([index for index, _ in parts]).argsort()
    return torch.cat([images for _, images in parts])[order]


@torch.no_grad()
def untrained_features(context: Context, chosen: Tensor) -> Tensor:
    """Features (n, A) of the chosen training samples, in ascending order, by the network that has not been trained yet."""
    model, parts = context.models[0], []
    with evaluating(model):
        for batch in context.training_batches():
            mine = torch.isin(batch.index.cpu(), chosen).nonzero().flatten()
            if len(mine):
                output: Output = model(rows_of(batch.inputs, mine))
                parts.append((batch.index.cpu()[mine], output.features.float()))
    order = torch.cat([index for index, _ in parts]).argsort()
    return all_mean(torch.cat([features for _, features in parts])[order.to(parts[0][1].device)]).cpu()
