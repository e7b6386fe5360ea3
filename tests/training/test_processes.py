"""Workers of a pool come to an end with their driver, and in silence."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

DRIVER = """
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from pool_work import work
from icda.engines import process_pool

if __name__ == "__main__":
    with process_pool(2) as pool:
        futures = [pool.submit(work, sys.argv[1], number) for number in range(2)]
        for future in futures:
            future.result()
"""
WORK = """
import os, time
from pathlib import Path

def work(folder, number):
    Path(folder, f"{number}.pid").write_text(str(os.getpid()))
    time.sleep(600)
"""


def is_alive(pid):
    """Whether a process runs; one that waits for its parent to ask how it ended does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until(condition, seconds=60.0):
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.05)


def heed_ctrl_c():
    """What a shell starts in the background ignores Ctrl-C, and so would all its children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_workers_end_with_their_driver(how, tmp_path):
    (tmp_path / "pool_work.py").write_text(WORK)
    (tmp_path / "driver.py").write_text(DRIVER)
    driver = subprocess.Popen(
        [sys.executable, str(tmp_path / "driver.py"), str(tmp_path), str(tmp_path)],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=heed_ctrl_c,
    )
    wait_until(lambda: len(list(tmp_path.glob("*.pid"))) == 2 and all(p.read_text() for p in tmp_path.glob("*.pid")))
    workers = [int(path.read_text()) for path in tmp_path.glob("*.pid")]
    assert all(map(is_alive, workers))
    started = time.monotonic()
    if how == signal.SIGINT:
        os.killpg(driver.pid, signal.SIGINT)  # as a terminal does: to the driver and its workers
    else:
        driver.kill()
    _, complaints = driver.communicate(timeout=60)
    wait_until(lambda: not any(map(is_alive, workers)))
    assert time.monotonic() - started < 30
    # At Ctrl-C one traceback: the driver's own, which `icda` turns into a sentence.
    assert complaints.count("Traceback") == (how == signal.SIGINT)
    assert "Process SpawnProcess" not in complaints
