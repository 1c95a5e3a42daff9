"""What has just come is not folded: repeats become one row once they are in front of a line that moves on."""

import random

import pytest

from tui.core.logs.filters import LogFilter
from tui.core.logs.folding import Folds
from tui.core.logs.rows import LogRows
from tui.core.logs.window import LogWindow
from tui.core.sglang.tracker import LogTracker

TRACE = (
    "[2026-10-06 20:25:22 TP{rank}] Scheduler hit an exception: Traceback (most recent call last):\n"
    '  File "/opt/scheduler.py", line 2850, in run\n    raise RuntimeError("no")\nRuntimeError: no\n'
)


def line(rng: random.Random, second: int) -> str:
    stamp = f"[2026-10-06 20:{second // 60:02d}:{second % 60:02d}"
    kind = rng.random()
    if kind < 0.5:
        return f"{stamp} TP0] Decode batch, #running-req: 1, gen throughput (token/s): {second}.5\n"
    if kind < 0.7:
        return f"{stamp}] Using a slow tokenizer. It may be slow.\n"
    if kind < 0.9:
        return "".join(f"{stamp} TP{rank}] Load weight begin. avail mem={second}\n" for rank in range(3))
    if kind < 0.95:
        return TRACE.format(rank=rng.randrange(3))
    return f"{stamp}] {rng.choice('abcdefgh') * 8}\n"


def rows(log_rows: LogRows) -> list[object]:
    return [
        (row.index, row.count, row.lines, row.ranks, row.hit, row.shown.text)
        for row in (log_rows.row(index) for index in log_rows.sequence)
    ]


def test_the_newest_repeats_are_rows_of_their_own_until_they_are_let_go():
    tracker, window = LogTracker(), LogWindow()
    text = "".join(f"[2026-10-06 20:00:{n:02d} TP0] Decode batch, #token: {n}\n" for n in range(30))
    window.append(tracker.feed(text.encode()))
    log_rows = LogRows(window)
    assert [row[1] for row in rows(log_rows)] == [1, 29]  # the first one begins a phase
    log_rows.fold_before(window.end - 5)
    assert [row[1] for row in rows(log_rows)] == [1, 24, 1, 1, 1, 1, 1]
    window.append(tracker.feed(b"[2026-10-06 20:00:30 TP0] Decode batch, #token: 30\n"))
    log_rows.update()
    assert [row[1] for row in rows(log_rows)] == [1, 24, 1, 1, 1, 1, 1, 1]
    log_rows.fold_before(window.end - 5)
    assert [row[1] for row in rows(log_rows)] == [1, 25, 1, 1, 1, 1, 1]
    log_rows.fold_before(0)  # never back
    assert [row[1] for row in rows(log_rows)] == [1, 25, 1, 1, 1, 1, 1]


def test_lines_of_many_ranks_are_one_row_at_once():
    tracker, window = LogTracker(), LogWindow()
    log_rows = LogRows(window)
    log_rows.fold_before(0)
    text = "".join(f"[2026-10-06 20:00:01 TP{rank}] Load weight begin.\n" for rank in range(8))
    window.append(tracker.feed(text.encode() * 2))
    log_rows.update()
    assert [row[1] for row in rows(log_rows)] == [8, 8]


@pytest.mark.parametrize("seed", range(12))
def test_moving_on_gives_the_rows_that_a_fresh_look_gives(seed: int):
    rng = random.Random(seed)
    filter = rng.choice(
        [LogFilter(), LogFilter(ranks=frozenset(("TP0", "main"))), LogFilter(text="load"), LogFilter(access=False)]
    )
    tracker, window, bounded = LogTracker(), LogWindow(), rng.random() < 0.5
    earlier = LogTracker().feed("".join(line(rng, n) for n in range(40)).encode())
    log_rows = LogRows(window, filter)
    for second in range(60, 160):
        window.append(tracker.feed(line(rng, second).encode()))
        if second == 100 and window.first >= 0 and not bounded:
            window.prepend(earlier)
        if bounded and len(window.records) > 66:
            window.drop_before(window.end - 60)
        log_rows.update()
        if rng.random() < 0.4:
            log_rows.fold_before(window.settled_end - rng.randrange(30))
        if second % 20 == 0 and log_rows.plain_from is not None and not bounded:
            fresh = LogRows(window, filter)
            fresh.plain_from = log_rows.plain_from
            fresh.set(folds=Folds())
            assert rows(log_rows) == rows(fresh)
            assert (log_rows.hits, log_rows.errors, log_rows.phases) == (fresh.hits, fresh.errors, fresh.phases)
            assert log_rows.hidden == fresh.hidden
    assert log_rows.sequence == sorted(set(log_rows.sequence))
