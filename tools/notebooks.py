"""Run the code cells of the notebooks in examples/: `python tools/notebooks.py examples/*.ipynb` writes their outputs.

A cell's printed text and its last figure become its output. A line that begins with `!` is a command. A cell whose metadata
name a `figure` also writes it to docs/figures. Jupyter is not needed; cells share one namespace, as there.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

FIGURES = Path(__file__).parents[1] / "docs" / "figures"


def command(line: str) -> None:
    """What `!line` does in a notebook; the `icda` beside this Python is found first."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    done = subprocess.run(line, shell=True, env={**os.environ, "PATH": path}, capture_output=True, text=True)
    print(done.stdout, end="")
    if done.returncode:
        raise RuntimeError(f"{line} failed:\n{done.stderr}")


def translate(source: str) -> str:
    """Commands as calls of Python."""
    lines = [f"__command__({line[1:]!r})" if line.startswith("!") else line for line in source.splitlines()]
    return "\n".join(lines)


def run_cells(notebook: dict[str, Any]) -> list[tuple[dict[str, Any], str, bytes | None]]:
    """Each code cell with what it printed and, if it drew one, its figure as PNG; in the current folder."""
    names: dict[str, Any] = {"__name__": "__main__", "__command__": command}
    done = []
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                exec(compile(translate("".join(cell["source"])), "<cell>", "exec"), names)
            done.append((cell, printed.getvalue(), take_figure()))
    return done


def take_figure() -> bytes | None:
    """The figure that is open in matplotlib, closed afterwards."""
    plot = sys.modules.get("matplotlib.pyplot")
    if plot is None or not plot.get_fignums():
        return None
    drawn = io.BytesIO()
    plot.gcf().savefig(drawn, format="png", dpi=110, bbox_inches="tight")
    plot.close("all")
    return drawn.getvalue()


def keep_outputs(path: Path) -> None:
    """Run a notebook in a folder of its own and write what its cells gave into it."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            done = run_cells(notebook)
        finally:
            os.chdir(before)
    for number, (cell, printed, figure) in enumerate(done, start=1):
        cell["execution_count"] = number
        cell["outputs"] = []
        if printed:
            cell["outputs"].append(
                {"output_type": "stream", "name": "stdout", "text": printed.splitlines(keepends=True)}
            )
        if figure is not None:
            data = {"image/png": base64.b64encode(figure).decode(), "text/plain": ["<Figure>"]}
            cell["outputs"].append({"output_type": "display_data", "metadata": {}, "data": data})
        if figure is not None and "figure" in cell["metadata"]:
            (FIGURES / f"{cell['metadata']['figure']}.png").write_bytes(figure)
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    import matplotlib

    matplotlib.use("Agg")
    for name in sys.argv[1:]:
        keep_outputs(Path(name).resolve())
