"""What a person wants to know of a fit first, in a sentence each; for the page and for the terminal."""

import math
import shlex

from icda.report.formatting import percent as plain_percent
from icda.serving.fitting import Fitted
from icda.serving.folder import QUESTIONS
from icda.serving.head import HeadModel
from icda.serving.trial import Trial

SAME = 0.005  # shares that differ by less are called the same
READ = "Those of the others were read off the features, with errors, so that all figures by group are estimates."
SURE_ERRORS, LEAST_GAP = 3.0, 0.03  # from which test and training samples are said to differ


def headline(fitted: Fitted) -> str:
    """How the model does where the shortcut says nothing, and what that costs; without groups, how it does at all."""
    trial = fitted.trial
    after = trial.after.alike
    if after is None:
        worst = trial.after.worst_class
        return (
            f"{percent(trial.after.accuracy)} of the samples that the model has not seen are classified correctly, "
            f"{percent(worst.accuracy)} in the worst class ({worst.name})."
        )
    where = "With every group counted alike"
    if not trial.are_known:
        where = "Where the shortcut says nothing about the class (every suspected group counted alike)"
    share, low, high = after
    said = f"{where}, this model is right in {percent(share)} of the cases ({100 * low:.0f} to {100 * high:.0f})"
    if trial.before is None or trial.before.alike is None:
        return f"{said}; on samples like yours in {percent(trial.after.accuracy)}."
    return f"{said}, a plain one in {percent(trial.before.alike[0])}. {price(trial)}"


def price(trial: Trial) -> str:
    """What is lost, or won, on samples as they come."""
    assert trial.before is not None
    before, after = trial.before.accuracy, trial.after.accuracy
    if abs(after - before) < SAME:
        return f"On samples as they come both are right in about {percent(after)}."
    said = f"samples as they come it is right in {percent(after)}, a plain one in {percent(before)}."
    if after > before:
        return f"On {said}"
    gained = trial.before.alike is None or trial.after.alike is None or trial.after.alike[0] > trial.before.alike[0]
    return f"The price: on {said}" if gained else f"On {said} A plain model (--method ce) does better in both."


def warning(fitted: Fitted) -> str | None:
    """That the test split is unlike the training samples, where chance does not explain it."""
    before, unseen = fitted.trial.before, fitted.unseen
    if fitted.data.test is None or before is None or unseen is None:
        return None
    samples = (before.samples, len(fitted.audit))
    both = (before.accuracy * samples[0] + unseen * samples[1]) / sum(samples)
    error = math.sqrt(max(both * (1 - both), 1e-4) * (1 / samples[0] + 1 / samples[1]))
    gap = unseen - before.accuracy
    if abs(gap) < max(LEAST_GAP, SURE_ERRORS * error):
        return None
    worse = "worse" if gap > 0 else "better"
    return (
        f"The test split is unlike the training samples: plain training is right in {percent(unseen)} of training samples "
        f"that it has not seen, and in {percent(before.accuracy)} of the test split, which is {worse} by far more than "
        "chance. New samples will do as those do that they resemble."
    )


def found_in_short(fitted: Fitted) -> str:
    """What the audit says of a shortcut and the other troubles."""
    answer = fitted.audit.verdicts["shortcut"].answer
    if fitted.data.answered[0]:
        named = f"You named the group of {fitted.data.answered[0]} samples."
        return f"{named} {READ}" if fitted.groups_are_read else named
    if fitted.groups_are_read:
        return f"Groups were given for some samples. {READ}"
    if fitted.data.groups is not None:
        return "Groups were given, so that no shortcut had to be guessed."
    return {
        "yes": "There is a shortcut: something other than the class predicts most labels, and a plain model follows it.",
        "no": "No shortcut was found, though data alone cannot rule one out: look at what is taken for another class.",
        "cannot tell": "Whether there is a shortcut cannot be told from these data: look at the two lots of samples.",
    }[answer]


def next_step(fitted: Fitted, folder: str) -> tuple[str, str]:
    """What to do now, and the command for it."""
    predict = shlex.join(["icda", "predict", folder, new_data(fitted), "--out", "predictions.csv"])
    is_settled = fitted.data.groups is not None or any(fitted.data.answered)
    if is_settled or not isinstance(fitted.model, HeadModel):  # of a network there is no page of questions
        return "Next, predict new samples and check some of them by hand:", predict
    ask = shlex.join(["icda", "ask", folder, "--serve"])
    if fitted.audit.verdicts["shortcut"].answer == "no":
        return (
            f"If the suspected samples share something, name it ({ask}). Else predict, and check some by hand:",
            predict,
        )
    return f"Next, say what you see in two dozen samples (or open {QUESTIONS} beside this page) and fit again:", ask


def new_data(fitted: Fitted) -> str:
    """A name for new data, of the kind that the model reads."""
    kind = fitted.data.reads.kind
    if kind == "features":
        return f"new{fitted.data.suffix or '.npz'}"
    return {"image": "new_photos", "text": "new_texts.csv"}[kind]


def percent(share: float) -> str:
    """In per cent, the sign never alone on a line."""
    return plain_percent(share).replace(" ", "\N{NO-BREAK SPACE}")
