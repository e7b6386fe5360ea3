"""The documentation site: complete, without a dead link, built without a network, and what it points to is there."""

import contextlib
import importlib.util
import io
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from html import unescape
from pathlib import Path

import pytest
import yaml

from icda.cli.main import BUILT_IN
from icda.data import TASKS
from icda.methods import method_names, method_needs, resolve_method
from icda.methods.create import method_class
from icda_bench.command import BENCHES
from support import load_module

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
GUIDES = [page for page in PAGES if page.parent.name == "guides"]
METHOD_PAGES = [page for page in PAGES if page.parent.name == "methods" and page.name != "index.md"]
FENCE = re.compile(r"^```(?P<language>\w*)[^\n]*\n(?P<code>.*?)^```[ ]*$", re.DOTALL | re.MULTILINE)
TABLE_RULE = re.compile(r"^\|[ :|-]+\|\s*$", re.MULTILINE)
ABSOLUTE_PATH = re.compile(r"(?<![\w.~/<>-])/(?:work|home|root|tmp|usr|opt|mnt|var|etc|Users)/|\b[A-Z]:\\")

CITATION = re.compile(r"\bmathematics (\d+(?:\.\d+)?)(?: to (\d+(?:\.\d+)?))?")
SECTION = re.compile(r"^#{2,3} (\d+(?:\.\d+)?) .*?\{#s(\d+(?:-\d+)?)\}$|^\| (4\.\d+) \|", re.MULTILINE)
README = ROOT / "README.md"
GENERATED_PAGES = ("methods/", "api/")  # entries of the nav that a hook fills

by_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
by_method = pytest.mark.parametrize("name", method_names())
needs_mkdocs = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("mkdocs", "material", "mkdocstrings_handlers")),
    reason='THE SITE WAS NOT BUILT: mkdocs-material or mkdocstrings is not installed, pip install "icda[docs]"',
)


METHOD_HOOK = load_module(DOCS / "hooks/method_pages.py", "docs_method_pages")


def nav_pages(entry):
    if isinstance(entry, str):
        yield entry
    elif isinstance(entry, list):
        for part in entry:
            yield from nav_pages(part)
    elif isinstance(entry, dict):
        yield from nav_pages(list(entry.values()))


def configuration():
    return yaml.safe_load((ROOT / "mkdocs.yml").read_text())


def methods_named_by(page):
    """The methods whose page it is: its line of names, right under the title, has `--method NAME` for each."""
    return set(METHOD_HOOK.read_page(page).methods)


def index_row(name):
    """The row of a method in the table of all methods."""
    lines = METHOD_HOOK.table_of_methods(DOCS).splitlines()
    rows = [line for line in lines if line.startswith(f"| `{name}`")]
    assert len(rows) == 1, f"the table of methods has {len(rows)} rows for {name!r}, wanted one"
    return [cell.strip() for cell in rows[0].strip("|").split("|")]


def build(folder, out):
    """Build a site strictly. Only the exit code counts: mkdocs-material prints a banner about its own future."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(out)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    out = tmp_path_factory.mktemp("site")
    done = build(ROOT, out)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


def article(site, page):
    html = (site / page.relative_to(DOCS)).with_suffix(".html").read_text()
    return html[html.index("<article") : html.index("</article>")]


@by_method
def test_every_method_has_a_page(name):
    pages = [page.name for page in METHOD_PAGES if name in methods_named_by(page)]
    assert len(pages) == 1, f"{name!r} wants one page in docs/methods with `--method {name}` under its title: {pages}"


@by_method
def test_the_table_of_methods_says_what_a_method_needs_and_leads_to_its_page(name):
    _, what, kind, needs, _ = index_row(name)
    page = re.search(r"\]\((\w+\.md)\): \w", what)
    assert name in methods_named_by(DOCS / "methods" / page[1])
    assert ("metadata" in needs) == ("metadata" in method_needs(name))
    assert ("group labels" in needs) == ("groups" in method_needs(name))
    assert kind in ("loss", "procedure")


def test_the_nav_has_every_page_once():
    named = [page for page in nav_pages(configuration()["nav"]) if page not in GENERATED_PAGES]
    named += [*nav_pages(METHOD_HOOK.navigation(DOCS)), "api/index.md"]
    notebooks = [f"notebooks/{path.stem}.md" for path in (ROOT / "examples").glob("*.ipynb")]
    assert sorted(named) == sorted([*(str(page.relative_to(DOCS)) for page in PAGES), *notebooks])


@by_page
def test_every_internal_link_leads_to_a_file_of_the_site(page):
    text = FENCE.sub("", page.read_text())
    targets = re.findall(r"\]\(([^)\s]+)\)", text)
    for target in (target.split("#")[0] for target in targets if "://" not in target):
        found = (page.parent / target).resolve()
        assert target == "" or (found.is_file() and found.is_relative_to(DOCS)), f"{page.name} links to {target}"


@by_page
def test_no_page_names_an_absolute_path(page):
    assert not ABSOLUTE_PATH.findall(page.read_text())


@needs_mkdocs
@by_page
def test_tables_and_lists_of_a_page_are_rendered_as_such(page, site):
    source, html = FENCE.sub("", page.read_text()), article(site, page)
    if page == DOCS / "methods/index.md":
        source = source.replace(METHOD_HOOK.MARKER, METHOD_HOOK.table_of_methods(DOCS))
    elif page == DOCS / "api/index.md":
        source += "\n|:--|\n"  # the table of rooms
    assert html.count("<table>") == len(TABLE_RULE.findall(source)), "a table wants an empty line before it"
    paragraphs = re.findall(r"<p>(.*?)</p>", html, re.DOTALL)
    swallowed = [text for text in paragraphs if re.search(r"^\s*(?:[*-]|\d+\.) |^\|", text, re.MULTILINE)]
    assert not swallowed, "a list wants an empty line between it and the paragraph above"


@needs_mkdocs
@by_page
def test_no_underscore_of_a_formula_becomes_emphasis(page, site):
    """Python-Markdown takes `_` after a combining accent for the start of emphasis: write `\\_` there."""
    source = page.read_text()
    for shown in re.findall(r"<em>(.*?)</em>", article(site, page), re.DOTALL):
        words = unescape(re.sub(r"<[^>]+>", "", shown)).split()
        assert re.search(r"\*" + r"\s+".join(map(re.escape, words[:2])), source), f"not meant as emphasis: {shown!r}"


@needs_mkdocs
def test_the_site_loads_nothing_from_a_network(site):
    html = "\n".join(path.read_text() for path in site.rglob("*.html"))
    loaded = re.findall(r"<(?:script|link|img|iframe)\b[^>]*?\b(?:src|href)=\"?((?:https?:)?//[^\"\s>]+)", html)
    assert not loaded
    assert (site / "search/search_index.json").is_file()


@needs_mkdocs
@pytest.mark.parametrize("page", METHOD_PAGES, ids=lambda page: page.stem)
def test_the_page_of_a_method_links_to_its_class_in_the_reference(page, site):
    links = re.findall(r'href="\.\./(api/\w+\.html)#([\w.]+)"', article(site, page))
    classes = {f"{cls.__module__}.{cls.__qualname__}" for cls in map(method_class, methods_named_by(page))}
    assert {anchor for _, anchor in links} >= classes
    for file, anchor in links:
        assert f'id="{anchor}"' in (site / file).read_text()


@needs_mkdocs
def test_the_reference_shows_signatures_and_doctests_as_code(site):
    text = (site / "api/losses.html").read_text()
    entry = text[text.index('id="icda.losses.icda.ICDALoss"') :][:20_000]
    plain = re.sub(r"<[^>]+>", "", entry)
    assert "num_classes: int" in plain
    assert "&gt;&gt;&gt; loss = ICDALoss(num_classes=3" in plain
    assert "<blockquote>" not in text, "a doctest was read as a quotation"


@needs_mkdocs
def test_the_search_index_has_pages_methods_and_the_reference(site):
    entries = json.loads((site / "search/search_index.json").read_text())["docs"]
    places = {entry["location"]: entry["text"] for entry in entries}
    assert "log" in places["mathematics.html#s3-1"]
    assert {"methods/jtt.html", "api/losses.html#icda.losses.icda.ICDALoss", "tutorial.html"} <= set(places)
    assert {f"notebooks/{path.stem}.html" for path in (ROOT / "examples").glob("*.ipynb")} <= set(places)


def small_site(folder):
    """A copy of the site's sources without the API reference, which takes most of the time of a build."""
    shutil.copytree(DOCS, folder / "docs")
    config = configuration()
    config["plugins"], config["hooks"], config["exclude_docs"] = (
        ["search"],
        ["docs/hooks/method_pages.py"],
        "hooks/\napi/",
    )
    reference = next(entry["Reference"] for entry in config["nav"] if "Reference" in entry)
    reference.remove({"API": "api/"})
    guides = next(entry["Guides"] for entry in config["nav"] if "Guides" in entry)
    guides.remove(next(entry for entry in guides if "Notebooks" in entry))  # another hook's
    (folder / "mkdocs.yml").write_text(yaml.safe_dump(config))
    return folder


@needs_mkdocs
def test_a_new_page_of_a_method_is_in_table_and_navigation_without_another_edit(tmp_path):
    folder = small_site(tmp_path)
    page = folder / "docs/methods/brand_new.md"
    page.write_text("---\nfamily: Long tails\n---\n\n# Brand new\n\n`--method focal`\n\nText.\n")
    done = build(folder, tmp_path / "site")
    assert done.returncode == 0, done.stdout + done.stderr
    index = (tmp_path / "site/methods/index.html").read_text()
    table = index[index.index("<article") : index.index("</article>")]
    assert '<a href="brand_new.html">Brand new</a>' in table
    assert index.count('href="brand_new.html"') > 1, "the navigation has it, too"


def test_a_method_page_without_front_matter_is_placed_last(tmp_path):
    (tmp_path / "methods").mkdir()
    (tmp_path / "methods/plain.md").write_text("# Plain\n\n`--method icda`\n\nText.\n")
    (tmp_path / "methods/novel.md").write_text("---\nfamily: Novel\n---\n\n# Novel\n\n`--method uw`\n\nText.\n")
    nav = METHOD_HOOK.navigation(tmp_path)
    assert nav == [
        "methods/index.md",
        {"Novel": [{"Novel": "methods/novel.md"}]},
        {"Other": [{"Plain": "methods/plain.md"}]},
    ]
    what = (method_class("uw").__doc__ or "").splitlines()[0].rstrip(".")
    row = f"| `uw` | [Novel](novel.md): {what} | procedure | group labels |  |"
    assert row in METHOD_HOOK.table_of_methods(tmp_path)


@needs_mkdocs
def test_doctests_of_a_docstring_become_code_blocks():
    fence = load_module(DOCS / "hooks/doctest_blocks.py", "docs_doctest_blocks").fence_doctests
    assert fence("Text.\n\n>>> 1 + 1\n2\n\nMore.") == "Text.\n\n\n```pycon\n>>> 1 + 1\n2\n```\n\nMore."
    assert fence("Text.") == "Text."
    assert fence(">>> 1\n1").endswith("1\n```")


@needs_mkdocs
@pytest.mark.parametrize("damage", ["dead link", "dead anchor", "page outside the nav", "nav without a page"])
def test_the_build_fails_on(damage, tmp_path):
    small_site(tmp_path)
    home = tmp_path / "docs/index.md"
    if damage == "dead link":
        home.write_text(home.read_text() + "\n[x](nowhere.md)\n")
    elif damage == "dead anchor":
        home.write_text(home.read_text() + "\n[x](evidence/paper.md#nowhere)\n")
    elif damage == "page outside the nav":
        (tmp_path / "docs/lonely.md").write_text("# Lonely\n")
    else:
        (tmp_path / "docs/tutorial.md").unlink()
    done = build(tmp_path, tmp_path / "site")
    assert done.returncode != 0
    assert "strict mode" in done.stdout + done.stderr, "it failed for another reason"


def complete_blocks():
    """Python of README, home, guides and some references that needs nothing else: it begins with an import."""
    found = []
    complete = [DOCS / f"{name}.md" for name in ("index", "classifier", "datasets", "losses", "statistics", "training")]
    for page in (README, *complete, *GUIDES):
        blocks = [block["code"] for block in FENCE.finditer(page.read_text()) if block["language"] == "python"]
        found += [(f"{page.stem}-{k}", code) for k, code in enumerate(blocks) if code.startswith(("import ", "from "))]
    return found


@pytest.mark.parametrize("code", [pytest.param(code, id=name) for name, code in complete_blocks()])
def test_code_that_needs_nothing_else_runs(code, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    exec(code, {"__name__": "__main__"})
    if code in README.read_text():
        assert f"This prints `{capsys.readouterr().out.strip()}`" in README.read_text()


def test_readme_home_and_guides_have_code_that_runs():
    assert {name.partition("-")[0] for name, _ in complete_blocks()} >= {"README", "index", "tables", "loop"}


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.parent in (DOCS, DOCS / "guides")], ids=lambda p: p.stem
)
def test_code_of_guides_and_references_fits_its_box(page):
    lines = [line for block in FENCE.finditer(page.read_text()) for line in block["code"].splitlines()]
    assert not [line for line in lines if len(line) > 79]


def pictures_of(page):
    text = FENCE.sub("", page.read_text())
    for target in re.findall(r"!\[[^]]*\]\(([^)\s]+)\)|(?:src|srcset)=\"([^\"]+)\"", text):
        name = "".join(target).split("#")[0]
        if "://" not in name:
            yield page.parent / name


@pytest.mark.parametrize("page", [README, *PAGES], ids=lambda page: str(page.relative_to(ROOT)))
def test_pictures_of_a_page_exist_and_are_small(page):
    for picture in pictures_of(page):
        assert picture.is_file(), f"{page.name} shows {picture}"
        assert picture.stat().st_size <= 150 * 1024, f"{picture.name}: `make pictures`, or fewer colours"


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.stem)
def test_a_guide_begins_with_a_picture_and_ends_with_the_next_step(page):
    paragraphs = page.read_text().strip().split("\n\n")
    assert paragraphs[0].startswith("# ")
    assert paragraphs[1].startswith("![")
    assert paragraphs[-1].startswith("**Next:** ")


@pytest.mark.parametrize("name", re.findall(r"^\| `([^|]+?)` \|", (DOCS / "install.md").read_text(), re.MULTILINE))
def test_the_install_page_names_extras_that_exist(name):
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(re.findall(r"\w+", name)) <= set(known)


def test_the_install_page_names_every_extra():
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert [extra for extra in known if f"`{extra}`" not in (DOCS / "install.md").read_text()] == []


def tutorial_snippets():
    """Python blocks of the tutorial that need no earlier run, each with the output printed below it."""
    blocks = [(block["language"], block["code"]) for block in FENCE.finditer((DOCS / "tutorial.md").read_text())]
    pairs = itertools.pairwise(blocks)
    alone = [(code, output) for (kind, code), (below, output) in pairs if (kind, below) == ("python", "text")]
    return [(code, output) for code, output in alone if "create_task" in code or "load_digits" in code]


@pytest.mark.parametrize(
    ("code", "output"), tutorial_snippets(), ids=["wrong labels", "spurious correlation", "long tail"]
)
def test_the_tutorial_shows_what_its_code_prints(code, output, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(code, {"__name__": "__main__"})
    number = re.compile(r"\d+(?:\.\d+)?")
    assert number.sub("#", printed.getvalue()) == number.sub("#", output)
    # A point of 500 test images is five of them: another BLAS may move a few, a changed method more.
    shown, now = (list(map(float, number.findall(text))) for text in (output, printed.getvalue()))
    assert now == pytest.approx(shown, abs=1.0)


@pytest.mark.parametrize("page", [README, ROOT / "CONTRIBUTING.md"], ids=lambda page: page.name)
def test_links_from_the_root_lead_to_files_of_the_repository(page):
    targets = re.findall(r"\]\(([^)\s]+)\)", FENCE.sub("", page.read_text()))
    for target in (target.split("#")[0] for target in targets if "://" not in target):
        assert (ROOT / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", [README, *PAGES], ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_in_running_text_exist(page):
    text = FENCE.sub("", page.read_text())
    for command, second in re.findall(r"`icda ([a-z]\w*)(?: ([a-z][\w-]*))?", text):
        assert command in (*BUILT_IN, "bench"), f"{page.name}: icda {command}"
        assert command != "bench" or not second or second in BENCHES, f"{page.name}: icda bench {second}"


@pytest.mark.parametrize("page", [README, *PAGES], ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_on_a_page_exist_and_so_do_their_methods_and_tasks(page):
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


def sections_of_the_mathematics():
    """Section numbers, and the decisions 4.1 to 4.26, which are rows of a table."""
    text = (DOCS / "mathematics.md").read_text()
    return {heading or decision for heading, _, decision in SECTION.findall(text)}


def citations(folder):
    for path in sorted((ROOT / folder).rglob("*")):
        if path.suffix in (".py", ".md", ".yaml"):
            for first, last in CITATION.findall(path.read_text()):
                yield from ((path, number) for number in (first, last) if number)


def test_every_cited_section_of_the_mathematics_exists():
    cited = [citation for folder in ("src", "tests", "docs", "examples") for citation in citations(folder)]
    sections = sections_of_the_mathematics()
    assert len(cited) > 30
    assert not [f"{path.name}: {number}" for path, number in cited if number not in sections]


def test_the_mathematics_has_the_loss_twenty_six_decisions_and_anchors_that_follow_the_numbers():
    found = SECTION.findall((DOCS / "mathematics.md").read_text())
    assert {"0", "1", "2.4", "3.4", "7", "8", "9.4"} <= {number for number, _, _ in found}
    assert [decision for _, _, decision in found if decision] == [f"4.{number}" for number in range(1, 27)]
    assert all(number.replace(".", "-") == anchor for number, anchor, _ in found)


def test_the_map_of_the_house_names_files_that_exist_from_the_command_to_the_report():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    walk = text[text.index("## The map of the house") :]
    files = re.findall(r"`([\w/]+\.py)`", walk)
    assert files[0] == "cli/main.py"
    assert "report/page.py" in files
    assert not [name for name in files if not (ROOT / "src/icda" / name).is_file()]


PROMISES = [ROOT / "SECURITY.md", *(DOCS / f"{name}.md" for name in ("evidence/reliability", "fit", "scale"))]


@pytest.mark.parametrize("page", PROMISES, ids=lambda page: page.name)
def test_the_test_beside_a_promise_exists(page):
    known = {
        name for file in (ROOT / "tests").rglob("test_*.py") for name in re.findall(r"def (test_\w+)", file.read_text())
    }
    named = re.findall(r"`(test_\w+)`", page.read_text())
    assert named
    assert [name for name in named if name not in known] == []
