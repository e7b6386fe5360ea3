import torch

from icda.metrics import Predictions, metric


@metric(
    "worst_confusion",
    higher_is_better=False,
    label="Worst confusion",
    percent=True,
)
def worst_confusion(predictions: Predictions) -> float:
    """Largest share of a class that is taken for one other class."""
    classes = predictions.logits.shape[1]
    pairs = predictions.targets * classes + predictions.logits.argmax(1)
    counts = torch.bincount(pairs, minlength=classes**2).double()
    confusion = counts.view(classes, classes)
    shares = confusion / confusion.sum(1, keepdim=True).clamp(min=1)
    return float(shares.fill_diagonal_(0).max())
