"""Film reviews and the same reviews rewritten by people to say the opposite: what a sentiment model really reads."""

import csv
import io
import tarfile
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor

from icda.data.generators import generator_for
from icda.data.registry import TASKS, DatasetNotFoundError, find_folder
from icda.data.sources import TextArray
from icda.data.splits import cut_splits, take_per_class
from icda.data.task import Split, Task
from icda.data.tokens import hash_tokenise
from icda.errors import InputError

HOME = "github.com/acmi-lab/counterfactually-augmented-data (Kaushik, Hovy and Lipton, ICLR 2020), Apache 2.0"
ARCHIVE = "text.tar.xz"
FOLDERS = ("cad", "text/cad", "counterfactually-augmented-data")
FILES = {part: f"sentiment/combined/paired/{part}_paired.tsv" for part in ("train", "dev", "test")}
CLASSES = ("Negative", "Positive")
GROUPS = ("original", "revised")
METADATA_PAIRS = 25  # of each class of the original; with their rewritten twins 100 texts, 50 of a class
MAX_LENGTH = 128


@TASKS.register("cad_imdb")
def cad_imdb(root: Path | None, seed: int) -> Task:
    """Positive or negative film review; trained on originals, tested on originals and on their rewritten twins.

    People changed each review just enough to turn its sentiment. Train is 1,707 originals without groups; test is 488
    originals and 488 twins, in two groups. `seed` draws 50 pairs of the development set as metadata; validation is its
    other 195 originals. Kaushik, Hovy and Lipton, "Learning the Difference that Makes a Difference with
    Counterfactually-Augmented Data", ICLR 2020.
    """
    layouts = [*((folder, FILES["train"]) for folder in FOLDERS), ("", ARCHIVE)]
    files = f"{', '.join(FILES.values())}, or the archive {ARCHIVE} of them"
    folder = find_folder(root, "counterfactually augmented IMDb", layouts, files, HOME)
    place = folder if (folder / FILES["train"]).is_file() else folder / ARCHIVE
    source, targets, groups, parts = _read(place.resolve())
    rows = ((parts == 1) & (groups == 0)).nonzero().flatten()
    chosen, rest = take_per_class(targets[rows], [METADATA_PAIRS], generator_for(seed, "cad_imdb metadata"))
    metadata = torch.cat([rows[chosen], rows[chosen] + 1]).sort().values  # a twin stands behind its original
    train, test = (((parts == 0) & (groups == 0)).nonzero().flatten(), (parts == 2).nonzero().flatten())
    splits = cut_splits(source, targets, train=train, validation=rows[rest], metadata=metadata)
    return Task(
        name="cad_imdb",
        num_classes=len(CLASSES),
        **splits | {"test": Split(source, test, targets[test], groups[test])},
        group_names=GROUPS,
        class_names=tuple(name.lower() for name in CLASSES),
        input_kind="text",
        input_shape=(MAX_LENGTH,),
        default_model="bag_of_words",
        description="Counterfactually augmented IMDb: trained on original reviews; test has originals and their twins, "
        f"which people rewrote to say the opposite. Metadata: {2 * METADATA_PAIRS} pairs of the development set, data "
        f"seed {seed}; validation: its other originals.",
    )


@lru_cache(maxsize=1)  # a benchmark asks for the same task many times
def _read(place: Path) -> tuple[TextArray, Tensor, Tensor, Tensor]:
    """Texts, targets, groups (0 original, 1 revised) and parts (a number of FILES) of a folder or the archive."""
    files = _read_archive(place) if place.is_file() else {name: (place / name).read_bytes() for name in FILES.values()}
    pairs = [_pairs(files[name].decode("utf-8"), f"{place}, {name}") for name in FILES.values()]
    texts, targets = zip(*(pair for part in pairs for pair in part), strict=True)
    parts = torch.arange(len(pairs)).repeat_interleave(torch.tensor([len(part) for part in pairs]))
    source = TextArray(texts, hash_tokenise, MAX_LENGTH)
    return source, torch.tensor(targets), torch.arange(len(texts)) % 2, parts


def _read_archive(path: Path) -> dict[str, bytes]:
    """The three tables out of the archive in one pass: going back in a compressed one means unpacking it again."""
    contents: dict[str, bytes] = {}
    with tarfile.open(path, "r|*") as archive:
        for member in archive:
            for name in FILES.values():
                if member.name.endswith(f"cad/{name}") and (file := archive.extractfile(member)) is not None:
                    contents[name] = file.read()
    if missing := [name for name in FILES.values() if name not in contents]:
        raise DatasetNotFoundError(f"{path} lacks cad/{', cad/'.join(missing)}: fetch it again, from {HOME}.")
    return contents


def _pairs(table: str, where: str) -> list[tuple[str, int]]:
    """Texts and targets, each original followed by its twin, as the file has them."""
    rows = list(csv.DictReader(io.StringIO(table, newline=""), delimiter="\t"))
    if not rows or not {"Sentiment", "Text", "batch_id"} <= set(rows[0]):
        raise InputError(f"{where}: expected rows below a header with Sentiment, Text and batch_id, tab between them.")
    if len(rows) % 2:
        raise InputError(f"{where}: {len(rows)} rows, expected pairs of an original and its revision.")
    for line, (first, second) in enumerate(zip(rows[::2], rows[1::2], strict=True)):
        if first["batch_id"] != second["batch_id"] or {first["Sentiment"], second["Sentiment"]} != set(CLASSES):
            raise InputError(
                f"{where}, rows {2 * line + 1} and {2 * line + 2}: expected an original and its revision, one batch_id and "
                f"{' and '.join(CLASSES)}; got {first['batch_id']} {first['Sentiment']}, {second['batch_id']} "
                f"{second['Sentiment']}."
            )
    # Line breaks as blanks: written out, a paragraph's two would cost eight of 128 tokens and say nothing.
    texts = [" ".join(row["Text"].replace("<br />", " ").split()) for row in rows]
    return [(text, CLASSES.index(row["Sentiment"])) for text, row in zip(texts, rows, strict=True)]
