"""Threads within a fit: one for small products, and none of scipy's BLAS turning beside torch."""

from contextlib import ExitStack, contextmanager

import pytest
import torch
from threadpoolctl import ThreadpoolController

from icda.heads import threads
from icda.heads.objective import FoldObjective
from icda.heads.problem import LossSettings, Problem
from icda.heads.solver import fit_head
from icda.heads.threads import SMALL, quiet_blas, threads_for


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def blas_threads():
    return {library["num_threads"] for library in ThreadpoolController().select(internal_api="openblas").info()}


@pytest.mark.parametrize(("products", "within"), [(SMALL - 1, 1), (SMALL, 2)])
def test_small_products_get_one_thread_and_large_ones_what_torch_has(two_threads, products, within):
    with threads_for(products):
        assert torch.get_num_threads() == within
    assert torch.get_num_threads() == 2


def test_threads_come_back_after_an_error(two_threads):
    with pytest.raises(ZeroDivisionError), threads_for(0):
        raise ZeroDivisionError
    assert torch.get_num_threads() == 2


def test_one_within_another_gives_back_what_the_outer_had(two_threads):
    with threads_for(0):
        with threads_for(0):
            pass
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 2


def test_a_fit_evaluates_on_one_thread_of_either_library(two_threads, monkeypatch):
    seen = []

    def spied(self, weight, bias):
        seen.append((torch.get_num_threads(), blas_threads()))
        return evaluate(self, weight, bias)

    evaluate = FoldObjective.__call__
    monkeypatch.setattr(FoldObjective, "__call__", spied)
    features = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
    targets = torch.arange(60) % 3
    fit_head(Problem.plain(features, targets, 3, 0.1), LossSettings("ce"))
    assert seen
    assert all(threads == 1 and blas <= {1} for threads, blas in seen)
    assert torch.get_num_threads() == 2


def test_blas_gets_its_threads_back():
    before = blas_threads()
    with quiet_blas():
        assert blas_threads() <= {1}
    assert blas_threads() == before


class Blas:
    """One number of threads for a whole process; who lowers it gives back what it met."""

    number = 2

    @contextmanager
    def limit(self, limits, user_api):
        met, self.number = self.number, limits
        yield
        self.number = met


def test_blas_gets_its_threads_back_when_two_fits_overlap(monkeypatch):
    blas = Blas()
    monkeypatch.setattr(threads, "_controller", lambda: blas)
    first, second = ExitStack(), ExitStack()  # as in two threads: the one that began first ends first
    first.enter_context(quiet_blas())
    second.enter_context(quiet_blas())
    assert blas.number == 1
    first.close()
    second.close()
    assert blas.number == 2
    with quiet_blas():
        assert blas.number == 1
