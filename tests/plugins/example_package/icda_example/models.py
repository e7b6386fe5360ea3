import math

from torch import nn

from icda.models import FeatureClassifier


def tanh_net(num_classes: int, input_shape: tuple[int, ...]) -> FeatureClassifier:
    """One hidden tanh layer over the flattened input."""
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(math.prod(input_shape), 32), nn.Tanh())
    return FeatureClassifier(encoder, nn.Linear(32, num_classes))


class MeanLetter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(128, 16, padding_idx=0)

    def forward(self, inputs):  # a dict with input_ids and attention_mask, both (N, length)
        mask = inputs["attention_mask"].unsqueeze(-1)
        return (self.embedding(inputs["input_ids"]) * mask).sum(1) / mask.sum(1).clamp(min=1)


def letters(num_classes: int, input_shape: tuple[int, ...] = ()) -> FeatureClassifier:
    """The mean embedding of a text's letters; reads texts, so a tokeniser has its name."""
    return FeatureClassifier(MeanLetter(), nn.Linear(16, num_classes))
