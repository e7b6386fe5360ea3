"""Which samples a training reads: how often each kind is drawn, by which rank, and that a number makes a batch again."""

from dataclasses import dataclass

import pytest
import torch

from icda.data.sources import FeatureArray
from icda.data.task import Split, Task
from icda.methods import Method, Stage
from icda.training import TrainConfig
from icda.training.stage_run import TrainingBatches

# Groups are class x attribute: 400 of (0, 0), 40 of (0, 1), 20 of (1, 0), 40 of (1, 1).
GROUP_COUNTS = torch.tensor([400, 40, 20, 40])
DRAWN = 20_000


@dataclass
class Ranks:
    """As much of an Accelerator as batches need; `sizes` are those that the ranks' batches have."""

    process_index: int = 0
    num_processes: int = 1
    device: str = "cpu"
    sizes: tuple[int, ...] = ()

    def gather(self, own):
        assert int(own) == self.sizes[self.process_index]
        return torch.tensor(self.sizes)


class Thirds(Method):
    """Draws three samples only, the third twice as often."""

    def sampling_weights(self):
        weights = torch.zeros(500)
        weights[:3] = torch.tensor([1.0, 1.0, 2.0])
        return weights


def make_task():
    groups = torch.arange(4).repeat_interleave(GROUP_COUNTS)
    source = FeatureArray(torch.arange(500.0)[:, None])
    train = Split(source, torch.arange(500), groups // 2, groups)
    few = train.subset(torch.arange(0, 500, 7))
    names = ("00", "01", "10", "11")
    return Task("toy", 2, train, few, few, few, group_names=names, input_kind="features", group_attributes=(0, 1, 0, 1))


def batches_of(batch_size=50, method=None, **ranks):
    config = TrainConfig(batch_size=batch_size, seed=3)
    return TrainingBatches(config, make_task(), method or Method(), Ranks(**ranks))


def rows(batch):
    return [int(value) for value in batch.inputs[:, 0]]


def drawn_groups(sampling):
    """The share of each group among many samples of a stage."""
    loader = batches_of().stage_loader(Stage(1, sampling=sampling))
    epochs = range(DRAWN // 500)
    groups = torch.cat([batch.groups for epoch in epochs for batch in loader.epoch(epoch) if batch.groups is not None])
    return torch.bincount(groups, minlength=4) / len(groups)


@pytest.mark.parametrize(
    ("sampling", "shares"),
    [
        ("uniform", [0.8, 0.08, 0.04, 0.08]),
        ("class_balanced", [0.5 * 400 / 440, 0.5 * 40 / 440, 0.5 * 20 / 60, 0.5 * 40 / 60]),
        # 1/n_c each: class 0 has 60/500, class 1 has 440/500
        ("class_reversed", [0.12 * 400 / 440, 0.12 * 40 / 440, 0.88 * 20 / 60, 0.88 * 40 / 60]),
        ("group_balanced", [0.25, 0.25, 0.25, 0.25]),
        ("domain_balanced", [0.5 * 400 / 420, 0.5 * 40 / 80, 0.5 * 20 / 420, 0.5 * 40 / 80]),
    ],
)
def test_a_stage_draws_groups_in_the_shares_its_sampling_says(sampling, shares):
    wanted = torch.tensor(shares)
    error = (wanted * (1 - wanted) / DRAWN).sqrt()
    assert ((drawn_groups(sampling) - wanted).abs() < 4 * error).all()


def test_a_method_may_say_what_is_drawn():
    loader = batches_of(method=Thirds()).stage_loader(Stage(1, sampling="own"))
    found = torch.tensor([row for epoch in range(8) for batch in loader.epoch(epoch) for row in rows(batch)])
    shares = torch.bincount(found, minlength=500) / len(found)
    assert shares[3:].sum() == 0
    assert (shares[:3] - torch.tensor([0.25, 0.25, 0.5])).abs().max() < 0.04


def test_an_epoch_without_weights_serves_every_sample_once_and_the_next_in_another_order():
    loader = batches_of().stage_loader(Stage(1))
    first, second = ([row for batch in loader.epoch(epoch) for row in rows(batch)] for epoch in range(2))
    assert sorted(first) == sorted(second) == list(range(500))
    assert first != second


def test_a_stage_may_read_the_validation_split():
    batches, stage = batches_of(batch_size=20), Stage(1, split="validation")
    read = [row for batch in batches.stage_loader(stage).epoch(0) for row in rows(batch)]
    assert sorted(read) == list(range(0, 500, 7))
    assert batches.stage_length(stage) == 4  # 72 samples
    assert batches.stage_length(Stage(1)) == 25


def test_batches_in_order_are_the_whole_split_as_it_is():
    batches = batches_of(batch_size=64)
    assert [row for batch in batches.in_order(Stage(1)) for row in rows(batch)] == list(range(500))
    validation = batches.in_order(Stage(1, split="validation"))
    assert [row for batch in validation for row in rows(batch)] == list(range(0, 500, 7))


def test_a_drawn_batch_is_made_again_from_its_iteration():
    one, other = batches_of(), batches_of()
    seen = [rows(one.draw("group_balanced", iteration)) for iteration in range(15)]  # an epoch has ten
    assert seen[13] == rows(other.draw("group_balanced", 13))
    assert seen[3] != seen[13]
    assert seen[0] != rows(next(iter(one.stage_loader(Stage(1, sampling="group_balanced")).epoch(0))))


def test_a_drawn_batch_follows_the_weights_of_its_epoch():
    method = Thirds()
    batches = batches_of(method=method)
    assert set(rows(batches.draw("own", 0))) == {0, 1, 2}
    method.sampling_weights = lambda: torch.eye(500)[9]
    assert set(rows(batches.draw("own", 1))) == {0, 1, 2}, "weights are asked for once per epoch"
    batches.start_epoch()
    assert set(rows(batches.draw("own", 2))) == {9}


def test_metadata_comes_from_its_split_and_is_made_again_from_the_iteration():
    one, other = batches_of(batch_size=20), batches_of(batch_size=20)
    seen = [rows(one.metadata(iteration)) for iteration in range(9)]
    passes = [[row for batch in seen[k : k + 4] for row in batch] for k in (0, 4)]
    assert sorted(passes[0]) == sorted(passes[1]) == list(range(0, 500, 7))
    assert passes[0] != passes[1]
    assert rows(other.metadata(8)) == seen[8]


def test_a_metadata_set_smaller_than_a_batch_is_one_batch():
    assert len(rows(batches_of(batch_size=200).metadata(0))) == 72


def test_ranks_share_a_batch_between_them():
    alone = batches_of(batch_size=50)
    for sampling in ("uniform", "group_balanced"):
        stage = Stage(1, sampling=sampling)
        halves = [batches_of(process_index=rank, num_processes=2) for rank in range(2)]
        parts = [rows(half.stage_loader(stage).batch(1, 2)) for half in halves]
        assert [row for pair in zip(*parts, strict=True) for row in pair] == rows(alone.stage_loader(stage).batch(1, 2))


def test_a_rank_with_fewer_samples_counts_for_less():
    """Averaged over ranks, mean losses times their shares are the mean over all samples."""
    shares = []
    for rank in range(2):
        batch = make_task().train.batch(torch.arange((7, 5)[rank]))
        shares.append(batches_of(process_index=rank, num_processes=2, sizes=(7, 5)).share(batch))
    assert shares == [pytest.approx(14 / 12), pytest.approx(10 / 12)]
    assert batches_of().share(make_task().train.batch(torch.arange(3))) == 1.0
