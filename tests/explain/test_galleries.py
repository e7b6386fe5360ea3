from typing import Any

import pytest
import torch

from icda.explain.counterfactual import AUGMENTATIONS, TiedSamples
from icda.explain.passes import run_pass
from icda.explain.run import counterfactual_gallery, gradcam_gallery
from icda.explain.strengths import sample_strengths
from icda.models import create_model


def test_different_networks_are_shown_on_the_same_samples(coloured: Any) -> None:
    task = coloured.task
    other = create_model("small_cnn", 2, task.input_shape)
    found = [gradcam_gallery(task, network, "test", 6, seed=2)["samples"] for network in (coloured.networks[0], other)]
    assert [sample["index"] for sample in found[0]] == [sample["index"] for sample in found[1]]
    assert [sample["picture"] for sample in found[0]] == [sample["picture"] for sample in found[1]]
    assert [sample["heat"] for sample in found[0]] != [sample["heat"] for sample in found[1]]


def test_a_map_too_coarse_to_say_where_has_no_centre_share(coloured: Any) -> None:
    found = gradcam_gallery(coloured.task, coloured.networks[0], "test", 4, seed=0, layer="encoder.layers.8")
    assert found["mean_centre_share"] is None
    assert {sample["centre_share"] for sample in found["samples"]} == {None}


@pytest.mark.parametrize("augmentation", AUGMENTATIONS)
def test_a_gallery_is_of_the_most_tied_samples_whatever_the_augmentation(augmentation: str, coloured: Any) -> None:
    seen = run_pass(coloured.method, coloured.networks, coloured.task.train, torch.arange(80))
    strength = sample_strengths(coloured.method, seen)
    tied = TiedSamples.of(coloured.task, seen, strength, 2)
    found = counterfactual_gallery(coloured.networks[0], tied, augmentation=augmentation, steps=5)
    order = sorted(range(80), key=lambda i: -strength.per_class[i].max().item())
    assert [sample["index"] for sample in found["samples"]] == order[:2]
    assert found["augmentation"] == augmentation
