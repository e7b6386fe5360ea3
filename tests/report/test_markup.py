import pytest

from icda.report.markup import Markup, definitions, element, escape, section, table


def test_text_is_escaped_everywhere_and_markup_only_once() -> None:
    evil = "<b>\"&'"
    safe = "&lt;b&gt;&#34;&amp;&#39;"
    assert escape(escape(evil)) == safe
    for made in (
        element("p", evil),
        element("p", title=evil),
        section(evil, 2),
        table(evil, [evil, evil], [[evil, evil]]),
        definitions([(evil, evil)], "facts"),
    ):
        assert safe in made
        assert "<b>" not in made


def test_an_attribute_of_none_is_left_out() -> None:
    assert element("p", class_=None) == "<p></p>"


def test_a_table_has_caption_scopes_and_row_headings() -> None:
    made = table("Ages", ["Name", "Town", "Age"], [["Ann", "Ulm", 1]], names=2)
    assert "<caption><span>Ages</span></caption>" in made
    assert made.count('scope="col"') == 3
    assert '<th scope="row" class="name">Ann</th><td class="name">Ulm</td><td>1</td>' in made


@pytest.mark.parametrize("value", [1, 0.5, None])
def test_any_value_can_be_shown(value: object) -> None:
    assert escape(value) == str(value)
    assert isinstance(escape(value), Markup)
