"""The log view: a reader is never moved, hostile text is text, search finds."""

from textual import events

from tests.support import fakes
from tests.support.driving import screen_text, shows, until
from tui.core.model.log import LogRecord
from tui.core.model.phases import Phase
from tui.core.server.server_state import RunUpdate
from tui.panel.app import EagleApp
from tui.panel.widgets.log.view import LogView


def record(number: int, text: str, **changes: object) -> LogRecord:
    values = {"time": "20:34:12", "rank": "TP0", "kind": "plain", "phase": Phase.SERVING, **changes}
    return LogRecord(number, number * 100, text=text, **values)


def with_records(*records: LogRecord) -> fakes.Script:
    return fakes.Script(samples=(fakes.gpus(),), runs=(fakes.run(),), updates=(RunUpdate(fakes.ready(), records),))


def say(pilot, *records: LogRecord) -> None:
    pilot.app.session.update_queue.put_nowait(RunUpdate(fakes.ready(), records))


def words(number: int) -> str:
    # letters, as lines that differ in digits alone are folded
    return "line " + "".join(chr(97 + int(digit)) for digit in str(number)) + "."


def shown_lines(pilot) -> list[str]:
    return [row for row in screen_text(pilot.app).split("\n") if "TP0    line " in row]


async def opened(script: fakes.Script, size=(120, 36)):
    return EagleApp("gpu1", open_session=fakes.Hosts(script)).run_test(size=size)


async def test_a_reader_who_scrolled_up_is_never_moved():
    async with await opened(with_records(*(record(n, words(n)) for n in range(1, 201)))) as pilot:
        await pilot.press("2")
        await shows(pilot, words(200), "following")
        await pilot.press("pageup", "pageup")
        await shows(pilot, "not following")
        view = pilot.app.screen.query_one(LogView)
        top = shown_lines(pilot)[:5]
        say(pilot, *(record(n, words(n)) for n in range(201, 400)))
        await until(pilot, lambda: len(pilot.app.board.log.file.tail.records) >= 399)
        view.update()
        await pilot.pause()
        assert shown_lines(pilot)[:5] == top
        await pilot.press("G")
        await shows(pilot, words(399), "following")


async def test_it_follows_until_told_not_to():
    async with await opened(with_records(record(1, "alpha"))) as pilot:
        await shows(pilot, "alpha")
        say(pilot, *(record(n, words(n)) for n in range(2, 100)))
        await shows(pilot, words(99))
        await pilot.press("f")
        await shows(pilot, "not following")
        say(pilot, record(100, "omega"))
        await until(pilot, lambda: pilot.app.board.log.file.tail.records[-1].text == "omega")
        assert "omega" not in screen_text(pilot.app)
        await pilot.press("f")
        await shows(pilot, "omega")


async def test_hostile_text_is_shown_as_text():
    lines = [
        "POST [/v1/chat] 200 [bold red]x[/]",
        "list[int] [/x]",
        "重み 重み wide",
        "tab\there",
        "e\u0301 combining",
        "👩‍💻 joined",
    ]
    async with await opened(with_records(*(record(n, text) for n, text in enumerate(lines, 1)))) as pilot:
        await shows(
            pilot, "POST [/v1/chat] 200 [bold red]x[/]", "list[int] [/x]", "重み 重み wide", "e\u0301 combining"
        )
        await pilot.press("2")
        await shows(pilot, "POST [/v1/chat] 200 [bold red]x[/]")
        await pilot.press("k", "enter")
        await shows(pilot, "joined", "Esc back")


async def test_hostile_names_of_gpus_and_errors():
    from dataclasses import replace

    from tui.core.errors import EagletuiError

    gpus = tuple(replace(gpu, name="[/x] [b]GPU", health="[red]") for gpu in fakes.gpus())
    script = fakes.Script(samples=(gpus,), runs=(fakes.run(profile="[/evil] \u202e"),))
    async with EagleApp("gpu1", open_session=fakes.Hosts(script)).run_test(size=(120, 36), notifications=True) as pilot:
        await shows(pilot, "[/x] [b]GPU")
        pilot.app.tell(EagletuiError("bad [/x] thing", "mend [b]it"))
        await shows(pilot, "bad [/x] thing", "mend [b]it")


async def test_search_marks_hits_and_walks_them():
    records = [record(n, f"{words(n)} {'needle' if n % 50 == 0 else ''}") for n in range(1, 301)]
    async with await opened(with_records(*records), size=(160, 48)) as pilot:
        await shows(pilot, words(300))
        await pilot.press("slash")
        await until(pilot, lambda: pilot.app.focused is not None and pilot.app.focused.id == "search")
        await pilot.press(*"needle")
        await shows(pilot, "6 hits", "highlight (Tab: filter)")
        await pilot.press("enter")
        await shows(pilot, "6 of 6 hits")
        await pilot.press("N", "N")
        await shows(pilot, "4 of 6 hits")
        await pilot.press("n")
        await shows(pilot, "5 of 6 hits")


async def test_tab_turns_marking_into_filtering_and_back():
    records = [record(n, f"{words(n)} {'needle' if n % 50 == 0 else ''}") for n in range(1, 301)]
    async with await opened(with_records(*records), size=(160, 48)) as pilot:
        await pilot.press("2", "slash", *"needle", "tab")
        await shows(pilot, "filter (Tab: highlight)", "lines hidden by the filter")
        view = pilot.app.screen.query_one(LogView)
        assert len(view.log_rows.sequence) == 6
        say(pilot, record(301, "another needle"), record(302, "hay"))
        await until(pilot, lambda: len(view.log_rows.sequence) == 7)
        await pilot.press("escape", "escape")
        await until(pilot, lambda: len(view.log_rows.sequence) > 300)


async def test_ranks_folds_and_wrapping():
    script = fakes.scene("starting")
    async with await opened(script, size=(160, 48)) as pilot:
        await pilot.press("2")
        await shows(pilot, "TP0–7", "8 ranks", "×214")
        await pilot.press("z")
        await until(pilot, lambda: screen_text(pilot.app).count("Using a slow tokenizer") > 10)
        await pilot.press("z", "R", "R")
        await shows(pilot, "✓TP0", "lines hidden")
        assert "×214" not in screen_text(pilot.app)
        await pilot.press("escape", "w")
        await until(pilot, lambda: "yyyyyyyyyy" in screen_text(pilot.app))


async def test_phases_are_named_in_the_gutter_at_their_first_line_and_on_the_first_row():
    async with await opened(fakes.scene("ready"), size=(120, 36)) as pilot:
        await shows(pilot, "serving", "ready │ ▸")
        rows = screen_text(pilot.app).split("\n")
        first = next(i for i, row in enumerate(rows) if row.startswith(" Log ")) + 1
        assert rows[first][:11].strip() != ""


async def test_brackets_walk_phases_and_e_walks_errors():
    async with await opened(fakes.scene("crashed"), size=(120, 36)) as pilot:
        await pilot.press("2")
        await shows(pilot, "following")
        view = pilot.app.screen.query_one(LogView)
        await pilot.press("e")
        await until(pilot, lambda: view.current is not None and view.current_record().kind == "error")
        await pilot.press("left_square_bracket")
        await until(pilot, lambda: view.current_record().kind in ("phase", "marker"))


async def test_a_crash_opens_the_log_at_its_evidence():
    async with await opened(fakes.scene("crashed"), size=(160, 48)) as pilot:
        await shows(pilot, "Evidence")
        await pilot.press("enter")
        await until(
            pilot, lambda: pilot.app.screen.query(LogView) and pilot.app.screen.query_one(LogView).current is not None
        )
        assert pilot.app.screen.query_one(LogView).current_record().number == 257


def repeated(count: int, begin: int = 1) -> list[LogRecord]:
    """A line that is said again and again, a second apart, between others."""
    return [
        record(begin + n, f"slow tokenizer said {n} times", time=f"20:41:{n:02d}", phase=Phase.SERVING)
        for n in range(count)
    ]


async def test_a_fold_has_its_first_time_and_the_last_at_the_right():
    # What has just come is not folded: other lines come after.
    records = [record(1, "alpha"), *repeated(15, begin=2), *(record(n, words(n)) for n in range(17, 34))]
    async with await opened(with_records(*records), size=(160, 48)) as pilot:
        await shows(pilot, "×15", "last 20:41:14")
        row = next(row for row in screen_text(pilot.app).split("\n") if "×15" in row)
        assert "20:41:00 TP0" in row
        assert "said 14 times" in row  # the dashboard tells what goes on
        await pilot.press("2")
        await shows(pilot, "×15", "last 20:41:14")
        row = next(row for row in screen_text(pilot.app).split("\n") if "×15" in row)
        assert row.split()[0] == "2"
        assert "said 0 times" in row  # the logs screen quotes the line of that number


async def test_gutter_header_and_the_whole_line_agree_about_numbers():
    # What has just come is not folded: other lines come after.
    records = [record(1, "alpha"), *repeated(15, begin=2), *(record(n, words(n)) for n in range(17, 34))]
    async with await opened(with_records(*records), size=(120, 36)) as pilot:
        await pilot.press("2")
        await shows(pilot, "×15", "following")
        await pilot.press("g", "j", "j")
        await shows(pilot, "line 2 ·")
        await pilot.press("enter")  # opens the fold
        await shows(pilot, "said 0 times", "said 14 times")
        await pilot.press("j", "enter")
        await shows(pilot, "line 3", "said 1 times", "Esc back")


async def test_the_cursor_is_there_whenever_it_does_not_follow():
    async with await opened(with_records(*(record(n, words(n)) for n in range(1, 201)))) as pilot:
        await shows(pilot, words(200), "following")
        assert "▌" not in screen_text(pilot.app)
        await pilot.press("f")  # on the dashboard, where the log has no focus
        await shows(pilot, "not following", "▌")
        await pilot.press("f")
        await until(pilot, lambda: "▌" not in screen_text(pilot.app))
        await pilot.press("2", "pageup")
        await shows(pilot, "not following", "▌")
        await pilot.press("pageup")
        await shows(pilot, "▌")


async def test_folding_keeps_the_cursor_on_its_record():
    records = [record(1, "alpha"), *repeated(15, begin=2), record(17, "between"), *repeated(5, begin=18)]
    records += [record(n, words(n)) for n in range(23, 40)]
    async with await opened(with_records(*records), size=(120, 36)) as pilot:
        await pilot.press("2", "g", "j", "j")
        await shows(pilot, "line 2 ·")
        view = pilot.app.screen.query_one(LogView)
        await pilot.press("z")
        await until(pilot, lambda: not view.log_rows.folds.repeats and view.current_record().number == 2)
        await pilot.press("j", "j", "j")
        await shows(pilot, "line 5 ·")
        await pilot.press("z")
        await until(pilot, lambda: view.log_rows.folds.repeats and view.current_record().number == 2)
        await pilot.press("z")
        await shows(pilot, "line 5 ·")
        await pilot.press(*":22", "enter")
        await shows(pilot, "line 22 ·")
        await pilot.press("z")  # its fold began before the line between
        await until(pilot, lambda: view.log_rows.folds.repeats and view.current_record().number == 2)


async def test_tab_is_told_in_the_search_field_and_escape_leaves_it():
    async with await opened(fakes.scene("ready"), size=(80, 24)) as pilot:
        await pilot.press("2", "slash")
        await shows(pilot, "Tab filter", "Esc back")
        await pilot.press("tab")
        await shows(pilot, "Tab highlight")
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(pilot.app.focused, LogView))
        await shows(pilot, "search")
        await pilot.press("tab")  # from the log into the field, and out again
        await until(pilot, lambda: pilot.app.focused is not None and pilot.app.focused.id == "search")
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(pilot.app.focused, LogView))


async def test_a_rank_filter_is_told_where_the_list_of_ranks_has_no_room():
    async with await opened(fakes.scene("starting"), size=(80, 24)) as pilot:
        await pilot.press("2", "R", "R")
        await shows(pilot, "TP0 only", "lines hidden")


async def test_warnings_are_the_rows_that_are_marked():
    async with await opened(fakes.scene("starting"), size=(160, 48)) as pilot:
        await shows(pilot, "▲ 20:01:16")
        marked = sum(1 for record in pilot.app.board.log.file.tail.records if record.kind == "warning")
        await pilot.press("2")
        await shows(pilot, f"▲ {marked} warnings · ✗ 0 errors")


async def test_what_is_typed_in_one_burst_with_the_slash_is_searched_for():
    async with await opened(fakes.scene("starting"), size=(160, 48)) as pilot:
        await pilot.press("2")
        await until(pilot, lambda: isinstance(pilot.app.focused, LogView))
        for key in ("slash", *"load"):  # all are there before the first is looked at
            pilot.app.post_message(events.Key(key, "/" if key == "slash" else key))
        await until(pilot, lambda: pilot.app.screen.query_one("#search").value == "load")
        pilot.app.post_message(events.Key("slash", "/"))
        await until(pilot, lambda: pilot.app.screen.query_one("#search").value == "load/")
