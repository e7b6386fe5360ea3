import numpy as np

from icda_bench.studies import audit as bench


def test_the_minority_of_each_class_is_sought_in_the_training_split(tmp_path):
    generator = np.random.default_rng(0)
    y = generator.integers(0, 2, 1200).astype(np.uint8)
    place = np.where(generator.random(1200) < 0.08, 1 - y, y).astype(np.uint8)
    feats = generator.normal(size=(1200, 32)).astype(np.float16)
    feats[:, :8] += (0.6 * (2.0 * y[:, None] - 1)).astype(np.float16)
    feats[:, 8:16] += (1.2 * (2.0 * place[:, None] - 1)).astype(np.float16)
    split = np.repeat([0, 1], [1000, 200])
    np.savez(tmp_path / "waterbirds_resnet50.npz", feats=feats, y=y, place=place, split=split)
    rows = bench.waterbirds_rows(tmp_path)
    assert [(row["part"], row["score"]) for row in rows] == [
        (part, score) for part in ("landbird", "waterbird") for score in ("tie", "1 - p_y")
    ]
    for row in rows:
        label = bench.NAMES.index(row["part"])
        here = (y == label) & (split == 0)
        assert (row["sought"], row["samples"]) == ((here & (place != y)).sum(), here.sum())
    assert rows[0]["auroc"] > 0.95
    assert rows[2]["auroc"] > 0.95
