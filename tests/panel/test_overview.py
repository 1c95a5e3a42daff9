"""Several hosts in one panel: the overview, the panels below it, and what one host must not do to the others."""

import asyncio
import time
from dataclasses import replace

import pytest

from tests.support import fakes
from tests.support.driving import screen_text, shows, until
from tui.core.errors import HostError
from tui.core.host.gpus import GpuSample
from tui.core.link.transport import HostKeyChanged, HostKeyQuestion, LinkState, Prompt
from tui.core.server.server_state import RunUpdate
from tui.panel.app import EagleApp
from tui.panel.host_view import Board
from tui.panel.hosts_view import badge_of, gpu_use, measuring, newest
from tui.panel.screens.connecting import PromptDialog, Refused
from tui.panel.screens.dialog import Confirm


def panel(scripts: dict[str, fakes.Script], **options) -> EagleApp:
    return EagleApp(*scripts, open_session=fakes.Hosts(scripts), **options)


def session_of(pilot, host: str) -> fakes.FakeSession:
    return next(one for one in reversed(pilot.app.open_session.sessions) if one.host == host)


def row_of(pilot, host: str, rows: int = 3) -> str:
    """The rows of a host in the overview."""
    lines = screen_text(pilot.app).splitlines()
    first = next(place for place, line in enumerate(lines) if line[1:].strip().startswith(host))
    return "\n".join(lines[first : first + rows])


def unreachable(
    state: LinkState = LinkState.LOST, words: str = "No route to host (10.20.0.77, port 22)"
) -> fakes.Script:
    async def fail(session):
        error = HostError(words, "is it switched on?")
        session.say_link(state, last_byte_at=None, error=error, retry_at=time.monotonic() + 24)
        raise error

    return fakes.Script(on_open=fail, link_states=(LinkState.CONNECTING,))


@pytest.mark.parametrize("size", [(160, 48), (120, 40), (80, 24)])
async def test_rows_appear_as_hosts_answer_and_nobody_waits_for_a_dead_one(size):
    answered = asyncio.Event()

    async def hang(session):
        await answered.wait()
        session.say_link(LinkState.UP)

    scripts = {
        "oldlab": unreachable(),
        "slow": replace(fakes.scene("idle"), on_open=hang, link_states=(LinkState.CONNECTING,)),
        "gpu1": fakes.scene("ready"),
        "gpu2": fakes.scene("starting"),
        "gpu4": fakes.scene("crashed"),
    }
    async with panel(scripts).run_test(size=size) as pilot:
        await until(pilot, lambda: "READY" in row_of(pilot, "gpu1") and "72.1" in row_of(pilot, "gpu1"))
        await until(pilot, lambda: "STARTING" in row_of(pilot, "gpu2") and "41/64" in row_of(pilot, "gpu2"))
        await until(pilot, lambda: "CRASHED" in row_of(pilot, "gpu4") and "The KV pool has no" in row_of(pilot, "gpu4"))
        await until(
            pilot, lambda: "NOT REACHED" in row_of(pilot, "oldlab") and "No route to host" in row_of(pilot, "oldlab")
        )
        assert "CONNECTING" in row_of(pilot, "slow")
        await shows(pilot, "▲ 3 of 5", "1 crashed")
        answered.set()
        await until(pilot, lambda: "NO SERVER" in row_of(pilot, "slow"))
        names = [line[1:].split()[0] for line in screen_text(pilot.app).splitlines() if line[3:].strip()]
        assert [name for name in names if name in scripts] == list(
            scripts
        )  # as they were named, whoever answered first


async def test_enter_opens_the_panel_of_a_host_and_0_goes_back():
    scripts = {"gpu1": fakes.scene("ready"), "gpu2": fakes.scene("starting")}
    async with panel(scripts).run_test(size=(160, 48)) as pilot:
        await until(pilot, lambda: "STARTING" in row_of(pilot, "gpu2"))
        await pilot.press("j", "enter")
        await shows(pilot, "load weights", "gpu2  ● link", "0 Hosts")
        assert "72.1" not in screen_text(pilot.app)
        await pilot.press("2")
        await shows(pilot, "Loading safetensors checkpoint shards")
        await pilot.press("0")
        await shows(pilot, "in the order given")
        assert "▌  gpu2" in screen_text(pilot.app)  # where one was
        await pilot.press("g", "1")
        await shows(pilot, "● READY", "gpu1  ● link", "accept length")
        await pilot.press("0", "G", "k", "enter")
        await shows(pilot, "gpu1  ● link")


async def test_a_host_is_sampled_once_and_its_run_watched_once_whatever_is_displayed(monkeypatch):
    streams: list[tuple[str, str]] = []
    for name in ("gpus", "watch", "link"):
        was = getattr(fakes.FakeSession, name)

        def counted(self, *args, _was=was, _name=name, **options):
            streams.append((self.host, _name))
            return _was(self, *args, **options)

        monkeypatch.setattr(fakes.FakeSession, name, counted)
    scripts = {"gpu1": fakes.scene("ready"), "gpu2": fakes.scene("starting")}
    async with panel(scripts).run_test(size=(160, 48)) as pilot:
        await until(pilot, lambda: "STARTING" in row_of(pilot, "gpu2") and "READY" in row_of(pilot, "gpu1"))
        await pilot.press("enter", "2", "0", "j", "enter")
        await shows(pilot, "load weights")
    assert sorted(streams) == [(host, what) for host in ("gpu1", "gpu2") for what in ("gpus", "link", "watch")]


async def test_a_crash_is_seen_in_the_overview_while_another_host_is_open():
    scripts = {"gpu1": fakes.scene("ready"), "gpu2": fakes.scene("starting")}
    rings = []
    app = panel(scripts)
    app.ring = rings.append
    async with app.run_test(size=(160, 48)) as pilot:
        await until(pilot, lambda: "STARTING" in row_of(pilot, "gpu2"))
        await pilot.press("enter")
        await shows(pilot, "gpu1  ● link")
        alive = session_of(pilot, "gpu2").script.updates[0]
        session_of(pilot, "gpu2").update_queue.put_nowait(replace(alive, records=(), settled=True))
        session_of(pilot, "gpu2").update_queue.put_nowait(RunUpdate(fakes.crashed(), settled=True))
        await until(pilot, lambda: rings)
        await pilot.press("0")
        await until(pilot, lambda: "CRASHED" in row_of(pilot, "gpu2"))
        await shows(
            pilot,
            "a apply mem-fraction-static = 0.88 and relaunch",
            "crashed in memory pool, first rank TP0, exit code 1",
        )


def question(host: str) -> HostKeyQuestion:
    return HostKeyQuestion(host, f"tuner@{host}:22", "10.20.0.18", "ssh-ed25519", "SHA256:" + "x" * 43)


async def test_questions_come_one_at_a_time_name_their_host_and_hold_up_nobody():
    answers: dict[str, object] = {}
    asked = asyncio.Event()

    async def ask(session):
        session.say_link(LinkState.WAITING)
        answers[session.host] = await session.asker.host_key(question(session.host))
        session.say_link(LinkState.UP)

    async def password(session):
        await asked.wait()
        session.say_link(LinkState.WAITING)
        answers[session.host] = await session.asker.prompt(
            Prompt(session.host, "password", "", (("Password:", False),))
        )

    scripts = {
        "new2": fakes.Script(on_open=password, link_states=()),  # under the cursor, and still not before its turn
        "new1": replace(fakes.scene("idle"), on_open=ask, link_states=()),
        "gpu1": fakes.scene("ready"),
    }
    async with panel(scripts).run_test(size=(160, 48)) as pilot:
        await shows(pilot, "Is this new1?")
        asked.set()
        await until(pilot, lambda: pilot.app.board.link and pilot.app.board.link.state is LinkState.WAITING)
        await until(pilot, lambda: pilot.app.boards[2].state is not None)  # answered, behind the question
        assert sum(isinstance(screen, Confirm | PromptDialog) for screen in pilot.app.screen_stack) == 1
        await pilot.press("tab", "enter")
        await shows(pilot, "? new2", "password")
        await until(pilot, lambda: answers == {"new1": True})
        await pilot.press(*"q1S", "enter")
        await until(pilot, lambda: answers["new2"] == ("q1S",))
        await until(pilot, lambda: "NO SERVER" in row_of(pilot, "new1") and "READY" in row_of(pilot, "gpu1"))


async def test_a_question_of_another_host_waits_for_the_dialog_that_is_open(tmp_path):
    due, answers = asyncio.Event(), []

    async def ask(session):
        await due.wait()
        answers.append(await session.asker.prompt(Prompt("gpu2", "password", "", (("Password:", False),))))

    scripts = {"gpu1": fakes.scene("idle"), "gpu2": fakes.Script(on_open=ask, link_states=())}
    async with panel(scripts).run_test(size=(120, 36)) as pilot:
        await until(pilot, lambda: "NO SERVER" in row_of(pilot, "gpu1"))
        await pilot.press("enter", "h")
        await shows(pilot, "Show another host")
        due.set()
        await pilot.press(*"gpu9")  # what is typed here is no password
        await shows(pilot, "gpu9")
        assert not any(isinstance(screen, PromptDialog) for screen in pilot.app.screen_stack)
        await pilot.press("escape")
        await shows(pilot, "? gpu2")
        await pilot.press("escape")
        await until(pilot, lambda: answers == [None])


async def test_a_changed_host_key_takes_the_screen_of_its_host_only():
    error = HostKeyChanged("the host key of gpu2 has changed", "remove it", key_type="ssh-ed25519", fingerprint="SHA256:n",
                           known_type="ssh-ed25519", known_fingerprint="SHA256:o", where=None, remedy=None)  # fmt: skip

    async def refuse(session):
        session.say_link(LinkState.REFUSED, error=error)
        raise error

    scripts = {"gpu1": fakes.scene("ready"), "gpu2": fakes.Script(on_open=refuse, link_states=())}
    async with panel(scripts).run_test(size=(160, 48)) as pilot:
        await until(pilot, lambda: "REFUSED" in row_of(pilot, "gpu2") and "READY" in row_of(pilot, "gpu1"))
        assert not isinstance(pilot.app.screen, Refused)
        await pilot.press("enter")
        await shows(pilot, "gpu1  ● link")
        await pilot.press("0", "j", "enter")
        await shows(pilot, "The host key of gpu2 has changed.")


async def test_launching_from_the_overview_asks_for_host_and_profile(tmp_path):
    scripts = {"gpu1": fakes.scene("ready"), "gpu2": fakes.scene("idle")}
    app = panel(scripts, profiles_dir=fakes.profiles_in(tmp_path / "own"))
    async with app.run_test(size=(160, 48)) as pilot:
        await until(pilot, lambda: "NO SERVER" in row_of(pilot, "gpu2") and "READY" in row_of(pilot, "gpu1"))
        await pilot.press("l")
        await shows(
            pilot, "On which host?", "0 of 8 GPUs free · ready: kimi-k2.5-eagle3-mem088", "8 of 8 GPUs free · no server"
        )
        await pilot.press("j", "enter")
        await shows(pilot, "Which profile?", "base")
        await pilot.press("enter")
        await shows(pilot, "Enter  launch")
        await pilot.press("enter")
        await until(pilot, lambda: session_of(pilot, "gpu2").launched)
        assert not session_of(pilot, "gpu1").launched
        await shows(pilot, "gpu2  ● link")


async def test_keys_of_the_overview_are_about_the_host_under_the_cursor():
    scripts = {"gpu1": fakes.scene("ready"), "gpu2": fakes.scene("ready"), "oldlab": unreachable()}
    async with panel(scripts).run_test(size=(160, 48)) as pilot:
        await until(pilot, lambda: "READY" in row_of(pilot, "gpu2") and "NOT REACHED" in row_of(pilot, "oldlab"))
        await pilot.press("j", "S")
        await shows(pilot, "Stop this server on gpu2?")
        await pilot.press("tab", "enter")
        await until(pilot, lambda: session_of(pilot, "gpu2").stopped)
        assert not session_of(pilot, "gpu1").stopped
        await pilot.press("j", "r")
        await until(pilot, lambda: [one.host for one in pilot.app.open_session.sessions].count("oldlab") == 2)
        assert len(pilot.app.open_session.sessions) == 4


async def test_a_toast_of_a_host_that_is_not_displayed_names_it():
    scripts = {"gpu1": fakes.scene("ready"), "gpu2": fakes.scene("ready")}
    async with panel(scripts).run_test(size=(160, 48)) as pilot:
        await until(pilot, lambda: "READY" in row_of(pilot, "gpu2"))
        await pilot.press("enter")
        await shows(pilot, "gpu1  ● link")
        pilot.app.hosts[0].say("here")
        pilot.app.hosts[1].say("there")
        await until(pilot, lambda: len(pilot.app._notifications) == 2)
        assert [note.message for note in pilot.app._notifications] == ["here", "gpu2: there"]


async def test_another_host_is_opened_beside_the_others():
    scripts = {"gpu1": fakes.scene("ready"), "gpu2": fakes.scene("idle"), "gpu3": fakes.scene("starting")}
    app = EagleApp("gpu1", "gpu2", open_session=fakes.Hosts(scripts))
    async with app.run_test(size=(160, 48)) as pilot:
        await until(pilot, lambda: "READY" in row_of(pilot, "gpu1"))
        await pilot.press("h", *"gpu3", "enter")
        await shows(pilot, "gpu3  ● link", "load weights")
        await pilot.press("h", *"gpu1", "enter")
        await shows(pilot, "gpu1  ● link", "accept length")
        await pilot.press("0")
        await until(pilot, lambda: "STARTING" in row_of(pilot, "gpu3") and "NO SERVER" in row_of(pilot, "gpu2"))
        assert [one.host for one in app.open_session.sessions] == ["gpu1", "gpu2", "gpu3"]


async def test_quitting_closes_every_host_and_says_what_keeps_running():
    scripts = {"gpu1": fakes.scene("ready"), "gpu2": fakes.scene("starting"), "gpu3": fakes.scene("idle")}
    app = panel(scripts)
    async with app.run_test(size=(160, 48)) as pilot:
        await until(pilot, lambda: "STARTING" in row_of(pilot, "gpu2") and "READY" in row_of(pilot, "gpu1"))
        said = app.farewell()
        await pilot.press("q")
    assert [line.split(" (")[0] for line in (said or "").splitlines()] == [
        f"kimi-k2.5-eagle3-mem088 keeps running on {host}" for host in ("gpu1", "gpu2")
    ]
    assert all(session.closed for session in app.open_session.sessions)


async def test_more_hosts_than_rows_scroll_with_the_cursor():
    scripts = {f"gpu{n}": fakes.scene("ready") for n in range(30)}
    async with panel(scripts).run_test(size=(80, 24)) as pilot:
        await shows(pilot, "of 30", "gpu0")
        assert "gpu29" not in screen_text(pilot.app)
        await pilot.press("G")
        await shows(pilot, "▌ ● gpu29")
        await pilot.press("pageup")
        await shows(pilot, "gpu10")
        await pilot.press("g")
        await shows(pilot, "▌ ● gpu0")


async def test_one_host_has_no_overview():
    async with panel({"gpu1": fakes.scene("ready")}).run_test(size=(160, 48)) as pilot:
        await shows(pilot, "● READY", "1 Dashboard")
        await pilot.press("0")
        await until(pilot, lambda: any("One host is open here" in note.message for note in pilot.app._notifications))
        assert "0 Hosts" not in screen_text(pilot.app)


# -- what the overview knows of a host --------------------------------------------------------------------------------


def board(**known) -> Board:
    made = Board("gpu1", link=_link(LinkState.UP))
    for name, value in known.items():
        setattr(made, name, value)
    return made


def _link(state: LinkState, **changes):
    session = fakes.FakeSession("gpu1", None, fakes.Script())
    session.say_link(state, **changes)
    return session.transport.last


BENCH = replace(fakes.run(), kind="bench", run_id="decode-bs1-20261006T210000Z-aaaaaa", profile="decode-bs1")


@pytest.mark.parametrize(
    ("known", "word"),
    [
        ({"link": None}, "CONNECTING"),
        ({"link": None, "problem": HostError("x", "y")}, "NOT REACHED"),
        ({"link": _link(LinkState.WAITING)}, "ASKS YOU"),
        ({"link": _link(LinkState.REFUSED)}, "REFUSED"),
        ({}, "LOOKING"),
        ({"runs_read": True}, "NO SERVER"),
        ({"runs_read": True, "runs": (fakes.run(),)}, "LOOKING"),  # its log is not read yet
        ({"state": fakes.ready()}, "READY"),
        ({"state": fakes.ready(), "runs": (BENCH,)}, "MEASURING"),
        ({"state": fakes.starting(), "runs": (BENCH,)}, "STARTING"),
        ({"state": fakes.ready(), "link": _link(LinkState.LOST)}, "UNKNOWN"),
        ({"state": fakes.crashed(), "link": _link(LinkState.LOST)}, "NOT REACHED"),
        ({"state": fakes.crashed(), "busy": "launching base"}, "LAUNCH"),
    ],
)
def test_the_word_for_a_host(known, word):
    assert badge_of(board(**known)).word == word


def test_a_measurement_of_somebody_else_is_named():
    assert measuring(board(runs=(BENCH,))) == "decode-bs1"
    assert measuring(board(runs=(fakes.run(),))) is None


def test_what_is_not_reported_of_gpus_is_not_zero():
    blank = tuple(replace(gpu, memory_used_mib=None, power_w=None, utilization_pct=None) for gpu in fakes.gpus())
    use = gpu_use(board(sample=GpuSample(0, blank, "nvml")))
    assert use is not None
    assert (use.count, use.busy, use.used_mib, use.utilization_pct, use.power_w) == (8, 0, None, None, None)
    assert gpu_use(board()) is None
    busy = gpu_use(board(sample=GpuSample(0, fakes.gpus()[:3] + fakes.gpus(0.6, util=0.0)[4:5], "nvml")))
    assert busy is not None
    assert (busy.count, busy.busy) == (4, 3)


def test_the_newest_of_all_hosts_comes_first():
    one = board(state=fakes.ready(), runs=(fakes.run(),))
    other = board(state=fakes.crashed())
    other.host = "gpu2"
    lost = board(host="gpu3", state=fakes.ready(), link=_link(LinkState.LOST))
    events = newest([one, other, lost], 10)
    assert [event.at for event in events] == sorted((event.at for event in events), reverse=True)
    assert (events[0].host, events[0].text) == ("gpu3", "link lost; kimi-k2.5-eagle3-mem088 was ready")
    said = {(event.host, event.glyph) for event in events}
    assert {("gpu1", "●"), ("gpu1", "▸"), ("gpu2", "✗")} <= said
    assert len(newest([one, other, lost], 2)) == 2


def test_a_run_that_failed_before_is_not_forgotten_and_a_stop_of_ours_is_no_crash():
    failed = replace(fakes.crashed().run, run_id="a-20261006T200103Z-000001", profile="a")
    stopped = replace(failed, run_id="b-20261006T200103Z-000002", profile="b", stopped_by_us=True)
    said = [event.text for event in newest([board(runs=(failed, stopped))], 10) if event.glyph == "✗"]
    assert said == ["a crashed, exit code 1"]


async def test_a_mistyped_host_is_taken_off_and_others_stay():
    scripts = {"gpu1": fakes.scene("ready"), "gpu2": fakes.scene("idle"), "gpo3": unreachable()}
    app = EagleApp("gpu1", "gpu2", open_session=fakes.Hosts(scripts))
    async with app.run_test(size=(160, 48)) as pilot:
        await until(pilot, lambda: "READY" in row_of(pilot, "gpu1") and "NO SERVER" in row_of(pilot, "gpu2"))
        await pilot.press("h", *"gpo3", "enter")
        await shows(pilot, "No route to host")
        await pilot.press("0")
        await until(pilot, lambda: "NOT REACHED" in row_of(pilot, "gpo3"))
        await shows(pilot, "x take off")
        await pilot.press("x")
        await until(pilot, lambda: [host.board.host for host in app.hosts] == ["gpu1", "gpu2"])
        await until(pilot, lambda: "gpo3" not in screen_text(app))
        assert app.board.host == "gpu1"
        closed = next(one for one in app.open_session.sessions if one.host == "gpo3")
        await until(pilot, lambda: closed.closed)
        await pilot.press("x")  # gpu1 was named first
        await pilot.press("j", "x")  # and gpu2 is reached
        await until(pilot, lambda: len([n for n in app._notifications if "stays" in n.message]) == 2)
        assert [host.board.host for host in app.hosts] == ["gpu1", "gpu2"]
        # Its name may be typed again.
        await pilot.press("h", *"gpo3", "enter")
        await shows(pilot, "No route to host")
