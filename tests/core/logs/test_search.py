"""Search, counts and marks that the host looks for."""

import asyncio
import contextlib
import os
import random
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tui.core.errors import HostError, LinkLost, UsageError
from tui.core.link.local import LocalTransport
from tui.core.logs import search as log_search
from tui.core.logs.blocks import line_begin, line_end, read_block
from tui.core.logs.search import HostSearch, LogMarks, Needle, lines_before, offset_of_line
from tui.core.model.phases import Phase

DATA = Path(__file__).parents[2] / "data" / "logs"
TOOLS = ("dd", "ls", "sleep", "printf", "grep", "awk", "tail", "head", "wc", "tr", "cat")


@pytest.fixture(params=["dash", "bash", "busybox", "busybox tools"])
def host(request, make_shell_host):
    """This machine under three shells, and with tools whose grep knows no byte offsets and without stat."""
    few = request.param == "busybox tools"
    return make_shell_host("busybox" if few else request.param, TOOLS if few else ())


async def end_of(search: HostSearch | LogMarks):
    async with asyncio.timeout(60):
        async for _ in search.run():
            pass
    return search.state


def truth(data: bytes, needle: bytes, *, fold: bool = False) -> list[tuple[int, int]]:
    """(offset of the first hit, line) of every line with a hit."""
    found, at = [], 0
    for number, text in enumerate(data.split(b"\n"), 1):
        place = (text.lower() if fold else text).find(needle)
        if place >= 0:
            found.append((at + place, number))
        at += len(text) + 1
    return found


def places(state) -> list[tuple[int, int | None]]:
    return [tuple(hit) for hit in (*state.first, *state.last)]


async def test_counts_and_places_of_hits(host, tmp_path):
    rng = random.Random(3)
    words = [b"alpha", b"Beta", b"alphaalpha", "ünï".encode(), b"x" * 300, b"\0\xff\x80", b""]
    lines = [b" ".join(rng.choices(words, k=rng.randrange(5))) for _ in range(3_000)]
    lines += [b"y" * 200_000 + b" Rare1 and Rare1", b"rare2"]
    rng.shuffle(lines)
    data = b"\n".join(lines)  # the last line has no end
    log = tmp_path / "a 'log' $x"
    log.write_bytes(data)
    for text, fold in (("Beta", False), ("beta", True), ("Rare1", False), ("rare", True), ("ünï", True), ("no", True)):
        state = await end_of(HostSearch(host, str(log), Needle(text)))
        expected = truth(data, text.encode(), fold=fold)
        assert (state.count, state.complete, state.done) == (len(expected), True, True)
        assert places(state) == expected
        assert (state.looked_bytes, state.size_bytes) == (len(data), len(data))


async def test_of_many_hits_the_ends_are_kept_and_all_are_counted(host, tmp_path, monkeypatch):
    monkeypatch.setattr(log_search, "HITS_KEPT", 10)
    data = b"".join(b"hit %d\nmiss\n" % n for n in range(1_000))
    log = tmp_path / "log"
    log.write_bytes(data)
    search = HostSearch(host, str(log), Needle("hit"))
    state = await end_of(search)
    expected = truth(data, b"hit")
    assert state.count == 1_000
    assert not state.complete
    assert [tuple(hit) for hit in state.first] == expected[:10]
    assert [tuple(hit) for hit in state.last] == expected[-10:]
    assert search.place(expected[3][0], expected[3][0] + 1) == 4
    assert search.place(expected[-1][0], expected[-1][0] + 1) == 1_000
    assert search.place(expected[500][0], expected[500][0] + 1) is None
    # Between the ends the host is asked.
    hit = await search.next(expected[500][0], 1)
    assert hit.offset == expected[500][0]
    hit = await search.next(expected[500][0], -1)
    assert hit.offset == expected[499][0]
    assert (await search.next(0, -1)) is None
    assert (await search.next(len(data), 1)) is None
    hit = await search.next(len(data), -1)
    assert hit.offset == expected[-1][0]


async def test_backwards_over_lines_longer_than_a_step(local, tmp_path, monkeypatch):
    monkeypatch.setattr(log_search, "_BACK_BYTES", (100, 1_000))
    data = b"needle 1\n" + b"a" * 5_000 + b"needle 2" + b"b" * 5_000 + b"\n" + b"c\n" * 2_000 + b"end\n"
    log = tmp_path / "log"
    log.write_bytes(data)
    search = HostSearch(local, str(log), Needle("needle"))
    second = data.index(b"needle 2")
    hit = await search.next(len(data), -1)
    assert hit.offset == second
    hit = await search.next(9, -1)
    assert (hit.offset, hit.number) == (0, 1)
    hit = await search.next(9, 1)
    assert hit.offset == second


async def test_what_a_file_grew_by_is_all_that_is_looked_at_again(host, tmp_path):
    log = tmp_path / "log"
    parts = [b"needle 1\nneed", b"le 2 needle\nmiss\nneedle", b" 3", b"\n", b"", b"miss\nneedle 4"]
    search = HostSearch(host, str(log), Needle("needle"))
    data = b""
    for part in parts:
        data += part
        log.write_bytes(data) if data == part else log.open("ab").write(part)
        state = await end_of(search)
        assert state.count == len(truth(data, b"needle"))
        assert [hit.offset for hit in (*state.first, *state.last)] == [at for at, _ in truth(data, b"needle")]


async def test_a_replaced_or_truncated_file_is_looked_at_from_its_beginning(host, tmp_path):
    log = tmp_path / "log"
    log.write_bytes(b"needle\n" * 5 + b"x\n" * 100)
    search = HostSearch(host, str(log), Needle("needle"))
    assert (await end_of(search)).count == 5
    log.write_bytes(b"needle\n")
    assert (await end_of(search)).count == 1
    new = tmp_path / "new"
    new.write_bytes(b"needle\n" * 3)
    new.rename(log)
    state = await end_of(search)
    assert (state.count, places(state)) == (3, [(0, 1), (7, 2), (14, 3)])
    log.unlink()
    with pytest.raises(UsageError, match="is not there"):
        await end_of(search)


@pytest.mark.parametrize(
    "text", ["-e x", "--help", "$(touch x)", "'; touch x #", "a\\nb", "*.[", "`id`", '"', "%s", "\\", "a\tb"]
)
async def test_no_text_is_anything_but_text(host, tmp_path, text):
    log = tmp_path / "log"
    log.write_bytes(b"nothing\n" + text.encode() + b"\nmore " + text.encode() + b"\n")
    state = await end_of(HostSearch(host, str(log), Needle(text)))
    assert places(state) == [(8, 2), (8 + len(text.encode()) + 6, 3)]
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "shell") == ["log"]


@pytest.mark.parametrize("text", ["", "a\nb", "a\rb", "\0", "x" * 1_001, "\ud800"])
def test_what_cannot_be_searched_for(text):
    with pytest.raises(UsageError, match="the search text"):
        Needle(text)


@pytest.mark.parametrize("text", ["(", "a*", "x|", "(?=a)b", "(?i)a", "a+?b", r"\x41", r"[\]]", r"(a)\1"])
def test_expressions_that_both_sides_do_not_understand(text):
    with pytest.raises(UsageError, match="cannot be searched for"):
        Needle(text, regex=True)


@pytest.mark.parametrize(
    "text",
    [
        r"tok\w+: \d+\.\d{2}",
        r"^\[2026",
        r"(?:TP|DP)\d",
        r"[^\d\s]{12}",
        r"a\.b|c\(d\)",
        r"queue-req: [1-9]$",
        r"\bload\b",
        r"[-a-c]x",
    ],
)
async def test_expressions_find_the_same_on_both_sides(host, tmp_path, text):
    lines = [
        "[2026-10-06 20:00:01 TP3] token usage: 0.12, gen throughput: 12.34, #queue-req: 3",
        "[2026-10-06 20:00:01 DP0] tokens: 5.10",
        "a.b and a-b",
        "c(d)",
        "load preload",
        "reload",
        "averyverylongword",
        "bx -x zx",
        "",
        "2026",
    ]
    data = "\n".join(lines) + "\n"
    log = tmp_path / "log"
    log.write_text(data)
    needle = Needle(text, regex=True)
    state = await end_of(HostSearch(host, str(log), needle))
    pattern = re.compile(text, re.IGNORECASE if needle.ignore_case else 0)
    expected = [number for number, line in enumerate(lines, 1) if pattern.search(line)]
    assert expected
    assert [hit.number for hit in state.first] == expected


async def test_leaving_a_search_ends_it_on_the_host(local, tmp_path):
    fifo_like = tmp_path / "big"
    with fifo_like.open("wb") as file:
        file.truncate(400 << 30)  # sparse: minutes of zeros
    search = HostSearch(local, str(fifo_like), Needle("never there"))

    def greps() -> list[str]:
        out = subprocess.run(["ps", "-eo", "pid=,args="], capture_output=True, text=True, check=True).stdout
        return [line for line in out.splitlines() if "never there" in line and "grep" in line]

    async with asyncio.timeout(60), contextlib.aclosing(search.run()) as run:
        state = await anext(run)
        assert state.looked_bytes > 0
        assert not state.done
        state = await anext(run)
        assert state.size_bytes == 400 << 30
        assert greps()
    async with asyncio.timeout(30):
        while greps():  # noqa: ASYNC110  nobody here is told when it ends
            await asyncio.sleep(0.05)


async def test_over_ssh_and_over_a_link_that_is_cut(sshd, ssh_transport, tcp_proxy, tmp_path):
    data = b"".join(b"line %d\n" % n for n in range(200_000))
    log = tmp_path / "log"
    log.write_bytes(data)
    search = HostSearch(ssh_transport, str(log), Needle("99"))
    state = await end_of(search)
    assert state.count == len(truth(data, b"99"))
    assert [tuple(hit) for hit in state.first] == truth(data, b"99")[:2_000]
    other = HostSearch(ssh_transport, str(log), Needle("1"))
    tcp_proxy.cut_after(30_000)
    with pytest.raises(LinkLost):
        await end_of(other)
    assert (await end_of(other)).count == len(truth(data, b"1"))


@pytest.mark.parametrize("kind", ["directory", "fifo", "denied"])
async def test_what_is_no_readable_file(local, tmp_path, kind):
    path = tmp_path / kind
    if kind == "directory":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        if os.geteuid() == 0:
            pytest.skip("root may read everything")
        path.write_bytes(b"x")
        path.chmod(0)
    with pytest.raises(UsageError):
        await end_of(HostSearch(local, str(path), Needle("x")))


async def test_a_host_without_the_tools_says_so(tmp_path, monkeypatch):
    directory = tmp_path / "bin"
    directory.mkdir()
    for tool in ("sh", "dd", "ls", "sleep", "cat"):
        (directory / tool).symlink_to(shutil.which(tool))
    transport = LocalTransport(env={"PATH": str(directory)})
    (tmp_path / "log").write_text("x\n")
    monkeypatch.setattr("tui.core.link.local.COMMAND", f"{directory}/sh -s")
    with pytest.raises(HostError, match="search failed"):
        await end_of(HostSearch(transport, str(tmp_path / "log"), Needle("x")))
    await transport.close()


# ---- marks --------------------------------------------------------------------------------------------------------


def line(second: int, rank: str, text: str) -> str:
    return f"[2026-10-06 20:{second // 60:02}:{second % 60:02}{' ' + rank if rank else ''}] {text}\n"


STARTED = [
    line(1, "", "server_args=ServerArgs(model_path='/x', tp_size=2, api_key='hush')"),
    *(line(2, f"TP{rank}", "Init torch distributed begin.") for rank in (0, 1)),
    *(line(9, f"TP{rank}", "Load weight begin. avail mem=70.1 GB") for rank in (0, 1)),
    *(line(90, f"TP{rank}", "Load weight end. type=X, dtype=bf16, avail mem=10 GB, mem usage=60 GB.") for rank in (0, 1)),
    *(line(91, f"TP{rank}", "KV Cache is allocated. #tokens: 1000, K size: 1.0 GB, V size: 1.0 GB") for rank in (0, 1)),
    *(line(92, f"TP{rank}", "Capture cuda graph begin. This can take up to several minutes.") for rank in (0, 1)),
    line(100, "", "INFO:     Uvicorn running on http://127.0.0.1:30000 (Press CTRL+C to quit)"),
    line(110, "", "The server is fired up and ready to roll!"),
    *(line(111 + n, "TP0", f"Decode batch, #running-req: {n}, gen throughput (token/s): 3.1") for n in range(500)),
]  # fmt: skip
CRASH = [
    line(700, "TP1", "Scheduler hit an exception: Traceback (most recent call last):"),
    '  File "/x/scheduler.py", line 2, in run\n',
    "torch.OutOfMemoryError: CUDA out of memory.\n",
]


async def test_marks_of_a_whole_file(host, tmp_path):
    text = "".join([*STARTED, *CRASH, *STARTED])
    log = tmp_path / "log"
    log.write_text(text)
    marks = LogMarks(host, str(log))
    assert marks.phase_at(500) is None
    await end_of(marks)
    order = [Phase.DISTRIBUTED_INIT, Phase.LOAD_WEIGHTS, Phase.MEMORY_POOL, Phase.CUDA_GRAPH, Phase.WARMUP, Phase.READY]
    assert [mark.phase for mark in marks.phases] == [*order, Phase.LAUNCH, *order]
    second = marks.phases[6]
    assert second.offset == text.index("server_args", 10_000) - len("[2026-10-06 20:00:01] ")
    assert second.number == text[: second.offset].count("\n") + 1
    assert "hush" not in second.text
    assert [mark.text for mark in marks.errors] == [
        "Scheduler hit an exception: Traceback (most recent call last):",
        "torch.OutOfMemoryError: CUDA out of memory.",
    ]
    crash = text.index("Scheduler hit")
    assert marks.next("error", 0, 1) == marks.errors[0]
    assert marks.next("error", crash + 100, 1) == marks.errors[1]
    assert marks.next("error", len(text), -1) == marks.errors[1]
    assert marks.next("error", 0, -1) is None
    assert marks.next("phase", len(text), 1) is None
    assert marks.phase_at(text.index("Load weight begin")) is Phase.LOAD_WEIGHTS
    assert marks.phase_at(crash) is Phase.READY
    with log.open("a") as file:
        file.write("".join(CRASH))
    await end_of(marks)
    assert len(marks.errors) == 4
    assert marks.errors[2].number is None


@pytest.mark.parametrize("path", sorted((DATA / "recorded").glob("*.log")), ids=lambda path: path.stem)
async def test_marks_of_recorded_logs_are_those_of_the_whole_log(local, path):
    from tui.core.sglang.tracker import LogTracker

    tracker = LogTracker()
    records = tracker.feed(path.read_bytes()) + tracker.flush()
    marks = LogMarks(local, str(path))
    await end_of(marks)
    errors = {record.number for record in records if record.kind == "error"}
    assert {mark.number for mark in marks.errors} >= errors or not errors
    phases = [record.phase for record in records if record.kind == "phase"]
    begun = [phase for at, phase in enumerate(phases) if phase not in phases[:at]]
    marked = [mark.phase for mark in marks.phases]
    assert [phase for phase in begun if phase in marked] == [phase for phase in marked if phase in begun]


# ---- lines --------------------------------------------------------------------------------------------------------


async def test_lines_are_counted_on_the_host(host, tmp_path):
    data = b"".join(b"%d\n" % n for n in range(300_000)) + b"no end"
    log = tmp_path / "log"
    log.write_bytes(data)
    for offset in (0, 1, 1_048_576, 1_500_001, len(data)):
        assert await lines_before(host, str(log), offset) == data.count(b"\n", 0, offset)
    assert await lines_before(host, str(log), len(data) + 1) is None
    for number in (1, 2, 150_000, 300_001):
        offset = await offset_of_line(host, str(log), number)
        assert data[offset:].split(b"\n")[0] in (b"%d" % (number - 1), b"no end")
        assert data.count(b"\n", 0, offset) == number - 1
    assert await offset_of_line(host, str(log), 10**9) == len(data)
    assert await lines_before(host, str(tmp_path / "no"), 5) is None


async def test_blocks_and_the_lines_around_a_byte(host, tmp_path):
    data = b"first\n" + b"x" * 3_000_000 + b"\nlast\n" + b"open"
    log = tmp_path / "log"
    log.write_bytes(data)
    identity = f"{log.stat().st_ino}"
    for offset, length in ((0, 10), (1_048_577, 70_000), (2_999_990, 100), (4_000_000, 5), (0, 2_500_000), (-4, 100)):
        block = await read_block(host, str(log), offset, length)
        begin = len(data) + offset if offset < 0 else offset
        assert block.data == data[begin : begin + length]
        assert (block.offset, block.size) == (begin, len(data))
        assert block.file.endswith(":" + identity)
    assert (await read_block(host, str(log), -(10**9), 5)).data == b"first"
    other = await read_block(host, str(log), 0, 5, file="1:2")
    assert (other.data, other.file.endswith(":" + identity)) == (b"", True)
    assert await read_block(host, str(tmp_path / "no"), 0, 5) is None
    for offset in (0, 3, 6, 7, 1_500_000, 3_000_006, 3_000_007, 3_000_012, len(data)):
        assert await line_begin(host, str(log), offset) == data.rfind(b"\n", 0, offset) + 1
    for offset in (0, 6, 1_500_000, 3_000_008):
        assert await line_end(host, str(log), offset) == (data.find(b"\n", offset) + 1, True)
    assert await line_end(host, str(log), len(data) - 2) == (len(data), False)
