"""The journal in the panel: its lists and entries, notes from any screen, all runs, what the launch preview says."""

import threading
from pathlib import Path

import pytest

from tests.support import fakes, kept_campaign
from tests.support.driving import screen_text, shows, until
from tui.core.errors import EagletuiError
from tui.core.journal import entries, reading, writing
from tui.core.journal.model import Kind
from tui.core.server.finding import Finding, Level
from tui.panel import journal_control
from tui.panel.app import EagleApp
from tui.panel.run_filter import complete
from tui.panel.screens.journal import Journal
from tui.panel.screens.runs import Runs
from tui.panel.widgets.row_list import RowList
from tui.panel.widgets.run_charts import _axis

WIDE, NARROW = (160, 48), (80, 24)
KEYS = ("host", "profile", "outcome", "cause", "since", "flag", "level")


@pytest.fixture
def campaign() -> None:
    kept_campaign.write(kept_campaign.campaign())


def panel(scene: str | fakes.Script = "idle", *hosts: str, profiles: Path | None = None) -> EagleApp:
    """A panel that remembers what it said (`says`): toasts are gone after seconds."""
    script = fakes.scene(scene) if isinstance(scene, str) else scene
    app = EagleApp(*(hosts or ("gpu1",)), open_session=fakes.Hosts(script), profiles_dir=profiles)
    app.said = []
    app.notify = lambda message, **_: app.said.append(message)
    return app


async def says(pilot, text: str) -> None:
    await until(pilot, lambda: any(text in one for one in pilot.app.said))


def kept(kind: Kind) -> list:
    return [entry for entry in entries.load().entries if entry.kind == kind]


async def write(pilot, text: str) -> None:
    """Types into the dialog that is open, and saves."""
    from tui.panel.screens.journal_dialogs import Write

    await until(pilot, lambda: isinstance(pilot.app.screen, Write))
    pilot.app.screen.query_one("Input").value = text
    await pilot.press("enter")


# -- the journal -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [WIDE, (120, 36), NARROW])
async def test_an_empty_journal_says_what_fills_it(size):
    async with panel().run_test(size=size) as pilot:
        await pilot.press("5")
        await shows(pilot, "nothing recorded yet", "The journal writes itself.", "write a hypothesis")
        if size == WIDE:
            await shows(pilot, "How an entry looks", "example, not your data", "A way to begin", "/journal: Markdown")


async def test_an_empty_journal_names_those_of_other_hosts(campaign):
    async with panel("idle", "gpu9").run_test(size=WIDE) as pilot:
        await pilot.press("5")
        await shows(pilot, "nothing recorded yet", "other journals: gpu2 (1 run), gpu1 (11 runs)")


async def test_a_wide_screen_shows_all_of_it(campaign):
    async with panel().run_test(size=WIDE) as pilot:
        await pilot.press("5")
        await shows(
            pilot, "6 hypotheses · 4 settled · 7 dead ends · 1 parked", "best so far 89.5 tok/s", "≠ REFUTED", "0.81×  L2",
            "□ fp8 KV cache", "1 of 4 done", "unsupported_arch", "20 Nov, line 1,412", "Settled", "B is 9.1 % faster than A",
            "kept as Markdown and JSON lines in",
        )  # fmt: skip
        await pilot.press("j")
        await shows(
            pilot, "asked 27 Nov by eagletui · settled 27 Nov", "B is 19.4 % slower than A (95 % CI 17.7 … 21.1",
            "A kimi-k2.5-baseline-bs128 89.5 → B kimi-k2.5-eagle3-mem088 72.1", "What was run", "7a30fe",
            "8 × NVIDIA RTX PRO 6000", "our prompts are German support mails",
        )  # fmt: skip


async def test_a_narrow_screen_opens_the_entry_and_goes_back(campaign):
    async with panel().run_test(size=NARROW) as pilot:
        await pilot.press("5")
        await shows(pilot, "≠ REFUTED", "Open ideas", "Dead ends")
        assert "What was run" not in screen_text(pilot.app)
        await pilot.press("j", "enter")
        await shows(pilot, "B is 19.4 % slower than A", "What was run")
        assert "Open ideas" not in screen_text(pilot.app)
        await pilot.press("escape")
        await shows(pilot, "Open ideas")
        await pilot.press("enter", "enter")  # the entry, then its runs
        await shows(pilot, "All runs", "Esc shows all")
        await pilot.press("escape")
        await shows(pilot, "12 of 12 runs")
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(pilot.app.screen, Journal))


async def test_the_cursor_goes_through_all_lists_and_over_no_title(campaign):
    async with panel().run_test(size=WIDE) as pilot:
        await pilot.press("5")
        await shows(pilot, "a tree (top-k 4)", "driver update tonight")
        await pilot.press("G")
        await shows(pilot, "about        run 61f0aa")
        await pilot.press("g")
        await shows(pilot, "nothing was measured for it yet")
        await pilot.press("pagedown", "pageup", "tab", "tab", "j")  # over the entry to what is below
        await shows(pilot, "∅ DEAD END", "evidence     line 2,377")
        await pilot.press("enter")
        await shows(pilot, "1 of 12 runs", "Esc shows all", "✗ CRASHED", "mem-fraction-static = 0.88")


async def test_ideas_are_written_ticked_off_and_opened_again(campaign):
    async with panel().run_test(size=WIDE) as pilot:
        await pilot.press("5")
        await shows(pilot, "1 of 4 done")
        await pilot.press("space")
        await says(pilot, "space ticks off an idea")
        await pilot.press("i")
        await shows(pilot, "≡ IDEA", "What could be tried?")
        await write(pilot, "NUMA nodes by hand")
        await shows(pilot, "□ NUMA nodes by hand", "1 of 5 done")
        await pilot.press(*"jjjjjj", "space")
        await shows(pilot, "2 of 5 done", "✓ NUMA nodes by hand")
        assert [(entry.state, entry.about) for entry in kept(Kind.TICK)][-1][0] == "done"
        await pilot.press("space")
        await shows(pilot, "1 of 5 done")
        assert kept(Kind.IDEA)[-1].about == ("host:gpu1",)


async def test_a_hypothesis_is_written_and_an_idea_becomes_one(campaign):
    async with panel().run_test(size=WIDE) as pilot:
        await pilot.press("5")
        await shows(pilot, "1 of 4 done")
        await pilot.press("H")
        await shows(pilot, "≡ HYPOTHESIS", "What is to be shown?")
        await pilot.press("escape")
        assert len(kept(Kind.HYPOTHESIS)) == 3
        await pilot.press(*"jjjjjj", "H")
        await until(pilot, lambda: pilot.app.screen.query("Input") and pilot.app.screen.query_one("Input").value)
        await pilot.press("enter")
        await shows(pilot, "7 hypotheses", "○ OPEN      report the A2A assertion upstream")
        assert kept(Kind.HYPOTHESIS)[-1].about == ("host:gpu1",)


async def test_search_leaves_what_has_all_words(campaign):
    async with panel().run_test(size=WIDE) as pilot:
        await pilot.press("5")
        await shows(pilot, "□ fp8 KV cache")
        await pilot.press("slash", *"kernel")
        await until(pilot, lambda: "fp8" not in screen_text(pilot.app))
        await shows(pilot, "none fits", "no kernel for SM120")
        await pilot.press("escape")
        await shows(pilot, "□ fp8 KV cache", "≠ REFUTED")


async def test_export_writes_markdown_and_y_copies_the_entry(campaign):
    async with panel().run_test(size=WIDE) as pilot:
        await pilot.press("5")
        await shows(pilot, "≠ REFUTED")
        await pilot.press("x")
        await says(pilot, "Exported to")
        (path,) = (entries.directory().parent / "exports").glob("journal-gpu1-*.md")
        assert "### ≠ refuted (L2): EAGLE-3 with 3 steps beats the baseline" in path.read_text(encoding="utf-8")
        await pilot.press("j", "y")
        await says(pilot, "Copied the entry")
        assert "19.4 % slower" in pilot.app.clipboard


async def test_what_somebody_else_writes_shows_up_without_a_restart(campaign):
    async with panel().run_test(size=WIDE) as pilot:
        await pilot.press("5")
        await shows(pilot, "≠ REFUTED")
        await pilot.press(*"jjj")
        written = threading.Thread(target=lambda: writing.note("seen by an agent", ["hypothesis-2"], author="agent7"))
        written.start()
        written.join()
        pilot.app.screen._look()  # as its timer does
        await shows(pilot, "agent7", "seen by an agent")
        chosen = next(line for line in screen_text(pilot.app).splitlines() if line.startswith("▌"))
        assert "EAGLE-3 with 5 steps" in chosen  # the cursor stays


async def test_a_look_reads_nothing_where_nobody_wrote(campaign, monkeypatch):
    async with panel().run_test(size=WIDE) as pilot:
        await pilot.press("5")
        await shows(pilot, "≠ REFUTED")
        before = pilot.app.board.journal
        stamps = []
        stamp = journal_control._stamp
        monkeypatch.setattr(journal_control, "_stamp", lambda: stamps.append(stamp()) or stamps[-1])
        pilot.app.screen._look()
        await until(pilot, lambda: stamps)
        assert pilot.app.board.journal is before


async def test_hostile_text_is_only_text():
    evil = "\x1b]0;owned\x07[bold red]x[/] \u202eabc\x1b[2J" + "a" * 3000
    found = list(
        kept_campaign.launch("bad001", 1, "p\x1b[31mq", outcome="crashed", cause="nccl", title=evil, evidence=evil)
    )
    kept_campaign.write(found)
    writing.note(evil, ["host:gpu1"], author="\x1b[5mme")
    writing.hypothesis(evil, ["host:gpu1"])
    writing.idea(evil, ["host:gpu1"])
    for size in (WIDE, NARROW):
        async with panel().run_test(size=size) as pilot:
            await pilot.press("5")
            await shows(pilot, "1 hypothesis", "[bold red]x[/]")
            await pilot.press("R")
            await shows(pilot, "1 of 1 run", "bad001")
            await pilot.press("enter")
            await shows(pilot, "CRASHED")
            assert "\x1b" not in screen_text(pilot.app)


async def test_an_unreadable_line_is_said(campaign):
    with entries.path().open("a", encoding="utf-8") as file:
        file.write("{broken\n")
    async with panel().run_test(size=WIDE) as pilot:
        await pilot.press("5")
        await shows(pilot, "≠ REFUTED", "1 line left out")


# -- notes -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "words", "about"),
    [
        ("1", "run 4f9c2a, kimi-k2.5-eagle3-mem088 on gpu1", f"run:{fakes.RUN_ID}"),
        ("2", "run 4f9c2a", f"run:{fakes.RUN_ID}"),
        ("4", "run 4f9c2a", f"run:{fakes.RUN_ID}"),  # nothing was measured
        ("5", "hypothesis: a tree (top-k 4) accepts enough", "hypothesis-3"),
        ("5R", "run c07b1e, qwen3-235b-tp8 on gpu2", "run:qwen3-235b-tp8-20261126T140000Z-c07b1e"),
    ],
)
async def test_a_note_is_about_what_is_shown(campaign, keys, words, about):
    async with panel("ready").run_test(size=WIDE) as pilot:
        await until(pilot, lambda: pilot.app.board.run is not None)
        for key in keys:
            await pilot.press(key)
        if keys.startswith("5"):
            await shows(pilot, "a tree (top-k 4)" if keys == "5" else "c07b1e")
        await pilot.press("n")
        await shows(pilot, "≡ NOTE", "attached to", words)
        await write(pilot, "worth knowing")
        await says(pilot, "Noted on")
        note = kept(Kind.NOTE)[-1]
        assert (note.text, note.about) == ("worth knowing", (about,))


async def test_a_note_on_a_profile_and_on_a_host_of_several(tmp_path):
    profiles = fakes.profiles_in(tmp_path / "own")
    async with panel("idle", "gpu1", "gpu2", profiles=profiles).run_test(size=WIDE) as pilot:
        await shows(pilot, "in the order given")
        await pilot.press("j", "n")
        await shows(pilot, "attached to   host gpu2")
        await write(pilot, "slow disk")
        await says(pilot, "Noted on host gpu2")
        await pilot.press("3")
        await shows(pilot, "Profiles")
        entry = pilot.app.screen.chosen_entry()
        await pilot.press("n")
        await shows(pilot, f"attached to   profile {entry.name}")
        await write(pilot, "the one to beat")
        await says(pilot, "Noted on profile")
        assert [note.about for note in kept(Kind.NOTE)] == [("host:gpu2",), (f"profile:{entry.name}",)]


async def test_n_is_the_next_hit_while_a_search_is_on():
    async with panel("ready").run_test(size=WIDE) as pilot:
        await until(pilot, lambda: pilot.app.board.run is not None)
        await pilot.press("2")
        await shows(pilot, "Decode batch")
        await pilot.press("slash", *"Init", "enter", "n")
        await pilot.pause()
        assert "NOTE" not in screen_text(pilot.app)
        await pilot.press("escape", "n")
        await shows(pilot, "≡ NOTE", "attached to")


async def test_a_note_that_cannot_be_written_is_asked_for_again(monkeypatch):
    def refuse(*_: object) -> None:
        raise EagletuiError("the journal is busy", "try again")

    monkeypatch.setattr(writing, "note", refuse)
    async with panel().run_test(size=WIDE) as pilot:
        await pilot.press("n")
        await write(pilot, "hard to type")
        await says(pilot, "the journal is busy")
        await shows(pilot, "hard to type", "≡ NOTE")


async def test_a_blank_note_writes_nothing():
    async with panel().run_test(size=WIDE) as pilot:
        await pilot.press("n")
        await write(pilot, "   ")
        await pilot.pause()
        assert not kept(Kind.NOTE)


# -- all runs ----------------------------------------------------------------------------------------------------------


async def test_all_runs_with_preview_causes_and_start_up_times(campaign):
    async with panel().run_test(size=WIDE) as pilot:
        await pilot.press("5")
        await shows(pilot, "all 11 runs")
        await pilot.press("R")
        await shows(
            pilot, "12 on 2 hosts since 20 Nov · 6 reached ready · 6 crashed", "mem-fraction-static=0.92", "12 of 12 runs",
            "■ STOPPED  by user1@desk", "Causes", "6 crashes", "Start-up time", "n = 3",
        )  # fmt: skip
        await pilot.press("j")
        await shows(
            pilot, "Run b81e07", "✗ CRASHED    The KV pool has no room", "line 1,871", "memory pool · TP0 · after 9:21"
        )
        await pilot.press("enter")
        await until(pilot, lambda: not isinstance(pilot.app.screen, Runs))
        await shows(pilot, "advice", "Raise mem-fraction-static to 0.88.", "Esc back")
        await pilot.press("escape", "R")
        await until(pilot, lambda: isinstance(pilot.app.screen, Journal))


async def test_the_filter_of_runs_completes_marks_and_says_what_is_wrong(campaign):
    async with panel().run_test(size=WIDE) as pilot:
        await pilot.press("5", "R")
        await shows(pilot, "12 of 12 runs")
        await pilot.press("slash", *"eagle3 out", "tab", *"cr", "tab")
        await shows(pilot, "eagle3 outcome:crashed", "6 of 12 runs")
        await pilot.press(*"cause:oom_", "tab")
        await shows(pilot, "Tab: oom_cuda_graph oom_kv_pool")
        await pilot.press(*"c", "tab")
        await shows(pilot, "1 of 12 runs", "5e10f3")
        await pilot.press(*"wrong:1")
        await shows(pilot, "▲ wrong: is no key of a filter")
        await pilot.press("enter", "escape")
        await shows(pilot, "12 of 12 runs")


async def test_two_runs_are_compared_by_their_flags(campaign):
    async with panel().run_test(size=WIDE) as pilot:
        await pilot.press("5", "R")
        await shows(pilot, "5e10f3")
        await pilot.press("j", "j", "c", "c", "c")  # kept, dropped, kept
        await shows(pilot, "compare with 5e10f3")
        await pilot.press("j", "c")
        await shows(pilot, "5e10f3 and 4f9c2b", "Flags that differ", "mem-fraction-static", "0.92", "oom_cuda_graph")


async def test_a_log_opens_as_long_as_the_host_has_it():
    profile, digits = fakes.RUN_ID.split("-2026")[0], fakes.RUN_ID[-6:]
    found = list(kept_campaign.launch(digits, 1, profile, ready_s=600))
    known = {"profile": profile}
    async with panel("ready").run_test(size=WIDE) as pilot:
        await until(pilot, lambda: pilot.app.board.run is not None)
        from dataclasses import replace

        first = replace(found[0], launched=replace(found[0].launched, run_id=fakes.RUN_ID))
        kept_campaign.write(
            [first, *kept_campaign.launch("gone01", 2, **known), *kept_campaign.launch("far001", 3, host="gpu7")]
        )
        await pilot.press("5", "R")
        await shows(pilot, "3 of 3 runs")
        await pilot.press("j", "2")
        await says(pilot, "No log: gpu1 no longer has this run; Enter shows what is kept of it")
        await pilot.press("j", "2")
        await says(pilot, "gpu7 is not open here: h opens it")
        await pilot.press("l")
        await until(pilot, lambda: sum("gpu7 is not open" in text for text in pilot.app.said) > 1)
        await pilot.press("g", "2")
        await shows(pilot, "2 Logs", "Decode batch")


async def test_a_run_is_launched_again_with_its_flags_and_its_command_copied(tmp_path):
    profiles = fakes.profiles_in(tmp_path / "own")
    kept_campaign.write(kept_campaign.launch("aa1111", 1, "base", sets={"mem-fraction-static": 0.9}))
    async with panel(profiles=profiles).run_test(size=WIDE) as pilot:
        await shows(pilot, "No server runs here.")
        await pilot.press("5", "R")
        await shows(pilot, "aa1111")
        await pilot.press("y")
        await says(pilot, "Copied the command that launches the same")
        assert pilot.app.clipboard == "eagletui launch base --host gpu1 --set mem-fraction-static=0.9"
        await pilot.press("l")
        await shows(pilot, "LAUNCH   base", "--mem-fraction-static 0.9")


async def test_thousands_of_runs_are_made_row_by_row():
    made = []
    many = [entry for number in range(400) for entry in kept_campaign.launch(f"{number:06x}", number / 10, tok_s=70.0)]
    kept_campaign.write(many)
    async with panel().run_test(size=NARROW) as pilot:
        await pilot.press("5", "R")
        await shows(pilot, "400 of 400 runs")
        listing = pilot.app.screen.query_one(RowList)
        row = listing._row
        listing._row = lambda place: made.append(place) or row(place)
        await pilot.press("G")
        await shows(pilot, "00018f")
        assert len(set(made)) < 3 * listing.size.height
        await pilot.press("g")
        await until(pilot, lambda: listing.at == 0)


# -- the launch preview ------------------------------------------------------------------------------------------------


async def test_the_launch_preview_says_what_the_journal_knows(tmp_path):
    from dataclasses import replace

    from tui.core.profiles.load import load_launch
    from tui.core.server.launch import record_of
    from tui.core.server.launch_records import Card
    from tui.core.server.launch_records import write as write_record

    profiles = fakes.profiles_in(tmp_path / "own")
    record = record_of(load_launch("base", [profiles]), "base-20261103T100000Z-abc123", "gpu1", {})
    card = Card("no kernel for SM120", "TP0", 1412, ("CUDA error: no kernel image",), ("use another backend",))
    write_record(
        replace(record, launched_at="2026-11-03T10:00:00Z", outcome="crashed", cause="unsupported_arch", card=card)
    )
    writing.sync()
    script = fakes.scene("idle")
    script.findings = (Finding("port", Level.OK, "30000 is free"), Finding("history", Level.OK, "last ready: long ago"))
    async with panel(script, profiles=profiles).run_test(size=WIDE) as pilot:
        await shows(pilot, "No server runs here.")
        await pilot.press("l", "enter")
        await shows(pilot, "What the journal knows", "✗ tried 3 Nov: crashed, no kernel for SM120   J opens it", "1 OK")
        assert "last ready" not in screen_text(pilot.app)  # one place for what is known
        await pilot.press("J")
        await shows(pilot, "CUDA error: no kernel image", "use another backend")
        await pilot.press("escape")
        await shows(pilot, "What the journal knows", "Enter  launch")


async def test_an_ending_is_written_down_at_once(monkeypatch):
    calls = []
    monkeypatch.setattr(writing, "sync", lambda: calls.append(reading) or 0)
    async with panel("ready").run_test(size=WIDE) as pilot:
        await until(pilot, lambda: pilot.app.board.caught_up)
        assert not calls  # what had happened before is no news, and nobody looked
        session = pilot.app.session
        from tui.core.server.server_state import RunUpdate

        session.update_queue.put_nowait(RunUpdate(fakes.crashed(), settled=True))
        session.update_queue.put_nowait(None)
        await until(pilot, lambda: calls)


# -- its parts ---------------------------------------------------------------------------------------------------------


def test_completion_goes_as_far_as_it_is_clear():
    runs = [row for row in reading.journal_of(kept_campaign.campaign()).runs]
    assert complete("", KEYS, runs) == ("", tuple(f"{key}:" for key in KEYS))
    assert complete("eagle3 ho", KEYS, runs) == ("eagle3 host:", ("host:",))
    assert complete("host:", KEYS, runs) == ("host:gpu", ("gpu1", "gpu2"))
    assert complete("host:gpu1,", KEYS, runs) == ("host:gpu1,gpu2 ", ("gpu2",))
    assert complete("flag:mem", KEYS, runs) == ("flag:mem-fraction-static ", ("mem-fraction-static",))
    assert complete("since:t", KEYS, runs) == ("since:today ", ("today",))
    assert complete("nothing", KEYS, runs) == ("nothing", ())
    assert complete("host:x", KEYS, runs) == ("host:x", ())


@pytest.mark.parametrize(
    ("low", "high", "most"), [(662.0, 671.0, 5), (5.0, 5.0, 3), (0.0, 90000.0, 4), (10.0, 20.0, 1)]
)
def test_an_axis_holds_what_is_drawn_on_it(low, high, most):
    first, last, step = _axis(low, high, most)
    assert first <= low
    assert last >= high
    assert last > first
    assert (last - first) // step <= most + 1
