"""What the GANs have in common: they learn the classes, join batches, repeat their draws, and do so on two ranks."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from gans import SETUP, Run, make_images
from icda.data.task import Batch
from icda.methods import Setup
from icda.methods.image_gan import ACGAN, CGAN, WGAN, ImageGAN, InfoGAN

KINDS = (ACGAN, CGAN, InfoGAN, WGAN)
every_gan = pytest.mark.parametrize("kind", KINDS)


@every_gan
def test_the_generator_learns_what_the_classes_look_like(kind: type[ImageGAN]) -> None:
    run = Run(kind, gan_rate=2e-3)
    for iteration in range(600 if kind is WGAN else 120):  # its generator learns in each fifth iteration
        run.method.train_gan(run.batch(torch.arange(64)), iteration)
    noise = torch.randn(32, 8, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        for target in (0, 1):
            images = run.method.generate(noise, torch.full((32,), target))
            left, right = images[..., :4].mean(), images[..., 4:].mean()
            assert float((left - right) * (1 - 2 * target)) > 2, f"class {target}: {left:.2f} and {right:.2f}"


def test_generated_images_have_the_range_of_the_training_images() -> None:
    run = Run(ACGAN)
    assert (float(run.method.low), float(run.method.high)) == (-2.0, 3.0)
    with torch.no_grad():
        images = run.method.generate(torch.randn(50, 8) * 20, torch.arange(50) % 2)
    assert images.min() >= -2
    assert images.max() <= 3


@pytest.mark.parametrize(("share", "size", "added"), [(0.2, 20, 4), (0.5, 20, 10), (1.0, 7, 7), (0.2, 2, 0)])
def test_a_fixed_share_of_generated_images_joins_each_batch(share: float, size: int, added: int) -> None:
    run = Run(ACGAN, share=share)
    result = run.step(5, size)
    (inputs,) = run.seen
    assert len(inputs) == size + added
    assert result.logits.shape == (size, 2), "the log judges real images alone"
    assert result.extra.keys() == {"discriminator_loss", "generator_loss"}


def test_the_loss_is_the_cross_entropy_of_real_and_generated_images_under_their_classes() -> None:
    run = Run(ACGAN, share=0.5)
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


@every_gan
def test_before_its_start_the_gan_learns_and_the_classifier_sees_real_images_alone(
    kind: type[ImageGAN],
) -> None:
    run, plain = Run(kind, progress=0.4), Run(kind)
    before = {name: value.clone() for name, value in run.method.state_dict().items() if isinstance(value, Tensor)}
    for iteration in range(5):
        run.step(iteration)
        rows = torch.randperm(64, generator=torch.Generator().manual_seed(iteration))[:20]
        plain.context.apply(F.cross_entropy(plain.model(plain.images[0][rows]).logits, plain.images[1][rows]))
    for name, value in plain.model.state_dict().items():
        assert torch.equal(run.model.state_dict()[name], value)
    after = run.method.state_dict()
    assert not torch.equal(after["generator.first.weight"], before["generator.first.weight"])
    assert not torch.equal(after["discriminator.classes.weight"], before["discriminator.classes.weight"])


@every_gan
def test_noise_depends_on_seed_and_iteration_and_the_global_generator_is_left_alone(
    kind: type[ImageGAN],
) -> None:
    before = torch.get_rng_state()
    one, two = kind(SETUP, width=8), kind(SETUP, width=8)
    assert torch.equal(torch.get_rng_state(), before)
    for mine, other in zip(one.parameters(), two.parameters(), strict=True):
        assert torch.equal(mine, other)
    batch = Batch(*make_images(), None, torch.arange(64))
    draws = [one._draw("gan", iteration, batch, 1.0)[0] for iteration in (0, 1, 0)]
    assert torch.equal(draws[0], draws[2])
    assert not torch.equal(draws[0], draws[1])


@every_gan
@pytest.mark.parametrize("shape", [(), (12,), (1, 8, 28), (3, 20, 20), (3, 224, 224)])
def test_anything_but_square_images_of_its_sizes_is_refused(kind: type[ImageGAN], shape: tuple[int, ...]) -> None:
    setup = Setup(2, 3, torch.ones(2), epochs=1, num_samples=2, input_shape=shape)
    with pytest.raises(ValueError, match=f"{kind.name} makes images: it needs inputs of shape"):
        kind(setup)


def gan_on_rank(rank: int, world: int = 2) -> dict[str, Tensor]:
    """The networks of each GAN after two steps, and the images it adds."""
    found: dict[str, Tensor] = {}
    for kind in KINDS:
        run = Run(kind, share=0.4, **({"critic_steps": 1} if kind is WGAN else {}))
        run.method.double()  # Adam makes steps of the rounding of a gradient that should be zero
        images = []
        for iteration in range(2):
            rows = torch.arange(15)[rank::world]  # 8 and 7
            run.method.train().train_gan(run.batch(rows), iteration)
            images.append(run.method.additional_images(run.batch(rows), iteration)[0])
        found |= {f"{kind.name}.{name}": value.detach() for name, value in run.method.named_parameters()}
        found[f"{kind.name}.images"] = torch.cat(images)
    return found


def test_two_ranks_train_the_gan_of_one_process(run_on_ranks: Callable[..., list[Any]]) -> None:
    one, ranks = gan_on_rank(0, world=1), run_on_ranks(gan_on_rank)
    for kind in KINDS:
        assert len(one[f"{kind.name}.images"]) == sum(len(found[f"{kind.name}.images"]) for found in ranks) == 12
    for found in ranks:
        for name in (name for name in one if not name.endswith(".images")):
            torch.testing.assert_close(found[name], one[name], rtol=0, atol=1e-9, msg=name)
