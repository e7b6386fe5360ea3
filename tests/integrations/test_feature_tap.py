"""An existing loop changes by two lines, whatever its model looks like."""

import copy
import gc
import io
import re
import weakref
from pathlib import Path

import pytest
import torch
import transformers
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from icda import ICDALoss
from icda.integrations import FeatureTap

TARGETS = torch.arange(12) % 3
PAGE = Path(__file__).parents[2] / "docs" / "integrations.md"


class TorchvisionNet(nn.Module):
    """As torchvision writes them: maps, a pool, a classifier with dropout and a hidden layer."""

    def __init__(self, head, flatten=True):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 1))
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = head
        self.flatten = flatten

    def forward(self, images):
        pooled = self.pool(self.stem(images))
        return self.classifier(pooled.flatten(1) if self.flatten else pooled).flatten(1)


def images():
    return torch.randn(12, 3, 5, 5) + TARGETS[:, None, None, None]


def sequential():
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 3))
    return model, {"input": torch.randn(12, 3, 2, 2)}


def torchvision_style():
    head = nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Dropout(0.2), nn.Linear(6, 3))
    return TorchvisionNet(head), {"images": images()}


def convolution_head():
    return TorchvisionNet(nn.Conv2d(8, 3, 1), flatten=False), {"images": images()}


def distilbert():
    config = transformers.DistilBertConfig(
        dim=16, hidden_dim=32, n_layers=1, n_heads=2, vocab_size=50, num_labels=3, max_position_embeddings=16
    )
    model = transformers.DistilBertForSequenceClassification(config)
    return model, {"input_ids": torch.randint(1, 50, (12, 7)), "attention_mask": torch.ones(12, 7, dtype=torch.long)}


def gpt2():
    config = transformers.GPT2Config(n_embd=16, n_layer=1, n_head=2, vocab_size=50, num_labels=3, pad_token_id=0)
    model = transformers.GPT2ForSequenceClassification(config)
    tokens = torch.randint(1, 50, (12, 7))
    tokens[:6, 5:] = 0
    return model, {"input_ids": tokens}


def auto_image():
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = transformers.ViTConfig(**sizes, image_size=8, patch_size=4, num_labels=3)
    model = transformers.AutoModelForImageClassification.from_config(config)
    return model, {"pixel_values": torch.randn(12, 3, 8, 8)}


MODELS = [sequential, torchvision_style, convolution_head, distilbert, gpt2, auto_image]


def logits_of(result):
    return result if isinstance(result, Tensor) else result.logits


@pytest.mark.parametrize("make", MODELS)
@pytest.mark.parametrize("grad", [True, False])
def test_features_through_the_head_are_the_logits_and_a_loss_of_them_reaches_the_whole_model(make, grad):
    model, inputs = make()
    tap = FeatureTap(model)
    with torch.set_grad_enabled(grad):
        logits = logits_of(model(**inputs))
    weight, bias = tap.head.weight.flatten(1), tap.head.bias
    torch.testing.assert_close(nn.functional.linear(tap.features, weight, bias), logits)
    torch.testing.assert_close(tap.logits, logits, rtol=0, atol=0)
    assert (tap.num_classes, tap.feature_dim) == tuple(weight.shape)
    if grad:
        assert tap.features.requires_grad
        ICDALoss(tap.num_classes, tap.feature_dim)(tap.features, TARGETS, tap.head, 0.5, tap.logits).backward()
        assert all(value.grad is not None for value in (next(model.parameters()), *tap.head.parameters()))


def test_the_loss_and_its_gradients_are_those_of_the_call_by_hand():
    model, inputs = sequential()
    twin = copy.deepcopy(model)
    tap = FeatureTap(model)
    model(**inputs)
    tapped = ICDALoss(3, 8)(tap.features, TARGETS, tap.head, 0.4, tap.logits)
    by_hand = ICDALoss(3, 8)(twin[:3](inputs["input"]), TARGETS, twin[3], 0.4)
    tapped.backward()
    by_hand.backward()
    torch.testing.assert_close(tapped, by_hand)
    for one, other in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad)


def test_a_layer_called_last_that_feeds_nothing_is_not_the_head():
    class Probed(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.out, self.probe = nn.Linear(4, 5), nn.Linear(5, 3), nn.Linear(5, 3)

        def forward(self, inputs):
            hidden = self.body(inputs)
            logits = self.out(hidden)
            self.probe(hidden.detach())
            return logits.softmax(dim=1)

    model = Probed()
    tap = FeatureTap(model)
    model(torch.randn(12, 4))
    assert tap.head is model.out


@pytest.mark.parametrize("head", ["1", "module"])
def test_the_head_can_be_named_or_given(head):
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.Linear(3, 3))
    tap = FeatureTap(model, model[1] if head == "module" else head)
    assert tap.head is model[1]
    model(torch.randn(12, 4))
    assert tap.features.shape == (12, 4)


def test_the_latest_forward_counts_in_train_and_eval_mode_also_of_a_model_that_is_nothing_but_its_head():
    for model, width in ((sequential()[0], 8), (nn.Linear(12, 3), 12)):
        tap = FeatureTap(model)
        for size, mode in ((4, True), (7, False), (5, True)):
            assert model.train(mode)(torch.randn(size, 12)) is tap.logits
            assert tap.features.shape == (size, width)


@pytest.mark.parametrize("release", ["clear", "forward", "remove"])
def test_features_are_let_go(release):
    model, inputs = sequential()
    tap = FeatureTap(model)
    with torch.no_grad():
        model(**inputs)
        caught = weakref.ref(tap.features)
        assert caught() is not None
        model(torch.randn(2, 12)) if release == "forward" else getattr(tap, release)()
    assert caught() is None


def test_a_tap_that_nobody_holds_catches_nothing():
    model, inputs = sequential()
    tap = FeatureTap(model)
    alive = weakref.ref(tap)
    del tap
    gc.collect()
    assert alive() is None
    model(**inputs)


def test_leaving_the_block_takes_the_hooks_off():
    model, inputs = sequential()
    with FeatureTap(model) as tap:
        model(**inputs)
        assert tap.features.shape == (12, 8)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    model(**inputs)
    with pytest.raises(RuntimeError, match="removed"):
        tap.features  # noqa: B018


@pytest.mark.parametrize("how", ["deepcopy", "pickle"])
def test_a_tapped_model_can_be_copied_and_the_copy_does_not_disturb_the_tap(how):
    model, inputs = sequential()
    tap = FeatureTap(model)
    model(**inputs)
    features = tap.features
    if how == "deepcopy":
        twin = copy.deepcopy(model)
    else:
        file = io.BytesIO()
        torch.save(model, file)
        file.seek(0)
        twin = torch.load(file, weights_only=False)
    twin(torch.randn(2, 12))
    assert tap.features is features


def test_a_copied_tap_follows_the_copied_model():
    model, inputs = sequential()
    tap = FeatureTap(model)
    model(**inputs)
    twin = copy.deepcopy(tap)
    twin.model(torch.randn(2, 12))
    assert twin.head is twin.model[3]
    assert (len(twin.features), len(tap.features)) == (2, 12)


def test_gradient_checkpointing_calls_the_layers_again_and_changes_nothing():
    class Checkpointed(nn.Module):
        def __init__(self):
            super().__init__()
            self.whole = sequential()[0]

        def forward(self, inputs):
            return torch.utils.checkpoint.checkpoint(self.whole, inputs, use_reentrant=False)

    model = Checkpointed()
    tap = FeatureTap(model)
    for _ in range(2):
        model(torch.randn(12, 12))
        ICDALoss(3, 8)(tap.features, TARGETS, tap.head, 0.5, tap.logits).backward()
        assert tap.features.shape == (12, 8)


def distributed_features(rank):
    torch.manual_seed(0)
    model, inputs = sequential()
    wrapped = DistributedDataParallel(model)
    tap = FeatureTap(wrapped)
    wrapped(inputs["input"][rank::2])
    assert tap.head is model[3]
    loss = ICDALoss(3, 8)(tap.features, TARGETS[rank::2], tap.head, 0.5, tap.logits)
    loss.backward()
    return model[3].weight.grad.clone()


def test_ranks_train_as_one(run_on_ranks):
    first, second = run_on_ranks(distributed_features)
    torch.testing.assert_close(first, second)


def test_no_forward_yet_says_so():
    tap = FeatureTap(sequential()[0])
    with pytest.raises(RuntimeError, match=r"no forward since .* call model\(inputs\) first"):
        tap.features  # noqa: B018
    with pytest.raises(RuntimeError, match="does not know the head of Sequential yet"):
        tap.head  # noqa: B018


class Siamese(nn.Sequential):
    def forward(self, inputs):
        return self[0](inputs) + self[0](-inputs)


class LastUnused(nn.Sequential):
    def forward(self, inputs):
        return self[0](inputs)


@pytest.mark.parametrize(
    ("model", "head", "shape", "message"),
    [
        (Siamese(nn.Linear(4, 3)), None, (12, 4), "2 times called"),
        (LastUnused(nn.Linear(4, 3), nn.Linear(3, 3)), "1", (12, 4), "not called"),
        (
            nn.Sequential(nn.Conv2d(3, 5, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten()),
            None,
            (12, 3, 4, 4),
            r"shape \(12, 3, 4, 4\), expected \(N, 3\)",
        ),
        (nn.Sequential(nn.Linear(4, 3), nn.Flatten(0)), None, (12, 4), r"last linear layers called: 0\). Name it"),
    ],
    ids=["called twice", "not called", "maps", "no logits"],
)
def test_a_forward_that_cannot_be_used_says_why(model, head, shape, message):
    tap = FeatureTap(model, head)
    model(torch.randn(*shape))
    with pytest.raises(RuntimeError, match=message):
        tap.features  # noqa: B018


def test_a_model_without_linear_layers_and_wrong_heads_are_refused():
    with pytest.raises(ValueError, match="no linear layer in Flatten"):
        FeatureTap(nn.Flatten())
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
    with pytest.raises(ValueError, match="no part of Sequential"):
        FeatureTap(model, nn.Linear(4, 3))
    with pytest.raises(TypeError, match="got ReLU"):
        FeatureTap(model, model[1])
    with pytest.raises(ValueError, match="head='fc' is nothing"):
        FeatureTap(model, "fc")
    with pytest.raises(TypeError, match="DataParallel"):
        FeatureTap(nn.DataParallel(model))


@pytest.mark.parametrize("compiled_first", [True, False])
@pytest.mark.parametrize("named", [True, False])
def test_a_tap_and_a_compiled_graph_go_together_in_either_order(compiled_first, named):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 3))
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    head = "2" if named else None
    if compiled_first:
        tap = FeatureTap(compiled, head)
    else:
        tap = FeatureTap(model, head)
        compiled = torch.compile(model, fullgraph=True, backend="eager")
    for _ in range(2):
        inputs = torch.randn(12, 8)
        torch.testing.assert_close(compiled(inputs), tap.logits)
        torch.testing.assert_close(tap.features, model[1](model[0](inputs)))
        assert tap.head is model[2]
        ICDALoss(3, 6)(tap.features, TARGETS, tap.head, 0.5, tap.logits).backward()
    assert model[0].weight.grad is not None


class Auxiliary(nn.Module):
    """Two heads on one body, as Inception in training."""

    def __init__(self, form):
        super().__init__()
        self.body, self.fc, self.aux, self.form = nn.Linear(8, 6), nn.Linear(6, 3), nn.Linear(6, 3), form

    def forward(self, inputs):
        features = self.body(inputs)
        return self.form(self.fc(features), self.aux(features))


@pytest.mark.parametrize(
    "form",
    [
        lambda logits, aux: (logits, aux),
        lambda logits, aux: (logits.sum(), logits, aux),  # a loss first, as transformers has it
        lambda logits, aux: {"logits": logits, "aux": aux},
        lambda logits, aux: (logits.log_softmax(1), aux),
    ],
    ids=["tuple", "loss first", "dict", "softmax"],
)
@pytest.mark.parametrize("grad", [True, False])
def test_of_several_outputs_the_first_is_tapped(form, grad):
    model = Auxiliary(form)
    tap = FeatureTap(model)
    with torch.set_grad_enabled(True):  # found with a graph, kept without one
        model(torch.randn(4, 8))
    with torch.set_grad_enabled(grad):
        model(torch.randn(4, 8))
    assert tap.head is model.fc
    torch.testing.assert_close(tap.logits, model.fc(tap.features))


@pytest.mark.parametrize("code", re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL), ids=range(5))
def test_the_code_of_the_page_runs(code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(code, {"__name__": "__main__"})
