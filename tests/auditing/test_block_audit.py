"""The audit over blocks says what heads in memory with the same folds say."""

import csv
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from icda import audit
from icda.auditing import assessment
from icda.auditing.rows import confident_class, label_quality, scaled_joint
from icda.auditing.run import AuditSettings, audit_blocks
from icda.cli.audit import main
from icda.errors import InputError
from icda.heads.blocks import MemoryBlock
from icda.heads.dealing import deal_folds
from icda.heads.problem import LossSettings, Problem, rebalance
from icda.heads.solver import fit_head

EXACT = AuditSettings(C=0.3, folds=3, rounds=2, seed=5, max_iter=2000, tol=1e-9, dtype=torch.float64)


def make_rows(count=420, classes=3):
    """Classes of which one is larger, some labels wrong, some rows tied to another class by a shortcut."""
    generator = np.random.default_rng(1)
    codes = np.minimum(generator.integers(0, classes + 1, count), classes - 1)
    features = generator.normal(size=(count, 6)) + 1.2 * np.eye(classes, 6)[codes]
    shortcut = np.where(generator.random(count) < 0.9, codes, (codes + 1) % classes)
    features[:, -1] += 2.0 * shortcut
    labels = np.where(generator.random(count) < 0.05, (codes + 1) % classes, codes)
    return features, np.array(["ant", "bee", "cat", "dog"])[labels]


def cut(features, labels, parts):
    pairs = zip(np.array_split(features, parts), np.array_split(labels, parts), strict=True)
    return [MemoryBlock(*pair) for pair in pairs]


def naive_ties(features, codes):
    """With all rows in memory and the same folds, one head after the other."""
    classes = int(codes.max()) + 1
    targets, numbers = torch.from_numpy(codes), torch.arange(len(codes))
    scaled = torch.from_numpy((features - features.mean(0)) / features.std(0))
    dealt = torch.from_numpy(deal_folds(codes, np.zeros(classes, dtype=np.int64), EXACT.folds, EXACT.seed))

    def cross_fit(C, attributes):
        problem = rebalance(Problem.of(scaled, targets, classes, C), attributes)
        logits = torch.zeros(len(codes), classes, dtype=torch.float64)
        for fold in range(EXACT.folds):
            head = fit_head(problem.rows(dealt != fold), LossSettings("ce"), 2000, 1e-9)
            logits[dealt == fold] = head.logits(scaled[dealt == fold])
        return logits

    def margin(logits):
        others = logits.clone()
        others[numbers, targets] = -torch.inf
        return others.max(1).values - logits[numbers, targets]

    logits = cross_fit(EXACT.C, torch.zeros_like(targets))
    biased = tie = margin(logits)
    for _ in range(EXACT.rounds):
        robust = margin(cross_fit(EXACT.C / 10, (tie > 0).long()))
        tie = biased / biased.std() - 0.5 * robust / robust.std()
    probabilities = torch.softmax(logits, 1)
    towards = probabilities.clone()
    towards[numbers, targets] = 0
    strength, tied_to = towards.max(1)
    matrix = torch.stack([towards[targets == k].mean(0) for k in range(classes)])
    found = {"probabilities": probabilities, "tied_to": tied_to, "strength": strength, "tie": tie, "matrix": matrix}
    return SimpleNamespace(
        predicted=probabilities.numpy().argmax(1), **{name: part.numpy() for name, part in found.items()}
    )


def read_rows(folder):
    rows = []
    for path in sorted(folder.glob("rows-*.csv")):
        with path.open(newline="") as file:
            rows += list(csv.DictReader(file))
    return rows


@pytest.mark.parametrize("classes", [2, 3])
def test_every_figure_is_that_of_heads_in_memory(classes, tmp_path):
    features, labels = make_rows(classes=classes)
    names, codes = np.unique(labels, return_inverse=True)
    wanted = naive_ties(features, codes)
    counts = np.bincount(codes)
    thresholds = np.bincount(codes, wanted.probabilities[np.arange(len(codes)), codes]) / counts
    confident = confident_class(wanted.probabilities, thresholds)
    issues = (confident >= 0) & (confident != codes)
    table = np.zeros((classes, classes))
    np.add.at(table, (codes[confident >= 0], confident[confident >= 0]), 1)
    quality = label_quality(wanted.probabilities, codes)
    found = audit_blocks(cut(features, labels, 4), settings=EXACT, folder=tmp_path)
    rows = read_rows(tmp_path)
    assert [int(row["index"]) for row in rows] == list(range(len(labels)))
    assert [row["label"] for row in rows] == labels.tolist()
    figures = {"strength": wanted.strength, "tie": wanted.tie, "label_quality": quality}
    for name, values in figures.items():
        np.testing.assert_allclose([float(row[name]) for row in rows], values, atol=1e-6, err_msg=name)
    assert [row["tied_to"] for row in rows] == names[wanted.tied_to].tolist()
    assert [row["predicted"] for row in rows] == names[wanted.predicted].tolist()
    assert [row["label_issue"] == "True" for row in rows] == issues.tolist()
    np.testing.assert_allclose(found.matrix, wanted.matrix, atol=1e-6)
    np.testing.assert_allclose(found.noise.joint, scaled_joint(table, counts), atol=1e-6)
    np.testing.assert_allclose(found.noise.thresholds, thresholds, atol=1e-6)
    assert found.noise.num_issues == issues.sum()
    assert found.suspected == int((wanted.tie > 0).sum())
    for k, cost in enumerate(found.costs):
        own, part = codes == k, (codes == k) & (wanted.tie > 0)
        right = wanted.predicted == codes
        assert (cost.samples, cost.suspected) == (own.sum(), part.sum())
        assert cost.accuracy == pytest.approx(right[own].mean())
        assert cost.accuracy_suspected == pytest.approx(right[part].mean())
        assert cost.accuracy_rest == pytest.approx(right[own & ~part].mean())
        assert cost.mean_strength == pytest.approx(wanted.strength[part].mean(), abs=1e-6)


def test_samples_in_memory_have_the_figures_of_rows_in_blocks():
    features, labels = make_rows()
    here, there = (
        audit(features, labels, seed=5),
        audit_blocks(cut(features, labels, 6), settings=AuditSettings(seed=5)),
    )
    ties = here.in_memory()[0]
    np.testing.assert_allclose(there.tied.tie, ties.tie[there.tied.row], atol=0.02)
    assert abs(there.suspected - here.suspected) <= 2
    np.testing.assert_allclose(there.matrix, here.matrix, atol=0.01)
    with pytest.raises(InputError, match="over blocks"):
        there.to_cleanlab()


def test_the_rankings_begin_with_the_most_tied_and_the_most_doubtful():
    features, labels = make_rows()
    found = audit_blocks(cut(features, labels, 5), settings=EXACT)
    wanted = naive_ties(features, np.unique(labels, return_inverse=True)[1])
    order = np.argsort(-wanted.tie, kind="stable")
    assert [row["index"] for row in found.most_tied(7)] == order[:7].tolist()
    quality = [row["label_quality"] for row in found.most_doubtful(None)]
    assert quality == sorted(quality)
    assert len(quality) == EXACT.top


def test_how_rows_are_cut_changes_nothing():
    features, labels = make_rows()
    one, many = (audit_blocks(cut(features, labels, parts), settings=EXACT) for parts in (1, 9))
    assert one.verdicts == many.verdicts
    np.testing.assert_allclose(one.matrix, many.matrix, atol=1e-6)
    np.testing.assert_allclose(one.tied.tie, many.tied.tie, atol=1e-6)
    assert one.tied.row.tolist() == many.tied.row.tolist()


def test_the_verdicts_on_few_rows_are_those_of_the_audit_in_memory():
    features, labels = make_rows()
    here, there = audit(features, labels), audit_blocks(cut(features, labels, 3))
    assert there.verdicts == here.verdicts
    assert there.treatment.as_dict() == here.treatment.as_dict()
    assert there.assessment.evidence.as_dict() == here.assessment.evidence.as_dict()
    assert there.imbalance == here.imbalance
    assert (len(there), there.settings["features"]) == (420, 6)


def test_class_sizes_are_those_of_all_rows_and_verdicts_rest_on_a_sample(monkeypatch):
    features, labels = make_rows(600)
    labels[[5, 400]] = "elk"  # too few for a sample of 120
    monkeypatch.setattr(assessment, "SAMPLES", 120)
    found = audit_blocks(cut(features, labels, 4), settings=AuditSettings(rounds=1))
    counts = [int((labels == name).sum()) for name in found.class_names]
    assert found.assessment.evidence.class_counts == counts
    assert found.assessment.evidence.samples == 600
    assert sum(found.assessment.evidence.predicted_counts) in range(100, 121)
    assert found.verdicts["long_tail"].answer == "yes"
    assert any("elk" in note for note in found.notes)


def test_without_rounds_the_tie_is_the_margin_of_plain_heads():
    features, labels = make_rows()
    found = audit_blocks(cut(features, labels, 3), settings=AuditSettings(rounds=0))
    wrong = sum(cost.samples - round(cost.accuracy * cost.samples) for cost in found.costs)
    assert found.suspected == wrong
    assert "plain heads" in " ".join(found.notes)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"folds": 1}, "folds"),
        ({"C": 0.0}, "C must be positive"),
        ({"C": float("inf")}, "finite"),
        ({"rounds": -1}, "rounds"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, said):
    with pytest.raises(InputError, match=said):
        AuditSettings(**settings)


def test_a_class_of_one_row_is_refused():
    features, labels = make_rows()
    labels[7] = "elk"
    with pytest.raises(InputError, match="only one of elk"):
        audit_blocks(cut(features, labels, 3))


@pytest.fixture
def files(tmp_path):
    features, labels = make_rows()
    np.save(tmp_path / "features.npy", features.astype(np.float32))
    np.save(tmp_path / "labels.npy", labels)
    return [str(tmp_path / "features.npy"), "--labels", str(tmp_path / "labels.npy")]


def test_the_command_writes_page_figures_and_rows(files, tmp_path, capsys):
    out = tmp_path / "audit"
    (out / "rows").mkdir(parents=True)
    (out / "rows/rows-000000000099.csv").write_text("of an earlier audit")
    assert main([*files, "--on", "blocks", "--rounds", "1", "--out", str(out)]) == 0
    assert [path.name for path in (out / "rows").iterdir()] == ["rows-000000000000.csv"]
    assert len(read_rows(out / "rows")) == 420
    said = capsys.readouterr().out
    assert "420 samples, 6 features, 3 classes" in said
    assert "--on blocks" in " ".join(said.split()), "the next command must leave the rows on disk too"
    page = (out / "audit.html").read_text()
    assert "Audit of 420 samples" in page
    assert "most tied to a wrong class" in page
    assert (out / "audit.json").stat().st_size > 1000


def test_rows_may_be_parquet(files, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    assert main([*files, "--on", "blocks", "--rounds", "0", "--rows", "parquet", "--out", str(tmp_path / "a")]) == 0
    table = parquet.read_table(tmp_path / "a/rows/rows-000000000000.parquet")
    assert table.num_rows == 420
    assert table.column("index").to_pylist() == list(range(420))


def test_data_that_lie_where_rows_are_written_are_kept(tmp_path):
    features, labels = make_rows()
    rows = tmp_path / "rows"
    rows.mkdir()
    np.save(rows / "rows-1.npy", features)
    np.save(tmp_path / "labels.npy", labels)
    words = [str(rows / "rows-1.npy"), "--labels", str(tmp_path / "labels.npy"), "--on", "blocks", "--rounds", "0"]
    with pytest.raises(InputError, match="choose another --out"):
        main([*words, "--out", str(tmp_path)])
    assert (rows / "rows-1.npy").exists()
    (tmp_path / "other/rows").mkdir(parents=True)
    (tmp_path / "other/rows/rows-mine.csv").write_text("of the user")
    assert main([*words, "--out", str(tmp_path / "other")]) == 0
    assert (tmp_path / "other/rows/rows-mine.csv").exists()


def test_rows_that_would_be_read_as_data_are_refused(tmp_path):
    with pytest.raises(InputError, match="read as data"):
        main([str(tmp_path), "--on", "blocks", "--rows", "parquet", "--out", str(tmp_path / "audit")])
    (tmp_path / "audit").mkdir()
    (tmp_path / "audit/rows").write_text("a file")
    with pytest.raises(InputError, match="is a file"):
        main([str(tmp_path), "--on", "blocks", "--out", str(tmp_path / "audit")])


def test_options_that_need_all_rows_are_refused(files):
    with pytest.raises(InputError, match="--repeats"):
        main([*files, "--on", "blocks", "--repeats", "3"])
    with pytest.raises(InputError, match="--where"):
        main([*files, "--on", "blocks", "--where", "split=train"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--jobs", "2"], "--on ray"),
        (["--on", "blocks", "--jobs", "2"], "--on ray"),
        (["--on", "ray", "--jobs", "-2"], "--jobs is -2"),
        (["--rounds", "0"], "--rounds and --rows"),
        (["--rows", "parquet"], "--rounds and --rows"),
    ],
)
def test_options_that_would_do_nothing_are_refused(files, words, said):
    with pytest.raises(InputError, match=said):
        main([*files, *words])
