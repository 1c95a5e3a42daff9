"""Tracebacks in rich's boxes say what Python's own say, in a paste and in a log that is watched."""

import random
from pathlib import Path

import pytest

from tests.support.log_reports import live_report, report
from tests.support.rich_boxes import boxed
from tui.core.sglang.boxes import Boxes
from tui.core.sglang.report import Report
from tui.core.sglang.tracker import LogTracker

LOGS = Path(__file__).parents[2] / "data" / "logs"
FAILED = """\
[2026-05-01 10:00:00 TP0] Load weight begin. avail mem=78.50 GB
Traceback (most recent call last):
  File "/sgl-workspace/sglang/python/sglang/srt/managers/scheduler.py", line 3118, in run_scheduler_process
    scheduler = Scheduler(
  File "/sgl-workspace/sglang/python/sglang/srt/model_executor/model_runner.py", line 1497, in load_model
    self.model = self.loader.load_model(
  File "/sgl-workspace/sglang/python/sglang/srt/layers/linear.py", line 269, in weight_loader
    assert param.size() == loaded_weight.size()
AssertionError
[2026-05-01 10:00:02] Received sigquit from a child process. It usually means the child failed.
"""
LOCALS = """\
│ ╭─────────────────────────────── locals ────────────────────────────────╮ │
│ │ frames = ['/x/sglang/srt/managers/scheduler.py:1 in run_batch']        │ │
│ ╰────────────────────────────────────────────────────────────────────────╯ │
"""


def _logs() -> list[Path]:
    return [path for path in sorted(LOGS.glob("*/*.log")) if boxed(text := path.read_text("utf-8", "replace")) != text]


def said(found: Report) -> tuple[object, ...]:
    return found["phase"], found["outcome"], found["cause"], found["rank"]


@pytest.mark.parametrize("path", _logs(), ids=lambda path: path.stem)
def test_a_box_says_what_the_traceback_says(path: Path) -> None:
    log = path.read_text("utf-8", "replace")
    chance = random.Random(path.name)
    read, width = chance.choice((report, live_report)), chance.choice((80, 100, 140))
    assert said(read(boxed(log, width).encode())) == said(read(log.encode()))


@pytest.mark.parametrize("width", [80, 81, 100, 200])
@pytest.mark.parametrize("plain", [False, True])
def test_frames_program_and_message_are_read(width: int, plain: bool) -> None:
    drawn = boxed(FAILED, width, plain=plain)
    assert ("│" in drawn) is not plain
    found = report(drawn.encode())
    assert said(found) == said(report(FAILED.encode()))
    assert found["evidence"]["text"] == "AssertionError: assert param.size() == loaded_weight.size()"
    assert found["evidence"]["line"] == drawn[: drawn.index("\nAssertionError")].count("\n") + 2


@pytest.mark.parametrize("before", ["", "> ", "    ", "service-1  | ", "2026-09-22T06:49:56.336833841Z "])
def test_in_any_wrapping(before: str) -> None:
    drawn = "".join(before + line + "\n" for line in boxed(FAILED, 90).splitlines())
    assert said(report(drawn.encode())) == said(report(FAILED.encode()))


def test_a_message_that_was_wrapped_is_one_line() -> None:
    message = "CUDA out of memory. Tried to allocate 462.00 MiB. GPU 0 has a total capacity of 79.10 GiB of which 301.38 MiB is free. Process 1 has 78.80 GiB memory in use."  # fmt: skip
    log = FAILED.replace("AssertionError", f"torch.OutOfMemoryError: {message}")
    for width in range(60, 120, 7):
        assert report(boxed(log, width).encode())["evidence"]["text"] == f"OutOfMemoryError: {message}"


def test_local_variables_and_lines_of_others_are_no_frames() -> None:
    drawn = boxed(FAILED, 76)
    head, _, rest = drawn.rpartition("╰")
    found = report(
        (head + LOCALS + "[2026-05-01 10:00:01 TP1] Using KV cache dtype: torch.bfloat16\n╰" + rest).encode()
    )
    assert said(found)[:3] == said(report(FAILED.encode()))[:3]


def test_a_box_that_never_ends_holds_nothing_back() -> None:
    boxes = Boxes()
    head = "╭──── Traceback (most recent call last) ────╮"
    given = [line for number in range(1, 2_000) for line in boxes.take(number, head if number == 1 else "x", False)]
    assert sorted(line.number for line in given) == list(range(1, 2_000))


@pytest.mark.parametrize("seed", range(20))
def test_any_lines_end_in_an_answer(seed: int) -> None:
    chance = random.Random(seed)
    pieces = [*boxed(FAILED, 70).splitlines(), *boxed(FAILED, 70, plain=True).splitlines(), *LOCALS.splitlines(), "", "│", "+", "x" * 5_000]  # fmt: skip
    lines = [chance.choice(pieces)[chance.randrange(3) :] for _ in range(400)]
    text = "".join(line + "\n" for line in lines).encode()
    tracker = LogTracker(records=True)
    cut = chance.randrange(len(text))
    records = [*tracker.feed(text[:cut]), *tracker.feed(text[cut:]), *tracker.flush()]
    assert {record.number for record in records} == set(range(1, len(lines) + 1))
    assert report(text)["outcome"]
