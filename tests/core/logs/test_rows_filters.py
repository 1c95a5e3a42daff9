"""A window open at both ends and the rows that filters and folds make of it."""

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tui.core.errors import UsageError
from tui.core.logs.filters import NO_RANK, LogFilter
from tui.core.logs.folding import Folds
from tui.core.logs.rows import LogRows
from tui.core.logs.window import LogWindow
from tui.core.model.log import LogRecord
from tui.core.model.phases import Phase
from tui.core.sglang.tracker import LogTracker

PLAIN = Folds(False, False)


def parsed(text: str | bytes) -> tuple[LogRecord, ...]:
    tracker = LogTracker()
    data = text.encode() if isinstance(text, str) else text
    return tracker.feed(data) + tracker.flush()


def window_of(*texts: str) -> LogWindow:
    window = LogWindow()
    window.append(parsed("\n".join(texts) + "\n"))
    return window


def shown(log_rows: LogRows) -> list[str]:
    return [log_rows.row(index).shown.text for index in log_rows.sequence]


def line(second: int, rank: str, text: str) -> str:
    return f"[2026-10-06 20:{second // 60:02}:{second % 60:02}{' ' + rank if rank else ''}] {text}"


TRACE = """\
[2026-10-06 20:01:03 TP3] Scheduler hit an exception: Traceback (most recent call last):
  File "/x/scheduler.py", line 2, in run_scheduler_process
    scheduler = Scheduler()
  File "/x/model_runner.py", line 4, in init_memory_pool
    raise RuntimeError("Not enough memory")
RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.
A second line of the message

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/x/y.py", line 9, in z
ValueError: the last one

"""


# ---- the window ---------------------------------------------------------------------------------------------------


def test_indices_stay_while_records_come_and_go_at_both_ends():
    records = parsed("".join(f"line {n:04}\n" for n in range(100)))
    window = LogWindow()
    window.append(records[50:60])
    names = {index: window.record(index).text for index in range(window.first, window.end)}
    window.prepend(records[20:50])
    window.append(records[60:])
    assert (window.first, window.end) == (-30, 50)
    assert {index: window.record(index).text for index in names} == names
    window.drop_before(-10)
    window.drop_from(20)
    assert (window.first, window.end, len(window.records)) == (-10, 20, 30)
    assert {index: window.record(index).text for index in names} == names
    with pytest.raises(IndexError):
        window.record(-11)
    assert window.index_of(records[45]) == -5
    assert window.index_of(records[0]) is None


def test_a_provisional_tail_and_frames_of_a_bar_are_replaced():
    tracker, window = LogTracker(), LogWindow()
    window.append(tracker.feed(b"one\ntw"))
    assert [(r.text, r.provisional) for r in window.records] == [("one", False), ("tw", True)]
    assert window.settled_end == 1
    window.append(tracker.feed(b"o\n"))
    assert [(r.text, r.provisional) for r in window.records] == [("one", False), ("two", False)]
    for done in range(1, 5):
        frame = f"\rLoading safetensors checkpoint shards:  {done * 25}% Completed | {done}/4 [00:01<00:03]"
        window.append(tracker.feed(frame.encode()))
    window.append(tracker.feed(b"\n"))
    assert len(window.records) == 3
    assert window.records[-1].text.endswith("4/4 [00:01<00:03]")
    assert window.records[-1].frames == 4


def test_numbers_are_told_once_they_are_known():
    window = LogWindow()
    window.line_base = None
    window.append(parsed("a\nb\n"))
    assert window.number_of(window.records[0]) is None
    assert window.at_line(1) is None
    window.line_base = 1000
    assert [window.number_of(r) for r in window.records] == [1001, 1002]
    assert window.at_line(1002) == 1
    assert window.at_line(5) is None
    assert window.at_line(2000) is None
    marker = LogRecord(0, 0, None, None, "[eagletui] start", "marker", None)
    assert window.number_of(marker) is None
    window.begin_generation()
    window.append(parsed("new\n"))
    assert [window.number_of(r) for r in window.records] == [1001, 1002, 1]
    assert window.at_offset(0) == 2  # a place of the file as it is now


# ---- rows ---------------------------------------------------------------------------------------------------------


def test_repeats_fold_with_their_ranks():
    window = window_of(
        *(line(3, f"TP{rank}", f"Load weight begin. avail mem={70 + rank}.1 GB") for rank in range(8)),
        *(line(4, "", "The server is about to do something") for _ in range(3)),
    )
    log_rows = LogRows(window)
    first, second = (log_rows.row(index) for index in log_rows.sequence)
    assert (first.rank_label, first.note, first.count) == ("TP0–7", "8 ranks", 8)
    assert (second.note, second.last.number) == ("×3", 11)
    assert second.shown is second.last
    log_rows.toggle(log_rows.sequence[1])
    assert len(log_rows.sequence) == 4
    log_rows.toggle(log_rows.sequence[2])  # any of its lines closes it
    assert len(log_rows.sequence) == 2
    log_rows.set(folds=PLAIN)
    assert len(log_rows.sequence) == 11
    assert log_rows.members(log_rows.sequence[0]) == [window.records[0]]


def test_a_traceback_is_its_last_line():
    window = window_of("before", *TRACE.rstrip("\n").split("\n"), "", line(9, "TP1", "after"))
    log_rows = LogRows(window)
    assert shown(log_rows) == ["before", "ValueError: the last one", "after"]
    row = log_rows.row(log_rows.sequence[1])
    assert (row.lines, row.rank_label, row.note) == (14, "TP3", "traceback, 14 lines")
    assert row.record.kind == "error"
    assert log_rows.errors == [log_rows.sequence[1]]
    assert len(log_rows.members(row.index)) == 14
    assert log_rows.row_of(row.index + 5) == row.index
    log_rows.toggle(row.index + 5)
    assert len(log_rows.sequence) == 16
    log_rows.toggle(row.index + 5)
    assert len(log_rows.sequence) == 3
    assert log_rows.row_of(10**9) == log_rows.sequence[-1]


def test_the_same_traceback_of_other_ranks_is_one_row():
    traces = [TRACE.replace("TP3", f"TP{rank}").rstrip("\n") for rank in range(4)]
    window = window_of(*"\n\n".join(traces).split("\n"), line(9, "", "after"))
    log_rows = LogRows(window)
    assert shown(log_rows) == ["ValueError: the last one", "after"]
    row = log_rows.row(log_rows.sequence[0])
    assert (row.count, row.rank_label) == (4, "TP0–3")
    assert len(log_rows.errors) == 1


def test_a_traceback_that_is_still_written():
    tracker, window = LogTracker(), LogWindow()
    log_rows = LogRows(window)
    for part in TRACE.encode().splitlines(keepends=True):
        for piece in (part[:7], part[7:]):
            window.append(tracker.feed(piece))
            log_rows.update()
    assert shown(log_rows)[0] == "ValueError: the last one"
    assert len(log_rows.sequence) == 1


def test_ranks_access_lines_and_context():
    texts = [
        line(1, "TP0", "zero"),
        line(1, "TP3", "three"),
        line(1, "", 'INFO:     127.0.0.1:1 - "GET /health HTTP/1.1" 200 OK'),
        "bare",
        line(2, "TP3", "needle at three"),
        line(3, "TP0", "four"),
        line(3, "TP0", "five"),
    ]
    window = window_of(*texts)
    log_rows = LogRows(window, LogFilter(ranks=frozenset(["TP3"])))
    assert shown(log_rows) == ["three", "needle at three"]
    assert log_rows.hidden == 5
    log_rows.set(filter=LogFilter(access=False))
    assert len(log_rows.sequence) == 6
    log_rows.set(filter=LogFilter(ranks=frozenset(["main", NO_RANK])))
    assert [row.rank for row in (log_rows.row(i).record for i in log_rows.sequence)] == ["main", None]
    log_rows.set(filter=LogFilter("needle", only_hits=True, context=1))
    assert shown(log_rows) == ["bare", "needle at three", "four"]
    assert [log_rows.row(i).context for i in log_rows.sequence] == [True, False, True]
    assert log_rows.hits == [4]
    assert log_rows.hidden == 4
    log_rows.set(filter=LogFilter("needle"))
    assert (len(log_rows.sequence), log_rows.hits, log_rows.hidden) == (7, [4], 0)
    assert log_rows.spans("a Needle, a needle") == [(2, 8), (12, 18)]
    log_rows.set(filter=LogFilter("Needle", only_hits=True))
    assert log_rows.sequence == []
    log_rows.set(filter=LogFilter(r"^f\w+e$", regex=True))
    assert [log_rows.row(i).record.text for i in log_rows.hits] == ["five"]
    log_rows.set(filter=LogFilter("tp3"))
    assert len(log_rows.hits) == 2  # the rank is what a reader sees, too


def test_a_wrong_expression_is_refused_and_changes_nothing():
    log_rows = LogRows(window_of("a", "b"), LogFilter("a"))
    with pytest.raises(UsageError, match="not a regular expression"):
        log_rows.set(filter=LogFilter("a(", regex=True))
    assert log_rows.filter == LogFilter("a")
    assert log_rows.hits == [0]


def test_a_hit_in_a_traceback_shows_it_whole_and_a_rank_filter_keeps_it():
    window = window_of("before", *TRACE.rstrip("\n").split("\n"), "", line(9, "TP1", "after"))
    log_rows = LogRows(window, LogFilter("init_memory_pool", only_hits=True, context=1))
    assert shown(log_rows) == ["before", "ValueError: the last one", "after"]
    assert log_rows.hits == [1]
    log_rows.set(filter=LogFilter(ranks=frozenset(["TP3"])))
    assert shown(log_rows) == ["ValueError: the last one"]
    log_rows.set(folds=PLAIN)
    assert len(log_rows.sequence) == 14


def test_a_fold_stays_while_its_newest_lines_are_loaded():
    window = window_of(*(line(3, "", "again and again") for _ in range(10)), line(4, "", "another"))
    log_rows = LogRows(window)
    window.drop_before(5)
    log_rows.update()
    assert log_rows.sequence == [0, 10]
    assert log_rows.row(0).count == 10
    assert len(log_rows.members(0)) == 5
    window.drop_before(10)
    log_rows.update()
    assert log_rows.sequence == [10]


def test_phases_begin_once_and_not_where_a_stretch_begins():
    records = parsed(line(1, "TP0", "Init torch distributed begin.") + "\n" + line(2, "TP0", "more") + "\n")
    window = LogWindow()
    window.append(records)
    window.append([replace(records[1], number=3, phase=Phase.LOAD_WEIGHTS, text="x")])
    log_rows = LogRows(window)
    assert [log_rows.row(i).record.phase for i in log_rows.phases] == [Phase.DISTRIBUTED_INIT, Phase.LOAD_WEIGHTS]
    part = LogWindow()
    part.append([replace(records[1], offset=500)])
    assert LogRows(part).phases == []


# ---- the same, however it comes -----------------------------------------------------------------------------------

TEXTS = [
    *(line(3, f"TP{rank}", "Load weight begin. avail mem=70.1 GB") for rank in range(3)),
    line(3, "TP0", "Decode batch. #running-req: 3, #token: 1, gen throughput (token/s): 3.2, #queue-req: 0"),
    line(4, "TP1", "needle 4"),
    "bare needle",
    "",
    line(5, "", 'INFO:     127.0.0.1:1 - "GET /health HTTP/1.1" 200 OK'),
    *TRACE.rstrip("\n").split("\n"),
    "",
]
FILTERS = [
    LogFilter(),
    LogFilter("needle"),
    LogFilter("needle", only_hits=True, context=2),
    LogFilter("memory", only_hits=True, context=1, ranks=frozenset(["TP3", "TP1"])),
    LogFilter(access=False),
]


def state(log_rows: LogRows) -> tuple[object, ...]:
    rows = [log_rows.row(index) for index in log_rows.sequence]
    return rows, log_rows.hits, log_rows.errors, log_rows.phases, log_rows.hidden


@given(
    st.lists(st.sampled_from(TEXTS), max_size=60),
    st.sampled_from(FILTERS),
    st.booleans(),
    st.lists(st.integers(1, 400), max_size=12),
)
def test_rows_do_not_depend_on_how_the_bytes_came(texts, filter, folds, cuts):
    data = "".join(text + "\n" for text in texts).encode()
    chosen = Folds(folds, folds)
    whole = LogWindow()
    whole.append(parsed(data))
    tracker, window = LogTracker(), LogWindow()
    log_rows = LogRows(window, filter, chosen)
    for cut in [*cuts, len(data)]:
        piece, data = data[:cut], data[cut:]
        window.append(tracker.feed(piece))
        log_rows.update()
        before = state(log_rows)
        log_rows.set(filter=filter)  # from scratch
        assert state(log_rows) == before
    assert state(log_rows) == state(LogRows(whole, filter, chosen))


@given(
    st.lists(st.sampled_from(TEXTS), min_size=2, max_size=80),
    st.sampled_from(FILTERS),
    st.randoms(use_true_random=False),
)
def test_what_comes_or_goes_at_the_ends_moves_no_row(texts, filter, rng: random.Random):
    records = parsed("".join(text + "\n" for text in texts))
    begin = end = rng.randrange(len(records))
    window = LogWindow()
    log_rows = LogRows(window, filter)
    for _ in range(30):
        kept = {index: log_rows.row(index).record for index in log_rows.sequence}
        first, last = window.first, window.end
        match rng.randrange(4):
            case 0 if begin > 0:
                new = rng.randrange(begin)
                window.prepend(records[new:begin])
                begin = new
            case 1 if end < len(records):
                new = rng.randrange(end, len(records)) + 1
                window.append(records[end:new])
                end = new
            case 2 if window.records:
                count = rng.randrange(len(window.records))
                window.drop_before(window.first + count)
                begin += count
            case 3 if window.records:
                count = rng.randrange(len(window.records))
                window.drop_from(window.end - count)
                end -= count
            case _:
                continue
        log_rows.update()
        assert window.end - window.first == end - begin
        assert [record.text for record in window.records] == [r.text for r in records[begin:end]]
        assert log_rows.sequence == sorted(set(log_rows.sequence))
        if filter.text == "":
            # A row that was there and is loaded still is a row, and the same.
            for index, record in kept.items():
                if max(first, window.first) <= index < min(last, window.end):
                    assert log_rows.row_of(index) is not None
                    assert log_rows.row(index).record == record
        everything = {index for index in log_rows.sequence if index >= window.first}
        assert all(window.first <= index < window.end for index in everything)
