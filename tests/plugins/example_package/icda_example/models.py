import math

from torch import nn

from icda.models import FeatureClassifier

Shape = tuple[int, ...]


def tanh_net(num_classes: int, input_shape: Shape) -> FeatureClassifier:
    """One hidden tanh layer over the flattened input."""
    hidden = nn.Linear(math.prod(input_shape), 32)
    encoder = nn.Sequential(nn.Flatten(), hidden, nn.Tanh())
    return FeatureClassifier(encoder, nn.Linear(32, num_classes))


class MeanLetter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(128, 16, padding_idx=0)

    def forward(self, inputs):  # input_ids, attention_mask: (N, length)
        mask = inputs["attention_mask"].unsqueeze(-1)
        total = (self.embedding(inputs["input_ids"]) * mask).sum(1)
        return total / mask.sum(1).clamp(min=1)


def letters(num_classes: int, input_shape: Shape = ()) -> FeatureClassifier:
    """The mean embedding of a text's letters; has a tokeniser."""
    return FeatureClassifier(MeanLetter(), nn.Linear(16, num_classes))
