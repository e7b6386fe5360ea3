import torch

from icda.metrics import evaluate_predictions
from icda.report.formatting import FIGURES, duration, mean_and_deviation, metric_text


def test_every_metric_that_is_one_number_has_a_wording() -> None:
    found = evaluate_predictions(torch.eye(2), torch.tensor([0, 1]))
    assert set(found) - {"per_class_accuracy", "per_group_accuracy"} == set(FIGURES)


def test_unmeasured_figures_are_blank() -> None:
    assert metric_text("accuracy", None) == metric_text("nll", None) == duration(None) == ""
    assert mean_and_deviation("accuracy", None, None) == ""


def test_a_duration_never_has_sixty_of_anything() -> None:
    assert duration(119.7) == "2 min 0 s"
    assert duration(3599.9) == "1 h 0 min"
    assert duration(59.99) == "1 min 0 s"
