import json
import platform
import subprocess
from pathlib import Path

import pytest
import torch

from icda import __version__
from icda.training import environment
from icda.training.environment import describe_environment


def test_versions_machine_and_threads_are_those_of_this_process():
    found = describe_environment()
    assert (found["icda"], found["torch"], found["python"]) == (
        __version__,
        torch.__version__,
        platform.python_version(),
    )
    assert found["threads"] == torch.get_num_threads()
    assert found["cores"] >= 1
    assert json.loads(json.dumps(found)) == found


@pytest.mark.parametrize("error", [FileNotFoundError("git"), subprocess.TimeoutExpired("git", 5)])
def test_without_git_the_commit_is_unknown_and_nothing_fails(error, monkeypatch):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(environment.subprocess, "run", fail)
    assert describe_environment()["commit"] is None


def git(folder, *words):
    who = ["-c", "user.name=a", "-c", "user.email=a@b.example", "-c", "commit.gpgsign=false"]
    return subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


def place_source(path):
    path.parent.mkdir(parents=True)
    path.write_text(Path(environment.__file__).read_text())
    return path


def test_the_commit_is_that_of_icdas_own_tree(tmp_path):
    source = place_source(tmp_path / environment.SOURCE)
    git(tmp_path, "init", "--quiet")
    assert environment._commit(source) is None  # nothing is committed
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "-m", "all")
    assert environment._commit(source) == git(tmp_path, "rev-parse", "--short=12", "HEAD")
    source.write_text("changed")
    assert environment._commit(source) == git(tmp_path, "rev-parse", "--short=12", "HEAD") + "-dirty"


@pytest.mark.parametrize("committed", [False, True])
def test_the_commit_of_a_project_that_icda_is_installed_in_is_not_icdas(committed, tmp_path):
    git(tmp_path, "init", "--quiet")
    (tmp_path / "theirs.py").write_text("")
    source = place_source(tmp_path / ".venv/lib/python3.11/site-packages/icda/training/environment.py")
    git(tmp_path, "add", "." if committed else "theirs.py")
    git(tmp_path, "commit", "--quiet", "-m", "theirs")
    assert environment._commit(source) is None


def test_the_code_is_another_when_a_file_changes_its_content_or_its_name(tmp_path):
    (tmp_path / "part").mkdir()
    (tmp_path / "part" / "a.py").write_text("x = 1")
    found = []
    for change in (None, "content", "name", "other"):
        if change == "content":
            (tmp_path / "part" / "a.py").write_text("x = 2")
        elif change == "name":
            (tmp_path / "part" / "a.py").rename(tmp_path / "part" / "b.py")
        elif change == "other":
            (tmp_path / "notes.txt").write_text("no code")
        found.append(environment.code_hash.__wrapped__(tmp_path))
    assert len(set(found[:3])) == 3
    assert found[2] == found[3]
    assert describe_environment()["code"] == environment.code_hash()
