"""`icda fit --train`: the trainer trains the network end to end, by default with the method that decides for itself."""

import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from icda.auditing import Audit, audit
from icda.auditing.plan import shortcut_reader
from icda.data.embedding.samples import Samples
from icda.data.task import Split
from icda.errors import InputError
from icda.heads.blocks import BlockRows
from icda.methods import resolve_method
from icda.models.encoders import Frozen
from icda.results.files import CHECKPOINT, CONFIG, EXPLANATIONS, LOG, MODEL, REPORT, RESULT, TENSORBOARD
from icda.serving.fitting import Fitted, Say, groups_of, points_in_words, train_groups
from icda.serving.head_fit import AUTO, reader_of_new
from icda.serving.network import load_network
from icda.serving.trial import Outcome, Trial, judge
from icda.training import TrainConfig, train
from icda.training.evaluation import predict_split
from icda.training.progress import ProgressView
from icda.training.run import load_folder, load_task, make_accelerator

PLAIN_RUN = "plain"  # folder of the run with cross entropy, inside the model's
# What an interrupted training leaves in the model's folder; the trainer knows whether it can go on with it.
RUN_FILES = (PLAIN_RUN, RESULT, EXPLANATIONS, MODEL, CHECKPOINT, CONFIG, LOG, TENSORBOARD, REPORT)
PLAIN = "the same network trained with cross entropy"
# Groups that are known are used; without them the method finds out for itself what is wrong.
REASONS = {"robust": "which decides for itself what is wrong", "group_prior": "groups were given"}
UNDONE = (
    "Its own networks, each asked about samples it had not seen, gave no sign of a shortcut: nothing was done about one, "
    "and classes count the same (logit adjustment). Where the audit sees one, fit without --train, or answer icda ask."
)


def fit_network(
    data: Samples,
    config: TrainConfig,
    method: str = AUTO,
    *,
    compare: bool = True,
    overwrite: bool = False,
    say: Say | None = None,
    view: ProgressView | None = None,
) -> Fitted:
    """Audit the embedded samples, train (a plain network too, to `compare`), and judge the test split, named or cut."""
    if data.inputs is None:
        raise InputError("--train needs images or texts, and these are features: leave --train out to fit a head.")
    say = say or (lambda _: None)
    started = time.perf_counter()
    data = replace(data, splits=np.where(_test_rows(config, len(data)), "test", "train"))
    train_part = data.training
    say(f"Auditing {len(train_part)} samples ...")
    found = audit(train_part.features, train_part.labels, sample_names=train_part.names, seed=config.seed)
    spent = {"audit": time.perf_counter() - started}
    advised = "robust" if data.groups is None else "group_prior"
    chosen = advised if method == AUTO else resolve_method(method)
    config = replace(config, method=chosen)
    runs = {"train": config}
    if compare and chosen != "cross_entropy":
        runs["plain"] = replace(config, method="cross_entropy", out=str(Path(config.out) / PLAIN_RUN))
    results = {}
    for name, run in runs.items():
        say(f"Training {config.model or 'a network'} with {run.method} ...")
        started = time.perf_counter()
        results[name] = train(run, resume=not overwrite, overwrite=overwrite, view=view)
        spent[name] = time.perf_counter() - started
    groups, are_known = train_groups(train_part, found, None)
    judged_by = _test_groups(data, found, groups is not None and are_known)
    outcomes = {name: _judged(Path(run.out), judged_by) for name, run in runs.items()}
    after, split = outcomes["train"]
    before = outcomes["plain"][0] if "plain" in outcomes else None
    words = f"the {len(split)} samples of the test split, which were used for nothing else"
    model = load_network(Path(config.out))
    has_reader = model.method.answers_later and not getattr(model.method, "found", {}).get("no_shortcut")
    why = "as asked for" if method != AUTO else REASONS[chosen]
    what = f"A network ({model.config.model}) was trained end to end"
    if isinstance(model.networks[0].encoder, Frozen):
        what = f"The last layer of a pretrained network ({model.config.model}) was trained"
    done = f"{what} with {chosen}, {why}."
    if results["train"].found:
        done = f"{done} What it found: {results['train'].found}"
    if model.method.answers_later and not has_reader:
        done += f" {UNDONE}"
    trial = Trial(before, after, len(split), words, are_known)
    return Fitted(model, found, trial, chosen, done, data, spent, None, None, PLAIN, has_reader, groups)


def _test_rows(config: TrainConfig, samples: int) -> np.ndarray:
    """Which samples the trainer will judge by: those of a named test part, else those that it cuts itself.

    Neither the audit nor anything else looks at them before the end.
    """
    rows = load_task(config).test.rows.numpy()
    assert rows.max() < samples, "the trainer reads the samples that were embedded, in their order"
    test = np.zeros(samples, dtype=bool)
    test[rows] = True
    return test


def _test_groups(data: Samples, found: Audit, are_known: bool) -> list[str] | None:
    """Class and group of every sample, as far as the test part needs them: given, else by what the shortcut says of it."""
    if are_known and data.groups is not None:
        return groups_of(data.labels, data.groups, None)
    if found.treatment.name != "shortcut_prior":
        return None
    rows = BlockRows.of_arrays(data.training.features, data.training.labels)
    reader = reader_of_new(rows, shortcut_reader(found.assessment), found.assessment)
    return points_in_words(data.labels, reader.answers(data.features), found.class_names)


def _judged(folder: Path, groups: list[str] | None) -> tuple[Outcome, Split]:
    """What the run gets right on its test split; the rows of its source stand in the order of the samples."""
    _, task, networks, method = load_folder(folder, allow_outside=True)  # our own run, of data that were trusted
    split = task.test
    logits = predict_split(method, networks, split, make_accelerator("no"))
    names = np.array(task.class_names, dtype=object)
    own = None if groups is None else [groups[row] for row in split.rows.tolist()]
    return judge(names[logits.argmax(1).numpy()], names[split.targets.numpy()], own), split
