"""`icda ask`"""

import secrets
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import tyro

from icda.cli.fit import DataArguments
from icda.cli.output import Bar, check_seed, say, tell


@dataclass
class AskArguments(DataArguments):
    """Show a person the samples that say most about a shortcut, and ask what they show: two dozen answers repair a model.

    Give the data, or the folder of a model of `icda fit`, which knows its data.
    Example: icda ask model --serve
    """

    out: Path = Path("questions")
    """Folder for the page, the features of images or texts, and the answers; of a model it is the model's own."""
    answers: Path | None = None
    """Answers so far, by default answers.csv in that folder: the next questions follow from them."""
    serve: bool = False
    """Serve the page on this machine, save every answer at once and ask on, a dozen at a time, until it is enough."""
    port: int = 0
    """With --serve: the port, by default any free one."""


def main(arguments: Sequence[str]) -> int:
    options = tyro.cli(AskArguments, args=list(arguments), prog="icda ask")
    check_seed(options.seed)
    from icda.auditing import audit
    from icda.results.files import write_page
    from icda.serving.answers import read_answers
    from icda.serving.fit_data import read_fit_data, read_source
    from icda.serving.folder import ANSWERS, FACTS, QUESTIONS
    from icda.serving.questions import QuestionMaker, render_questions

    data, asked, folder = options.data.expanduser(), options.asked(), options.out.expanduser()
    fitted = (data / FACTS).is_file()
    if fitted:
        folder = data
        data, asked = read_source(folder)
        tell(f"Reading {data}, as the fit did ...")
    folder.mkdir(parents=True, exist_ok=True)
    with Bar("inputs embedded") as bar:
        found = read_fit_data(data, asked, folder, options.overwrite, bar.update)
    path = (folder / ANSWERS) if options.answers is None else options.answers.expanduser()
    answers = read_answers(path) if path.exists() or options.answers is not None else {}
    maker = QuestionMaker(found, options.seed)
    out = folder if fitted else Path("model")
    words = ["icda", "fit", str(data), *asked.as_arguments(), "--out", str(out), "--answers", str(path), "--overwrite"]
    command = shlex.join(words)
    train = found.training
    audited = audit(train.features, train.labels, seed=options.seed)
    page = partial(render_questions, maker, audited, command)
    if options.serve:
        from icda.serving.questions import make_app, serve

        token = secrets.token_urlsafe(24)
        serve(make_app(maker, page, path, token), options.port, say, token)
        say(f"Answers: {path}\nNext: {command}")
        return 0
    write_page(folder / QUESTIONS, page(answers))
    say(f"Open in a browser, answer, save answers.csv: {folder / QUESTIONS}\nNext: {command}")
    return 0
