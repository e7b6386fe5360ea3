import pytest
import torch

from icda.explain.plots import look, plot_margins, plot_variances, variance_rows


def figures(logged: int, unrelated: bool = True) -> dict[str, object]:
    own = [1.0 + k for k in range(logged)]
    other = [0.5 * value for value in own] if unrelated else []
    return {
        "epochs": list(range(logged)) or [4],
        "own": own or [2.0],
        "unrelated": other,
        "trained": {"own": 2.0, "unrelated": 1.0 if unrelated else None},
        "logged": {"epochs": list(range(logged)), "own": own, "unrelated": other},
    }


def test_runs_look_different_even_without_colour_or_beyond_the_colours() -> None:
    looks = [look(number) for number in range(14)]
    assert len({(found["color"], str(found["linestyle"])) for found in looks}) == 14
    assert len({str(found["linestyle"]) for found in looks[:4]}) == 4


def test_bars_of_a_run_add_up_to_one() -> None:
    values = {"a": torch.randn(70), "b": torch.randn(30) + 2}
    _, rows = plot_margins(values, values, "title")
    for run in values:
        assert sum(float(row["share"]) for row in rows if row["run"] == run and row["quantity"] == "margin") == (
            pytest.approx(1, abs=1e-4)
        )


def test_axes_and_figure_are_labelled() -> None:
    figure, _ = plot_variances({"a": figures(3), "b": figures(0)}, "the title")
    assert figure.get_suptitle() == "the title"
    assert [axes.get_title() for axes in figure.axes] == [
        "Classes on boundaries they belong to",
        "Classes on boundaries between two other classes",
    ]
    assert all(axes.get_xlabel() == "epoch" and axes.get_ylabel() for axes in figure.axes)
    assert [text.get_text() for text in figure.axes[0].get_legend().get_texts()] == ["a", "b"]


def test_two_classes_have_one_panel() -> None:
    figure, _ = plot_variances({"a": figures(3, unrelated=False)}, "title")
    assert len(figure.axes) == 1


def test_runs_of_very_different_size_are_drawn_on_a_logarithmic_axis() -> None:
    large = figures(3)
    large["trained"] = {"own": 1000.0, "unrelated": 1.0}
    figure, _ = plot_variances({"a": figures(3), "b": large}, "title")
    assert [axes.get_yscale() for axes in figure.axes] == ["log", "linear"]


def test_rows_name_where_a_number_is_from() -> None:
    rows = variance_rows({"a": figures(2), "b": figures(0, unrelated=False)})
    assert [(row["run"], row["epoch"], row["source"]) for row in rows] == [
        ("a", 1, "running statistics"),
        ("a", 2, "running statistics"),
        ("a", 2, "trained network"),
        ("b", 5, "trained network"),
    ]
    assert rows[-1]["unrelated"] == ""
