"""From a person's answers to the repaired model: the table, the page, the server, the command."""

import csv
import io
import json
import os
import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import icda
from icda.cli.ask import main as ask_main
from icda.cli.fit import main as fit_main
from icda.data.embedding.samples import Reads, Samples
from icda.errors import InputError
from icda.serving.answers import SampleAnswer, parse_answers, read_answers, with_answers, write_answers
from icda.serving.contrast import differing_pictures, differing_texts
from icda.serving.model import load
from icda.serving.questions import QuestionMaker, make_app, render_questions

EVIL = "</script><script>alert(1)</script>"


@pytest.fixture
def biased(tmp_path, made, monkeypatch):
    """A file of features with a shortcut in the current folder, and the attribute behind it."""
    monkeypatch.chdir(tmp_path)
    X, y, attribute = made.shortcut(600)
    np.savez(tmp_path / "biased.npz", features=X, y=np.array(["cat", "dog"])[y], names=[f"s{k}" for k in range(600)])
    return tmp_path / "biased.npz", attribute


def test_a_table_comes_back_as_it_was_whatever_the_names_are(tmp_path):
    given = {name: SampleAnswer(group, label) for name, group, label in (
        ("=1+1", "-cold", ""), ('a "b", c', "photo", "dog"), ("line\nbreak", "", "@x"), (EVIL, "sketch", ""),
    )}  # fmt: skip
    write_answers(tmp_path / "answers.csv", given)
    read = read_answers(tmp_path / "answers.csv")
    assert list(read.values()) == list(given.values())
    assert "\n=1+1" not in (tmp_path / "answers.csv").read_text(), "a spreadsheet would take it for a formula"
    labels = np.array(["dog", "@x", "cat", "cat"])
    data = Samples(Reads("features", 2), list(given), features=np.zeros((4, 2)), labels=labels)
    known = with_answers(data, read, "answers.csv")
    assert known.groups.tolist() == ["-cold", "photo", None, "sketch"]
    assert known.labels.tolist() == ["dog", "dog", "@x", "cat"]


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ("sample,kind\na,b\n", "no column 'group'"),
        ("sample,group\na,b\na,c\n", "answered before"),
        ("sample,group\nnobody,b\n", "'nobody'"),
        ("sample,group,label\na,,emu\n", "'emu', which is no class"),
    ],
)
def test_answers_that_do_not_fit_the_data_are_refused(table, why):
    data = Samples(Reads("features", 2), ["a", "b"], features=np.zeros((2, 2)), labels=np.array(["cat", "dog"]))
    with pytest.raises(InputError, match=why):
        with_answers(data, parse_answers(io.StringIO(table), "answers.csv"), "answers.csv")


def test_from_fit_over_answers_to_a_better_model(biased, made, capsys):
    _, attribute = biased
    assert fit_main(["biased.npz", "--out", "model", "--method", "la"]) == 0
    assert "icda ask model" in capsys.readouterr().out
    plain = load(Path("model"))
    page = Path("model/questions.html").read_text()
    asked = json.loads(page.partition('id="payload">')[2].partition("</script>")[0])
    assert len(asked["questions"]) == 24
    assert asked["command"] == "icda fit biased.npz --out model --method la --answers answers.csv --overwrite"
    rows = [int(one["sample"][1:]) for one in asked["questions"]]
    answers = {f"s{row}": SampleAnswer(("land", "sea")[attribute[row]]) for row in rows}
    write_answers(Path("answers.csv"), answers)
    assert fit_main(["biased.npz", "--out", "model", "--answers", "answers.csv", "--overwrite"]) == 0
    said = capsys.readouterr().out
    assert "known for 24 of 600" in said.replace("\n", " ")
    model = load(Path("model"))
    assert model.facts["treatment"]["name"] == "group_prior"
    assert read_answers(Path("model/answers.csv")) == answers
    X, y, where = made.shortcut(3000, 5)
    labels = np.array(["cat", "dog"])[y]
    against = where != y
    assert (model.predict(X) == labels)[against].mean() > (plain.predict(X) == labels)[against].mean() + 0.1
    capsys.readouterr()
    assert ask_main(["model"]) == 0, "the model knows its data, and its answers"
    assert "Next: icda fit biased.npz --out model --answers model/answers.csv" in capsys.readouterr().out
    more = Path("model/questions.html").read_text().partition('id="payload">')[2].partition("</script>")[0]
    assert not {one["sample"] for one in json.loads(more)["questions"]} & set(answers)


def test_a_model_shows_no_data_from_elsewhere(biased, tmp_path):
    fit_main(["biased.npz", "--out", "deep/model", "--method", "ce"])
    noted = json.loads(Path("deep/model/source.json").read_text())
    Path("elsewhere").mkdir()
    os.chdir("elsewhere")
    noted["data"] = "../../biased.npz"
    Path("../deep/model/source.json").write_text(json.dumps(noted))
    with pytest.raises(InputError, match="neither here nor beside"):
        ask_main(["../deep/model"])


def make_maker(folder, classes=2, count=120):
    """Pictures with hostile names; red in one half, grey in the other."""
    generator = np.random.default_rng(0)
    y = np.arange(count) % classes
    X = generator.normal(size=(count, 8)) + 2 * np.eye(8)[y % 8]
    paths = [folder / f"{row}.png" for row in range(count)]
    for row, path in enumerate(paths):
        pixels = generator.integers(0, 90, (20, 30, 3), dtype=np.uint8)
        pixels[:, :, 0] += np.uint8(150 * (row % 2))
        Image.fromarray(pixels).save(path)
    labels = np.array([EVIL, "dog", *(f"class {k}" for k in range(classes))])[:classes][y]
    names = [f"{EVIL}{row}" for row in range(count)]
    return QuestionMaker(Samples(Reads("image", 8), names, inputs=paths, features=X, labels=labels))


def clean(found, label_noise="no"):
    """The audit with another answer about wrong labels."""
    said = replace(found.verdicts["label_noise"], answer=label_noise)
    return replace(found, assessment=replace(found.assessment, verdicts={**found.verdicts, "label_noise": said}))


def test_where_labels_may_be_wrong_a_dozen_are_checked_even_if_nothing_differs(browser, tmp_path):
    maker = make_maker(tmp_path)
    found = clean(icda.audit(maker.data.features, maker.data.labels), "cannot tell")
    path = tmp_path / "questions.html"
    path.write_text(render_questions(maker, found, "icda fit"), encoding="utf-8")
    asked = json.loads(path.read_text().partition('id="payload">')[2].partition("</script>")[0])["questions"]
    assert [one.get("check", False) for one in asked] == [False] * 24 + [True] * 12
    assert len({one["sample"] for one in asked}) == 36
    page = browser.new_page()
    page.goto(path.as_uri())
    page.click("#same")
    assert page.inner_text("#place").startswith("25 of 36")
    other = next(name for name in (EVIL, "dog") if name != asked[24]["label"])
    page.fill("#label", other)
    page.keyboard.press("Enter")
    while page.is_visible("#answer"):
        page.keyboard.press("1")
    assert "36 answers" in page.inner_text("#told")
    corrected = page.evaluate("Object.entries(state.answers).filter(([_, one]) => one.label)")
    assert [(sample, one["label"]) for sample, one in corrected] == [(asked[24]["sample"], other)]
    page.close()


def client_of(app):
    from starlette.testclient import TestClient

    return TestClient(app, base_url="http://127.0.0.1:8000")


def test_the_server_saves_every_answer_asks_on_and_knows_its_own(tmp_path):
    maker, out = make_maker(tmp_path), tmp_path / "answers.csv"
    found = icda.audit(maker.data.features, maker.data.labels)
    page = lambda answers, token: render_questions(maker, found, "c", answers, token)  # noqa: E731
    client = client_of(make_app(maker, page, out, "secret"))
    assert client.get("/").status_code == 403
    assert client.post("/answers", content="x").status_code == 403
    assert client.get("/?token=secret", headers={"host": "evil.example"}).status_code == 403
    shown = client.get("/?token=secret")
    assert "connect-src 'self'" in shown.text
    asked = json.loads(shown.text.partition('id="payload">')[2].partition("</script>")[0])["questions"]
    own = {"X-Token": "secret"}
    table = io.StringIO()
    csv.writer(table).writerows(
        [("sample", "group", "label"), *((one["sample"], "ab"[k % 2], "") for k, one in enumerate(asked))]
    )
    assert client.post("/answers", content=table.getvalue(), headers=own).json() == {"saved": 24}
    assert len(read_answers(out)) == 24
    assert client.post("/answers", content="nothing", headers=own).status_code == 400
    assert len(read_answers(out)) == 24, "what was saved stays"
    more = client.post("/next", headers=own).json()
    assert len(more["questions"]) == 12
    assert not {one["sample"] for one in more["questions"]} & {one["sample"] for one in asked}


@pytest.mark.parametrize(("classes", "width"), [(2, 1280), (2, 390), (1000, 1280)])
def test_a_person_answers_in_a_browser_with_keys_and_mouse_and_loses_nothing(browser, tmp_path, classes, width):
    maker = make_maker(tmp_path, classes, count=max(120, 2 * classes))
    path = tmp_path / "questions.html"
    found = clean(icda.audit(maker.data.features, maker.data.labels))
    path.write_text(render_questions(maker, found, EVIL), encoding="utf-8")
    context = browser.new_context(viewport={"width": width, "height": 800}, accept_downloads=True)
    complaints = []
    page = context.new_page()
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("dialog", lambda dialog: (complaints.append(dialog.message), dialog.dismiss()))
    page.goto(path.as_uri())
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.fill("#names", "photo")
    page.keyboard.press("Enter")
    assert "Two to nine" in page.inner_text("#naming-note")
    page.fill("#names", "photo, =sketch")
    page.keyboard.press("Enter")
    page.keyboard.press("1")
    page.keyboard.press("Space")
    page.click("#values button:nth-child(2)")
    page.keyboard.press("Backspace")
    assert "chosen" in page.get_attribute("#values button:nth-child(2)", "class")
    page.fill("#label", "nonsense")
    page.keyboard.press("Enter")
    page.keyboard.press("2")
    assert page.inner_text("#place").startswith("3 of"), "there is no such class: nothing was taken"
    page.fill("#label", "dog")
    page.keyboard.press("Enter")
    page.keyboard.press("1")
    page.wait_for_timeout(500)  # what a page stores is written a moment later
    page.close()
    page = context.new_page()
    page.goto(path.as_uri())
    assert page.inner_text("#place").startswith("4 of"), "a closed tab loses nothing"
    while page.is_visible("#answer"):
        page.keyboard.press("1")
    with page.expect_download() as download:
        page.click("#save")
    download.value.save_as(tmp_path / "answers.csv")
    answers = list(read_answers(tmp_path / "answers.csv").values())
    assert len(answers) == 24
    assert answers[0] == SampleAnswer("photo")
    assert answers[1] == SampleAnswer("")
    assert answers[2].group == "photo"
    with_answers(maker.data, read_answers(tmp_path / "answers.csv"), "answers.csv")
    page.click("#forget")
    page.click("#same")
    assert "24 answers" in page.inner_text("#told")
    assert complaints == []
    context.close()


def test_differences_are_named_in_words(tmp_path):
    make_maker(tmp_path, count=20)
    red, grey = ([tmp_path / f"{row}.png" for row in range(first, 20, 2)] for first in (1, 0))
    assert "redder" in differing_pictures(red, grey)
    assert "darker" in differing_pictures(grey, red)
    assert differing_pictures(grey, grey) == ""
    assert differing_texts(["a book", "the book"], ["the book", "a book"]) == ""
    assert differing_texts(["it wasn't he", "wasn't there"], ["it was", "there"] * 2) == "wasn't", "one word"


def test_rows_of_a_table_show_the_columns_that_differ_and_a_test_part_is_not_looked_at():
    generator = np.random.default_rng(0)
    y = np.arange(200) % 2
    X = generator.normal(size=(200, 5))
    X[:, 0] += 3 * y
    X[:, 3] = np.where(generator.random(200) < 0.1, 1 - y, y) * 5
    test = np.arange(200) >= 150
    names = [f"row {k}" for k in range(200)]
    reads = Reads("features", 5, columns=("a", "b", "c", "d", "e"))
    splits = np.where(test, "test", "train")
    maker = QuestionMaker(Samples(reads, names, features=X, labels=np.array(["no", "yes"])[y], splits=splits))
    asked = maker.ask({}, 24)
    cards = maker.cards(asked)
    assert 1 <= len(cards[0]["cells"]) <= 5
    assert all(name in reads.columns for name, _ in cards[0]["cells"])
    assert "d lower" in maker.strips(asked)[1]["words"] or "d higher" in maker.strips(asked)[1]["words"]
    assert {card["sample"] for card in cards} <= set(names[:150])


def test_the_next_fit_is_asked_for_what_the_first_was(biased, capsys):
    archive = dict(np.load("biased.npz"))
    label = next(name for name in archive if archive[name].ndim == 1)
    features = next(name for name in archive if archive[name].ndim == 2)
    archive["kind of"], archive["kept"] = archive[label], np.ones(len(archive[label]), dtype=int)
    np.savez("named.npz", **archive)
    words = ["--features", features, "--labels", "kind of", "--where", "kept=1"]
    assert fit_main(["named.npz", *words, "--method", "ce", "--out", "model"]) == 0
    capsys.readouterr()
    assert ask_main(["model"]) == 0
    said = capsys.readouterr().out.partition("Next: ")[2].strip()
    begun = ["icda", "fit", "named.npz", *words, "--out", "model"]
    assert shlex.split(said)[: len(begun)] == begun
