"""What a model reads: features, or images or texts that an encoder turns into features."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from icda.data.embedding import Encoder
from icda.data.embedding.samples import Columns
from icda.data.own.encoding import Plan, feature_names, plan_as_list, plan_from_list
from icda.errors import InputError, OperationError
from icda.limits import check_side

KINDS = ("image", "text", "features")


@dataclass(frozen=True)
class Reads:
    """Of what kind the inputs are, how many features there are, and where they stand in a file.

    `column` is the column of paths or texts in the table that the model was fitted to, `columns` those of the features or,
    among several arrays, `array`; `label` and `group` are those of labels and groups, where the user named them.
    """

    kind: Literal["image", "text", "features"]
    width: int
    encoder: str | None = None
    encoder_version: str | None = None
    image_size: int | None = None
    column: str | None = None
    columns: tuple[str, ...] | None = None
    label: str | None = None
    group: str | None = None
    array: str | None = None
    table: Plan | None = None  # how words, dates and empty cells of a table become features
    allow_hub: bool = field(default=True, compare=False)  # False for a name that stands in a file
    _loaded: list[Encoder] = field(default_factory=list, repr=False, compare=False)

    @property
    def fitted_columns(self) -> list[str]:
        """The columns of a table that the model was fitted to, as they are called there."""
        return list(self.columns or ()) if self.table is None else [one.name for one in self.table]

    def asked(self, **named: Any) -> Columns:
        """What a file of features is asked for, so that it is read as in the fit."""
        fitted = None if self.table else self.columns
        return Columns(**{"fitted": fitted, "array": self.array or "features", "plan": self.table, **named})

    def as_dict(self) -> dict[str, Any]:
        known = {name: value for name, value in vars(self).items() if name not in ("allow_hub", "_loaded")}
        table = None if self.table is None else plan_as_list(self.table)
        return known | {"columns": None if self.columns is None else list(self.columns), "table": table}

    @classmethod
    def from_dict(cls, values: object, origin: str) -> Reads:
        """Checked: the values may come from a stranger's file."""
        if not isinstance(values, Mapping) or values.get("kind") not in KINDS:
            raise InputError(f"{origin} does not say what the model reads ({', '.join(KINDS)}).")
        names = ("encoder", "encoder_version", "column", "label", "group", "array")
        for name, kind in {**dict.fromkeys(names, str), "image_size": int, "width": int}.items():
            value = values.get(name)
            if not (isinstance(value, kind) or (value is None and name != "width")) or isinstance(value, bool):
                raise InputError(f"{origin}: {name} is {value!r}, expected {kind.__name__}.")
        if (size := values.get("image_size")) is not None:
            check_side(size, origin)
        columns = values.get("columns")
        if columns is not None and not (isinstance(columns, list) and all(isinstance(name, str) for name in columns)):
            raise InputError(f"{origin}: columns are {columns!r}, expected names.")
        table = None if values.get("table") is None else plan_from_list(values["table"], origin)
        if table is not None and len(feature_names(table)) != values["width"]:
            raise InputError(f"{origin}: the table makes {len(feature_names(table))} features, not {values['width']}.")
        known: dict[str, Any] = {name: values.get(name) for name in (*names, "image_size")}
        named = None if columns is None else tuple(columns)
        return cls(values["kind"], values["width"], **known, columns=named, table=table)

    def check_made_alike(self, embedding: Mapping[str, Any], path: Path) -> None:
        """Refuse a file whose features another encoder made, or the same one of images of another size."""
        version, size = embedding.get("encoder_version"), embedding.get("image_size")
        fitted = self.encoder_version
        if version is not None and fitted is not None and weights_of(str(version)) != weights_of(fitted):
            raise InputError(
                f"{path} holds features of {embedding.get('encoder')} ({version}), the model was fitted to those of "
                f"{self.encoder} ({fitted}): embed with the same encoder."
            )
        if size is not None and self.image_size is not None and str(size) != str(self.image_size):
            raise InputError(
                f"{path} holds features of images of {size} pixels a side, the model was fitted to those of "
                f"{self.image_size}: embed with --image-size {self.image_size}."
            )

    def load_encoder(self) -> Encoder:
        """The encoder that the features were made with, loaded once; refused if its weights are others here."""
        if not self._loaded:
            if self.encoder is None or self.kind == "features":
                raise OperationError("this model reads features and has no encoder: give it rows of numbers.")
            from icda.models.encoders import create_encoder
            from icda.models.hub import hub

            with hub(self.allow_hub):
                encoder = create_encoder(self.encoder, self.kind, self.image_size)
            if self.encoder_version is not None and weights_of(encoder.version) != weights_of(self.encoder_version):
                raise OperationError(
                    f"the model was fitted to features of {self.encoder} ({self.encoder_version}), here it is "
                    f"{encoder.version}: its features differ. Install that version, or fit again."
                )
            self._loaded.append(encoder)
        return self._loaded[0]


def weights_of(version: str) -> str:
    """The digest of an encoder's weights, which decides what it answers; a package may have several versions of it.

    >>> weights_of("some_package 0.1, weights 0123456789ab")
    '0123456789ab'
    """
    return version.rpartition("weights ")[2]
