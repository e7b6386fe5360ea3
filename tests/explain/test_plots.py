import torch

from icda.explain.grad_cam import centre_share
from icda.explain.plots import (
    RIGHT,
    WRONG,
    PictureCell,
    draw_grid,
    look,
    plot_variances,
    with_centre_box,
)


def figures(logged, unrelated=True):
    own = [1.0 + k for k in range(logged)]
    other = [0.5 * value for value in own] if unrelated else []
    return {
        "epochs": list(range(logged)) or [4],
        "own": own or [2.0],
        "unrelated": other,
        "trained": {"own": 2.0, "unrelated": 1.0 if unrelated else None},
        "logged": {"epochs": list(range(logged)), "own": own, "unrelated": other},
    }


def test_runs_look_different_even_without_colour_or_beyond_the_colours():
    looks = [look(number) for number in range(14)]
    assert len({(found["color"], str(found["linestyle"])) for found in looks}) == 14
    assert len({str(found["linestyle"]) for found in looks[:4]}) == 4


def test_runs_of_very_different_size_are_drawn_on_a_logarithmic_axis():
    large = figures(3)
    large["trained"] = {"own": 1000.0, "unrelated": 1.0}
    figure, _ = plot_variances({"a": figures(3), "b": large}, "title")
    assert [axes.get_yscale() for axes in figure.axes] == ["log", "linear"]
    assert len(plot_variances({"a": figures(3, unrelated=False)}, "title")[0].axes) == 1, "two classes have one panel"


def test_rows_and_captions_stand_where_they_belong():
    rows = [
        ("top", [PictureCell(torch.rand(3, 4, 4), "a"), None]),
        ("below", [PictureCell(torch.rand(1, 4, 4), "b", True)]),
    ]
    figure = draw_grid(rows, "title", "note")
    assert len(figure.axes) == 4
    assert [axes.get_ylabel() for axes in figure.axes] == ["top", "", "below", ""]
    assert [axes.get_xlabel() for axes in figure.axes] == ["a", "", "b", ""]
    assert [len(axes.images) for axes in figure.axes] == [1, 0, 1, 0]
    cells = [PictureCell(torch.rand(3, 8, 8), "x", True), PictureCell(torch.rand(3, 8, 8), "y", False)]
    colours = [axes.xaxis.label.get_color() for axes in draw_grid([("run", cells)], "title").axes]
    assert colours == [RIGHT, WRONG]


def test_the_box_is_the_border_of_what_the_centre_share_counts():
    boxed = with_centre_box(torch.zeros(3, 12, 8))[0]
    assert centre_share(boxed[None]).item() == 1.0
    assert int(boxed.sum()) == 2 * 6 + 2 * 4 - 4
