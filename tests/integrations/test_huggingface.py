"""Hugging Face's Trainer with our losses, on a DistilBERT that is real but tiny."""

import copy
import subprocess
import sys
from typing import ClassVar

import pytest
import torch
import transformers
from torch import nn

from icda import ICDALoss
from icda.extras import MissingExtraError
from icda.integrations import RobustTrainer, compute_loss_func
from icda.integrations.huggingface import STATE_FILE, count_labels
from icda.models import from_huggingface
from icda.registry import UnknownNameError

LABELS = [0, 0, 0, 0, 1, 0, 2, 1, 0, 0, 1]


def make_model(dropout=0.0):
    torch.manual_seed(0)
    sizes = {"dim": 16, "hidden_dim": 32, "n_layers": 1, "n_heads": 2, "vocab_size": 50, "max_position_embeddings": 8}
    rates = dict.fromkeys(("dropout", "attention_dropout", "seq_classif_dropout"), dropout)
    config = transformers.DistilBertConfig(**sizes, **rates, num_labels=3)
    return transformers.DistilBertForSequenceClassification(config)


def make_data(size=None):
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(1, 50, (len(LABELS), 6), generator=generator)
    return [{"input_ids": tokens[i], "labels": LABELS[i]} for i in range(size or len(LABELS))]


def make_arguments(folder, **settings):
    fixed = {"use_cpu": True, "report_to": [], "disable_tqdm": True, "save_strategy": "no", "logging_steps": 1}
    plan = {"per_device_train_batch_size": 4, "max_steps": 6, "learning_rate": 0.01}
    return transformers.TrainingArguments(str(folder), **{**fixed, **plan, **settings})


def robust(folder, model=None, settings=None, **options):
    """A trainer of a model of ours on the data above."""
    arguments = make_arguments(folder, **(settings or {}))
    return RobustTrainer(model or make_model(), arguments, **{"train_dataset": make_data(), **options})


class InOrder(RobustTrainer):
    """Batches in the order of the data, so that a loop by hand can follow."""

    def _get_train_sampler(self, *_):
        return torch.utils.data.SequentialSampler(self.train_dataset)


def collated(samples):
    return torch.stack([sample["input_ids"] for sample in samples]), torch.tensor([s["labels"] for s in samples])


def same_weights(one, other, **tolerance):
    for mine, theirs in zip(one.state_dict().values(), other.state_dict().values(), strict=True):
        torch.testing.assert_close(mine, theirs, **tolerance)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_the_loss_is_that_of_the_call_by_hand(reduction):
    model = make_model().train()
    by_hand = from_huggingface(copy.deepcopy(model))
    tokens, labels = collated(make_data())
    func = compute_loss_func(model, ICDALoss(3, 16, reduction=reduction))
    func.progress = 0.4
    value = func(model(input_ids=tokens), labels, num_items_in_batch=torch.tensor(22))
    features, logits = by_hand(tokens)
    wanted = ICDALoss(3, 16)(features, labels, by_hand.head, 0.4, logits) * len(labels) / 22
    torch.testing.assert_close(value, wanted)


@pytest.mark.parametrize("size", [8, 7])
def test_accumulated_micro_batches_are_averaged_over_their_samples(tmp_path, size):
    model, data = make_model(), make_data(size)
    twin = from_huggingface(copy.deepcopy(model)).train()
    settings = {"gradient_accumulation_steps": 2, "num_train_epochs": 3, "max_steps": -1, "optim": "sgd"}
    arguments = make_arguments(tmp_path, lr_scheduler_type="constant", max_grad_norm=0, **settings)
    trainer = InOrder(model, arguments, train_dataset=data)
    trainer.train()

    loss = ICDALoss(3, 16, count_labels(data, 3))
    optimizer = torch.optim.SGD(twin.parameters(), lr=0.01)
    for step in range(3):
        for micro in (data[:4], data[4:]):
            tokens, labels = collated(micro)
            features, logits = twin(tokens)
            (loss(features, labels, twin.head, step / 3, logits) * len(labels) / size).backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.testing.assert_close(model.classifier.weight, twin.head.weight)
    torch.testing.assert_close(trainer.criterion.state_dict(), loss.state_dict())


def test_resuming_from_a_checkpoint_is_exact(tmp_path):
    whole = robust(tmp_path, make_model(0.1), {"save_strategy": "steps", "save_steps": 3})
    whole.train()
    again = robust(tmp_path / "elsewhere", make_model(0.1))
    again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
    same_weights(again.model, whole.model, rtol=0, atol=0)
    same_weights(again.criterion, whole.criterion, rtol=0, atol=0)
    assert again.criterion.statistics.count.sum() > 12
    last = robust(tmp_path, make_model(0.1), loss=ICDALoss(3, 16, torch.ones(3)))
    last.train(resume_from_checkpoint=True)
    same_weights(last.criterion, whole.criterion, rtol=0, atol=0)


def test_a_checkpoint_without_statistics_is_refused(tmp_path):
    plain = transformers.Trainer(
        make_model(), make_arguments(tmp_path, save_strategy="steps", save_steps=3), train_dataset=make_data()
    )
    plain.train()
    with pytest.raises(FileNotFoundError, match=rf"no {STATE_FILE} in .*checkpoint-6.*Train again"):
        robust(tmp_path).train(True)


def test_the_trainer_one_has_does_the_same_with_function_and_callback(tmp_path):
    wanted = robust(tmp_path)
    wanted.train()
    model = make_model()
    func = compute_loss_func(model, "icda", class_counts=count_labels(make_data(), 3))
    arguments = make_arguments(tmp_path, save_strategy="steps", save_steps=3)
    plain = transformers.Trainer(
        model, arguments, train_dataset=make_data(), compute_loss_func=func, callbacks=[func.callback()]
    )
    plain.train()
    same_weights(plain.model, wanted.model, rtol=0, atol=0)
    saved = torch.load(tmp_path / "checkpoint-6" / STATE_FILE, weights_only=True)
    torch.testing.assert_close(saved, wanted.criterion.state_dict())


def test_evaluation_is_plain_cross_entropy_and_leaves_the_statistics(tmp_path):
    data = make_data()
    settings = {"per_device_eval_batch_size": 4, "eval_strategy": "steps", "eval_steps": 2}
    trainer = robust(tmp_path, settings=settings, eval_dataset=data)
    before = trainer.evaluate()["eval_loss"]
    tokens, labels = collated(data)
    with torch.no_grad():
        wanted = nn.functional.cross_entropy(make_model().eval()(input_ids=tokens).logits, labels)
    assert before == pytest.approx(wanted.item(), rel=1e-5)
    assert trainer.criterion is None
    trainer.train()
    assert trainer.criterion.statistics.count.sum() == 2 * len(data)  # three batches per epoch, six steps
    assert trainer.predict(data).predictions.shape == (len(data), 3)


def test_class_counts_come_from_the_training_set_and_progress_from_the_steps(tmp_path):
    seen = []

    class Recorded(ICDALoss):
        def forward(self, *arguments):
            seen.append(arguments[3])
            return super().forward(*arguments)

    named = robust(tmp_path, loss_options={"lambda0": 0.2})
    named.train()
    assert named.criterion.class_counts.tolist() == [7, 3, 1]
    assert named.criterion.lambda0 == 0.2
    robust(tmp_path, loss=Recorded(3, 16)).train()
    assert seen == pytest.approx([step / 6 for step in range(6)])


def test_each_model_of_model_init_has_its_own_statistics(tmp_path):
    def trainer(loss):
        arguments = make_arguments(tmp_path)
        return RobustTrainer(args=arguments, model_init=lambda: make_model(), train_dataset=make_data(), loss=loss)

    named = trainer("isda")
    for _ in range(2):
        named.train()
        assert named.criterion.statistics.count.sum() == 2 * len(LABELS)
    with pytest.raises(ValueError, match="a new model needs new statistics"):
        trainer(ICDALoss(3, 16)).train()


def test_labels_are_counted_by_column_or_by_sample():
    class Table:
        """As Hugging Face's: columns by name, samples by number."""

        column_names: ClassVar = ["label", "text"]

        def __len__(self):
            return len(LABELS)

        def with_format(self, _):
            return self

        def __getitem__(self, key):
            return LABELS if key == "label" else {"label": LABELS[key], "text": "a"}

    assert count_labels(Table(), 4).tolist() == [7, 3, 1, 0]
    assert count_labels(make_data(), 3).tolist() == [7, 3, 1]
    for dataset in ([{"text": "a"}], iter(make_data())):
        with pytest.raises(ValueError, match=r"cannot count the labels .* give class_counts"):
            count_labels(dataset, 3)


def test_wrong_losses_and_settings_are_refused_at_once(tmp_path):
    model = make_model()
    with pytest.raises(UnknownNameError, match="did you mean 'icda'"):
        compute_loss_func(model, "icdaa")
    with pytest.raises(TypeError, match="got CrossEntropyLoss"):
        compute_loss_func(model, nn.CrossEntropyLoss())
    with pytest.raises(ValueError, match=r"options \['lambda0'\] belong to a loss given by name"):
        compute_loss_func(model, ICDALoss(3, 16), lambda0=0.1)
    with pytest.raises(ValueError, match="batch without 'labels'"):
        compute_loss_func(model)({}, None)
    with pytest.raises(ValueError, match="label_smoothing_factor"):
        robust(tmp_path, settings={"label_smoothing_factor": 0.1})
    with pytest.raises(ValueError, match="its own compute_loss_func"):
        robust(tmp_path, compute_loss_func=print)


def test_importing_integrations_imports_neither_transformers_nor_lightning():
    code = "import sys, icda.integrations; print({'transformers', 'lightning'} & set(sys.modules))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert ran.stdout.strip() == "set()", ran.stderr


def test_a_missing_package_names_the_extra(monkeypatch):
    import icda.integrations

    monkeypatch.setitem(sys.modules, "transformers", None)
    monkeypatch.delitem(sys.modules, "icda.integrations.huggingface")
    with pytest.raises(MissingExtraError, match=r'pip install "icda\[hf\]"'):
        icda.integrations.RobustTrainer  # noqa: B018
    with pytest.raises(AttributeError, match="no attribute 'Trainer'"):
        icda.integrations.Trainer  # noqa: B018


def priors(columns):
    generator = torch.Generator().manual_seed(2)
    values = torch.randint(2, (len(LABELS),), generator=generator), torch.randn(len(LABELS), 3, generator=generator)
    return [{**sample, columns: values[columns == "log_prior"][i]} for i, sample in enumerate(make_data())]


@pytest.mark.parametrize("column", ["attributes", "log_prior"])
def test_columns_of_a_prior_reach_the_loss_and_not_the_model(column, tmp_path):
    options = {"prior": torch.tensor([[5, 2, 1], [1, 1, 4]])} if column == "attributes" else {}
    samples = priors(column)
    model = make_model()
    by_hand = from_huggingface(copy.deepcopy(model)).train()
    loss = ICDALoss(3, by_hand.feature_dim, torch.bincount(torch.tensor(LABELS)), **options)
    arguments = make_arguments(tmp_path, max_steps=1, optim="sgd", lr_scheduler_type="constant", max_grad_norm=0)
    trainer = InOrder(model=model, args=arguments, train_dataset=samples, loss="icda", loss_options=options)
    trainer.train()
    inputs, labels = collated(samples[:4])
    output = by_hand({"input_ids": inputs})
    given = {column: torch.stack([sample[column] for sample in samples[:4]])}
    expected = loss(output.features, labels, by_hand.head, 0.0, output.logits, **given)
    assert trainer.state.log_history[0]["loss"] == pytest.approx(expected.item(), abs=1e-4)
    without = copy.deepcopy(loss)
    without.prior = None
    assert abs(without(output.features, labels, by_hand.head, 0.0, output.logits).item() - expected.item()) > 1e-3
    trainer.evaluate(samples)


@pytest.mark.parametrize("loss", ["cross_entropy", "icda"])
def test_a_column_called_attributes_is_left_alone_by_a_loss_without_a_table(loss, tmp_path):
    with_column, without = (
        robust(tmp_path, settings={"max_steps": 1}, train_dataset=data, loss=loss).train().training_loss
        for data in (priors("attributes"), make_data())
    )
    assert with_column == without
