"""The dashboard of a group: one server that is several runs, on one host or several; its members, and what keys do to them."""

import asyncio
from collections import Counter
from dataclasses import replace

import pytest

from tests.support import bench_states, fakes
from tests.support import group_scenes as scenes
from tests.support.driving import screen_text, shows, until
from tui.core.errors import HostError
from tui.core.experiment import one_bench
from tui.core.experiment import runner as experiment
from tui.core.link.transport import LinkState
from tui.core.model.phases import Outcome, Phase
from tui.core.server.server_state import RunUpdate
from tui.panel.app import EagleApp
from tui.panel.bench_control import Measuring
from tui.panel.host_view import Board
from tui.panel.hosts_view import badge_of, newest, servers
from tui.panel.open_group import OpenGroup
from tui.panel.widgets.group.panel import GroupPanel

STARTING = (scenes.starting(scenes.NODES, 0), scenes.starting(scenes.NODES, 1, waited_s=12.0))
READY = (scenes.ready(scenes.NODES, 0), scenes.ready(scenes.NODES, 1))
SIZES = [(160, 48), (120, 40), (80, 24)]


def panel(scripts: dict[str, fakes.Script], *hosts: str) -> EagleApp:
    return EagleApp(*(hosts or ("gpu1",)), open_session=fakes.Hosts(scripts))


def session_of(pilot, host: str) -> fakes.FakeSession:
    return next(one for one in reversed(pilot.app.open_session.sessions) if one.host == host)


def line_with(pilot, *texts: str) -> str:
    found = [line for line in screen_text(pilot.app).splitlines() if all(text in line for text in texts)]
    assert found, screen_text(pilot.app)
    return found[0]


@pytest.mark.parametrize("size", SIZES)
async def test_a_panel_of_one_host_opens_the_other_and_shows_them_as_one_server(size):
    async with panel(scenes.scripts(scenes.NODES, *STARTING)).run_test(size=size) as pilot:
        await shows(pilot, "◐ STARTING", "kimi-k2.5-tp16", "gpu1 TP0–7", "▲gpu2 TP8–15", "26.0", "21.3")
        await shows(pilot, "gpu2 is late: 0:59 behind gpu1; all 16 ranks wait for it", "✓ every member is alive")
        await shows(pilot, "◌ rank 0 is ready", "Log ──", "S stop all 2", "m member")
        assert [one.host for one in pilot.app.open_session.sessions] == ["gpu1", "gpu2"]


async def test_the_phase_table_has_a_column_a_member():
    async with panel(scenes.scripts(scenes.NODES, *STARTING)).run_test(size=(160, 48)) as pilot:
        await shows(pilot, "is late")
        assert line_with(pilot, "phase ", "usual").split()[:4] == ["phase", "gpu1", "gpu2", "usual"]
        for phase, *took in (
            ("✓ distributed init", "0:41", "0:12", "0:09"),
            ("◐ load weights", "5:16", "5:16", "8:46"),
            ("· memory pool", "–", "–", "0:03"),
        ):
            assert line_with(pilot, phase).split(phase)[1].split()[:3] == took
        assert "·" not in line_with(pilot, "rank 1", "gpu2", "7c31d0-1").split("no fatal line")[0]  # nothing is amiss
        assert "only rank 0's health counts" in line_with(pilot, "rank 0", "gpu1", "7c31d0-0")
        assert "not asked: its /health is 200 whatever it does" in line_with(pilot, "rank 1", "gpu2")


@pytest.mark.parametrize("size", SIZES)
async def test_ready_is_the_groups_and_not_a_members(size):
    states = (STARTING[0], scenes.ready(scenes.NODES, 1))
    async with panel(scenes.scripts(scenes.NODES, *states)).run_test(size=size) as pilot:
        await shows(pilot, "STARTING", "◌ rank 0 is ready", "✓ every member is alive")
        await until(pilot, lambda: "READY" not in screen_text(pilot.app))
        session_of(pilot, "gpu1").update_queue.put_nowait(RunUpdate(READY[0], settled=True))
        await shows(pilot, "● READY", "✓ rank 0 is ready")
        await until(pilot, lambda: "STARTING" not in screen_text(pilot.app))


async def test_each_host_is_sampled_once_and_each_run_watched_once(monkeypatch):
    streams = Counter()
    for name in ("gpus", "watch", "link"):
        was = getattr(fakes.FakeSession, name)

        def counted(self, *args, _was=was, _name=name, **options):
            streams[self.host, _name] += 1
            return _was(self, *args, **options)

        monkeypatch.setattr(fakes.FakeSession, name, counted)
    async with panel(scenes.scripts(scenes.NODES, *READY)).run_test(size=(160, 48)) as pilot:
        await shows(pilot, "● READY", "gpu2 TP8–15")
        await pilot.press("m", "m", "m", "2", "1")
        await shows(pilot, "✓ rank 0 is ready")
    assert set(streams.values()) == {1}
    assert len(streams) == 6


async def test_logs_of_all_members_are_merged_by_their_times():
    async with panel(scenes.scripts(scenes.NODES, *READY)).run_test(size=(160, 48)) as pilot:
        await shows(pilot, "● READY", "gpu2 TP8–15")
        text = screen_text(pilot.app).split("Log ──")[1].splitlines()[1:-3]
        lines = [line for line in text if "gpu1" in line or "gpu2" in line]
        assert {"gpu1", "gpu2"} == {line[11:16].strip() for line in lines}
        stamps = [line[2:11].strip() for line in lines if line[2:11].strip()]
        assert stamps == sorted(stamps)
        assert "8 ranks" in line_with(pilot, "gpu2", "Load weight begin")


async def test_m_goes_through_the_members_and_back_to_the_whole():
    async with panel(scenes.scripts(scenes.NODES, *READY)).run_test(size=(160, 48)) as pilot:
        await shows(pilot, "● READY", "group 7c31d0")
        await pilot.press("m")
        await shows(pilot, "rank 0 of 2 members m", "run 7c31d0-0", "gpu1  ● link")
        await pilot.press("m")
        await shows(pilot, "rank 1 of 2 members m", "run 7c31d0-1", "gpu2  ● link")
        await pilot.press("m")
        await shows(pilot, "group 7c31d0", "gpu1 + gpu2")


async def test_m_on_the_logs_is_the_log_of_the_next_member_and_1_the_whole():
    async with panel(scenes.scripts(scenes.NODES, *READY)).run_test(size=(160, 48)) as pilot:
        await shows(pilot, "● READY", "gpu2 TP8–15")
        await pilot.press("enter")  # the log of the member that serves
        await shows(pilot, "run 7c31d0-0", "m member", "ranks   ✓all")
        await pilot.press("m")
        await shows(pilot, "run 7c31d0-1", "gpu2  ● link")
        await pilot.press("m")
        await shows(pilot, "run 7c31d0-0")
        await pilot.press("1")
        await shows(pilot, "group 7c31d0", "gpu1 + gpu2")


async def test_m_without_a_group_says_so_and_is_not_offered():
    async with panel({"gpu1": fakes.scene("ready")}).run_test(size=(160, 48)) as pilot:
        await shows(pilot, "● READY")
        await pilot.press("m")
        await until(pilot, lambda: any("not one of a group" in note.message for note in pilot.app._notifications))
        await pilot.press("question_mark")
        await shows(pilot, "Keys", "search")
        assert "Of a group" not in screen_text(pilot.app)


@pytest.mark.parametrize("size", SIZES)
async def test_s_asks_about_all_members_and_stops_rank_0_first(size):
    async with panel(scenes.scripts(scenes.NODES, *READY)).run_test(size=size) as pilot:
        await shows(pilot, "● READY", "gpu2 TP8–15")
        await pilot.press("S")
        await shows(pilot, "Stop all 2 members on gpu1 and gpu2?", "rank 0", "gpu2 · PID 49213", "Yes, stop all")
        await pilot.press("escape")
        assert not any(session.stopped for session in pilot.app.open_session.sessions)
        await pilot.press("S")
        await shows(pilot, "Stop all 2 members")
        await pilot.press("tab", "enter")
        await until(pilot, lambda: session_of(pilot, "gpu1").stopped)
        ended = [replace(state.run, state=fakes.RunState.EXITED, exit_code=0, stopped_by_us=True) for state in READY]
        for host, run in zip(("gpu1", "gpu2"), ended, strict=True):
            session_of(pilot, host).known_runs = (run,)
        await until(pilot, lambda: any("all members have stopped" in n.message for n in pilot.app._notifications))


async def test_s_on_a_members_own_dashboard_is_about_the_whole_group():
    async with panel(scenes.scripts(scenes.NODES, *READY)).run_test(size=(160, 48)) as pilot:
        await shows(pilot, "● READY", "gpu2 TP8–15")
        await pilot.press("m", "m")
        await shows(pilot, "rank 1 of 2 members")
        await pilot.press("S")
        await shows(pilot, "Stop all 2 members on gpu1 and gpu2?")


@pytest.mark.parametrize("size", SIZES)
async def test_the_member_that_ended_is_named_and_enter_opens_its_report(size):
    states = (STARTING[0], scenes.crashed(scenes.NODES, 1))
    async with panel(scenes.scripts(scenes.NODES, *states)).run_test(size=size) as pilot:
        await shows(pilot, "✗ CRASHED", "rank 1 on gpu2 ended first: The KV pool has no room", "a apply and relaunch")
        await pilot.press("enter")
        await shows(pilot, "RuntimeError: Not enough memory. Please try to increase")
        await pilot.press("m")
        await shows(pilot, "rank 1 on gpu2 ended first")


async def test_a_applies_what_the_member_that_ended_suggests():
    states = (STARTING[0], scenes.crashed(scenes.NODES, 1))
    async with panel(scenes.scripts(scenes.NODES, *states)).run_test(size=(160, 48)) as pilot:
        await shows(pilot, "✗ CRASHED", "a apply and relaunch")
        await pilot.press("a")
        await shows(pilot, "◌ LAUNCH   kimi-k2.5-tp16", "mem-fraction-static=0.88")


async def test_what_is_left_of_a_dead_group_is_stopped():
    states = (STARTING[0], scenes.crashed(scenes.NODES, 1))
    async with panel(scenes.scripts(scenes.NODES, *states)).run_test(size=(160, 48)) as pilot:
        await shows(pilot, "✗ CRASHED")
        await until(pilot, lambda: any("er_main stop" in text for text in session_of(pilot, "gpu1").transport.scripts))


async def test_a_lost_link_makes_a_member_unknown_and_not_dead():
    async with panel(scenes.scripts(scenes.NODES, *READY)).run_test(size=(160, 48)) as pilot:
        await shows(pilot, "● READY", "gpu2 TP8–15")
        session_of(pilot, "gpu2").say_link(LinkState.LOST)
        await shows(pilot, "? UNKNOWN  kimi-k2.5-tp16", "rank 1 on gpu2: the link is lost; unknown, not dead")
        await shows(pilot, "1 of 2 linked")
        assert not session_of(pilot, "gpu1").transport.scripts
        session_of(pilot, "gpu2").say_link(LinkState.UP)
        await shows(pilot, "● READY")


async def test_a_host_that_is_not_reached_holds_up_nobody_and_its_member_is_unknown():
    async def fail(session):
        error = HostError("No route to host", "is it switched on?")
        session.say_link(LinkState.LOST, last_byte_at=None, error=error)
        raise error

    scripts = scenes.scripts(scenes.NODES, *READY)
    scripts["gpu2"] = fakes.Script(on_open=fail, link_states=(LinkState.CONNECTING,))
    async with panel(scripts).run_test(size=(160, 48)) as pilot:
        await shows(pilot, "? UNKNOWN", "1 of 2 linked", "not connected", "▲ gpu2: No route to host")
        assert "● READY" in line_with(pilot, "rank 0", "gpu1", "7c31d0-0")
        await shows(pilot, "rank 1     gpu2  ? not seen yet")


async def test_the_bell_rings_once_for_the_whole():
    app, rings = panel(scenes.scripts(scenes.NODES, STARTING[0], STARTING[1])), []
    app._bell, app.bell = True, lambda: rings.append(app.group.outcome if app.group else None)
    async with app.run_test(size=(160, 48)) as pilot:
        await shows(pilot, "is late", "✓ every member is alive")
        session_of(pilot, "gpu2").update_queue.put_nowait(RunUpdate(READY[1], settled=True))
        await until(pilot, lambda: app.hosts[1].board.state.outcome is Outcome.READY)
        session_of(pilot, "gpu1").update_queue.put_nowait(RunUpdate(READY[0], settled=True))
        await until(pilot, lambda: rings)
        await shows(pilot, "● READY")
    assert rings == [Outcome.READY]


async def test_quitting_says_once_what_keeps_running():
    app = panel(scenes.scripts(scenes.NODES, *READY))
    async with app.run_test(size=(160, 48)) as pilot:
        await shows(pilot, "● READY", "gpu2 TP8–15")
        said = app.farewell()
    assert said == "kimi-k2.5-tp16 keeps running on gpu1, gpu2 (group 7c31d0). eagletui gpu1 shows it again."


async def test_a_look_at_a_profile_of_other_hosts_opens_none_of_them(tmp_path):
    own = fakes.profiles_in(tmp_path / "own")
    (own / "aa-two.toml").write_text('kind = "launch"\nextends = "base"\n[nodes]\nhosts = ["gpu1", "gpu9"]\n')
    app = EagleApp("gpu1", open_session=fakes.Hosts(fakes.scene("idle")), profiles_dir=own)
    async with app.run_test(size=(160, 48)) as pilot:
        await shows(pilot, "No server runs here.")
        await pilot.press("3", "g")
        await shows(pilot, "aa-two", "gpu9: not open here", "Enter opens what is missing and looks")
        assert [host.board.host for host in app.hosts] == ["gpu1"]
        await pilot.press("enter")
        await shows(pilot, "on gpu1 and gpu9")
        await until(pilot, lambda: [host.board.host for host in app.hosts] == ["gpu1", "gpu9"])


# -- who is late ------------------------------------------------------------------------------------------------------


def loading(*used_gib: float, took_s: float = 300.0) -> OpenGroup:
    """Members in the middle of their weights, each with so much on every GPU."""
    boards = {}
    for at, gib in enumerate(used_gib):
        state = scenes.starting(scenes.NODES, at)
        took = {**state.phase_took_s, Phase.LOAD_WEIGHTS: took_s}
        boards[f"gpu{at + 1}"] = group_board(f"gpu{at + 1}", at, replace(state, phase_took_s=took))
        boards[f"gpu{at + 1}"].take_sample(fakes.GpuSample(0.0, fakes.gpus(gib, straggler=None), "nvml"))
    return OpenGroup(scenes.NODES, lambda member: boards[member.host])


@pytest.mark.parametrize(
    ("used_gib", "late"),
    [
        ((31.1, 21.1), ("gpu2 is late:", "1:40 behind gpu1; all 16 ranks wait for it")),
        ((21.1, 31.1), ("gpu1 is late:", "1:40 behind gpu2; all 16 ranks wait for it")),
        ((31.1, 28.5), None),  # nine tenths is not late
        ((2.5, 1.2), None),  # they have only begun
    ],
)
def test_a_member_is_late_by_the_memory_of_its_gpus_at_the_pace_of_the_other(used_gib, late):
    assert loading(*used_gib).late() == late


def test_a_member_without_figures_is_not_late():
    opened = loading(31.1, 21.1)
    opened.board_of(scenes.NODES.members[1]).sample = None
    assert opened.late() is None


# -- roles ------------------------------------------------------------------------------------------------------------


async def test_roles_stand_side_by_side_with_figures_of_their_own():
    states = tuple(scenes.ready(scenes.PD, at) for at in range(3))
    async with panel(scenes.scripts(scenes.PD, *states)).run_test(size=(160, 48)) as pilot:
        await shows(pilot, "● READY  run a40c77-0", "● READY  run a40c77-1", "● READY  run a40c77-2", "ready means")
        assert line_with(pilot, "Prefill 0 ──", "Decode 0 ──", "Router ──").count("port") == 3
        assert line_with(pilot, "accept length  ").count("2.31") == 2
        assert "Stop order: router, prefill, decode" in screen_text(pilot.app)
        await pilot.press("S")
        await shows(pilot, "Stop all 3 members on gpu1 and gpu2?")


async def test_a_second_member_on_a_host_is_watched_beside_the_displayed_one_and_m_shows_it():
    states = tuple(scenes.ready(scenes.PD, at) for at in range(3))
    async with panel(scenes.scripts(scenes.PD, *states)).run_test(size=(160, 48)) as pilot:
        await shows(pilot, "run a40c77-2")
        await pilot.press("m", "m", "m")
        await shows(pilot, "router of 3 members m", "run a40c77-2")
        await pilot.press("m")
        await shows(pilot, "Prefill 0 ──", "run a40c77-0")


# -- the overview -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [(160, 48), (80, 24)])
async def test_the_overview_counts_a_group_as_one_server_over_its_hosts(size):
    scripts = scenes.scripts(scenes.NODES, STARTING[0], scenes.ready(scenes.NODES, 1)) | {"gpu3": fakes.scene("ready")}
    async with panel(scripts, "gpu1", "gpu2", "gpu3").run_test(size=size) as pilot:
        await shows(pilot, "◐ 1 starting · ● 1 ready")
        await until(pilot, lambda: screen_text(pilot.app).count("STARTING") == 2)
        await pilot.press("j", "enter")
        await shows(pilot, "group 7c31d0" if size[0] > 100 else "gpu1+gpu2", "STARTING")


@pytest.mark.parametrize("size", [(160, 48), (80, 24)])
async def test_the_overview_has_one_eta_for_one_start(size):
    etas = (100.0, 400.0)  # as each host's own history says
    states = [replace(state, eta_s=eta) for state, eta in zip(STARTING, etas, strict=True)]
    scripts = scenes.scripts(scenes.NODES, *states)
    async with panel(scripts, "gpu1", "gpu2").run_test(size=size) as pilot:
        await until(pilot, lambda: screen_text(pilot.app).count("1:40") == 2)
        assert "6:40" not in screen_text(pilot.app)


def group_board(host: str, at: int, state) -> Board:
    session = fakes.FakeSession(host, None, fakes.Script())
    session.say_link(LinkState.UP)
    board = Board(host, link=session.transport.last, state=state, group=scenes.NODES)
    board.run = scenes.run_of(scenes.NODES, at)
    return board


def test_a_follower_that_is_up_is_no_news_of_its_own():
    boards = [group_board("gpu1", 0, STARTING[0]), group_board("gpu2", 1, READY[1])]
    assert not [event for event in newest(boards, 10) if event.glyph == "●"]
    assert servers(boards) == boards[:1]
    assert servers(boards[::-1]) == boards[:1]  # the serving one speaks for all


def test_the_badge_of_a_member_is_the_groups():
    board = group_board("gpu2", 1, READY[1])
    opened = OpenGroup(scenes.NODES, lambda _: board)
    assert opened.outcome is Outcome.STARTING
    assert badge_of(board).word == "READY"  # nothing is known of the whole
    board.group_state = _state(Outcome.STARTING)
    assert badge_of(board).word == "STARTING"


def _state(outcome: Outcome):
    from tui.core.groups.group_state import GroupState

    return GroupState(scenes.NODES, outcome, Phase.LOAD_WEIGHTS, ())


# -- measuring --------------------------------------------------------------------------------------------------------


@pytest.fixture
def bench_profiles(tmp_path):
    own = fakes.profiles_in(tmp_path / "own")
    (own / "users.toml").write_text('kind = "bench"\nconcurrency = [1]\nduration_s = 20\nruns = 2\n')
    nodes = 'kind = "launch"\nextends = "base"\n[nodes]\nhosts = ["gpu1", "gpu2"]\n'
    (own / "nodes.toml").write_text(nodes)
    (own / "pays.toml").write_text(
        'kind = "experiment"\nbench = "users"\npairs = 1\n[[arms]]\nprofile = "nodes"\n[[arms]]\nprofile = "base"\n'
    )
    return own


@pytest.mark.parametrize("presses", [(), ("m", "m")], ids=["from rank 0's host", "from rank 1's host"])
async def test_b_measures_a_group_over_two_hosts_from_any_of_them(bench_profiles, monkeypatch, presses):
    asked: list[tuple[str, str, list[str]]] = []
    going = asyncio.Event()

    async def measured(session, bench, measured, others):
        asked.append((session.entry.name, str(measured), sorted(others)))
        yield replace(bench_states.one_arm(), hosts=measured.group.hosts)
        await going.wait()
        yield bench_states.one_arm(finished=True)

    monkeypatch.setattr(one_bench, "measure_running", measured)
    scripts = scenes.scripts(scenes.NODES, *READY)
    app = EagleApp("gpu1", open_session=fakes.Hosts(scripts), profiles_dir=bench_profiles)
    async with app.run_test(size=(160, 48)) as pilot:
        await shows(pilot, "● READY", "gpu2 TP8–15", "✓ rank 0 is ready")
        await pilot.press(*presses)
        await until(pilot, lambda: not presses or app.board.host == "gpu2")
        await pilot.press("b")
        await shows(pilot, "Measure the running server", "group 7c31d0", "gpu1 + gpu2", "Enter  measure")
        await pilot.press("enter")
        await until(pilot, lambda: asked)
        assert asked == [("gpu1", scenes.GROUP_ID, ["gpu1", "gpu2"])]
        await shows(pilot, "◐ RUNNING", "S stop")
        # The bench screen of rank 1's host is the one where it is measured.
        app.show_mode("dashboard", app.hosts[1].board)
        await pilot.press("4")
        await shows(pilot, "◐ RUNNING")
        assert app.board.host == "gpu1"
        going.set()
        await until(pilot, lambda: not app.measure.under_way)


async def test_an_experiment_over_two_hosts_is_begun_where_its_first_arm_is_measured(bench_profiles, monkeypatch):
    made: list[tuple[list[str], object]] = []

    class Runner:
        def __init__(self, hosts, record, profile, launches, judge) -> None:
            made.append((sorted(hosts.sessions), record))

        async def states(self):
            yield replace(bench_states.running(), hosts=("gpu1", "gpu2"))
            await asyncio.Event().wait()

    async def looked(self, preview):
        return replace(preview, ahead=())

    monkeypatch.setattr(Measuring, "look_ahead", looked)
    monkeypatch.setattr(experiment, "ExperimentRunner", Runner)
    scripts = {"gpu1": fakes.scene("idle"), "gpu2": fakes.scene("idle")}
    app = EagleApp("gpu2", open_session=fakes.Hosts(scripts), profiles_dir=bench_profiles)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: app.board.connected)
        await pilot.press("4", "E")
        await shows(pilot, "Launch and measure alternately", "pays")
        await pilot.press("G")
        await shows(pilot, "hosts     gpu1, gpu2", "nodes · reference")
        await pilot.press("enter")
        await shows(pilot, "nothing is launched yet")
        await until(pilot, lambda: app.screen.preview.ahead is not None)
        await pilot.press("enter")
        await until(pilot, lambda: made)
        hosts, record = made[0]
        assert (hosts, record.host, record.all_hosts) == (["gpu1", "gpu2"], "gpu1", ("gpu1", "gpu2"))
        await shows(pilot, "◐ RUNNING", "gpu1  ● link")
        app.show_mode("dashboard", app.hosts[0].board)  # of gpu2
        await pilot.press("4")
        await shows(pilot, "◐ RUNNING", "gpu1  ● link")


# -- logs -------------------------------------------------------------------------------------------------------------


async def test_the_logs_of_members_on_other_hosts_are_offered_side_by_side():
    async with panel(scenes.scripts(scenes.NODES, *READY)).run_test(size=(160, 48)) as pilot:
        await shows(pilot, "● READY", "gpu2 TP8–15")
        (other,) = pilot.app.logs_beside()
        assert (other.name, other.source().name) == ("rank 1 gpu2", "run 7c31d0-1")
        await pilot.press("m", "m", "2", "|")
        await shows(pilot, "rank 0 gpu1")


# -- cost -------------------------------------------------------------------------------------------------------------


async def test_an_unchanged_tick_of_a_group_sends_nothing_and_a_changed_figure_only_itself():
    async with panel(scenes.scripts(scenes.NODES, *READY)).run_test(size=(160, 48)) as pilot:
        await shows(pilot, "● READY", "21.5")
        painted = pilot.app.screen.query_one(GroupPanel)
        painted.repaint()
        painted._exchange_repaint_regions()
        painted.repaint()
        assert sum(region.area for region in painted._exchange_repaint_regions()) < 40  # ages
        warm = fakes.gpus(87.6, straggler=None, util=95.0)
        pilot.app.hosts[1].board.take_sample(fakes.GpuSample(0.0, warm, "nvml"))
        painted.repaint()
        assert 0 < sum(region.area for region in painted._exchange_repaint_regions()) < 8 * 48 + 80
