"""OLTR: features enriched from a memory of class centroids, read by a cosine classifier."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from icda.data.generators import generator_for
from icda.losses.center_loss import squared_distances
from icda.losses.cosine import unit_rows
from icda.losses.head import Head, head_parameters
from icda.methods.base import METHODS, Batch, Context, Method, Setup, Stage, StepResult, checked
from icda.methods.crt import two_stages
from icda.methods.per_sample import class_sums
from icda.models.base import FeatureClassifier, Output, evaluating
from icda.ranges import NotNegative, OpenShare, Positive, Share
from icda.ranks import all_mean

NEAREST = 1e-6  # a feature on its centroid is this far from it: reachability stays finite


class MetaEmbeddingHead(nn.Module):
    """A linear classifier that becomes a classifier with a memory when `open_memory` is called.

    With memory, a feature h takes up centroids by softmax(linear(h)), as many of it as tanh(selector(h)) lets through, and
    is scaled by how near the nearest centroid is: v = (reach / d_min) (h + tanh(selector(h)) * memory). Logits are
    scale * v/(1 + |v|) . w_c/|w_c|. `weight` and `bias` are what the classifier in use has: those of the linear one, later
    the directions w. Maps features (N, A) to logits (N, C).
    """

    centroids: Tensor
    has_memory: Tensor

    def __init__(self, in_features: int, out_features: int, bias: bool, scale: float, reach: float) -> None:
        super().__init__()
        self.scale, self.reach = scale, reach
        self.linear = nn.Linear(in_features, out_features, bias)
        self.selector = nn.Linear(in_features, in_features)
        self.directions = nn.Parameter(torch.zeros(out_features, in_features))
        self.register_buffer("centroids", torch.zeros(out_features, in_features))
        self.register_buffer("has_memory", torch.tensor(0))  # a number: not every backend broadcasts truth values

    @classmethod
    def of(cls, head: Head, scale: float, reach: float) -> MetaEmbeddingHead:
        """This head with another head's weights in its linear classifier. Draws no random number."""
        weight, bias = head_parameters(head)
        with torch.random.fork_rng(devices=[]):
            embedding_head = cls(weight.shape[1], weight.shape[0], bias is not None, scale, reach).to(weight)
        with torch.no_grad():
            embedding_head.linear.weight.copy_(weight)
            if bias is not None:
                embedding_head.linear.bias.copy_(bias)
        return embedding_head

    @property
    def weight(self) -> Tensor:
        return self.directions if self.has_memory else self.linear.weight

    @property
    def bias(self) -> Tensor | None:
        return None if self.has_memory else self.linear.bias

    @torch.no_grad()
    def open_memory(self, centroids: Tensor, generator: torch.Generator) -> None:
        """Answer with memory from now on; selector and directions start from what the generator draws."""
        bound = 1 / math.sqrt(self.selector.in_features)
        for parameter in (self.selector.weight, self.selector.bias, self.directions):
            parameter.copy_(bound * (2 * torch.rand(parameter.shape, generator=generator) - 1))
        self.centroids.copy_(centroids)
        self.has_memory.fill_(1)

    def forward(self, features: Tensor) -> Tensor:
        if not self.has_memory:
            return self.linear(features)
        # Without autocast: a distance cancels, and times a scale of 16 half precision would round a logit by a hundredth.
        with torch.autocast(features.device.type, enabled=False):
            embedding = self.embedding(features.to(self.centroids.dtype))
            squashed = embedding / (1 + torch.linalg.vector_norm(embedding, dim=1, keepdim=True))
            return self.scale * F.linear(squashed, unit_rows(self.directions))

    def embedding(self, features: Tensor) -> Tensor:
        """v (N, A): the feature with what the memory adds, the longer the nearer the nearest centroid."""
        # Not by matrix products: near a centroid their difference of squares would be rounding, and depend on the batch.
        distances = torch.cdist(features, self.centroids, compute_mode="donot_use_mm_for_euclid_dist")
        nearest = distances.amin(1, keepdim=True).clamp_min(NEAREST)
        memory = self.linear(features).softmax(1) @ self.centroids
        return self.reach / nearest * (features + self.selector(features).tanh() * memory)

    @torch.no_grad()
    def move_centroids(self, features: Tensor, targets: Tensor, rate: float) -> None:
        """c_j <- c_j - rate * sum_{y_i = j} (c_j - h_i) / (1 + n_j), over all ranks."""
        total, count = class_sums(features, targets, self.centroids)
        self.centroids.sub_(rate * (count * self.centroids - total) / (1 + count))

    def extra_repr(self) -> str:
        return f"scale={self.scale:g}, reach={self.reach:g}, has_memory={bool(self.has_memory)}"


def centroid_loss(features: Tensor, targets: Tensor, centroids: Tensor, repel: float, margin: float) -> Tensor:
    """mean_i |h_i - c_{y_i}|^2 / 2 + repel * max(0, margin - sum_i sum_{c != y_i} |h_i - c_c|^2 / (N C)).

    Features (N, A), centroids (C, A).
    """
    with torch.autocast(features.device.type, enabled=False):
        features = features.to(centroids.dtype)
        own = squared_distances(features, centroids, targets)
        # sum_c |h - c|^2 = C |h|^2 - 2 h . sum_c c + sum_c |c|^2, for all samples and centroids at once
        count = len(centroids)
        every = count * features.square().sum() - 2 * (features @ centroids.sum(0)).sum()
        every = every + len(features) * centroids.square().sum()
        others = (every - own.sum()) / (len(features) * count)
        return own.mean() / 2 + repel * (margin - others).clamp_min(0)


@METHODS.register("oltr")
class OLTR(Method):
    """Cross entropy first, then a cosine classifier with a memory of class centroids.

    The first stage, on a linear head, takes `first_stage` of the epochs; the class means of the training set then become
    the centroids. The second draws classes equally often and trains everything by cross entropy + `weight` (attract +
    `repel` * max(0, `margin` - distance to the centroids of other classes)); centroids follow their class by
    `centroid_rate`. `freeze_encoder` trains the head alone. The head, centroids included, is part of the network and
    answers at test time.

    Reference: Liu et al., "Large-scale long-tailed recognition in an open world", CVPR 2019.
    """

    @checked
    def __init__(
        self,
        setup: Setup,
        *,
        first_stage: OpenShare = 1 / 3,
        scale: Positive = 16.0,
        reach: Positive = 10.0,
        weight: NotNegative = 0.01,
        repel: NotNegative = 0.01,
        margin: NotNegative = 10.0,
        centroid_rate: Share = 0.1,
        freeze_encoder: bool = False,
    ) -> None:
        super().__init__()
        self.first_stage, self.freeze_encoder = first_stage, freeze_encoder
        self.scale, self.reach, self.centroid_rate = scale, reach, centroid_rate
        self.weight, self.repel, self.margin = weight, repel, margin
        self._seed = setup.seed

    def prepare_network(self, network: FeatureClassifier) -> FeatureClassifier:
        network.head = MetaEmbeddingHead.of(network.head, self.scale, self.reach)
        return network

    def stages(self, epochs: int) -> list[Stage]:
        first, second = two_stages("oltr", epochs, self.first_stage)
        memory: dict[str, Any] = {"trains": "head" if self.freeze_encoder else "all", "sampling": "class_balanced"}
        memory |= {"on_start": self.open_memory, "step": self.memory_step, "loss": self.memory_loss}
        return [Stage(first, "representation", restart=True), Stage(second, "memory", restart=True, **memory)]

    @torch.no_grad()
    def open_memory(self, context: Context) -> None:
        _head(context).open_memory(all_mean(class_means(context)), generator_for(self._seed, "oltr"))

    def loss(self, output: Output, batch: Batch, context: Context) -> Tensor:
        value, head = super().loss(output, batch, context), _head(context)
        # Nothing yet, with a gradient of nothing: several processes wait for a gradient of every parameter.
        return value + 0 * (head.selector.weight.sum() + head.selector.bias.sum() + head.directions.sum())

    def memory_loss(self, output: Output, batch: Batch, context: Context) -> Tensor:
        centroids = _head(context).centroids
        terms = centroid_loss(output.features, batch.targets, centroids, self.repel, self.margin)
        return super().loss(output, batch, context) + self.weight * terms

    def memory_step(self, batch: Batch, context: Context) -> StepResult:
        output = context.network(batch.inputs)
        loss = self.memory_loss(output, batch, context)
        context.apply(loss)
        # After the step: its gradient is that at the centroids of the forward pass.
        _head(context).move_centroids(output.features.detach(), batch.targets, self.centroid_rate)
        return StepResult(loss.detach(), output.logits.detach())


@torch.no_grad()
def class_means(context: Context) -> Tensor:
    """The mean feature (C, A) of every class over the training set, of the network in evaluation mode."""
    model, head = context.models[0], _head(context)
    sums = head.centroids.new_zeros(*head.centroids.shape, dtype=torch.float64)
    counts = sums.new_zeros(len(sums), 1)
    with evaluating(model):
        for batch in context.training_batches():
            sums.index_add_(0, batch.targets, model(batch.inputs).features.to(sums))
            counts.index_add_(0, batch.targets, counts.new_ones(batch.num_samples, 1))
    return (sums / counts).to(head.centroids)


def _head(context: Context) -> MetaEmbeddingHead:
    head = context.head
    assert isinstance(head, MetaEmbeddingHead), "prepare_network put it there"
    return head
