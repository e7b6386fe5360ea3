"""A package of plugins, installed by pip as a user's would be, and the command run where it is installed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from icda import plugins
from icda.cli import COMMANDS
from icda.data import TASKS
from icda.losses import LOSSES
from icda.methods import METHODS
from icda.metrics import METRICS
from icda.models import MODELS
from icda.registry import Registry
from icda.selection import SELECTION_RULES

HERE = Path(__file__).parent
EXAMPLE = HERE / "example_package"
collect_ignore = ["example_package"]  # not ours to import: it is what the tests install
REGISTRIES: tuple[Registry, ...] = (METHODS, LOSSES, TASKS, MODELS, METRICS, SELECTION_RULES, COMMANDS)


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """A folder into which pip installed the example package, without a network."""
    source, target = tmp_path_factory.mktemp("source") / "package", tmp_path_factory.mktemp("site")
    shutil.copytree(EXAMPLE, source)  # a build leaves files beside the sources
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check", "--no-compile"]
    command = [sys.executable, "-m", "pip", "install", "-q", *options, "--target", str(target), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return target


@pytest.fixture
def run_where_installed(site, tmp_path):
    """`run_where_installed(script, *words)`: what a script printed in a process that finds the example package."""
    path = os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    settings = {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "COLUMNS": "200"}

    def run(script: Path, *words: object) -> str:
        command = [sys.executable, "-P", str(script), *map(str, words)]
        environment = {**os.environ, **settings}
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


@pytest.fixture
def forget():
    """`forget()`: this process has never loaded a plugin; done after the test anyway."""
    known = [(registry, _contents(registry)) for registry in REGISTRIES]
    earlier = set(sys.modules)

    def reset() -> None:
        for registry, contents in known:
            for name, values in contents.items():
                getattr(registry, name).clear()
                getattr(registry, name).update(values)
        for name in set(sys.modules) - earlier:
            if name.startswith(plugins.FILE_MODULE):
                del sys.modules[name]
        plugins._given.clear()
        plugins._versions.clear()

    yield reset
    reset()


def _contents(registry):
    list(registry)  # the first look-up fills it
    return {name: dict(getattr(registry, name)) for name in ("_entries", "_aliases", "_owners", "_offers")}
