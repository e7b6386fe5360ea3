"""MentorNet: a small network that learns from clean labels which losses to trust."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from icda.data.generators import generator_for
from icda.methods.base import METHODS, Batch, Context, Setup, StepResult, checked
from icda.methods.meta_learning import step_along
from icda.methods.per_sample import Keeps
from icda.methods.self_paced import SelfPaced
from icda.ranges import NotNegative, OpenShare
from icda.ranks import all_mean

EPOCHS = 100  # the network reads the progress of training in hundredths


class Mentor(nn.Module):
    """Logits of "this label is right" (N,) from loss, loss minus percentile, a label bit and the hundredth of training.

    A bidirectional LSTM of one unit reads the two losses as a sequence of one step, and its cell states, an embedding of
    the label bit (2 numbers) and a fixed random one of the epoch (5) go through a layer of 20 tanh units. The label bit
    is always 0, as in the official code.
    """

    def __init__(self, hidden: int = 20) -> None:
        super().__init__()
        self.sequence = nn.LSTM(2, 1, bidirectional=True, batch_first=True)
        self.label = nn.Embedding(2, 2)
        self.epoch = nn.Embedding(EPOCHS, 5)
        self.epoch.requires_grad_(False)
        self.hidden = nn.Linear(9, hidden)
        self.output = nn.Linear(hidden, 1)

    def forward(self, losses: Tensor, differences: Tensor, epoch: int) -> Tensor:
        count = len(losses)
        steps = torch.stack([losses, differences], 1)[:, None].to(self.output.weight)
        _, (_, cells) = self.sequence(steps)
        bits = torch.zeros(count, dtype=torch.long, device=losses.device)
        epochs = torch.full_like(bits, min(epoch, EPOCHS - 1))
        features = torch.cat([self.label(bits), self.epoch(epochs), cells.transpose(0, 1).flatten(1)], 1)
        return self.output(torch.tanh(self.hidden(features))).squeeze(1)


@METHODS.register("mentornet", "mentornet_dd")
class MentorNet(Keeps, SelfPaced):
    """Weight samples by a mentor network that learns on metadata which labels to trust.

    The loss is mean_i v_i CE_i with v_i = sigmoid(mentor(loss, loss minus its moving percentile, epoch)). Each iteration
    `noise_rate` of a metadata batch gets a wrong label, drawn from the student's own answers; the student's losses on it
    are taken without training on it, and the mentor takes an Adam step on the cross entropy of "this label was left
    alone". The rest is `SelfPaced`, whose predefined rule it replaces.

    Reference: Jiang et al., "MentorNet: learning data-driven curriculum", ICML 2018, the data-driven variant (DD).
    """

    needs = frozenset({"metadata"})
    saved = ("optimizer",)

    @checked
    def __init__(
        self,
        setup: Setup,
        *,
        noise_rate: OpenShare = 0.2,  # of 0 the mentor would see no wrong label
        mentor_rate: NotNegative = 1e-2,
        **options: Any,
    ) -> None:
        super().__init__(setup, **options)
        self.noise_rate = noise_rate
        self.mentor = Mentor()
        learned = [value for value in self.mentor.parameters() if value.requires_grad]
        self.optimizer = torch.optim.Adam(learned, lr=mentor_rate)

    def epoch_input(self, context: Context) -> int:
        """Training in hundredths, held at the end of the burn-in as in the official code."""
        return int(min(context.progress, self.burn_in) * EPOCHS)

    def weights(self, losses: Tensor, context: Context) -> Tensor:
        answer = self.mentor(losses, losses - self.threshold.to(losses), self.epoch_input(context))
        return torch.sigmoid(answer).to(losses)

    def step(self, batch: Batch, context: Context) -> StepResult:
        mentor_loss = None if self.threshold.isnan() else self.teach(context)
        result = super().step(batch, context)
        return result if mentor_loss is None else result._replace(extra={**result.extra, "mentor_loss": mentor_loss})

    def teach(self, context: Context) -> float:
        """One step of the mentor on metadata of which some labels were made wrong; returns its loss."""
        assert context.next_metadata is not None
        metadata = context.next_metadata()
        with torch.no_grad():  # as in training, but BatchNorm's running statistics stay the training set's
            model: Any = context.models[0]
            buffers = {name: value.clone() for name, value in model.named_buffers()}
            logits = functional_call(model, buffers, (metadata.inputs,)).logits
        generator = generator_for(self.seed, "spoil", context.iteration)
        spoiled, right = spoil(logits, metadata.targets, self.noise_rate, generator)
        losses = F.cross_entropy(logits, spoiled, reduction="none")
        answers = self.mentor(losses, losses - self.threshold.to(losses), self.epoch_input(context))
        loss = F.binary_cross_entropy_with_logits(answers, right.to(answers))
        learned = self.optimizer.param_groups[0]["params"]
        step_along(self.optimizer, [all_mean(slope) for slope in torch.autograd.grad(loss, learned)])
        return float(loss.detach())


def spoil(logits: Tensor, targets: Tensor, rate: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Labels (N,) of which `rate` were replaced by another class, and which of them were left alone.

    The wrong class is drawn from the student's own answer, learned from the noise: uniform wrong labels would be too easy.
    """
    right = torch.rand(len(targets), generator=generator) >= rate
    others = logits.detach().float().scatter(1, targets[:, None], -torch.inf).softmax(1).cpu()
    wrong = torch.multinomial(others, 1, generator=generator).squeeze(1)
    right, wrong = right.to(targets.device), wrong.to(targets)
    return torch.where(right, targets, wrong), right
