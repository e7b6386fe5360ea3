from __future__ import annotations

import multiprocessing
import time
from pathlib import Path

from icda.bench.claims import claimed


def hold(folder: str, seconds: float, said: str) -> None:
    with claimed(Path(folder)):
        Path(said).write_text("mine")
        time.sleep(seconds)
        Path(said).write_text("done")


def test_a_second_process_waits_for_the_first(tmp_path: Path) -> None:
    said = tmp_path / "said"
    other = multiprocessing.get_context("fork").Process(target=hold, args=(str(tmp_path / "cell"), 0.5, str(said)))
    other.start()
    while not said.exists() or said.read_text() == "":
        time.sleep(0.01)
    with claimed(tmp_path / "cell"):
        assert said.read_text() == "done"
    other.join()


def test_a_killed_process_leaves_no_claim_behind(tmp_path: Path) -> None:
    said = tmp_path / "said"
    other = multiprocessing.get_context("fork").Process(target=hold, args=(str(tmp_path / "cell"), 60.0, str(said)))
    other.start()
    while not said.exists():
        time.sleep(0.01)
    other.kill()
    with claimed(tmp_path / "cell"):
        assert list((tmp_path / "cell").iterdir()) == []
    other.join()
