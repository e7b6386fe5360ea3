"""The terminal: what is printed there may hold names from files of strangers."""

from typing import Any

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderHook, RenderResult
from rich.segment import Segment

from icda.results.foreign_text import printable


class _Printable:
    """A renderable whose text holds no control characters; rich's own, which move the cursor for a bar, are kept."""

    def __init__(self, inner: ConsoleRenderable) -> None:
        self.inner = inner

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for segment in console.render(self.inner, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


class _WithoutControls(RenderHook):
    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        return [_Printable(renderable) for renderable in renderables]


def make_console(**settings: Any) -> Console:
    """A rich console on which a name cannot clear the screen, set the window's title or hide what stands before it."""
    console = Console(**settings)
    console.push_render_hook(_WithoutControls())
    return console
