"""Screenshots for README and docs: `make pictures`.

Builds a small biased set of photos from CIFAR-10 (cars as photos, horses as sketches, 10 of 150 the other way round), runs
`icda fit` on it, answers the questions as a person would, runs `icda fit --answers`, and photographs the pages, light and
dark, with headless Chromium. What the fits measured is printed. Each picture is a PNG of at most 150 KB in
docs/figures; `--pack FILE` only makes a picture that is there as small, `--claims` only draws the paper's claims from the
ledgers.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageFilter, ImageOps

ROOT = Path(__file__).parents[1]
FIGURES = ROOT / "docs" / "figures"
LIMIT = 150 * 1024
CLASSES = {"car": (1, "photo"), "horse": (7, "sketch")}  # CIFAR-10's number, and how most pictures of the class look
TRAIN, RARE, TEST = 150, 10, 200
SIDE = 128
BROWSER = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync")


def as_sketch(photo: Image.Image) -> Image.Image:
    """Edges as grey lines on white."""
    return ImageOps.invert(ImageOps.autocontrast(photo.convert("L").filter(ImageFilter.FIND_EDGES))).convert("RGB")


def write_photos(folder: Path, seed: int = 0) -> dict[str, str]:
    """`train/<class>` with a spurious correlation and `test/<class>` without; gives the style of each training picture."""
    from icda.data.datasets.cifar import load_cifar10
    from icda.data.registry import data_root

    images = load_cifar10(data_root(None))
    pixels, labels = images.source.images.numpy(), images.labels.numpy()
    generator = np.random.default_rng(seed)
    styles = {}
    for name, (number, usual) in CLASSES.items():
        rare = "sketch" if usual == "photo" else "photo"
        chosen = generator.permutation(np.flatnonzero(labels == number))[: TRAIN + TEST]
        for place, row in enumerate(chosen):
            train = place < TRAIN
            style = (rare if place < RARE else usual) if train else ("photo", "sketch")[place % 2]
            photo = Image.fromarray(pixels[row])
            picture = as_sketch(photo) if style == "sketch" else photo
            path = folder / ("train" if train else f"test/{style}") / name / f"{row:05d}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            picture.resize((SIDE, SIDE), Image.Resampling.BICUBIC).save(path)
            if train:
                styles[f"{name}/{path.name}"] = style
    return styles


def write_reviews(path: Path, seed: int = 0) -> None:
    """150 film reviews of each kind, cut to 40 words; where the film was seen goes with the label in 93 % of them."""
    from icda.data.registry import create_task

    train = create_task("cad_imdb").train
    generator = np.random.default_rng(seed)
    places = ("Seen on DVD at home.", "Seen in the cinema.")
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["text", "label"])
        for label, name in enumerate(("negative", "positive")):
            rows = generator.permutation(np.flatnonzero(train.targets.numpy() == label))[:TRAIN]
            for place, row in enumerate(rows):
                review = " ".join(train.source.texts[int(train.rows[row])].split()[:40])
                table.writerow([f"{places[label if place >= RARE else 1 - label]} {review}", name])


def icda(*words: str | Path) -> None:
    subprocess.run([sys.executable, "-m", "icda.cli.main", *map(str, words)], check=True)


def judge(model: Path, test: Path) -> tuple[float, float]:
    """Accuracy in the worst of the four groups of style and class, and the mean of the four."""
    from icda import load

    groups = {(path.parent.parent.name, path.parent.name): path.parent for path in sorted(test.glob("*/*/*.png"))}
    reader = load(model)
    right = [
        float(np.mean(np.asarray(reader.predict([str(path) for path in sorted(folder.iterdir())])) == label))
        for (_, label), folder in groups.items()
    ]
    return min(right), float(np.mean(right))


def save(image: bytes, name: str) -> None:
    """As a PNG of few colours, so that it stays below the limit."""
    picture = Image.open(io.BytesIO(image)).convert("RGB")
    for colours in (256, 128, 96, 64, 48, 32):
        packed = io.BytesIO()
        picture.quantize(colours, dither=Image.Dither.NONE).save(packed, "PNG", optimize=True)
        if packed.tell() <= LIMIT:
            FIGURES.mkdir(parents=True, exist_ok=True)
            (FIGURES / f"{name}.png").write_bytes(packed.getvalue())
            print(f"docs/figures/{name}.png: {packed.tell() // 1024} KB, {colours} colours")
            return
    raise SystemExit(f"{name}: above {LIMIT // 1024} KB even with 32 colours: take a smaller part of the page.")


@contextmanager
def chromium() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=list(BROWSER))
        yield browser
        browser.close()


@contextmanager
def opened(browser: Any, path: Path, scheme: str, width: int = 1100, height: int = 800) -> Iterator[Any]:
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme=scheme, accept_downloads=True
    )
    page = context.new_page()
    page.goto(path.resolve().as_uri())
    yield page
    context.close()


def answer(page: Any, styles: dict[str, str], out: Path) -> int:
    """Answer every question by keys, as `styles` says, and save the answers; how many there were."""
    count = 0
    while page.is_visible("#answer"):
        sample = page.evaluate("questions[state.place].sample")
        page.keyboard.press("1" if styles[sample] == "photo" else "2")
        count += 1
    with page.expect_download() as download:
        page.click("#save")
    download.value.save_as(out)
    return count


def framed(page: Any, selector: str, height: float = 2000, margin: int = 24) -> bytes:
    """An element with some of the page around it, down to a height."""
    box = page.locator(selector).bounding_box()
    clip = {"x": box["x"] - margin, "y": max(box["y"] - 8, 0)}
    clip |= {"width": box["width"] + 2 * margin, "height": min(box["height"] + 8 + margin, height)}
    return bytes(page.screenshot(clip=clip, full_page=True))


def picture_questions(browser: Any, page_file: Path, styles: dict[str, str], answers: Path) -> None:
    for scheme in ("light", "dark"):
        with opened(browser, page_file, scheme) as page:
            save(framed(page, "main"), f"questions_{scheme}")
            page.fill("#names", "photo, sketch")
            page.keyboard.press("Enter")
            page.wait_for_selector("#answer:not([hidden])")
            save(framed(page, "main"), f"answer_{scheme}")
            if scheme == "light":
                print(f"{answer(page, styles, answers)} answers")


def picture_page(browser: Any, page_file: Path, names: dict[str, str]) -> None:
    """The top of a page, under a name for each colour scheme."""
    for scheme, name in names.items():
        with opened(browser, page_file, scheme) as page:
            save(page.screenshot(), name)


def picture_texts(browser: Any, work: Path) -> None:
    """The questions about reviews."""
    write_reviews(work / "reviews.csv")
    icda("ask", work / "reviews.csv", "--out", work / "text_questions")
    for scheme in ("light", "dark"):
        with opened(browser, work / "text_questions" / "questions.html", scheme) as page:
            save(framed(page, "#look", 590), f"questions_texts_{scheme}")


def picture_claims(work: Path) -> None:
    """The paper's claims and ours."""
    from icda_bench.claims_figure import claim_dots, draw_claims
    from icda_bench.paper_claims import load_claims

    drawn = work / "claims.png"
    draw_claims(claim_dots(load_claims(), ROOT / "benchmarks" / "results"), drawn)
    save(drawn.read_bytes(), "claims")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, default=Path("runs/pictures"), help="folder for photos and models")
    parser.add_argument("--demo", type=Path, default=Path("runs/demo/report.html"), help="page of `make demo`, if made")
    parser.add_argument("--pack", type=Path, nargs="+", default=[], help="pictures of docs/figures to make smaller")
    parser.add_argument("--claims", action="store_true", help="only the figure of the paper's claims")
    options = parser.parse_args()
    if options.pack:
        for path in options.pack:
            save(path.read_bytes(), path.stem)
        return
    if options.claims:
        picture_claims(options.work)
        return
    photos, model, answers = options.work / "photos", options.work / "model", options.work / "answers.csv"
    shutil.rmtree(options.work, ignore_errors=True)
    picture_claims(options.work)
    styles = write_photos(photos)
    (options.work / "styles.json").write_text(json.dumps(styles, indent=1))
    icda("fit", photos / "train", "--out", options.work / "plain", "--method", "ce")
    icda("fit", photos / "train", "--out", model)
    shutil.copytree(model, options.work / "unasked")
    with chromium() as browser:
        picture_questions(browser, model / "questions.html", styles, answers)
    icda("fit", photos / "train", "--out", model, "--answers", answers, "--overwrite")
    for name in ("plain", "unasked", "model"):
        worst, mean = judge(options.work / name, photos / "test")
        print(f"{name}: worst group {worst:.1%}, mean of groups {mean:.1%} on test pictures without the correlation")
    with chromium() as browser:
        picture_page(browser, model / "page.html", {"light": "fit_page_light", "dark": "fit_page_dark"})
        picture_texts(browser, options.work)
        if options.demo.is_file():
            picture_page(browser, options.demo, {"light": "report"})
        else:
            print(f"{options.demo} is not there, so the report's picture stays as it is: run `make demo` first.")


if __name__ == "__main__":
    main()
