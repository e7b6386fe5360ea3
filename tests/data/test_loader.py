import gc
import threading
import time

import pytest
import torch

from icda.data.loader import BatchLoader, balanced_weights
from icda.data.sources import FeatureArray, ImageArray
from icda.data.task import Split


def _pictures(count=43):
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (count, 8, 8, 3), dtype=torch.uint8, generator=generator)
    source = ImageArray(images, (0.5,) * 3, (0.5,) * 3, crop_padding=2, flip=True)
    targets = torch.arange(count) % 3
    return Split(source, torch.arange(count).flip(0), targets, groups=targets % 2)


def _vectors(count):
    values = torch.arange(count)
    return Split(FeatureArray(values.view(-1, 1).float()), values, values % 2)


def _loader(split, batch_size=8, **options):
    settings = {"seed": 3, "shuffle": True, "augment": True, **options}
    return BatchLoader(split, batch_size, **settings)


def _same(first, second):
    return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def _our_threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("icda-batches")]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("start", [0, 1, 4, 6])
def test_an_epoch_resumed_at_batch_k_equals_the_uninterrupted_one_bit_for_bit(weighted, start):
    split = _pictures()
    weights = balanced_weights(split.targets) if weighted else None
    whole = list(_loader(split, weights=weights).epoch(5))
    resumed = list(_loader(split, weights=weights).epoch(5, start_batch=start))
    assert len(resumed) == len(whole) - start
    assert all(_same(a, b) for a, b in zip(whole[start:], resumed, strict=True))


def test_epochs_and_seeds_differ():
    split = _pictures()
    orders = [_loader(split, seed=seed).order(epoch).tolist() for seed, epoch in [(0, 0), (0, 1), (1, 0)]]
    assert len({tuple(order) for order in orders}) == 3
    assert all(sorted(order) == list(range(len(split))) for order in orders)


@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("shuffle", [True, False])
def test_the_ranks_together_see_the_batches_of_one_process(world, shuffle):
    split = _pictures()
    options = {"shuffle": shuffle, "augment": False}
    whole = list(_loader(split, 12, **options).epoch(1))
    shares = [list(_loader(split, 12, rank=r, world_size=world, **options).epoch(1)) for r in range(world)]
    assert {len(share) for share in shares} == {len(whole)}
    for number, batch in enumerate(whole):
        for rank in range(world):
            assert torch.equal(shares[rank][number].index, batch.index[rank::world])
            assert torch.equal(shares[rank][number].inputs, batch.inputs[rank::world])


def test_ranks_and_epochs_draw_different_augmentations():
    same_picture = Split(_pictures().source, torch.zeros(8, dtype=torch.long), torch.arange(8) % 2)
    loaders = [_loader(same_picture, rank=rank, world_size=2) for rank in (0, 1)]
    first, of_rank, of_epoch = (next(loaders[rank].epoch(epoch)).inputs for rank, epoch in ((0, 0), (1, 0), (0, 1)))
    assert not torch.equal(first, of_rank)
    assert not torch.equal(first, of_epoch)


@pytest.mark.parametrize(
    ("count", "world", "batches"), [(17, 1, 2), (18, 1, 3), (16, 1, 2), (19, 2, 2), (20, 2, 3), (1, 1, 0)]
)
def test_a_last_batch_with_a_single_sample_for_a_rank_is_dropped(count, world, batches):
    if batches == 0:
        with pytest.raises(ValueError, match="each needs two samples"):
            _loader(_vectors(count), world_size=world)
        return
    loader = _loader(_vectors(count), world_size=world)
    assert len(loader) == len(list(loader.epoch(0))) == batches


@pytest.mark.parametrize("world", [1, 2, 4])
def test_an_evaluation_misses_nothing_and_keeps_the_order(world):
    split = _vectors(17)
    seen = []
    for rank in range(world):
        loader = _loader(split, shuffle=False, augment=False, rank=rank, world_size=world)
        assert len(loader) == 3
        seen.append([i for batch in loader.epoch(0) for i in batch.index.tolist()])
    assert sorted(i for share in seen for i in share) == list(range(17))
    assert all(share == sorted(share) for share in seen)


def test_balanced_weights_make_rare_labels_as_frequent_as_common_ones():
    labels = torch.tensor([0] * 9_000 + [1] * 900 + [2] * 100)
    split = Split(FeatureArray(torch.zeros(10_000, 1)), torch.arange(10_000), labels)
    loader = _loader(split, 100, weights=balanced_weights(labels), augment=False)
    drawn = torch.cat([batch.targets for batch in loader.epoch(0)])
    assert (torch.bincount(drawn) / len(drawn)).tolist() == pytest.approx([1 / 3] * 3, abs=0.02)


def test_a_sample_of_weight_zero_is_never_drawn():
    weights = torch.tensor([0.0, 1.0, 0.0, 2.0, 0.0])
    drawn = torch.cat([_loader(_vectors(5), weights=weights).order(epoch) for epoch in range(50)])
    assert set(drawn.tolist()) == {1, 3}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weights": torch.ones(3)}, r"expected \(10,\)"),
        ({"weights": torch.zeros(10)}, "not all zero"),
        ({"weights": torch.full((10,), float("nan"))}, "finite"),
        ({"rank": 0, "world_size": 9}, "each of 9 ranks"),
    ],
)
def test_options_that_cannot_work_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        _loader(_vectors(10), **options)


class _Watched:
    """Counts what is fetched, and fails at a given row."""

    def __init__(self, fails_at=None):
        self.fetched = 0
        self.fails_at = fails_at

    def __len__(self):
        return 100

    def fetch(self, rows, generator=None):
        if self.fails_at is not None and (rows == self.fails_at).any():
            raise OSError(f"row {self.fails_at} is broken")
        self.fetched += 1
        return rows


def _watched(fails_at=None):
    source = _Watched(fails_at)
    split = Split(source, torch.arange(100), torch.zeros(100, dtype=torch.long))
    return source, _loader(split, 10, shuffle=False, augment=False)


def test_two_batches_are_made_ahead_and_no_more():
    source, loader = _watched()
    batches = loader.epoch(0)
    next(batches)
    deadline = time.monotonic() + 5
    while source.fetched < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.05)
    assert source.fetched == 3


def test_an_error_in_the_background_reaches_the_caller_after_the_batches_before_it():
    _, loader = _watched(fails_at=35)
    batches = loader.epoch(0)
    assert [next(batches).num_samples for _ in range(3)] == [10, 10, 10]
    with pytest.raises(OSError, match="row 35 is broken"):
        next(batches)
    assert not _our_threads()


def test_neither_a_finished_nor_an_abandoned_epoch_leaves_a_thread_behind():
    _, loader = _watched()
    assert sum(batch.num_samples for batch in loader.epoch(0)) == 100
    assert not _our_threads()
    with pytest.raises(ValueError, match=r"expected 0\.\.10"):  # before anything is begun
        loader.epoch(0, start_batch=11)
    batches = loader.epoch(0)
    next(batches)
    assert len(_our_threads()) == 1
    del batches
    gc.collect()
    assert not _our_threads()
