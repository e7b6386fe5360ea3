"""Blocks of rows here and on Ray: the same head, whoever dies on the way. One Ray serves all tests of this file."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from icda.auditing.run import AuditSettings, audit_blocks
from icda.cli.audit import main as audit_main
from icda.cli.embed import local_jobs
from icda.cli.fit import main
from icda.data.embedding import embed
from icda.data.embedding.samples import Columns
from icda.data.own.blocks import find_blocks
from icda.data.own.reading import read_samples
from icda.engines import Here, Processes, make_engine, start_ray
from icda.errors import InputError, OperationError
from icda.heads.block_problem import BlockProblem
from icda.heads.blocks import BlockRows
from icda.heads.problem import LossSettings
from icda.heads.solver import fit_head
from icda.serving.model import load


@pytest.fixture
def files(tmp_path):
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 3, 400)
    features = generator.normal(size=(400, 5)) + 0.6 * labels[:, None]
    paths = tmp_path / "features.npy", tmp_path / "labels.npy"
    np.save(paths[0], features)
    np.save(paths[1], labels)
    return paths


@pytest.fixture
def folder(files, tmp_path):
    """The same rows in two Parquet files, the features in single precision."""
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    features, labels = np.load(files[0]).astype(np.float32), np.load(files[1])
    folder = tmp_path / "parquet"
    folder.mkdir()
    for k, rows in enumerate((slice(0, 150), slice(150, 400))):
        table = arrow.table({"embedding": list(features[rows]), "label": labels[rows]})
        parquet.write_table(table, folder / f"{k}.parquet", row_group_size=100)
    return folder


def fit_blocks(blocks, settings, engine=None):
    rows = BlockRows.gather(blocks, engine, full=settings.name == "icda", dtype=torch.float64)
    return fit_head(BlockProblem(rows, 1 / rows.shape[0]), settings, 200, 1e-7)


def test_results_come_in_the_order_of_the_items(ray_engine):
    assert list(ray_engine.each(pow, range(9), 2)) == list(Here().each(pow, range(9), 2))


@pytest.mark.parametrize("name", ["la", "icda"])
def test_ray_finds_the_head_of_one_process(files, ray_engine, name):
    blocks = find_blocks(files[0], Columns(labels=str(files[1])), block_bytes=5 * 8 * 90)
    assert [len(block) for block in blocks] == [90, 90, 90, 90, 40]
    settings = LossSettings(name)
    heads = [fit_blocks(list(blocks), settings, engine) for engine in (Here(), ray_engine)]
    np.testing.assert_allclose(heads[0].weight, heads[1].weight, atol=1e-9)
    assert heads[0].iterations == heads[1].iterations


class Mortal:
    """A block that kills the process that reads it, once."""

    def __init__(self, block: Any, marker: Path) -> None:
        self.block, self.marker = block, marker

    def __len__(self) -> int:
        return len(self.block)

    def labels(self) -> np.ndarray:
        labels: np.ndarray = self.block.labels()
        return labels

    def read(self) -> tuple[np.ndarray, np.ndarray]:
        rows: tuple[np.ndarray, np.ndarray] = self.block.read()
        if not self.marker.exists():
            self.marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return rows


def test_a_killed_worker_costs_its_block_and_not_the_fit(files, tmp_path, ray_engine):
    blocks: list[Any] = list(find_blocks(files[0], Columns(labels=str(files[1])), block_bytes=5 * 8 * 90))
    whole = fit_blocks(blocks, LossSettings("icda"))
    marker = tmp_path / "dead"
    mortal = [*blocks[:2], Mortal(blocks[2], marker), *blocks[3:]]
    found = fit_blocks(mortal, LossSettings("icda"), ray_engine)
    assert marker.exists(), "a worker must have been killed"
    np.testing.assert_allclose(found.weight, whole.weight, atol=1e-9)


def test_what_the_work_refuses_is_said_as_it_would_be_here(ray_engine):
    with pytest.raises(InputError, match="refused"):
        list(ray_engine.each(refuse, [1]))


def refuse(_):
    raise InputError("refused")


def test_a_folder_of_parquet_gives_the_head_of_the_array(files, folder, tmp_path):
    blocks = find_blocks(folder, Columns(features="embedding"))
    assert [len(block) for block in blocks] == [100, 50, 100, 100, 50]
    found = fit_blocks(list(blocks), LossSettings("la"))
    np.save(tmp_path / "single.npy", np.load(files[0]).astype(np.float32))
    alike = find_blocks(tmp_path / "single.npy", Columns(labels=str(files[1])))
    wanted = fit_blocks(list(alike), LossSettings("la"))
    np.testing.assert_allclose(found.weight, wanted.weight, atol=1e-5)


def test_the_command_writes_a_model_that_predicts(files, tmp_path, ray_engine, capsys):
    folders = [tmp_path / where for where in ("blocks", "ray")]
    for folder in folders:
        words = [str(files[0]), "--labels", str(files[1]), "--method", "icda", "--on", folder.name]
        assert main([*words, "--out", str(folder)]) == 0
    assert "3 classes" in capsys.readouterr().out
    here, there = (load(folder) for folder in folders)
    features = np.load(files[0])
    assert (here.predict(features) == there.predict(features)).all()
    assert (here.predict(features) == np.load(files[1])).mean() > 0.5


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--method", "icad"], "did you mean 'icda'"),
        (["--method", "la", "--train"], "leave out --train"),
        (["--jobs", "2"], "--on ray"),
        (["--on", "ray", "--jobs", "0"], "--jobs is 0"),
    ],
)
def test_what_blocks_cannot_do_is_refused(files, tmp_path, words, said):
    with pytest.raises(InputError, match=said):
        main([str(files[0]), "--labels", str(files[1]), "--on", "blocks", "--out", str(tmp_path / "m"), *words])


def test_files_that_do_not_fit_are_named(files, tmp_path):
    with pytest.raises(InputError, match=r"--labels LABELS\.npy"):
        find_blocks(files[0], Columns())
    np.save(tmp_path / "short.npy", np.zeros(3))
    with pytest.raises(InputError, match="one label per row"):
        find_blocks(files[0], Columns(labels=str(tmp_path / "short.npy")))
    with pytest.raises(FileNotFoundError):
        find_blocks(tmp_path / "nothing.npy", Columns())
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(InputError, match=r"no \.parquet"):
        find_blocks(empty, Columns())


class Lengths:
    """An encoder of texts that can be worked out by hand."""

    name, version, device, image_size, kind = "lengths", "1", "cpu", None, "text"

    def encode(self, inputs: Any) -> torch.Tensor:
        return torch.tensor([[float(len(text))] for text in inputs])


def test_features_made_on_ray_are_the_same_file(tmp_path, ray_engine):
    texts = [f"{'x' * (k % 17)},{'ab'[k % 2]}" for k in range(400)]
    (tmp_path / "texts.csv").write_text("text,label\n" + "\n".join(texts) + "\n")
    samples = read_samples(tmp_path / "texts.csv")
    for name, engine in (("here", Here()), ("ray", ray_engine)):
        embed(samples, Lengths(), tmp_path / f"{name}.npz", batch_size=4, engine=engine)
    assert (tmp_path / "here.npz").read_bytes() == (tmp_path / "ray.npz").read_bytes()


def test_a_file_of_embed_is_read_in_blocks(tmp_path):
    (tmp_path / "texts.csv").write_text("text,label\n" + "\n".join(f"{'x' * (k % 9)},{'ab'[k % 2]}" for k in range(40)))
    made = embed(read_samples(tmp_path / "texts.csv"), Lengths(), tmp_path / "f.npz", batch_size=4)
    blocks = find_blocks(tmp_path / "f.npz", Columns(), block_bytes=4 * 15)
    assert [len(block) for block in blocks] == [15, 15, 10]
    read = [block.read() for block in blocks]
    np.testing.assert_array_equal(np.concatenate([part[0] for part in read]), made.features)
    np.testing.assert_array_equal(np.concatenate([part[1] for part in read]), made.y)


EXACT = AuditSettings(folds=3, rounds=2, tol=1e-7, dtype=torch.float64)


def same_rows(one, other):
    """Whether two audits have written the same files."""
    names = [[path.name for path in sorted(folder.iterdir())] for folder in (one, other)]
    return names[0] == names[1] and all((one / name).read_bytes() == (other / name).read_bytes() for name in names[0])


def test_an_audit_on_ray_is_that_of_one_process_and_outlives_a_worker(files, tmp_path, ray_engine):
    blocks: list[Any] = list(find_blocks(files[0], Columns(labels=str(files[1])), block_bytes=5 * 8 * 90))
    marker = tmp_path / "dead"
    mortal = [*blocks[:2], Mortal(blocks[2], marker), *blocks[3:]]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as in a worker: then the sums are the same to the bit
    here = audit_blocks(blocks, settings=EXACT, folder=tmp_path / "here")
    torch.set_num_threads(threads)
    there = audit_blocks(mortal, ray_engine, EXACT, folder=tmp_path / "there")
    assert marker.exists(), "a worker must have been killed"
    assert here.settings["passes"] == there.settings["passes"]
    assert here.verdicts == there.verdicts
    np.testing.assert_allclose(here.matrix, there.matrix, atol=1e-9)
    np.testing.assert_allclose(here.tied.tie, there.tied.tie, atol=1e-9)
    assert len(list((tmp_path / "there").iterdir())) == len(blocks)
    assert same_rows(tmp_path / "here", tmp_path / "there")


def test_the_command_audits_a_folder_of_parquet_on_ray(folder, tmp_path, ray_engine, capsys):
    for where in ("blocks", "ray"):
        words = [str(folder), "--features", "embedding", "--on", where, "--rounds", "1", "--out", str(tmp_path / where)]
        assert audit_main(words) == 0
    assert "400 samples" in capsys.readouterr().out
    starts = ["000000000000", "000000000100", "000000000150", "000000000250", "000000000350"]
    assert sorted(path.name for path in (tmp_path / "ray/rows").iterdir()) == [f"rows-{at}.csv" for at in starts]
    assert same_rows(tmp_path / "blocks/rows", tmp_path / "ray/rows")


def test_processes_share_the_threads_and_keep_the_order(monkeypatch):
    monkeypatch.setattr("icda.engines.thread_budget", lambda: 5)
    shares = [(engine.jobs, engine.threads) for engine in map(Processes, (1, 2, 3, 9))]
    assert shares == [(1, 5), (2, 2), (3, 1), (5, 1)]
    with make_engine("local", 2) as engine:
        assert list(engine.each(pow, range(7), 2)) == [0, 1, 4, 9, 16, 25, 36]


def test_what_ends_a_process_is_said_as_it_would_be_here_and_an_interrupt_says_nothing_of_its_own():
    with pytest.raises(OperationError, match="processes died"):
        list(Processes(1).each(os._exit, [1]))
    with pytest.raises(ZeroDivisionError):
        list(Processes(1).each(divmod, [1], 0))
    assert list(Processes(1).each(ends_silently, [0])) == [True]


def ends_silently(_):
    return signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_processes_of_embed_follow_inputs_and_cores(monkeypatch):
    monkeypatch.setattr("icda.cli.embed.thread_budget", lambda: 33)
    assert [local_jobs(None, inputs, 32, "cpu") for inputs in (10, 2048, 10_000, 10**6)] == [1, 1, 4, 8]
    monkeypatch.setattr("icda.cli.embed.thread_budget", lambda: 2)
    assert local_jobs(None, 10**6, 32, "cpu") == 1
    assert isinstance(make_engine("local", 1), Here)
    with pytest.raises(InputError, match="--jobs is 0"):
        local_jobs(0, 10, 32, "cpu")


class FakeRay:
    """Remembers how it was started."""

    def __init__(self) -> None:
        self.started: list[int | None] = []
        self.broken = False

    def init(self, num_cpus: int | None = None, **rest: object) -> None:
        if self.broken:
            raise ConnectionError("Failed to connect to Ray cluster")
        self.started.append(num_cpus)


def test_a_cluster_that_does_not_answer_is_said_at_once(monkeypatch):
    ray = FakeRay()
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        here = f"127.0.0.1:{server.getsockname()[1]}"
        for address in (here, f"ray://{here}", "no such\thost:1", f"127.0.0.1:{10**9}"):  # bound, but nobody listens
            monkeypatch.setenv("RAY_ADDRESS", address)
            with pytest.raises(OperationError, match="no Ray answers at RAY_ADDRESS="):
                start_ray(ray, 2)
        assert not ray.started
        server.listen()
        for address in (here, f"ray://{here}", "auto"):
            monkeypatch.setenv("RAY_ADDRESS", address)
            start_ray(ray, 2)
        ray.broken = True  # a port is open, and something else is behind it
        with pytest.raises(OperationError, match="no Ray answers at RAY_ADDRESS=auto"):
            start_ray(ray, 2)
    monkeypatch.delenv("RAY_ADDRESS")
    with pytest.raises(ConnectionError):  # a Ray of our own that does not start is no matter of the variable
        start_ray(ray, 2)
    ray.broken = False
    start_ray(ray, 2)
    assert ray.started == [None, None, None, 2]


SLOW_IMPORTS = """
import signal, sys, time
if __name__ != "__main__":
    time.sleep(1.5)  # a process that begins imports for seconds

def slow(item):
    time.sleep(0.2)
    return item

if __name__ == "__main__":
    from icda.engines import Processes
    signal.signal(signal.SIGINT, signal.default_int_handler)  # the tests may run in the background
    try:
        for item in Processes(2).each(slow, range(1000)):
            print(item, flush=True)
    except KeyboardInterrupt:
        sys.exit(130)
"""


@pytest.mark.parametrize("seconds", [1.0, 3.5])
def test_an_interrupt_is_said_once_and_not_by_every_process(tmp_path, seconds):
    (tmp_path / "slow.py").write_text(SLOW_IMPORTS)
    driver = subprocess.Popen(
        [sys.executable, str(tmp_path / "slow.py")],
        env={**os.environ, "OMP_NUM_THREADS": "2"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    while not (started := _children(driver.pid)):
        time.sleep(0.05)
    time.sleep(seconds)
    os.killpg(driver.pid, signal.SIGINT)
    _, said = driver.communicate(timeout=120)
    assert driver.returncode == 130
    assert said == b""
    assert started


def _children(pid):
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
