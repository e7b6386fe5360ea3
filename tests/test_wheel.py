"""What a user installs: a wheel, in an environment that knows icda from nowhere else."""

import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from icda import __version__
from icda.cli.demo import METHODS, TASKS

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src/icda"


def run(*command, folder, environment=None):
    """What a command prints; its complaints if it fails."""
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", out, folder=ROOT)
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """The bin folder of an environment with icda from the wheel and everything else, torch above all, from ours.

    A path in a .pth file is searched without its own .pth files, so the checkout, which is installed here through one,
    stays invisible. The wheel is installed first: pip would see ours through that path and leave it at that.
    """
    folder = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", "--without-pip", folder, folder=folder)
    python = folder / "bin/python"
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-index", "--no-deps")
    run(*pip, wheel, folder=folder)
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = Path(run(python, "-c", where, folder=folder).strip())
    (packages / "everything_else.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python.parent


def without_the_checkout():
    """Our environment without the variables through which Python would find the source tree."""
    hidden = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "COLUMNS")
    return {name: value for name, value in os.environ.items() if name not in hidden} | {"OMP_NUM_THREADS": "1"}


def test_the_wheel_holds_every_file_of_the_package_and_nothing_else(wheel):
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    files = [path for path in PACKAGE.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert names == {f"icda/{path.relative_to(PACKAGE).as_posix()}" for path in files}
    for kind in ("py.typed", "report/style.css", "report/script.js", "clusters/tiny_imagenet.npz"):
        assert any(name.endswith(kind) for name in names), kind


def test_the_wheel_says_what_packagers_ask(wheel):
    archive = zipfile.ZipFile(wheel)
    (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    said = Parser().parsestr(archive.read(name).decode())
    assert (said["Name"], said["Version"]) == ("icda", __version__)
    assert said["Requires-Python"] == ">=3.11"
    kinds = said.get_all("Classifier", [])
    assert "Typing :: Typed" in kinds
    assert {f"Programming Language :: Python :: 3.{minor}" for minor in (11, 12, 13)} <= set(kinds)
    assert "Paper, https://arxiv.org/abs/2304.13431" in said.get_all("Project-URL", [])


def test_the_installed_wheel_runs_the_quick_demo_without_the_checkout(installed, tmp_path):
    ours = without_the_checkout()
    where = run(installed / "python", "-c", "import icda; print(icda.__file__)", folder=tmp_path, environment=ours)
    assert Path(where.strip()).is_relative_to(installed.parent)
    assert run(installed / "icda", "--version", folder=tmp_path, environment=ours) == f"icda {__version__}\n"
    words = ("demo", "--quick", "--epochs", 1, "--jobs", 1)
    said = run(installed / "icda", *words, folder=tmp_path, environment=ours)
    assert said.startswith("A quick look, 1 seed(s) of 1 epochs")
    results = [json.loads(path.read_text()) for path in (tmp_path / "runs/demo-quick").rglob("result.json")]
    assert f"{len(results)} models in" in said
    assert len(results) == len(TASKS) * len(METHODS)
    assert {result["environment"]["commit"] for result in results} == {None}, "it ran from a checkout"
    assert "<html" in (tmp_path / "runs/demo-quick/report.html").read_text()


def test_the_citation_names_the_version_that_is_built():
    yaml = pytest.importorskip("yaml")
    said = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert str(said["version"]) == __version__
    assert said["preferred-citation"]["url"].endswith("2304.13431")
