"""What meta-learning methods share: when they look ahead, what they leave alone, and what is saved."""

import copy
from dataclasses import replace

import pytest
import torch
from accelerate import Accelerator
from torch.func import functional_call
from torch.nn import functional as F

from icda.data import Split, create_task
from icda.data.task import Batch
from icda.meta import Forward
from icda.methods import Setup, check_needs, create_method
from icda.methods.base import Stage
from icda.methods.meta_learning import MetaLearner, Outer
from icda.models import create_model
from icda.training import TrainConfig
from icda.training.stage_run import TrainingBatches
from support import make_context, meta_gradients

CLASSES, RATE = 3, 0.2
LEARNERS = ("meta_icda", "meta_icda_signed", "metasaug", "meta_weight_net", "lsda")


def batch(seed, size=8, shape=(1, 8, 8)):
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(size, *shape, generator=generator)
    return Batch(inputs, torch.arange(size) % CLASSES, None, torch.arange(size))


def context_of(model, **settings):
    metadata = {"next_metadata": lambda: batch(99, shape=(1, 8, 8))}
    return make_context(model, rate=RATE, **{**metadata, **settings})


class LearnedWeights(MetaLearner):
    """Cross entropy with a learned weight for each class."""

    def __init__(self, **options):
        super().__init__(**options)
        self.class_weights = torch.ones(CLASSES, requires_grad=True)

    def outer(self, output, batch, context):
        return Outer([self.class_weights], lambda logits, weight: self._loss(logits, batch.targets))

    def correct(self, tensors, gradients, context):
        self.class_weights = (tensors[0] - gradients[0]).detach().requires_grad_()

    def loss(self, output, batch, context):
        return self._loss(output.logits, batch.targets)

    def _loss(self, logits, targets):
        return (self.class_weights[targets] * F.cross_entropy(logits, targets, reduction="none")).mean()


@pytest.fixture
def model():
    return create_model("mlp", CLASSES, (1, 8, 8), hidden=5)


def test_a_step_reports_the_metadata_loss_of_the_virtual_network(model):
    data, metadata = batch(1), batch(99)
    parameters = dict(model.named_parameters())
    loss = F.cross_entropy(model(data.inputs).logits, data.targets)
    slopes = torch.autograd.grad(loss, list(parameters.values()))
    moved = {name: value - RATE * slope for (name, value), slope in zip(parameters.items(), slopes, strict=True)}
    wanted = F.cross_entropy(functional_call(model, moved, (metadata.inputs,)).logits, metadata.targets)
    result = LearnedWeights().step(data, context_of(model))
    assert result.extra["meta_loss"] == pytest.approx(float(wanted.detach()), rel=1e-6)


def test_the_real_step_is_one_of_the_corrected_loss(model):
    learner, reference, data = LearnedWeights(), copy.deepcopy(model), batch(1)
    learner.step(data, context_of(model))
    losses = F.cross_entropy(reference(data.inputs).logits, data.targets, reduction="none")
    loss = (learner.class_weights.detach()[data.targets] * losses).mean()
    gradients = torch.autograd.grad(loss, list(reference.parameters()))
    assert not torch.equal(learner.class_weights, torch.ones(CLASSES))
    for mine, before, gradient in zip(model.parameters(), reference.parameters(), gradients, strict=True):
        torch.testing.assert_close(mine, before - RATE * gradient)


@pytest.mark.parametrize(("every", "wanted"), [(1, [0, 1, 2, 3, 4, 5, 6]), (3, [0, 3, 6]), (10, [0])])
def test_looking_ahead_every_k_means_iterations_zero_k_and_so_on(every, wanted):
    learner = LearnedWeights(every=every)
    model = create_model("mlp", CLASSES, (1, 8, 8))
    looked = [k for k in range(7) if "meta_loss" in learner.step(batch(k), context_of(model, iteration=k)).extra]
    assert looked == wanted


def test_no_metadata_is_drawn_where_nothing_looks_ahead(model):
    drawn = []
    learner, context = LearnedWeights(every=2, start=0.5), context_of(model)

    def draw():
        drawn.append(context.iteration)
        return batch(99)

    context.next_metadata = draw
    for k in range(6):
        context.iteration, context.progress = k, k / 6
        learner.step(batch(k), context)
    assert drawn == [4]  # 0 and 2 come before the start, 1, 3 and 5 fall between


def test_a_learner_that_says_too_little_is_told_what_to_write(model):
    with pytest.raises(TypeError, match=r"MetaLearner does not define outer\(\)"):
        MetaLearner().step(batch(1), context_of(model))


def test_meta_batch_size_says_how_many_samples_a_step_looks_at(tmp_path):
    """The gradient is that of double backward on just those samples, whole passes of which follow each other."""
    task = create_task("digits_lt")
    config = TrainConfig(task="digits_lt", method="meta_weight_net", model="mlp", batch_size=48, out=str(tmp_path))
    model = create_model("mlp", task.num_classes, task.input_shape).double()
    method = create_method("meta_weight_net", Setup.of(task, model, 1), {"meta_batch_size": 20}).double()
    batches = TrainingBatches(config, task, method, Accelerator(cpu=True))
    drawn = [batches.metadata(iteration) for iteration in range(5)]
    assert [len(part.targets) for part in drawn] == [20] * 5
    assert sorted(row for part in drawn for row in part.index.tolist()) == list(range(len(task.metadata)))
    one, clean = (
        Batch(part.inputs.double(), part.targets, None, part.index)
        for part in (batches.stage_loader(Stage(1)).batch(0, 0), drawn[3])
    )
    forward = Forward.of(model, one.inputs, record=True)
    where = context_of(model, next_metadata=lambda: clean)
    found = []
    method.correct = lambda tensors, gradients, context: found.extend(gradients)
    method.meta_step(forward, one, where)
    tensors, inner = method.outer(forward.output, one, where)
    for gradient, wanted in zip(found, meta_gradients(model, one, clean, inner, tensors, RATE), strict=True):
        torch.testing.assert_close(gradient, wanted, rtol=1e-8, atol=1e-14)


@pytest.mark.parametrize("lookahead", ["full", "head", "difference"])
@pytest.mark.parametrize("name", LEARNERS)
def test_batchnorm_sees_the_training_batch_once_a_step_and_metadata_never(name, lookahead):
    model = create_model("small_cnn", CLASSES, (1, 8, 8)).train()
    setup = Setup(CLASSES, model.feature_dim, torch.tensor([5, 3, 2]), epochs=1, num_samples=10)
    options = {"lookahead": lookahead, **({"start": 0.0} if name == "metasaug" else {})}
    method = create_method(name, setup, options).train()
    for k in range(3):
        plain = copy.deepcopy(model)
        plain(batch(k).inputs)
        result = method.step(batch(k), context_of(model, iteration=k, progress=0.5))
        assert "meta_loss" in result.extra
        wanted = dict(plain.named_buffers())
        for buffer, value in model.named_buffers():
            assert torch.equal(value, wanted[buffer]), buffer
    tracked = [value for buffer, value in model.named_buffers() if buffer.endswith("num_batches_tracked")]
    assert tracked
    assert all(int(value) == 3 for value in tracked)


def with_metadata(task, metadata):
    return replace(task, name="odd", metadata=metadata)


def test_metadata_that_lacks_classes_is_refused_by_their_names():
    task = create_task("digits_lt")
    metadata = task.metadata.subset(((task.metadata.targets != 3) & (task.metadata.targets != 8)).nonzero().flatten())
    with pytest.raises(ValueError, match=r"metadata of task 'odd' holds no sample of class 3, 8"):
        check_needs("meta_icda", MetaLearner.needs, with_metadata(task, metadata))


def test_metadata_that_is_trained_on_too_is_refused_with_the_count():
    task = create_task("digits_lt")
    metadata, taken = task.metadata, task.train.subset(torch.arange(7))
    rows, targets = torch.cat([metadata.rows, taken.rows]), torch.cat([metadata.targets, taken.targets])
    with pytest.raises(ValueError, match=r"7 of 107 metadata samples of task 'odd' are training samples too"):
        check_needs("meta_icda", MetaLearner.needs, with_metadata(task, Split(task.train.source, rows, targets)))


@pytest.mark.parametrize("label", [-1, 10])
def test_metadata_with_a_label_outside_the_task_makes_no_task(label):
    task = create_task("digits_lt")
    targets = task.metadata.targets.clone()
    targets[0] = label
    with pytest.raises(ValueError, match=rf"task 'odd': metadata has label {label}, outside 0\.\.9"):
        with_metadata(task, replace(task.metadata, targets=targets))
