import pytest
import torch

from icda.data.bias.noise import noise_transition, noisy_labels


def _generator(seed=0):
    return torch.Generator().manual_seed(seed)


def test_uniform_noise_replaces_a_label_by_any_class_the_true_one_included():
    transition = noise_transition("uniform", 10, 0.4, _generator())
    assert transition.diagonal().tolist() == pytest.approx([0.64] * 10)
    assert transition[0, 1:].tolist() == pytest.approx([0.04] * 9)


@pytest.mark.parametrize(("partners", "share"), [(1, 0.4), (2, 0.2)])
def test_flip_noise_moves_equal_parts_to_other_classes_and_reaches_them_all(partners, share):
    reached = torch.zeros(4, 4, dtype=torch.float64)
    for seed in range(60):
        transition = noise_transition(f"flip{partners}", 4, 0.4, _generator(seed))
        reached += transition
        assert transition.diagonal().tolist() == pytest.approx([0.6] * 4)
        for label, row in enumerate(transition):
            others = [value for other, value in enumerate(row.tolist()) if other != label and value > 0]
            assert others == pytest.approx([share] * partners)
    assert (reached > 0).all()


def test_drawn_labels_follow_the_matrix_cell_by_cell():
    labels = torch.arange(100_000) % 5
    transition = noise_transition("flip2", 5, 0.4, _generator(3))
    noisy = noisy_labels(labels, "flip2", 5, 0.4, _generator(3))
    found = torch.zeros(5, 5, dtype=torch.float64).index_put_(
        (labels, noisy), torch.tensor(1 / 20_000, dtype=torch.float64), accumulate=True
    )
    torch.testing.assert_close(found, transition, atol=0.012, rtol=0)
    assert (found[transition == 0] == 0).all()


def test_a_seed_decides_which_labels_are_wrong():
    labels = torch.arange(1000) % 10
    assert torch.equal(noisy_labels(labels, "flip2", 10, 0.0, _generator()), labels)
    first, again, other = (noisy_labels(labels, "uniform", 10, 0.4, _generator(seed)) for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize(
    ("kind", "classes", "rate", "message"),
    [
        ("pair", 10, 0.4, "uniform, flip2 or flip1"),
        ("uniform", 10, 1.4, "between 0 and 1"),
        ("flip2", 2, 0.4, "more than 2 classes, got 2"),
    ],
)
def test_unknown_kinds_and_rates_are_refused(kind, classes, rate, message):
    with pytest.raises(ValueError, match=message):
        noise_transition(kind, classes, rate, _generator())
