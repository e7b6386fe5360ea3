import numpy as np
import pytest

from icda.data.embedding.samples import Columns
from icda.data.own.blocks import find_blocks
from icda.engines import Here
from icda_bench.cost.block_fit import Arguments, Terms, _fit, measure_terms
from icda_bench.cost.large_fit import make_biased_files


def test_the_model_counts_rows_passes_and_workers():
    terms = Terms(statistics_seconds=2e-6, pass_seconds=1e-6, summary_bytes=1, answer_bytes=1)
    assert terms.seconds(rows=10**6, passes=12, workers=4) == pytest.approx((2 + 10) / 4)


@pytest.mark.parametrize("loss", ["la", "icda"])
def test_a_fit_is_measured_beside_its_prediction(tmp_path, loss):
    paths = make_biased_files(tmp_path, 400, 6, 3, np.float16)
    blocks = find_blocks(paths[0], Columns(labels=str(paths[1])), block_bytes=2 * 6 * 150)
    terms = measure_terms(blocks, loss)
    assert terms.summary_bytes > terms.answer_bytes > 0
    options = Arguments(tmp_path, tmp_path / "out.csv", 400, 6, 3, jobs=1)
    row, found = _fit(options, blocks, loss, terms, Here(), None)
    assert row["blocks"] == 3
    assert row["passes"] == found.passes > 3
    assert row["predicted_seconds"] >= 0
    again, _ = _fit(options, blocks, loss, terms, Here(), found)
    assert again["difference"] == 0
