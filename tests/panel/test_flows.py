"""What keys do, from the key to what the session is asked for."""

import asyncio
import contextlib
import errno
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support import fakes
from tests.support.driving import screen_text, shows, until
from tui.core.bench.collect import Asked
from tui.core.errors import HostError
from tui.core.hints import Action, Hint
from tui.core.link.transport import HostKeyChanged, HostKeyQuestion, LinkState, Prompt
from tui.core.model.profile import BenchProfile
from tui.core.model.result import MeasuredServer
from tui.core.server import launch_records
from tui.core.server.finding import Finding, Level
from tui.panel.app import EagleApp
from tui.panel.screens.dashboard import Dashboard
from tui.panel.screens.dialog import Confirm


@pytest.fixture
def profiles(tmp_path: Path) -> Path:
    return fakes.profiles_in(tmp_path / "own")


def panel(script: fakes.Script, profiles: Path | None = None, host: str = "gpu1") -> EagleApp:
    return EagleApp(host, open_session=fakes.Hosts(script), profiles_dir=profiles)


def session_of(pilot) -> fakes.FakeSession:
    return pilot.app.session


async def test_launch_by_keyboard_shows_command_and_findings_first(profiles):
    async with panel(fakes.scene("idle"), profiles).run_test(size=(120, 36)) as pilot:
        await shows(pilot, "No server runs here.")
        await pilot.press("l")
        await shows(pilot, "Which profile?", "base", "eagle")
        assert not session_of(pilot).launched
        await pilot.press("enter")
        await shows(pilot, "--model-path", "all 8 are free", "2 OK", "no history yet", "Enter  launch")
        assert not session_of(pilot).launched
        await pilot.press("enter")
        await until(pilot, lambda: session_of(pilot).launched)
        plan, replaced = session_of(pilot).launched[0]
        assert plan.profile.name == "base"
        assert not replaced
        await until(pilot, lambda: pilot.app.board.run and pilot.app.board.run.profile == "base")


@pytest.mark.parametrize("size", [(160, 48), (120, 36), (80, 24)])
async def test_the_keys_of_a_preview_are_never_pushed_off_the_screen(profiles, size):
    script = fakes.scene("idle")
    script.findings = tuple(Finding(f"check{n}", Level.OK, f"finding {n}") for n in range(60))
    async with panel(script, profiles).run_test(size=size) as pilot:
        await shows(pilot, "No server runs here.")
        await pilot.press("l", "enter")
        await shows(pilot, "LAUNCH   base", "Command", "60 OK" if size[1] > 30 else "Command", "Enter  launch")


async def test_a_finding_that_blocks_is_not_launched_over(profiles):
    script = fakes.scene("idle")
    script.findings = (Finding("model", Level.BLOCK, "/data/models/Kimi-K2.5 is not there"),)
    async with panel(script, profiles).run_test(size=(120, 36)) as pilot:
        await shows(pilot, "No server runs here.")
        await pilot.press("l", "enter")
        await shows(pilot, "1 blocking", "is not there")
        assert "Enter  launch" not in screen_text(pilot.app)
        await pilot.press("enter")
        await pilot.pause()
        assert not session_of(pilot).launched


async def test_override_line_previews_the_exact_command(profiles):
    async with panel(fakes.scene("idle"), profiles).run_test(size=(120, 40)) as pilot:
        await shows(pilot, "No server runs here.")
        await pilot.press("l", "o")
        await shows(pilot, "Enter done")
        await pilot.press(*"mem-fraction-static=0.9 tp=4")  # in a text field all keys type: l, S, q, digits
        await shows(pilot, "mem-fraction-static          0.84 → 0.9", "--tp 4")
        await pilot.press("enter")
        await shows(pilot, "Enter  launch")
        await pilot.press("enter")
        await until(pilot, lambda: session_of(pilot).launched)
        assert session_of(pilot).launched[0][0].profile.args["mem-fraction-static"] == 0.9


async def test_a_wrong_override_is_one_clear_line(profiles):
    async with panel(fakes.scene("idle"), profiles).run_test(size=(120, 40)) as pilot:
        await shows(pilot, "No server runs here.")
        await pilot.press("l", "o", *"mem-fraction-statc=0.9")
        await shows(pilot, "✗", "did you mean mem-fraction-static")
        await pilot.press(*" 'open")
        await shows(pilot, "the override line")


@pytest.mark.parametrize("size", [(120, 40), (80, 24)])
async def test_replace_names_what_it_stops_and_stops_it_first(profiles, size):
    script = fakes.scene("ready")
    script.replaced = (fakes.run(gpus=tuple(range(8))),)
    script.findings = (
        Finding("gpus", Level.BLOCK, "all 8 are held by run 4f9c2a", fakes.RUN_ID),
        Finding("port", Level.OK, "free"),
    )
    async with panel(script, profiles).run_test(size=size) as pilot:
        await shows(pilot, "● READY")
        await pilot.press("l", "g", "enter")
        await shows(pilot, "r  stop 4f9c2a first, then launch")
        await pilot.press("r")
        await shows(
            pilot, "will first stop: kimi-k2.5-eagle3-mem088", "PID 48213", "GPUs 0–7", "Enter  stop, then launch"
        )
        rows = screen_text(pilot.app).split("\n")
        title = next(i for i, row in enumerate(rows) if "◌ REPLACE" in row)
        assert any("will first stop" in row for row in rows[title + 1 : title + 3])  # over all that scrolls
        await pilot.press("enter")
        await until(pilot, lambda: session_of(pilot).launched)
        assert [run.short_id for run in session_of(pilot).stopped] == ["4f9c2a"]
        assert session_of(pilot).launched[0][1] is True


@pytest.mark.parametrize("size", [(120, 40), (80, 24)])
@pytest.mark.parametrize("start", [("l", "g", "enter"), ("r",)])
async def test_a_server_is_not_replaced_for_a_launch_that_something_else_blocks(profiles, size, start):
    script = fakes.scene("ready")
    ours = fakes.run(profile="base", gpus=tuple(range(8)))
    script.runs = script.replaced = (ours,)
    script.updates = (replace(script.updates[0], state=replace(script.updates[0].state, run=ours)),)
    script.findings = (
        Finding("gpus", Level.BLOCK, "all 8 are held by run 4f9c2a", fakes.RUN_ID),
        Finding("draft", Level.BLOCK, "/data/models/Kimi-K2.5-Eagle3 is not there"),
    )
    async with panel(script, profiles).run_test(size=size) as pilot:
        await shows(pilot, "● READY")
        await pilot.press(*start)
        await shows(pilot, "✗ blocked: draft: /data/models/Kimi-K2.5-Eagle3 is not there", "Esc back")
        if start == ("r",):
            await shows(pilot, "4f9c2a is not stopped")
        assert " r  stop" not in screen_text(pilot.app)
        await pilot.press("r", "enter")
        await pilot.pause()
        assert "stop, then launch" not in screen_text(pilot.app)
        assert not session_of(pilot).stopped
        assert not session_of(pilot).launched


async def test_what_blocks_meanwhile_keeps_the_server(profiles):
    script = fakes.scene("ready")
    script.replaced = (fakes.run(gpus=tuple(range(8))),)
    script.findings = (Finding("gpus", Level.BLOCK, "all 8 are held by run 4f9c2a", fakes.RUN_ID),)
    async with panel(script, profiles).run_test(size=(120, 40), notifications=True) as pilot:
        await shows(pilot, "● READY")
        await pilot.press("l", "g", "enter")
        await shows(pilot, "r  stop 4f9c2a first")
        await pilot.press("r")
        await shows(pilot, "Enter  stop, then launch")
        script.findings = (
            *script.findings,
            Finding("port", Level.BLOCK, "30000 is in use by PID 7", hint=Hint(Action.SET, "port=N")),
        )
        await pilot.press("enter")
        await until(pilot, lambda: any("o port=N chooses another" in note.message for note in pilot.app._notifications))
        assert not session_of(pilot).stopped
        assert not session_of(pilot).launched


async def test_on_a_small_screen_what_speaks_against_it_comes_before_the_command(profiles):
    script = fakes.scene("idle")
    script.findings = (
        Finding("model", Level.BLOCK, "/data/models/Kimi-K2.5 is not there"),
        Finding("disk", Level.WARN, "only 3 GB free for logs"),
        *(Finding(f"check{n}", Level.OK, f"finding {n}") for n in range(30)),
    )
    async with panel(script, profiles).run_test(size=(80, 24)) as pilot:
        await shows(pilot, "No server runs here.")
        await pilot.press("l", "enter")
        await shows(pilot, "only 3 GB free", "✗ blocked: model: /data/models/Kimi-K2.5 is not there", "Esc back")
        await pilot.resize_terminal(80, 80)
        await shows(pilot, "finding 29", "Command")
        text = screen_text(pilot.app)
        assert text.index("Command ─") < text.index("Pre-flight ─")  # where all fits, nothing is moved


async def test_stop_asks_and_the_safe_answer_has_the_focus():
    script = fakes.scene("ready")
    async with panel(script).run_test(size=(120, 36)) as pilot:
        await shows(pilot, "● READY")
        await pilot.press("S")
        await shows(
            pilot, "Stop this server on gpu1?", "48213", "GPUs", "4f9c2a", "No, let it run", "Enter no (chosen)"
        )
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(pilot.app.screen, Dashboard))
        assert not session_of(pilot).stopped
        await pilot.press("S")
        await until(pilot, lambda: isinstance(pilot.app.screen, Confirm))
        await pilot.press("tab")
        await shows(pilot, "Enter yes (chosen)")
        await pilot.press("enter")
        await until(pilot, lambda: [run.short_id for run in session_of(pilot).stopped] == ["4f9c2a"])
        await shows(pilot, "stopped, the GPU memory is back")


async def test_a_stop_says_which_measurement_ends_with_the_server():
    script = fakes.scene("ready")
    asked = Asked(BenchProfile("decode", ()), MeasuredServer("gpu1", run_id=fakes.RUN_ID), "generate", 1, "prompts")
    bench = fakes.run(run_id="decode-20261006T203000Z-be0001", kind="bench", profile="decode", extra=asked.to_extra())
    script.runs = (*script.runs, bench)
    async with panel(script).run_test(size=(120, 36)) as pilot:
        await shows(pilot, "● READY")
        await pilot.press("S")
        await shows(pilot, "decode, run be0001, is measuring it now and would end with it.", "Enter no (chosen)")


async def test_the_footer_names_only_keys_that_do_something_and_the_way_back_to_a_report():
    async with panel(fakes.scene("crashed")).run_test(size=(120, 36)) as pilot:
        await shows(pilot, "✗ CRASHED", "Esc panels")
        await pilot.press("escape")
        await shows(pilot, "Esc report", "l launch")
        footer = screen_text(pilot.app).split("\n")[-1]
        assert "S stop" not in footer
        assert "bench" not in footer
        await pilot.press("escape")
        await shows(pilot, "Suggested change")


async def test_a_foreign_server_is_not_stopped():
    script = fakes.scene("ready")
    foreign = fakes.run(state=fakes.RunState.FOREIGN, owner="somebody", profile=None)
    state = replace(script.updates[0].state, run=foreign)
    script.runs = (foreign,)
    script.updates = (replace(script.updates[0], state=state),)
    async with EagleApp("gpu1", open_session=fakes.Hosts(script)).run_test(size=(120, 36), notifications=True) as pilot:
        await shows(pilot, "foreign, read-only")
        await pilot.press("S")
        await shows(pilot, "was not started by eagletui")
        assert not session_of(pilot).stopped


async def test_apply_shows_the_difference_and_relaunches_with_it(profiles):
    script = fakes.scene("crashed")
    crashed_run = fakes.run(profile="eagle", run_id="eagle-20261006T200103Z-b81e07")
    state = replace(script.updates[0].state, run=replace(crashed_run, exit_code=1))
    state = replace(state, diagnosis=replace(state.diagnosis, set={"mem-fraction-static": 0.91}))
    script.runs = (crashed_run,)
    script.updates = (replace(script.updates[0], state=state),)
    launch_records.write(
        launch_records.LaunchRecord(
            crashed_run.run_id, "gpu1", "server", "eagle", "2026-10-06T20:01:03Z", sets={"tp": 4}
        )
    )
    async with panel(script, profiles).run_test(size=(140, 44)) as pilot:
        await shows(pilot, "✗ CRASHED")
        await pilot.press("a")
        await shows(pilot, "tp=4 mem-fraction-static=0.91", "0.88 → 0.91", "8 → 4", "Enter  launch")
        assert not session_of(pilot).launched
        await pilot.press("enter")
        await until(pilot, lambda: session_of(pilot).launched)
        args = session_of(pilot).launched[0][0].profile.args
        assert (args["mem-fraction-static"], args["tp"]) == (0.91, 4)


# -- connecting ----------------------------------------------------------------------------------------------------

QUESTION = HostKeyQuestion("gpu2", "tuner@gpu2:22", "10.20.0.18", "ssh-ed25519", "SHA256:" + "x" * 43)


@pytest.mark.parametrize("size", [(160, 48), (80, 24)])
@pytest.mark.parametrize(("presses", "answer"), [(("enter",), False), (("escape",), False), (("tab", "enter"), True)])
async def test_an_unknown_host_key_is_asked_about(size, presses, answer):
    answers: list[bool] = []

    async def ask(session):
        session.say_link(LinkState.WAITING)
        answers.append(await session.asker.host_key(QUESTION))

    script = fakes.Script(on_open=ask, link_states=())
    async with panel(script, host="gpu2").run_test(size=size) as pilot:
        await shows(pilot, "Is this gpu2?", QUESTION.fingerprint, "10.20.0.18", "No, do not connect", "Yes, the fingerprint matches",
                    "Enter no (chosen)")  # fmt: skip
        await pilot.press(*presses)
        await until(pilot, lambda: answers == [answer])


async def test_a_prompt_of_two_fields():
    answers: list[object] = []

    async def ask(session):
        answers.append(
            await session.asker.prompt(
                Prompt("gpu2", "Two factors", "Say both.", (("Password:", False), ("Code:", True)))
            )
        )
        answers.append(await session.asker.prompt(Prompt("gpu2", "Again", "", (("Code:", True),))))

    async with panel(fakes.Script(on_open=ask, link_states=()), host="gpu2").run_test(size=(80, 24)) as pilot:
        await shows(pilot, "Two factors", "Say both.", "Password", "Code")
        await pilot.press(*"q1S", "enter", *"77", "enter")
        await until(pilot, lambda: answers == [("q1S", "77")])
        assert "q1S" not in screen_text(pilot.app)
        await shows(pilot, "Again")
        await pilot.press("escape")
        await until(pilot, lambda: answers == [("q1S", "77"), None])


@pytest.mark.parametrize("size", [(160, 48), (80, 24)])
async def test_a_changed_host_key_offers_no_way_through(size):
    error = HostKeyChanged("the host key has changed", "remove it", key_type="ssh-ed25519", fingerprint="SHA256:" + "n" * 43,
                           known_type="ssh-ed25519", known_fingerprint="SHA256:" + "o" * 43, where="~/.ssh/known_hosts:42",
                           remedy="ssh-keygen -R gpu1")  # fmt: skip

    async def refuse(session):
        session.say_link(LinkState.REFUSED, error=error)
        raise error

    app = panel(fakes.Script(on_open=refuse, link_states=()))
    async with app.run_test(size=size) as pilot:
        await shows(pilot, "✗ REFUSED", "The host key of gpu1 has changed.", error.fingerprint, error.known_fingerprint,
                    "known_hosts:42", "ssh-keygen -R gpu1", "r connect again")  # fmt: skip
        for key in ("enter", "y", "space", "tab"):
            await pilot.press(key)
        await shows(pilot, "✗ REFUSED")
        assert len(app.open_session.sessions) == 1
        await pilot.press("r")
        await until(pilot, lambda: len(app.open_session.sessions) == 2)
        await shows(pilot, "✗ REFUSED")
        await pilot.press("escape")
        await shows(pilot, "not connected")


async def test_a_host_that_cannot_be_reached_is_state_not_a_traceback():
    async def fail(session):
        raise HostError("gpu1 refused the connection on port 22", "is sshd running there?", slug="refused")

    async with panel(fakes.Script(on_open=fail, link_states=())).run_test(size=(120, 36)) as pilot:
        await shows(pilot, "▲ gpu1 refused the connection on port 22; is sshd running there?", "not connected")


async def test_a_fault_of_ours_is_one_line_and_a_file(own_home):
    async def fail(session):
        raise ZeroDivisionError("boom")

    async with panel(fakes.Script(on_open=fail, link_states=())).run_test(size=(120, 36)) as pilot:
        await shows(pilot, "a fault of eagletui: ZeroDivisionError", "details in")
        assert "Traceback" not in screen_text(pilot.app)
    assert "boom" in (own_home / "eagletui" / "state" / "panel-errors.log").read_text()


async def test_a_full_disk_is_no_fault_of_ours(own_home):
    async def fail(session):
        raise OSError(errno.ENOSPC, "No space left on device", "/data/results/x.json")

    async with panel(fakes.Script(on_open=fail, link_states=())).run_test(size=(120, 36)) as pilot:
        await shows(pilot, "/data/results/x.json: No space left on device; free some space")
    assert not (own_home / "eagletui" / "state" / "panel-errors.log").exists()


async def test_another_host(own_home):
    (own_home / ".ssh").mkdir()
    (own_home / ".ssh" / "config").write_text("Host gpu2 gpu3\n  User tuner\nHost *.lab\nHost=gpu4\n")
    app = panel(fakes.scene("ready"))
    async with app.run_test(size=(120, 36)) as pilot:
        await shows(pilot, "● READY")
        await pilot.press("h")
        await shows(pilot, "gpu2", "gpu3", "gpu4", "local", "demo", "1 server on gpu1 keeps running.")
        assert "*.lab" not in screen_text(pilot.app)
        first = session_of(pilot)
        await pilot.press(*"gpu3", "enter")
        await until(pilot, lambda: app.board.host == "gpu3" and first.closed and len(app.open_session.sessions) == 2)
        await shows(pilot, "gpu3  ●")


async def test_a_host_that_never_answered_has_no_runs_that_go_on():
    async def fail(session):
        raise HostError("nowhere is unknown", "check the name", slug="host_unknown")

    async with panel(fakes.Script(on_open=fail, link_states=()), host="nowhere").run_test(size=(120, 36)) as pilot:
        await shows(pilot, "nowhere is unknown")
        await pilot.press("h")
        await shows(pilot, "Show another host")
        assert "running." not in screen_text(pilot.app)


@pytest.mark.parametrize("size", [(120, 36), (80, 24)])
async def test_a_link_that_never_was_is_not_lost(size):
    async def fail(session):
        session.say_link(LinkState.LOST, last_byte_at=None, rtt_s=None)
        raise HostError("nothing listens on gpu1:22", "is sshd running there?", slug="refused")

    app = panel(fakes.Script(on_open=fail, link_states=()))
    async with app.run_test(size=size) as pilot:
        await shows(pilot, "not reached", "nothing listens on gpu1:22")
        assert "lost" not in screen_text(app)
        session_of(pilot).say_link(LinkState.UP)
        session_of(pilot).say_link(LinkState.LOST)
        await shows(pilot, "lost")


async def test_a_typed_host_is_remembered_once_it_was_connected_to():
    from tui.panel.host_names import known_hosts

    async def fail(session):
        raise HostError("nowhere is unknown", "check the name", slug="host_unknown")

    script = fakes.Script(on_open=fail, link_states=())
    async with panel(script, host="tuner@nowhere:2200").run_test(size=(120, 36)) as pilot:
        await shows(pilot, "nowhere is unknown")
        assert "tuner@nowhere:2200" not in dict(known_hosts())
        script.on_open, script.link_states = None, (LinkState.UP,)
        await pilot.press("h", *"tuner@gpu9:2200", "enter")
        await until(pilot, lambda: pilot.app.board.connected)
        await until(pilot, lambda: dict(known_hosts()).get("tuner@gpu9:2200") == "typed here before")
        await pilot.press("h")
        await shows(pilot, "tuner@gpu9:2200", "typed here before")


# -- the rest ------------------------------------------------------------------------------------------------------


async def test_modes_help_and_palette():
    async with panel(fakes.scene("ready")).run_test(size=(120, 36)) as pilot:
        await shows(pilot, "● READY")
        for key, text in (
            ("2", "following"),
            ("3", "Profiles ─"),
            ("4", "nothing was measured on gpu1"),
            ("1", "● READY"),
        ):
            await pilot.press(key)
            await shows(pilot, text)
        await pilot.press("question_mark")
        await shows(pilot, "everywhere", "Esc back")
        text = screen_text(pilot.app)
        assert text.index("Follow the newest log line") < text.index("everywhere")  # this screen first
        assert "Measure the running server" in screen_text(pilot.app)
        await pilot.press("escape")
        await pilot.press("ctrl+p")
        await until(pilot, lambda: "launch (l)" in screen_text(pilot.app))
        await pilot.press("escape")


async def test_help_and_questions_wrap_and_cut_nothing():
    async with panel(fakes.scene("ready")).run_test(size=(80, 24)) as pilot:
        await shows(pilot, "● READY")
        await pilot.press("question_mark")
        await shows(pilot, "everywhere")
        for _ in range(60):
            assert "…" not in "\n".join(row[4:74] for row in screen_text(pilot.app).split("\n")[1:23])
            await pilot.press("j")
        await pilot.press("escape", "S")
        await shows(pilot, "is killed. Nothing", "else is touched.", "Enter no (chosen)")


async def test_the_palette_looks_like_a_dialog():
    from tui.panel.screens.dialog import Help

    async with panel(fakes.scene("ready")).run_test(size=(120, 36)) as pilot:
        await shows(pilot, "● READY")
        await pilot.press("question_mark")
        await until(pilot, lambda: isinstance(pilot.app.screen, Help))
        box = pilot.app.screen.query_one(".dialog")
        await pilot.press("escape", "ctrl+p")
        await until(pilot, lambda: pilot.app.screen.query("#--container"))
        palette = pilot.app.screen.query_one("#--container")
        await until(pilot, lambda: palette.styles.background == box.styles.background)
        assert (palette.styles.border, palette.styles.padding) == (box.styles.border, box.styles.padding)


async def test_q_leaves_and_says_that_servers_go_on(monkeypatch):
    said: list[str] = []
    leave = EagleApp.exit

    def exit(self, *args, message=None, **more):
        said.append(str(message))
        leave(self, *args, message=message, **more)

    monkeypatch.setattr(EagleApp, "exit", exit)
    app = panel(fakes.scene("ready"))
    async with app.run_test(size=(120, 36)) as pilot:
        await shows(pilot, "● READY")
        session = session_of(pilot)
        await pilot.press("q")
        await until(pilot, lambda: session.closed)
    assert said[0].startswith("kimi-k2.5-eagle3-mem088 keeps running on gpu1 (run 4f9c2a, PID 48213)")


async def test_y_copies_the_report_of_a_crash_into_clipboard_and_file(own_home):
    app = EagleApp("gpu1", open_session=fakes.Hosts(fakes.scene("crashed")))
    async with app.run_test(size=(120, 36), notifications=True) as pilot:
        await shows(pilot, "✗ CRASHED")
        await pilot.press("y")
        await shows(pilot, "Copied the report")
        assert "oom_kv_pool" in app.clipboard
        file = own_home / "eagletui" / "state" / "copied.txt"
        assert "set mem-fraction-static = 0.88" in file.read_text()
        assert file.stat().st_mode & 0o077 == 0


async def test_the_newest_server_is_shown_as_others_start_it():
    script = fakes.scene("ready")
    async with panel(script).run_test(size=(120, 36)) as pilot:
        await shows(pilot, "● READY")
        newer = fakes.run(run_id="qwen-20261006T210000Z-aaaaaa", profile="qwen")
        session_of(pilot).known_runs = (newer, *session_of(pilot).known_runs)
        pilot.app.board.runs = session_of(pilot).known_runs
        pilot.app.displayed.choose()
        await shows(pilot, "reading qwen")


async def test_profiles_screen_difference_command_findings_and_errors(profiles):
    async with panel(fakes.scene("idle"), profiles).run_test(size=(160, 48)) as pilot:
        await pilot.press("3")
        await shows(pilot, "never run here", "2 errors", "did you mean mem-fraction-static?", "blocks nothing else")
        await pilot.press("j", "j")
        await shows(
            pilot,
            "Difference to base",
            "+ speculative-algorithm",
            "0.84 → 0.88",
            "--speculative-algorithm EAGLE3",
            "all 8 are free",
        )
        await pilot.press("k")
        await shows(pilot, "args.tp", "must be a whole number", "write tp = 8", "e  edit")
        await pilot.press("g", "c", "j", "j")
        await shows(pilot, "Difference to base")
        await pilot.press("k", "k")
        await pilot.press("slash", *"eag")
        await until(pilot, lambda: [entry.name for entry in pilot.app.screen.shown][:1] == ["eagle"])


async def test_profiles_screen_tells_what_came_of_it_here(profiles):
    for day, outcome, cause, took in ((3, "stopped", None, 667.0), (4, "crashed", "oom_kv_pool", None)):
        launch_records.write(
            launch_records.LaunchRecord(f"eagle-2026100{day}T200000Z-00000{day}", "gpu1", "server", "eagle", f"2026-10-0{day}T20:00:00Z",
                                 outcome=outcome, cause=cause, ready_after_s=took)
        )  # fmt: skip
    async with panel(fakes.scene("idle"), profiles).run_test(size=(160, 48)) as pilot:
        await pilot.press("3", "j", "j")
        await shows(pilot, "oom_kv_pool", "This profile here", "11:07", "ready in about 11:07 (n = 1)")


async def test_import_of_a_posted_command(profiles, own_home):
    async with panel(fakes.scene("idle"), profiles).run_test(size=(120, 40), notifications=True) as pilot:
        await pilot.press("3", "slash", *"eag", "enter", "i")
        await shows(pilot, "Nothing is executed.")
        await pilot.press(
            *"sudo NCCL_DEBUG=INFO HF_TOKEN=hf_abc python -m sglang.launch_server --model-path /m --tp 2 >x &"
        )
        await shows(pilot, "2 flags, 2 environment variables", "sudo was taken off", "the output to x was left out",
                    'HF_TOKEN = "••••••••"', "tp-size = 2")  # fmt: skip
        await pilot.press("tab", *"posted", "enter")
        saved = own_home / "eagletui" / "config" / "profiles" / "posted.toml"
        await until(pilot, saved.exists)
        assert "hf_abc" in saved.read_text()
        await shows(pilot, "saved as posted", "▌ · posted", "· eagle", "· base")  # the search is forgotten
        assert pilot.app.screen.chosen_launch() == "posted"
        assert "hf_abc" not in screen_text(pilot.app)


async def test_a_shipped_profile_is_copied_before_it_is_edited(monkeypatch, own_home, tmp_path):
    import subprocess

    from tui.core.config import shipped_profiles_dir

    edited: list[str] = []
    shipped = shipped_profiles_dir() / "kimi-k2.5-nccl-tree.toml"
    before = shipped.read_bytes()

    def run(argv, check):
        edited.append(argv[-1])
        if len(edited) > 1:  # the first time it is looked at only
            Path(argv[-1]).write_text(Path(argv[-1]).read_text() + "# mine\n")

    monkeypatch.setattr(subprocess, "run", run)
    app = panel(fakes.scene("idle"))
    monkeypatch.setattr(app, "suspend", contextlib.nullcontext)
    async with app.run_test(size=(120, 36), notifications=True) as pilot:
        await pilot.press("3", "slash", *"nccl-tree", "enter", "e")
        copy = own_home / "eagletui" / "config" / "profiles" / "kimi-k2.5-nccl-tree.toml"
        await until(pilot, lambda: edited == [str(copy)])
        kept_not = "no copy of it is kept"
        await until(pilot, lambda: any(kept_not in toast.message for toast in app._notifications))
        assert not copy.exists()
        await pilot.press("e")
        await until(pilot, lambda: edited == [str(copy)] * 2)
        said = "is unchanged; your copy of it is"
        await until(pilot, lambda: any(said in toast.message for toast in app._notifications))
        await until(pilot, lambda: app.screen.chosen_entry().path == copy)
        await pilot.press("e")
        await until(pilot, lambda: edited == [str(copy)] * 3)
    assert shipped.read_bytes() == before
    assert copy.read_text().count("# mine") == 2


async def test_the_command_is_there_before_the_host_answers_and_answers_are_kept(profiles, monkeypatch):
    asked: list[str] = []
    let_go = asyncio.Event()
    plan = fakes.FakeSession.plan

    async def slow(session, profile, sets=None):
        asked.append(profile.name)
        await let_go.wait()
        return await plan(session, profile, sets)

    monkeypatch.setattr(fakes.FakeSession, "plan", slow)
    async with panel(fakes.scene("idle"), profiles).run_test(size=(140, 44)) as pilot:
        await shows(pilot, "No server runs here.")
        await pilot.press("3", "g")
        await shows(pilot, "--mem-fraction-static 0.84", "Checking gpu1")
        let_go.set()
        await shows(pilot, "2 OK")
        await pilot.press("j", "j", "k", "k")
        await shows(pilot, "2 OK")
        assert asked == ["base"]  # passed over, and still known
        pilot.app.board.runs = (fakes.run(),)
        await pilot.press("j", "k")
        await until(pilot, lambda: asked == ["base", "base"])  # another run: that answer is old


async def test_a_result_with_other_values_is_not_that_of_the_profile(profiles):
    for name in ("plain", "wide"):
        (profiles / f"{name}.toml").write_text('kind = "launch"\n[args]\nmodel-path = "/m"\n')
    for number, name, sets in (
        (1, "base", {"mem-fraction-static": 0.9}),
        (2, "eagle", {"tp": 4, "env.A": "b"}),
        (3, "plain", {"port": 31000}),
        (4, "wide", {"model-path": "x" * 100}),
    ):
        launch_records.write(
            launch_records.LaunchRecord(f"{name}-20261003T200000Z-00000{number}", "gpu1", "server", name, "2026-10-03T20:00:00Z",
                                 sets=sets, outcome="ready", ready_after_s=600.0)
        )  # fmt: skip
    async with panel(fakes.scene("idle"), profiles).run_test(size=(160, 48)) as pilot:
        await pilot.press("3")
        await shows(pilot, "ready in 10:00 with 0.9", "with tp=4, env.A=b")
        rows = screen_text(pilot.app).split("\n")
        # a port is no other configuration
        assert any("plain " in row and "ready in 10:00  " in row for row in rows)
        assert any("● wide  " in row and "ready in 10:00 with model-path" in row for row in rows)


async def test_a_run_with_other_values_is_named_with_them_everywhere(profiles):
    script = fakes.scene("ready")
    changed = fakes.run(profile="base", extra={"sets": {"mem-fraction-static": 0.9}})
    script.runs = script.replaced = (changed,)
    script.updates = (replace(script.updates[0], state=replace(script.updates[0].state, run=changed)),)
    async with panel(script, profiles).run_test(size=(120, 40)) as pilot:
        await shows(pilot, "● READY  base +mem-fraction-static=0.9")
        await pilot.press("r")
        await shows(pilot, "will first stop: base +mem-fraction-static=0.9")
        await pilot.press("escape", "S")
        await shows(pilot, "Stop this server", "base +mem-fraction-static=0.9, run 4f9c2a")
        await pilot.press("escape", "3")
        await shows(pilot, "● base", "ready with 0.9")


@pytest.mark.parametrize("size", [(160, 48), (120, 36)])
async def test_a_suggested_change_says_why(size):
    script = fakes.scene("crashed")
    state = script.updates[0].state
    diagnosis = replace(state.diagnosis, set={"mem-fraction-static": 0.9}, advice=("Raise it. Or not.",))
    script.updates = (replace(script.updates[0], state=replace(state, diagnosis=diagnosis)),)
    for number, fraction, took in ((1, 0.9, 600.0), (2, 0.9, 610.0), (3, 0.9, None), (4, 0.88, 600.0)):
        launch_records.write(
            launch_records.LaunchRecord(f"other-20261003T200000Z-00000{number}", "gpu1", "server", "other", "2026-10-03T20:00:00Z",
                                 args={"model-path": "/m", "mem-fraction-static": fraction}, ready_after_s=took)
        )  # fmt: skip
    launch_records.write(
        launch_records.LaunchRecord(
            fakes.RUN_ID, "gpu1", "server", "eagle", "2026-10-06T20:01:03Z", args={"model-path": "/m"}
        )
    )
    async with panel(script).run_test(size=size) as pilot:
        await shows(pilot, "- mem-fraction-static = 0.76", "+ mem-fraction-static = 0.90")
        await shows(pilot, "Raise it.", "Started here 2 times with it.")


async def test_every_error_of_every_broken_file_is_named(profiles):
    (profiles / "more.toml").write_text('kind = "launch"\n[args]\nzz1 = 1\nzz2 = 1\nzz3 = 1\nzz4 = 1\nzz5 = 1\n')
    (profiles / "worst.toml").write_text('kind = "launch"\n[args]\nmodel-path = /data\n')
    async with panel(fakes.scene("idle"), profiles).run_test(size=(120, 60)) as pilot:
        await pilot.press("3")
        await shows(pilot, *(f"args.zz{n}" for n in range(1, 6)), "args.tp")
        await until(pilot, lambda: "at line 3, column" in " ".join(screen_text(pilot.app).split()))
        await pilot.press("slash", *"worst", "enter")
        await until(pilot, lambda: pilot.app.screen.chosen_entry().name == "worst")
        await shows(pilot, "at line 3, column 14")


async def test_the_session_is_closed_when_the_app_ends():
    app = panel(fakes.scene("ready"))
    async with app.run_test(size=(80, 24)) as pilot:
        await shows(pilot, "● READY")
        await app.action_leave()
    assert app.open_session.sessions[0].closed
    await asyncio.sleep(0)
