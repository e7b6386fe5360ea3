"""De-confounded training with the total direct effect at test time (De-confound-TDE)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from icda.errors import InputError
from icda.losses.cosine import unit_rows
from icda.losses.head import Head, head_parameters
from icda.methods.base import METHODS, Batch, Context, FeatureClassifier, Inputs, Method, Output, Setup, checked
from icda.ranges import NotNegative, Positive, PositiveInt, ShareBelowOne
from icda.ranks import all_reduce


class MultiHeadNormalisedLinear(nn.Linear):
    """(tau/K) sum_k x_k/|x_k| . w_k/(|w_k| + gamma), features and weights being cut into K equal parts.

    Maps features (N, A) to logits (N, C); K must divide A.
    """

    num_heads: int
    tau: float
    gamma: float

    @classmethod
    def of(cls, head: Head, num_heads: int, tau: float, gamma: float) -> MultiHeadNormalisedLinear:
        """This head with another head's weights; a bias is dropped. Draws no random number."""
        weight, _ = head_parameters(head)
        with torch.random.fork_rng(devices=[]):
            normalised = cls(weight.shape[1], weight.shape[0], bias=False)
        normalised.weight = nn.Parameter(weight.detach().clone(), requires_grad=weight.requires_grad)
        normalised.num_heads, normalised.tau, normalised.gamma = num_heads, tau, gamma
        return normalised

    def forward(self, features: Tensor) -> Tensor:
        return self.logits_of(self.directions(features))

    def directions(self, features: Tensor) -> Tensor:
        """The parts of the features, of length one each: (N, K, A/K)."""
        with torch.autocast(features.device.type, enabled=False):
            kind = torch.promote_types(torch.promote_types(features.dtype, self.weight.dtype), torch.float32)
            return unit_rows(features.to(kind).unflatten(1, (self.num_heads, -1)))

    def logits_of(self, directions: Tensor) -> Tensor:
        with torch.autocast(directions.device.type, enabled=False):
            parts = self.weight.to(directions.dtype).unflatten(1, (self.num_heads, -1))
            parts = parts / (torch.linalg.vector_norm(parts, dim=-1, keepdim=True) + self.gamma)
            return self.tau / self.num_heads * F.linear(directions.flatten(1), parts.flatten(1))

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, num_heads={self.num_heads}, tau={self.tau:g}, gamma={self.gamma:g}"


@METHODS.register("tde", "de_confound_tde")
class DeConfoundTDE(Method):
    """Train a normalised classifier, and remove the effect of the mean feature at test time.

    Training keeps a moving mean x of the features, the direction the optimiser's momentum drifts in; it is saved with
    the model. At test time each part of a feature loses alpha cos(x_k, mean_k) of the mean's direction. `alpha=0` is the
    plain normalised classifier. Published alphas: 1 (CIFAR-10-LT), 1.5 (CIFAR-100-LT), 3 (ImageNet-LT).

    Reference: Tang et al., "Long-tailed classification by keeping the good and removing the bad momentum causal effect",
    NeurIPS 2020.
    """

    mean_feature: Tensor

    @checked
    def __init__(
        self,
        setup: Setup,
        *,
        num_heads: PositiveInt = 2,
        tau: Positive = 16.0,
        gamma: NotNegative = 1 / 32,
        alpha: float = 1.0,
        momentum: ShareBelowOne = 0.9,
    ) -> None:
        super().__init__()
        if setup.feature_dim % num_heads:
            raise InputError(f"num_heads must divide the {setup.feature_dim} features of the network, got {num_heads}.")
        self.num_heads, self.tau, self.gamma = num_heads, tau, gamma
        self.alpha, self.momentum = alpha, momentum
        self.register_buffer("mean_feature", torch.zeros(setup.feature_dim))

    def prepare_network(self, network: FeatureClassifier) -> FeatureClassifier:
        network.head = MultiHeadNormalisedLinear.of(network.head, self.num_heads, self.tau, self.gamma)
        return network

    def loss(self, output: Output, batch: Batch, context: Context) -> Tensor:
        self.observe(output.features)
        return F.cross_entropy(output.logits, batch.targets)

    @torch.no_grad()
    def observe(self, features: Tensor) -> None:
        """Move the mean towards that of the batch, over all ranks."""
        total = torch.cat([features.float().sum(0), features.new_tensor([float(len(features))]).float()])
        all_reduce(total)
        self.mean_feature.lerp_((total[:-1] / total[-1]).to(self.mean_feature), 1 - self.momentum)

    def predict(self, models: Sequence[FeatureClassifier], inputs: Inputs) -> Tensor:
        head = models[0].head
        assert isinstance(head, MultiHeadNormalisedLinear), "prepare_network put it there"
        directions = head.directions(models[0](inputs).features)
        drift = head.directions(self.mean_feature[None].to(directions))
        along = (directions * drift).sum(-1, keepdim=True)  # the cosine: both have length one
        return head.logits_of(directions - self.alpha * along * drift)
