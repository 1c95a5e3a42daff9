"""Tables out of pasted lines: what is in a cell, under which head, and what shows that a part is missing."""

import pytest

from tui.core.results.external import tables
from tui.core.results.external.tables import table_at


def read(text: str, at: int = 0):
    return table_at(text.strip("\n").split("\n"), at, lambda head, drawn: True)


def test_markdown_with_and_without_outer_bars():
    for text in ("| a | b |\n|---|:-:|\n| 1 | 2 |\nwords", "a | b\n--- | ---\n1 | 2\nwords"):
        table = read(text)
        assert (table.head, table.rows, table.taken, table.cut) == (["a", "b"], [["1", "2"]], 3, None)


def test_a_head_of_several_rows_whose_cells_span():
    table = read("| Run | Latency    ||\n| Id  | s          ||\n|     | Mdn  | p95 |\n|---|---|---|\n| x | 1 | 2 |")
    assert table.head == ["Run Id", "Latency s Mdn", "Latency s p95"]


BOXED = """
┏━━━━━━━━┳━━━━━┓
┃ Metric ┃ avg ┃
┡━━━━━━━━╇━━━━━┩
│   Time │ 1.5 │
│   (ms) │     │
└────────┴─────┘
"""


def test_a_label_over_two_lines_and_a_border():
    table = read(BOXED, 1)
    assert (table.head, table.rows, table.taken, table.cut) == (["Metric", "avg"], [["Time (ms)", "1.5"]], 5, None)


@pytest.mark.parametrize("lines", [5, 4])
def test_a_table_without_its_lower_border_is_cut(lines):
    assert read("\n".join(BOXED.strip("\n").split("\n")[:lines]), 1).cut == "its lower border"


def test_cells_that_a_narrow_terminal_cut():
    assert "too narrow" in read(BOXED.replace("1.5", "1… "), 1).cut


def test_a_title_in_lines_is_no_rule():
    assert read(f"{BOXED.rsplit('└')[0].rstrip()}\n========= Serving Benchmark Result =========\n", 1).taken == 4


def test_csv_with_a_second_part():
    table = read('Metric,avg,max\r\n"Latency, all",1,"1,790.9"\r\n\r\nMetric,Value\r\nCount,10\r\n\r\nother,things,x')
    assert table.rows == [["Latency, all", "1", "1,790.9"], ["Metric", "Value", ""], ["Count", "10", ""]]
    assert not table.drawn


def test_html_in_one_line_and_over_many():
    html = '<table border="1"><tr><th>a</th><th>b &lt; c</th></tr>\n<tr><td>1</td>\n<td><b>2</b>\n</td></tr></table>'
    for text in (f"words {html}", html.replace("\n", "")):
        table = read(text)
        assert (table.head, table.rows, table.cut) == (["a", "b < c"], [["1", "2"]], None)
    assert read(html.replace("</table>", "")).cut == "its end, </table>"
    assert read("<table>\n\n<tr><th>a</th></tr>").rows == []


def test_what_nobody_reads_is_not_read_on(monkeypatch):
    """Else every row would be the head of the rest."""
    looked = []
    cells = tables._cells
    monkeypatch.setattr(tables, "_cells", lambda line: looked.append(1) or cells(line))
    lines = ["| a | b |"] * 1000
    for at in range(len(lines)):
        assert table_at(lines, at, lambda head, drawn: False) is None
    assert len(looked) <= 6 * len(lines)
