"""SIGKILL, which no handler sees, at any moment: resumed until done, a training ends bit-identical."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from icda.cli.main import main

OPTIONS = ["--task", "digits_lt", "--epochs", "6", "--batch-size", "64", "--checkpoint-every", "1"]
METHODS = {
    "icda": ["--method", "icda", "--selection", "validation_accuracy"],
    "risda_two_stage": ["--method", "risda_two_stage", "--set", "first_stage=0.5"],
}


def environment():
    return {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}


@pytest.mark.parametrize("method", METHODS)
def test_a_training_killed_at_many_moments_ends_bit_identical(method, tmp_path, assert_same_run):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    command = [sys.executable, "-P", str(Path(__file__).with_name("killed.py")), str(whole), str(killed), "0"]
    done = subprocess.run(
        [*command, *OPTIONS, *METHODS[method]], env=environment(), capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert int(re.findall(r"killed (\d+)", done.stdout)[0]) >= 1
    assert_same_run(whole, killed)
    assert not list(killed.glob(".*.part"))


def test_the_command_itself_killed_in_start_up_and_in_writing_ends_bit_identical(tmp_path, assert_same_run):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    words = ["train", *OPTIONS, *METHODS["icda"], "--quiet"]
    command = [sys.executable, "-m", "icda.cli.main", *words, "--resume", "--out", str(killed)]

    def start():
        return subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    process = start()
    time.sleep(0.5)
    process.kill()
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    process = start()
    while not ((killed / "checkpoint.pt").exists() and any(killed.glob(".*.part"))) and process.poll() is None:
        time.sleep(0.001)
    process.kill()
    process.communicate(timeout=60)
    assert process.returncode in (-signal.SIGKILL, 0)
    process = start()
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as in the command: sums may round otherwise with more of them
    try:
        assert main([*words, "--out", str(whole)]) == 0
    finally:
        torch.set_num_threads(threads)
    assert_same_run(whole, killed)
