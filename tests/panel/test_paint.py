"""Cells: clipping, wide characters, what is sent when something changes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tui.core.text import sanitize
from tui.panel.widgets.decode_history import axis
from tui.panel.widgets.paint import Canvas, _changed, cells, clip, clip_runs, width_of, wrap


def row(canvas: Canvas, y: int = 0) -> str:
    return "".join(canvas.chars[y])


def test_clip_ends_in_an_ellipsis_only_where_something_is_left_out():
    assert clip("weights", 7) == "weights"
    assert clip("weights", 6) == "weigh…"
    assert clip("重み重み", 5) == "重み…"
    assert clip("重み", 0) == ""


def test_clip_runs_keeps_specs():
    runs = [("load ", "muted"), ("weights", "strong!")]
    assert clip_runs(runs, 12) == runs
    assert clip_runs(runs, 8) == [("load ", "muted"), ("we…", "strong!")]
    assert clip_runs(runs, 5) == [("load…", "muted")]
    assert width_of(clip_runs(runs, 5)) == 5


@given(st.text(max_size=60), st.integers(1, 40))
def test_no_text_of_a_host_breaks_a_row(text, width):
    canvas = Canvas(width, 1)
    canvas.put(0, 0, sanitize(text).replace("\n", " ").replace("\t", " "))
    assert len(canvas.chars[0]) == len(canvas.specs[0]) == width
    assert cells(row(canvas)) <= width


@given(st.text(alphabet="ab 重◐", max_size=80), st.integers(2, 30))
def test_wrapped_lines_fit_and_lose_nothing(text, width):
    lines = wrap(text, width)
    assert all(cells(line) <= width for line in lines)
    assert "".join("".join(lines).split()) == "".join(text.split())


def test_bars_fill_a_cell_for_anything_above_zero():
    canvas = Canvas(20, 3)
    canvas.bar(0, 0, 10, 0.001)
    canvas.bar(0, 1, 10, 0.0)
    canvas.bar(0, 2, 10, 0.5, mark=8)
    assert canvas.specs[0][:2] == ["data/bg", "track/bg"]
    assert canvas.specs[1][0] == "track/bg"
    assert row(canvas, 2)[:10] == "▆" * 8 + "│▆"


def test_history_is_on_a_fixed_scale_and_a_gap_is_blank():
    canvas = Canvas(4, 1)
    canvas.history(0, 0, [0.0, None, 0.5, 1.0])
    assert row(canvas) == "▁ ▄▇"


def test_only_changed_cells_are_sent():
    old, new = Canvas(80, 1), Canvas(80, 1)
    for canvas, figure in ((old, "41.0"), (new, "42.5")):
        canvas.put(0, 0, "memory")
        canvas.put(20, 0, figure)
        canvas.put(60, 0, "same")
    assert [(r.x, r.width) for r in _changed(old, new, 0)] == [(21, 3)]
    new.put(60, 0, "some")
    assert [(r.x, r.width) for r in _changed(old, new, 0)] == [(21, 3), (61, 1)]


def test_half_of_a_wide_character_is_never_sent_alone():
    old, new = Canvas(10, 1), Canvas(10, 1)
    old.put(0, 0, "a重b")
    new.put(0, 0, "ax b")
    (region,) = _changed(old, new, 0)
    assert (region.x, region.x + region.width) == (1, 3)


def test_figures_are_three_rows_of_half_blocks():
    canvas = Canvas(20, 3)
    end = canvas.figure(0, 0, "5:59")
    assert end == 13
    assert row(canvas, 0).startswith("█▀▀ ")
    assert set(row(canvas, 2)) <= set("▀▄█ ")


def test_a_plot_has_gaps_where_the_data_has():
    canvas = Canvas(4, 2)
    canvas.plot(0, 0, 4, 2, [1.0, 1.0, None, None, None, None, 0.0, 0.0], 0.0, 1.0, "accent")
    assert canvas.chars[0][1] == canvas.chars[0][2] == " "
    assert canvas.chars[0][0] != " "
    assert canvas.chars[1][3] != " "


@pytest.mark.parametrize(
    ("high", "labels"), [(100.0, ("100", "50", "0")), (1600.0, ("1,600", "800")), (120_000.0, ("120,000",))]
)
def test_an_axis_is_as_wide_as_its_widest_label(high, labels):
    canvas = Canvas(40, 5)
    gutter = axis(canvas, 0, 0, 5, 0.0, high, "tok/s")
    text = "\n".join(row(canvas, y) for y in range(5))
    assert all(f" {label} ╌" in f" {text}".replace("\n", "\n ") for label in labels)
    assert all(row(canvas, y)[gutter] == "╌" for y in (0, 2, 4))
    assert gutter == max(5, len(labels[0]) + 1)
