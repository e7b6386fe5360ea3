from typing import Any

from icda.report.sections.strengths import margins


def test_the_share_below_zero_is_told_only_where_it_is_exact(run_of: Any) -> None:
    exact = {"margins": {"edges": [-1.0, 0.0, 1.0], "counts": [[1, 3]], "mean": -0.25, "share_negative": 0.25}}
    made = margins(run_of(exact), 2)
    assert "<td>25.0 %</td>" in made
    assert "<dt>Mean margin</dt><dd>−0.25</dd>" in made
    unknown = {"margins": {"edges": [-1.0, 1.0], "counts": [[4]]}}
    assert ">Below zero<" not in margins(run_of(unknown), 2)


def test_it_says_which_split_it_speaks_of(run_of: Any) -> None:
    found = {"split": "validation", "margins": {"edges": [0.0, 1.0], "counts": [[4]]}}
    assert "Margins of the validation samples" in margins(run_of(found), 2)
