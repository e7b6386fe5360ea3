"""A mkdocs hook: the notebooks of examples/ as pages, with the outputs that are kept in them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

EXAMPLES = Path(__file__).parents[2] / "examples"


def on_files(files: Files, config: Any) -> Files:
    for path in sorted(EXAMPLES.glob("*.ipynb")):
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=page(path)))
    return files


def page(path: Path) -> str:
    """The cells of a notebook as markdown; pictures stand in the page itself."""
    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
        parts += [_output(output) for output in cell.get("outputs", ())]
    return "\n\n".join([*parts, f"This page is `examples/{path.name}` of the checkout.", ""])


def _output(output: dict[str, Any]) -> str:
    if "text" in output:
        return f"```text\n{''.join(output['text']).rstrip()}\n```"
    picture = output.get("data", {}).get("image/png")
    return f"![Output](data:image/png;base64,{''.join(picture).strip()})" if picture else ""
