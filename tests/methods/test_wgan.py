import pytest
import torch
from torch import Tensor

from gans import Run, judged_images
from icda.methods.image_gan import WGAN


def test_the_critic_raises_the_distance_under_a_penalty_on_its_slope() -> None:
    method, batch, made = judged_images(WGAN, penalty=7.0)

    def rating(image: Tensor, target: Tensor) -> Tensor:
        source, named = method.discriminator(image[None])
        return source[0] + named[0, target]

    distance, penalty = 0.0, 0.0
    for place, (real, fake) in enumerate(zip(batch.inputs, made.images, strict=True)):
        target, mixing = batch.targets[place], float(made.mixing[place])
        distance += float((rating(real, target) - rating(fake, target)).detach()) / 6
        middle = (1 - mixing) * real + mixing * fake
        slope = torch.autograd.functional.jacobian(lambda image, target=target: rating(image, target), middle)
        penalty += (float(slope.norm()) - 1) ** 2 / 6
    loss = method.discriminator_loss(batch.inputs, batch.targets, made)
    assert float(loss.detach()) == pytest.approx(7 * penalty - distance, rel=1e-9)
    rated = sum(float(rating(*pair).detach()) for pair in zip(made.images, made.classes, strict=True)) / 6
    assert float(method.generator_loss(made).detach()) == pytest.approx(-rated, rel=1e-9)
    assert len(set(made.mixing.tolist())) == 6


def test_the_gradient_of_the_penalty_is_that_of_small_differences() -> None:
    method, batch, made = judged_images(WGAN)
    weight = method.discriminator.layers[0].weight
    loss = method.discriminator_loss(batch.inputs, batch.targets, made)
    (slope,) = torch.autograd.grad(loss, weight)
    for place in ((0, 0, 1, 1), (3, 0, 2, 0)):
        losses = []
        for move in (1e-6, -1e-6):
            with torch.no_grad():
                weight[place] += move
            losses.append(float(method.discriminator_loss(batch.inputs, batch.targets, made)))
            with torch.no_grad():
                weight[place] -= move
        assert float(slope[place]) == pytest.approx((losses[0] - losses[1]) / 2e-6, rel=1e-4)


def test_a_critic_without_slope_has_a_finite_gradient() -> None:
    method, batch, made = judged_images(WGAN)
    with torch.no_grad():
        for head in (method.discriminator.source, method.discriminator.classes):
            head.weight.zero_()
    loss = method.discriminator_loss(batch.inputs, batch.targets, made)
    assert float(loss) == pytest.approx(10 * (1 - 1e-6) ** 2)  # the root of 1e-12 where 1 should be
    for slope in torch.autograd.grad(loss, list(method.discriminator.parameters())):
        assert slope.isfinite().all()


def test_the_critic_learns_in_each_iteration_and_the_generator_in_each_third() -> None:
    run = Run(WGAN, critic_steps=3)
    for iteration in range(7):
        before = {name: value.clone() for name, value in run.method.state_dict().items() if isinstance(value, Tensor)}
        figures = run.step(iteration).extra
        after = run.method.state_dict()
        moved = {part: not torch.equal(after[part], before[part]) for part in before if part.endswith("weight")}
        learns = iteration in (2, 5)
        assert all(moves for part, moves in moved.items() if part.startswith("discriminator"))
        assert moved["generator.first.weight"] == learns
        assert ("generator_loss" in figures) == learns


def mean_slope(penalty: float) -> float:
    """Between real and generated images, after 200 steps."""
    run = Run(WGAN, gan_rate=2e-3, penalty=penalty)
    for iteration in range(200):
        run.method.train_gan(run.batch(torch.arange(64)), iteration)
    batch = run.batch(torch.arange(32))
    made = run.method._make(batch, 0)
    between = torch.lerp(batch.inputs, made.images.detach(), made.mixing.view(-1, 1, 1, 1)).requires_grad_()
    ratings = run.method.discriminator.of_class(between, batch.targets).sum()
    return float(torch.autograd.grad(ratings, between)[0].flatten(1).norm(dim=1).mean())


def test_the_penalty_is_what_holds_the_critics_slope_near_one() -> None:
    assert 0.5 < mean_slope(10.0) < 2
    assert mean_slope(1e-4) > 10
