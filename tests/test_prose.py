"""What README and docs say: plain words, commands and sections that exist, and a README that is read in two minutes."""

from __future__ import annotations

import ast
import io
import re
import tokenize
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
PROSE = [README, ROOT / "CONTRIBUTING.md", *PAGES]
HOUSE = ROOT / "src/icda"
ROOMS = sorted(
    path for path in HOUSE.iterdir() if path.suffix == ".py" or (path.is_dir() and path.name != "__pycache__")
)

# Words that a reader whose second language is English would look up, with the plain ones.
PLAIN_WORDS = {
    r"unrest": "variation, noise",
    r"dearer": "more expensive",
    r"(?:is|are|were|being|where it is) told\b(?! apart| from)|told (?:of|no|the true|the groups|nothing)": "given",
    r"by heart": "memorised",
    r"afresh|anew": "again",
    r"for want of": "for lack of",
    r"speaks? (?:of|for|against)": "mention, describe, contradict",
    r"leans? on": "rely on",
    r"(?<!you )(?<!not )wants?": "need",
    r"the very|some ten|turned round": "this, about ten, reversed",
    r"hitherto|thereof|whither|lest|nigh": "a modern word",
}
_COUNTED = (
    "one|two|three|ten|once|twice|samples|images|numbers|rows?|steps?|passes|files?|operations|products?|lines?|labels?|bit"
    "|distance|entropy|covariance|determinant|table|batches|GFLOP|MiB|ms|loader|means?|variance|features|bits"
    "|entry|weight|recipe|figure|folder|subfolder|sub-folder|constant|texts|groups|call|minute|pixel|attribute"
)
_UNIT = (
    "sample|class|file|batch|epoch|domain|image|step|group|process|iteration|run|row|cluster|loader|training sample"
    "|metadata sample|task|channel|rank|seed|cell|method|column"
)
PER = re.compile(
    rf"\b(?:{_COUNTED}|\d[\d.,]*(?<![.,])) an? (?:{_UNIT})\b(?!'s| (?:is|trains|belongs)\b)", re.IGNORECASE
)


@pytest.mark.parametrize("page", PROSE, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_is_written_in_plain_words(page: Path) -> None:
    found = uncommon_words(FENCE.sub("", page.read_text()))
    assert not found, f"say instead: {found}"


def uncommon_words(text: str) -> list[tuple[str, str]]:
    """Each word or phrase to avoid, as it stands in the text, with the plain one."""
    found = [(word[0], plain) for words, plain in PLAIN_WORDS.items() for word in re.finditer(rf"\b(?:{words})", text)]
    return [*found, *((match[0], '"per", not "a"') for match in PER.finditer(text))]


def words_of_code(source: str) -> Iterator[tuple[int, str]]:
    """Comments, docstrings, messages and all other text of a module with its line; no `code`, no {expressions}."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, re.sub(r"`[^`\n]*`", "", node.value)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], re.sub(r"`[^`]*`", "", token.string)


def words_of(path: Path) -> Iterator[tuple[int, str]]:
    return (
        words_of_code(path.read_text()) if path.suffix == ".py" else iter(enumerate(path.read_text().splitlines(), 1))
    )


@pytest.mark.parametrize(
    "room",
    ROOMS,
    ids=lambda room: str(room.relative_to(HOUSE)),
)
def test_comments_docstrings_and_messages_are_written_in_plain_words(room: Path) -> None:
    files = [room] if room.is_file() else [path for path in sorted(room.rglob("*")) if path.suffix in (".py", ".yaml")]
    found = [
        f"{path.relative_to(ROOT)}:{line}: {word!r}, say instead {plain}"
        for path in files
        for line, text in words_of(path)
        for word, plain in uncommon_words(text)
    ]
    assert not found, "\n".join(found)


def test_which_text_of_a_module_is_read() -> None:
    source = '''"""It wants\na head."""
def wanted(given):  # told of groups
    """One a sample; `wants` is a name."""
    raise ValueError(f"rows {wanted} are dearer")
'''
    words = {(line, word) for line, text in words_of_code(source) for word, _ in uncommon_words(text)}
    assert words == {(1, "wants"), (3, "told of"), (4, "One a sample"), (5, "dearer")}


def test_what_counts_as_a_word_to_avoid() -> None:
    assert PER.search("ten images a class, one row a sample")
    assert not PER.search("it gives a class its name; as a sample; one of a class; ten images per class")
    given = next(words for words, plain in PLAIN_WORDS.items() if plain == "given")
    assert re.search(given, "methods that are told the groups")
    assert not re.search(given, "pairs that cannot be told apart")


def prose(text: str) -> str:
    """What is read aloud: no code, no tables, no comments, no pictures, no addresses."""
    text = re.sub(r"<!--.*?-->", "", FENCE.sub("", text), flags=re.DOTALL)
    text = re.sub(r"^\|.*$|!\[.*?\]\(.*?\)", "", text, flags=re.MULTILINE)
    return re.sub(r"\]\([^)]*\)", "]", text)


def test_the_readme_is_read_in_two_minutes() -> None:
    text = README.read_text()
    words = [word for word in prose(text).split() if re.search(r"[a-z]", word)]
    assert len(words) <= 500, "250 words per minute"
    assert "<!-- headline:" in text, "the place for the strongest result"
    tables = re.findall(r"<!-- table: [\w-]+ -->\n(.*?)<!-- end of table -->", text, re.DOTALL)
    assert len(tables) <= 3
    assert max(len(line) for table in tables for line in table.splitlines()) <= 100


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
