"""What a method gave to each training sample, against what is known of the samples: wrong labels, groups, class sizes.

Only the log reads this. Methods are never shown which labels are wrong.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from icda.data.task import Split
from icda.results.run_result import Figure


def describe_samples(figures: Mapping[str, Tensor], split: Split) -> dict[str, Figure]:
    """Means and AUROCs of each figure (N,) over the samples that have one, for the log.

    `NAME_wrong_labels` and `NAME_right_labels` are means, `NAME_auroc_wrong` how well a low figure marks a wrong label;
    `NAME_minority` and `NAME_majority` are means over the samples outside and in the largest group of their class,
    `NAME_auroc_minority` how well a high figure marks the first; `NAME_small_classes` and `NAME_large_classes` are the
    means of the classes' means below and above their median size. What a task does not know is left out.
    """
    found: dict[str, Figure] = {}
    for name, values in figures.items():
        known = (~values.isnan()).nonzero().flatten().cpu()
        values, targets = values.cpu().double()[known], split.targets[known]
        if split.clean_targets is not None:
            wrong = targets != split.clean_targets[known]
            found |= _compare(values, wrong, (f"{name}_wrong_labels", f"{name}_right_labels"))
            found[f"{name}_auroc_wrong"] = auroc(-values, wrong)
        if split.groups is not None:
            few = minority(split.targets, split.groups)[known]
            found |= _compare(values, few, (f"{name}_minority", f"{name}_majority"))
            found[f"{name}_auroc_minority"] = auroc(values, few)
        found |= _by_class_size(name, values, targets, split.targets)
    return {name: value for name, value in found.items() if value is not None}


def minority(targets: Tensor, groups: Tensor) -> Tensor:
    """Which samples (N,) are not of the largest group of their class."""
    few = torch.zeros_like(targets, dtype=torch.bool)
    for label in targets.unique():
        rows = targets == label
        few[rows] = groups[rows] != torch.bincount(groups[rows]).argmax()
    return few


def auroc(scores: Tensor, positive: Tensor) -> float | None:
    """How often a positive sample has the higher score, ties counting half; None without both kinds."""
    many, few = int(positive.sum()), int((~positive).sum())
    if not many or not few:
        return None
    _, place, count = torch.unique(scores, return_inverse=True, return_counts=True)
    ranks = (count.cumsum(0).double() - (count.double() - 1) / 2)[place]  # tied scores share their mean rank
    return float((ranks[positive].sum() - many * (many + 1) / 2) / (many * few))


def _compare(values: Tensor, chosen: Tensor, names: tuple[str, str]) -> dict[str, Figure]:
    parts = zip(names, (values[chosen], values[~chosen]), strict=True)
    return {name: float(part.mean()) for name, part in parts if len(part)}


def _by_class_size(name: str, values: Tensor, targets: Tensor, every_target: Tensor) -> dict[str, Figure]:
    sizes = torch.bincount(every_target).double()
    present = torch.bincount(targets, minlength=len(sizes)) > 0
    means = torch.zeros_like(sizes).index_add(0, targets, values) / torch.bincount(targets, minlength=len(sizes))
    middle = sizes[present].median() if present.any() else 0.0
    small, large = present & (sizes < middle), present & (sizes > middle)
    parts = ((f"{name}_small_classes", small), (f"{name}_large_classes", large))
    return {key: float(means[chosen].mean()) for key, chosen in parts if small.any() and large.any()}
