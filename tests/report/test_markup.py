from icda.report.markup import Markup, definitions, element, escape, framed, section, table
from icda.report.results import Vocabulary


def test_text_is_escaped_everywhere_and_markup_only_once():
    evil = "<b>\"&'"
    safe = "&lt;b&gt;&#34;&amp;&#39;"
    assert escape(escape(evil)) == safe
    assert [escape(value) for value in (1, 0.5, None)] == ["1", "0.5", "None"]
    assert element("p", class_=None) == "<p></p>"
    for made in (
        element("p", evil),
        element("p", title=evil),
        section(evil, 2),
        table(evil, [evil, evil], [[evil, evil]]),
        definitions([(evil, evil)], "facts"),
    ):
        assert safe in made
        assert "<b>" not in made


def test_a_table_has_caption_scopes_and_row_headings():
    made = table("Ages", ["Name", "Town", "Age"], [["Ann", "Ulm", 1]], names=2)
    assert "<caption><span>Ages</span></caption>" in made
    assert made.count('scope="col"') == 3
    assert '<th scope="row" class="name">Ann</th><td class="name">Ulm</td><td>1</td>' in made


def page(vocabulary):
    made = framed("<b>Cats", "icda audit", [("confusion", "Confusion", Markup("<p>1</p>"))], vocabulary, [("x", "<i>")])
    return made.partition("<script>")[0].partition("</style>")[2]


def test_every_name_can_be_chosen_and_none_is_markup():
    made = page(Vocabulary({"<b>": "c0", "{{ maker }}": "c1"}, {"day": "g0", "night": "g1"}))
    assert '<option value="c0">&lt;b&gt;</option>' in made
    assert '<option value="c1">{{ maker }}</option>' in made
    assert "All classes" in made
    assert "All groups" in made
    assert "<h1>&lt;b&gt;Cats</h1>" in made
    assert made.count('hidden=""') == 2, "what needs a script is hidden until there is one"
    assert 'id="filters"' not in page(Vocabulary({"a": "c0"}, {})), "nothing to choose between"


def test_contents_lead_to_the_parts():
    made = page(Vocabulary())
    assert '<a href="#confusion">Confusion</a>' in made
    assert '<a href="#x">&lt;i&gt;</a>' in made
    assert '<div id="confusion" class="part"><p>1</p></div>' in made
