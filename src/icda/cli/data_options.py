"""Options that `icda fit` and `icda ask` share: where the samples are, and which columns mean what."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

if TYPE_CHECKING:
    from icda.serving.fit_data import Asked


@dataclass
class DataArguments:
    data: tyro.conf.Positional[Path]
    """A folder of images (one sub-folder per class), a .csv of image paths, texts or numbers, an .npz or a .parquet."""
    encoder: str | None = None
    """efficientnet_lite0 (default for images), minilm (default for texts), hf:PATH_OR_ID or timm:NAME."""
    image_size: int | None = None
    """Side to which images are squeezed; by default what the encoder was trained with."""
    features: str | None = None
    """Array of an .npz, or columns of a .parquet, with the features; guessed from common names if not given."""
    labels: Annotated[str | None, tyro.conf.arg(aliases=["--label-column"])] = None
    """Array or column with the labels; guessed from common names if not given."""
    names: Annotated[str | None, tyro.conf.arg(aliases=["--name-column"])] = None
    """Array or column with ids to show beside ranks; guessed from common names if not given."""
    groups: Annotated[str | None, tyro.conf.arg(aliases=["--group-column"])] = None
    """Array or column with known groups, such as the background; empty cells, where a group is not known, are filled."""
    where: tuple[str, ...] = ()
    """Of a file of features or numbers, keep only rows in which an array or column has a value: --where year=2020."""
    image_column: str | None = None
    """CSV column with image paths; guessed from common names if not given."""
    text_column: str | None = None
    """CSV column with texts."""
    table: bool = False
    """Of a .csv with a column of texts or paths beside columns of numbers: fit to all columns, as a table."""
    seed: int = 0
    """Seed of all that is drawn; the same seed gives the same result."""
    overwrite: bool = False
    """Write into --out even if it is not empty."""
    skip_unreadable: bool = False
    """Leave out images that cannot be read, instead of stopping."""
    allow_outside: bool = False
    """Trust a table, or a folder with links, that names images outside its own folder."""

    def asked(self) -> Asked:
        from icda.data.embedding.samples import Columns
        from icda.serving.fit_data import Asked

        columns = Columns(self.image_column, self.text_column, self.labels, self.groups)
        asked = Asked(self.features, self.labels, self.names, self.groups, columns, self.encoder, self.image_size)
        return replace(
            asked,
            where=self.where,
            table=self.table,
            skip_unreadable=self.skip_unreadable,
            allow_outside=self.allow_outside,
        )
