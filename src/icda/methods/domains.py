"""What methods that compare domains share: which domain each sample of a batch comes from.

A domain is a value of the spurious attribute where a task's groups are class x attribute, else a group.
"""

from typing import ClassVar, Literal

import torch
from torch import Tensor

from icda.errors import InputError
from icda.methods.base import Batch, Method, Setup, Stage

DomainSampling = Literal["uniform", "group_balanced", "domain_balanced"]


class DomainMethod(Method):
    """A method that reads domains; by default every domain is drawn equally often, as in DomainBed's batches."""

    needs: ClassVar[frozenset[str]] = frozenset({"groups"})
    group_domains: Tensor

    def __init__(self, setup: Setup, sampling: DomainSampling = "domain_balanced", compares: bool = True) -> None:
        super().__init__()
        assert setup.group_domains is not None, "check_needs admits no task without its groups"
        counts = torch.ones_like(setup.group_domains) if setup.group_counts is None else setup.group_counts
        self.num_present = len(setup.group_domains[counts > 0].unique())
        if compares and self.num_present < 2:
            raise InputError(
                f"{type(self).__name__} compares domains, and the training set has samples of {self.num_present}, "
                "expected two or more: name an attribute that varies, or take a method that needs no groups, such as "
                "cross_entropy."
            )
        self.sampling: DomainSampling = sampling
        self.register_buffer("group_domains", setup.group_domains, persistent=False)

    def stages(self, epochs: int) -> list[Stage]:
        return [Stage(epochs, sampling=self.sampling)]

    def domains(self, batch: Batch) -> Tensor:
        """The domain (N,) of each sample."""
        assert batch.groups is not None
        return self.group_domains[batch.groups]


def per_domain(values: Tensor, domains: Tensor) -> list[Tensor]:
    """`values` (N, ...) cut by domain, in the order of their numbers; a domain the batch has none of is left out."""
    return [values[domains == domain] for domain in domains.unique()]
