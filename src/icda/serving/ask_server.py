"""`icda ask --serve`: the page of questions on this machine's own address, with every answer saved at once."""

import io
import secrets
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from icda.errors import InputError
from icda.extras import require
from icda.serving.answers import Answers, parse_answers, read_answers, write_answers
from icda.serving.questions import DOZEN, QuestionMaker

LARGEST = 2**22  # bytes of answers
ENOUGH = "More answers would change little: stop here, and fit again."
HOST = "127.0.0.1"


def make_app(maker: QuestionMaker, page: Callable[[Answers, str], str], out: Path, token: str) -> Any:
    """The application: the page, `answers` to save, `next` to be asked more; nothing without the token."""
    require("starlette", "serve", "icda ask --serve")
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
    from starlette.routing import Route

    lock = threading.Lock()  # one save at a time

    def known() -> dict[str, Any]:
        return dict(read_answers(out)) if out.exists() else {}

    def refused(request: Request, given: str | None) -> Response | None:
        # Only this machine's own name: a page from elsewhere could make the browser ask for another that leads here.
        host = request.headers.get("host", "").rpartition(":")[0]
        if host not in (HOST, "localhost") or not secrets.compare_digest(given or "", token):
            return PlainTextResponse("Open the address that icda ask printed.", 403)
        return None

    async def body(request: Request) -> bytes:
        parts = bytearray()
        async for part in request.stream():
            parts += part
            if len(parts) > LARGEST:
                raise InputError("too much for answers.")
        return bytes(parts)

    def show(request: Request) -> Response:
        if (no := refused(request, request.query_params.get("token"))) is not None:
            return no
        return HTMLResponse(
            page(known(), token), headers={"Referrer-Policy": "no-referrer", "Cache-Control": "no-store"}
        )

    async def save(request: Request) -> Response:
        if (no := refused(request, request.headers.get("x-token"))) is not None:
            return no
        try:
            answers = parse_answers(io.StringIO((await body(request)).decode(), newline=""), "the answers")
            with lock:
                write_answers(out, answers)
        except (InputError, UnicodeDecodeError) as error:
            return PlainTextResponse(str(error), 400)
        return JSONResponse({"saved": len(answers)})

    def more(request: Request) -> Response:
        if (no := refused(request, request.headers.get("x-token"))) is not None:
            return no
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
