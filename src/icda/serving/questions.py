"""The page on which a person answers: two strips of samples per class, then one sample after the other; and its server."""

import hashlib
import importlib.resources
import io
import json
import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from icda.auditing import Audit, Questions, ask
from icda.auditing.page import Show
from icda.data.embedding.samples import Samples
from icda.errors import InputError
from icda.extras import require
from icda.report.markup import content_policy, style_sheet
from icda.results.files import write_page
from icda.serving.answers import Answers, parse_answers, read_answers, rows_of, write_answers
from icda.serving.contrast import differing_columns, in_words, lots_by_answer, show_inputs
from icda.serving.fitting import Fitted
from icda.serving.folder import QUESTIONS

FIRST, DOZEN = 24, 12
STRIPS, TILES = 4, 6  # classes shown, and samples of each lot
CELLS = 8  # columns of a table that are shown
SUSPICIONS = {  # by what the audit answers about a shortcut
    "yes": "A shortcut was found: something other than the class predicts most labels.",
    "no": "No shortcut was found, but data alone cannot rule one out.",
    "cannot tell": "There may be a shortcut: data alone cannot tell.",
}
SHARED = "On the right are samples that a plain model takes for another class. What do they share?"


@dataclass(frozen=True)
class QuestionMaker:
    """Questions about the training samples of some data; a named test part is not looked at."""

    data: Samples
    seed: int = 0

    def ask(self, answers: Answers, n: int, origin: str = "answers") -> Questions:
        """The next `n` samples, as places among the training samples."""
        test, train = self.data.test, self.data.training
        rows = range(len(train)) if test is None else np.flatnonzero(~test).tolist()
        places = {row: place for place, row in enumerate(rows)}
        groups = np.full(len(places), None, dtype=object)
        skipped = []
        for row, answer in rows_of(self.data.names, answers, origin).items():
            if row in places and answer.group:
                groups[places[row]] = answer.group
            elif row in places:
                skipped.append(places[row])
        return ask(train.features, train.labels, groups, n, skip=skipped, seed=self.seed)

    def show(self) -> Show:
        """How a training sample, by its place, is shown."""
        samples = self.data.training
        return (lambda place: {}) if samples.inputs is None else show_inputs(samples)

    def cards(self, asked: Questions) -> list[dict[str, Any]]:
        """What the page shows of each question."""
        train, show, cells = self.data.training, self.show(), self._cells(asked)
        return [
            {
                "sample": train.names[place],
                "label": str(train.labels[place]),
                "reason": reason,
                **show(int(place)),
                **cells(int(place)),
            }
            for place, reason in zip(asked.index, asked.reasons, strict=True)
        ]

    def label_checks(self, found: Audit, known: set[str]) -> list[dict[str, Any]]:
        """A dozen samples with the most doubtful labels, none of which was asked about before."""
        names, show = self.data.training.names, self.show()
        places = [int(place) for place in found.label_ranking() if names[int(place)] not in known][:DOZEN]
        rows = list(found.rows(np.array(places, dtype=np.int64)))
        return [
            {
                "sample": names[place],
                "label": row["label"],
                "reason": f"its label may be wrong, a plain model says {row['predicted']}",
                "check": True,
                **show(place),
            }
            for place, row in zip(places, rows, strict=True)
        ]

    def strips(self, asked: Questions) -> list[dict[str, Any]]:
        """Classes with most samples that a plain model takes for another, those beside usual ones."""
        show, cells, train = self.show(), self._cells(asked), self.data.training
        classes, targets = np.unique(train.labels, return_inverse=True)
        generator = np.random.default_rng(self.seed)

        def tiles(places: np.ndarray) -> list[dict[str, Any]]:
            chosen = generator.permutation(places)[:TILES]
            return [{"sample": train.names[k], **show(int(k)), **cells(int(k))} for k in chosen]

        return [
            {
                "label": str(classes[own]),
                "taken_for": str(classes[other]),
                "usual": tiles(usual),
                "suspected": tiles(suspected),
                "words": f"Compared with the usual ones: {said}."
                if (said := in_words(train, suspected, usual))
                else "",
            }
            for own, other, usual, suspected in lots_by_answer(targets, asked.predicted)[:STRIPS]
        ]

    def _cells(self, asked: Questions) -> Any:
        """The columns of a table in which suspected and usual samples differ most."""
        names, features = self.data.reads.columns, self.data.training.features
        if self.data.inputs is not None or names is None or len(names) < features.shape[1]:  # one name for lists
            return lambda place: {}
        differ = differing_columns(features[asked.contradicted], features[~asked.contradicted], names)
        chosen = [name for name, _ in differ] or list(names[:CELLS])
        places = [names.index(name) for name in chosen]
        return lambda place: {"cells": [[names[k], f"{features[place, k]:.4g}"] for k in places]}


def render_questions(
    maker: QuestionMaker, found: Audit, command: str, answers: Answers | None = None, token: str = ""
) -> str:
    """One page about what an audit found, and doubtful labels; with a `token` it saves to the server it came from."""
    answers = answers or {}
    title = f"What do these {len(maker.data.training)} samples show?"
    suspicion = f"{SUSPICIONS[found.verdicts['shortcut'].answer]} {SHARED}"
    asked = maker.ask(answers, FIRST)
    cards = maker.cards(asked)
    if found.verdicts["label_noise"].answer != "no":
        cards += maker.label_checks(found, {card["sample"] for card in cards} | set(answers))
    payload = {
        "title": title,
        "suspicion": suspicion,
        "classes": [str(name) for name in np.unique(maker.data.labels)],
        "strips": maker.strips(asked),
        "questions": cards,
        "answers": {name: {"group": one.group, "label": one.label} for name, one in answers.items()},
        "names": sorted({one.group for one in answers.values() if one.group}),
        "command": command,
    }
    digest = hashlib.sha256(json.dumps(payload, sort_keys=True).encode()).hexdigest()[:16]
    return _render(title, {**payload, "id": digest, "token": token}, connect=bool(token))


def write_question_page(fitted: Fitted, folder: Path, answers: Answers, command: str) -> None:
    """The page beside a fitted model, about the samples it was fitted to."""
    maker = QuestionMaker(fitted.data, int(fitted.audit.settings.get("seed", 0)))
    write_page(folder / QUESTIONS, render_questions(maker, fitted.audit, command, answers))


def _render(title: str, payload: Mapping[str, Any], connect: bool) -> str:
    folder = importlib.resources.files("icda.report")
    names: Sequence[str] = ("questions.html", "style.css", "questions.css", "questions.js")
    template, frame, style, script = ((folder / name).read_text(encoding="utf-8") for name in names)
    style = style_sheet(frame) + style
    # In a script element only "</" and "<!--" could end the data early.
    plain = json.dumps(payload, ensure_ascii=True).replace("<", "\\u003c")
    page = Environment(autoescape=True, undefined=StrictUndefined, keep_trailing_newline=True).from_string(template)
    return page.render(
        title=title,
        policy=Markup(content_policy(style, script, connect)),
        style=Markup(style),
        script=Markup(script),
        payload=Markup(plain),
    )


LARGEST = 2**22  # bytes of answers
ENOUGH = "More answers would change little: stop here, and fit again."
HOST = "127.0.0.1"


def make_app(maker: QuestionMaker, page: Callable[[Answers, str], str], out: Path, token: str) -> Any:
    """The application: the page, `answers` to save, `next` to be asked more; nothing without the token."""
    require("starlette", "serve", "icda ask --serve")
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.requests import Request
    from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
    from starlette.routing import Route

    lock = threading.Lock()  # one save at a time

    def known() -> dict[str, Any]:
        return dict(read_answers(out)) if out.exists() else {}

    def check(request: Request, given: str | None) -> None:
        # Only this machine's own name: a page from elsewhere could make the browser ask for another that leads here.
        host = request.headers.get("host", "").rpartition(":")[0]
        if host not in (HOST, "localhost") or not secrets.compare_digest(given or "", token):
            raise HTTPException(403, "Open the address that icda ask printed.")

    async def body(request: Request) -> bytes:
        parts = bytearray()
        async for part in request.stream():
            parts += part
            if len(parts) > LARGEST:
                raise InputError("too much for answers.")
        return bytes(parts)

    def show(request: Request) -> Response:
        check(request, request.query_params.get("token"))
        private = {"Referrer-Policy": "no-referrer", "Cache-Control": "no-store"}
        return HTMLResponse(page(known(), token), headers=private)

    async def save(request: Request) -> Response:
        check(request, request.headers.get("x-token"))
        try:
            answers = parse_answers(io.StringIO((await body(request)).decode(), newline=""), "the answers")
            with lock:
                write_answers(out, answers)
        except (InputError, UnicodeDecodeError) as error:
            return PlainTextResponse(str(error), 400)
        return JSONResponse({"saved": len(answers)})

    def more(request: Request) -> Response:
        check(request, request.headers.get("x-token"))
        asked = maker.ask(known(), DOZEN, str(out))
        return JSONResponse({"enough": asked.enough, "told": ENOUGH, "questions": maker.cards(asked)})

    routes = [Route("/", show), Route("/answers", save, methods=["POST"]), Route("/next", more, methods=["POST"])]
    return Starlette(routes=routes)


def serve(app: Any, port: int, say: Callable[[str], None], token: str) -> None:
    """Serve on loopback until Ctrl-C."""
    uvicorn = require("uvicorn", "serve", "icda ask --serve")

    class Server(uvicorn.Server):  # type: ignore[name-defined]
        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets)
            for server in self.servers:
                chosen = server.sockets[0].getsockname()[1]
                say(f"Open http://{HOST}:{chosen}/?token={token}\nCtrl-C ends it; every answer is saved at once.")

    Server(uvicorn.Config(app, host=HOST, port=port, log_level="warning", access_log=False)).run()
