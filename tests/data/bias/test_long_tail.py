import pytest
import torch

from icda.data.bias.long_tail import keep_counts, long_tail, long_tail_counts

CIFAR10_100 = [5000, 2997, 1796, 1077, 645, 387, 232, 139, 83, 50]
CIFAR10_10 = [5000, 3871, 2997, 2320, 1796, 1391, 1077, 834, 645, 500]
CIFAR10_100_META = [4990, 2991, 1793, 1075, 644, 386, 231, 138, 83, 49]
CIFAR10_10_META = [4990, 3863, 2991, 2316, 1793, 1388, 1075, 832, 644, 499]


def _labels(classes=10, each=5000):
    order = torch.randperm(classes * each, generator=torch.Generator().manual_seed(9))
    return (torch.arange(classes * each) % classes)[order]


@pytest.mark.parametrize(
    ("largest", "classes", "ratio", "head", "tail", "total"),
    [
        (5000, 10, 100, CIFAR10_100, [50], 12406),
        (5000, 10, 10, CIFAR10_10, [500], 20431),
        (4990, 10, 100, CIFAR10_100_META, [49], 12380),
        (4990, 10, 10, CIFAR10_10_META, [499], 20391),
        (500, 100, 100, [500, 477, 455, 434, 415], [5, 5, 5], 10847),
        (500, 100, 10, [500, 488, 477], [52, 51, 50], 19573),
        (490, 100, 100, [490, 467, 446], [5, 5, 4], 10626),
        (490, 100, 10, [490], [49], 19183),
    ],
)
def test_class_sizes_of_cifar_are_those_of_the_literature(largest, classes, ratio, head, tail, total):
    counts = long_tail_counts(largest, classes, ratio)
    assert (counts[: len(head)], counts[-len(tail) :], sum(counts)) == (head, tail, total)


@pytest.mark.parametrize(("ratio", "aside", "counts"), [(100, 0, CIFAR10_100), (10, 10, CIFAR10_10_META)])
def test_the_subset_has_the_sizes_and_spares_the_metadata(ratio, aside, counts):
    labels = _labels()
    chosen = long_tail(labels, ratio, torch.Generator().manual_seed(0), metadata_per_class=aside)
    assert torch.bincount(labels[chosen.train]).tolist() == counts
    assert len(chosen.train.unique()) == sum(counts)
    if aside == 0:
        assert chosen.metadata is None
    else:
        assert torch.bincount(labels[chosen.metadata]).tolist() == [aside] * 10
        assert not set(chosen.metadata.tolist()) & set(chosen.train.tolist())


def test_a_seed_decides_which_samples_are_kept():
    labels = _labels(each=50)
    first, again, other = (long_tail(labels, 10, torch.Generator().manual_seed(s)).train for s in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_without_a_largest_size_the_smallest_class_sets_it():
    labels = torch.tensor([0] * 30 + [1] * 20)
    assert torch.bincount(labels[long_tail(labels, 10, torch.Generator()).train]).tolist() == [20, 2]


@pytest.mark.parametrize(
    ("classes", "ratio", "message"),
    [(1, 10, "two classes and a ratio"), (10, 0.5, "two classes and a ratio"), (10, 100, "lower the ratio")],
)
def test_a_tail_that_cannot_be_is_refused(classes, ratio, message):
    with pytest.raises(ValueError, match=message):
        long_tail_counts(50, classes, ratio)


def test_keeping_more_than_there_is_names_the_class():
    with pytest.raises(ValueError, match="class 1 has 1 samples, 2 are needed"):
        keep_counts(torch.tensor([0, 0, 1]), [1, 2], torch.Generator())
