import pytest
import torch

from icda.data.bias.noise import corrupt_labels, flip_transition, noise_transition, uniform_transition


def _generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_uniform_noise_replaces_a_label_by_any_class_the_true_one_included() -> None:
    transition = uniform_transition(10, 0.4)
    assert transition.diagonal().tolist() == pytest.approx([0.64] * 10)
    assert transition[0, 1:].tolist() == pytest.approx([0.04] * 9)


@pytest.mark.parametrize(("partners", "share"), [(1, 0.4), (2, 0.2)])
@pytest.mark.parametrize("seed", range(5))
def test_flip_noise_moves_equal_parts_to_other_classes(partners: int, share: float, seed: int) -> None:
    transition = flip_transition(10, 0.4, _generator(seed), partners=partners)
    assert transition.diagonal().tolist() == pytest.approx([0.6] * 10)
    for label, row in enumerate(transition):
        others = [value for other, value in enumerate(row.tolist()) if other != label and value > 0]
        assert others == pytest.approx([share] * partners)


def test_every_other_class_can_be_a_partner() -> None:
    reached = sum(flip_transition(4, 0.5, _generator(seed), partners=1) for seed in range(60))
    assert torch.is_tensor(reached)
    assert (reached > 0).all()


@pytest.mark.parametrize(
    ("kind", "rate", "wrong"),
    [("uniform", 0.4, 0.36), ("uniform", 0.6, 0.54), ("flip1", 0.2, 0.2), ("flip2", 0.2, 0.2), ("flip2", 0.4, 0.4)],
)
@pytest.mark.parametrize("seed", [0, 1])
def test_noise_leaves_the_share_of_wrong_labels_of_the_literature(
    kind: str, rate: float, wrong: float, seed: int
) -> None:
    labels, generator = torch.arange(49_000) % 10, _generator(seed)
    noisy = corrupt_labels(labels, noise_transition(kind, 10, rate, generator), generator)
    assert (noisy != labels).double().mean().item() == pytest.approx(wrong, abs=0.01)


def test_drawn_labels_follow_the_matrix_cell_by_cell() -> None:
    labels = torch.arange(100_000) % 5
    transition = flip_transition(5, 0.4, _generator(3))
    noisy = corrupt_labels(labels, transition, _generator(4))
    found = torch.zeros(5, 5, dtype=torch.float64).index_put_(
        (labels, noisy), torch.tensor(1 / 20_000, dtype=torch.float64), accumulate=True
    )
    torch.testing.assert_close(found, transition, atol=0.012, rtol=0)
    assert (found[transition == 0] == 0).all()


def test_a_seed_decides_which_labels_are_wrong() -> None:
    labels = torch.arange(1000) % 10
    assert torch.equal(corrupt_labels(labels, noise_transition("flip2", 10, 0.0, _generator()), _generator()), labels)
    first, again, other = (corrupt_labels(labels, uniform_transition(10, 0.4), _generator(s)) for s in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize(
    ("kind", "rate", "message"), [("pair", 0.4, "uniform, flip2 or flip1"), ("uniform", 1.4, "between 0 and 1")]
)
def test_unknown_kinds_and_rates_are_refused(kind: str, rate: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        noise_transition(kind, 10, rate, _generator())
    with pytest.raises(ValueError, match=r"expected 1\.\.1"):
        flip_transition(2, 0.4, _generator(), partners=2)
    with pytest.raises(ValueError, match="must sum to 1"):
        corrupt_labels(torch.tensor([0]), torch.full((2, 2), 0.4), _generator())
