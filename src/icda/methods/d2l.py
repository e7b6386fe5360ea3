"""D2L: when features grow in dimension the network has begun to learn wrong labels; it then trusts itself more."""

import math
from typing import Annotated

import torch
from annotated_types import Ge
from torch import Tensor
from torch.nn import functional as F

from icda.data.generators import generator_for
from icda.data.task import Batch, rows_of
from icda.errors import InputError
from icda.methods.base import METHODS, Context, Figures, Method, Setup, checked
from icda.methods.per_sample import Keeps
from icda.models.base import Output, evaluating
from icda.ranges import PositiveInt, Share
from icda.ranks import all_mean


def local_dimension(features: Tensor, neighbours: int) -> Tensor:
    """Local intrinsic dimension (N,) of each row of `features` (N, A) among the others, estimated by likelihood.

    LID = -1 / mean_j log(r_j / r_k) with r_1 <= ... <= r_k the distances to the k nearest other rows. Rows whose k
    neighbours are all equally far, copies of it among others, have no estimate: they are NaN.
    """
    if not 2 <= neighbours < len(features):
        raise InputError(f"neighbours must lie in 2..{len(features) - 1} for {len(features)} rows, got {neighbours}.")
    points = features.double()
    distances = torch.cdist(points, points, compute_mode="donot_use_mm_for_euclid_dist")
    distances.fill_diagonal_(torch.inf)  # no row is its own neighbour
    nearest = distances.topk(neighbours, dim=1, largest=False).values.clamp(min=1e-300)
    slope = (nearest / nearest[:, -1:]).log().mean(1)
    return torch.where(slope < 0, -1 / slope, torch.nan)


@METHODS.register("d2l")
class D2L(Keeps, Method):
    """Mix labels with predictions once the features' dimension rises, a sign that wrong labels are being learned.

    The labels are a y + (1 - a) argmax p, with a = 1 until the dimension turns upward: before each epoch e the local
    intrinsic dimension LID_e of `samples` training features is taken, `neighbours` nearest in sets of `neighbourhood`.
    After `start` of training, LID_e above mean + 2 std of the last `window` is the turning point: the network goes back
    by one epoch, the optimiser starts again, and from then on a = exp(-(e/T) LID_e / min LID).

    Reference: Ma et al., "Dimensionality-driven learning with noisy labels", ICML 2018.
    """

    saved = ("snapshot",)
    dimensions: Tensor
    alpha: Tensor
    turning_epoch: Tensor

    @checked
    def __init__(
        self,
        setup: Setup,
        *,
        neighbours: PositiveInt = 20,
        neighbourhood: PositiveInt = 128,
        samples: PositiveInt = 1280,
        window: Annotated[PositiveInt, Ge(2)] = 5,
        start: Share = 0.3,
    ) -> None:
        super().__init__()
        smallest = min(neighbourhood, samples, setup.num_samples)
        if not 2 <= neighbours < smallest:
            raise InputError(
                f"neighbours is {neighbours}, expected 2..{smallest - 1}: the smallest of neighbourhood {neighbourhood}, "
                f"samples {samples} and the {setup.num_samples} training samples must hold more."
            )
        self.neighbours, self.neighbourhood, self.window = neighbours, neighbourhood, window
        self.samples, self.num_samples = min(samples, setup.num_samples), setup.num_samples
        self.seed = setup.seed
        self.first_epoch = round(start * setup.epochs) + window
        self.register_buffer("dimensions", torch.full((setup.epochs,), torch.nan, dtype=torch.float64))
        self.register_buffer("alpha", torch.tensor(1.0, dtype=torch.float64))
        self.register_buffer("turning_epoch", torch.tensor(-1))
        self.snapshot: dict[str, Tensor] = {}  # the network as it was when the last epoch began

    @property
    def has_turned(self) -> bool:
        return bool(self.turning_epoch >= 0)

    def on_epoch_start(self, context: Context) -> None:
        epoch = context.epoch
        self.dimensions[epoch] = self.measure(context)
        if not self.has_turned and self.turns(epoch):
            self.turning_epoch.fill_(epoch)
            self.roll_back(context)
        if self.has_turned:
            known = self.dimensions[: epoch + 1]
            ratio = float(known[epoch] / known[known > 0].min()) if known[epoch] > 0 else 1.0
            self.alpha.fill_(math.exp(-epoch / context.num_epochs * ratio))
        else:
            self.snapshot = {name: value.detach().clone() for name, value in context.models[0].state_dict().items()}

    def turns(self, epoch: int) -> bool:
        """Whether this epoch's dimension stands out above those of the last `window` epochs."""
        if epoch < self.first_epoch:
            return False
        before = self.dimensions[epoch - self.window : epoch]
        return bool(self.dimensions[epoch] - before.mean() > 2 * before.std(correction=0))

    def roll_back(self, context: Context) -> None:
        """Weights and buffers of one epoch ago; momentum that belongs to the weights given up is dropped."""
        context.models[0].load_state_dict(self.snapshot)
        self.snapshot = {}
        for optimizer in context.optimizers:
            optimizer.state.clear()

    @torch.no_grad()
    def measure(self, context: Context) -> float:
        """Mean LID of a random part of the training set, the same on every rank; 0 where all features coincide."""
        model = context.models[0]
        generator = generator_for(self.seed, "d2l", context.epoch)
        order = torch.randperm(self.num_samples, generator=generator)[: self.samples]
        place = torch.full((self.num_samples,), -1).index_copy_(0, order, torch.arange(self.samples))
        parts: list[tuple[Tensor, Tensor]] = []
        with evaluating(model):
            for batch in context.training_batches():
                chosen = (place[batch.index] >= 0).nonzero().flatten()
                if len(chosen):
                    parts.append((place[batch.index[chosen]], model(rows_of(batch.inputs, chosen)).features))
        features = torch.cat([part[1] for part in parts])
        places = torch.cat([part[0] for part in parts]).to(features.device)
        shuffled = torch.empty_like(features).index_copy_(0, places, features)
        sets = [part for part in shuffled.split(self.neighbourhood) if len(part) > self.neighbours]
        dimensions = torch.cat([local_dimension(part, self.neighbours) for part in sets])
        return float(all_mean(dimensions.nanmean().nan_to_num(0.0)))

    def loss(self, output: Output, batch: Batch, context: Context) -> Tensor:
        labels = F.cross_entropy(output.logits, batch.targets)
        if not self.has_turned:
            return labels
        alpha = float(self.alpha)
        return alpha * labels + (1 - alpha) * F.cross_entropy(output.logits, output.logits.detach().argmax(1))

    def epoch_figures(self) -> Figures:
        known = self.dimensions[~self.dimensions.isnan()]
        return {"dimension": float(known[-1]), "label_trust": float(self.alpha)}
