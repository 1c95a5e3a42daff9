"""Decode lines as series, times of a log, and two logs side by side."""

from pathlib import Path

import pytest

from tui.core.logs.filters import LogFilter
from tui.core.logs.folding import Folds
from tui.core.logs.rows import LogRows
from tui.core.logs.timeline import SideBySide
from tui.core.logs.window import LogWindow
from tui.core.model.log import LogRecord
from tui.core.sglang.series import DecodeSeries
from tui.core.sglang.tracker import LogTracker

DATA = Path(__file__).parents[2] / "data" / "logs"
T0 = 1_791_316_800.0  # 2026-10-06 20:00:00 read as UTC


def parsed(*lines: str) -> tuple[LogRecord, ...]:
    return LogTracker(offset=1).feed("".join(text + "\n" for text in lines).encode())


def decode(
    second: float, rank: str = "", *, tok_s: float = 100.0, running: int = 1, accept: float | None = None
) -> str:
    clock = f"{int(second) // 3600 + 20:02}:{int(second) // 60 % 60:02}:{int(second) % 60:02}"
    accepted = f"accept len: {accept:.2f}, accept rate: 0.50, " if accept is not None else ""
    return (
        f"[2026-10-06 {clock}{' ' + rank if rank else ''}] Decode batch, #running-req: {running}, #token: 512, "
        f"token usage: 0.01, {accepted}cuda graph: True, gen throughput (token/s): {tok_s:.2f}, #queue-req: 2"
    )


def prefill(second: int) -> str:
    return decode(second).replace("Decode batch", "Prefill batch")


def series(*lines: str) -> DecodeSeries:
    found = DecodeSeries()
    found.feed(parsed(*lines))
    return found


def test_the_first_line_and_the_first_after_idleness_are_dropped():
    found = series(
        *(decode(n, tok_s=100 + n) for n in range(5)),
        prefill(60),
        decode(61, tok_s=0.4),
        decode(62, tok_s=150, accept=2.5),
    )
    assert [point.time_s - T0 for point in found.points] == [1, 2, 3, 4, 62]
    assert [point.tok_s for point in found.points] == [101, 102, 103, 104, 150]
    assert [point.gap_s for point in found.points] == [None, None, None, None, 56]
    last = found.points[-1]
    assert (last.accept_len, last.running, last.queued) == (2.5, 1, 2)
    assert found.points[0].accept_len is None


def test_a_slow_server_is_not_idle():
    found = series(*(decode(n * 8, tok_s=5) for n in range(10)))
    assert len(found.points) == 9
    assert all(point.gap_s is None for point in found.points)


def test_a_long_prefill_is_not_idleness():
    found = series(*(decode(n) for n in range(5)), *(prefill(n) for n in range(5, 30)), decode(30, tok_s=7.0))
    assert found.points[-1].tok_s == 7.0
    assert found.points[-1].gap_s is None


def test_lines_of_one_second_are_averaged():
    found = series(decode(0), decode(1, tok_s=100), decode(1, tok_s=200), decode(1, tok_s=600), decode(2))
    assert [point.tok_s for point in found.points] == [300, 100]


def test_dp_ranks_are_added_up_and_accept_length_is_weighted():
    lines = []
    for n in range(6):
        lines.append(decode(n, "DP0 TP0", tok_s=100, running=3, accept=2.0))
        lines.append(decode(n, "DP1 TP0", tok_s=300, running=1, accept=4.0))
    found = series(*lines)
    assert len(found.points) == 5
    for point in found.points:
        assert (point.tok_s, point.running, point.queued) == (400, 4, 4)
        assert point.accept_len == pytest.approx(2.5)


def test_a_dp_rank_that_has_nothing_to_do_counts_no_more():
    both = [decode(n, f"DP{rank} TP0", tok_s=100) for n in range(6) for rank in (0, 1)]
    found = series(*both, *(decode(n, "DP0 TP0", tok_s=100) for n in range(6, 40)))
    assert [point.tok_s for point in found.points][-30:] == [100] * 30
    assert found.points[3].tok_s == 200


def test_tp_ranks_without_dp_are_one_server():
    found = series(*(decode(n, f"TP{n % 2}", tok_s=100) for n in range(6)))
    assert [point.tok_s for point in found.points] == [100] * 5


def test_a_clock_without_date_passes_midnight():
    def at(clock: str) -> str:
        return decode(0).replace("2026-10-06 20:00:00", clock)

    records = parsed(at("23:59:58"), at("23:59:59"), at("00:00:00"), at("00:00:01"))
    found = DecodeSeries()
    found.feed(records)
    assert [point.time_s for point in found.points] == [86_399, 86_400, 86_401]


def test_points_are_bounded_and_can_be_forgotten():
    found = DecodeSeries(capacity=10)
    found.feed(parsed(*(decode(n) for n in range(100))))
    assert [point.time_s - T0 for point in found.points] == list(range(90, 100))
    found.clear()
    assert not found.points


@pytest.mark.parametrize("path", sorted((DATA / "corpus").glob("*.log")), ids=lambda path: path.stem)
def test_every_era_gives_points_in_order(path: Path):
    found = DecodeSeries()
    tracker = LogTracker()
    records = tracker.feed(path.read_bytes()) + tracker.flush()
    found.feed(records)
    times = [point.time_s for point in found.points]
    assert times == sorted(times)
    lines = [record for record in records if record.text.startswith("Decode batch")]
    seconds = {record.stamp_s for record in lines}
    if len(seconds) > 3:
        assert found.points
    for point in found.points:
        assert point.tok_s is not None
        assert point.running is not None
        assert point.accept_len is None or point.accept_len >= 1


def test_a_look_at_one_line_again_changes_nothing():
    tracker = LogTracker()
    found = DecodeSeries()
    data = "".join(decode(n) + "\n" for n in range(5)).encode()
    for at in range(0, len(data), 7):
        found.feed(tracker.feed(data[at : at + 7]))
    assert [point.tok_s for point in found.points] == [100] * 4


# ---- times --------------------------------------------------------------------------------------------------------


def test_stamps_in_seconds():
    records = parsed(
        "[2026-10-06 20:00:01.250 TP0] with milliseconds",
        "2026-10-06T20:00:02.000Z [2026-10-06 20:00:02] wrapped",
        "no stamp",
        "[2026-13-45 20:00:03] no such day",
    )
    assert [record.stamp_s for record in records] == [T0 + 1.25, T0 + 2, None, None]


def lens_of(*lines: str, filter: LogFilter | None = None) -> tuple[LogWindow, LogRows]:
    window = LogWindow()
    window.append(parsed(*lines))
    return window, LogRows(window, filter, Folds(False, False))


def stamped(second: int, text: str, rank: str = "TP0") -> str:
    return f"[2026-10-06 20:00:{second:02} {rank}] {text}"


def texts(both: SideBySide, left: LogRows, right: LogRows) -> list[tuple[float | None, str, str]]:
    def text(log_rows: LogRows, index: int | None) -> str:
        return "" if index is None else log_rows.row(index).record.text

    return [(row.time_s, text(left, row.left), text(right, row.right)) for row in both.rows]


def test_two_ranks_side_by_side():
    lines = [
        stamped(1, "Load weight begin."),
        stamped(1, "only zero"),
        stamped(1, "Load weight begin.", "TP3"),
        stamped(2, "x 1"),
        "bare",
        stamped(4, "y 2", "TP3"),
        stamped(4, "z 3", "TP3"),
        stamped(4, "z 9"),
    ]
    window = LogWindow()
    window.append(parsed(*lines))
    left = LogRows(window, LogFilter(ranks=frozenset(["TP0", ""])), Folds(False, False))
    right = LogRows(window, LogFilter(ranks=frozenset(["TP3"])), Folds(False, False))
    both = SideBySide(left, right)
    assert texts(both, left, right) == [
        (T0 + 1, "Load weight begin.", "Load weight begin."),
        (T0 + 1, "only zero", ""),
        (T0 + 2, "x 1", ""),
        (T0 + 2, "bare", ""),
        (T0 + 4, "", "y 2"),
        (T0 + 4, "z 9", "z 3"),
    ]
    assert both.update() == 6


def test_two_runs_by_time_since_their_start():
    _, left = lens_of(stamped(10, "a"), stamped(12, "b"))
    _, right = lens_of(stamped(30, "a"), stamped(31, "c"), stamped(32, "b"))
    both = SideBySide(left, right, T0 + 10, T0 + 30)
    assert texts(both, left, right) == [(0, "a", "a"), (1, "", "c"), (2, "b", "b")]


def test_side_by_side_grows_as_if_it_were_made_anew():
    window_a, left = lens_of()
    window_b, right = lens_of()
    both = SideBySide(left, right)
    for n in range(0, 50, 3):
        window_a.append(parsed(*(stamped(n + k, f"a{n}") for k in range(2))))
        if n % 2:
            window_b.append(parsed(*(stamped(m, f"b{m}") for m in range(max(0, n - 6), n))))
        if n == 30:
            window_a.prepend(parsed(stamped(0, "before"), "bare"))
        if n == 40:
            window_b.drop_before(window_b.first + 3)
        left.update()
        right.update()
        before = list(both.rows)
        row = both.update()
        assert both.rows[:row] == before[:row]
        assert both.rows == SideBySide(left, right).rows
