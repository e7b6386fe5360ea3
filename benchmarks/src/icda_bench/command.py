"""`icda bench NAME`: a table of functions `run(options)`; what they annotate their options with is what users may type."""

import importlib
import sys
from collections.abc import Sequence
from typing import NamedTuple, get_type_hints

from icda.cli import overview
from icda.registry import did_you_mean


class Bench(NamedTuple):
    """A line of `icda bench`. One that does not resume keeps nothing before it ends."""

    summary: str
    function: str
    resumes: bool = True


SUITE = "suites.command.run"
BENCHES = {
    "speed": Bench("time and memory of losses against plain cross entropy, interleaved", "cost.speed.run", False),
    "meta": Bench(
        "meta-learning on three small tasks, and whether strengths find wrong labels", "studies.meta_learning.run"
    ),
    "embeddings": Bench("every estimator and variant on features of real biased data", "studies.embeddings.run.run"),
    "tail-features": Bench(
        "losses and a Gaussian discriminant on features with a long tail", "studies.tail_features.run"
    ),
    "audit": Bench("how well the audit finds groups and wrong labels, beside cleanlab", "studies.audit.run", False),
    "verdicts": Bench(
        "whether the audit's verdicts are right on planted biases, and their worth", "studies.verdicts.run.run"
    ),
    "robust": Bench("whether --method robust finds what was planted", "studies.robust_verdicts.run"),
    "asking": Bench("what a person's answers are worth: the worst group over their number", "studies.asking.run"),
    "peers": Bench("icda beside scikit-learn, fairlearn and cleanlab on tables and photos", "studies.peers.run.run"),
    "fit": Bench("fit times beside LogisticRegression, and memory for features on disk", "cost.fit_time.run", False),
    "strengths": Bench(
        "whether strengths of runs know groups they were not told", "studies.finished_runs.run_strengths", False
    ),
    "selection": Bench("what each selection rule costs in the worst group", "studies.selection_rules.run"),
    "figures": Bench("train and draw the pictures of the documentation", "studies.figures.run"),
    "table2": Bench("the paper's Table 2: long-tailed CIFAR", SUITE),
    "table3": Bench("the paper's Table 3: what ICDA adds to a step of seven networks", "cost.network_cost.run", False),
    "table4": Bench("the paper's Table 4: CIFAR with wrong labels", SUITE),
    "table6": Bench("the paper's Table 6: subpopulation shift", SUITE),
    "table7": Bench("the paper's Table 7: generalised long tails, ImageNet-GLT", SUITE),
    "table8": Bench("the paper's Table 8: generalised long tails, MSCOCO-GLT", SUITE),
    "table9": Bench("the paper's Table 9: standard CIFAR", SUITE),
    "imagenet-lt": Bench("the paper's ImageNet-LT figure: heads on cached features", SUITE),
    "ablation": Bench("the paper's ablation: ICDA without each of its parts", SUITE),
    "sensitivity": Bench("the paper's sensitivity test: lambda0 and beta", SUITE),
    "gain": Bench("where ICDA's gain over LA lives: depth, length, lambda0, stale statistics", SUITE),
    "shortcut": Bench("whether a larger sample margin takes ICDA off a shortcut", SUITE),
    "text": Bench("film reviews whose sentiment people reversed: a table of our own", SUITE),
    "noise": Bench("wrong labels on digits and 5,000 images of MNIST: a table of our own", SUITE),
    "human-noise": Bench("labels that people gave to CIFAR: a table of our own", SUITE),
    "mistakes": Bench("whether finished runs know which labels are wrong", "studies.finished_runs.run_mistakes", False),
    "best-epoch": Bench("what a table gains that reports the best test epoch", "studies.noisy_digits.run_best_epoch"),
    "few-metadata": Bench("how far metadata may be few or wrong", "studies.noisy_digits.run_few_metadata"),
    "long-training": Bench(
        "what is left of signed Meta-ICDA in long trainings", "studies.noisy_digits.run_long_training"
    ),
    "shortcut-and-noise": Bench("a shortcut and wrong labels at once", "studies.noisy_digits.run_shortcut_and_noise"),
    "stability": Bench("whether the plain recipe trains on few images", "studies.stability.run"),
    "block-fit": Bench("fits to blocks of rows, here and on Ray, beside a cost model", "cost.block_fit.run", False),
    "cores": Bench("what a second core brings to embed, audit and fit", "cost.cores.run", False),
    "large-head": Bench("time and memory of heads with very many classes", "cost.large_head.run", False),
}


def main(arguments: Sequence[str]) -> int:
    """rerun the paper's tables, and measure speed, memory and estimators"""
    if not arguments or arguments[0] in ("-h", "--help"):
        print("usage: icda bench NAME [OPTIONS]\n")
        print(overview({name: bench.summary for name, bench in BENCHES.items()}))
        return 0
    name = arguments[0]
    if name not in BENCHES:
        hint = did_you_mean(name, BENCHES)
        print(f"icda: unknown bench {name!r}: {hint}Known: {', '.join(BENCHES)}.", file=sys.stderr)
        return 2
    try:
        return run(name, arguments[1:])
    except KeyboardInterrupt as interrupt:
        if not BENCHES[name].resumes:
            raise
        raise KeyboardInterrupt("The same command goes on where it stopped.") from interrupt


def run(name: str, words: Sequence[str]) -> int:
    """Only the module of the bench is imported: most need torch, which takes seconds."""
    import tyro

    module, _, function = BENCHES[name].function.rpartition(".")
    measure = getattr(importlib.import_module(f"icda_bench.{module}"), function)
    options = tyro.cli(get_type_hints(measure)["options"], args=list(words), prog=f"icda bench {name}")
    return int((measure(name, options) if BENCHES[name].function == SUITE else measure(options)) or 0)
