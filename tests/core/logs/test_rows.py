"""What a reader sees of logs as they are: rows of records."""

from pathlib import Path

import pytest

from tui.core.logs.rows import LogRows, Row
from tui.core.logs.window import LogWindow
from tui.core.model.log import LogRecord, rank_label
from tui.core.model.phases import Phase
from tui.core.sglang.tracker import LogTracker

DATA = Path(__file__).parents[2] / "data" / "logs"


def read(*chunks: bytes) -> LogWindow:
    tracker, window = LogTracker(), LogWindow()
    for chunk in chunks:
        window.append(tracker.feed(chunk))
    window.append(tracker.flush())
    return window


def rows(window: LogWindow) -> list[Row]:
    log_rows = LogRows(window)
    return [log_rows.row(index) for index in log_rows.sequence]


def texts(window: LogWindow) -> list[str]:
    return [f"{row.record.number} {row.rank_label} {row.record.text} {row.note}".rstrip() for row in rows(window)]


def test_the_same_line_of_many_ranks_is_one_row() -> None:
    lines = [
        f"[2026-10-06 20:01:26 TP{rank}] {text}\n"
        for rank in (0, 2, 1, 3)
        for text in ("Init parallel ends. elapsed=8.91 s", "Load weight begin. avail mem=94.50 GB")
    ]
    window = read("".join(lines).encode())
    assert texts(window) == [
        "1 TP0–3 Init parallel ends. elapsed=8.91 s 4 ranks",
        "2 TP0–3 Load weight begin. avail mem=94.50 GB 4 ranks",
    ]
    assert len(window.records) == 8
    log_rows = LogRows(window)
    assert [log_rows.row(index).record.phase for index in log_rows.phases] == [
        Phase.DISTRIBUTED_INIT,
        Phase.LOAD_WEIGHTS,
    ]


def test_repeats_fold_modulo_numbers_and_keep_the_last() -> None:
    warning = b"Using a slow tokenizer. This might cause a significant slowdown.\n"
    line = b'[2026-10-06 20:01:%02d] INFO:     127.0.0.1:%d - "GET /health HTTP/1.1" 200 OK\n'
    found = rows(read(*(chunk for n in range(30) for chunk in (warning, line % (n, 4000 + n)))))
    assert [row.count for row in found] == [30, 30]
    assert found[1].note == "×30"
    assert found[1].last is not None
    assert found[1].last.time == "20:01:29"


def test_of_a_bar_the_newest_frame_stays() -> None:
    begin = b"[2026-10-06 20:01:03 TP0] Load weight begin. avail mem=94.50 GB\n"
    frame = "\rLoading safetensors checkpoint shards: {:3d}% Completed | {}/64 [05:37<03:09,  8.22s/it]"
    end = b"\n[2026-10-06 20:01:09 TP0] Memory pool end. avail mem=1.00 GB\n"
    found = rows(read(begin, *(frame.format(n, n).encode() for n in range(65)), end))
    assert len(found) == 3
    bar = found[1]
    assert "64/64" in bar.record.text
    assert (bar.record.kind, bar.record.number, bar.record.frames, bar.record.rank) == ("bar", 2, 65, "TP0")
    assert bar.note == "bar, 65 frames"


def test_the_newest_frame_shows_before_it_is_terminated() -> None:
    tracker, window = LogTracker(), LogWindow()
    window.append(tracker.feed(b"[2026-10-06 20:01:03 TP0] Load weight begin. avail mem=94.50 GB\n"))
    frame = b"\rLoading safetensors checkpoint shards:  64%% Completed | %d/64 [05:37<03:09,  8.22s/it]"
    window.append(tracker.feed(frame % 41))
    assert "41/64" in window.records[-1].text
    assert window.records[-1].provisional
    window.append(tracker.feed(frame % 42))
    assert len(window.records) == 2
    assert "42/64" in window.records[1].text


def test_a_half_line_is_replaced_by_the_whole() -> None:
    tracker, window = LogTracker(), LogWindow()
    window.append(tracker.feed(b"[2026-10-06 20:01:03 TP0] Load wei"))
    log_rows = LogRows(window)
    assert [log_rows.row(index).shown.text for index in log_rows.sequence] == ["Load wei"]
    window.append(tracker.feed(b"ght begin. avail mem=94.50 GB\n"))
    log_rows.update()
    assert [log_rows.row(index).shown.text for index in log_rows.sequence] == ["Load weight begin. avail mem=94.50 GB"]
    assert log_rows.row(0).record.kind == "phase"


def test_errors_and_phases_can_be_jumped_to() -> None:
    log_rows = LogRows(read((DATA / "corpus" / "log-oom-cuda-graph-h20.log").read_bytes()))
    assert [log_rows.row(index).record.phase for index in log_rows.phases] == [Phase.MEMORY_POOL, Phase.CUDA_GRAPH]
    errors = [log_rows.row(index) for index in log_rows.errors]
    assert errors[0].record.text.startswith("Scheduler hit an exception")
    assert errors[0].shown.text.startswith("Exception: Capture cuda graph failed: CUDA out of memory.")


def test_kinds_of_the_mock_ups() -> None:
    raw = (DATA / "recorded" / "spec_eagle3_start.log").read_bytes()
    tracker = LogTracker()
    kinds = {record.text[:60]: record.kind for record in (*tracker.feed(raw), *tracker.flush())}

    def kind(begin: str) -> str:
        return next(value for text, value in kinds.items() if text.startswith(begin))

    assert kind("Init parallel begin.") == "phase"
    assert kind("Load weight begin.") == "phase"
    assert kind("Load weight end.") == "plain"
    assert kind("KV Cache is allocated.") == "phase" or kind("Memory pool end.") == "plain"
    assert kind("The server is fired up") == "phase"
    assert kind("Max running requests is reset to 48") == "warning"
    assert kind("Ignore import error when loading") == "note"
    assert kind("server_args=") == "plain"
    assert kind("Multi-thread loading shards") == "bar"
    assert "error" not in kinds.values()


def test_markers_of_ours_do_not_fold() -> None:
    window = LogWindow()
    window.append([LogRecord(0, 0, "20:01:03", None, "[eagletui] start x-4f9c2a", "marker", None)] * 2)
    assert len(rows(window)) == 2


@pytest.mark.parametrize(
    ("ranks", "label"),
    [
        (("TP0",), "TP0"),
        (("TP1", "TP0"), "TP0–1"),
        (("TP0", "TP3"), "TP0 +1"),
        (("DP0 TP0", "DP1 TP0"), "DP0 TP0 +1"),
        (("DP0 TP0", "DP0 TP1"), "DP0 TP0–1"),
        (("main", "TP0"), "main +1"),
    ],
)
def test_rank_labels(ranks: tuple[str, ...], label: str) -> None:
    assert rank_label(ranks) == label


def test_a_row_of_one_record() -> None:
    record = LogRecord(1, 0, None, None, "x", "plain", None)
    row = Row(0, record, record)
    assert (row.rank_label, row.note) == ("–", "")
