from __future__ import annotations

import pytest
from torch import nn

from icda.models.modes import evaluating


def test_every_module_gets_its_own_mode_back_even_after_an_error() -> None:
    network, frozen = nn.Sequential(nn.Dropout(), nn.BatchNorm1d(3)), nn.Dropout().eval()
    network[1].eval()
    with pytest.raises(RuntimeError, match="stopped"), evaluating(network, frozen):
        assert not any(module.training for module in (*network.modules(), *frozen.modules()))
        raise RuntimeError("stopped")
    assert [module.training for module in (network, network[0], network[1], frozen)] == [True, True, False, False]
