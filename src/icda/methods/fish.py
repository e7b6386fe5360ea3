"""Fish: a step through all domains in turn, then back by half, which favours gradients that agree."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from icda.data.generators import generator_for
from icda.data.task import Batch, rows_of
from icda.errors import InputError
from icda.methods.base import METHODS, Context, Setup, StepResult, checked
from icda.methods.domains import DomainMethod
from icda.ranges import Share, ShareAboveZero
from icda.ranks import all_gather_rows

FEWEST = 2  # samples of a domain for a step: BatchNorm cannot normalise a single one


class Part(NamedTuple):
    """Samples of one inner step, and what makes their mean on this rank count right in the mean over ranks."""

    positions: Tensor
    scale: float


@METHODS.register("fish")
class Fish(DomainMethod):
    """Take one optimiser step per domain, then go only part of the way, so that the domains' gradients align.

    theta <- theta + epsilon (theta after the steps - theta before them): to first order the mean gradient and the inner
    products of the domains' gradients. The steps are the run's optimiser on the network itself; all floating-point
    entries of the network's state, BatchNorm's included, go back by 1 - epsilon. The order of the domains is a function
    of (seed, iteration). Before `start` of training it is cross entropy on the same domain-balanced batches.

    Reference: Shi et al., "Gradient matching for domain generalization", ICLR 2022; epsilon as in DomainBed.
    """

    @checked
    def __init__(self, setup: Setup, *, epsilon: ShareAboveZero = 0.5, start: Share = 0.0) -> None:
        super().__init__(setup)
        smallest = FEWEST * self.num_present
        if setup.batch_size is not None and setup.batch_size < smallest:
            raise InputError(
                f"fish steps on each domain's part of a batch: {setup.batch_size} samples cannot hold {FEWEST} of each of "
                f"{self.num_present} domains. Set --batch-size to {smallest} or more."
            )
        self.epsilon, self.start = epsilon, start
        self._seed, self._num_domains = setup.seed, int(self.group_domains.max()) + 1

    def step(self, batch: Batch, context: Context) -> StepResult:
        if context.progress < self.start:
            return super().step(batch, context)
        before = floating_state(context.models[0])
        parts, complete = self.parts(batch, context.iteration)
        losses, answers = [], []
        for positions, scale in parts:
            output = context.network(rows_of(batch.inputs, positions))
            loss = F.cross_entropy(output.logits, batch.targets[positions])
            context.apply(loss * scale)
            losses.append(loss.detach())
            answers.append(output.logits.detach())
        interpolate(context.models[0], before, self.epsilon)
        order = torch.cat([part.positions for part in parts]).argsort()
        logits = torch.cat(answers)[order] if complete else None
        return StepResult(torch.stack(losses).mean(), logits, {"inner_steps": float(len(parts))})

    def parts(self, batch: Batch, iteration: int) -> tuple[list[Part], bool]:
        """The inner steps of a batch in their order, the same on every rank, and whether no sample was left out.

        A domain of which some rank has fewer than two samples is left out, for all ranks must take the same steps; a
        batch that has no other, a short last one, is taken as a whole.
        """
        domains = self.domains(batch)
        mine = torch.bincount(domains, minlength=self._num_domains)
        counts = all_gather_rows(mine[None])  # (ranks, domains)
        taken = (counts >= FEWEST).all(0)
        if not taken.any():
            return [Part(torch.arange(len(domains), device=domains.device), 1.0)], True
        share_of_batch = len(domains) / int(counts.sum())
        order = torch.randperm(self._num_domains, generator=generator_for(self._seed, "fish", iteration)).tolist()
        parts = []
        for domain in (domain for domain in order if taken[domain]):
            share_of_domain = int(mine[domain]) / int(counts[:, domain].sum())
            parts.append(Part((domains == domain).nonzero().flatten(), share_of_domain / share_of_batch))
        return parts, bool(torch.equal(taken, counts.sum(0) > 0))


def floating_state(network: nn.Module) -> dict[str, Tensor]:
    """A copy of the parameters and floating-point buffers; counters such as BatchNorm's are not interpolated."""
    return {
        name: value.detach().clone()
        for name, value in network.state_dict().items()
        if isinstance(value, Tensor) and value.is_floating_point()
    }


@torch.no_grad()
def interpolate(network: nn.Module, before: dict[str, Tensor], epsilon: float) -> None:
    """Set the network to before + epsilon (now - before), in place."""
    state = network.state_dict()
    for name, old in before.items():
        state[name].copy_(torch.lerp(old, state[name], epsilon))
