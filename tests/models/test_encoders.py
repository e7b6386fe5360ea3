"""Encoders by name: what they say of themselves, and what they refuse."""

import json
import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch
from torch import nn

from icda.models.encoders import ImageEncoder, TextEncoder, create_encoder
from icda.registry import UnknownNameError


class Means(nn.Module):
    """Features that can be worked out by hand: the mean of each channel, through a dropout that must be off."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))
        self.dropout = nn.Dropout(0.9)

    def forward(self, images):
        return self.dropout(images.mean((2, 3)) * self.scale)


def image_encoder(network):
    return ImageEncoder("means", "1", network, 8, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))


def test_images_are_standardised_and_the_network_is_frozen_in_evaluation_mode():
    network = Means()
    images = torch.zeros(9, 8, 8, 3, dtype=torch.uint8)
    images[..., 1] = 255
    features = image_encoder(network).encode(images)
    torch.testing.assert_close(features, torch.tensor([[-1.0, 1.0, -1.0]]).expand(9, 3))
    assert not network.training
    assert not features.requires_grad
    assert features.dtype == torch.float32
    before = image_encoder(network).version
    with torch.no_grad():
        network.scale += 1
    assert before.startswith("1, weights ")
    assert image_encoder(network).version != before, "the version changes with the weights"


def test_a_text_encoder_averages_under_the_mask_and_gives_zeros_to_wordless_texts():
    class Embed(nn.Module):
        def forward(self, input_ids, attention_mask):
            assert attention_mask.any(1).all(), "a text without a token came through"
            return torch.stack([input_ids, 10 * input_ids], 2).float()

    def tokenise(texts):
        length = max(len(text) for text in texts)
        ids = torch.tensor([[ord(c) - 48 for c in text.ljust(length, "9")] for text in texts]).view(len(texts), length)
        mask = torch.tensor([[int(k < len(text)) for k in range(length)] for text in texts]).view(len(texts), length)
        return {"input_ids": ids, "attention_mask": mask}

    encoder = TextEncoder("digits", "1", Embed(), tokenise, num_features=2)
    torch.testing.assert_close(encoder.encode(["13", "", "5"]), torch.tensor([[2.0, 20.0], [0.0, 0.0], [5.0, 50.0]]))
    assert torch.equal(encoder.encode(["", ""]), torch.zeros(2, 2))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("mini-lm", "did you mean 'minilm'"),
        ("tim:resnet18", "did you mean 'timm:resnet18'"),
        ("zzzzz:resnet18", "Known prefixes: hf, timm"),
    ],
)
def test_unknown_names_get_the_nearest(name, message):
    with pytest.raises(UnknownNameError, match=message):
        create_encoder(name, "image")


def test_a_prefix_alone_and_an_image_size_for_texts_are_refused():
    with pytest.raises(ValueError, match="'hf:' needs a model after the colon"):
        create_encoder("hf:", "text")
    with pytest.raises(ValueError, match="image_size is 64, but the inputs are texts"):
        create_encoder(None, "text", image_size=64)
    with pytest.raises(ValueError, match="image size is -1"):
        ImageEncoder("means", "1", Means(), -1, mean=(0.5,) * 3, std=(0.5,) * 3)
    with pytest.raises(ValueError, match=r"means gives shape \(2, 3, 8, 8\), expected \(2, A\)"):
        image_encoder(nn.Identity()).encode(torch.zeros(2, 8, 8, 3, dtype=torch.uint8))


def test_timm_is_asked_for_the_pooled_model_and_its_own_recipe(monkeypatch):
    """timm itself needs torchvision, which is not installed here: this fake stands for the three names that we use."""
    asked = {}

    def create_model(name, **options):
        asked.update(name=name, **options)
        return Means()

    timm = ModuleType("timm")
    timm.__version__, timm.create_model = "1.0", create_model
    recipe = {"input_size": (3, 48, 48), "mean": (0.0,) * 3, "std": (1.0,) * 3}
    timm.data = SimpleNamespace(resolve_model_data_config=lambda model: recipe)
    monkeypatch.setitem(sys.modules, "timm", timm)
    encoder = create_encoder("timm:resnet18", "image")
    assert asked == {"name": "resnet18", "pretrained": True, "num_classes": 0}
    assert (encoder.name, encoder.image_size) == ("timm:resnet18", 48)
    assert encoder.version.startswith("timm 1.0, weights ")
    assert create_encoder("timm:resnet18", "image", 32).image_size == 32
    with pytest.raises(ValueError, match="takes images, but the inputs are texts"):
        create_encoder("timm:resnet18", "text")


WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "red", "bird", "on", "water"]
SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
RECIPE = {"do_normalize": True, "image_mean": [0.4, 0.5, 0.6], "image_std": [0.2, 0.3, 0.4]}


def save_text_model(folder):
    transformers = pytest.importorskip("transformers")
    model = transformers.BertModel(transformers.BertConfig(vocab_size=len(WORDS), max_position_embeddings=8, **SIZES))
    model.save_pretrained(folder)
    (folder / "words.txt").write_text("\n".join(WORDS))
    transformers.BertTokenizer(vocab=str(folder / "words.txt")).save_pretrained(folder)
    return model.eval()


def save_image_model(folder, kind="vit", size=16, **recipe):
    transformers = pytest.importorskip("transformers")
    if kind == "resnet":
        config = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1])
        model = transformers.ResNetModel(config)
    else:
        config = transformers.ViTConfig(image_size=16, patch_size=8, **SIZES)
        model = (transformers.ViTModel if kind == "vit" else transformers.ViTForImageClassification)(config)
    model.save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(json.dumps({**RECIPE, "size": size, **recipe}))
    return model.eval()


def standardised(images):
    mean, std = (torch.tensor(RECIPE[name]).view(3, 1, 1) for name in ("image_mean", "image_std"))
    return (images.permute(0, 3, 1, 2) / 255 - mean) / std


@pytest.fixture
def images():
    return torch.randint(0, 256, (3, 16, 16, 3), dtype=torch.uint8)


def test_a_text_is_the_mean_of_its_own_tokens_whatever_stands_beside_it(tmp_path):
    model = save_text_model(tmp_path)
    encoder = create_encoder(f"hf:{tmp_path}", "text")
    assert isinstance(encoder, TextEncoder)
    features = encoder.encode(["a red bird", "water", ""])
    with torch.no_grad():
        hidden = [
            model(input_ids=torch.tensor([ids])).last_hidden_state.mean(1)
            for ids in ([2, 5, 6, 7, 3], [2, 9, 3], [2, 3])
        ]
    torch.testing.assert_close(features, torch.cat(hidden), rtol=1e-5, atol=1e-5)
    long, longer = encoder.encode(["bird " * 6, "bird " * 60])
    torch.testing.assert_close(long, longer)  # a text longer than the model is cut


@pytest.mark.parametrize("kind", ["vit", "resnet"])
def test_an_image_is_the_pooled_output(kind, tmp_path, images):
    model = save_image_model(tmp_path, kind)
    encoder = create_encoder(f"hf:{tmp_path}", "image")
    assert isinstance(encoder, ImageEncoder)
    with torch.no_grad():
        wanted = model(standardised(images)).pooler_output.flatten(1)
    torch.testing.assert_close(encoder.encode(images), wanted, rtol=1e-5, atol=1e-5)


def test_a_pooler_that_was_never_stored_is_not_drawn_at_random(tmp_path, images):
    """An image classifier of this family has no pooler: the features are then the mean over its tokens."""
    model = save_image_model(tmp_path, "vit classifier")
    features = [create_encoder(f"hf:{tmp_path}", "image").encode(images) for _ in range(2)]
    with torch.no_grad():
        wanted = model.vit(standardised(images)).last_hidden_state.mean(1)
    assert torch.equal(*features)
    torch.testing.assert_close(features[0], wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("size", "recipe", "side"),
    [
        (20, {}, 20),
        ({"height": 16, "width": 16}, {}, 16),
        ({"shortest_edge": 32}, {"do_center_crop": True, "crop_size": {"height": 28, "width": 28}}, 28),
        ({"shortest_edge": 32}, {"do_center_crop": False, "crop_size": 28}, 32),
    ],
)
def test_the_image_size_is_the_one_the_network_was_fed(size, recipe, side, tmp_path):
    save_image_model(tmp_path, "resnet", size, **recipe)
    assert create_encoder(f"hf:{tmp_path}", "image").image_size == side
    save_image_model(tmp_path, "resnet", {"height": 16, "width": 24})
    with pytest.raises(ValueError, match=r"does not say one image size .*: give --image-size"):
        create_encoder(f"hf:{tmp_path}", "image")
    assert create_encoder(f"hf:{tmp_path}", "image", 24).image_size == 24


def test_a_model_without_its_recipe_and_one_with_gaps_are_refused(tmp_path):
    model = save_image_model(tmp_path)
    (tmp_path / "preprocessor_config.json").unlink()
    with pytest.raises(ValueError, match=r"has no preprocessor_config.json"):
        create_encoder(f"hf:{tmp_path}", "image")
    kept = {name: value for name, value in model.state_dict().items() if "layernorm" not in name}
    model.save_pretrained(tmp_path, state_dict=kept)
    with pytest.raises(ValueError, match=r"lacks the weights of .*layernorm.*save the whole model"):
        create_encoder(f"hf:{tmp_path}", "image")


def test_the_wrong_kind_and_an_empty_place_are_named(tmp_path):
    save_text_model(tmp_path / "text")
    with pytest.raises(ValueError, match="takes input_ids, but the inputs are pixel_values"):
        create_encoder(f"hf:{tmp_path / 'text'}", "image")
    (tmp_path / "empty").mkdir()
    with pytest.raises(OSError, match=r"hf:.*empty \(the folder is there\) cannot be loaded"):
        create_encoder(f"hf:{tmp_path / 'empty'}", "text")
