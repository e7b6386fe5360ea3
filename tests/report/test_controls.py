from icda.report.frame import contents, filters, theme_switch
from icda.report.results import Vocabulary


def test_every_name_can_be_chosen_and_none_is_markup() -> None:
    made = filters(Vocabulary({"<b>": "c0", "dog": "c1"}, {"day": "g0", "night": "g1"}))
    assert '<option value="c0">&lt;b&gt;</option>' in made
    assert "All classes" in made
    assert "All groups" in made


def test_what_needs_a_script_is_hidden_until_there_is_one() -> None:
    assert 'hidden=""' in filters(Vocabulary({"a": "c0", "b": "c1"}))
    assert 'hidden=""' in theme_switch()


def test_nothing_to_choose_between_makes_no_filter() -> None:
    assert filters(Vocabulary({"a": "c0"}, {})) == ""


def test_contents_lead_to_the_parts() -> None:
    assert '<a href="#confusion">Confusion</a>' in contents([("confusion", "Confusion")])
