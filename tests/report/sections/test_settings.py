from collections.abc import Callable

from icda.report.results import Run
from icda.report.sections.overview import configuration, environment


def test_settings_that_were_not_set_are_left_out(run_of: Callable[..., Run]) -> None:
    made = configuration(run_of(config={"lr": 0.1, "clip": None, "options": {}, "seed": 0}), 2)
    assert "<code>lr</code>" in made
    assert "<code>seed</code>" in made
    assert "clip" not in made
    assert "options" not in made
    assert environment(run_of(environment={"commit": None}), 2) == ""
