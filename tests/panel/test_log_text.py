"""Lines in cells: tabs, wide characters, windows and wrapped rows; axes that are easy to read."""

import random

import pytest
from rich.cells import cell_len

from tui.panel.widgets.log.plot import axis_of
from tui.panel.widgets.log.text import flat, width_of, window, wrapped

ODD = "ab\tc 重みé\u0301x👩\u200d💻 \u200b한국어 z" * 4


def test_tabs_go_to_the_next_stop_in_cells():
    assert flat("a\tb") == "a       b"
    assert flat("1234567\tb\t") == "1234567 b       "
    assert flat("重み\tb") == "重み    b"
    assert flat("one\nline") == "one line"


@pytest.mark.parametrize("text", ["plain ascii text " * 9, flat(ODD)])
def test_a_window_shows_the_cells_it_is_asked_for(text: str):
    total = width_of(text)
    for start in range(0, total + 3):
        for width in (1, 7, 40):
            shown, begin = window(text, start, width)
            assert width_of(shown) <= width
            if start + width < total:
                assert width_of(shown) >= width - 1  # less only where a wide character is cut
            assert shown[1:] == text[begin + 1 : begin + len(shown)]  # the first one may be a wide one's blank


def test_a_wide_character_that_an_edge_cuts_is_a_blank():
    assert window("重み", 1, 3) == (" み", 0)
    assert window("重み", 0, 3)[0] == "重"
    assert window("重み", 9, 3)[0] == ""


@pytest.mark.parametrize("seed", range(20))
def test_wrapped_rows_lose_nothing_but_the_blanks_at_breaks(seed: int):
    rng = random.Random(seed)
    text = "".join(rng.choice("ab 重み\u0301") for _ in range(300))
    width = rng.randrange(2, 40)
    rows = wrapped(text, width)
    at = 0
    for begin, row in rows:
        assert text[begin : begin + len(row)] == row
        assert text[at:begin] in ("", " ")
        assert width_of(row) <= width
        at = begin + len(row)
    assert at == len(text) or text[at:] == " "


def test_widths_are_those_of_the_terminal():
    for text in ("ascii", "重み", "한국어", "e\u0301", "a\u200bb"):
        assert width_of(text) == cell_len(text)


def test_axes_hold_their_values_between_three_readable_ticks():
    rng = random.Random(1)
    for _ in range(300):
        values = [rng.uniform(0, 10 ** rng.randrange(-2, 6)) for _ in range(rng.randrange(1, 5))]
        axis = axis_of(values)
        assert axis.low <= min(values) + 1e-9
        assert axis.high >= max(values) - 1e-9
        for tick in (axis.low, (axis.low + axis.high) / 2, axis.high):
            assert abs(round(tick, axis.places) - tick) < 1e-3 * max(1.0, abs(tick))
    assert (axis_of([1.9, 2.7]).low, axis_of([1.9, 2.7]).high) == (1.75, 2.75)
    assert axis_of([72.1, 72.1]).low < 72.1 < axis_of([72.1, 72.1]).high
