"""CivilComments of WILDS: is a comment toxic? Mentions of an identity go with the label in training."""

from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from icda.data.datasets.benchmark_files import numbered, official_task, shares
from icda.data.own.table import read_table
from icda.data.registry import TASKS, find_folder
from icda.data.sources import TextArray, Tokenise
from icda.data.task import Task
from icda.data.tokens import hash_tokenise

HOME = "CivilComments v1.0 of WILDS (Borkan et al., WWW 2019; Koh et al., ICML 2021), public domain (CC0)"
FILE = "all_data_with_identities.csv"
FOLDERS = ("civilcomments_v1.0", "civilcomments", "civil_comments")
IDENTITIES = ("male", "female", "LGBTQ", "christian", "muslim", "other_religions", "black", "white")
CLASSES = ("not toxic", "toxic")
GROUPS = tuple(f"{label}, {mention} black" for label in CLASSES for mention in ("no mention of", "mentions"))
MEMBERSHIPS = tuple(f"{identity}, {label}" for identity in IDENTITIES for label in CLASSES)
SPLITS = {"train": 0, "val": 1, "test": 2}
THRESHOLD = 0.5  # a share of annotators from which on a comment is toxic, or mentions an identity
MAX_LENGTH = 300


@TASKS.register("civil_comments")
def civil_comments(
    root: Path | None, seed: int, tokenise: Tokenise | None = None, max_length: int = MAX_LENGTH
) -> Task:
    """Toxic or not, from the text, official split; nothing here depends on the seed.

    Trained on four groups, label x "mentions black", and judged on the sixteen overlapping groups of WILDS, label x each
    of eight identities: a comment belongs to one for every identity that it mentions, or to none. `tokenise` turns texts
    into ids for the model in hand; by default words and word pairs are hashed, which fits the model bag_of_words.
    """
    layouts = [(folder, FILE) for folder in FOLDERS]
    home = find_folder(root, "CivilComments", layouts, FILE, HOME).resolve()
    texts, targets, present, parts = _read(home / FILE)
    source = TextArray(texts, tokenise or hash_tokenise, max_length)
    black = present[:, IDENTITIES.index("black")].long()
    toxic = torch.nn.functional.one_hot(targets, len(CLASSES)).bool()
    return official_task(
        source,
        targets,
        black,
        parts,
        (present.unsqueeze(2) & toxic.unsqueeze(1)).flatten(1),  # identity x label (N, 16)
        name="civil_comments",
        group_names=GROUPS,
        membership_names=MEMBERSHIPS,
        class_names=CLASSES,
        input_kind="text",
        input_shape=(max_length,),
        default_model="bag_of_words",
        description="CivilComments (WILDS), toxic or not: training groups are label x mention of black, evaluation groups "
        "are label x each of eight identities and overlap. Official split. Public domain.",
    )


@lru_cache(maxsize=1)  # half a million rows; a benchmark asks for the same task many times
def _read(path: Path) -> tuple[list[str], Tensor, Tensor, Tensor]:
    """Texts, targets, which identities (N, 8) each mentions, and parts."""
    columns = read_table(path, only=("comment_text", "toxicity", "split", *IDENTITIES)).columns
    # Annotators were asked for identities of some comments only; an empty cell is a mention nobody has reported.
    present = np.stack([shares(path, name, columns[name], empty="0") >= THRESHOLD for name in IDENTITIES], axis=1)
    toxic = torch.from_numpy(shares(path, "toxicity", columns["toxicity"]) >= THRESHOLD).long()
    parts = numbered(path, "split", columns["split"], SPLITS)
    return columns["comment_text"], toxic, torch.from_numpy(present), parts
