"""What a log or a terminal put before every line is taken off; what is the text's own stays."""

import pytest

from tui.core.results.external.prefixes import unprefixed

LINES = ["| Metric | avg |", "", "  Mean TTFT (ms):  41.5", '{"a": 1}']


@pytest.mark.parametrize(
    "prefix",
    [
        "bench-1  | ",
        "[rank0]: ",
        "2026-07-01T09:10:{n:02}.123Z ",
        "\tINFO 2026-08-30 10:11:12,34{n} [bench.py:{n}2] ",
        "# ",
        "",
    ],
)
def test_a_prefix_of_all_lines(prefix):
    whole = [(prefix.format(n=number % 10) + line).rstrip() for number, line in enumerate(LINES)]
    assert unprefixed(whole) == LINES


@pytest.mark.parametrize(
    "lines",
    [
        ["Throughput: 1 req/s", "Throughput: 1 req/s", "Throughput: 2 req/s"],
        ['{"duration": 1}', '{"duration": 2}', '{"duration": 3}'],
        ["| a | 1 |", "| a | 2 |", "| a | 3 |"],
        ["[rank0]: a", "[rank0]: b"],  # too few to tell
        ["[rank0]: a", "b", "[rank0]: c"],
        [],
    ],
)
def test_what_all_lines_begin_with_may_be_their_own(lines):
    assert unprefixed(lines) == lines
