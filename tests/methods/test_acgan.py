import pytest
import torch
from torch.nn import functional as F

from gans import Run, judged_images
from icda.methods.image_gan import ACGAN


def test_a_step_of_the_gan_follows_the_two_objectives() -> None:
    """The discriminator's classes head after one Adam step moves against its gradient, computed here by hand."""
    run, twin = Run(ACGAN, gan_rate=1e-3), Run(ACGAN, gan_rate=1e-3)
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


def test_the_generator_wants_its_images_taken_for_real_and_for_their_class() -> None:
    method, _, made = judged_images(ACGAN)
    total = torch.zeros(())
    for image, target in zip(made.images, made.classes, strict=True):
        source, named = method.discriminator(image[None])
        total = total - F.logsigmoid(source[0]) - named[0].log_softmax(0)[target]
    torch.testing.assert_close(method.generator_loss(made), total / 6)
