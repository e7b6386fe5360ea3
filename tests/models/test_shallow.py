"""Hashed words and their mean; the mlp and the linear model."""

import pytest
import torch

from icda.data.tokens import hash_tokens
from icda.models import create_model
from icda.models.shallow import BagOfWords

TEXTS = ["the film was good", "the film was very bad", "good", "bad bad film", ""]


def collate(texts):
    tokens = [hash_tokens(text) for text in texts]
    length = max(map(len, tokens)) + 2
    ids = torch.tensor([row + [0] * (length - len(row)) for row in tokens])
    return {"input_ids": ids, "attention_mask": (ids != 0).long()}


def test_the_mean_is_over_unpadded_tokens():
    torch.manual_seed(0)
    encoder, inputs = BagOfWords(), collate(TEXTS)
    means = [encoder.embedding.weight[hash_tokens(text)].mean(0) if text else torch.zeros(64) for text in TEXTS]
    torch.testing.assert_close(encoder(inputs), torch.relu(encoder.hidden(torch.stack(means))))


def test_padding_changes_nothing_and_a_masked_token_does_not_count_even_with_an_id():
    model, inputs = create_model("bag_of_words", 2), collate(TEXTS)
    longer = {name: torch.nn.functional.pad(value, (0, 7)) for name, value in inputs.items()}
    torch.testing.assert_close(model(longer).logits, model(inputs).logits)
    other = dict(inputs, input_ids=inputs["input_ids"].where(inputs["attention_mask"] == 1, 17))
    torch.testing.assert_close(model(other).logits, model(inputs).logits)


@pytest.mark.parametrize("inputs", [torch.ones(2, 3, dtype=torch.long), {"input_ids": torch.ones(2, 3)}])
@pytest.mark.parametrize("name", ["bag_of_words", "minilm"])
def test_inputs_without_ids_and_mask_are_refused(inputs, name):
    with pytest.raises(TypeError, match=f"{name} expects a dict with 'input_ids' and 'attention_mask', got"):
        create_model(name, 2)(inputs)


@pytest.mark.parametrize(("shape", "width"), [((20,), 128), ((1, 8, 8), 128), ((3, 4, 5), 16)])
def test_the_mlp_is_one_hidden_relu_layer(shape, width):
    torch.manual_seed(0)
    model, inputs = create_model("mlp", 5, shape, hidden=width), torch.randn(3, *shape)
    hidden = model.encoder[1]
    expected = (inputs.reshape(3, -1) @ hidden.weight.T + hidden.bias).clamp(min=0)
    output = model(inputs)
    torch.testing.assert_close(output.features, expected)
    assert output.features.shape == (3, width)


def test_the_linear_model_has_a_head_and_nothing_else():
    model, inputs = create_model("linear", 3, (6,)), torch.randn(4, 6)
    assert set(model.state_dict()) == {"head.weight", "head.bias"}
    assert torch.equal(model(inputs).features, inputs)
