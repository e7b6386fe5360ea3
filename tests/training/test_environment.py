import json
import platform
import subprocess

import pytest
import torch

from icda import __version__
from icda.training import environment
from icda.training.environment import describe_environment


def test_versions_machine_and_threads_are_those_of_this_process() -> None:
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
def test_without_git_the_commit_is_unknown_and_nothing_fails(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(environment.subprocess, "run", fail)
    assert describe_environment()["commit"] is None
