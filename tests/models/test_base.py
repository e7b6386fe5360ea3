import pytest
from torch import nn

from icda.models.base import evaluating


def stop_inside(*modules: nn.Module) -> None:
    with evaluating(*modules):
        assert not any(module.training for root in modules for module in root.modules())
        raise RuntimeError("stopped")


def test_every_module_gets_its_own_mode_back_even_after_an_error() -> None:
    network, frozen = nn.Sequential(nn.Dropout(), nn.BatchNorm1d(3)), nn.Dropout().eval()
    network[1].eval()
    with pytest.raises(RuntimeError, match="stopped"):
        stop_inside(network, frozen)
    assert [module.training for module in (network, network[0], network[1], frozen)] == [True, True, False, False]
