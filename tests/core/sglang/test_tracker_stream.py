"""The result depends on the bytes alone: chunks, hostile bytes, files that hold several runs."""

import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.log_reports import report
from tui.core.logs.rows import LogRows
from tui.core.logs.window import LogWindow
from tui.core.model.log import LINE_LIMIT, LogRecord
from tui.core.model.phases import Outcome, Phase
from tui.core.sglang.diagnose import diagnose
from tui.core.sglang.diagnosis import ExitEvidence
from tui.core.sglang.state import StartupState
from tui.core.sglang.tracker import LogTracker

DATA = Path(__file__).parents[2] / "data" / "logs"
LOGS = {path.name: path.read_bytes() for path in sorted((DATA / "corpus").glob("*.log"))}
PIECES = [
    b"[2026-10-06 20:01:03 TP0] Load weight begin. avail mem=94.50 GB",
    b"[2026-10-06 20:01:04 TP1] Load weight end. elapsed=1.0 s, type=X, avail mem=20.00 GB, mem usage=74.50 GB.",
    b"Loading safetensors checkpoint shards:  48% Completed | 29/61 [00:32<00:36,  1.13s/it]",
    b"  0%|          | 0/52 [00:00<?, ?it/s]",
    b"[2026-10-06 20:01:05 TP0] Capture cuda graph begin. avail mem=3.67 GB",
    b"Capturing batches (bs=512 avail_mem=2.60 GB):   3%|\xe2\x96\x88 | 2/52 [00:00<?, ?it/s]",
    b"[2026-10-06 20:01:06 TP1] Scheduler hit an exception: Traceback (most recent call last):",
    b'  File "/opt/sglang/x.py", line 3, in capture',
    b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 448.00 MiB.",
    b"[2026-10-06 20:01:07] The server is fired up and ready to roll!",
    b"[2026-10-06 20:01:08 TP0] Decode batch, #running-req: 1, #token: 5, accept len: 1.00, gen throughput (token/s): 9.10, #queue-req: 0",
    b"[2026-10-06 20:01:08 TP0] Prefill batch, #new-seq: 1, #new-token: 6",
    b"[2026-10-06 20:01:09] server_args={'model_path': '/m', 'api_key': 'hush'}",
    b"\r",
    b"\n",
    b"\r\n",
    b"",
    b"\x1b[32m",
    b"\xff\x00\xc3",
    b"Killed",
]


SERVING = [
    *(
        b"[2026-10-06 20:01:1%d DP%d TP%d] Decode batch, #running-req: %d, #token: 5, accept len: 1.%d0, gen throughput (token/s): %d.10, #queue-req: 0"
        % (n % 10, n % 2, n % 3, n, n % 4 // 3, 7 * n)
        for n in range(1, 9)
    ),
    b"[2026-10-06 20:01:20] Decode batch, #running-req: 2, #token: 9, accept len: 1.00, gen throughput (token/s): 3.00, #queue-req: 0",
    b"[2026-10-06 20:01:20.123 TP0] Decode batch, #running-req: 3, gen throughput (token/s): 4.00, #queue-req: 0",
    b"[2026-10-06 20:01:20 TP0] Decode batch [17], #running-req: 4, gen throughput (token/s): 5.00, #queue-req: 0",
    b"[2026-10-06 20:01:20 TP0] Prefill batch [18], #new-seq: 1, #new-token: 6",
    b"[2026-10-06 20:01:21 DP0 TP0] Prefill batch, #new-seq: 1, #new-token: 6",
    b'[2026-10-06 20:01:22] INFO:     10.0.0.1:4242 - "POST /generate HTTP/1.1" 200 OK',
    b'[2026-10-06 20:01:22] INFO:     ::1:4242 - "GET /health HTTP/1.1" 200 OK',
    b'[2026-10-06 20:01:22] INFO:     [::1]:4242 - "POST /generate HTTP/1.1" 200 OK',
    b"/opt/sglang/tokenizer.py:412: UserWarning: Using a slow tokenizer. This might cause a significant slowdown.",
    b"[2026-10-06 20:01:22] Using a slow tokenizer. This might cause a significant slowdown.",
    b"  warnings.warn(",
    # On a full disk a line loses its end, and goes on with another one's.
    b"[2026-10-06 20:01:23 TP0] Decode batch, #running-req: 3, #to03 TP0] Decode batch, #running-req: 1, #queue-req: 0",
    b"[2026-10-06 20:01:23 TP0] Decode batch, ] Decode batch",
    b"[2026-10-06 20:01:23 TP0] KV cache pool is full. Retract requests. #retracted_reqs: 2",
    b"[2026-10-06 20:01:23 TP0] Cache flushed successfully!",
    b"gpu1:4242:4377 [3] NCCL INFO Channel 01/0 : 3[3] -> 4[4] via SHM/direct/direct",
    b"",
    b"",
]


def run(data: bytes, cuts: list[int], *, records: bool = True) -> tuple[StartupState, StartupState, LogWindow]:
    tracker, buffer = LogTracker(records=records), LogWindow()
    last = 0
    for cut in [*cuts, len(data)]:
        buffer.append(tracker.feed(data[last:cut]))
        last = cut
    before = tracker.state()
    buffer.append(tracker.flush())
    return before, tracker.state(), buffer


def same(data: bytes, cuts: list[int]) -> None:
    before, after, buffer = run(data, [])
    for records in (True, False):
        before2, after2, buffer2 = run(data, cuts, records=records)
        assert before2 == before
        assert after2 == after
        if records:
            assert buffer2.records == buffer.records
            assert buffer2.warnings == buffer.warnings
            rows, rows2 = LogRows(buffer), LogRows(buffer2)
            assert [rows2.row(index) for index in rows2.sequence] == [rows.row(i) for i in rows.sequence]
            assert (rows2.errors, rows2.phases) == (rows.errors, rows.phases)


@pytest.mark.parametrize("name", LOGS)
@pytest.mark.fault(
    "S1", "bytes arrive cut within a character", sees="the character", holds="no mark of ours, whatever the cut"
)
def test_cut_at_every_byte(name: str) -> None:
    same(LOGS[name], list(range(1, len(LOGS[name]))))


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=25), st.booleans(), st.data())
def test_any_split_gives_the_same(pieces: list[bytes], lines: bool, data: st.DataObject) -> None:
    raw = (b"\n" if lines else b"").join(pieces)
    cuts = sorted(data.draw(st.sets(st.integers(1, max(1, len(raw) - 1)), max_size=12)))
    same(raw, cuts)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.one_of(st.sampled_from(SERVING), st.sampled_from(SERVING), st.sampled_from(PIECES)), max_size=60),
    st.sampled_from([b"\n", b"\n", b"\n", b"\r\n", b""]),
    st.data(),
)
def test_any_split_of_a_serving_log_gives_the_same(pieces: list[bytes], end: bytes, data: st.DataObject) -> None:
    """The shapes that are passed over many at once, in any order, glued together, and with everything else between."""
    fired = b"[2026-10-06 20:01:07] The server is fired up and ready to roll!\n"
    raw = fired + SERVING[0] + b"\n" + end.join(pieces) + b"\n"
    cuts = sorted(data.draw(st.sets(st.integers(1, max(1, len(raw) - 1)), max_size=6)))
    same(raw, cuts)


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=300), st.data())
def test_any_bytes_at_all(raw: bytes, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(1, max(1, len(raw) - 1)), max_size=5)))
    same(raw, cuts)


def test_overlong_lines_are_cut_and_counted_in_bounded_memory() -> None:
    tracker = LogTracker()
    tracker.feed(b"x\n")
    tracemalloc.start()
    for _ in range(64):
        tracker.feed(b"y" * 262_144)
    records = tracker.feed(b"\n[2026-10-06 20:01:03] The server is fired up and ready to roll!\n")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 << 20
    assert len(records[0].text) == LINE_LIMIT
    assert records[0].cut_bytes == 64 * 262_144 - LINE_LIMIT
    assert records[0].number == 2
    assert records[1].number == 3
    assert records[1].offset == 2 + 64 * 262_144 + 1
    assert tracker.state().outcome == Outcome.READY


def test_a_bar_without_newlines_stays_bounded() -> None:
    tracker, buffer = LogTracker(), LogWindow()
    buffer.append(tracker.feed(b"[2026-10-06 20:01:03 TP0] Load weight begin. avail mem=94.50 GB\n"))
    for done in range(5_000):
        frame = f"\rLoading safetensors checkpoint shards:   3% Completed | {done}/5000 [00:01<00:41,  1.42s/it]"
        buffer.append(tracker.feed(frame.encode()))
    assert len(buffer.records) == 2  # the newest frame alone, though nothing terminates it
    assert tracker.state().progress is not None
    assert tracker.state().progress.done == 4_999


def test_nothing_hostile_reaches_a_record() -> None:
    tracker = LogTracker()
    records = [
        *tracker.feed(
            b"\x1b]0;owned\x07\x1b[2J[2026-10-06 20:01:03 TP0] \x1b[31mLoad weight begin.\x1b[0m avail mem=1.00 GB\x00\n"
            b"\xff\xfe broken \xc3( utf-8 \xe2\x80\xae bidi\n"
            b"\x9b31m 8-bit\n"
        ),
        *tracker.flush(),
    ]
    for record in records:
        assert record.text.isprintable()
    assert tracker.state().phase == Phase.LOAD_WEIGHTS


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "begin",
    ["", "[2026-10-06 20:01:03 TP0] ", "[2026-10-06 20:01:03] server_args={", "Traceback (most recent call last):\n"],
)
def test_long_lines_cost_little_whatever_is_in_them(begin: str) -> None:
    """Quadratic patterns would take minutes here."""
    for fill in (
        " ",
        "a",
        "0",
        "[",
        "%",
        "|",
        "1%|",
        "0:0:",
        "00:00:00 ",
        "error ",
        "a_",
        "[20:01:03 TP0] ",
        "(a=",
        "'a': 1,",
        "9",
    ):
        line = begin + fill * (60_000 // len(fill)) + "% 1/2 [Error"
        tracker = LogTracker()
        tracker.feed(line.encode() + b"\n")
        tracker.flush()
        diagnose(tracker.state(), exit=ExitEvidence(1))


def test_numbers_of_any_length_are_survived() -> None:
    tracker = LogTracker()
    nines = "9" * 6_000
    tracker.feed(
        (
            f"[2026-10-06 20:01:03 TP0] KV Cache is allocated. #tokens: {nines}, KV size: {nines} GB\n"
            f"[2026-10-06 20:01:03 TP0] max_total_num_tokens={nines}\n"
            f"[2026-10-06 20:01:03] INFO:     Uvicorn running on http://127.0.0.1:{nines}\n"
            f"[2026-10-06 20:01:03] server_args={{'a': {nines}}}\n"
            f"[2026-99-99 99:99:99 TP0] Load weight begin. avail mem={nines} GB\n"
            f"[2026-10-06 20:01:03 TP0] Decode batch, #running-req: {nines}, gen throughput (token/s): {nines}\n"
        ).encode()
    )
    assert tracker.state().last_decode is not None


def test_secrets_are_masked() -> None:
    tracker = LogTracker()
    line = (
        b"[2026-10-06 20:01:03] server_args={'model_path': '/m', 'api_key': 'hush', 'admin_api_key': 'hush', 'x': 1}\n"
    )
    records = tracker.feed(line)
    assert "hush" not in records[0].text
    assert tracker.state().server_args == {"model_path": "/m", "api_key": "***", "admin_api_key": "***", "x": 1}
    for end in range(60, len(line)):
        tracker.reset()
        assert all("hus" not in record.text for record in tracker.feed(line[:end]))


@pytest.mark.parametrize(
    "text",
    [
        "process.cmdline()=['sglang', 'serve', '--api-key', 'hush'] pid=4711",
        "python -m sglang.launch_server --api-key hush --port 1",
        "python -m sglang.launch_server --admin-api-key=hush",
        "HF_TOKEN is hf_hushhushhushhushhush",
    ],
)
def test_secrets_in_other_places_are_masked(text: str) -> None:
    tracker = LogTracker()
    records = tracker.feed(f"Traceback (most recent call last):\nValueError: {text}\n".encode())
    tracker.flush()
    assert all("hush" not in record.text for record in records)
    found, _ = diagnose(tracker.state(), exit=ExitEvidence(1))
    assert found is not None
    assert found.evidence is not None
    assert "hush" not in found.evidence.text


ARGS = b"[2026-10-06 20:01:03] server_args=ServerArgs(model_path='/m', tp_size=1)\n"


def test_a_second_run_in_the_same_file_starts_over() -> None:
    tracker = LogTracker(records=False)
    tracker.feed(LOGS["log-oom-kv-pool-negative-tokens.log"])
    assert tracker.state().outcome == Outcome.CRASHED
    tracker.feed(ARGS + b"[2026-10-06 20:01:04] Init torch distributed begin.\n")
    state = tracker.state()
    assert (state.outcome, state.phase, state.restarts) == (Outcome.STARTING, Phase.DISTRIBUTED_INIT, 1)
    assert state.clues == ()
    assert state.ranks_seen == 0
    assert state.lines == LOGS["log-oom-kv-pool-negative-tokens.log"].count(b"\n") + 2
    tracker.feed(b"[2026-10-06 20:01:05] The server is fired up and ready to roll!\n" + ARGS)
    assert tracker.state().outcome == Outcome.STARTING
    assert tracker.state().restarts == 2


def test_the_second_run_marks_its_phases_again() -> None:
    ready = b"[2026-10-06 20:01:05] The server is fired up and ready to roll!\n"
    tracker = LogTracker()
    records = tracker.feed(ARGS + ready + ARGS + ready)
    assert [record.kind for record in records] == ["plain", "phase", "plain", "phase"]


def test_a_bad_flag_after_a_stopped_run_is_the_newest_run() -> None:
    stopped = (DATA / "recorded" / "spec_eagle3.log").read_bytes()
    failing = (DATA / "recorded" / "fail_unknown_flag.log").read_bytes()
    found = report(stopped + b"\n" + failing)
    assert (found["outcome"], found["cause"], found["phase"]) == ("crashed", "bad_flag", "launch")


def test_reset_is_a_new_file() -> None:
    tracker = LogTracker()
    tracker.feed(LOGS["log-oom-cuda-graph-h20.log"])
    tracker.reset()
    assert tracker.state() == StartupState()
    records = tracker.feed(b"x\n")
    assert records == (LogRecord(1, 0, None, None, "x", "plain", Phase.LAUNCH),)


PORT_IN_USE = b"""\
[2026-10-06 20:01:02] INFO:     Started server process [4242]
[2026-10-06 20:01:02] INFO:     Waiting for application startup.
[2026-10-06 20:01:03] INFO:     Application startup complete.
[2026-10-06 20:01:03] ERROR:    [Errno 98] error while attempting to bind on address ('127.0.0.1', 30000): address already in use
[2026-10-06 20:01:03] INFO:     Waiting for application shutdown.
[2026-10-06 20:01:03] INFO:     Application shutdown complete.
[2026-10-06 20:01:03] The server is fired up and ready to roll!
[2026-10-06 20:01:03] kill_process_tree called: parent_pid=4242, include_parent=False, pid=4242
"""


def test_a_port_of_another_server_is_never_ready() -> None:
    raw = ARGS + PORT_IN_USE
    tracker = LogTracker(records=False)
    for at in range(len(raw)):
        tracker.feed(raw[at : at + 1])
        assert tracker.state().outcome != Outcome.READY
    found = report(raw)
    assert (found["outcome"], found["cause"], found["phase"]) == ("crashed", "port_in_use", "warmup")
    assert "30000" in " ".join(found["advice"])


@pytest.mark.parametrize(
    "text",
    [
        "INFO:     Uvicorn running on http://127.0.0.1:30000 (Press CTRL+C to quit)",
        "INFO:     Application startup complete.",
        'INFO:     127.0.0.1:1 - "GET /v1/models HTTP/1.1" 200 OK',
        "2025-03-07 23:50:29,569 - __main__ - WARNING - Attempt 15: Please wait for sglang server to become ready...",
        "Prefill batch, #new-seq: 1, #new-token: 6, #cached-token: 0, token usage: 0.00, #running-req: 0, #queue-req: 0",
    ],
)
def test_what_is_not_ready(text: str) -> None:
    tracker = LogTracker(records=False)
    tracker.feed(ARGS + b"[2026-10-06 20:01:04] Load weight begin. avail mem=94.50 GB\n")
    tracker.feed(f"[2026-10-06 20:01:05] {text}\n".encode())
    assert tracker.state().outcome == Outcome.STARTING


def test_answered_requests_prove_serving_where_the_ready_line_is_missing() -> None:
    post = b'[2026-10-06 20:01:05] INFO:     127.0.0.1:1 - "POST /v1/chat/completions HTTP/1.1" 200 OK\n'
    tracker = LogTracker(records=False)
    tracker.feed(
        ARGS + b"[2026-10-06 20:01:04] INFO:     Uvicorn running on http://0.0.0.0:30000 (Press CTRL+C to quit)\n"
    )
    tracker.feed(post)
    assert tracker.state().outcome == Outcome.STARTING  # the warm-up's own
    tracker.feed(post * 2)
    assert (tracker.state().outcome, tracker.state().phase) == (Outcome.READY, Phase.SERVING)


def test_a_warmup_that_fails_minutes_later_is_a_crash() -> None:
    raw = LOGS["log-warmup-502-proxy.log"]
    tracker = LogTracker(records=False)
    tracker.feed(raw[: raw.index(b"[2024-12-13 01:47:34] Initialization failed")])
    assert (tracker.state().outcome, tracker.state().phase) == (Outcome.STARTING, Phase.WARMUP)
    tracker.feed(raw[raw.index(b"[2024-12-13 01:47:34] Initialization failed") :])
    assert tracker.state().outcome == Outcome.CRASHED


def test_a_handled_traceback_is_forgiven_when_the_start_goes_on() -> None:
    tracker = LogTracker(records=False)
    tracker.feed(ARGS + b'Traceback (most recent call last):\n  File "/x.py", line 1, in f\nImportError: no y\n')
    tracker.flush()
    assert tracker.state().outcome == Outcome.CRASHED
    tracker.feed(b"[2026-10-06 20:01:04 TP0] Load weight begin. avail mem=94.50 GB\n")
    tracker.flush()
    assert tracker.state().outcome == Outcome.STARTING
    assert diagnose(tracker.state()) == (None, ())


def test_a_client_bar_is_not_progress() -> None:
    tracker = LogTracker(records=False)
    tracker.feed(b"[2026-10-06 20:01:04 TP0] Load weight begin. avail mem=94.50 GB\n")
    tracker.feed(b" 42%|###      | 51/122 [01:16<00:32,  2.18it/s]\n")
    assert tracker.state().progress is None


def test_old_rank_prefixes() -> None:
    tracker = LogTracker(records=False)
    tracker.feed(b"[gpu=0] Load weight begin. avail mem=23.3 GB\n[gpu_id=1] Load weight begin. avail mem=23.3 GB\n")
    tracker.feed(b"[14:02:12 TP2] Load weight begin. avail mem=23.3 GB\n")
    assert {rank.tag for rank in tracker.state().ranks} == {"TP0", "TP1", "TP2"}


def test_a_clock_without_date_passes_midnight() -> None:
    tracker = LogTracker(records=False)
    tracker.feed(b"[23:59:50 TP0] Init torch distributed begin.\n[00:00:10 TP0] Load weight begin. avail mem=1.0 GB\n")
    spans = tracker.state().spans
    assert spans[-1].began_s == 20.0


@pytest.mark.fault("F6", "a torn line, two in one", sees="what can be read of it", holds="no reader fails")
def test_records_and_figures_agree_without_records() -> None:
    raw = b"".join(LOGS.values())
    with_records, without = LogTracker(), LogTracker(records=False)
    with_records.feed(raw)
    without.feed(raw)
    assert replace(with_records.state()) == without.state()


def test_in_the_middle_of_a_file_the_phase_is_not_known_before_a_line_tells() -> None:
    tracker = LogTracker(offset=1_000, number=7)
    records = tracker.feed(
        b"no word of a phase\n"
        b"[2026-10-06 20:01:03 TP0] Decode batch, #running-req: 1, gen throughput (token/s): 3.0, #queue-req: 0\n"
        b"more\n"
    )
    assert [(r.number, r.offset, r.kind, r.phase) for r in records] == [
        (7, 1_000, "plain", None),
        (8, 1_019, "plain", Phase.SERVING),  # it serves, and did so before
        (9, 1_121, "plain", Phase.SERVING),
    ]
    assert tracker.place == (1_126, 10, False)
    started = LogTracker(offset=1_000).feed(b"[2026-10-06 20:01:03 TP0] Load weight begin. avail mem=1.00 GB\nx\n")
    assert [(r.kind, r.phase) for r in started] == [("phase", Phase.LOAD_WEIGHTS), ("plain", Phase.LOAD_WEIGHTS)]
    again = LogTracker(offset=1_000).feed(b"[2026-10-06 20:01:03] server_args=ServerArgs(x=1)\n" * 2 + b"y\n")
    assert again[-1].phase is Phase.LAUNCH


def test_lines_in_between_may_be_left_out() -> None:
    tracker = LogTracker()
    tracker.feed(b"one\ntwo\nthr")
    tracker.go_on_at(5_000, 100)
    records = tracker.feed(b"hundred\n")
    assert [(r.number, r.offset, r.text) for r in records] == [(100, 5_000, "hundred")]
    assert tracker.state().lines == 100
