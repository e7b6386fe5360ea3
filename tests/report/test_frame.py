from icda.report.markup import Markup, framed
from icda.report.results import Vocabulary


def page(vocabulary: Vocabulary) -> str:
    made = framed("<b>Cats", "icda audit", [("confusion", "Confusion", Markup("<p>1</p>"))], vocabulary, [("x", "<i>")])
    return made.partition("<script>")[0].partition("</style>")[2]


def test_every_name_can_be_chosen_and_none_is_markup() -> None:
    made = page(Vocabulary({"<b>": "c0", "{{ maker }}": "c1"}, {"day": "g0", "night": "g1"}))
    assert '<option value="c0">&lt;b&gt;</option>' in made
    assert '<option value="c1">{{ maker }}</option>' in made
    assert "All classes" in made
    assert "All groups" in made
    assert "<h1>&lt;b&gt;Cats</h1>" in made


def test_what_needs_a_script_is_hidden_until_there_is_one() -> None:
    assert page(Vocabulary({"a": "c0", "b": "c1"})).count('hidden=""') == 2


def test_nothing_to_choose_between_makes_no_filter() -> None:
    assert 'id="filters"' not in page(Vocabulary({"a": "c0"}, {}))


def test_contents_lead_to_the_parts() -> None:
    made = page(Vocabulary())
    assert '<a href="#confusion">Confusion</a>' in made
    assert '<a href="#x">&lt;i&gt;</a>' in made
    assert '<div id="confusion" class="part"><p>1</p></div>' in made
