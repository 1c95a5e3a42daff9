"""Rows of dialogs: they wrap at any width, hang under their labels, lose nothing, and parse nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tui.core.text import sanitize
from tui.panel.widgets.rows import AnyRow, KeyRow, Row, Rows, Single, Title, facts_of


def texts(row: AnyRow, width: int) -> list[str]:
    return [line.plain for line in Rows([row]).lines(width)]


@given(st.text(max_size=120).map(sanitize), st.integers(20, 90))
def test_no_row_is_wider_than_its_room_and_no_word_is_lost(text: str, width: int):
    lines = Rows([[("✗ ", "err"), (text, "text")]]).lines(width)
    assert all(line.cell_length <= width for line in lines)
    assert "".join("".join(line.plain for line in lines).split()) == "".join(("✗ " + text).split())


@pytest.mark.parametrize(
    ("row", "hang"),
    [
        ([("✗ ", "err"), ("word " * 12, "text")], 2),
        ([("label     ", "muted"), ("word " * 12, "text")], 10),
        ([("word ", "muted"), ("word " * 12, "text")], 0),
        (Row([("--flag", "accent"), (" word" * 12, "text")], hang=4), 4),
        (facts_of([("host", "word " * 12)])[0], 14),
    ],
)
def test_what_is_wrapped_hangs_under_its_text(row, hang):
    first, second, *_ = texts(row, 40)
    assert len(second) - len(second.lstrip()) == hang
    assert len(first) <= 40


def test_a_ground_fills_its_rows():
    assert {len(text) for text in texts(Row([("+ key = ", "ok"), ("word " * 9, "text")], ground="okbg"), 30)} == {30}


def test_titles_and_single_rows_take_one_row_of_any_width():
    for width in (24, 60):
        assert [len(text) for text in texts(Title("Pre-flight", [("2 OK", "ok")]), width)] == [width]
        (text,) = texts(Single([("a profile", "text")], [("ready in 11:07 with a long change", "muted")]), width)
        assert len(text) == width
        assert text.startswith("a profile")


def test_keys_that_do_not_fit_are_left_out_but_not_the_way_back():
    row = KeyRow((("o", "override flags"), ("y", "copy command"), ("Esc", "back")), lead=[(" Enter ", "accent!/accbg")])
    assert texts(row, 80) == [" Enter    o override flags   y copy command   Esc back"]
    assert texts(row, 40) == [" Enter    o override flags   Esc back"]
    assert texts(row, 10) == [" Enter    Esc back"]


def test_brackets_of_a_host_are_text():
    assert texts([("[bold]not [/]markup[red", "text")], 40) == ["[bold]not [/]markup[red"]
