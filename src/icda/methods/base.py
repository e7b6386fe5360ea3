"""What happens between a batch and the optimiser's step.

A loss is the simplest method; larger procedures override `step`, `stages`, the epoch hooks or `predict`. A method is an
nn.Module: what it keeps as buffers, parameters or submodules is saved and restored with the checkpoint. Its constructor is
`@checked` (icda.settings): options are held to the ranges in their annotations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from icda.data.task import Batch, Inputs, Task
from icda.errors import InputError, InputTypeError
from icda.functional.prior import joint_counts
from icda.losses import LOSSES, AdjustedLoss
from icda.models.base import FeatureClassifier, Output
from icda.registry import Registry
from icda.results.run_result import Figure
from icda.settings import checked

# What a method is written with.
__all__ = ["METHODS", "Batch", "Context", "FeatureClassifier", "Figures", "Inputs", "Method", "MissingNeedError"]
__all__ += ["Output", "Sampling", "Setup", "Stage", "StepResult", "checked"]
__all__ += ["check_images", "check_metadata", "check_needs", "check_networks"]
Figures: TypeAlias = Mapping[str, Figure]  # for the log
METHODS: Registry[Callable[..., Method]] = Registry("method", "icda.methods", "icda.methods", beside=LOSSES)

# How samples are drawn. Balanced: every class, group or domain equally often, the samples within it alike. Reversed: a
# class the more often the rarer it is. Own: by the weights that the method gives in `sampling_weights`.
Sampling = Literal["uniform", "class_balanced", "class_reversed", "group_balanced", "domain_balanced", "own"]


@dataclass(frozen=True)
class Stage:
    """A stretch of training: which parameters learn, from which samples, by which step, and what is done when it ends.

    `step` and `loss` stand in for the method's own. `on_end` runs before the checkpoint of the last epoch is written, so
    that a run resumed later need not do it again. Only a stage's number is saved: a method is asked for its stages again.
    """

    epochs: int
    name: str = "train"
    trains: Literal["all", "head"] = "all"
    sampling: Sampling = "uniform"
    restart: bool = False  # a new optimiser, and a learning-rate schedule over this stage's epochs alone
    reset_head: bool = False
    reset_network: bool = False  # back to the weights the run began with
    split: Literal["train", "validation"] = "train"  # whose samples it learns from
    learning_rate: float | None = None  # what the schedule starts from; None takes the configuration's
    as_first: bool = False  # its batches are those of a training that begins with it, whatever came before
    judged: bool = True  # whether the validation split is looked at after each epoch; not while the kept network waits
    step: Callable[[Batch, Context], StepResult] | None = field(default=None, compare=False, repr=False)
    loss: Callable[[Output, Batch, Context], Tensor] | None = field(default=None, compare=False, repr=False)
    on_start: Callable[[Context], None] | None = field(default=None, compare=False, repr=False)
    on_end: Callable[[Context], None] | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Setup:
    """What a method is given when it is made."""

    num_classes: int
    feature_dim: int
    class_counts: Tensor
    epochs: int
    num_samples: int
    group_counts: Tensor | None = None  # None where group labels are unknown or withheld
    batch_size: int | None = None  # samples in a full batch, over all processes; None where nobody said
    input_shape: tuple[int, ...] = ()  # of one input: (channels, height, width) for images
    seed: int = 0  # of the run: what a method draws is a function of it and of where training stands
    group_domains: Tensor | None = None  # (G,) of each group: its attribute where groups are class x attribute
    domain_counts: Tensor | None = None  # (K, C) how many training samples of each class a domain has

    @classmethod
    def of(
        cls, task: Task, network: FeatureClassifier, epochs: int, batch_size: int | None = None, seed: int = 0
    ) -> Setup:
        groups, size = task.train.groups, len(task.train)
        counts = None if groups is None else torch.bincount(groups, minlength=task.num_groups)
        batch = None if batch_size is None else min(batch_size, size)
        shape = (task.num_classes, network.feature_dim, task.class_counts)
        domains = None if counts is None else task.group_domains()
        pairs = None
        if groups is not None and domains is not None:
            sizes = int(domains.max()) + 1, task.num_classes
            pairs = joint_counts(domains[groups], task.train.targets, *sizes).long()
        return cls(*shape, epochs, size, counts, batch, tuple(task.input_shape), seed, domains, pairs)


@dataclass
class Context:
    """What the trainer lends to a method for one step.

    `networks` are what to call in a forward pass (wrapped when several processes train); `models` are the same networks
    unwrapped, to read heads and parameters from. `apply(loss)` does backward and one step of every optimiser.
    """

    networks: Sequence[nn.Module]
    models: Sequence[FeatureClassifier]
    optimizers: Sequence[torch.optim.Optimizer]
    apply: Callable[[Tensor], None]
    training_batches: Callable[[], Iterator[Batch]]  # one pass over the stage's split, in order, as it is
    next_metadata: Callable[[], Batch] | None = None
    epoch: int = 0
    num_epochs: int = 1
    iteration: int = 0
    progress: float = 0.0  # t/T in [0, 1]
    stage: Stage = field(default_factory=lambda: Stage(1))
    draw: Callable[[Sampling], Batch] | None = None  # one more batch of this step, of training samples drawn that way
    training_targets: Tensor | None = None  # (N,) labels of all training samples; None where nobody said

    @property
    def network(self) -> nn.Module:
        return self.networks[0]

    @property
    def head(self) -> nn.Module:
        return self.models[0].head

    @property
    def head_weight(self) -> Tensor:
        return self.models[0].head_weight

    @property
    def learning_rate(self) -> float:
        return float(self.optimizers[0].param_groups[0]["lr"])


class StepResult(NamedTuple):
    """Detached figures of one step, for logs; `logits` may be None where a method has no single answer."""

    loss: Tensor
    logits: Tensor | None
    extra: Mapping[str, float] = {}


class Method(nn.Module):
    """A way of training: cross entropy, unless a subclass writes another `loss`, or a `step` where one loss on one forward
    pass is not enough. How one of ours differs from its paper, and what to beware of, stands on its page in docs/methods.
    """

    needs: ClassVar[frozenset[str]] = frozenset()  # of "groups", "metadata", "validation", "validation groups"
    num_networks: ClassVar[int] = 1
    prior_per_sample: ClassVar[bool] = False  # whether each training sample brings a prior of its own to the loss
    adds_epochs: ClassVar[bool] = False  # whether its stages are longer than the run's epochs; else they share them
    meta_batch_size: int | None = None  # samples of metadata in a step, over all processes; None: the batch size
    answers_later: ClassVar[bool] = False  # whether `shortcut_answers` will have an answer once a stage is over
    # What training batches of images go through as bytes (N, H, W, C), before they are cropped, mirrored and standardised.
    augment_images: Callable[[Tensor, torch.Generator], Tensor] | None = None
    # The loss that a method trains with, where it is one of ours: `icda explain` reads its margins and strengths.
    criterion: AdjustedLoss | None
    step_figures: Mapping[str, float] = {}  # what `loss` found in a step; the log has the mean over an epoch

    def __init__(self) -> None:
        super().__init__()
        self.criterion = None  # not in the class: there it would hide the module that a subclass sets

    @classmethod
    def cost_note(cls, epochs: int, options: Mapping[str, Any]) -> str:
        """What a run costs beyond plain training, said before it starts; empty where that is no surprise."""
        return ""

    def loss(self, output: Output, batch: Batch, context: Context) -> Tensor:
        return F.cross_entropy(output.logits, batch.targets)

    def step(self, batch: Batch, context: Context) -> StepResult:
        """Train on one batch: forward, the stage's loss or the method's, backward, optimiser step."""
        output = context.network(batch.inputs)
        loss = (context.stage.loss or self.loss)(output, batch, context)
        context.apply(loss)
        return StepResult(loss.detach(), output.logits.detach(), self.step_figures)

    def predict(self, models: Sequence[FeatureClassifier], inputs: Inputs) -> Tensor:
        """Logits at test time."""
        return models[0](inputs).logits

    def shortcut_answers(self, models: Sequence[FeatureClassifier], inputs: Inputs) -> Tensor | None:
        """The class (N,) that biased networks, if the method trains any, see in inputs they have not learned from."""
        return None

    def prepare_network(self, network: FeatureClassifier) -> FeatureClassifier:
        """Change the network before training starts (a cosine head, a second branch)."""
        return network

    def stages(self, epochs: int) -> list[Stage]:
        """The training laid end to end. Asked again when a stage ends: those to come may depend on what was found."""
        return [Stage(epochs)]

    def sampling_weights(self) -> Tensor:
        """One weight per training sample, for stages and draws whose sampling is "own"; asked for once per epoch."""
        raise InputTypeError(f"{type(self).__name__} samples by its own weights and defines no sampling_weights().")

    def on_stage_start(self, context: Context) -> None: ...

    def on_stage_end(self, context: Context) -> None:
        """After the last epoch of a stage, before its figures are taken and the checkpoint is written."""

    def before_training(self, folder: Path) -> None:
        """Refuse what cannot be trained in `folder`, before anything that lies there is given up."""

    def on_epoch_start(self, context: Context) -> None: ...

    def on_epoch_end(self, context: Context) -> None: ...

    def epoch_figures(self) -> Figures:
        """Figures of the epoch that just ended, for the log: plain numbers, lists or dicts."""
        return {}

    def findings(self) -> str:
        """What a method that judges its data found and did, in a sentence or two; empty of any other."""
        return ""

    def sample_figures(self) -> Mapping[str, Tensor]:
        """Numbers given to each training sample (N,) in that epoch, NaN where there was none, by name.

        The log says how they stand to wrong labels, small groups and small classes, which a method need not know.
        """
        return {}


def check_images(owner: str, shape: tuple[int, ...], fits: bool, wanted: str) -> None:
    """Refuse inputs that are not the images (channels, height, width) that a method needs."""
    if len(shape) != 3 or not fits:
        raise InputError(
            f"{owner}: it needs inputs of shape (channels, height, width){wanted}, got "
            f"{tuple(shape) or 'inputs without a fixed shape'}. For a folder of images set --image-size."
        )


class MissingNeedError(InputError):
    """A task lacks what a method needs."""


def check_needs(name: str, needs: frozenset[str], task: Task) -> None:
    """Fail before training when a task lacks what a method needs."""
    has = {
        "groups": task.train.groups is not None,
        "metadata": task.metadata is not None,
        "validation": task.validation is not None,
        "validation groups": task.validation is not None and task.validation.groups is not None,
    }
    missing = sorted(need for need in needs if not has[need])
    if missing:
        raise MissingNeedError(
            f"method {name!r} needs {' and '.join(missing)}, which task {task.name!r} does not have. "
            "`icda list methods` shows what each method needs."
        )
    if "metadata" in needs:
        check_metadata(task)


def check_networks(method: Method, count: int) -> None:
    """Fail before training when a method is given another number of networks than it trains."""
    if count != method.num_networks:
        raise InputError(f"{type(method).__name__} trains {method.num_networks} networks (num_networks), got {count}.")


def check_metadata(task: Task) -> None:
    """Metadata must hold every class and nothing that is trained on."""
    metadata = task.metadata
    assert metadata is not None
    counts = torch.bincount(metadata.targets, minlength=task.num_classes)
    absent = [task.class_name(c) for c in (counts == 0).nonzero().flatten().tolist()]
    if absent:
        raise InputError(f"the metadata of task {task.name!r} holds no sample of class {', '.join(absent)}.")
    if metadata.source is task.train.source:
        shared = metadata.rows[torch.isin(metadata.rows, task.train.rows)]
        if len(shared):
            raise InputError(
                f"{len(shared)} of {len(metadata)} metadata samples of task {task.name!r} are training samples too "
                f"(first: row {int(shared[0])}): what is learned on them would only confirm the bias. Take them out."
            )
