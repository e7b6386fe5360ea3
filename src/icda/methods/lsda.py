"""LSDA: a covariance for every sample, predicted by a network and learned within the batch."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from icda.data.task import rows_of
from icda.functional.quadratic import sample_variance_form
from icda.meta import Forward
from icda.meta.lookahead import Mode
from icda.methods.base import METHODS, Batch, Context, Output, Setup, checked
from icda.methods.meta_learning import MetaLearner, Outer
from icda.ranges import NotNegative, PositiveInt, Share


@METHODS.register("lsda", "learnable_isda")
class LSDA(MetaLearner):
    """ISDA with a learned variance for every sample.

    The loss is the cross entropy of z_c + (lambda/2) d_c^T diag(v_i) d_c with v_i = sigmoid(MLP(h_i)). The network
    learns without metadata: a batch is cut in halves, and each serves as the other's metadata.

    Reference: Pu et al., "Fine-grained recognition with learnable semantic data augmentation", TIP 2024.
    """

    needs = frozenset[str]()

    @checked
    def __init__(
        self,
        setup: Setup,
        *,
        lookahead: Mode = "full",
        every: PositiveInt = 1,
        start: Share = 0.0,
        lambda0: NotNegative = 0.5,
        hidden: PositiveInt = 512,
        covariance_rate: NotNegative = 1e-3,
    ) -> None:
        super().__init__(lookahead=lookahead, every=every, start=start)
        self.lambda0 = lambda0
        self.covariance_network = nn.Sequential(
            nn.Linear(setup.feature_dim, hidden), nn.ReLU(), nn.Linear(hidden, setup.feature_dim), nn.Sigmoid()
        )
        self.optimizer = torch.optim.SGD(self.covariance_network.parameters(), lr=covariance_rate)

    def outer(self, output: Output, batch: Batch, context: Context, rows: slice = slice(None)) -> Outer:
        variances = self.covariance_network(output.features.detach()[rows])

        def inner(logits: Tensor, weight: Tensor) -> Tensor:
            return self._loss(logits[rows], weight, batch.targets[rows], context.progress, variances)

        return Outer(list(self.covariance_network.parameters()), inner)

    def meta_step(self, forward: Forward, batch: Batch, context: Context) -> float:
        half = batch.num_samples // 2
        parts = (slice(0, half), slice(half, None))
        gradients, losses = [], []
        for rows, others in (parts, parts[::-1]):
            outer = self.outer(forward.output, batch, context, rows)  # type: ignore[arg-type]
            ahead = self.look(forward, outer, rows_of(batch.inputs, others), batch.targets[others], context)
            gradients.append(ahead.gradients)
            losses.append(float(ahead.meta_loss))
        self.correct(outer.tensors, [0.5 * (a + b) for a, b in zip(*gradients, strict=True)], context)
        return sum(losses) / 2

    def loss(self, output: Output, batch: Batch, context: Context) -> Tensor:
        weight = context.head_weight
        with torch.no_grad():
            variances = self.covariance_network(output.features.detach())
        return self._loss(output.logits, weight, batch.targets, context.progress, variances)

    def _loss(self, logits: Tensor, weight: Tensor, targets: Tensor, progress: float, variances: Tensor) -> Tensor:
        form = sample_variance_form(weight, targets, variances.to(weight))
        return F.cross_entropy(logits + 0.5 * self.lambda0 * progress * form, targets)
