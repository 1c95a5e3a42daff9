"""What a paste is: containers, processes, encodings, chunks, other engines; and texts that mean harm."""

import json
import random
import string

import pytest

from tests.support.log_reports import report
from tests.support.wrappings import LOGS, WRAPPINGS, as_bytes, raw_lines
from tui.core.sglang.report import report_of
from tui.core.sglang.wrapping import paste
from tui.core.sglang.wrapping.engines import OtherEngine, engine_of, others
from tui.core.sglang.wrapping.layers import Framed
from tui.core.sglang.wrapping.line import Line
from tui.core.sglang.wrapping.paste import PasteTracker

DEAD = LOGS / "corpus" / "log-5090-sm120-rmsnorm-no-kernel.log"
ALIVE = LOGS / "corpus" / "log-ling3-new-format-ready.log"
CRASH = [
    "[2026-10-06 20:01:03 {tag}] Scheduler hit an exception: Traceback (most recent call last):",
    '  File "/a/sglang/srt/managers/scheduler.py", line 3120, in run_scheduler_process',
    "    scheduler.event_loop_overlap()",
    "{exception}",
]
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.25 GiB."
CLOSED = "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer"


def crash(tag: str, exception: str) -> list[str]:
    return [line.format(tag=tag, exception=exception) for line in CRASH]


# ---- line ends that are lost ------------------------------------------------------------------------------------------

TRACE = """Scheduler hit an exception: Traceback (most recent call last):
  File "/a/sglang/srt/managers/scheduler.py", line 3120, in run_scheduler_process
    scheduler = Scheduler(
  File "/a/sglang/srt/managers/scheduler.py", line 300, in __init__
    self.init_model_worker()
  File "/a/sglang/srt/model_executor/model_runner.py", line 9, in init_memory_pool
    assert pages > 0, "no ValueError: here"
AssertionError: no ValueError: here

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/a/sglang/srt/managers/scheduler.py", line 310, in __init__
    raise RuntimeError("x")
RuntimeError: pool is broken"""


@pytest.mark.parametrize("first", ["", "(Engine pid=77) ", "engine-1 | "])
@pytest.mark.parametrize("stamp", ["[2026-10-06 20:01:03 TP0] ", ""])
def test_a_traceback_in_one_line_is_split_at_its_structure(first: str, stamp: str) -> None:
    lines = [line for line in f"{stamp}{TRACE}".splitlines() if line]
    whole = report(as_bytes([first + line for line in lines]))
    found = report(as_bytes([" ".join(first + line.strip() for line in lines)]))
    assert (whole["phase"], whole["outcome"], whole["ranks_seen"]) == ("memory_pool", "crashed", 1 if stamp else 0)
    assert found["evidence"]["text"] == whole["evidence"]["text"]
    assert [found[key] for key in ("phase", "outcome", "cause", "rank")] == [
        whole[key] for key in ("phase", "outcome", "cause", "rank")
    ]


@pytest.mark.parametrize("name", ["**init**", "init"])
def test_underscores_that_markdown_took_are_put_back(name: str) -> None:
    bare = [line.replace("__init__", name) for line in TRACE.splitlines()[:6]]
    frame = f'  File "/a/sglang/srt/speculative/eagle_worker.py", line 7, in {name}'
    found = report(as_bytes(["[2026-10-06 20:01:03 TP0] " + bare[0], *bare[1:-2], frame, "TypeError: no draft"]))
    assert found["phase"] == "draft_model"


BREAKS = [('", line ', '",\n    line '), ("/srt/model", "/sr\nt/model"), (", line ", ", line\n"), (", in ", ",\n in ")]


@pytest.mark.parametrize(("whole", "broken"), BREAKS)
@pytest.mark.parametrize("first", ["", "> ", "llm-1 | "])
def test_frames_that_a_chat_broke_are_joined_again(whole: str, broken: str, first: str) -> None:
    plain = report(TRACE.encode())
    lines = [first + line for line in TRACE.replace(whole, broken).splitlines()]
    found = report(as_bytes(lines))
    assert found["phase"] == plain["phase"] == "memory_pool"
    assert found["evidence"]["text"] == plain["evidence"]["text"]
    assert "frames" in found["wrapping"]


def test_what_begins_like_a_frame_and_is_none_stays_as_it_is() -> None:
    lines = ['  File "/a/sglang/srt/server_args.py", line 7', "    in = 3", "SyntaxError: invalid syntax"]
    for text in (lines, [*lines[:1], '  File "/a'], ['  File "' + "x" * 290] * 20):
        framed = Framed()
        given = [Line(number, row) for number, row in enumerate(text, 1)]
        assert framed.take(given) + framed.end() == given


def test_lines_of_a_stream_in_json_get_no_stamp_of_their_own() -> None:
    raw = [
        json.dumps({"log": line + "\n", "stream": "stderr", "time": "2026-10-06T10:00:00.1Z"})
        for line in TRACE.splitlines()
    ]
    assert report(as_bytes(raw))["evidence"]["text"] == report(TRACE.encode())["evidence"]["text"]


def test_an_exception_is_not_the_rest_of_the_line_before_it() -> None:
    flat = [line.strip() for line in TRACE.splitlines()[:6]] + ["x" * 77, "KeyError: 'gone'", "y" * 77, "z"]
    assert report(as_bytes(flat))["evidence"]["text"].startswith("KeyError: 'gone'")


def test_a_line_of_program_is_no_evidence() -> None:
    lines = [
        '2026-10-06T10:00:00Z     raise RuntimeError(f"NCCL error: {text}")',
        "2026-10-06T10:00:00Z RuntimeError: NCCL error: x",
    ]
    assert report(as_bytes(lines))["evidence"]["line"] == 2


def test_ranks_without_a_stamp_are_ranks_and_no_containers() -> None:
    lines = [f"[{tag}] Load weight begin. avail mem=60.87 GB" for tag in ("TP0", "DP1 TP1")]
    found = report(as_bytes([*lines, "Multimodal attention backend not set. Use sdpa."]))
    assert (found["ranks_seen"], found["other_containers"], found["phase"]) == (2, [], "load_weights")


# ---- a request that failed -------------------------------------------------------------------------------------------


FAILED = "[2026-02-19 16:32:42 TP0] Prefill transfer failed for request rank=0 req.rid='e0' with exception KVTransferError(bootstrap_room=7): Failed to send"
NATIVE = (
    "E0219 16:32:42.940686 572100 rdma_transport.cpp:529] Memory region not registered by any active device(s): 0x7f"
)


def test_a_request_that_failed_shows_a_server_that_serves_and_the_native_error_is_why() -> None:
    found = report(as_bytes([NATIVE, "[2026-02-19 16:32:42 TP4] Session 10.0.0.9:16177 failed.", FAILED]))
    assert (found["phase"], found["outcome"], found["cause"]) == ("serving", "ready", "disaggregation")
    assert (found["evidence"]["line"], found["evidence"]["text"]) == (1, NATIVE)


def test_a_request_that_failed_in_a_start_proves_nothing() -> None:
    found = report(as_bytes(["[2026-02-19 16:32:40 TP0] Load weight begin. avail mem=60.87 GB", FAILED]))
    assert (found["phase"], found["outcome"]) == ("load_weights", "starting")


# ---- several containers ---------------------------------------------------------------------------------------------


def test_other_containers_are_named() -> None:
    found = report(as_bytes(WRAPPINGS["compose"](raw_lines(DEAD), random.Random(1)).lines))
    assert found["container"] == "sglang-1"
    assert set(found["other_containers"]) == {"client-1", "nginx-1"}
    assert found["cause"] == "unsupported_arch"


def test_of_two_servers_the_dead_one_is_read() -> None:
    dead = [f"[pod/llm-1/server] {line}" for line in crash("TP0", OOM)]
    tagged = [line.replace("] ", " TP0] ", 1) if line.startswith("[20") else line for line in raw_lines(ALIVE)]
    alive = [f"[pod/llm-0/server] {line}" for line in tagged]
    found = report(as_bytes([*alive, *dead]))
    assert (found["container"], found["other_containers"]) == ("pod/llm-1/server", ["pod/llm-0/server"])
    assert found["outcome"] == "crashed"


def test_nodes_of_one_server_are_read_together() -> None:
    first = [f"[pod/llm-0/server] {line}" for line in crash("TP0", CLOSED)]
    second = [f"[pod/llm-1/server] {line}" for line in crash("TP8", OOM)]
    found = report(as_bytes([line for pair in zip(first, second, strict=True) for line in pair]))
    assert found["other_containers"] == []
    assert (found["rank"], found["ranks_seen"]) == ("TP8", 2)
    assert (found["evidence"]["line"], found["evidence"]["text"]) == (8, OOM)


def test_processes_that_write_between_each_others_lines() -> None:
    first = [f"(Engine pid=11) {line}" for line in crash("TP0", OOM)]
    second = [f"(Engine pid=12, ip=10.0.0.3) {line}" for line in crash("TP1", CLOSED)]
    mixed = [line for pair in zip(second, first, strict=True) for line in pair]
    found = report(as_bytes(mixed))
    assert (found["rank"], found["evidence"]["line"], found["evidence"]["text"]) == ("TP0", 8, OOM)


def test_what_the_host_says_between_them_stays() -> None:
    log = ["[2026-10-06 20:01:02] Load weight begin. avail mem=94.50 GB", "[2026-10-06 20:01:03] Scheduler is busy"]
    lines = [f"Oct 06 20:01:03 gpu1 sglang[4242]: {line}" for line in log]
    killed = "Oct 06 20:01:04 gpu1 kernel: Out of memory: Killed process 4242 (sglang) total-vm:1kB"
    tracker = PasteTracker()
    tracker.feed(as_bytes([*lines, killed]))
    tracker.flush()
    assert tracker.paste.others == ()


# ---- how it comes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-8-sig"])
def test_encodings(encoding: str) -> None:
    text = as_bytes(raw_lines(DEAD)).decode()
    raw = ("\ufeff" * (encoding == "utf-16-be") + text).encode(encoding)
    plain = report(text.encode())
    assert {**report(raw), "wrapping": []} == {**plain, "wrapping": []}


@pytest.mark.parametrize("name", ["quoted", "Docker's file in pieces", "compose", "80 columns", "padded"])
def test_the_answer_does_not_depend_on_how_it_is_cut(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paste, "SAMPLE", 4_000)  # much comes after the wrapping was learned
    raw = as_bytes(WRAPPINGS[name](raw_lines(LOGS / "recorded" / "fail_no_draft_flag.log"), random.Random(1)).lines)
    whole = report(raw)
    chance = random.Random(2)
    tracker = PasteTracker()
    while raw:
        size = chance.choice([1, 7, 300, 5_000])
        tracker.feed(raw[:size])
        raw = raw[size:]
    tracker.flush()
    assert report_of(tracker) == whole


# ---- whose it is ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", others(), ids=lambda engine: engine.id)
def test_other_engines_are_called_by_their_names(engine: OtherEngine) -> None:
    for name in ("quoted", "compose alone", "journald", "Docker's file", "indented by 4", "Markdown", "escaped"):
        found = report(as_bytes(WRAPPINGS[name]([engine.example] * 3, random.Random(1)).lines))
        assert (found["engine"], found["outcome"], found["cause"]) == (engine.id, "starting", None), name


def test_parts_of_another_engine_in_sglang_are_sglang() -> None:
    lines = [
        "INFO 02-19 15:51:07 weight_utils.py:164] Using model weights format ['*.safetensors']",
        '  File "/x/site-packages/vllm/model_executor/layers/linear.py", line 276, in __init__',
        '  File "/x/site-packages/sglang/srt/models/llama2.py", line 39, in __init__',
    ]
    assert engine_of(lines) == "sglang"
    assert engine_of(lines[:2]) is None


# ---- what means harm ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(40))
def test_any_text_has_an_answer(seed: int) -> None:
    chance = random.Random(seed)
    words = [
        "[2026-10-06 20:01:03 TP0] ",
        "> ",
        "```",
        '{"log": "',
        "\\n",
        "<pre>",
        "&gt;",
        '  File "',
        "12: ",
        "100%|",
        "\r",
        "\x1b[",
    ]
    words += [
        "a" * 300,
        "(" * 50,
        "Traceback (most recent call last):",
        "2026-10-06T20:01:03Z stderr P ",
        "\u2028",
        "\x00",
    ]
    text = "".join(chance.choice([*words, "\n", "\n", chance.choice(string.printable)]) for _ in range(3_000))
    assert report(text.encode())["outcome"]


def test_an_endless_line_is_not_kept() -> None:
    tracker = PasteTracker()
    tracker.feed(b"> [2026-10-06 20:01:03 TP0] Load weight begin. avail mem=94.50 GB\n" * 20_000)
    for _ in range(64):
        tracker.feed(b"x" * (1 << 16))
    assert len(tracker._tail) < 1 << 18
    tracker.flush()
    assert tracker.state().ranks_seen == 1
