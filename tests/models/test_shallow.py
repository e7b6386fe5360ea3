"""Hashed words and their mean; the mlp and the linear model."""

import pytest
import torch

from icda.data.tokens import hash_tokens
from icda.models import create_model
from icda.models.shallow import BagOfWords

TEXTS = ["the film was good", "the film was very bad", "good", "bad bad film", ""]


def collate(texts: list[str]) -> dict[str, torch.Tensor]:
    tokens = [hash_tokens(text) for text in texts]
    length = max(map(len, tokens)) + 2
    ids = torch.tensor([row + [0] * (length - len(row)) for row in tokens])
    return {"input_ids": ids, "attention_mask": (ids != 0).long()}


def test_the_mean_is_over_unpadded_tokens() -> None:
    torch.manual_seed(0)
    encoder, inputs = BagOfWords(), collate(TEXTS)
    means = [encoder.embedding.weight[hash_tokens(text)].mean(0) if text else torch.zeros(64) for text in TEXTS]
    torch.testing.assert_close(encoder(inputs), torch.relu(encoder.hidden(torch.stack(means))))


def test_padding_changes_nothing() -> None:
    model, inputs = create_model("bag_of_words", 2), collate(TEXTS)
    longer = {name: torch.nn.functional.pad(value, (0, 7)) for name, value in inputs.items()}
    torch.testing.assert_close(model(longer).logits, model(inputs).logits)


def test_a_masked_token_does_not_count_even_with_an_id() -> None:
    model, inputs = create_model("bag_of_words", 2), collate(TEXTS)
    other = dict(inputs, input_ids=inputs["input_ids"].where(inputs["attention_mask"] == 1, 17))
    torch.testing.assert_close(model(other).logits, model(inputs).logits)


def test_it_learns_which_word_matters() -> None:
    torch.manual_seed(0)
    texts = [f"film {i} was {word}" for i in range(20) for word in ("good", "bad")]
    inputs, targets = collate(texts), torch.tensor([0, 1] * 20)
    model = create_model("bag_of_words", 2)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(15):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(model(inputs).logits, targets).backward()
        optimiser.step()
    unseen = collate(["film 99 was good", "film 77 was bad"])
    assert model(unseen).logits.argmax(1).tolist() == [0, 1]


@pytest.mark.parametrize("inputs", [torch.ones(2, 3, dtype=torch.long), {"input_ids": torch.ones(2, 3)}])
def test_inputs_without_ids_and_mask_are_refused(inputs: object) -> None:
    with pytest.raises(TypeError, match="expects a dict with 'input_ids' and 'attention_mask', got"):
        create_model("bag_of_words", 2)(inputs)


@pytest.mark.parametrize("shape", [(20,), (1, 8, 8), (3, 4, 5)])
def test_the_mlp_is_one_hidden_relu_layer(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    model, inputs = create_model("mlp", 5, shape), torch.randn(3, *shape)
    hidden = model.encoder[1]
    expected = (inputs.reshape(3, -1) @ hidden.weight.T + hidden.bias).clamp(min=0)
    output = model(inputs)
    torch.testing.assert_close(output.features, expected)
    assert output.features.shape == (3, 128)


def test_the_mlp_has_no_batch_norm() -> None:
    modules = create_model("mlp", 5, (20,)).modules()
    assert not any(isinstance(module, torch.nn.modules.batchnorm._BatchNorm) for module in modules)


def test_the_hidden_width_is_an_option() -> None:
    assert create_model("mlp", 5, (20,), hidden=16).feature_dim == 16


def test_the_linear_model_has_a_head_and_nothing_else() -> None:
    model, inputs = create_model("linear", 3, (6,)), torch.randn(4, 6)
    assert set(model.state_dict()) == {"head.weight", "head.bias"}
    assert torch.equal(model(inputs).features, inputs)


@pytest.mark.parametrize("name", ["mlp", "linear"])
def test_a_missing_input_shape_is_asked_for(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} needs the shape of one input"):
        create_model(name, 3)
