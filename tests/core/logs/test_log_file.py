"""A log file of any size: whatever is loaded, in whatever order, is what the whole file says there."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tui.core.errors import UsageError
from tui.core.link.local import LocalTransport
from tui.core.logs import log_file, parts, stretches
from tui.core.logs.blocks import Block
from tui.core.logs.log_file import LogFile
from tui.core.logs.reader import LogStep
from tui.core.logs.rows import LogRows
from tui.core.logs.search import HostSearch, Needle
from tui.core.model.log import LINE_LIMIT, LogRecord
from tui.core.model.phases import Phase
from tui.core.sglang import splitter
from tui.core.sglang.tracker import LogTracker


@pytest.fixture
async def local():
    transport = LocalTransport()
    yield transport
    await transport.close()


class Follower:
    """Runs `updates()` in the background."""

    def __init__(self, file: LogFile) -> None:
        self.file = file
        self.updates: list[LogStep] = []
        self.over = False
        self._changed = asyncio.Event()
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        async for update in self.file.updates(lambda: self.over):
            self.updates.append(update)
            self._changed.set()

    @property
    def events(self) -> list[str]:
        return [update.event for update in self.updates if update.event]

    async def until(self, condition) -> None:
        async with asyncio.timeout(60):
            while not condition():
                if self.task.done():
                    await self.task
                    assert condition(), (self.events, "ended")
                    return
                self._changed.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._changed.wait(), 0.1)

    async def end(self) -> None:
        self.over = True
        await asyncio.wait_for(self.task, 60)

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


@contextlib.asynccontextmanager
async def following(file: LogFile) -> AsyncIterator[Follower]:
    follower = Follower(file)
    try:
        await follower.until(lambda: follower.updates)
        yield follower
    finally:
        await follower.stop()


def told(record: LogRecord) -> tuple[object, ...]:
    """What does not depend on what was read before."""
    return record.offset, record.time, record.rank, record.text, record.cut_bytes, record.stamp_s


def one_pass(data: bytes) -> list[LogRecord]:
    tracker = LogTracker()
    out: dict[int, LogRecord] = {}
    plain: list[LogRecord] = []
    for at in range(0, len(data), 65_536):
        for record in tracker.feed(data[at : at + 65_536]):
            if record.provisional:
                continue
            if record.key >= 0:
                if record.key not in out:
                    plain.append(record)
                out[record.key] = record
            else:
                plain.append(record)
    return [out.get(record.key, record) if record.key >= 0 else record for record in plain]


def numbers(file: LogFile) -> list[int | None]:
    return [file.window.number_of(record) for record in file.window.records]


def texts(file: LogFile) -> list[str]:
    return [record.text for record in file.window.records]


LINES = b"".join(b"[2026-10-06 20:%02d:%02d TP%d] line %d\n" % (n // 60 % 60, n % 60, n % 4, n) for n in range(60_000))


# ---- opening and loading ------------------------------------------------------------------------------------------


async def test_a_small_file_is_there_at_once_and_whole(local, tmp_path):
    log = tmp_path / "a 'log' ü"
    log.write_bytes(LINES[:400_000])
    file = LogFile(local, str(log))
    async with following(file) as follower:
        assert follower.events == ["opened"]
        assert (file.begin, file.at_begin, file.at_tail) == (0, True, True)
        assert file.size == 400_000
        assert numbers(file)[0] == 1
        expected = one_pass(LINES[:400_000])
        await follower.end()
        assert [told(r) for r in file.window.records][: len(expected)] == [told(r) for r in expected]


async def test_of_a_big_file_the_tail_comes_first_and_the_rest_on_request(local, tmp_path):
    log = tmp_path / "log"
    log.write_bytes(LINES)
    file = LogFile(local, str(log))
    assert await file.first_stamp_s(0) == one_pass(LINES[:100])[0].stamp_s
    async with following(file):
        assert len(LINES) - 262_144 <= file.begin < len(LINES) - 261_000
        assert texts(file)[-1] == "line 59999"
        assert set(numbers(file)) == {None}
        log_rows = LogRows(file.window)
        first = file.window.record(0)
        assert await file.load_before() > 0
        assert file.window.first < 0
        assert file.window.record(0) is first
        assert await file.count_lines()
        assert numbers(file)[-1] == 60_000
        while not file.at_begin:
            assert await file.load_before() > 0
            log_rows.update()
        assert await file.load_before() == 0
        assert [told(r) for r in file.window.records] == [told(r) for r in one_pass(LINES)]
        assert numbers(file) == list(range(1, 60_001))


async def test_lines_are_counted_from_the_beginning_once_that_is_loaded(local, tmp_path):
    log = tmp_path / "log"
    log.write_bytes(LINES[:1_000_000])
    file = LogFile(local, str(log))
    async with following(file):
        while not file.at_begin:
            await file.load_before()
        assert numbers(file)[:3] == [1, 2, 3]


@pytest.mark.fault("S6", "a log of 10 GB", sees="its end at once", holds="it is never read whole")
async def test_a_file_of_ten_gigabytes_is_opened_and_jumped_through(local, tmp_path):
    log = tmp_path / "huge"
    with log.open("wb") as handle:
        handle.write(LINES)
        handle.truncate(10 << 30)  # sparse: one line of zeros that nobody can have read
        handle.seek(0, os.SEEK_END)
        handle.write(b"\n" + LINES)
    file = LogFile(local, str(log))
    async with following(file):
        assert texts(file)[-1] == "line 59999"
        middle = (10 << 30) + 1_000_000
        index = await file.jump_to(middle)
        record = file.window.record(index)
        assert record.offset <= middle < record.offset + 60
        assert not file.at_tail
        index = await file.jump_to_line(3)
        assert file.window.record(index).text == "line 2"
        assert file.window.number_of(file.window.record(index)) == 3
        file.to_tail()
        assert texts(file)[-1] == "line 59999"


@pytest.mark.parametrize("place", ["tail", "middle", "after"])
@pytest.mark.fault("S2", "a line of 100 MB", sees="its beginning", holds="memory stays flat")
async def test_one_line_of_100_megabytes(local, tmp_path, place):
    long = b"[2026-10-06 20:00:01 TP0] " + b"x" * 100_000_000
    data = {
        "tail": LINES[:1_000] + b"\n" + long,
        "middle": LINES[:1_000] + b"\n" + long + b"\n" + LINES,
        "after": LINES[:600_000] + b"\n" + long + b"\n" + LINES[:330],
    }[place]
    log = tmp_path / "log"
    log.write_bytes(data)
    file = LogFile(local, str(log))
    begin = data.index(long)
    async with following(file):
        if place != "tail":
            while file.begin > begin:
                assert await file.load_before() > 0
        record = next(r for r in file.window.records if r.offset == begin)
        assert len(record.text) < LINE_LIMIT
        assert record.cut_bytes == len(long) - LINE_LIMIT
        assert record.provisional == (place == "tail")
        if place == "after":
            index = await file.jump_to(70)
            assert file.window.record(index).text == "line 2"
            while not file.at_tail:
                assert await file.load_after() > 0
            record = next(r for r in file.window.records if r.offset == begin)
            assert record.cut_bytes == len(long) - LINE_LIMIT
            assert numbers(file)[-1] == data.count(b"\n")
        index = await file.jump_to(begin + 50_000_000)
        assert file.window.record(index).offset == begin


@pytest.mark.fault("S3", "a progress bar without line ends", sees="its last state", holds="bounded")
async def test_a_bar_without_a_line_end_anywhere(local, tmp_path):
    frames = b"".join(b"\r%3d%%|###| %d/100000 [00:01<00:01]" % (n // 1000, n) for n in range(100_000))
    log = tmp_path / "log"
    log.write_bytes(b"first\n" + frames)
    file = LogFile(local, str(log))
    async with following(file):
        assert file.begin > 1_000_000
        assert file.window.records[-1].text.endswith("99999/100000 [00:01<00:01]")
        count = len(file.window.records)
        while not file.at_begin:
            assert await file.load_before() > 0
        assert len(file.window.records) < count + 40  # frames fold into a record a block
        assert texts(file)[0] == "first"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n",
        b"no line end",
        b"\r\n" * 5,
        b"\0\xff\xfe\n\x80",
        b"a\r\nb\r\n",
        b"\x1b[31mred\x1b[0m\n",
        b"\n" * 1_000,
    ],
    ids=["empty", "blank", "open", "crlf blank", "binary", "crlf", "colour", "many blanks"],
)
async def test_odd_small_files(local, tmp_path, data):
    log = tmp_path / "log"
    log.write_bytes(data)
    file = LogFile(local, str(log))
    async with following(file) as follower:
        await follower.end()
        assert [told(r) for r in file.window.records] == [told(r) for r in _flushed(data)]
        assert all("\x1b" not in text for text in texts(file))
        assert await file.jump_to(10**12) in (None, file.window.end - 1)


def _flushed(data: bytes) -> list[LogRecord]:
    tracker = LogTracker()
    return [r for r in tracker.feed(data) if not r.provisional] + list(tracker.flush())


async def test_secrets_stay_masked_wherever_a_block_begins(local, tmp_path):
    secret = b"[2026-10-06 20:00:01] server_args=ServerArgs(api_key='very-secret-words', x=1)\n"
    log = tmp_path / "log"
    log.write_bytes((secret + LINES[:5_000]) * 300)
    file = LogFile(local, str(log))
    async with following(file):
        while not file.at_begin:
            await file.load_before()
        await file.jump_to(700_000)
        assert not any("very-secret" in text for text in texts(file))
        assert any("api_key" in record.text for record in file.tail.records)


# ---- however it is cut --------------------------------------------------------------------------------------------

PIECES = [
    b"[2026-10-06 20:00:01 TP0] hello\n",
    b"[2026-10-06 20:00:02.125 DP1 TP0] Decode batch, #running-req: 3, gen throughput (token/s): 3.2\n",
    b"bare\r\n",
    b"\n",
    b"\r\n",
    "ünïcödé ✓ 漢字\n".encode(),
    b"\xff\xfe broken \xc3\n",
    b"\0\0\n",
    b"2026-10-06T20:00:01.000Z [2026-10-06 20:00:01] wrapped\n",
    b"x" * 700 + b"\n",
    b"y" * 3_000 + b"\n",
]


class Memory:
    """A file in memory, for the functions that read one on a host."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    async def block(self, transport, path, offset, length, *, file=None) -> Block:
        offset = max(0, len(self.data) + offset) if offset < 0 else offset
        return Block(self.data[offset : offset + length], offset, len(self.data), "1:1")

    async def line_begin(self, transport, path, offset) -> int:
        return self.data.rfind(b"\n", 0, offset) + 1

    async def line_end(self, transport, path, offset) -> tuple[int, bool]:
        at = self.data.find(b"\n", offset) + 1
        return at or len(self.data), at > 0


@given(
    st.lists(st.sampled_from(PIECES), min_size=1, max_size=120),
    st.sampled_from([b"", b"open end"]),
    st.integers(200, 2_000),
    st.lists(st.tuples(st.sampled_from(["before", "after", "jump", "tail", "line"]), st.floats(0, 1)), max_size=15),
)
@settings(deadline=None)
def test_whatever_is_loaded_is_what_the_whole_file_says(pieces, end, block_bytes, steps):
    data = b"".join(pieces) + end
    memory = Memory(data)

    async def run() -> None:
        expected = one_pass(data)
        known = {record.offset: record for record in expected}
        file = LogFile(LocalTransport(), "x", capacity=40)
        await file._open()
        for step, where in steps:
            match step:
                case "before":
                    was = dict(enumerate(file.window.records, file.window.first))
                    await file.load_before()
                    kept = range(max(file.window.first, min(was, default=0)), min(file.window.end, max(was, default=0)))
                    assert all(file.window.record(at) is was[at] for at in kept if at in was)
                case "after":
                    await file.load_after()
                case "jump":
                    offset = int(where * (len(data) - 1))
                    index = await file.jump_to(offset)
                    if index is not None:
                        record = file.window.record(index)
                        following = [r.offset for r in expected if r.offset > record.offset]
                        assert record.offset <= offset or record.text == ""
                        assert not following or offset < following[0] + 2
                case "tail":
                    file.to_tail()
                case _:
                    file.window.line_base = data.count(b"\n", 0, file.begin) + 1 - file._here.blocks[0].number
            records = [record for record in file.window.records if not record.provisional]
            for record in records:
                assert told(record) == told(known[record.offset])
            offsets = [record.offset for record in records]
            between = [r.offset for r in expected if offsets and offsets[0] <= r.offset <= offsets[-1]]
            assert offsets == between
            for record in records:
                number = file.window.number_of(record)
                assert number in (None, known[record.offset].number)
            if file.at_tail:
                assert not offsets or offsets[-1] == expected[-1].offset

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stretches, "read_block", memory.block)
        patch.setattr(stretches, "line_begin", memory.line_begin)
        patch.setattr(stretches, "line_end", memory.line_end)
        patch.setattr(log_file, "BLOCK_BYTES", block_bytes)
        patch.setattr(log_file, "_WHOLE_BYTES", 2 * block_bytes)
        patch.setattr(parts, "_BLOCK_RECORDS", 7)
        patch.setattr(stretches, "LINE_LIMIT", 150)
        patch.setattr(splitter, "LINE_LIMIT", 150)
        asyncio.run(run())


# ---- while it is written ------------------------------------------------------------------------------------------


def write(path, data: bytes) -> None:
    with path.open("ab") as handle:
        handle.write(data)


async def test_bytes_as_they_are_written(local, tmp_path):
    log = tmp_path / "log"
    file = LogFile(local, str(log))
    async with following(file) as follower:
        assert follower.events == ["gone"]
        assert file.problem is not None
        assert "gone" in file.problem
        expected = b""
        for piece in (b"one\n", b"tw", b"o\n\0\xff", "é".encode()[:1], "é".encode()[1:], b"\r\n", b"no end"):
            write(log, piece)
            expected += piece
            await follower.until(lambda: file._last is not None and file._last.end >= len(expected))  # noqa: B023
        assert file.problem is None
        await follower.end()
        assert [told(r) for r in file.window.records] == [told(r) for r in _flushed(expected)]
        assert numbers(file) == [1, 2, 3, 4]
        assert file.window.records[-1].provisional is False


@pytest.mark.fault("S8", "a log is removed", sees="that it is gone", holds="the run's state is shown all the same")
async def test_truncation_rotation_and_replacement_are_told_and_read_on(local, tmp_path):
    log = tmp_path / "log"
    log.write_bytes(LINES[:700_000])
    file = LogFile(local, str(log))
    async with following(file) as follower:
        log_rows = LogRows(file.window)
        assert set(numbers(file)) == {None}
        log.write_bytes(b"truncated\n")
        await follower.until(lambda: texts(file)[-1] == "truncated")
        assert texts(file)[-2] == "[eagletui] the file was truncated; what follows is its new content"
        assert numbers(file)[-3:] == [None, None, 1]
        assert file.at_begin
        assert await file.load_before() == 0
        write(log, b"last words\n")
        log.rename(tmp_path / "log.1")
        log.write_bytes(b"rotated\n")
        await follower.until(lambda: texts(file)[-1] == "rotated")
        assert texts(file)[-3] == "last words"
        log.unlink()
        await follower.until(lambda: "gone" in follower.events)
        log.write_bytes(LINES[:100_000])
        await follower.until(lambda: file._last.end == 100_000)
        assert follower.events == ["opened", "truncated", "replaced", "gone", "replaced"]
        assert file.generation == 3
        log_rows.update()
        assert log_rows.row(log_rows.sequence[-1]).shown.text == texts(file)[-1]
        # A place in the file is one in the file as it is now.
        index = await file.jump_to(70)
        assert file.window.record(index).text == "line 2"
        assert file.window.number_of(file.window.record(index)) == 3
        assert file.window.record(file.window.first).number == 0  # lines of a file that is gone have no number


async def test_a_reader_in_the_middle_learns_that_the_rest_is_gone(local, tmp_path):
    log = tmp_path / "log"
    log.write_bytes(LINES)
    file = LogFile(local, str(log))
    async with following(file) as follower:
        index = await file.jump_to(1_000_000)
        record = file.window.record(index)
        log.rename(tmp_path / "log.1")
        log.write_bytes(b"rotated\n")
        await follower.until(lambda: file.tail.records[-1].text == "rotated")
        assert file.window.record(index) is record
        assert await file.load_before() == await file.load_after() == 0
        assert file.at_begin
        file.to_tail()
        assert texts(file)[-1] == "rotated"
        assert await file.jump_to(0) == file.window.end - 1


@pytest.mark.fault("S7")
async def test_a_reader_who_holds_still_is_not_moved_by_a_flood(local, tmp_path):
    log = tmp_path / "log"
    log.write_bytes(LINES[:300_000])
    file = LogFile(local, str(log), capacity=10_000)
    async with following(file) as follower:
        window = file.window
        file.reader = window.first + 5
        held = window.record(file.reader)
        for at in range(300_000, len(LINES), 200_000):
            write(log, LINES[at : at + 200_000])
        await follower.until(lambda: file.tail.records[-1].text == "line 59999")
        assert file.window is window
        assert window.record(file.reader) is held
        assert not file.at_tail
        assert len(window.records) <= 12_000
        assert len(file.tail.records) <= 12_500
        assert file.tail.records[-1].text == "line 59999"
        file.reader = None
        seen = [record.text for record in window.records]
        while not file.at_tail:
            end = window.end
            assert await file.load_after() > 0
            seen += [window.record(index).text for index in range(end, window.end)]
        assert seen[-1] == "line 59999"
        assert [int(text.split()[1]) for text in seen] == list(range(int(seen[0].split()[1]), 60_000))
        assert numbers(file)[-1] == 60_000
        write(log, b"on it goes\n")
        await follower.until(lambda: texts(file)[-1] == "on it goes")
        assert file.window is window


@pytest.mark.fault(
    "S7", "a log grows faster than it is shown", sees="how far the view is behind", holds="memory stays flat"
)
async def test_while_it_follows_the_oldest_go(local, tmp_path):
    log = tmp_path / "log"
    log.write_bytes(b"")
    file = LogFile(local, str(log), capacity=10_000)
    async with following(file) as follower:
        write(log, LINES)
        await follower.until(lambda: file.tail.records and file.tail.records[-1].text == "line 59999")
        assert 9_000 < len(file.window.records) <= 12_500
        assert numbers(file)[-1] == 60_000
        assert file.begin > 0
        assert await file.load_before() > 0  # they are in the file still
        first = int(texts(file)[0].split()[1])
        assert texts(file) == [f"line {n}" for n in range(first, first + len(file.window.records))]


async def test_markers_of_ours_stay_in_their_place(local, tmp_path):
    log = tmp_path / "log"
    log.write_bytes(b"one\ntw")
    file = LogFile(local, str(log))
    async with following(file) as follower:
        file.add_marker("[eagletui] exit=0", "20:00:01")
        assert [(r.text, r.provisional) for r in file.window.records][1:] == [
            ("[eagletui] exit=0", False),
            ("tw", True),
        ]
        write(log, b"o\nthree\n")
        await follower.until(lambda: texts(file)[-1] == "three")
        assert texts(file) == ["one", "[eagletui] exit=0", "two", "three"]
        assert numbers(file) == [1, None, 2, 3]
        assert await file.jump_to(5) == 2


# ---- over a link --------------------------------------------------------------------------------------------------


async def test_a_link_that_is_cut_again_and_again(ssh_transport, tcp_proxy, tmp_path):
    log = tmp_path / "log"
    log.write_bytes(LINES[:1_500_000])
    file = LogFile(ssh_transport, str(log))
    async with following(file) as follower:
        while not file.at_begin:
            tcp_proxy.cut_after(100_000)
            await file.load_before()
        tcp_proxy.cut_after(100_000)
        write(log, LINES[1_500_000:])
        await follower.until(lambda: file.tail.records[-1].text == "line 59999")
        assert "link_lost" in follower.events
        assert follower.events.count("link_lost") == follower.events.count("resumed")
        assert file.problem is None
        await follower.end()
    assert [told(r) for r in file.window.records] == [told(r) for r in one_pass(LINES)]
    assert numbers(file) == list(range(1, 60_001))


async def test_while_the_link_is_down_the_file_says_so(ssh_transport, tcp_proxy, tmp_path):
    log = tmp_path / "log"
    log.write_bytes(LINES[:1_000])
    file = LogFile(ssh_transport, str(log))
    async with following(file) as follower:
        await tcp_proxy.stop()
        await follower.until(lambda: file.problem)
        assert "link" in file.problem
        write(log, b"\nmeanwhile\n")
        await tcp_proxy.start()
        await follower.until(lambda: texts(file)[-1] == "meanwhile")
        assert file.problem is None


async def test_hits_and_marks_outside_of_what_is_loaded(ssh_transport, tmp_path):
    crash = (
        b"[2026-10-06 20:00:01 TP1] Scheduler hit an exception: Traceback (most recent call last):\n"
        b'  File "x.py", line 2, in run\nRuntimeError: needle\n'
    )
    start = b"[2026-10-06 20:00:01 TP0] Load weight begin. avail mem=70.1 GB\n"
    data = start + LINES[:1_000_000] + b"\n" + crash + LINES + b"Needle\n"
    log = tmp_path / "log"
    log.write_bytes(data)
    file = LogFile(ssh_transport, str(log))
    async with following(file):
        search = HostSearch(ssh_transport, str(log), Needle("needle"))
        async for _ in search.run():
            pass
        assert (search.state.count, search.state.complete) == (2, True)
        last = file.window.end - 1
        hit = await search.next(file.edge(last, -1), -1)
        assert data[hit.offset : hit.offset + 6] == b"needle"
        index = await file.jump_to(hit.offset, number=hit.number)
        assert file.window.record(index).text == "RuntimeError: needle"
        assert file.window.number_of(file.window.record(index)) == data.count(b"\n", 0, hit.offset) + 1
        assert await search.next(file.edge(index, -1), -1) is None
        hit = await search.next(file.edge(index, 1), 1)
        assert hit.offset == len(data) - 7
        assert file.phase_at(index) is None
        async for _ in file.marks.run():
            pass
        assert file.phase_at(index) is Phase.LOAD_WEIGHTS
        mark = file.marks.next("error", file.edge(index, -1), -1)
        assert mark.offset == data.index(b"[2026-10-06 20:00:01 TP1] Scheduler hit")
        assert file.marks.next("error", file.edge(await file.jump_to(mark.offset), -1), -1) is None
        assert file.marks.next("phase", file.edge(index, -1), -1).offset == 0


@pytest.mark.parametrize("kind", ["directory", "fifo"])
async def test_what_is_no_file(local, tmp_path, kind):
    path = tmp_path / kind
    if kind == "directory":
        path.mkdir()
    else:
        os.mkfifo(path)
    file = LogFile(local, str(path))
    with pytest.raises(UsageError, match="local: "):
        await anext(file.updates())
