"""The run as a whole, with an encoder that can be worked out by hand and told to fail."""

from pathlib import Path

import numpy as np
import pytest
import torch

from icda.data.embedding import UnreadableInputsError, embed, load_features
from icda.data.embedding.run import CHUNK_BATCHES, Chunk, ChunkStore, EmbeddingPlan, part_folder
from icda.data.embedding.samples import Reads, Samples
from icda.data.images import decode_image
from icda.data.own.reading import read_samples


class Killed(BaseException):
    """Stands for the end of the process."""


class Means:
    """Mean colour of an image, or length and first letter of a text; ends the run after `lifetime` batches."""

    name, version, device = "means", "1", "cpu"

    def __init__(self, kind="image", lifetime=10**9):
        self.kind = kind
        self.image_size = 8 if kind == "image" else None
        self.lifetime, self.batches = lifetime, 0

    def encode(self, inputs):
        if self.batches == self.lifetime:
            raise Killed
        self.batches += 1
        if self.kind == "image":
            return inputs.float().mean((1, 2))
        return torch.tensor([[len(text), ord(text[0]) if text else 0] for text in inputs]).float()


@pytest.fixture
def folder(tmp_path, write_image):
    root = tmp_path / "photos"
    for k in range(40):
        write_image(root / ("cat" if k % 2 else "dog") / f"{k:02d}.png", (5 + k, 9))
    return root


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "texts.csv"
    rows = [f"{'xyz'[k % 3] * (97 * k % 41)},{k % 3 + 9},{'ab'[k % 2]},{k % 3}" for k in range(100)]
    path.write_text("text,label,group,split\n" + "\n".join(rows) + "\n")
    return path


def test_every_row_belongs_to_its_image(folder, tmp_path):
    result = embed(read_samples(folder), Means(), tmp_path / "f.npz", batch_size=3)
    assert len(result) == 40
    for features, name, label in zip(result.features, result.id, result.y, strict=True):
        np.testing.assert_allclose(features, decode_image(folder / name, 8).mean((0, 1)), rtol=1e-5)
        assert name.startswith(label)
    assert result.features.dtype == np.float32
    assert (result.encoder, result.encoder_version, result.split, result.group) == ("means", "1", None, None)
    assert not part_folder(tmp_path / "f.npz").exists()


def test_texts_sorted_for_speed_come_back_in_their_order_and_names_and_numbers_agree(table, tmp_path):
    result = embed(read_samples(table), Means("text"), tmp_path / "f.npz", batch_size=4)
    assert result.id.tolist() == list(range(100))
    assert result.features[:, 0].tolist() == [97 * k % 41 for k in range(100)]
    with np.load(tmp_path / "f.npz", allow_pickle=False) as file:
        assert file["class_names"].tolist() == ["9", "10", "11"]
        assert (file["class_names"][file["y_code"]] == file["y"]).all()
        assert (file["group_names"][file["group_code"]] == file["group"]).all()
        assert file["split"][:3].tolist() == ["train", "validation", "test"]
        assert file["y_code"].dtype == np.int64
        assert str(file["encoder"]) == "means"


@pytest.mark.parametrize("lifetime", [0, 1, 16, 17, 39])
def test_a_killed_run_goes_on_and_ends_in_the_same_bytes(lifetime, folder, tmp_path):
    samples = read_samples(folder)
    embed(samples, Means(), tmp_path / "whole.npz", batch_size=1)
    out = tmp_path / "killed.npz"
    with pytest.raises(Killed):
        embed(samples, Means(lifetime=lifetime), out, batch_size=1)
    assert not out.exists()
    if lifetime >= CHUNK_BATCHES:  # before the first chunk there is nothing to lose
        with pytest.raises(FileExistsError, match="--resume goes on with it"):
            embed(samples, Means(), out, batch_size=1)
    encoder = Means()
    embed(samples, encoder, out, batch_size=1, resume=lifetime != 1)
    assert out.read_bytes() == (tmp_path / "whole.npz").read_bytes()
    assert encoder.batches == 40 - lifetime // CHUNK_BATCHES * CHUNK_BATCHES
    assert sorted(path.name for path in tmp_path.iterdir()) == ["killed.npz", "photos", "whole.npz"]


def test_a_run_killed_again_and_again_still_ends(folder, tmp_path):
    samples = read_samples(folder)
    for _ in range(2):
        with pytest.raises(Killed):
            embed(samples, Means(lifetime=17), tmp_path / "f.npz", batch_size=1, resume=True)
    embed(samples, Means(lifetime=17), tmp_path / "f.npz", batch_size=1, resume=True)
    assert len(load_features(tmp_path / "f.npz")) == 40


def test_an_image_changed_since_the_kill_is_encoded_anew(folder, tmp_path, write_image):
    samples = read_samples(folder)
    with pytest.raises(Killed):
        embed(samples, Means(lifetime=20), tmp_path / "f.npz", batch_size=1)
    write_image(folder / "cat" / "01.png", (30, 30), (1, 2, 3))
    result = embed(samples, Means(), tmp_path / "f.npz", batch_size=1, resume=True)
    np.testing.assert_allclose(result.features[result.id == "cat/01.png"], [[1, 2, 3]])


def test_a_finished_run_is_not_run_again_and_never_overwritten(table, tmp_path):
    samples, out = read_samples(table), tmp_path / "f.npz"
    embed(samples, Means("text"), out)
    before = out.read_bytes()
    part_folder(out).mkdir()
    assert len(embed(samples, Means("text", lifetime=0), out, resume=True)) == 100
    assert not part_folder(out).exists()
    with pytest.raises(FileExistsError, match="is there already: delete it, or choose another --out"):
        embed(samples, Means("text"), out)
    with pytest.raises(FileExistsError, match="made of other inputs or settings"):
        embed(samples, Means("text"), out, batch_size=7, resume=True)
    table.write_text(table.read_text().replace(",9,", ",8,"))
    with pytest.raises(FileExistsError, match="made of other inputs or settings"):
        embed(read_samples(table), Means("text"), out, resume=True)
    assert out.read_bytes() == before


def test_unreadable_images_stop_the_run_by_name_or_are_left_out(folder, tmp_path):
    samples, out = read_samples(folder), tmp_path / "f.npz"
    for name in ("cat/01.png", "dog/38.png"):
        (folder / name).write_bytes(b"no image")
    with pytest.raises(
        UnreadableInputsError, match=r"(?s)2 file\(s\) cannot be read.*cat/01.png.*dog/38.png.*--skip-unreadable"
    ):
        embed(samples, Means(), out, batch_size=1)
    result = embed(samples, Means(), out, batch_size=1, resume=True, skip_unreadable=True)
    assert result.skipped.tolist() == ["cat/01.png", "dog/38.png"]
    assert len(result) == len(result.y if result.y is not None else ()) == 38
    assert not set(result.skipped) & set(result.id)
    embed(samples, Means(), tmp_path / "whole.npz", batch_size=1, skip_unreadable=True)
    assert out.read_bytes() == (tmp_path / "whole.npz").read_bytes()


def test_a_chunk_with_skipped_images_is_not_taken_by_a_run_that_skips_none(folder, tmp_path):
    (folder / "cat" / "01.png").write_bytes(b"no image")
    samples = read_samples(folder)
    with pytest.raises(Killed):
        embed(samples, Means(lifetime=18), tmp_path / "f.npz", batch_size=1, skip_unreadable=True)
    with pytest.raises(UnreadableInputsError, match=r"cat/01\.png"):
        embed(samples, Means(), tmp_path / "f.npz", batch_size=1, resume=True)


def test_files_that_are_not_there_are_all_named_before_any_work(tmp_path, write_image):
    write_image(tmp_path / "here.png")
    rows = ["here.png,a", *(f"gone{k}.png,b" for k in range(12))]
    (tmp_path / "t.csv").write_text("image,label\n" + "\n".join(rows) + "\n")
    samples = read_samples(tmp_path / "t.csv")
    with pytest.raises(UnreadableInputsError, match=r"(?s)12 file\(s\) are not there.*gone0.png.*and 2 more"):
        embed(samples, Means(lifetime=0), tmp_path / "f.npz")
    assert not part_folder(tmp_path / "f.npz").exists()
    result = embed(samples, Means(), tmp_path / "f.npz", skip_unreadable=True)
    assert (result.id.tolist(), len(result.skipped)) == (["here.png"], 12)


def test_a_chunk_of_nothing_but_unreadable_images_does_no_harm(folder, tmp_path):
    samples = read_samples(folder)
    for path in samples.inputs[:16]:
        Path(path).write_bytes(b"no image")
    assert len(embed(samples, Means(), tmp_path / "f.npz", batch_size=1, skip_unreadable=True)) == 24
    for path in samples.inputs:
        Path(path).write_bytes(b"no image")
    with pytest.raises(ValueError, match="none of the 40 inputs can be read"):
        embed(samples, Means(), tmp_path / "g.npz", skip_unreadable=True)


def test_nan_from_the_encoder_names_the_input(folder, tmp_path):
    class Broken(Means):
        def encode(self, inputs):
            return super().encode(inputs).index_fill(0, torch.tensor([1]), float("nan"))

    with pytest.raises(ValueError, match=r"means gives NaN or infinity for cat/03\.png"):
        embed(read_samples(folder), Broken(), tmp_path / "f.npz")


def test_progress_and_wrong_settings(folder, tmp_path):
    seen = []
    samples = read_samples(folder)
    embed(samples, Means(), tmp_path / "f.npz", batch_size=1, progress=lambda *step: seen.append(step))
    assert seen == [(16, 40), (32, 40), (40, 40)]
    with pytest.raises(ValueError, match="batch_size is 0"):
        embed(samples, Means(), tmp_path / "g.npz", batch_size=0)
    with pytest.raises(ValueError, match="means takes texts, but the inputs are images"):
        embed(samples, Means("text"), tmp_path / "g.npz")


PLAN = EmbeddingPlan("means", "1", None, "cpu", 2)
CHUNK = Chunk(np.ones((1, 3), dtype=np.float32), np.array([True, False]))


def texts(count):
    return Samples(Reads("text"), range(count), [f"text {k}" for k in range(count)])


def test_a_digest_stands_for_inputs_and_settings():
    digest = PLAN.chunks(texts(3))[0][1]
    assert PLAN.chunks(texts(3))[0][1] == digest
    assert PLAN.chunks(texts(4))[0][1] != digest
    assert EmbeddingPlan("means", "2", None, "cpu", 2).chunks(texts(3))[0][1] != digest
    # The same letters, cut elsewhere.
    one, other = (Samples(Reads("text"), range(2), inputs) for inputs in (["ab", "c"], ["a", "bc"]))
    assert PLAN.chunks(one) != PLAN.chunks(other)


def test_a_chunk_comes_back_only_under_its_own_digest_and_undamaged(tmp_path):
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


def test_other_settings_do_not_go_on_with_an_old_run(tmp_path):
    ChunkStore(tmp_path / "f.npz", PLAN)
    with pytest.raises(ValueError, match="was begun with batch_size 2, now 4: give the same settings to --resume"):
        ChunkStore(tmp_path / "f.npz", EmbeddingPlan("means", "1", None, "cpu", 4))
