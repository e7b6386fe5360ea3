"""Hugging Face models, small and random, against their own forward."""

import pytest
import torch
from torch import nn
from torch.func import functional_call, jvp

from icda.models import create_model, from_huggingface
from icda.models.huggingface import load_huggingface

transformers = pytest.importorskip("transformers")

LABELS = 3
SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
TEXT = {**SIZES, "vocab_size": 50, "intermediate_size": 32, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
IMAGE = {**SIZES, "image_size": 16, "patch_size": 8}


def configuration(kind):
    make, sizes = {
        "resnet": ("ResNet", {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1]}),
        "vit": ("ViT", {**IMAGE, "intermediate_size": 32}),
        "distilbert": ("DistilBert", {"vocab_size": 50, "dim": 16, "n_layers": 1, "n_heads": 2, "hidden_dim": 32}),
        "bert": ("Bert", TEXT),
        "roberta": ("Roberta", TEXT),
        "gpt2": ("GPT2", TEXT),
    }[kind]
    return getattr(transformers, f"{make}Config")(**sizes, num_labels=LABELS)


IMAGES, TEXTS = ["resnet", "vit"], ["distilbert", "bert", "roberta", "gpt2"]


def build(kind):
    torch.manual_seed(0)
    auto = f"AutoModelFor{'Image' if kind in IMAGES else 'Sequence'}Classification"
    options = {} if kind == "resnet" else {"attn_implementation": "eager"}
    return getattr(transformers, auto).from_config(configuration(kind), **options)


def example(kind):
    if kind in IMAGES:
        return {"pixel_values": torch.randn(3, 3, 16, 16, generator=torch.Generator().manual_seed(0))}
    ids = torch.tensor([[5, 6, 7, 8, 0], [9, 10, 0, 0, 0], [11, 12, 13, 14, 15]])
    return {"input_ids": ids, "attention_mask": (ids != 0).long()}


@pytest.mark.parametrize("kind", IMAGES + TEXTS)
def test_logits_are_those_of_the_model_itself_and_gradients_reach_every_parameter(kind):
    network, inputs = build(kind).eval(), example(kind)
    expected = network(**inputs).logits
    model = from_huggingface(network)
    output = model(inputs)
    output.logits.square().sum().backward()
    assert [name for name, value in model.named_parameters() if value.grad is None] == []
    torch.testing.assert_close(output.logits, expected, rtol=0, atol=1e-6)
    assert torch.equal(model.head(output.features), output.logits)
    assert output.features.shape == (3, 16)
    assert model.num_classes == LABELS
    assert not model.training


def test_features_of_a_sequence_model_are_those_of_the_last_real_token():
    network, inputs = build("gpt2").eval(), example("gpt2")
    hidden = network.transformer(**inputs).last_hidden_state
    expected = hidden[torch.arange(3), inputs["attention_mask"].sum(1) - 1]
    torch.testing.assert_close(from_huggingface(network)(inputs).features, expected)


@pytest.mark.parametrize("kind", ["resnet", "distilbert"])
def test_the_inputs_may_be_the_bare_tensor_and_labels_among_them_are_left_out(kind):
    model, inputs = from_huggingface(build(kind).eval()), example(kind)
    main = inputs["pixel_values" if kind == "resnet" else "input_ids"]
    assert model(main).logits.shape == (3, LABELS)
    assert torch.equal(model(inputs | {"labels": torch.tensor([0, 1, 2])}).logits, model(inputs).logits)


def test_train_mode_drops_out_and_a_model_that_is_no_classifier_is_refused():
    model, inputs = from_huggingface(build("distilbert")).train(), example("distilbert")
    assert not torch.equal(model(inputs).features, model(inputs).features)
    config = configuration("vit")
    config.num_labels = 1
    with pytest.raises(ValueError, match="has 1 label"):
        from_huggingface(transformers.ViTForImageClassification(config))
    with pytest.raises(TypeError, match="from_torch"):
        from_huggingface(nn.Linear(3, 2))


def test_forward_mode_derivatives_agree_with_finite_differences():
    model, inputs = from_huggingface(build("distilbert")).double().eval(), example("distilbert")
    weights = {name: value.detach() for name, value in model.named_parameters()}
    direction = {name: torch.randn_like(value) for name, value in weights.items()}

    def logits(parameters):
        return functional_call(model, parameters, (inputs,)).logits

    _, slope = jvp(logits, (weights,), (direction,))
    step = 1e-6
    ahead, behind = (
        logits({name: weights[name] + sign * step * direction[name] for name in weights}) for sign in (1, -1)
    )
    torch.testing.assert_close(slope, (ahead - behind) / (2 * step), rtol=1e-5, atol=1e-6)


def test_two_layers_that_could_be_the_head_are_not_guessed_between():
    config = transformers.DeiTConfig(**IMAGE, num_labels=LABELS)
    with pytest.raises(ValueError, match=r"found 2 .*cls_classifier, distillation_classifier"):
        from_huggingface(transformers.DeiTForImageClassificationWithTeacher(config))


def test_a_named_head_settles_it():
    config = configuration("roberta")
    config.num_labels = 16  # as many labels as hidden units: the dense layer has the head's shape
    network, inputs = transformers.RobertaForSequenceClassification(config).eval(), example("roberta")
    with pytest.raises(ValueError, match=r"classifier\.dense, classifier\.out_proj"):
        from_huggingface(network)
    expected = network(**inputs).logits
    output = from_huggingface(network, head="classifier.out_proj")(inputs)
    torch.testing.assert_close(output.logits, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", ["resnet", "distilbert", "roberta"])
def test_a_saved_model_comes_back_by_name_and_another_number_of_classes_brings_a_new_head(kind, tmp_path):
    network, inputs = build(kind).eval(), example(kind)
    network.save_pretrained(tmp_path)
    model = create_model(f"hf:{tmp_path}", LABELS)
    assert all(module.training for module in model.modules())
    torch.testing.assert_close(model.eval()(inputs).logits, network(**inputs).logits, rtol=0, atol=1e-6)
    output = load_huggingface(str(tmp_path), 7).eval()(inputs)
    assert output.logits.shape == (3, 7)
    torch.testing.assert_close(output.features, from_huggingface(network)(inputs).features)


def test_a_model_saved_without_a_head_gets_one(tmp_path):
    base = transformers.DistilBertModel(configuration("distilbert"))
    base.save_pretrained(tmp_path)
    model = load_huggingface(str(tmp_path), 4, attn_implementation="eager")
    assert model(example("distilbert")).logits.shape == (3, 4)
    assert torch.equal(
        model.encoder.network.distilbert.embeddings.word_embeddings.weight, base.embeddings.word_embeddings.weight
    )


def test_weights_stored_in_half_precision_are_trained_in_full(tmp_path):
    build("resnet").half().save_pretrained(tmp_path)
    assert load_huggingface(str(tmp_path), LABELS).head.weight.dtype == torch.float32
    assert load_huggingface(str(tmp_path), LABELS, dtype=torch.float16).head.weight.dtype == torch.float16


def test_a_configuration_of_neither_images_nor_texts_is_refused(tmp_path):
    transformers.EncodecConfig().save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="EncodecConfig belongs to neither"):
        load_huggingface(str(tmp_path), 3)
