"""Excerpts of huge logs: what the host picks says what the whole log says."""

import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.log_reports import live_report as report
from tests.support.usual_lines import usual_lines
from tui.core.errors import HostError, LinkLost, UsageError
from tui.core.link.local import LocalTransport
from tui.core.logs import excerpt
from tui.core.logs.excerpt import Excerpt, read_excerpt
from tui.core.sglang.report import Report, report_of
from tui.core.sglang.tracker import LogTracker

DATA = Path(__file__).parents[2] / "data" / "logs"
LOGS = sorted(DATA.glob("*/*.log"))
SERVES = b"fired up and ready to roll!"
START = (DATA / "recorded" / "normal_start.log").read_bytes().partition(SERVES)[0] + SERVES + b"\n"
TOOLS = ("dd", "ls", "stat", "printf", "grep", "awk", "tail", "head", "wc", "cat", "cut", "nproc")
FATAL = (
    b"[2026-10-06 23:59:58 TP3] Scheduler hit an exception: Traceback (most recent call last):\n"
    b'  File "/sglang/srt/managers/scheduler.py", line 3120, in run_scheduler_process\n'
    b"    scheduler.event_loop_overlap()\n"
    b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.25 GiB.\n\n"
    b"[2026-10-06 23:59:58] Received sigquit from a child process. It usually means the child failed.\n"
)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few kilobytes are huge."""
    for name, value in (("WHOLE_BYTES", 8_192), ("HEAD_BYTES", 2_048), ("TAIL_BYTES", 4_096)):
        monkeypatch.setattr(excerpt, name, value)


@pytest.fixture(params=["dash", "bash", "busybox", "busybox tools"])
def host(request, make_shell_host):
    """This machine under three shells, and with BusyBox' tools alone."""
    few = request.param == "busybox tools"
    return make_shell_host("busybox" if few else request.param, TOOLS if few else ())


async def read(host: LocalTransport, path: Path, data: bytes) -> tuple[Report, Excerpt, LogTracker]:
    path.write_bytes(data)
    tracker = LogTracker(records=False)
    found = await read_excerpt(host, str(path), tracker=tracker)
    tracker.flush()
    return report_of(tracker), found, tracker


def bytes_of(found: Excerpt) -> int:
    return sum(len(passage.data) for passage in found.passages)


def goes_on(log: bytes, rng: random.Random) -> bytes:
    """Whatever was said, others still serve."""
    return log + usual_lines(rng, 600)


def after_hours(log: bytes, rng: random.Random) -> bytes:
    """Another run stands before this one in the file, and the last line has no end."""
    return START + usual_lines(rng, 600) + log + usual_lines(rng, 300).rstrip(b"\n")


def restarted(log: bytes, rng: random.Random) -> bytes:
    return log + usual_lines(rng, 400) + START + usual_lines(rng, 400)


def interrupted(log: bytes, rng: random.Random) -> bytes:
    """Usual lines of others stand between any two lines of the serving server's, tracebacks included."""
    begin = log.find(SERVES)
    begin = log.find(b"\n", begin) + 1 if begin >= 0 else log.find(b"\n", log.rfind(b"Traceback (most")) + 1
    lines = log[begin:].splitlines(keepends=True)
    return log[:begin] + b"".join(
        line + (usual_lines(rng, rng.randrange(1, 60), stamped=rng.random() < 0.5) if rng.random() < 0.4 else b"")
        for line in (usual_lines(rng, 300), *lines)
    )


def silent_ranks(log: bytes) -> set[bytes]:
    """Ranks of which there are batch lines alone."""
    tags: dict[bool, set[bytes]] = {True: set(), False: set()}
    for line in log.splitlines():
        tags[b" batch" in line] |= set(re.findall(rb"\d\d:\d\d:\d\d((?: [A-Z_]+\d+)+)\]", line))
    return tags[True] - tags[False] - {b" TP0"}


@pytest.mark.parametrize("padded", [goes_on, after_hours, restarted, interrupted])
async def test_an_excerpt_says_what_the_whole_log_says(
    local: LocalTransport, tmp_path: Path, padded: Callable[[bytes, random.Random], bytes]
) -> None:
    smaller = 0
    for log in LOGS:
        data = padded(log.read_bytes().rstrip(b"\n") + b"\n", random.Random(log.name))
        said, found, tracker = await read(local, tmp_path / "log", data)
        whole = report(data)
        if silent_ranks(data):  # the one thing that an excerpt may not tell
            assert said.pop("ranks_seen") <= whole.pop("ranks_seen")
        assert said == whole, log.name
        assert tracker.state().lines == data.count(b"\n") + (not data.endswith(b"\n")), log.name
        smaller += bytes_of(found) < len(data) / 2
    assert smaller > len(LOGS) / 3


async def test_most_of_a_serving_server_s_log_stays_where_it_is(host: LocalTransport, tmp_path: Path) -> None:
    rng = random.Random(1)
    health = b'[2026-10-06 22:00:00] INFO:     10.0.0.1:1 - "GET /health HTTP/1.1" 200 OK\n'
    refused = b"[2026-10-06 21:00:00 TP0] Traceback (most recent call last):\nValueError: of one request\n"
    data = START + usual_lines(rng, 4_000) + refused + usual_lines(rng, 4_000) + health * 2_000
    said, found, _ = await read(host, tmp_path / "a 'log' $x", data)
    assert said == report(data)
    # Nothing of its newest lines says how it serves: the decode lines before them are asked for.
    assert said["phase"] == "serving"
    assert said["last_decode"]["gen_tok_s"] is not None
    assert bytes_of(found) < len(data) / 10
    assert found.size == len(data)
    said, found, _ = await read(host, tmp_path / "log", data + FATAL + usual_lines(rng, 2_000) + health * 2_000)
    # The request's traceback was forgiven by a batch line that is not among the lines sent at first.
    assert (said["cause"], said["rank"]) == ("oom_serving", "TP3")
    assert said["evidence"]["line"] == data.count(b"\n") + 4
    assert said == report((tmp_path / "log").read_bytes())


async def test_warnings_that_come_a_thousand_times_are_counted(local: LocalTransport, tmp_path: Path) -> None:
    rng = random.Random(2)
    warning = b"/x/hf.py:412: UserWarning: Using a slow tokenizer. This might cause a significant slowdown.\n"
    data = START + b"".join(usual_lines(rng, 3) + warning for _ in range(3_000)) + usual_lines(rng, 100)
    said, found, tracker = await read(local, tmp_path / "log", data)
    assert said == report(data)
    assert tracker.state().slow_tokenizer == 3_000
    assert bytes_of(found) < len(data) / 5


async def test_requests_taken_back_a_thousand_times_are_counted(host: LocalTransport, tmp_path: Path) -> None:
    rng = random.Random(5)
    full = b"[2026-10-06 23:00:%02d TP%d] KV cache pool is full. Retract requests. #retracted_reqs: %d, #new_tokens_gained: 9\n"
    data = START + b"".join(usual_lines(rng, 2) + full % (at % 60, at % 2, 1 + at % 3) for at in range(2_000))
    data += usual_lines(rng, 100)
    said, found, tracker = await read(host, tmp_path / "log", data)
    retracted = tracker.state().retracted
    assert (retracted.times, retracted.requests) == (2_000, sum(1 + at % 3 for at in range(2_000)))
    assert said == report(data)
    assert bytes_of(found) < len(data) / 3
    # What an earlier run took back is not this one's.
    said, _, tracker = await read(host, tmp_path / "log", data + START + usual_lines(rng, 600))
    assert tracker.state().retracted is None
    assert said == report((tmp_path / "log").read_bytes())


async def test_the_newest_batches_come_with_the_first_answer(
    host: LocalTransport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    usual = excerpt._usual
    monkeypatch.setattr(excerpt, "_usual", lambda *args: asked.append(args) or usual(*args))
    data = START + usual_lines(random.Random(6), 3_000)
    health = b'[2026-10-06 22:00:00] INFO:     10.0.0.1:1 - "GET /health HTTP/1.1" 200 OK\n' * 200
    said, found, _ = await read(host, tmp_path / "log", data + health)
    assert said == report(data + health)
    assert (said["last_decode"]["gen_tok_s"] is not None, asked) == (True, [])
    lines = (data + health).split(b"\n")
    for passage in found.passages:
        assert passage.data.split(b"\n")[0] == lines[passage.number - 1]
    # Where they are far from the end they are asked for.
    monkeypatch.setattr(excerpt, "BEFORE_BYTES", 1_000)
    said, _, _ = await read(host, tmp_path / "log", data + health)
    assert said == report(data + health)
    assert len(asked) == 1


@pytest.mark.parametrize("pieces", [2, 4])
async def test_pieces_are_one_log(
    local: LocalTransport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pieces: int
) -> None:
    # Several at once are for long files only; here each byte may be where one ends.
    program = (
        excerpt.shell_program("excerpt.sh")
        .replace("33554432", "10000")
        .replace("getconf _NPROCESSORS_ONLN", f"echo {pieces}")
    )
    monkeypatch.setattr(excerpt, "shell_program", lambda _: program)
    rng = random.Random(3)
    for _ in range(8):
        data = usual_lines(rng, rng.randrange(400, 500)) + FATAL + usual_lines(rng, rng.randrange(400, 500)) + START
        said, found, _ = await read(local, tmp_path / "log", data)
        assert said == report(data)
        lines = data.split(b"\n")
        for passage in found.passages:
            begin = passage.number - 1
            assert passage.data.split(b"\n")[:-1] == lines[begin : begin + passage.data.count(b"\n")]


async def test_where_everything_is_unusual_the_first_and_the_newest_are_read(
    host: LocalTransport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(excerpt, "MOST_BYTES", 40_000)
    rng = random.Random(4)
    words = ("rain", "city", "alpha", "prompt", "green", "token")
    plain = [f"[2026-10-06 20:00:00] asked: {' '.join(rng.choices(words, k=30))}\n".encode() for _ in range(5_000)]
    # Prompts alone: what matters is found among them.
    data = START + b"".join(plain[:2_500]) + FATAL + b"".join(plain[2_500:])
    said, found, _ = await read(host, tmp_path / "log", data)
    assert said == report(data)
    assert found.unread == 0
    assert bytes_of(found) < len(data) / 3
    # Each of them looks like trouble: what is left out in the middle is counted.
    data = START + b"".join(line.replace(b"asked", b"error") for line in plain) + FATAL + b"x\n" * 4_000
    said, found, _ = await read(host, tmp_path / "log", data)
    assert (said["cause"], said["rank"]) == ("oom_serving", "TP3")
    assert said["evidence"]["line"] == data[: data.index(b"torch.OutOf")].count(b"\n") + 1
    assert 3_000 < found.unread < 5_000
    assert bytes_of(found) < 70_000  # the first line is long


ODD = {
    "empty": b"",
    "one end": b"\n",
    "no end": b"x" * 50_000,
    "nul": b"\0" * 50_000 + b"\n\0\n" + FATAL.replace(b"in run", b"\0 in run"),
    "crlf": usual_lines(random.Random(5), 200).replace(b"\n", b"\r\n") + FATAL.replace(b"\n", b"\r\n"),
    "no utf-8": b"\xff\xfe\x80" * 9_000 + b"\n" + FATAL,
    "bars": START + b"".join(b"\rCapturing batches: %3d%%|#| %d/100 [00:01<00:01]" % (n, n) for n in range(100)),
    "escapes": b"\x1b[31m\x1b]0;x\x07" * 3_000 + b"\n" + FATAL,
}


@pytest.mark.parametrize("name", ODD)
async def test_any_bytes(host: LocalTransport, tmp_path: Path, name: str) -> None:
    for data in (ODD[name], START + usual_lines(random.Random(6), 300) + ODD[name]):
        said, _, tracker = await read(host, tmp_path / "log", data)
        assert said == report(data)
        assert tracker.state().lines == data.count(b"\n") + (data[-1:] not in (b"", b"\n"))


async def test_a_small_log_travels_whole(local: LocalTransport, tmp_path: Path) -> None:
    data = usual_lines(random.Random(7), 40)
    _, found, _ = await read(local, tmp_path / "log", data)
    assert [(passage.number, passage.data) for passage in found.passages] == [(1, data)]


async def test_from_a_byte_on(local: LocalTransport, tmp_path: Path) -> None:
    before = usual_lines(random.Random(8), 300)
    data = usual_lines(random.Random(9), 300) + FATAL + usual_lines(random.Random(10), 300)
    (tmp_path / "log").write_bytes(before + data)
    found = await read_excerpt(local, str(tmp_path / "log"), begin=len(before), number=301)
    assert found.passages[0].number == 301
    assert found.passages[0].data.startswith(data[:1_000])
    assert found.passages[-1].end == 300 + data.count(b"\n") + 1
    assert any(b"Scheduler hit" in passage.data for passage in found.passages)


async def test_no_file(host: LocalTransport, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not there"):
        await read_excerpt(host, str(tmp_path / "no"))
    with pytest.raises(UsageError, match="is a directory"):
        await read_excerpt(host, str(tmp_path))


async def test_a_host_without_grep_is_an_error(local: LocalTransport, tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(usual_lines(random.Random(11), 300))
    (tmp_path / "bin").mkdir()
    for tool in ("sh", "dd", "head", "wc", "stat", "cut", "awk"):
        (tmp_path / "bin" / tool).symlink_to(shutil.which(tool) or "/bin/false")
    poor = LocalTransport(env={"PATH": str(tmp_path / "bin")})
    with pytest.raises(HostError, match="cannot be picked there") as failed:
        await read_excerpt(poor, str(tmp_path / "log"))
    assert failed.value.slug in excerpt.CANNOT_PICK
    await poor.close()


@pytest.mark.parametrize("change", ["truncated", "replaced"])
async def test_a_file_that_changes_is_read_again(
    local: LocalTransport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    log, new = tmp_path / "log", START + usual_lines(random.Random(12), 300) + FATAL
    log.write_bytes(usual_lines(random.Random(13), 900))
    passed = excerpt._read, excerpt._usual

    async def then_truncated(*args):
        found = await passed[0](*args)
        monkeypatch.setattr(excerpt, "_read", passed[0])
        log.write_bytes(new)
        raise excerpt._Changed if found else AssertionError

    async def replaced_before(*args):
        (tmp_path / "new").write_bytes(new)
        (tmp_path / "new").rename(log)
        monkeypatch.setattr(excerpt, "_usual", passed[1])
        return await passed[1](*args)

    if change == "truncated":
        monkeypatch.setattr(excerpt, "_read", then_truncated)
    else:
        log.write_bytes(START + usual_lines(random.Random(13), 900) + b"x\n" * 4_000)
        monkeypatch.setattr(excerpt, "BEFORE_BYTES", 0)  # so that there is a second question
        monkeypatch.setattr(excerpt, "_usual", replaced_before)
    tracker = LogTracker(records=False)
    await read_excerpt(local, str(log), tracker=tracker)
    tracker.flush()
    assert report_of(tracker) == report(new)


@pytest.mark.has_sshd
async def test_over_a_link_few_bytes_and_few_ways(ssh_transport, tcp_proxy, tmp_path, monkeypatch) -> None:
    rng = random.Random(14)
    data = START + usual_lines(rng, 40_000) + FATAL
    (tmp_path / "log").write_bytes(data)
    streams = 0
    stream = ssh_transport.stream

    def counted(script):
        nonlocal streams
        streams += 1
        return stream(script)

    monkeypatch.setattr(ssh_transport, "stream", counted)
    tracker = LogTracker(records=False)
    found = await read_excerpt(ssh_transport, str(tmp_path / "log"), tracker=tracker)
    tracker.flush()
    assert report_of(tracker) == report(data)
    assert bytes_of(found) < len(data) / 50
    assert streams <= 2
    # A link that is cut meanwhile comes back, and the excerpt is read again.
    tcp_proxy.cut_after(3_000)
    again = await read_excerpt(ssh_transport, str(tmp_path / "log"))
    assert again.passages == found.passages
    await ssh_transport.close()
    with pytest.raises((LinkLost, HostError)):
        await read_excerpt(ssh_transport, str(tmp_path / "log"))
