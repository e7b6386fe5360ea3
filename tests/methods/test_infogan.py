import pytest
import torch
from torch.distributions import Bernoulli, Categorical, Normal

from gans import SETUP, Run, judged_images
from icda.errors import InputError
from icda.methods.image_gan import InfoGAN


def test_both_networks_raise_the_log_likelihood_of_class_and_codes() -> None:
    method, batch, made = judged_images(InfoGAN, codes=3, code_weight=0.4)
    likelihood, fooled, told = 0.0, 0.0, 0.0
    for image, target, noise in zip(made.images, made.classes, made.noise, strict=True):
        source, read = method.discriminator(image[None])
        assert read.shape == (1, 5)
        likelihood += float(Categorical(logits=read[0, :2]).log_prob(target)) / 6
        normal = Normal(read[0, 2:], 1.0)
        likelihood += 0.4 * float((normal.log_prob(noise[:3]) - Normal(0.0, 1.0).log_prob(torch.zeros(()))).sum()) / 6
        fooled -= float(Bernoulli(logits=source).log_prob(torch.ones(1))) / 6
        told -= float(Bernoulli(logits=source).log_prob(torch.zeros(1))) / 12
    labels = 0.0
    for image, target in zip(batch.inputs, batch.targets, strict=True):
        source, read = method.discriminator(image[None])
        labels -= float(Categorical(logits=read[0, :2]).log_prob(target)) / 6
        told -= float(Bernoulli(logits=source).log_prob(torch.ones(1))) / 12
    loss = float(method.discriminator_loss(batch.inputs, batch.targets, made))
    assert loss == pytest.approx(told + labels - likelihood, rel=1e-6)
    assert float(method.generator_loss(made)) == pytest.approx(fooled - likelihood, rel=1e-6)


def test_codes_can_be_read_from_images_and_without_a_weight_they_cannot() -> None:
    found = {}
    for weight in (0.0, 1.0):
        run = Run(InfoGAN, gan_rate=2e-3, codes=1, code_weight=weight)
        for iteration in range(200):
            run.method.train_gan(run.batch(torch.arange(64)), iteration)
        noise = torch.randn(200, 8, generator=torch.Generator().manual_seed(1))
        with torch.no_grad():
            _, read = run.method.eval().discriminator(run.method.generate(noise, torch.arange(200) % 2))
        found[weight] = float(torch.corrcoef(torch.stack([read[:, 2], noise[:, 0]]))[0, 1])
    assert found[1.0] > 0.8
    assert abs(found[0.0]) < 0.5


def test_more_codes_than_noise_are_refused() -> None:
    with pytest.raises(InputError, match="codes must be at most noise_dim, of which they are a part: got 9 and 8"):
        InfoGAN(SETUP, codes=9, noise_dim=8)
