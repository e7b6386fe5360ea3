"""What a user can make or call says of each argument what it is, and of what comes back its shape."""

import dataclasses
import inspect
import re
from typing import Any

import pytest

import icda
import icda.data
import icda.integrations
import icda.losses

# Made by icda and read by users: their fields are named in the docstring or explained beside them.
RECORDS = (icda.Audit, icda.Questions, icda.Verdict, icda.Moments, icda.Strength, icda.AugmentedFeatures)
ROOMS = ((icda, icda.__all__), (icda.losses, dir(icda.losses)), (icda.integrations, icda.integrations.__all__))
PUBLIC: dict[str, Any] = {
    name: getattr(room, name) for room, names in ROOMS for name in names if name not in ("__version__", "LOSSES")
}
PUBLIC |= {"dataset_task": icda.data.dataset_task}
METHODS = {
    "AdjustedLoss.forward": icda.AdjustedLoss.forward,
    "ClassStatistics.update": icda.ClassStatistics.update,
    "MetaICDA.loss": icda.MetaICDA.loss,
}


def documented(thing):
    """Arguments named under "Args:", or under scikit-learn's "Parameters" in an estimator."""
    doc = inspect.getdoc(thing) or ""
    google = re.search(r"^Args:\n((?: +.*(?:\n|$))+)", doc, re.M)
    if google:
        entries = re.findall(r"^    (\*{0,2}\w+(?:, \w+)*): \S", google[1], re.M)
        return {name.strip("* ") for entry in entries for name in entry.split(",")}
    numpy = re.search(r"^Parameters\n-+\n(.*?)(?=^\w+\n-+\n|\Z)", doc, re.M | re.S)
    entries = re.findall(r"^(\w+(?:, \w+)*) : \S", numpy[1], re.M) if numpy else []
    return {name.strip() for entry in entries for name in entry.split(",")}


def arguments(thing):
    names = set(inspect.signature(thing).parameters) - {"self"}
    return names - ({"unknown"} if thing is icda.AdjustedLoss else set())  # what is refused


MADE = sorted(name for name, thing in PUBLIC.items() if thing not in RECORDS)


@pytest.mark.parametrize("name", MADE)
def test_every_argument_is_explained_and_no_other(name):
    assert documented(PUBLIC[name]) == arguments(PUBLIC[name])


@pytest.mark.parametrize("name", [name for name in MADE if not isinstance(PUBLIC[name], type)])
def test_a_function_says_what_it_returns(name):
    assert re.search(r"^Returns:\n    \S|^Returns\n-+\n\S|returns ", inspect.getdoc(PUBLIC[name]) or "", re.M), name


@pytest.mark.parametrize(("name", "method"), METHODS.items())
def test_the_calls_of_a_loop_are_explained(name, method):
    assert documented(method) == arguments(method), name
    if name != "ClassStatistics.update":  # which returns nothing
        assert "\nReturns:\n" in (inspect.getdoc(method) or "")


@pytest.mark.parametrize("record", [record for record in RECORDS if record is not icda.Audit])
def test_a_record_names_its_fields(record):
    fields = (
        [field.name for field in dataclasses.fields(record)] if dataclasses.is_dataclass(record) else record._fields
    )
    missing = [name for name in fields if not re.search(rf"`{name}`", inspect.getdoc(record) or "")]
    assert missing == []


def test_tensors_have_their_shapes():
    for name in ("ICDALoss", "LDAMLoss", "FeatureTap", "direct_strength", "augment"):
        assert re.search(r"\((?:N|C|K)(?:, [A-Z])?,?\)", inspect.getdoc(PUBLIC[name]) or ""), name


def test_an_inherited_argument_is_explained_as_in_its_base():
    base, own = (inspect.getdoc(kind) or "" for kind in (icda.AdjustedLoss, icda.ISDALoss))
    line = next(line for line in base.splitlines() if line.strip().startswith("ignore_index:"))
    assert line in own.splitlines()
