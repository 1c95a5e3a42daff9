"""The log view over real files: blocks that load, places outside them, search in the whole file, selection, two logs."""

import asyncio
import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support import fakes
from tests.support.driving import screen_text, shows, until
from tui.core.link.local import LocalTransport
from tui.core.logs.follow import Chunk
from tui.core.logs.named import NamedLog
from tui.core.logs.reader import LogReader
from tui.core.sglang.tracker import LogTracker
from tui.panel.app import EagleApp
from tui.panel.log_app import LogApp
from tui.panel.screens.logs import Logs
from tui.panel.widgets.log.head import RankLine
from tui.panel.widgets.log.pair import LogPair
from tui.panel.widgets.log.view import LogView

TRACE = (
    '[2026-10-06 20:59:59 TP3] Scheduler hit an exception: Traceback (most recent call last):\n'
    '  File "/opt/scheduler.py", line 2850, in run\n    self.step()\n'
    '  File "/opt/scheduler.py", line 12, in step\n    raise RuntimeError("boom")\nRuntimeError: boom\n'
)  # fmt: skip


def words(number: int) -> str:
    # letters, as lines that differ in digits alone are folded
    return "".join(chr(97 + int(digit)) for digit in str(number))


def clock(second: int) -> str:
    return f"{20 + second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}"


def plain(number: int, text: str = "", rank: int = 0) -> str:
    """A line like no other, one a second."""
    return f"[2026-10-06 {clock(number - 1)} TP{rank}] line {words(number)}. {text}\n"


def decode(second: int, tok_s: float = 72.1) -> str:
    return (
        f"[2026-10-06 {clock(second)} TP0] Decode batch, #running-req: 1, #token: {second}, accept len: 2.31, "
        f"gen throughput (token/s): {tok_s:.2f}, #queue-req: 0\n"
    )


def rows(pilot) -> list[str]:
    """The rows of the displayed log."""
    lines = screen_text(pilot.app).split("\n")
    first = next(i for i, line in enumerate(lines) if line.startswith((" Log ", " time ", " elapsed "))) + 1
    return [line[:-3] for line in lines[first:-1] if line.strip()]  # without the overview at the right edge


def read_whole(path: Path, run: fakes.Run) -> fakes.RunUpdate:
    """What the watch of a run brings that has read its log."""
    data = path.read_bytes()
    step = LogReader(LogTracker()).take(Chunk(data, 0, 0, len(data)))
    return fakes.RunUpdate(fakes.ready(run=run), step.records, settled=True, log=step)


def view_of(pilot) -> LogView:
    return pilot.app.screen.query_one(LogView)


class Opened:
    """The log screen over files, as `eagletui logs` has it."""

    def __init__(self, *paths: Path, size: tuple[int, int] = (120, 30)) -> None:
        targets = [NamedLog("local", str(path)) for path in paths]
        self.app = LogApp(*targets)
        self._test = self.app.run_test(size=size, notifications=True)

    async def __aenter__(self):
        self.pilot = await self._test.__aenter__()
        await until(self.pilot, lambda: isinstance(self.app.screen, Logs) and view_of(self.pilot).keys())
        await until(self.pilot, lambda: self.app.board.log.opened.is_set())
        return self.pilot

    async def __aexit__(self, *error):
        return await self._test.__aexit__(*error)


@pytest.fixture
def long_log(tmp_path: Path) -> Path:
    """Longer than what is loaded at once: 20,000 lines of 60 bytes, a needle in every 5,000th."""
    path = tmp_path / "long.log"
    path.write_text("".join(plain(n, "needle" if n % 5000 == 0 else "and some words of hay") for n in range(1, 20_001)))
    return path


async def test_earlier_blocks_come_while_one_scrolls_and_move_nobody(long_log):
    async with Opened(long_log) as pilot:
        view, log = view_of(pilot), pilot.app.board.log
        await shows(pilot, words(20_000), "following")
        assert not log.file.at_begin
        begin = log.file.window.first
        await pilot.press("pageup")
        await shows(pilot, "not following")
        view.show_key(log.file.window.first + 40)  # near the edge of what is loaded
        top = rows(pilot)
        await until(pilot, lambda: log.file.window.first < begin)
        await until(pilot, lambda: log.busy is None)
        view.update()
        await pilot.pause()
        assert [row[15:] for row in rows(pilot)][:-1] == [row[15:] for row in top][:-1]
        await pilot.press("g")
        await shows(pilot, "line 1 ·", f"line {words(1)}.")
        await pilot.press("G")
        await shows(pilot, words(20_000), "following")


async def test_line_numbers_are_missing_until_the_host_has_counted(long_log):
    async with Opened(long_log) as pilot:
        await until(pilot, lambda: pilot.app.board.log.file.window.line_base is not None)
        await until(pilot, lambda: rows(pilot)[-1].split()[0] == "20,000")
        pilot.app.board.log.file.window.line_base = None
        view_of(pilot).update()
        await pilot.pause()
        assert rows(pilot)[-1].split()[0] == "…"


async def test_places_are_gone_to_wherever_they_are(long_log):
    async with Opened(long_log) as pilot:
        view = view_of(pilot)
        for typed, number in ((":12,345", 12_345), (":20:33:20", 2001), (":7", 7), (":99999", 20_000)):
            await pilot.press(*typed, "enter")
            await shows(pilot, f"line {number:,} ·")
            assert f"line {words(number)}." in next(row for row in rows(pilot) if row.startswith("▌"))
        await pilot.press(*":50%", "enter")
        await until(pilot, lambda: 9_900 < (view.open_log.file.window.number_of(view.current_record()) or 0) < 10_100
                    or "…" in rows(pilot)[0])  # fmt: skip
        assert 9_900 < next(i for i in range(9_000, 11_000) if f"line {words(i)}." in rows(pilot)[0]) < 10_100
        await pilot.press(*":nowhere", "enter")
        await shows(pilot, ":3318 is line 3,318")


async def test_search_counts_in_the_whole_file_and_jumps_outside_what_is_loaded(long_log):
    async with Opened(long_log, size=(160, 30)) as pilot:
        await pilot.press("slash", *"needle")
        await shows(pilot, "4 hits")
        await pilot.press("enter")
        await shows(pilot, "4 of 4 hits", f"line {words(20_000)}. needle")
        await pilot.press("N")
        await shows(pilot, "3 of 4 hits", "line 15,000 ·")
        await pilot.press("N", "N")
        await shows(pilot, "1 of 4 hits", "line 5,000 ·")
        await pilot.press("N")  # around the beginning
        await shows(pilot, "4 of 4 hits")
        await pilot.press("n")
        await shows(pilot, "1 of 4 hits")
        with long_log.open("a") as file:
            file.write(plain(20_001, "another needle"))
        await until(pilot, lambda: "of 5 hits" in screen_text(pilot.app))
        await pilot.press("escape")
        await until(pilot, lambda: "hits" not in screen_text(pilot.app))
        assert pilot.app.board.log.search is None


async def test_a_filter_shows_lines_of_context_and_an_expression_says_what_is_wrong(tmp_path):
    path = tmp_path / "x.log"
    path.write_text("".join(plain(n, "needle" if n % 20 == 0 else "") for n in range(1, 101)))
    async with Opened(path, size=(160, 30)) as pilot:
        view = view_of(pilot)
        await pilot.press("slash", *"needle", "tab", "enter")
        await until(pilot, lambda: len(view.keys()) == 5)
        await pilot.press("plus", "plus")
        await shows(pilot, "filter ±2 (Tab: highlight)")
        assert len(view.keys()) == 23
        await pilot.press("minus")
        await shows(pilot, "filter ±1")
        await pilot.press("escape", "slash", *"line [ab]+[.] needle", "ctrl+r")
        await shows(pilot, "expression")
        await pilot.press("slash")
        view.app.screen.query_one("#search").value = "(("
        await shows(pilot, "is not a regular expression")


async def test_ranks_are_chosen_one_by_one_and_access_lines_left_out(tmp_path):
    path = tmp_path / "x.log"
    lines = [plain(n, rank=n % 3) for n in range(1, 40)]
    lines.append('[2026-10-06 20:01:00] INFO:     127.0.0.1:1 - "POST /generate HTTP/1.1" 200 OK\n')
    path.write_text("".join(lines))
    async with Opened(path, size=(160, 30)) as pilot:
        view = view_of(pilot)
        await shows(pilot, "✓all", "TP2")
        pilot.app.screen.set_focus(pilot.app.screen.query_one(RankLine))
        await pilot.press("right", "right", "space", "right", "space")
        await shows(pilot, "✓TP0", "✓TP1", "2 ranks, 14 lines hidden")
        assert view.filter.ranks == {"TP0", "TP1"}
        await pilot.press("escape", "escape")
        await shows(pilot, "✓all")
        await pilot.press("A")
        await shows(pilot, "no access lines")
        assert not any("HTTP/1.1" in row for row in rows(pilot))
        place = screen_text(pilot.app).split("\n")[3].index(" TP2 ")
        await pilot.click(offset=(place + 2, 3))
        await shows(pilot, "TP2 only")


async def test_folds_are_opened_one_by_one_and_tracebacks_show_how_they_end(tmp_path):
    path = tmp_path / "x.log"
    path.write_text(
        "".join(decode(second) for second in range(30)) + TRACE + "".join(plain(n) for n in range(4000, 4020))
    )
    async with Opened(path, size=(160, 48)) as pilot:
        await shows(pilot, "×29", "RuntimeError: boom", "traceback, 6 lines")
        assert "raise RuntimeError" not in screen_text(pilot.app)
        await pilot.press("e")
        await shows(pilot, "line 31 ·")
        await pilot.press("enter")
        await shows(pilot, 'raise RuntimeError("boom")')
        await pilot.press("space")
        await shows(pilot, "traceback, 6 lines")
        await pilot.press(*":15", "enter")  # in the fold of repeats
        await until(pilot, lambda: any("▌" in row and "#token: 14" in row for row in rows(pilot)))
        assert sum("Decode batch" in row for row in rows(pilot)) > 20
        await pilot.press("space")
        await shows(pilot, "×29")
        await pilot.press("z")
        await shows(pilot, "every line, z folds")


async def test_the_newest_lines_are_not_folded_away_and_a_reader_keeps_them(tmp_path):
    path = tmp_path / "x.log"
    path.write_text("".join(decode(second) for second in range(200)))
    async with Opened(path, size=(160, 30)) as pilot:
        await shows(pilot, "#token: 199", "#token: 198")
        await pilot.press("k")
        before = [row for row in rows(pilot) if "#token: 19" in row]
        with path.open("a") as file:
            file.writelines(decode(second) for second in range(200, 260))
        await until(pilot, lambda: pilot.app.board.log.last_line() == 260)
        view_of(pilot).update()
        await pilot.pause()
        kept = [row[8:] for row in rows(pilot) if "#token: 19" in row]
        assert kept == [row[8:] for row in before]
        await pilot.press("G")
        await shows(pilot, "#token: 259")
        assert "#token: 198" not in screen_text(pilot.app)


async def test_time_of_day_or_since_the_start(long_log):
    async with Opened(long_log) as pilot:
        await shows(pilot, f" {clock(19_999)} TP0")
        await until(pilot, lambda: pilot.app.board.log.start_s is not None)
        await pilot.press("t")
        await shows(pilot, "+5:33:19 TP0")
        await pilot.press("t")
        await shows(pilot, f" {clock(19_999)} TP0")


async def test_long_lines_move_sideways_and_wrap(tmp_path):
    path = tmp_path / "x.log"
    long = " ".join(f"word{n}" for n in range(300))
    path.write_text(plain(1) + plain(2, long + " 重み the-end") + plain(3))
    async with Opened(path, size=(100, 30)) as pilot:
        view = view_of(pilot)
        await pilot.press("g", "right", "right")
        await shows(pilot, "column 33 ·")
        row = next(row for row in rows(pilot) if "word" in row)
        assert re.search(r"…\S* word\d+ .*…  .* kB", row)
        await pilot.press(">")
        await shows(pilot, "重み the-end")
        await pilot.press("<")
        await until(pilot, lambda: view.shift == 0)
        await pilot.press("slash", *"the-end", "enter")
        await shows(pilot, "重み the-end")  # the hit is brought into sight
        await pilot.press("escape", "w")
        await until(pilot, lambda: "word100" in screen_text(pilot.app))
        wrapped = [row for row in rows(pilot) if "word" in row]
        assert len(wrapped) > 20
        await pilot.press("g", "pagedown")  # a row taller than the screen is read to its end
        await until(pilot, lambda: "the-end" in screen_text(pilot.app))
        await shows(pilot, f"line {words(3)}.")


async def test_lines_are_selected_by_keys_and_mouse_copied_and_written(tmp_path, monkeypatch):
    path = tmp_path / "x.log"
    path.write_text("".join(plain(n) for n in range(1, 31)) + TRACE)
    copied: list[str] = []
    async with Opened(path) as pilot:
        monkeypatch.setattr(pilot.app, "copy_to_clipboard", copied.append)
        await pilot.press("g", "V", "j", "j")
        await shows(pilot, "3 rows selected, y copies, W writes")
        await pilot.press("y")
        await until(pilot, lambda: copied)
        assert copied.pop() == "".join(plain(n).strip() + "\n" for n in (1, 2, 3)).rstrip("\n")
        await until(pilot, lambda: "rows selected" not in screen_text(pilot.app))
        await pilot.press("shift+down")
        await shows(pilot, "2 rows selected")
        await pilot.press("escape")
        view = view_of(pilot)
        y = view.region.y + 1
        await pilot.mouse_down(offset=(50, y + 2))
        await pilot.hover(offset=(60, y + 5))
        await pilot.mouse_up(offset=(60, y + 5))
        await shows(pilot, "4 rows selected")
        await pilot.press("W")
        await shows(pilot, "Write 4 lines of the selection")
        await pilot.press("ctrl+u", *"part.log", "enter")
        await shows(pilot, "wrote 4 lines to")
        assert len(Path("part.log").read_text().splitlines()) == 4
        await pilot.press("escape", "e", "y")
        await until(pilot, lambda: copied)
        assert copied.pop() == TRACE.strip()
        await pilot.press("W")
        await shows(pilot, "Write 36 lines")
        await pilot.press("ctrl+u", *"/no/such/directory/x", "enter")
        await shows(pilot, "No such file or directory; give another path")


async def test_two_ranks_side_by_side_keep_to_one_time_axis(tmp_path):
    path = tmp_path / "x.log"
    lines = []
    for n in range(1, 60):
        lines.append(plain(n, "left", rank=0))
        if n % 3:
            lines.append(plain(n, "right", rank=1))
    path.write_text("".join(lines))
    async with Opened(path, size=(160, 30)) as pilot:
        await pilot.press("g", "|")
        await shows(pilot, "TP0 | TP1", "ranks of this log")
        await pilot.press("enter")
        await until(pilot, lambda: pilot.app.screen.query(LogPair))
        await shows(pilot, " time ", "TP1")
        for row in rows(pilot):
            said = re.findall(r"line (\w+)\. (left|right)", row)
            assert len({word for word, _ in said}) == 1  # the same second on either side
            assert [side for _, side in said] in (["left", "right"], ["left"])
        await pilot.press("j", "j", "right", "y")
        pair = pilot.app.screen.query_one(LogPair)
        assert pair.side == 1
        assert pair.current_row() is None  # TP1 is silent in that second
        await pilot.press("t")
        await shows(pilot, "+0:00:02", "elapsed")
        await pilot.press("slash", *f"line {words(20)}.", "enter")
        await until(pilot, lambda: pair.current is not None and pair.beside.rows[pair.place].time_s == 19)
        await pilot.press("escape", "|")
        await until(pilot, lambda: not pilot.app.screen.query(LogPair))
        await shows(pilot, " Log ")


async def test_two_long_logs_are_read_from_end_to_end_together(tmp_path):
    for name in ("a", "b"):
        text = "".join(plain(n, name * 40) for n in range(1, 12_001))
        (tmp_path / name).write_text(text)
    async with Opened(tmp_path / "a", tmp_path / "b", size=(160, 30)) as pilot:
        await until(pilot, lambda: pilot.app.screen.query(LogPair))
        pair = pilot.app.screen.query_one(LogPair)
        both = f"line {words(12_000)}. a.*line {words(12_000)}. b"
        await until(pilot, lambda: re.search(both, screen_text(pilot.app)))
        assert not any(side.log.file.at_begin for side in pair.sides)
        await pilot.press("g")
        first = f"line {words(1)}. a.*line {words(1)}. b"
        await until(pilot, lambda: re.search(first, screen_text(pilot.app)))
        await pilot.press("G")
        await until(pilot, lambda: re.search(both, screen_text(pilot.app)) and pair.following)
        pair.show_key(10)  # near what is loaded: both go on backwards
        begin = [side.log.file.window.first for side in pair.sides]
        await until(pilot, lambda: all(s.log.file.window.first < b for s, b in zip(pair.sides, begin, strict=True)))
        for row in rows(pilot):
            said = re.findall(r"line (\w+)\. (a|b)", row)
            assert len(said) == 2
            assert said[0][0] == said[1][0]


async def test_the_plot_follows_the_cursor_and_can_be_put_away(tmp_path):
    path = tmp_path / "x.log"
    lines = [decode(second, 60 + second % 20) for second in range(200)]
    lines += [decode(second, 60 + second % 20) for second in range(300, 400)]
    path.write_text("".join(lines))
    async with Opened(path, size=(160, 48)) as pilot:
        await shows(pilot, "tok/s ", "20:00:01 to 20:06:39", "accept length", "mean 2.31, n = 298", "idle 1:4")
        await pilot.press("z", "g", "j", "j")
        await shows(pilot, "┊", "line 3 ·")
        await pilot.press("p")
        await until(pilot, lambda: "tok/s ─" not in screen_text(pilot.app))
    async with Opened(path, size=(100, 30)) as pilot:
        assert "tok/s ─" not in screen_text(pilot.app)  # no rows for it


async def test_a_run_of_the_panel_is_read_once_and_shown_beside_another_one(tmp_path, monkeypatch):
    for name, word in (("first", "left"), ("second", "right")):
        (tmp_path / name).write_text("".join(plain(n, word) for n in range(1, 6000)))
    first = fakes.run(log_path=str(tmp_path / "first"))
    second = replace(fakes.run(log_path=str(tmp_path / "second")), run_id="other-20261006T190000Z-abcdef", started_at="2026-10-06T19:00:00Z")  # fmt: skip
    transport = LocalTransport()
    await transport.connect()
    script = fakes.Script(samples=(fakes.gpus(),), runs=(first, second), files=transport,
                          updates=(read_whole(tmp_path / "first", first),))  # fmt: skip
    streams: list[str] = []
    plain_stream = transport.stream
    monkeypatch.setattr(transport, "stream", lambda script: streams.append(script) or plain_stream(script))
    app = EagleApp("gpu1", open_session=fakes.Hosts(script))
    async with app.run_test(size=(160, 40)) as pilot:
        await shows(pilot, "● READY")
        await pilot.press("2")
        await shows(pilot, f"line {words(5999)}. left", "run 4f9c2a")
        assert streams == []  # its watch reads the log already
        await pilot.press("|")
        await shows(pilot, "run abcdef")
        await pilot.press("up", "enter")
        await shows(pilot, f"line {words(5999)}. left", f"line {words(5999)}. right")
        await pilot.press("|", "1")
        await shows(pilot, "Server ─")
    await transport.close()


async def test_nobody_is_moved_when_a_full_buffer_lets_go(tmp_path):
    path = tmp_path / "x.log"
    path.write_text("".join(plain(n) for n in range(1, 3000)))
    async with Opened(path) as pilot:
        log = pilot.app.board.log
        log.file.capacity = 2500
        await pilot.press("pageup", "pageup")
        top = [row[8:] for row in rows(pilot)][:10]
        for begin in range(3000, 12_000, 1000):
            with path.open("a") as file:
                file.writelines(plain(n) for n in range(begin, begin + 1000))
            await until(pilot, lambda end=begin + 999: log.file.tail.records[-1].text.startswith(f"line {words(end)}."))
            view_of(pilot).update()
        await pilot.pause()
        assert [row[8:] for row in rows(pilot)][:10] == top
        assert len(log.file.tail.records) < 12_000 - 1
        await pilot.press("G")
        await shows(pilot, f"line {words(11_999)}.", "following")
        await asyncio.sleep(0)
