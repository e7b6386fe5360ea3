from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from icda.data.datasets.glt import (
    METADATA_PER_ATTRIBUTE,
    AnnotatedSet,
    Annotations,
    choose_metadata,
    shorter_side_square,
)


def annotated(names: list[str], label: int, attribute: int) -> AnnotatedSet:
    return AnnotatedSet(names, torch.full((len(names),), label), torch.full((len(names),), attribute))


def joined(*parts: AnnotatedSet) -> AnnotatedSet:
    return AnnotatedSet(
        [name for part in parts for name in part.names],
        torch.cat([part.targets for part in parts]),
        torch.cat([part.attributes for part in parts]),
    )


def file(class_names: tuple[str, ...], **sets: AnnotatedSet) -> Annotations:
    nothing = annotated([], 0, 0)
    return Annotations(Path("file.json"), class_names, {"train": nothing, "val": nothing} | sets)


def named(prefix: str, count: int) -> list[str]:
    return [f"{prefix}{number}" for number in range(count)]


OWN = file(
    ("dog", "cat"),
    train=annotated(named("shared", 5), 0, 0),
    val=joined(annotated(named("own dog ", 9), 0, 0), annotated(named("own cat ", 60), 1, 2)),
    test_bbl=annotated(["tested"], 1, 1),
)
# The other file numbers the classes the other way round.
OTHER = file(
    ("cat", "dog"),
    train=joined(
        annotated([*named("shared", 5), *named("other dog ", 30)], 1, 0), annotated(["tested", "other cat"], 0, 1)
    ),
    val=annotated(["other cat in val"], 0, 1),
    test_bl=annotated(["other test"], 0, 1),
)


def test_images_of_the_other_file_come_first_and_validation_gives_at_most_half() -> None:
    unused, lent, rest = choose_metadata(OWN, OTHER, seed=0)
    cells = list(zip(unused.names, unused.targets.tolist(), unused.attributes.tolist(), strict=True))
    dogs = [name for name, target, attribute in cells if (target, attribute) == (0, 0)]
    assert len(dogs) == METADATA_PER_ATTRIBUTE
    assert all(name.startswith("other dog") for name in dogs)
    assert sorted(name for name, target, _ in cells if target == 1) == ["other cat", "other cat in val"]
    # Dogs of attribute 0 have their twenty; cats of attribute 2 are only in validation.
    assert len(lent) == METADATA_PER_ATTRIBUTE
    assert all(name.startswith("own cat") for name in lent.names)
    assert sorted([*lent.names, *rest.names]) == sorted(OWN.sets["val"].names)


def test_a_short_cell_of_validation_gives_half() -> None:
    _, lent, rest = choose_metadata(OWN, file(("dog", "cat")), seed=0)
    assert sum(name.startswith("own dog") for name in lent.names) == 4
    assert sum(name.startswith("own dog") for name in rest.names) == 5


def test_neither_trained_nor_tested_images_become_metadata_and_the_seed_decides_the_choice() -> None:
    unused, lent, _ = choose_metadata(OWN, OTHER, seed=0)
    taken = set(unused.names) | set(lent.names)
    assert not taken & {*OWN.sets["train"].names, *OWN.sets["test_bbl"].names, *OTHER.sets["test_bl"].names}
    again, other = (choose_metadata(OWN, OTHER, seed=seed) for seed in (0, 1))
    assert unused.names == again[0].names != other[0].names
    assert lent.names != other[1].names


def test_files_of_different_classes_are_refused() -> None:
    with pytest.raises(ValueError, match="different classes"):
        choose_metadata(OWN, file(("dog", "bird")), seed=0)


@pytest.mark.parametrize("size", [(128, 128), (256, 128), (128, 200), (20, 30), (1000, 50)])
def test_prepared_images_are_square(size: tuple[int, int]) -> None:
    assert shorter_side_square(Image.new("RGB", size), 112).size == (112, 112)


def test_the_middle_of_an_image_whose_shorter_side_is_128_is_kept_as_it_is() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (128, 200, 3), dtype=np.uint8)
    cut = np.asarray(shorter_side_square(Image.fromarray(pixels), 112))
    assert np.array_equal(cut, pixels[8:120, 44:156])
