"""Plots: what plotext rasterises lies where labels say it does, in our colours, and nothing else is on the canvas."""

import math
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tui.panel.widgets.bench import chart
from tui.panel.widgets.bench.chart import Series
from tui.panel.widgets.paint import Canvas


def drawn(canvas: Canvas) -> set[tuple[int, int]]:
    """Cells that are not blank."""
    return {(x, y) for y, row in enumerate(canvas.chars) for x, char in enumerate(row) if char != " "}


@given(st.integers(2, 90), st.integers(1, 30), st.floats(0, 1, allow_nan=False), st.floats(0, 1, allow_nan=False))
def test_a_point_lies_in_the_cell_that_row_and_column_name(width, height, x, y):
    across, up = (-3.0, 5.0), (10.0, 12.0)
    at, value = across[0] + x * 8.0, up[0] + y * 2.0
    canvas = Canvas(width, height)
    chart.plot(canvas, 0, 0, width, height, [Series(((at, value),), "accent")], across, up)
    [(column, row)] = drawn(canvas)
    assert abs(column - chart.column(at, width, across)) <= (1 if x not in (0.0, 1.0) else 0)
    assert abs(row - chart.row(value, height, up)) <= (1 if y not in (0.0, 1.0) else 0)
    assert canvas.specs[row][column] == "accent/bg"


def test_edges_are_the_outermost_dots():
    canvas = Canvas(10, 3)
    corners = ((0.0, 0.0), (0.0, 1.0), (1.0, 0.0), (1.0, 1.0))
    chart.plot(canvas, 0, 0, 10, 3, [Series(corners, "text", joined=False)], (0.0, 1.0), (0.0, 1.0))
    assert [canvas.chars[y][x] for x, y in ((0, 0), (0, 2), (9, 0), (9, 2))] == ["⠁", "⡀", "⠈", "⢀"]


def test_a_plot_is_not_cut_to_the_size_of_a_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "24")
    assert os.get_terminal_size is not None
    canvas = Canvas(200, 60)
    chart.plot(canvas, 0, 0, 200, 60, [Series(((0.0, 0.0), (1.0, 1.0)), "text")], (0.0, 1.0), (0.0, 1.0))
    assert (199, 0) in drawn(canvas)
    assert (0, 59) in drawn(canvas)


def test_a_gap_in_the_data_is_a_gap_in_the_line_and_what_is_no_number_too():
    canvas = Canvas(20, 2)
    points = ((0.0, 1.0), (4.0, 1.0), (5.0, None), (6.0, math.nan), (12.0, 1.0), (19.0, 1.0))
    chart.plot(canvas, 0, 0, 20, 2, [Series(points, "text")], (0.0, 19.0), (0.0, 2.0))
    row = "".join(canvas.chars[0]) + "".join(canvas.chars[1])
    assert "".join("x" if (x, 0) in drawn(canvas) or (x, 1) in drawn(canvas) else " " for x in range(20)).split() == [
        "xxxxx",
        "xxxxxxxx",
    ], row


def test_later_series_lie_over_earlier_ones_and_grids_stay():
    canvas = Canvas(12, 1)
    canvas.put(0, 0, "╌" * 12, "line")
    line = Series(((0.0, 0.5), (5.0, 0.5)), "violet")
    dot = Series(((3.0, 0.5),), "strong!", "●")
    chart.plot(canvas, 0, 0, 12, 1, [line, dot], (0.0, 11.0), (0.0, 1.0))
    assert canvas.chars[0][3] == "●"
    assert canvas.specs[0][3] == "strong!/bg"
    assert canvas.specs[0][0] == "violet/bg"
    assert canvas.chars[0][10] == "╌"


def test_a_dashed_level_reaches_from_edge_to_edge():
    canvas = Canvas(30, 3)
    chart.plot(canvas, 0, 0, 30, 3, [Series(((0.0, 1.0),), "warn", dashed=True)], (0.0, 1.0), (0.0, 2.0))
    columns = {x for x, _ in drawn(canvas)}
    assert min(columns) == 0
    assert max(columns) >= 28
    assert len(columns) < 30


@pytest.mark.parametrize(("width", "height"), [(0, 5), (5, 0), (1, 1)])
def test_no_room_is_no_fault(width, height):
    canvas = Canvas(5, 5)
    chart.plot(canvas, 0, 0, width, height, [Series(((0.0, 0.0),), "text")], (0.0, 1.0), (0.0, 1.0))
    chart.plot(canvas, 0, 0, 5, 5, [Series(((0.0, 0.0),), "text")], (1.0, 1.0), (0.0, 1.0))
    chart.plot(canvas, 0, 0, 5, 5, [], (0.0, 1.0), (0.0, 1.0))


@pytest.mark.parametrize(
    ("low", "high", "most", "expected"),
    [
        (0.31, 1.9, 3, ([0.5, 1.0, 1.5], 1)),
        (70.1, 91.2, 7, ([75.0, 80.0, 85.0, 90.0], 0)),
        (1.0, 6.0, 6, ([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 0)),
        (1.0, 6.0, 5, ([2.0, 4.0, 6.0], 0)),
        (0.0, 95.0, 4, ([0.0, 50.0], 0)),
        (5.0, 5.0, 4, ([5.0], 1)),
    ],
)
def test_ticks_are_round(low, high, most, expected):
    found, places = chart.ticks(low, high, most)
    assert ([round(tick, 6) for tick in found], places) == expected
