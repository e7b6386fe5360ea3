"""What tests of several rooms make or read: contexts, small networks, batches, photos, tables of a page."""

import copy
import importlib.util
import io
import os
import sys
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from icda.data.datasets.glt import SETS
from icda.data.embedding.features import write_arrays
from icda.data.task import Batch
from icda.methods import Context, Setup
from icda.models.base import FeatureClassifier, Output
from icda.training import TrainConfig, Trainer, train

WORDS = ["[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad", "film", "a", "[PAD]"]  # its padding id is not 0


def text_tokeniser():
    """A Hugging Face tokeniser of the words above."""
    tokenizers, transformers = pytest.importorskip("tokenizers"), pytest.importorskip("transformers")
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", WORDS.index("[CLS]")), ("[SEP]", WORDS.index("[SEP]"))]
    )
    names = {f"{name}_token": f"[{name.upper()}]" for name in ("unk", "pad", "cls", "sep", "mask")}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made, **names)


def write_text_model(folder, tokeniser=True, **sizes):
    """A random DistilBERT of one layer and twelve positions, or as `sizes` say, and its tokeniser."""
    transformers = pytest.importorskip("transformers")
    usual = {"dim": 16, "n_layers": 1, "n_heads": 2, "hidden_dim": 32, "max_position_embeddings": 12}
    words = {"vocab_size": len(WORDS), "pad_token_id": WORDS.index("[PAD]")}
    torch.manual_seed(0)
    config = transformers.DistilBertConfig(**words, **{**usual, **sizes})
    transformers.DistilBertForSequenceClassification(config).save_pretrained(folder)
    if tokeniser:
        text_tokeniser().save_pretrained(folder)
    return str(folder)


def encode_images(images):
    """Blob and offsets of lossless WebP images (N, H, W, 3) laid end to end."""
    parts = []
    for image in images:
        buffer = io.BytesIO()
        Image.fromarray(image).save(buffer, "WEBP", lossless=True)
        parts.append(buffer.getvalue())
    offsets = np.cumsum([0, *map(len, parts)])
    return {"blob": np.frombuffer(b"".join(parts), dtype=np.uint8), "offsets": offsets}


def annotate(classes, sets, label=str):
    """A file of the GLT benchmark: each set has the (class, attribute) of an image by its key; labels may be texts."""
    content = {
        "cat2id": {name: label(number) for number, name in enumerate(classes)},
        "id2cat": {str(number): name for number, name in enumerate(classes)},
    }
    for name in SETS:
        own = sets.get(name, {})
        content[name] = {
            "label": {key: label(target) for key, (target, _) in own.items()},
            "frequency": {key: target for key, (target, _) in own.items()},
            "attribute": {key: attribute for key, (_, attribute) in own.items()},
        }
    return content


def write_embedded(path, features, ids, labels=None, names=(), encoder="e"):
    """A file as `icda embed` writes it; labels (N,), if they are known, number the names."""
    arrays = {"id": np.array(ids), "skipped": np.array([], dtype="<U1")}
    arrays |= {"encoder": np.array(encoder), "encoder_version": np.array("1")}
    if labels is not None:
        arrays |= {"y": np.array(names)[labels], "y_code": labels, "class_names": np.array(names)}
    write_arrays(path, arrays, [features], features.shape)


def make_context(*models, rate=None, optimizers=(), data=(), **settings):
    """A context as the trainer lends it.

    With `rate` (SGD) or `optimizers` `apply` takes a step, else it does nothing. `data` are the inputs, targets and, if
    there are any, groups of the training set, which come seven samples at a time.
    """
    optimizers = [torch.optim.SGD(model.parameters(), lr=rate) for model in models] if rate is not None else optimizers

    def apply(loss: Tensor) -> None:
        for optimizer in optimizers:
            optimizer.zero_grad()
        if optimizers:
            loss.backward()
        for optimizer in optimizers:
            optimizer.step()

    given = {"apply": apply, "training_batches": lambda: batches_of(*data), **settings}
    return Context(list(models), list(models), optimizers, **given)


def batches_of(inputs=None, targets=None, groups=None):
    for rows in torch.arange(0 if inputs is None else len(inputs)).split(7):
        if len(rows):
            yield Batch(inputs[rows], targets[rows], None if groups is None else groups[rows], rows)


def make_network(classes=3, dropout=0.5):
    """Four inputs, five features, with BatchNorm and dropout, which act otherwise in evaluation mode."""
    return FeatureClassifier(
        nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Dropout(dropout)), nn.Linear(5, classes)
    )


def head_batch(classes=3, width=5, size=9, seed=0):
    """Features that want a gradient, labels among the first three classes in turn, and a head, in float64."""
    generator = torch.Generator().manual_seed(seed)
    head = nn.Linear(width, classes).double()
    with torch.no_grad():
        head.weight.copy_(torch.randn(classes, width, generator=generator))
    features = torch.randn(size, width, generator=generator, dtype=torch.float64)
    return features.requires_grad_(), torch.arange(size) % min(classes, 3), head


def drawn_batch(seed, size, num_classes, dim):
    """Features that want a gradient, labels and a head, all drawn, in float64."""
    generator = torch.Generator().manual_seed(seed)
    targets = torch.randint(num_classes, (size,), generator=generator)
    features = torch.randn(size, dim, generator=generator, dtype=torch.float64).requires_grad_()
    head = nn.Linear(dim, num_classes).double()
    with torch.no_grad():
        head.weight.copy_(torch.randn(num_classes, dim, generator=generator))
        head.bias.copy_(torch.randn(num_classes, generator=generator))
    return features, targets, head


def make_grouped(groups, seed, scale=1.0):
    """Random features (N, 4), logits (N, 3) and targets in float64, for samples of given groups."""
    generator, count = torch.Generator().manual_seed(seed), len(groups)
    features = torch.randn(count, 4, generator=generator, dtype=torch.float64, requires_grad=True)
    logits = (scale * torch.randn(count, 3, generator=generator, dtype=torch.float64)).requires_grad_()
    targets = torch.randint(3, (count,), generator=generator)
    return Output(features, logits), Batch(features, targets, torch.tensor(groups), torch.arange(count))


def make_batch(seed, size=9, classes=4):
    """Random inputs (N, 5) in float64, the classes in turn; what the fixture `model` of the methods' tests reads."""
    inputs = torch.randn(size, 5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return Batch(inputs, torch.arange(size) % classes, None, torch.arange(size))


def domain_setup(domains=2):
    """Two classes' groups in each domain, which is a group's number modulo `domains`; ten epochs of six batches."""
    groups = torch.full((2 * domains,), 30 // domains)
    numbers = torch.arange(2 * domains) % domains
    return Setup(3, 4, torch.full((3,), 20), 10, 60, groups, batch_size=10, group_domains=numbers)


def before_a_step(method, model, context):
    """A meta-learner that has seen two batches; its twin, which has also seen the next one, that batch and its output."""
    for k in range(2):
        method.observe(model(make_batch(k).inputs), make_batch(k), context)
    twin, data = copy.deepcopy(method), make_batch(7)
    output = model(data.inputs)
    twin.observe(output, data, context)
    return twin, data, output


def meta_gradients(model, data, metadata, inner, tensors, rate, random_state=None):
    """The textbook: a virtual step of SGD on the inner loss, the loss on metadata after it, double backward.

    The first pass draws its dropout masks from `random_state`, where one is given.
    """

    def logits(parameters, inputs):
        buffers = {name: value.clone() for name, value in model.named_buffers()}
        return functional_call(model, (parameters, buffers), (inputs,)).logits

    parameters = {name: value.detach().clone().requires_grad_() for name, value in model.named_parameters()}
    with torch.random.fork_rng(devices=[], enabled=random_state is not None):
        if random_state is not None:
            torch.set_rng_state(random_state)
        loss = inner(logits(parameters, data.inputs), parameters["head.weight"])
    slopes = torch.autograd.grad(loss, list(parameters.values()), create_graph=True)
    moved = {name: value - rate * slope for (name, value), slope in zip(parameters.items(), slopes, strict=True)}
    meta_loss = F.cross_entropy(logits(moved, metadata.inputs), metadata.targets)
    return torch.autograd.grad(meta_loss, list(tensors), allow_unused=True, materialize_grads=True)


def mixed_inputs(inputs, mix):
    """lambda_i x_i + (1 - lambda_i) x_j, one sample after the other."""
    pairs = zip(inputs, inputs[mix.partner], mix.share.tolist(), strict=True)
    return [share * own + (1 - share) * other for own, other, share in pairs]


def mixture_loss(model, mixtures, targets, mix):
    """Mean cross entropy of mixed samples under both labels, one sample after the other."""
    total = torch.zeros((), dtype=torch.float64)
    for i, mixture in enumerate(mixtures):
        log_p, share = model(mixture[None]).logits.log_softmax(1)[0], float(mix.share[i])
        total = total - share * log_p[targets[i]] - (1 - share) * log_p[targets[mix.partner[i]]]
    return total / len(targets)


def short_run(folder, method, **settings):
    """Two epochs of a small network on coloured digits, unless the settings say otherwise."""
    common = {"task": "digits_coloured", "model": "mlp", "epochs": 2, "batch_size": 100, "learning_rate": 0.05}
    return TrainConfig(**{**common, "method": method, "out": str(folder), **settings})


def train_until(config, steps):
    """End a run on every rank after so many steps; only the first has a progress view to stop it with."""
    with pytest.MonkeyPatch.context() as patch:
        whole, done = Trainer._step, 0

        def step(self: Trainer, run: Any, batch: Any) -> None:
            nonlocal done
            whole(self, run, batch)
            done += 1
            if done == steps:
                raise KeyboardInterrupt

        patch.setattr(Trainer, "_step", step)
        with pytest.raises(KeyboardInterrupt):
            train(config)


def act_as(rank):
    """What torchrun tells a process of two; the address is asked for, not used: there is a process group already."""
    os.environ |= dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE"), "2")
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}


def assert_same(one, other, where=""):
    """Nested dicts, lists and tensors that are equal to the bit, but for what may differ between two like runs."""
    assert type(one) is type(other), where
    if isinstance(one, dict):
        assert one.keys() == other.keys(), where
        for key in one.keys() - {"seconds", "environment", "config"}:
            assert_same(one[key], other[key], f"{where}.{key}")
    elif isinstance(one, list | tuple):
        assert len(one) == len(other), where
        for position, pair in enumerate(zip(one, other, strict=True)):
            assert_same(*pair, f"{where}[{position}]")
    elif isinstance(one, Tensor):
        assert one.dtype == other.dtype, where
        assert torch.equal(one, other), where
    else:
        assert one == other, where


def column(page, table, position):
    """Texts of a column's cells in the rows that are shown, of a page in a browser."""
    return page.evaluate(
        """([table, position]) => [...document.querySelectorAll(`${table} tbody tr:not(.filtered)`)]
             .map(row => row.cells[position].textContent.trim())""",
        [table, position],
    )


def shortcut_data(samples, agreement, width, weak, strong, seed=0):
    """Features (N, A), two classes and an attribute (N,) that goes with the class in a share `agreement` of the samples.

    `weak` and `strong` say in how many features class and attribute show, and how far from zero.
    """
    generator = np.random.default_rng(seed)
    y = np.arange(samples) % 2
    attribute = np.where(generator.random(samples) < agreement, y, 1 - y)
    X = generator.normal(size=(samples, width))
    X[:, : weak[0]] += weak[1] * (2 * y[:, None] - 1)
    X[:, weak[0] : weak[0] + strong[0]] += strong[1] * (2 * attribute[:, None] - 1)
    return X, y, attribute


def write_photos(folder, samples=48, seed=0, classes=True, names=("red", "blue")):
    """Noise that is red in one class and blue in the other; without classes in no folder, or one that says nothing."""
    generator = np.random.default_rng(seed)
    for row in range(samples):
        pixels = generator.integers(0, 90, (40, 32, 3), dtype=np.uint8)
        pixels[:, :, 2 * (row % 2)] += 150
        place = folder / (names[row % 2] if classes else ("here" if row % 3 else "."))
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(place / f"{row:03d}.png")
    return folder


def load_module(file, name):
    """The module in a file that no package holds, such as a tool's."""
    spec = importlib.util.spec_from_file_location(name, file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module
