"""Tiny random Hugging Face models saved to disk, against their own forward."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from icda.models.encoders import ImageEncoder, TextEncoder, create_encoder

transformers = pytest.importorskip("transformers")

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "red", "bird", "on", "water"]
SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
RECIPE = {"do_normalize": True, "image_mean": [0.4, 0.5, 0.6], "image_std": [0.2, 0.3, 0.4]}


def save_text_model(folder: Path) -> Any:
    model = transformers.BertModel(transformers.BertConfig(vocab_size=len(WORDS), max_position_embeddings=8, **SIZES))
    model.save_pretrained(folder)
    (folder / "words.txt").write_text("\n".join(WORDS))
    transformers.BertTokenizer(vocab=str(folder / "words.txt")).save_pretrained(folder)
    return model.eval()


def save_image_model(folder: Path, kind: str = "vit", size: Any = 16, **recipe: Any) -> Any:
    if kind == "resnet":
        config = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1])
        model = transformers.ResNetModel(config)
    else:
        config = transformers.ViTConfig(image_size=16, patch_size=8, **SIZES)
        model = (transformers.ViTModel if kind == "vit" else transformers.ViTForImageClassification)(config)
    model.save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(json.dumps({**RECIPE, "size": size, **recipe}))
    return model.eval()


def standardised(images: Tensor) -> Tensor:
    mean, std = (torch.tensor(RECIPE[name]).view(3, 1, 1) for name in ("image_mean", "image_std"))
    return (images.permute(0, 3, 1, 2) / 255 - mean) / std


@pytest.fixture
def images() -> Tensor:
    return torch.randint(0, 256, (3, 16, 16, 3), dtype=torch.uint8)


def test_a_text_is_the_mean_of_its_own_tokens_whatever_stands_beside_it(tmp_path: Path) -> None:
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


def test_a_text_longer_than_the_model_is_cut(tmp_path: Path) -> None:
    save_text_model(tmp_path)
    encoder = create_encoder(f"hf:{tmp_path}", "text")
    assert isinstance(encoder, TextEncoder)
    long, longer = encoder.encode(["bird " * 6, "bird " * 60])
    torch.testing.assert_close(long, longer)


@pytest.mark.parametrize("kind", ["vit", "resnet"])
def test_an_image_is_the_pooled_output(kind: str, tmp_path: Path, images: Tensor) -> None:
    model = save_image_model(tmp_path, kind)
    encoder = create_encoder(f"hf:{tmp_path}", "image")
    assert isinstance(encoder, ImageEncoder)
    with torch.no_grad():
        wanted = model(standardised(images)).pooler_output.flatten(1)
    torch.testing.assert_close(encoder.encode(images), wanted, rtol=1e-5, atol=1e-5)


def test_a_pooler_that_was_never_stored_is_not_drawn_at_random(tmp_path: Path, images: Tensor) -> None:
    """An image classifier of this family has no pooler: the features are then the mean over its tokens."""
    model = save_image_model(tmp_path, "vit classifier")
    features = [create_encoder(f"hf:{tmp_path}", "image").encode(images) for _ in range(2)]  # type: ignore[arg-type]
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
def test_the_image_size_is_the_one_the_network_was_fed(size: Any, recipe: Any, side: int, tmp_path: Path) -> None:
    save_image_model(tmp_path, "resnet", size, **recipe)
    assert create_encoder(f"hf:{tmp_path}", "image").image_size == side


def test_two_sides_want_a_choice(tmp_path: Path) -> None:
    save_image_model(tmp_path, "resnet", {"height": 16, "width": 24})
    with pytest.raises(ValueError, match=r"does not say one image size .*: give --image-size"):
        create_encoder(f"hf:{tmp_path}", "image")
    assert create_encoder(f"hf:{tmp_path}", "image", 24).image_size == 24


def test_a_model_without_its_recipe_and_one_with_gaps_are_refused(tmp_path: Path) -> None:
    model = save_image_model(tmp_path)
    (tmp_path / "preprocessor_config.json").unlink()
    with pytest.raises(ValueError, match=r"has no preprocessor_config.json"):
        create_encoder(f"hf:{tmp_path}", "image")
    kept = {name: value for name, value in model.state_dict().items() if "layernorm" not in name}
    model.save_pretrained(tmp_path, state_dict=kept)
    with pytest.raises(ValueError, match=r"lacks the weights of .*layernorm.*which would be random"):
        create_encoder(f"hf:{tmp_path}", "image")


def test_the_wrong_kind_and_an_empty_place_are_named(tmp_path: Path) -> None:
    save_text_model(tmp_path / "text")
    with pytest.raises(ValueError, match="takes input_ids, but the inputs are pixel_values"):
        create_encoder(f"hf:{tmp_path / 'text'}", "image")
    (tmp_path / "empty").mkdir()
    with pytest.raises(OSError, match=r"hf:.*empty cannot be loaded \(the folder is there\)"):
        create_encoder(f"hf:{tmp_path / 'empty'}", "text")
