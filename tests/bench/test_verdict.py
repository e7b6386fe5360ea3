"""The rules by which a figure agrees with the paper."""

from __future__ import annotations

import pytest

from icda.bench.verdict import Entry, judge, pooled_deviation

CE = Entry("ce", "CE", 70.0, (50.0, 51.0, 52.0))  # deviation 1 over 3 seeds: noise of a difference of means is 1.63


def verdict(*others: Entry, key: str = "x", paper_tier: bool = False, reference: Entry = CE) -> tuple[str, str]:
    found = judge([reference, *others], reference.key, at_paper_tier=paper_tier)[key]
    return found.status, found.detail


def row(paper: float | None, *values: float, **more: object) -> Entry:
    return Entry("x", "X", paper, values, **more)  # type: ignore[arg-type]


def test_a_row_nobody_ran_is_not_run_here() -> None:
    assert verdict(row(80.0)) == ("not run here", "")


@pytest.mark.parametrize(("mean", "status"), [(79.1, "reproduced"), (81.0, "reproduced"), (78.9, "trend holds")])
def test_reproduced_is_within_a_point_of_the_paper_at_its_own_recipe(mean: float, status: str) -> None:
    assert verdict(row(80.0, mean, mean, mean), paper_tier=True)[0] == status


def test_reproduced_is_within_two_deviations_where_seeds_differ_much() -> None:
    spread = (77.0, 79.0, 75.0)  # mean 77, deviation 2
    assert verdict(row(80.0, *spread), paper_tier=True)[0] == "reproduced"
    assert verdict(row(82.0, *spread), paper_tier=True)[0] != "reproduced"


def test_nothing_is_reproduced_at_another_tier() -> None:
    assert verdict(row(80.0, 80.0, 80.0, 80.0))[0] == "trend holds"


@pytest.mark.parametrize(
    ("paper", "mean", "status"),
    [
        (80.0, 55.0, "trend holds"),  # above CE there and here
        (80.0, 47.0, "does not hold"),  # above there, below here
        (60.0, 47.0, "trend holds"),
        (80.0, 52.0, "does not hold"),  # above, but within noise
        (70.2, 52.0, "trend holds"),  # a tie there, within noise here
        (70.2, 55.0, "does not hold"),  # a tie there, not here
    ],
)
def test_a_trend_is_the_sign_of_the_difference_to_the_reference_beyond_noise(
    paper: float, mean: float, status: str
) -> None:
    assert verdict(row(paper, mean - 1, mean, mean + 1))[0] == status


def test_the_detail_says_difference_and_noise() -> None:
    # deviations 1 and 1 over 3 seeds each: 2 * 1 * sqrt(2 / 3) = 1.63
    assert verdict(row(80.0, 54.0, 55.0, 56.0))[1] == "+4.0 to CE (noise 1.6)"


def test_a_single_seed_borrows_the_deviation_of_the_others() -> None:
    # 2 * 1 * sqrt(1 / 3 + 1) = 2.31
    assert verdict(row(80.0, 53.0)) == ("does not hold", "+2.0 to CE (noise 2.3)")
    assert verdict(row(80.0, 54.0)) == ("trend holds", "+3.0 to CE (noise 2.3)")


def test_our_own_methods_must_beat_the_best_rival_of_their_group_too() -> None:
    own = row(90.0, 60.0, 60.0, 60.0, own=True)
    weak, strong = Entry("la", "LA", 85.0, (55.0,) * 3), Entry("la", "LA", 85.0, (61.0,) * 3)
    assert verdict(own, weak)[0] == "trend holds"
    assert verdict(own, strong) == ("does not hold", "+9.0 to CE (noise 0.9), -1.0 to LA (noise 0.9)")
    elsewhere = Entry("mwn", "MWN", 85.0, (61.0,) * 3, group="metadata")
    assert verdict(own, weak, elsewhere)[0] == "trend holds"


def test_where_the_paper_gives_only_an_order_the_order_is_judged() -> None:
    whole = Entry("icda", "ICDA", None, (60.0,) * 3)
    part = Entry("x", "I", None, (55.0,) * 3, below="icda")
    assert verdict(part, reference=whole) == ("trend holds", "-5.0 to ICDA (noise 0.0)")
    assert verdict(Entry("x", "I", None, (60.0,) * 3, below="icda"), reference=whole)[0] == "does not hold"
    assert verdict(whole, key="icda", reference=whole)[0] == "reference"


def test_without_figures_there_is_nothing_to_judge() -> None:
    assert verdict(row(None, 60.0)) == ("no figure in the paper", "")
    assert verdict(row(80.0, 60.0), reference=Entry("ce", "CE", 70.0))[0] == "no figure in the paper"


def test_the_pooled_deviation_weighs_rows_by_their_seeds() -> None:
    two, three = Entry("a", "A", None, (1.0, 3.0)), Entry("b", "B", None, (0.0, 3.0, 6.0))
    assert pooled_deviation([two, three, Entry("c", "C", None, (9.0,))]) == pytest.approx(((2 + 18) / 3) ** 0.5)
    assert pooled_deviation([Entry("c", "C", None, (9.0,))]) == 1.0
