from typing import Any

import pytest

from icda.report.sections.strengths import margins, strengths, variances


def test_ties_are_drawn_and_the_strongest_come_first(run_of: Any) -> None:
    found = {"strengths": {"towards": [[0, 0.2, 0.1], [0.5, 0, 0], [0, 0, 0]]}}
    made = strengths(run_of(found, class_names=["cat", "dog", "cow"]), 2)
    assert "The 3 strongest ties between classes" in made
    rows = made[made.index("strongest ties") :]
    assert rows.index("0.500") < rows.index("0.200") < rows.index("0.100")
    assert "samples of dog, tied to cat\nmean strength 0.50" in made


def test_strengths_of_zero_are_said_not_drawn(run_of: Any) -> None:
    made = strengths(run_of({"strengths": {"towards": [[0, 0], [0, 0]]}}), 2)
    assert "every mean strength is zero" in made
    assert "<table" not in made
    with pytest.raises(ValueError, match="a matrix of ties has as many columns as rows"):
        strengths(run_of({"strengths": {"towards": [[0, 1]]}}), 2)


def test_variances_draw_what_is_known(run_of: Any) -> None:
    made = variances(run_of({"variances": {"epochs": [0, 1], "own": [2.0, 1.0], "unrelated": []}}), 2)
    assert "boundaries of the class" in made
    assert "unrelated" not in made
    assert variances(run_of({"variances": {"epochs": [], "own": []}}), 2) == ""


def test_the_share_below_zero_is_told_only_where_it_is_exact(run_of: Any) -> None:
    exact = {"margins": {"edges": [-1.0, 0.0, 1.0], "counts": [[1, 3]], "mean": -0.25, "share_negative": 0.25}}
    made = margins(run_of(exact), 2)
    assert "<td>25.0 %</td>" in made
    assert "<dt>Mean margin</dt><dd>−0.25</dd>" in made
    unknown = margins(run_of({"split": "validation", "margins": {"edges": [-1.0, 1.0], "counts": [[4]]}}), 2)
    assert ">Below zero<" not in unknown
    assert "Margins of the validation samples" in unknown
