"""SIGKILL, which no handler sees, at any moment: resumed until done, a training ends bit-identical."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

OPTIONS = ["--task", "digits_lt", "--epochs", "6", "--batch-size", "64", "--checkpoint-every", "1"]
METHODS = {
    "icda": ["--method", "icda", "--selection", "validation_accuracy"],
    "risda_two_stage": ["--method", "risda_two_stage", "--set", "first_stage=0.5"],
}


def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}


@pytest.fixture(scope="module")
def tormented(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, Path, int]]:
    """Folders of an undisturbed run and of one that was killed many times, and how often."""
    made: dict[str, tuple[Path, Path, int]] = {}

    def run(method: str) -> tuple[Path, Path, int]:
        if method not in made:
            base = tmp_path_factory.mktemp(method)
            script = str(Path(__file__).with_name("killed.py"))
            command = [sys.executable, "-P", script, str(base / "whole"), str(base / "killed"), "0"]
            done = subprocess.run(
                [*command, *OPTIONS, *METHODS[method]], env=environment(), capture_output=True, text=True, timeout=120
            )
            assert done.returncode == 0, done.stderr
            made[method] = base / "whole", base / "killed", int(re.findall(r"killed (\d+)", done.stdout)[0])
        return made[method]

    return run


@pytest.mark.parametrize("method", METHODS)
def test_a_training_killed_at_many_moments_ends_bit_identical(
    method: str,
    tormented: Callable[[str], tuple[Path, Path, int]],
    assert_same_run: Callable[[Path, Path], None],
) -> None:
    whole, killed, kills = tormented(method)
    assert kills >= 1
    assert_same_run(whole, killed)
    assert not list(killed.glob(".*.part"))


def test_the_command_itself_killed_in_start_up_and_in_writing_ends_bit_identical(
    tmp_path: Path,
    tormented: Callable[[str], tuple[Path, Path, int]],
    assert_same_run: Callable[[Path, Path], None],
) -> None:
    out = tmp_path / "killed"
    words = ["train", *OPTIONS, *METHODS["icda"], "--resume", "--out", str(out), "--quiet"]
    command = [sys.executable, "-m", "icda.cli.main", *words]

    def start() -> subprocess.Popen[str]:
        return subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    process = start()
    time.sleep(0.5)
    process.kill()
    assert process.wait(timeout=60) == -signal.SIGKILL
    process = start()
    while not ((out / "checkpoint.pt").exists() and any(out.glob(".*.part"))) and process.poll() is None:
        time.sleep(0.001)
    process.kill()
    process.communicate(timeout=60)
    assert process.returncode in (-signal.SIGKILL, 0)
    process = start()
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, output
    assert_same_run(tormented("icda")[0], out)
