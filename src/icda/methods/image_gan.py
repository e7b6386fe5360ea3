"""GANs that make training images beside the classifier: their turns, and how the images are mixed in."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, NamedTuple

import torch
from annotated_types import MultipleOf
from torch import Tensor, nn
from torch.nn import functional as F

from icda.data.generators import generator_for
from icda.errors import InputTypeError
from icda.methods.base import Batch, Context, Method, Setup, StepResult, check_images, checked
from icda.methods.meta_learning import step_along
from icda.methods.per_sample import Keeps
from icda.models.conditional_gan import SIZES, ConditionalDiscriminator, ConditionalGenerator
from icda.ranges import Positive, PositiveInt, Share, ShareAboveZero
from icda.ranks import all_gather_rows, all_mean, rank


class Generated(NamedTuple):
    """Generated images and what they were made of."""

    images: Tensor
    classes: Tensor
    noise: Tensor
    mixing: Tensor  # (N,), uniform in [0, 1): for a mixture with the real image in the same place


class ImageGAN(Keeps, Method):
    """Cross entropy on the batch and on `share` as many generated images of known class; the GAN learns on the same data.

    Each step first trains the discriminator and the generator, by the losses that a subclass writes. From `start` of
    training on, `round(share * N)` images of uniformly drawn classes join the N of the batch. Noise depends on
    (seed, iteration) alone; networks and optimisers are state. Images only, square, of 8, 16, 28, 32 or 64 pixels.
    """

    saved = ("generator_optimizer", "discriminator_optimizer")
    name: ClassVar[str]  # as registered; seeds all draws
    betas: ClassVar[tuple[float, float]] = (0.5, 0.999)  # of both Adams
    learns_labels_of_batch: ClassVar[bool] = (
        False  # the GAN learns on images of the batch's labels, not of uniform ones
    )
    low: Tensor
    high: Tensor

    @checked
    def __init__(
        self,
        setup: Setup,
        discriminator: Mapping[str, Any] | None = None,
        *,
        share: ShareAboveZero = 0.2,
        start: Share = 0.5,
        noise_dim: PositiveInt = 64,
        width: Annotated[PositiveInt, MultipleOf(8)] = 32,
        gan_rate: Positive = 2e-4,
    ) -> None:
        super().__init__()
        shape = setup.input_shape
        square = len(shape) == 3 and shape[1] == shape[2] and shape[1] in SIZES
        check_images(f"{self.name} makes images", shape, square, f" of a side of {', '.join(map(str, SIZES))} pixels")
        self.share, self.start, self._seed, self._num_classes = share, start, setup.seed, setup.num_classes
        channels, size = shape[:2]
        wide: dict[str, Any] = {"width": width, "widest": 4 * width}
        with torch.random.fork_rng(devices=[]):  # the classifier's own draws stay what they are without a GAN
            torch.default_generator.manual_seed(generator_for(setup.seed, self.name).initial_seed())
            self.generator = ConditionalGenerator(setup.num_classes, channels, size, noise_dim, **wide)
            self.discriminator = ConditionalDiscriminator(
                setup.num_classes, channels, size, **wide, **(discriminator or {})
            )
        self.generator_optimizer = torch.optim.Adam(self.generator.parameters(), lr=gan_rate, betas=self.betas)
        self.discriminator_optimizer = torch.optim.Adam(self.discriminator.parameters(), lr=gan_rate, betas=self.betas)
        self.register_buffer("low", torch.full((channels, 1, 1), -1.0))
        self.register_buffer("high", torch.full((channels, 1, 1), 1.0))

    def discriminator_loss(self, real: Tensor, labels: Tensor, made: Generated) -> Tensor:
        """What the discriminator learns from real images with labels and generated ones, which carry no gradient."""
        raise InputTypeError(f"{type(self).__name__} does not define discriminator_loss().")

    def generator_loss(self, made: Generated) -> Tensor:
        """What the generator learns from the discriminator's view of its images."""
        raise InputTypeError(f"{type(self).__name__} does not define generator_loss().")

    def generator_learns(self, iteration: int) -> bool:
        return True

    @torch.no_grad()
    def on_stage_start(self, context: Context) -> None:
        """Find the range of each channel: inputs come standardised, the generator's end in [-1, 1]."""
        low, high = torch.full_like(self.low, float("inf")), torch.full_like(self.high, float("-inf"))
        for batch in context.training_batches():
            low = torch.minimum(low, batch.inputs.amin(dim=(0, 2, 3)).view_as(low))
            high = torch.maximum(high, batch.inputs.amax(dim=(0, 2, 3)).view_as(high))
        self.low.copy_(low)
        self.high.copy_(torch.where(high > low, high, low + 1))  # a channel may be the same everywhere

    def generate(self, noise: Tensor, classes: Tensor) -> Tensor:
        """Images of given classes, standardised as the training images are."""
        images = self.generator(noise, classes)
        return self.low + (images + 1) / 2 * (self.high - self.low)

    def step(self, batch: Batch, context: Context) -> StepResult:
        figures = self.train_gan(batch, context.iteration)
        count = batch.num_samples
        if context.progress < self.start:
            output = context.network(batch.inputs)
            loss = F.cross_entropy(output.logits, batch.targets)
        else:
            images, classes = self.additional_images(batch, context.iteration)
            output = context.network(torch.cat([batch.inputs, images]))
            loss = F.cross_entropy(output.logits, torch.cat([batch.targets, classes]))
        context.apply(loss)
        return StepResult(loss.detach(), output.logits[:count].detach(), figures)

    @torch.no_grad()
    def additional_images(self, batch: Batch, iteration: int) -> tuple[Tensor, Tensor]:
        """What joins a batch: images of uniformly drawn classes, and the classes."""
        noise, classes = self._draw("images", iteration, batch, self.share)
        return self.generate(noise, classes).to(batch.inputs), classes

    def train_gan(self, batch: Batch, iteration: int) -> dict[str, float]:
        """One step of the discriminator and, where it learns, one of the generator; what they lost."""
        made = self._make(batch, iteration)
        detached = made._replace(images=made.images.detach())
        sizes = self._sizes(batch)
        share = batch.num_samples * len(sizes) / sum(sizes)  # a rank with fewer counts for less in the mean over ranks
        loss = self.discriminator_loss(batch.inputs.to(self.low), batch.targets, detached)
        _descend(loss * share, self.discriminator, self.discriminator_optimizer)
        figures = {"discriminator_loss": float(loss.detach())}
        if self.generator_learns(iteration):
            loss = self.generator_loss(made)
            _descend(loss * share, self.generator, self.generator_optimizer)
            figures["generator_loss"] = float(loss.detach())
        return figures

    def _make(self, batch: Batch, iteration: int) -> Generated:
        """As many images as the batch has, with a gradient."""
        noise, classes = self._draw("gan", iteration, batch, 1.0)
        if self.learns_labels_of_batch:
            classes = batch.targets
        sizes, generator = self._sizes(batch), generator_for(self._seed, self.name, "mixing", iteration)
        mixing = torch.rand(sum(sizes), generator=generator)[rank() :: len(sizes)].to(self.low)
        return Generated(self.generate(noise, classes), classes, noise, mixing)

    def _draw(self, what: str, iteration: int, batch: Batch, share: float) -> tuple[Tensor, Tensor]:
        """Noise and classes, `share` for a sample: this rank's rows of what one process draws for the whole batch."""
        sizes = self._sizes(batch)
        count, generator = round(share * sum(sizes)), generator_for(self._seed, self.name, what, iteration)
        noise = torch.randn(count, self.generator.noise_dim, generator=generator)
        classes = torch.randint(self._num_classes, (count,), generator=generator)
        mine = slice(rank(), None, len(sizes))
        return noise[mine].to(self.low), classes[mine].to(self.low.device)

    def _sizes(self, batch: Batch) -> list[int]:
        """The number of samples on every rank."""
        return all_gather_rows(torch.tensor([batch.num_samples], device=self.low.device)).tolist()


def told_apart(source: Tensor, num_real: int) -> Tensor:
    """The discriminator's loss for logits (N,) of being real, of which the first `num_real` are of real images."""
    is_real = (torch.arange(len(source), device=source.device) < num_real).to(source)
    return F.binary_cross_entropy_with_logits(source, is_real)


def taken_for_real(source: Tensor) -> Tensor:
    """The generator's loss for the same logits of its images."""
    return F.binary_cross_entropy_with_logits(source, torch.ones_like(source))


def _descend(loss: Tensor, network: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """A step with the mean gradient of all ranks, so that each holds the same GAN."""
    step_along(optimizer, [all_mean(slope) for slope in torch.autograd.grad(loss, list(network.parameters()))])
