"""What a paste is: containers, processes, encodings, chunks, other engines; and texts that mean harm."""

import random
import string

import pytest

from tests.support.log_reports import report
from tests.support.wrappings import LOGS, WRAPPINGS, as_bytes, raw_lines
from tui.core.sglang.report import report_of
from tui.core.sglang.wrapping import paste
from tui.core.sglang.wrapping.engines import OtherEngine, engine_of, others
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
