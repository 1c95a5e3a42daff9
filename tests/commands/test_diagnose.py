"""`eagletui diagnose` of logs that are huge."""

import asyncio
import json
import random
from pathlib import Path

import pytest

from tests.support.log_reports import report
from tests.support.usual_lines import usual_lines
from tui.commands import diagnose
from tui.core.errors import HostError, Slug
from tui.core.logs import excerpt
from tui.core.logs.named import NamedLog

DEATH = (
    b"[2026-10-06 23:59:58 TP3] Scheduler hit an exception: Traceback (most recent call last):\n"
    b"RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.\n"
)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few kilobytes are huge."""
    monkeypatch.setattr(diagnose, "_HUGE_BYTES", 8_192)
    monkeypatch.setattr(excerpt, "WHOLE_BYTES", 8_192)
    monkeypatch.setattr(excerpt, "HEAD_BYTES", 4_096)
    monkeypatch.setattr(excerpt, "TAIL_BYTES", 4_096)


def reports(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    text, found = capsys.readouterr().out, []
    while text.strip():
        document, end = json.JSONDecoder().raw_decode(text.lstrip())
        found.append(document)
        text = text.lstrip()[end:]
    return found


def test_a_file_here(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = usual_lines(random.Random(1), 800) + DEATH + usual_lines(random.Random(2), 800)
    (tmp_path / "log").write_bytes(data)
    assert diagnose.command([str(tmp_path / "log"), "--json"], standalone_mode=False) == 0
    assert reports(capsys) == [json.loads(json.dumps({**report(data), "unread_lines": 0}))]


def test_what_was_too_much_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(excerpt, "MOST_BYTES", 20_000)
    rng = random.Random(3)
    words = ("rain", "city", "alpha", "green", "token")
    lines = (f"[2026-10-06 20:00:00 TP0] error: {' '.join(rng.choices(words, k=20))}\n" for _ in range(2_000))
    (tmp_path / "log").write_text("".join(lines))
    assert diagnose.command([str(tmp_path / "log")], standalone_mode=False) == 0
    assert "lines: too many are unusual; the first and the newest were read" in capsys.readouterr().out


def test_where_the_host_cannot_pick_lines_the_log_is_read_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def cannot(*_: object, **__: object) -> None:
        raise HostError("no grep", slug=Slug.SEARCH_FAILED)

    monkeypatch.setattr(diagnose, "read_excerpt", cannot)
    data = usual_lines(random.Random(4), 300) + DEATH
    (tmp_path / "log").write_bytes(data)
    assert diagnose.command([str(tmp_path / "log"), "--json"], standalone_mode=False) == 0
    assert reports(capsys) == [json.loads(json.dumps({**report(data), "unread_lines": 0}))]


async def test_it_is_followed_after_its_excerpt(tmp_path: Path, capsys: pytest.CaptureFixture[str], until) -> None:
    data = usual_lines(random.Random(5), 800)
    log = tmp_path / "log"
    log.write_bytes(data[:-10])  # within a line
    shown = diagnose._Reports(as_json=True, follow=True)
    following = asyncio.create_task(diagnose._read_there(NamedLog("local", str(log)), shown, follow=True))
    await until(lambda: shown._shown)
    with log.open("ab") as file:
        file.write(data[-10:] + DEATH)
    await until(lambda: "oom_kv_pool" in shown._shown)
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    assert [(found["phase"], found["cause"]) for found in reports(capsys)] == [
        ("serving", None),
        ("serving", "oom_kv_pool"),
    ]
    assert shown.tracker.state().lines == data.count(b"\n") + 2
