"""Verdicts: limits of the rules on made-up evidence, and answers on data whose trouble is known."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import icda
from icda.auditing.evidence import PAIR_RATIO, PAIRS, SAMPLES, Evidence, lost_accuracy, make_sketch, pair_rows
from icda.auditing.verdicts import KINDS, MOST_LOST, decide, noise_chance, shortcut_chance
from icda.cross_fit.flatness import SIDE_SHRINKAGE, Flatness, flatness, flattest_side
from icda.cross_fit.pairs import PairEvidence
from icda.cross_fit.rules import Limit, answered, overlap_sureness

SHORTCUT = PairEvidence(
    classes=(0, 1),
    samples=1000,
    agreement=0.995,
    errors=0.05,
    against=50,
    against_share=0.05,
    sureness=0.8,
    hurt_before=0.1,
    hurt_after=0.7,
    helped_before=1.0,
    helped_after=0.9,
    error_sureness=0.4,
    plain_errors=0.04,
    readability=0.8,
    readability_error=0.03,
)
PLAIN = Evidence(
    samples=1000,
    class_counts=[500, 500],
    predicted_counts=[500, 500],
    accuracy=0.95,
    balanced_accuracy=0.95,
    standard_error=0.016,
    error_sureness=0.3,
    sure_errors=0.1,
    sided=Flatness(0.3, 0.1, 0.05),
    pairs=[replace(SHORTCUT, sureness=0.1)],
)


def answers(evidence):
    return {kind: verdict.answer for kind, verdict in decide(evidence).items()}


def test_nothing_wrong_is_no_everywhere():
    assert answers(PLAIN) == dict.fromkeys(KINDS, "no")


def test_a_shortcut_needs_all_its_signs():
    assert answers(replace(PLAIN, pairs=[SHORTCUT]))["shortcut"] == "yes"
    for sign in (
        {"sureness": 0.1},  # the answer is unsure there: overlap
        {"agreement": 0.9},  # twins follow no one function
        {"hurt_before": 0.9},  # plain heads do not follow it
        {"against": 400, "against_share": 0.4},  # it contradicts too many labels
        {"hurt_after": 0.15, "helped_after": 0.95},  # nothing serves those it hurts: wrong labels
    ):
        assert answers(replace(PLAIN, pairs=[replace(SHORTCUT, **sign)]))["shortcut"] == "no", sign


def test_labels_of_one_class_given_to_another_are_seen_on_that_side_alone():
    generator = torch.Generator().manual_seed(0)
    margins = torch.rand(400, generator=generator) + 0.5
    predicted = torch.arange(400) % 2
    wrong = (predicted == 0) & (torch.rand(400, generator=generator) < 0.3)  # sure or not, alike
    wrong |= (predicted == 1) & (margins < 0.6)  # overlap
    overall = flatness(margins, ~wrong)
    side = flattest_side(overall, margins, predicted, ~wrong)
    alone = flatness(margins[predicted == 0], ~wrong[predicted == 0])
    count = int((wrong & (predicted == 0)).sum())
    own = count / (count + SIDE_SHRINKAGE)
    assert side.error_sureness == pytest.approx(own * alone.error_sureness + (1 - own) * overall.error_sureness)
    assert side.sure_errors == pytest.approx(own * alone.sure_errors + (1 - own) * overall.sure_errors)
    assert side.errors == pytest.approx(alone.errors)
    assert flattest_side(overall, margins[:20], predicted[:20], ~wrong[:20]) == overall, "too few to say"
    hidden = replace(PLAIN, sided=Flatness(0.9, 0.9, 0.3))
    assert answers(PLAIN)["label_noise"] == "no"
    assert answers(hidden)["label_noise"] == "yes"
    hard = replace(hidden, balanced_accuracy=0.55, accuracy=0.55)
    assert answers(hard)["label_noise"] != "yes", "of classes that are hardly told apart, errors are flat anyway"


def test_with_wrong_labels_around_twins_must_agree_almost_everywhere():
    noisy = replace(
        SHORTCUT, against=230, errors=0.23, hurt_before=0.05, hurt_after=0.1, helped_after=0.97, sureness=0.95
    )
    around = replace(PLAIN, accuracy=0.76, balanced_accuracy=0.76, error_sureness=0.9, sure_errors=0.9)
    assert noise_chance(around) > 0.9
    assert answers(replace(around, pairs=[noisy]))["shortcut"] == "yes"
    assert answers(replace(around, pairs=[replace(noisy, agreement=0.96)]))["shortcut"] == "no"
    assert shortcut_chance(noisy, noise=0.0) < 0.1


def test_one_pair_in_ten_is_no_shortcut_but_five_are():
    others = [replace(SHORTCUT, sureness=0.1)] * 9
    assert answers(replace(PLAIN, pairs=[SHORTCUT, *others]))["shortcut"] == "no"
    assert answers(replace(PLAIN, pairs=[SHORTCUT] * 5 + others[:5]))["shortcut"] == "yes"


def test_errors_as_sure_as_the_rest_are_wrong_labels_and_unsure_ones_are_overlap():
    sure = replace(PLAIN, accuracy=0.78, balanced_accuracy=0.78, error_sureness=0.9, sure_errors=0.8)
    unsure = replace(sure, error_sureness=0.4, sure_errors=0.3)
    assert answers(sure)["label_noise"] == "yes"
    assert answers(sure)["overlap"] == "cannot tell"
    assert (answers(unsure)["label_noise"], answers(unsure)["overlap"]) == ("no", "yes")


def test_the_harder_the_data_the_flatter_errors_must_lie():
    figures = {"error_sureness": 0.6, "sure_errors": 0.5}
    assert noise_chance(replace(PLAIN, accuracy=0.85, balanced_accuracy=0.85, **figures)) > 0.6
    assert noise_chance(replace(PLAIN, accuracy=0.60, balanced_accuracy=0.60, **figures)) < 0.1


@pytest.mark.parametrize("errors", [0.02, 0.1, 0.3])
def test_overlap_sureness_is_that_of_two_gaussians(errors):
    generator = np.random.default_rng(0)
    z = generator.normal(size=400_000)
    z += -np.quantile(z, errors)
    measured = np.median(-z[z < 0]) / np.median(z[z > 0])
    assert overlap_sureness(errors) == pytest.approx(measured, rel=0.03)


@pytest.mark.parametrize(("ratio", "answer"), [(1, "no"), (3, "no"), (5.6, "cannot tell"), (10, "yes"), (100, "yes")])
def test_a_long_tail_is_a_matter_of_the_ratio(ratio, answer):
    evidence = replace(PLAIN, class_counts=[round(100 * ratio), 100])
    assert answers(evidence)["long_tail"] == answer


def test_wrong_labels_hide_a_tail_that_heads_still_show():
    noisy = replace(PLAIN, accuracy=0.78, balanced_accuracy=0.78, error_sureness=0.9, sure_errors=0.8)
    noisy = replace(noisy, class_counts=[400, 100])
    assert answers(noisy)["long_tail"] == "no"
    assert answers(replace(noisy, predicted_counts=[900, 40]))["long_tail"] == "yes"


def test_guessing_is_uninformative_and_hides_everything_but_class_sizes():
    guessing = replace(PLAIN, accuracy=0.5, balanced_accuracy=0.51, class_counts=[900, 30])
    assert answers(guessing) == {
        "shortcut": "cannot tell",
        "label_noise": "cannot tell",
        "long_tail": "yes",
        "overlap": "cannot tell",
        "uninformative": "yes",
    }


def test_a_few_samples_are_too_few_for_anything_but_class_sizes():
    found = icda.audit(np.random.default_rng(0).normal(size=(20, 4)), np.arange(20) % 2).verdicts
    assert {found[kind].answer for kind in KINDS if kind != "long_tail"} == {"cannot tell"}
    assert "20 samples are too few" in found["shortcut"].reasons[0]


def test_confidence_is_that_of_the_nearer_answer():
    assert [answered(chance, []).answer for chance in (0.9, 0.5, 0.1)] == ["yes", "cannot tell", "no"]
    assert [answered(chance, []).confidence for chance in (0.9, 0.5, 0.1)] == [0.9, 0.5, 0.9]
    assert Limit(0, 1).chance(1e9) == pytest.approx(1)
    assert Limit(0, 1).chance(-1e9) == pytest.approx(0)


def test_a_sketch_keeps_what_varies_most_and_no_more_samples_than_it_asks():
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(SAMPLES + 200, 300, generator=generator)
    features[:, :3] *= 30
    sketch = make_sketch(features)
    assert sketch.features.shape == (SAMPLES + 200, 128)
    assert len(sketch.rows) == SAMPLES == len(set(sketch.rows.tolist()))
    spread = sketch.features.var(0)
    wanted = torch.linalg.eigvalsh(torch.cov((features - features.mean(0)).T)).flip(0)
    torch.testing.assert_close(spread[:3] / spread[:3].sum(), wanted[:3] / wanted[:3].sum(), rtol=0.05, atol=0.01)


def test_pairs_are_cut_to_even_classes_and_leave_scarce_ones_out():
    targets = torch.cat([torch.full((count,), k) for k, count in enumerate([400, 100, 5, 60])])
    pairs = {pair: (rows, uneven) for pair, rows, uneven in pair_rows(targets, torch.Generator().manual_seed(0))}
    assert set(pairs) == {(0, 1), (0, 3), (1, 3)}
    rows, uneven = pairs[0, 1]
    assert torch.bincount(targets[rows], minlength=4).tolist() == [PAIR_RATIO * 100, 100, 0, 0]
    assert not uneven
    rows, uneven = pairs[0, 3]  # more than four times as large: all are asked about
    assert torch.bincount(targets[rows], minlength=4).tolist() == [400, 0, 0, 60]
    assert uneven
    many = pair_rows(torch.arange(600) % 12, torch.Generator().manual_seed(0))
    assert len(many) == PAIRS


def test_duplicated_samples_do_not_make_a_shortcut():
    generator = np.random.default_rng(0)
    y = generator.integers(0, 2, 300)
    X = generator.normal(size=(300, 8)) + 1.5 * y[:, None]
    found = icda.audit(np.tile(X, (3, 1)), np.tile(y, 3)).verdicts
    assert found["shortcut"].answer != "yes"


def test_what_the_principal_directions_lack_is_said():
    generator = torch.Generator().manual_seed(0)
    targets = torch.arange(1200) % 2
    wide = torch.randn(1200, 400, generator=generator)
    wide[:, :150] *= 6  # variance that says nothing
    wide[:, 399] = 0.5 * wide[:, 399] + 2 * (targets - 0.5)  # and the class, where there is little
    sketch = make_sketch(wide)
    assert sketch.features.shape[1] < 400
    assert lost_accuracy(sketch, targets, 2, 0) > MOST_LOST
    narrow = make_sketch(wide[:, 300:])
    assert narrow.whole is None
    assert lost_accuracy(narrow, targets, 2, 0) == 0
    assert decide(replace(PLAIN, lost=0.1))["shortcut"].answer == "cannot tell"
    assert decide(replace(PLAIN, lost=0.1, pairs=[SHORTCUT]))["shortcut"].answer == "yes"


def test_beside_wrong_labels_a_shortcut_must_be_read_off_and_only_between_two_classes():
    """Where classes are easy, twins agree on the truth too: what is left to read tells a shortcut from wrong labels."""
    contradicted = {"against": 230, "against_share": 0.23, "sureness": 0.95, "hurt_before": 0.05, "hurt_after": 0.1}
    read = replace(SHORTCUT, **contradicted, agreement=0.993, readability=0.58, readability_error=0.015)
    assert shortcut_chance(read, noise=1.0) > 0.9
    assert shortcut_chance(replace(read, readability=0.51), noise=1.0) < 0.5
    assert shortcut_chance(replace(read, readability=0.525, agreement=0.9995), noise=1.0) > 0.6
    assert shortcut_chance(read, noise=1.0, num_classes=4) <= 0.5
