import torch

from icda.explain.grad_cam import centre_share
from icda.explain.plots import RIGHT, WRONG, PictureCell, draw_grid, heat_cells, with_centre_box


def test_rows_and_captions_stand_where_they_belong() -> None:
    rows = [
        ("top", [PictureCell(torch.rand(3, 4, 4), "a"), None]),
        ("below", [PictureCell(torch.rand(1, 4, 4), "b", True)]),
    ]
    figure = draw_grid(rows, "title", "note")
    assert len(figure.axes) == 4
    assert [axes.get_ylabel() for axes in figure.axes] == ["top", "", "below", ""]
    assert [axes.get_xlabel() for axes in figure.axes] == ["a", "", "b", ""]
    assert [len(axes.images) for axes in figure.axes] == [1, 0, 1, 0]


def test_right_and_wrong_differ_in_colour() -> None:
    pixels, heat = torch.rand(2, 3, 8, 8), torch.rand(2, 8, 8)
    figure = draw_grid([("run", heat_cells(pixels, heat, ["x", "y"], [True, False]))], "title")
    assert [axes.xaxis.label.get_color() for axes in figure.axes] == [RIGHT, WRONG]


def test_the_box_is_the_border_of_what_the_centre_share_counts() -> None:
    boxed = with_centre_box(torch.zeros(3, 12, 8))[0]
    assert centre_share(boxed[None]).item() == 1.0
    assert int(boxed.sum()) == 2 * 6 + 2 * 4 - 4
