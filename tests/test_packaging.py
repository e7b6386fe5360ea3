"""What strangers expect beside the code: a Dockerfile that is one, a changelog in the usual form, templates that parse."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

import icda

ROOT = Path(__file__).parents[1]
CHANGES = (ROOT / "CHANGELOG.md").read_text()


def test_the_dockerfile_passes_dockers_own_check():
    if shutil.which("docker") is None:
        pytest.skip("THE DOCKERFILE WAS NOT CHECKED: docker is not installed.")
    ready = subprocess.run(["docker", "buildx", "inspect"], capture_output=True, text=True, timeout=60)
    if ready.returncode:
        pytest.skip("THE DOCKERFILE WAS NOT CHECKED: no docker daemon with buildx answers.")
    done = subprocess.run(["docker", "build", "--check", str(ROOT)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def test_what_the_dockerfile_copies_is_there_and_not_ignored():
    copied = re.findall(r"^COPY (.+) \S+$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    names = [name for line in copied for name in line.split()]
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert {"pyproject.toml", "src"} <= set(names) <= kept
    assert all((ROOT / name).exists() for name in names)


def test_the_changelog_begins_with_what_is_unreleased_and_gives_versions_their_dates():
    versions = re.findall(r"^## (.+)$", CHANGES, re.MULTILINE)
    assert versions[0] == "Unreleased"
    assert all(re.fullmatch(r"\d+\.\d+\.\d+ - \d{4}-\d\d-\d\d", version) for version in versions[1:])
    assert versions[1].startswith(f"{icda.__version__} ")


def test_a_version_has_each_kind_of_change_once_and_only_the_usual_kinds():
    for part in CHANGES.split("\n## ")[1:]:
        kinds = re.findall(r"^### (.+)$", part, re.MULTILINE)
        assert len(kinds) == len(set(kinds)), part.splitlines()[0]
        assert set(kinds) <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


@pytest.mark.parametrize("path", sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml")), ids=lambda path: path.stem)
def test_an_issue_template_is_a_form(path):
    form = yaml.safe_load(path.read_text())
    if path.stem == "config":
        assert form["blank_issues_enabled"] is True
        return
    assert {"name", "description", "body"} <= set(form)
    assert {part["type"] for part in form["body"]} <= {"markdown", "textarea", "input", "dropdown", "checkboxes"}
    fields = [part["id"] for part in form["body"] if part["type"] != "markdown"]
    assert len(fields) == len(set(fields)) > 0
