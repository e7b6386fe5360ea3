"""What methods share that first ask cross-fitted networks what the shortcut says, and then train with the answer."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeAlias

import torch
from annotated_types import Interval
from torch import Tensor

from icda.cross_fit import HeldOut, HeldOutNetworks, averaged
from icda.cross_fit.refined_labels import RefinedLabels, refine_labels
from icda.errors import InputError
from icda.methods.base import Batch, Context, Inputs, Method, Sampling, Setup, Stage, StepResult
from icda.methods.per_sample import Keeps, write_rows
from icda.models.base import FeatureClassifier, evaluating
from icda.signature import full_signature

SAME_LOGITS = 1e-2  # share of the largest logit by which another machine's arithmetic may differ
Repeats: TypeAlias = Annotated[int, Interval(ge=1, le=100)]
CrossFitEpochs: TypeAlias = Annotated[float, Interval(gt=0, le=10)]  # a share of the run's epochs
Step: TypeAlias = Callable[[Batch, Context], StepResult]
End: TypeAlias = Callable[[HeldOut], None]
FORWARD = 1 / 3  # of a training step: a backward pass costs about two forward passes
NOTED = ("given", "latest", "average", "kept")  # rows that `BestEpoch` notes while networks train; empty after
NEW = 0.5  # what the present epoch counts in the running mean of held-out answers


class CrossFittedMethod(Keeps, Method):
    """Two stages: `folds` networks, each blind to a part of the samples, then the network that is kept.

    The first network of the run is the one that is kept; it waits while the others train, for `cross_fit_epochs` of the
    run's epochs and on top of them. Then one pass over the training set gives the held-out logits of every sample, which
    are part of the state, and `learn_from` makes of them what the second stage needs. `reuse`, the folder of a finished run
    on the same samples, takes its networks and logits in place of a first stage.

    Folds are drawn by a coin, or, if `stratified`, each class is split evenly among them. With `repeats` the networks are
    trained several times over with other folds; what they say is averaged.

    A subclass says how many networks there are (`folds`) and writes `learn_from` and `loss`.
    """

    folds: ClassVar[int] = 2
    num_networks: ClassVar[int] = 3
    adds_epochs: ClassVar[bool] = True
    answers_later: ClassVar[bool] = True
    judges_waiting: ClassVar[bool] = False  # whether the waiting network is evaluated, which costs and says nothing
    second_sampling: Sampling = "uniform"
    as_first: ClassVar[bool] = False  # whether the kept network sees the batches that it would see without the others
    evidence: HeldOut | None = None  # None before the first stage ends

    def __init__(
        self,
        setup: Setup,
        *,
        cross_fit_epochs: CrossFitEpochs = 0.5,
        reuse: str = "",
        stratified: bool = False,
        repeats: Repeats = 1,
    ) -> None:
        super().__init__()
        self.cross_fit_epochs, self.epochs, self.num_classes = cross_fit_epochs, setup.epochs, setup.num_classes
        self.held_out = HeldOutNetworks(setup.num_samples, setup.num_classes, self.folds, setup.seed)
        self.found: dict[str, float] = {}  # figures of the held-out answers, for the log
        self.reuse, self._class_counts = reuse, setup.class_counts
        self.stratified, self.repeats = stratified, repeats
        self._so_far: HeldOut | None = None  # what was said in the repeats that are over, while others are to come

    @classmethod
    def cost_note(cls, epochs: int, options: Mapping[str, Any]) -> str:
        if options.get("reuse"):
            return f"Takes the cross-fitted networks of {options['reuse']}: the cost is that of plain training."
        default = full_signature(cls).parameters["cross_fit_epochs"].default
        first = first_stage_epochs(float(options.get("cross_fit_epochs", default)), epochs)
        repeats = int(options.get("repeats", 1))
        ratio = 1 + repeats * pass_cost(cls.folds, first / epochs)
        often = f", {repeats} times over" if repeats > 1 else ""
        return (
            f"First trains {cls.folds} networks for {first} epochs, each on {cls.folds - 1} of {cls.folds} parts of the "
            f"samples{often}; then one for {epochs}: about {ratio:.1f} times plain training."
        )

    def learn_from(self, held_out: HeldOut) -> None:
        """Make of what the networks say of the training samples what the second stage needs."""
        raise NotImplementedError

    def stages(self, epochs: int) -> list[Stage]:
        second = Stage(epochs, "train", sampling=self.second_sampling, restart=True, as_first=self.as_first)
        if self.reuse:
            return [replace(second, on_start=self.take_earlier, step=self.second_step)]
        return [
            *self.passes("cross_fit", self.cross_fit_epochs, epochs, self.cross_fit_step, self.on_first_evidence),
            second,
        ]

    def passes(self, name: str, share: float, epochs: int, step: Step, keep: End, afresh: bool = False) -> list[Stage]:
        """A stage for each repeat: `name`, `name`_2, `name`_3 ...; with `afresh` the first resets its networks, too."""
        return [
            Stage(
                first_stage_epochs(share, epochs),
                name if repeat == 0 else f"{name}_{repeat + 1}",
                restart=True,
                judged=self.judges_waiting,
                step=step,
                on_start=partial(self.begin_pass, repeat=repeat, afresh=afresh or repeat > 0),
                on_end=partial(self.end_pass, repeat=repeat, keep=keep),
            )
            for repeat in range(self.repeats)
        ]

    def cross_fit_step(self, batch: Batch, context: Context, flips: bool = True) -> StepResult:
        networks, models = context.networks[1:], context.models[1:]
        given = networks, models, context.apply, context.epoch
        loss, held_out, flipped = self.held_out.step(batch, *given, flips=flips)
        return StepResult(loss, held_out, {"flipped_labels": flipped} if flips else {})

    def second_step(self, batch: Batch, context: Context) -> StepResult:
        """A step on what was learned from an earlier run, whose samples must be these."""
        assert self.evidence is not None, "it is read when the stage starts"
        if not torch.equal(self.evidence.targets[batch.index.cpu()], batch.targets.cpu()):
            raise InputError(
                f"reuse={self.reuse}: its networks were trained on other samples, or in another order, than this task has. "
                "Leave reuse out, or give a run with the same task and data seed."
            )
        return self.step(batch, context)

    def before_training(self, folder: Path) -> None:
        if self.reuse:
            self._check_earlier(read_earlier(self.reuse, self._class_counts, self.num_networks, own=folder)[1])

    def _check_earlier(self, evidence: HeldOut) -> None:
        """Refuse an earlier run that lacks what this method needs."""

    def take_earlier(self, context: Context) -> None:
        """Networks and evidence of the run in `reuse`. Only here: a trained model is evaluated wherever that has gone."""
        networks, evidence = read_earlier(self.reuse, self._class_counts, self.num_networks)
        self._check_earlier(evidence)
        for model, state in zip(context.models[1:], networks[1:], strict=True):
            try:
                model.load_state_dict(state)
            except RuntimeError as error:
                raise InputError(f"reuse={self.reuse}: the run there trained networks of another kind.") from error
        self._check_inputs(evidence, next(iter(context.training_batches())), context.models[1:])
        self.keep_evidence(evidence)

    def begin_pass(self, context: Context, repeat: int, afresh: bool) -> None:
        """Folds of the repeat's own; networks that were trained before get the weights of the one that waits."""
        if self.stratified and context.training_targets is None:
            raise InputError("stratified folds need the labels of all training samples: give Context training_targets.")
        self.held_out.begin(repeat, context.training_targets if self.stratified else None)
        for model in context.models[1:] if afresh else ():
            model.load_state_dict(context.models[0].state_dict())

    def end_pass(self, context: Context, repeat: int, keep: End) -> None:
        """Ask the networks of a repeat; after the last one the mean of all is handed to `keep`."""
        self._so_far = averaged(self._so_far, self.held_out.ask(context.training_batches(), context.models[1:]), repeat)
        if repeat + 1 == self.repeats:
            whole, self._so_far = self._so_far, None
            keep(whole)

    def on_first_evidence(self, evidence: HeldOut) -> None:
        """The first networks have answered."""
        self.keep_evidence(evidence)

    def keep_evidence(self, evidence: HeldOut) -> None:
        self.evidence = evidence
        self.found = {
            "held_out_errors": evidence.errors,
            "agreement": evidence.agreement,
            "disagreement": evidence.disagreement,
        }
        self.learn_from(evidence)

    @torch.no_grad()
    def _check_inputs(self, evidence: HeldOut, batch: Batch, models: Sequence[FeatureClassifier]) -> None:
        """One of the networks gave each sample's held-out answer: of other inputs they would say something else."""
        with evaluating(*models):
            said = torch.stack([model(batch.inputs).logits.float().cpu() for model in models], 1)
        candidates = (evidence.last, evidence.unflipped, evidence.logits)
        logits = next(logits for logits in candidates if logits is not None)
        kept = logits[batch.index.cpu()][:, None]
        distance = (said - kept).abs().amax(2).amin(1)
        if float(distance.median()) > SAME_LOGITS * float(kept.abs().max().clamp(min=1)):
            raise InputError(
                f"reuse={self.reuse}: its networks answer otherwise about these samples than they did there: the inputs "
                "differ. Leave reuse out, or give a run with the same task and data seed."
            )

    def second_stage_progress(self, context: Context) -> float:
        """How far the second stage is, in [0, 1]: what losses that ramp up are given."""
        lengths = [stage.epochs for stage in self.stages(self.epochs)]
        begun = sum(lengths[:-1]) / sum(lengths)
        return min(max((context.progress - begun) / (1 - begun), 0.0), 1.0)

    def shortcut_answers(self, models: Sequence[FeatureClassifier], inputs: Inputs) -> Tensor | None:
        """The class (N,) that the cross-fitted networks see in inputs none of them has learned from; None before that."""
        if self.evidence is None:
            return None
        return torch.stack([model(inputs).logits.log_softmax(1) for model in models[1:]]).mean(0).argmax(1)

    def epoch_figures(self) -> dict[str, Any]:
        return dict(self.found)

    def get_extra_state(self) -> dict[str, Any]:
        state = {"evidence": self.evidence, "so_far": self._so_far}
        said = {name: None if value is None else value._asdict() for name, value in state.items()}
        return {**super().get_extra_state(), **said}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        super().set_extra_state(state)
        if state["evidence"] is not None:
            self.keep_evidence(HeldOut(**state["evidence"]))
        so_far = state.get("so_far")  # a checkpoint from before there were repeats has none
        self._so_far = None if so_far is None else HeldOut(**so_far)


class BestEpoch(CrossFittedMethod):
    """Notes the running mean of held-out answers, and keeps that of the epoch that agrees most with the given labels.

    Right labels can be predicted, wrong ones cannot: this stops before the networks harm, and reads nothing clean.
    """

    saved = (*NOTED, "agreement")
    given: Tensor  # (N,) labels
    latest: Tensor  # (N, C) held-out probabilities of this epoch
    average: Tensor  # (N, C) running mean over epochs
    kept: Tensor  # (N, C) the running mean of the best epoch
    soft_labels: Tensor  # (N, C) of `refine`, and the logarithms of their classes' shares; empty before
    log_prior: Tensor

    def __init__(self, setup: Setup, **options: Any) -> None:
        super().__init__(setup, **options)
        self.agreement = 0.0  # of the kept answers with the given labels
        shape = (setup.num_samples, setup.num_classes)
        for name in NOTED[1:]:
            self.keep(name, torch.zeros(shape))
        self.keep("given", torch.zeros(shape[0], dtype=torch.long))
        for name in ("soft_labels", "log_prior"):
            self.register_buffer(name, torch.zeros(0, setup.num_classes), persistent=False)

    def cross_fit_step(self, batch: Batch, context: Context, flips: bool = True) -> StepResult:
        result = super().cross_fit_step(batch, context, flips)
        if flips:  # networks that are trained again, on the labels as they are, are not asked here
            assert result.logits is not None
            write_rows(self.latest, batch.index, result.logits.softmax(1))
            write_rows(self.given, batch.index, batch.targets)
        return result

    def on_epoch_end(self, context: Context) -> None:
        if self.evidence is not None:  # the networks have answered
            return
        self.average = self.latest.clone() if context.epoch == 0 else torch.lerp(self.average, self.latest, NEW)
        agreement = float((self.average.argmax(1) == self.given).double().mean())
        if agreement > self.agreement:
            self.agreement, self.kept = agreement, self.average.clone()
        self.found = {"held_out_agreement": agreement}

    def take_best(self) -> tuple[Tensor, Tensor]:
        """Logarithms (N, C) of the kept answers and the given labels (N,), on the CPU; what was noted is let go."""
        floor = torch.finfo(self.kept.dtype).tiny
        best = self.kept.clamp(min=floor).log().cpu(), self.given.cpu()
        for name in NOTED:
            setattr(self, name, getattr(self, name)[:0])
        return best

    def refine(self, logits: Tensor, targets: Tensor) -> RefinedLabels:
        """Labels to learn from in place of the given ones."""
        refined = refine_labels(logits, targets)
        moved = refined.probabilities.argmax(1) != targets
        self.soft_labels = refined.probabilities.to(self.soft_labels.device)
        shares = refined.probabilities.double().mean(0)
        self.log_prior = shares.log().to(self.log_prior).expand_as(self.soft_labels)
        self.found |= {"wrong_labels": refined.wrong, "relabelled": float(moved.double().mean())}
        return refined


def pass_cost(folds: int, share: float) -> float:
    """What `folds` networks cost over `share` of the run's epochs, in plain trainings: each sample trains all but one,
    which answers.
    """
    return share * (folds - 1 + FORWARD)


def first_stage_epochs(share: float, epochs: int) -> int:
    return max(1, round(share * epochs))


def read_earlier(
    folder: str, class_counts: Tensor, num_networks: int | None = None, option: str = "reuse", own: Path | None = None
) -> tuple[list[dict[str, Any]], HeldOut]:
    """The networks' states of a finished run and what they said, refused where it cannot be of the same samples.

    `num_networks` is checked where it is given; `option` is what the user calls the folder, `own` that of the present run.
    """

    def refusal(why: str) -> InputError:
        return InputError(f"{option}={folder}: {why}")

    path = Path(folder) / "model.pt"
    if own is not None and own.resolve() == path.parent.resolve():
        raise refusal("that is the folder of this run itself. Give that of an earlier one.")
    if not path.is_file():
        raise refusal(f"{path} is not there. Give the folder of a finished run of this or a like method.")
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # what torch raises on a damaged file depends on where it is damaged
        raise refusal(f"{path} cannot be read ({type(error).__name__}): it is damaged.") from error
    kept = state.get("method", {}).get("_extra_state", {})
    evidence, networks = kept.get("evidence") if isinstance(kept, dict) else None, state["networks"]
    if evidence is None:
        raise refusal("the run there trained no cross-fitted networks: give one of xrm, mat, shortcut_prior.")
    if num_networks is not None and len(networks) != num_networks:
        raise refusal(f"the run there trained {len(networks) - 1} cross-fitted networks, not {num_networks - 1}.")
    counts = torch.bincount(evidence["targets"], minlength=len(class_counts))
    if not torch.equal(counts, class_counts.to(counts)):
        raise refusal(f"its samples have classes of {counts.tolist()}, this task's {class_counts.tolist()}.")
    return networks, HeldOut(**evidence)
