"""icda.train on torch Datasets, dicts, tensors: the user's own network, trained, and nothing left behind."""

import copy
import random
import tempfile
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import ConcatDataset, Dataset, IterableDataset, Subset, TensorDataset

import icda
from icda.data import dataset_task
from icda.models import FeatureClassifier
from support import act_as

CLASSES, SIZE = 3, 90


def table(seed=0, size=SIZE):
    """Inputs that tell the class, targets, and one of two places."""
    generator = torch.Generator().manual_seed(seed)
    targets = torch.arange(size) % CLASSES
    inputs = torch.randn(size, 6, generator=generator)
    inputs[:, :CLASSES] += 4 * nn.functional.one_hot(targets, CLASSES)
    return inputs, targets, torch.arange(size) // CLASSES % 2


class Drawn(Dataset[Any]):
    """Items as tuples or dicts, drawn one by one; remembers which were."""

    def __init__(self, kind="tuple", seed=0, targets=False):
        self.rows, self.kind, self.drawn = table(seed), kind, []
        if targets:
            self.targets = self.rows[1].tolist()

    def __len__(self):
        return SIZE

    def __getitem__(self, index):
        self.drawn.append(index)
        x, y, place = (values[index] for values in self.rows)
        if self.kind == "tuple":
            return x, int(y), ["land", "water"][int(place)]
        return {"x": x, "label": int(y), "place": ["land", "water"][int(place)], "idx": index, "text": "a text"}


class Columns:
    """What a Hugging Face dataset offers: columns by name, items by number, several at once."""

    def __init__(self, seed=0):
        inputs, targets, places = table(seed)
        self.columns = {"x": inputs.tolist(), "label": targets.tolist(), "place": places.tolist()}
        self.column_names, self.asked = list(self.columns), []

    def __len__(self):
        return SIZE

    def with_format(self, kind):
        return self

    def __getitem__(self, key):
        if isinstance(key, str):
            self.asked.append(key)
            return self.columns[key]
        return {name: column[key] for name, column in self.columns.items()}

    def __getitems__(self, rows):
        return [self[row] for row in rows]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU())
        self.answer = nn.Linear(16, CLASSES)

    def forward(self, inputs):
        return self.answer(self.body(inputs))


def make_net():
    torch.manual_seed(0)
    return Net()


FORMS = {
    "tuples": lambda seed: Drawn("tuple", seed),
    "dicts": lambda seed: Drawn("dict", seed),
    "hugging face": Columns,
    "tensors": lambda seed: table(seed)[:2],
    "arrays": lambda seed: tuple(values.numpy() for values in table(seed)[:2]),
    "tensor dataset": lambda seed: TensorDataset(*table(seed)),
    "subset": lambda seed: Subset(Drawn("tuple", seed, targets=True), range(SIZE)),
    "concatenation": lambda seed: ConcatDataset([Subset(Drawn("tuple", seed), range(40)), TailOf(seed)]),
}


def TailOf(seed):
    return Subset(Drawn("tuple", seed), range(40, SIZE))


@pytest.mark.parametrize("form", FORMS)
def test_all_forms_of_a_dataset_train_the_same_network(form):
    net, other = make_net(), make_net()
    settings = {"method": "icda", "epochs": 3, "batch_size": 30}
    named = {"inputs": "x"} if form == "hugging face" else {}
    found = icda.train(model=net, train=FORMS[form](0), validation=FORMS[form](1), **named, **settings)
    wanted = icda.train(model=other, train=table(0)[:2], validation=table(1)[:2], **settings)
    assert found.class_counts == [30, 30, 30]
    assert found.split == "validation"
    assert found.metrics == wanted.metrics
    assert (found.metric("accuracy") or 0) > 0.9
    for name, value in net.state_dict().items():
        torch.testing.assert_close(value, other.state_dict()[name], rtol=1e-5, atol=1e-7)


def test_the_network_is_the_users_own_trained_and_whole(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    net = make_net()
    before, answer = copy.deepcopy(net.state_dict()), net.answer
    result = icda.train(model=net, train=table(0)[:2], test=table(1)[:2], epochs=2, out=None)
    assert result.network is net
    assert net.answer is answer
    assert not net.training
    assert list(net.state_dict()) == list(before)
    assert not torch.equal(net.answer.weight, before["answer.weight"])
    inputs, targets, _ = table(1)
    assert float((net(inputs).argmax(1) == targets).float().mean()) == pytest.approx(result.metrics["accuracy"])
    fresh = result.load_into(Net()).eval()
    assert torch.equal(fresh(inputs), net(inputs))
    assert [path.name for path in tmp_path.iterdir() if not path.name.startswith("torchinductor")] == []
    with pytest.raises(ValueError, match="does not fit a Linear"):
        result.load_into(nn.Linear(6, CLASSES))


def test_files_are_written_and_resumed_where_a_folder_is_named(tmp_path):
    settings = {"train": table(0)[:2], "validation": table(1)[:2], "epochs": 2, "out": tmp_path / "run"}
    first = icda.train(model=make_net(), **settings)
    assert {"result.json", "report.html", "model.pt", "checkpoint.pt"} <= {
        path.name for path in (tmp_path / "run").iterdir()
    }
    net = Net()
    again = icda.train(model=net, resume=True, **settings)
    assert again == first
    assert again.network is net
    for name, value in net.state_dict().items():
        assert torch.equal(value, first.network.state_dict()[name]), name


@pytest.mark.parametrize("groups", ["place", 2, "array", "by split"])
def test_groups_come_from_a_key_a_position_or_an_array(groups):
    kind = "tuple" if groups == 2 else "dict"
    places = table()[2].numpy()
    given = {"array": places, "by split": {"train": places, "validation": places}}.get(str(groups), groups)
    result = icda.train(
        model=make_net(), train=Drawn(kind), validation=Drawn(kind, 1), groups=given, method="group_dro", epochs=1
    )
    assert result.group_names == (["land", "water"] if groups in ("place", 2) else ["0", "1"])
    known = groups != "array"  # else only those of the training data are
    assert (
        "worst_group_accuracy" in (result.metrics or {}) and result.metric("worst_group_accuracy") is not None
    ) == known


def test_labels_of_a_dataset_that_lists_them_are_not_drawn():
    listed, drawn = Drawn(targets=True), Drawn()
    for dataset in (listed, drawn):
        assert dataset_task(dataset).class_counts.tolist() == [30, 30, 30]
    assert len(listed.drawn) < 10
    assert len(drawn.drawn) > SIZE - 1


def test_a_list_that_is_not_what_items_say_is_not_believed():
    dataset = Drawn(targets=True)
    dataset.targets = [0] * SIZE  # as a target_transform makes it
    assert dataset_task(dataset).class_counts.tolist() == [30, 30, 30]


def test_items_are_drawn_a_batch_at_a_time():
    dataset = Drawn(targets=True)
    split = dataset_task(dataset).train
    dataset.drawn.clear()
    split.batch(torch.tensor([5, 7]))
    assert dataset.drawn == [5, 7]


class Noisy(Drawn):
    """A random transform by all three generators that datasets draw from."""

    def __getitem__(self, index):
        x, y, _ = super().__getitem__(index)
        return x + torch.randn(6) + np.random.normal() + random.gauss(0, 1), y


def test_random_transforms_are_made_again_and_leave_other_draws_alone():
    nets = []
    for seed in (1, 2):  # of the process, which must not matter
        net = make_net()
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed)
        icda.train(model=net, train=Noisy(targets=True), epochs=2, batch_size=30)
        nets.append(net.state_dict())
    assert all(torch.equal(value, nets[1][name]) for name, value in nets[0].items())
    split = dataset_task(Noisy(targets=True)).train
    one, other = (split.batch(torch.tensor([3]), torch.Generator().manual_seed(seed)).inputs for seed in (1, 2))
    assert not torch.equal(one, other)


@pytest.mark.parametrize("method", ["meta_icda", "jtt", "la", "ldam", "lws", "crt", "gce"])
def test_methods_work_and_leave_a_network_that_predicts_what_was_measured(method):
    net = make_net()
    result = icda.train(
        model=net,
        train=table(0)[:2],
        validation=table(1)[:2],
        metadata=table(2, 30)[:2],
        method=method,
        epochs=4,
        batch_size=30,
        selection="validation_worst_class" if method != "jtt" else "last",
    )
    assert result.network is net
    inputs, targets, _ = table(1)
    assert float((net(inputs).argmax(1) == targets).float().mean()) == pytest.approx(result.metric("accuracy"))
    assert all(value.requires_grad for value in net.parameters())


def test_a_method_with_two_networks_takes_a_function():
    result = icda.train(model=Net, train=table(0)[:2], validation=table(1)[:2], method="co_teaching", epochs=1)
    assert isinstance(result.network, Net)
    with pytest.raises(ValueError, match="give model a function"):
        icda.train(model=Net(), train=table(0)[:2], method="co_teaching", epochs=1)


class ConvolutionHead(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.last = nn.Linear(6, 8), nn.Conv2d(8, CLASSES, 1)

    def forward(self, inputs):
        return self.last(self.body(inputs).relu()[:, :, None, None]).flatten(1)


@pytest.mark.parametrize(
    "make",
    [
        ConvolutionHead,
        lambda: nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, CLASSES)),
        lambda: nn.Linear(6, CLASSES),
        lambda: FeatureClassifier(nn.Linear(6, 8), nn.Linear(8, CLASSES)),
    ],
    ids=["1x1 convolution", "sequential", "linear", "feature classifier"],
)
def test_heads_of_any_form_are_found_and_put_back(make):
    torch.manual_seed(0)
    net = make()
    keys, shapes = list(net.state_dict()), [value.shape for value in net.state_dict().values()]
    result = icda.train(model=net, train=table(0)[:2], test=table(1)[:2], epochs=5, batch_size=30)
    assert result.network is net
    assert list(net.state_dict()) == keys
    assert [value.shape for value in net.state_dict().values()] == shapes
    output = net(table(1)[0])
    logits = output.logits if isinstance(net, FeatureClassifier) else output
    assert float((logits.argmax(1) == table(1)[1]).float().mean()) == pytest.approx(result.metric("accuracy"))
    assert (result.metric("accuracy") or 0) > 0.8


def test_models_of_transformers_read_dicts():
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.DistilBertConfig(dim=16, hidden_dim=32, n_layers=1, n_heads=2, vocab_size=50, num_labels=2)
    net = transformers.DistilBertForSequenceClassification(config)
    samples = [
        {"input_ids": [1 + i % 2] * 6, "attention_mask": [1] * 6, "labels": i % 2, "text": "ab"} for i in range(24)
    ]
    keys = list(net.state_dict())
    result = icda.train(
        model=net, train=samples, method="icda", epochs=2, batch_size=8, optimizer="adam", learning_rate=0.01
    )
    assert result.network is net
    assert list(net.state_dict()) == keys
    assert net(torch.tensor([[1] * 6])).logits.shape == (1, 2)


def test_what_the_user_froze_stays_as_it_was():
    net = make_net()
    net.body[0].requires_grad_(False)
    before = net.body[0].weight.clone()
    icda.train(model=net, train=table(0)[:2], epochs=2, batch_size=30)
    assert torch.equal(net.body[0].weight, before)
    assert [value.requires_grad for value in net.body[0].parameters()] == [False, False]
    assert net.answer.weight.requires_grad


def test_a_training_that_ends_in_an_error_leaves_the_network_whole():
    net = make_net()
    with pytest.raises(icda.errors.InputError, match="overflow"):
        icda.train(model=net, train=table(0)[:2], epochs=5, learning_rate=1e30, clip_norm=None)
    assert isinstance(net.answer, nn.Linear)


def train_small():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, CLASSES))
    icda.train(model=net, train=Drawn(targets=True), validation=table(1)[:2], epochs=2, batch_size=30)
    return dict(net.state_dict())


def train_on_rank(rank):
    act_as(rank)
    return train_small()


def test_two_ranks_train_as_one_process_does(run_on_ranks):
    wanted = train_small()
    for found in run_on_ranks(train_on_rank):
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-6)


class Softmax(Net):
    def forward(self, inputs):
        return super().forward(inputs).softmax(1)


class TwoAnswers(Net):
    def forward(self, inputs):
        return super().forward(inputs), inputs


@pytest.mark.parametrize(("kind", "message"), [(Softmax, "plain logits"), (TwoAnswers, "returned a tuple")])
def test_a_network_that_does_more_after_its_head_is_refused_and_left_whole(kind, message):
    net = kind()
    with pytest.raises(icda.errors.InputError, match=message):
        icda.train(model=net, train=table(0)[:2], epochs=1)
    assert isinstance(net.answer, nn.Linear)


def test_gradients_are_clipped_as_for_other_data_of_the_users_own():
    result = icda.train(model=make_net(), train=table(0)[:2], epochs=1)
    assert result.config["clip_norm"] == 1.0


class Stream(IterableDataset[Any]):
    def __iter__(self):
        return iter(())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"train": Stream()}, "a stream cannot"),
        ({"train": (torch.randn(4, 6), torch.rand(4))}, "class numbers"),
        ({"train": [(torch.randn(6), "cat")] * 4}, "class numbers from 0, one per item, got <U3"),
        ({"train": [(i, i % 3, "x") for i in range(9)], "targets": 7}, "targets=7"),
        ({"train": [("text", i % 3) for i in range(9)]}, "cannot read two samples"),
        ({"train": Columns()}, "x .2, 6., place .2,."),
        ({"train": table()[:2], "groups": [1, 2]}, "groups of train are 2"),
        ({"train": table()[:2], "epoch": 3}, "did you mean 'epochs'"),
        ({"train": table()[:2], "method": "group_dro"}, "needs groups"),
        ({"train": (table()[0], table()[1] % 2)}, "3 outputs, and task 'dataset' has 2 classes"),
        ({"validation": table()[:2]}, "give train= as well"),
        ({"train": table()[:2], "model": None}, "needs model="),
    ],
)
def test_what_cannot_be_trained_on_is_said_in_a_sentence(settings, message):
    with pytest.raises(icda.errors.IcdaError, match=message):
        icda.train(**{"model": make_net(), **settings})
