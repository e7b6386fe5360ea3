"""BBN: a branch for the data as they come, a branch for rare classes."""

from torch import Tensor, nn
from torch.nn import functional as F

from icda.errors import InputError
from icda.methods.base import METHODS, Batch, Context, FeatureClassifier, Figures, Method, Setup, StepResult
from icda.models.two_branches import TwoBatches, TwoBranches, two_branches


@METHODS.register("bbn", "bilateral_branch_network")
class BBN(Method):
    """Train two branches on a shared trunk, one on the data as they are and one that favours rare classes.

    In epoch e of E the classifier reads 2 [l f1, (1 - l) f2] with l = 1 - ((e-1)/E)^2, f1 from a uniform batch, f2 from
    one that holds a class the more often the rarer it is; the loss is l CE(y1) + (1 - l) CE(y2). At test time it reads
    [f1, f2] of the same sample. The network's last block is doubled by `icda.models.two_branches`; an encoder that
    already is a `TwoBranches` is taken as it is.

    Reference: Zhou et al., "BBN: bilateral-branch network with cumulative learning", CVPR 2020.
    """

    def __init__(self, setup: Setup) -> None:
        super().__init__()
        self.input_shape = setup.input_shape
        self._share = 1.0

    def prepare_network(self, network: FeatureClassifier) -> FeatureClassifier:
        if isinstance(network.encoder, TwoBranches):
            return network
        network.encoder = two_branches(network.encoder, self.input_shape)
        weight, has_bias = network.head_weight, getattr(network.head, "bias", None) is not None
        classes, features = weight.shape
        network.head = nn.Linear(2 * features, classes, has_bias, weight.device, weight.dtype)  # over both branches
        return network

    def step(self, batch: Batch, context: Context) -> StepResult:
        if context.draw is None:
            raise InputError("bbn draws a second batch each step: give the context a draw(), as icda's trainer does.")
        second = context.draw("class_reversed")
        share = self._share = 1 - (context.epoch / context.num_epochs) ** 2
        logits = context.network(TwoBatches(batch.inputs, second.inputs, share)).logits
        loss = share * F.cross_entropy(logits, batch.targets) + (1 - share) * F.cross_entropy(logits, second.targets)
        context.apply(loss)
        # Logits that belong to two samples are no answer to one: both labels count by their share, as in the loss.
        hits = share * _hits(logits, batch.targets) + (1 - share) * _hits(logits, second.targets)
        return StepResult(loss.detach(), None, {"mixed_accuracy": hits})

    def epoch_figures(self) -> Figures:
        return {"uniform_share": self._share}


def _hits(logits: Tensor, targets: Tensor) -> float:
    return float((logits.detach().argmax(1) == targets).double().mean())
