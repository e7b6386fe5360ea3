from pathlib import Path

import numpy as np
import pytest

from icda.data.embedding.run import CHUNK_BATCHES, Chunk, ChunkStore, EmbeddingPlan
from icda.data.embedding.samples import Samples

PLAN = EmbeddingPlan("means", "1", None, "cpu", 2)
CHUNK = Chunk(np.ones((1, 3), dtype=np.float32), np.array([True, False]))


def texts(count: int) -> Samples:
    return Samples("text", [f"text {k}" for k in range(count)], range(count))


def test_chunks_cover_every_row_once() -> None:
    size = 2 * CHUNK_BATCHES
    rows = [row for chunk, _ in PLAN.chunks(texts(2 * size + 1)) for row in chunk]
    assert rows == list(range(2 * size + 1))
    assert len(PLAN.chunks(texts(2 * size + 1))) == 3


def test_a_digest_stands_for_inputs_and_settings() -> None:
    digest = PLAN.chunks(texts(3))[0][1]
    assert PLAN.chunks(texts(3))[0][1] == digest
    assert PLAN.chunks(texts(4))[0][1] != digest
    assert EmbeddingPlan("means", "2", None, "cpu", 2).chunks(texts(3))[0][1] != digest
    # The same letters, cut elsewhere.
    assert PLAN.chunks(Samples("text", ["ab", "c"], range(2))) != PLAN.chunks(Samples("text", ["a", "bc"], range(2)))


def test_a_chunk_comes_back_only_under_its_own_digest_and_undamaged(tmp_path: Path) -> None:
    store = ChunkStore(tmp_path / "f.npz", PLAN)
    store.save(0, "digest", CHUNK)
    again = ChunkStore(tmp_path / "f.npz", PLAN).load(0, "digest")
    assert np.array_equal(again.features, CHUNK.features)
    assert np.array_equal(again.kept, CHUNK.kept)
    assert store.load(0, "another") is None
    assert store.load(1, "digest") is None
    path = store.folder / "000000.npz"
    path.write_bytes(path.read_bytes()[:-40])
    assert store.load(0, "digest") is None
    with pytest.raises(OSError, match=r"000000.npz vanished or changed"):
        list(store.blocks(["digest"]))


def test_other_settings_do_not_go_on_with_an_old_run(tmp_path: Path) -> None:
    ChunkStore(tmp_path / "f.npz", PLAN)
    with pytest.raises(ValueError, match="was begun with batch_size 2, now 4: give the same settings to --resume"):
        ChunkStore(tmp_path / "f.npz", EmbeddingPlan("means", "1", None, "cpu", 4))
