"""What README and docs point to is there: files, commands, methods, tasks and sections of the mathematics."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from icda.cli.main import BUILT_IN
from icda.data import TASKS
from icda.methods import resolve_method
from icda_bench.command import BENCHES

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
FENCE = re.compile(r"^```(?P<language>\w*)[^\n]*\n(?P<code>.*?)^```[ ]*$", re.DOTALL | re.MULTILINE)
CITATION = re.compile(r"\bmathematics (\d+(?:\.\d+)?)(?: to (\d+(?:\.\d+)?))?")
SECTION = re.compile(r"^#{2,3} (\d+(?:\.\d+)?) .*?\{#s(\d+(?:-\d+)?)\}$|^\| (4\.\d+) \|", re.MULTILINE)

README = ROOT / "README.md"


@pytest.mark.parametrize("page", [README, ROOT / "CONTRIBUTING.md"], ids=lambda page: page.name)
def test_links_from_the_root_lead_to_files_of_the_repository(page: Path) -> None:
    targets = re.findall(r"\]\(([^)\s]+)\)", FENCE.sub("", page.read_text()))
    for target in (target.split("#")[0] for target in targets if "://" not in target):
        assert (ROOT / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", [README, *PAGES], ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_in_running_text_exist(page: Path) -> None:
    text = FENCE.sub("", page.read_text())
    for command, second in re.findall(r"`icda ([a-z]\w*)(?: ([a-z][\w-]*))?", text):
        assert command in (*BUILT_IN, "bench"), f"{page.name}: icda {command}"
        assert command != "bench" or not second or second in BENCHES, f"{page.name}: icda bench {second}"


@pytest.mark.parametrize("page", [README, *PAGES], ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_on_a_page_exist_and_so_do_their_methods_and_tasks(page: Path) -> None:
    for block in FENCE.finditer(page.read_text()):
        if block["language"] in ("python", "markdown"):
            continue
        for command in re.findall(r"^icda (\w+)", block["code"], re.MULTILINE):
            assert command in (*BUILT_IN, "bench")
        for name in re.findall(r"^icda bench ([a-z][\w-]*)", block["code"], re.MULTILINE):
            assert name in BENCHES
        for name in re.findall(r"--method (\w+)", block["code"]):
            resolve_method(name)
        for name in re.findall(r"icda train --task (\w+)", block["code"]):
            assert name in TASKS


def sections_of_the_mathematics() -> set[str]:
    """Section numbers, and the decisions 4.1 to 4.26, which are rows of a table."""
    text = (DOCS / "mathematics.md").read_text()
    return {heading or decision for heading, _, decision in SECTION.findall(text)}


def citations(folder: str) -> Iterator[tuple[Path, str]]:
    for path in sorted((ROOT / folder).rglob("*")):
        if path.suffix in (".py", ".md", ".yaml"):
            for first, last in CITATION.findall(path.read_text()):
                yield from ((path, number) for number in (first, last) if number)


def test_every_cited_section_of_the_mathematics_exists() -> None:
    cited = [citation for folder in ("src", "tests", "docs", "examples") for citation in citations(folder)]
    sections = sections_of_the_mathematics()
    assert len(cited) > 30
    assert not [f"{path.name}: {number}" for path, number in cited if number not in sections]


def test_the_mathematics_has_the_loss_twenty_six_decisions_and_anchors_that_follow_the_numbers() -> None:
    found = SECTION.findall((DOCS / "mathematics.md").read_text())
    assert {"0", "1", "2.4", "3.4", "7", "8", "9.4"} <= {number for number, _, _ in found}
    assert [decision for _, _, decision in found if decision] == [f"4.{number}" for number in range(1, 27)]
    assert all(number.replace(".", "-") == anchor for number, anchor, _ in found)


def test_the_map_of_the_house_names_files_that_exist_from_the_command_to_the_report() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    walk = text[text.index("## The map of the house") :]
    files = re.findall(r"`([\w/]+\.py)`", walk)
    assert files[0] == "cli/main.py"
    assert "report/page.py" in files
    assert not [name for name in files if not (ROOT / "src/icda" / name).is_file()]


def test_no_file_cites_the_mathematics_by_the_name_of_a_file_outside() -> None:
    """METHODS is the registry; a number behind it would be a citation of what is not shipped."""
    outside = re.compile(r"METHODS(?:,? section|,? decision| \d|\.md)|of METHODS\b")
    files = [path for folder in ("src", "tests", "docs") for path in (ROOT / folder).rglob("*.*")]
    texts = {path: path.read_text() for path in files if path.suffix in (".py", ".md", ".yaml")}
    assert not [path.name for path, text in texts.items() if path != Path(__file__) and outside.search(text)]
