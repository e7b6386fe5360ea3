"""The two themes, held to numbers: contrast by WCAG 2.1, colours that people who see fewer of them can tell apart."""

import importlib.resources
import itertools
import re

import numpy as np
import pytest

from icda.report.markup import style_sheet

STYLE = style_sheet((importlib.resources.files("icda.report") / "style.css").read_text(encoding="utf-8"))
# Machado, Oliveira & Fernandes 2009, full severity, for linear RGB.
BLINDNESS = {
    "none": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}


def variables(block):
    return dict(re.findall(r"--([\w-]+): ([^;]+);", block))


LIGHT = variables(re.search(r"^:root \{(.*?)^\}", STYLE, re.DOTALL | re.MULTILINE)[1])
DARK = variables(re.search(r'^:root\[data-theme="dark"\] \{(.*?)^\}', STYLE, re.DOTALL | re.MULTILINE)[1])
SYSTEM_DARK = variables(re.search(r':root:not\(\[data-theme="light"\]\) \{(.*?)\}', STYLE, re.DOTALL | re.MULTILINE)[1])
THEMES = pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])


def colour(text):
    if text.startswith("#"):
        return np.array([int(text[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.array([int(part) for part in text.split()[:3]]) / 255


def linear(rgb):
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def contrast(first, second):
    bright, dark = sorted((float(linear(c) @ [0.2126, 0.7152, 0.0722]) for c in (first, second)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def lab(rgb_linear):
    matrix = [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
    ratios = np.clip(np.asarray(matrix) @ rgb_linear / [0.95047, 1.0, 1.08883], 0, None)
    f = np.where(ratios > 216 / 24389, np.cbrt(ratios), (24389 / 27 * ratios + 16) / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def test_print_and_reduced_motion_have_rules():
    assert all(rule in STYLE for rule in ("@media print", "prefers-reduced-motion", "prefers-color-scheme: dark"))


def test_the_switch_and_the_system_give_the_same_dark():
    assert SYSTEM_DARK == DARK
    assert set(DARK) == set(LIGHT)


@THEMES
@pytest.mark.parametrize("ink", ["ink", "soft", "accent", "warm", "good", "bad"])
@pytest.mark.parametrize("ground", ["paper", "panel"])
def test_text_has_the_contrast_of_wcag_aa(theme, ink, ground):
    assert contrast(colour(theme[ink]), colour(theme[ground])) >= 4.5


@THEMES
def test_the_tip_can_be_read(theme):
    assert contrast(colour(theme["tip-ink"]), colour(theme["tip"])) >= 4.5


@THEMES
@pytest.mark.parametrize("shade", ["accent-rgb", "warm-rgb"])
def test_numbers_stay_readable_on_the_deepest_shade(theme, shade):
    depth = max(float(value) for value in re.findall(r"--depth: ([\d.]+)", STYLE))
    ground = depth * colour(theme[shade]) + (1 - depth) * colour(theme["paper"])
    assert contrast(colour(theme["ink"]), ground) >= 4.5


@THEMES
def test_lines_and_the_edges_of_controls_stand_out_from_the_paper(theme):
    for name in (*(f"series-{i}" for i in range(8)), "strong-line"):
        assert contrast(colour(theme[name]), colour(theme["paper"])) >= 3, name


@THEMES
@pytest.mark.parametrize("seen_by", BLINDNESS)
def test_lines_and_right_and_wrong_differ_for_every_eye(theme, seen_by):
    def seen(name: str) -> np.ndarray:
        return lab(np.clip(np.asarray(BLINDNESS[seen_by]) @ linear(colour(theme[name])), 0, 1))

    for first, second in itertools.combinations([f"series-{i}" for i in range(8)], 2):
        assert np.linalg.norm(seen(first) - seen(second)) >= 14, (first, second)
    assert np.linalg.norm(seen("accent") - seen("warm")) >= 20


def test_every_line_style_has_a_dash_of_its_own():
    dashes = [re.search(rf"^\.series-{i} \{{([^}}]*)\}}", STYLE, re.MULTILINE)[1] for i in range(1, 8)]
    patterns = [re.search(r"stroke-dasharray: ([\d ]+)|stroke-width", text)[0] for text in dashes]
    assert len(set(patterns)) == len(patterns)
