import torch

from icda.data.generators import generator_for


def _draw(*key: int | str) -> list[float]:
    return torch.rand(4, generator=generator_for(*key)).tolist()


def test_the_same_key_gives_the_same_stream() -> None:
    assert _draw(3, "order", 1) == _draw(3, "order", 1)


def test_neighbouring_keys_give_different_streams() -> None:
    keys = [(0, 1), (1, 0), (0, 1, 0), (0, "1"), (1,), (10,)]
    assert len({tuple(_draw(*key)) for key in keys}) == len(keys)


def test_global_random_state_is_left_alone() -> None:
    torch.manual_seed(7)
    expected = torch.rand(1)
    torch.manual_seed(7)
    _draw(1, 2)
    assert torch.equal(torch.rand(1), expected)
