from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from icda.data.task import Batch
from icda.methods import Setup
from icda.methods.acgan import ACGAN
from icda.models.base import FeatureClassifier
from support import make_context

SETUP = Setup(2, 64, torch.tensor([32, 32]), epochs=4, num_samples=64, input_shape=(1, 8, 8), seed=3)


def make_images(count: int = 64) -> tuple[Tensor, Tensor]:
    """Class 0 is bright on the left, class 1 on the right; the values run from -2 to 3."""
    generator = torch.Generator().manual_seed(0)
    targets = torch.arange(count) % 2
    images = -2 + 0.5 * torch.rand(count, 1, 8, 8, generator=generator)
    for image, target in zip(images, targets.tolist(), strict=True):
        image[:, :, 4 * target : 4 * target + 4] += 4.5
    images[0, 0, 0, 0], images[1, 0, 0, 0] = 3.0, -2.0
    return images, targets


class Run:
    """A method at the start of its stage, a classifier, and a context that trains it by plain SGD."""

    def __init__(self, progress: float = 0.9, **options: Any) -> None:
        torch.manual_seed(0)
        self.method = ACGAN(SETUP, **{"width": 8, "noise_dim": 8, **options})
        self.model = FeatureClassifier(nn.Flatten(), nn.Linear(64, 2))
        self.images, self.seen = make_images(), list[Tensor]()
        self.context = make_context(self.model, rate=0.1, data=self.images, progress=progress)
        self.context.networks = [self.forward]  # type: ignore[list-item]
        self.method.on_stage_start(self.context)

    def forward(self, inputs: Tensor) -> Any:
        self.seen.append(inputs)
        return self.model(inputs)

    def batch(self, rows: Tensor) -> Batch:
        return Batch(self.images[0][rows], self.images[1][rows], None, rows)

    def step(self, iteration: int, size: int = 20) -> Any:
        self.context.iteration = iteration
        rows = torch.randperm(64, generator=torch.Generator().manual_seed(iteration))[:size]
        return self.method.train().step(self.batch(rows), self.context)


def test_the_generator_learns_what_the_classes_look_like() -> None:
    run = Run(gan_rate=2e-3)
    for iteration in range(120):
        run.method.train_gan(run.batch(torch.arange(64)), iteration)
    noise = torch.randn(32, 8, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        for target in (0, 1):
            images = run.method.generate(noise, torch.full((32,), target))
            left, right = images[..., :4].mean(), images[..., 4:].mean()
            assert float((left - right) * (1 - 2 * target)) > 2, f"class {target}: {left:.2f} and {right:.2f}"


def test_generated_images_have_the_range_of_the_training_images() -> None:
    run = Run()
    assert (float(run.method.low), float(run.method.high)) == (-2.0, 3.0)
    with torch.no_grad():
        images = run.method.generate(torch.randn(50, 8) * 20, torch.arange(50) % 2)
    assert images.min() >= -2
    assert images.max() <= 3


@pytest.mark.parametrize(("share", "size", "added"), [(0.2, 20, 4), (0.5, 20, 10), (1.0, 7, 7), (0.2, 2, 0)])
def test_a_fixed_share_of_generated_images_joins_each_batch(share: float, size: int, added: int) -> None:
    run = Run(share=share)
    result = run.step(5, size)
    (inputs,) = run.seen
    assert len(inputs) == size + added
    assert result.logits.shape == (size, 2), "the log judges real images alone"
    assert result.extra.keys() == {"discriminator_loss", "generator_loss"}


def test_the_loss_is_the_cross_entropy_of_real_and_generated_images_under_their_classes() -> None:
    run = Run(share=0.5)
    weight = {name: value.clone() for name, value in run.model.state_dict().items()}
    result = run.step(5)
    (inputs,) = run.seen
    rows = torch.randperm(64, generator=torch.Generator().manual_seed(5))[:20]
    images, classes = run.method.additional_images(run.batch(rows), 5)
    assert torch.equal(inputs[20:], images)
    logits = F.linear(inputs.flatten(1), weight["head.weight"], weight["head.bias"])
    labels = [*run.images[1][rows].tolist(), *classes.tolist()]
    losses = [float(row.logsumexp(0) - row[label]) for row, label in zip(logits, labels, strict=True)]
    assert float(result.loss) == pytest.approx(sum(losses) / 30, rel=1e-5)


def test_before_its_start_the_gan_learns_and_the_classifier_sees_real_images_alone() -> None:
    run, plain = Run(progress=0.4), Run()
    before = {name: value.clone() for name, value in run.method.state_dict().items() if isinstance(value, Tensor)}
    for iteration in range(3):
        run.step(iteration)
        rows = torch.randperm(64, generator=torch.Generator().manual_seed(iteration))[:20]
        plain.context.apply(F.cross_entropy(plain.model(plain.images[0][rows]).logits, plain.images[1][rows]))
    for name, value in plain.model.state_dict().items():
        assert torch.equal(run.model.state_dict()[name], value)
    after = run.method.state_dict()
    assert not torch.equal(after["generator.first.weight"], before["generator.first.weight"])
    assert not torch.equal(after["discriminator.classes.weight"], before["discriminator.classes.weight"])


def test_a_step_of_the_gan_follows_the_two_objectives() -> None:
    """The discriminator's classes head after one Adam step moves against its gradient, computed here by hand."""
    run, twin = Run(gan_rate=1e-3), Run(gan_rate=1e-3)
    rows = torch.arange(20)
    batch, method = run.batch(rows), twin.method.train()
    noise, classes = method._draw("gan", 7, batch, 1.0)
    with torch.no_grad():
        generated = method.generate(noise, classes)
    source, named = method.discriminator(torch.cat([batch.inputs, generated]))
    judged = torch.cat([F.logsigmoid(source[:20]), F.logsigmoid(-source[20:])])
    chosen = named.log_softmax(1)[torch.arange(40), torch.cat([batch.targets, classes])]
    (-judged.mean() - chosen.mean()).backward()
    figures = run.method.train().train_gan(batch, 7)
    assert figures["discriminator_loss"] == pytest.approx(float((-judged.mean() - chosen.mean()).detach()), rel=1e-5)
    for mine, other in zip(run.method.discriminator.parameters(), method.discriminator.parameters(), strict=True):
        assert other.grad is not None
        clear = other.grad.abs() > 1e-5  # Adam's first step is the rate times the sign
        moved = (mine - other).detach()
        torch.testing.assert_close(moved[clear], -1e-3 * other.grad.sign()[clear], rtol=0.02, atol=1e-6)


def test_noise_depends_on_seed_and_iteration_and_the_global_generator_is_left_alone() -> None:
    before = torch.get_rng_state()
    one, two = ACGAN(SETUP, width=8), ACGAN(SETUP, width=8)
    assert torch.equal(torch.get_rng_state(), before)
    for mine, other in zip(one.parameters(), two.parameters(), strict=True):
        assert torch.equal(mine, other)
    batch = Batch(*make_images(), None, torch.arange(64))
    draws = [one._draw("gan", iteration, batch, 1.0)[0] for iteration in (0, 1, 0)]
    assert torch.equal(draws[0], draws[2])
    assert not torch.equal(draws[0], draws[1])


@pytest.mark.parametrize("shape", [(), (12,), (1, 8, 28), (3, 20, 20), (3, 224, 224)])
def test_anything_but_square_images_of_its_sizes_is_refused(shape: tuple[int, ...]) -> None:
    setup = Setup(2, 3, torch.ones(2), epochs=1, num_samples=2, input_shape=shape)
    with pytest.raises(ValueError, match="acgan makes images: it needs inputs of shape"):
        ACGAN(setup)


def gan_on_rank(rank: int, world: int = 2) -> dict[str, Tensor]:
    run = Run(share=0.4)
    run.method.double()  # Adam makes steps of the rounding of a gradient that should be zero
    images = []
    for iteration in range(2):
        rows = torch.arange(15)[rank::world]  # 8 and 7
        run.method.train().train_gan(run.batch(rows), iteration)
        images.append(run.method.additional_images(run.batch(rows), iteration)[0])
    return {name: value.detach() for name, value in run.method.named_parameters()} | {"images": torch.cat(images)}


def test_two_ranks_train_the_gan_of_one_process(run_on_ranks: Callable[..., list[Any]]) -> None:
    one, ranks = gan_on_rank(0, world=1), run_on_ranks(gan_on_rank)
    assert len(one["images"]) == sum(len(found["images"]) for found in ranks) == 12
    for found in ranks:
        for name in one.keys() - {"images"}:
            torch.testing.assert_close(found[name], one[name], rtol=0, atol=1e-9, msg=name)
