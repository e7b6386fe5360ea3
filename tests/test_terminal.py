"""The console that names from files are printed on."""

from io import StringIO

from rich.progress import Progress
from rich.table import Table

from icda.terminal import make_console

HOSTILE = "cat\x1b]0;owned\x07\x1b[2J\u202e"


def test_a_table_with_a_hostile_name_sends_no_escape_to_the_terminal():
    out = StringIO()
    table = Table("class")
    table.add_row(HOSTILE)
    make_console(file=out, width=80).print(table)
    assert not set("\x1b\x07\u202e") & set(out.getvalue())
    assert "cat" in out.getvalue()


def test_colours_and_bars_of_our_own_still_reach_a_terminal():
    out = StringIO()
    console = make_console(file=out, force_terminal=True, width=80)
    console.print("[red]warning[/red]")
    assert "\x1b[31mwarning" in out.getvalue()
    with Progress(console=console) as bar:
        bar.add_task("work", total=1)
        console.print(HOSTILE)
    assert "\x1b]0;" not in out.getvalue()
    assert "\x1b[?25h" in out.getvalue()  # the cursor is shown again when the bar is over
