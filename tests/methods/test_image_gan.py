"""GANs that make training images: what they have in common, and the two objectives of each."""

import math

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Bernoulli, Categorical, Normal
from torch.nn import functional as F

from icda.data.task import Batch
from icda.errors import InputError
from icda.methods import Setup
from icda.methods.acgan import ACGAN
from icda.methods.cgan import CGAN
from icda.methods.infogan import InfoGAN
from icda.methods.wgan import WGAN
from icda.models.base import FeatureClassifier
from support import make_context

SETUP = Setup(2, 64, torch.tensor([32, 32]), epochs=4, num_samples=64, input_shape=(1, 8, 8), seed=3)


def make_images(count=64):
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

    def __init__(self, kind, progress=0.9, **options):
        torch.manual_seed(0)
        self.method = kind(SETUP, **{"width": 8, "noise_dim": 8, **options})
        self.model = FeatureClassifier(nn.Flatten(), nn.Linear(64, 2))
        self.images, self.seen = make_images(), []
        self.context = make_context(self.model, rate=0.1, data=self.images, progress=progress)
        self.context.networks = [self.forward]
        self.method.on_stage_start(self.context)

    def forward(self, inputs):
        self.seen.append(inputs)
        return self.model(inputs)

    def batch(self, rows):
        return Batch(self.images[0][rows], self.images[1][rows], None, rows)

    def step(self, iteration, size=20):
        self.context.iteration = iteration
        rows = torch.randperm(64, generator=torch.Generator().manual_seed(iteration))[:size]
        return self.method.train().step(self.batch(rows), self.context)


def judged_images(kind, count=6, **options):
    """A method in float64 whose networks stand still, a batch, and as many images that it made."""
    run = Run(kind, **options)
    method = run.method.double().eval()  # spectral normalisation takes a step with each look in training mode
    images, targets = run.images
    batch = Batch(images[:count].double(), targets[:count], None, torch.arange(count))
    made = method._make(batch, 0)
    return method, batch, made._replace(images=made.images.detach())


KINDS = (ACGAN, CGAN, InfoGAN, WGAN)
every_gan = pytest.mark.parametrize("kind", KINDS)


@every_gan
def test_the_generator_learns_what_the_classes_look_like(kind):
    run = Run(kind, gan_rate=2e-3)
    for iteration in range(600 if kind is WGAN else 120):  # its generator learns in each fifth iteration
        run.method.train_gan(run.batch(torch.arange(64)), iteration)
    noise = torch.randn(32, 8, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        for target in (0, 1):
            images = run.method.generate(noise, torch.full((32,), target))
            left, right = images[..., :4].mean(), images[..., 4:].mean()
            assert float((left - right) * (1 - 2 * target)) > 2, f"class {target}: {left:.2f} and {right:.2f}"


def test_generated_images_have_the_range_of_the_training_images():
    run = Run(ACGAN)
    assert (float(run.method.low), float(run.method.high)) == (-2.0, 3.0)
    with torch.no_grad():
        images = run.method.generate(torch.randn(50, 8) * 20, torch.arange(50) % 2)
    assert images.min() >= -2
    assert images.max() <= 3


@pytest.mark.parametrize(("share", "size", "added"), [(0.2, 20, 4), (0.5, 20, 10), (1.0, 7, 7), (0.2, 2, 0)])
def test_a_fixed_share_of_generated_images_joins_each_batch(share, size, added):
    run = Run(ACGAN, share=share)
    result = run.step(5, size)
    (inputs,) = run.seen
    assert len(inputs) == size + added
    assert result.logits.shape == (size, 2), "the log judges real images alone"
    assert result.extra.keys() == {"discriminator_loss", "generator_loss"}


def test_the_loss_is_the_cross_entropy_of_real_and_generated_images_under_their_classes():
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
def test_before_its_start_the_gan_learns_and_the_classifier_sees_real_images_alone(kind):
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
def test_noise_depends_on_seed_and_iteration_and_the_global_generator_is_left_alone(kind):
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
def test_anything_but_square_images_of_its_sizes_is_refused(kind, shape):
    setup = Setup(2, 3, torch.ones(2), epochs=1, num_samples=2, input_shape=shape)
    with pytest.raises(ValueError, match=f"{kind.name} makes images: it needs inputs of shape"):
        kind(setup)


def gan_on_rank(rank, world=2):
    """The networks of each GAN after two steps, and the images it adds."""
    found = {}
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


def test_two_ranks_train_the_gan_of_one_process(run_on_ranks):
    one, ranks = gan_on_rank(0, world=1), run_on_ranks(gan_on_rank)
    for kind in KINDS:
        assert len(one[f"{kind.name}.images"]) == sum(len(found[f"{kind.name}.images"]) for found in ranks) == 12
    for found in ranks:
        for name in (name for name in one if not name.endswith(".images")):
            torch.testing.assert_close(found[name], one[name], rtol=0, atol=1e-9, msg=name)


def test_a_step_of_the_gan_follows_the_two_objectives():
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
        clear = other.grad.abs() > 1e-5  # Adam's first step is the rate times the sign
        moved = (mine - other).detach()
        torch.testing.assert_close(moved[clear], -1e-3 * other.grad.sign()[clear], rtol=0.02, atol=1e-6)


def test_the_generator_wants_its_images_taken_for_real_and_for_their_class():
    method, _, made = judged_images(ACGAN)
    total = torch.zeros(())
    for image, target in zip(made.images, made.classes, strict=True):
        source, named = method.discriminator(image[None])
        total = total - F.logsigmoid(source[0]) - named[0].log_softmax(0)[target]
    torch.testing.assert_close(method.generator_loss(made), total / 6)


def chance_of_real(discriminator, image, target):
    source, named = discriminator(image[None])
    return 1 / (1 + math.exp(-float((source + named[0, target]).detach())))


def test_real_and_generated_images_are_judged_under_their_class():
    method, batch, made = judged_images(CGAN)
    real = [
        -math.log(chance_of_real(method.discriminator, image, int(target)))
        for image, target in zip(batch.inputs, batch.targets, strict=True)
    ]
    judged = [
        chance_of_real(method.discriminator, *pair) for pair in zip(made.images, made.classes.tolist(), strict=True)
    ]
    generated = [-math.log(1 - chance) for chance in judged]
    loss = float(method.discriminator_loss(batch.inputs, batch.targets, made))
    assert loss == pytest.approx(sum(real + generated) / 12, rel=1e-9)
    assert float(method.generator_loss(made)) == pytest.approx(
        sum(-math.log(chance) for chance in judged) / 6, rel=1e-9
    )


def test_the_gan_learns_on_images_of_the_batchs_labels():
    """Were they drawn uniformly, a rare class would give a generated image away."""
    run = Run(CGAN)
    zeros = (run.images[1] == 0).nonzero().flatten()[:20]
    made = run.method._make(run.batch(zeros), 0)
    assert torch.equal(made.classes, torch.zeros(20, dtype=torch.int64))
    _, classes = run.method.additional_images(run.batch(zeros), 0)
    assert 1 in classes  # what joins the batch is uniform


def test_both_networks_raise_the_log_likelihood_of_class_and_codes():
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


def test_more_codes_than_noise_are_refused():
    with pytest.raises(InputError, match="codes must be at most noise_dim, of which they are a part: got 9 and 8"):
        InfoGAN(SETUP, codes=9, noise_dim=8)


def test_the_critic_raises_the_distance_under_a_penalty_on_its_slope():
    method, batch, made = judged_images(WGAN, penalty=7.0)

    def rating(image, target):
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


def test_the_gradient_of_the_penalty_is_that_of_small_differences():
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


def test_a_critic_without_slope_has_a_finite_gradient():
    method, batch, made = judged_images(WGAN)
    with torch.no_grad():
        for head in (method.discriminator.source, method.discriminator.classes):
            head.weight.zero_()
    loss = method.discriminator_loss(batch.inputs, batch.targets, made)
    assert float(loss) == pytest.approx(10 * (1 - 1e-6) ** 2)  # the root of 1e-12 where 1 should be
    for slope in torch.autograd.grad(loss, list(method.discriminator.parameters())):
        assert slope.isfinite().all()


def test_the_critic_learns_in_each_iteration_and_the_generator_in_each_third():
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
