"""The plan of an experiment on the screen: what it says at every size, and every key of it."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support import bench_states, fakes
from tests.support.driving import screen_text, shows, until
from tui.core.experiment import runner as experiment
from tui.core.experiment.ahead import ArmAhead
from tui.core.model.experiment import ExperimentState
from tui.panel.app import EagleApp
from tui.panel.bench_control import Measuring
from tui.panel.screens.bench_dialogs import ExperimentDialog
from tui.panel.screens.plan import Plan

EXPERIMENT = (
    'kind = "experiment"\nhypothesis = "drafts pay"\nbench = "users"\npairs = 3\n'
    '[[arms]]\nprofile = "base"\n[[arms]]\nprofile = "eagle"\nset = { mem-fraction-static = 0.9 }\n'
)


@pytest.fixture
def profiles(tmp_path: Path) -> Path:
    directory = fakes.profiles_in(tmp_path / "own")
    (directory / "users.toml").write_text('kind = "bench"\nconcurrency = [1, 4]\nduration_s = 20\nruns = 2\n')
    (directory / "random.toml").write_text('kind = "bench"\ndataset = "random-ids"\n')
    (directory / "pays.toml").write_text(EXPERIMENT)
    return directory


class Runner:
    """Takes the place of the real one."""

    made: "list[Runner]" = []  # noqa: RUF012

    def __init__(self, hosts, record, profile, launches, judge) -> None:
        self.record, self.profile, self.launches = record, profile, launches
        self.made.append(self)

    async def states(self):
        yield bench_states.running()
        yield bench_states.finished()


@pytest.fixture(autouse=True)
def no_host(monkeypatch):
    """The pre-flight finds nothing; nothing is launched."""
    Runner.made = []

    async def looked(self, preview):
        letters = preview.wanted.launches
        return replace(preview, ahead=tuple(ArmAhead(letter, "x", ("gpu1",), _Nothing()) for letter in letters))

    monkeypatch.setattr(Measuring, "look_ahead", looked)
    monkeypatch.setattr(experiment, "ExperimentRunner", Runner)


class _Nothing:
    """A plan of a launch that nothing is against."""

    findings = replaces = ()


async def on_plan(pilot, name: str = "pays") -> Plan:
    app = pilot.app
    await until(pilot, lambda: app.board.state is not None and app.board.connected)
    await pilot.press("4", "E")
    await until(pilot, lambda: isinstance(app.screen, ExperimentDialog))
    names = [entry.name for entry in app.screen.found]
    await pilot.press(*["j"] * ((names.index(name) - app.screen.at) % len(names)))
    await until(pilot, lambda: app.screen._preview is not None and app.screen._preview.profile.name == name)
    await pilot.press("enter")
    await until(pilot, lambda: isinstance(app.screen, Plan) and app.screen.preview.ahead is not None)
    await pilot.pause()
    return app.screen


def panel(profiles: Path) -> EagleApp:
    return EagleApp("gpu1", open_session=fakes.Hosts(fakes.scene("ready")), profiles_dir=profiles)


async def turned(pilot, key: str, *text: str) -> None:
    await pilot.press(key)
    await until(pilot, lambda: pilot.app.screen.has_class("-asks"))
    await pilot.press(*text, "enter")


async def test_it_says_what_is_asked_seen_and_launched_side_by_side(profiles):
    async with panel(profiles).run_test(size=(160, 48)) as pilot:
        await on_plan(pilot)
        await shows(
            pilot, "pays  plan · nothing is launched yet", "drafts pay", "~ mem-fraction-static", "order  ",
            "3 launch pairs", "What it can see", "no noise is known here yet", "eagletui bench aa",
            "start-ups are estimates", "of the time is start-up", "seconds a run", "no launch that would end later",
            "Before the first launch", "How it runs", "Enter  start now, until about", "p pairs", "B budget",
        )  # fmt: skip
        rows = [row for row in screen_text(pilot.app).splitlines() if "▆" in row]
        begins = [row.index("▆") for row in rows]
        assert len(rows) == 6
        assert begins == sorted(begins)
        head = screen_text(pilot.app).splitlines()[3]
        assert head.index("Question") < head.index("What it can see")


async def test_on_a_small_terminal_it_is_one_below_the_other_and_scrolls(profiles):
    async with panel(profiles).run_test(size=(80, 24)) as pilot:
        await on_plan(pilot)
        await shows(pilot, "Question", "drafts pay")
        assert "Launches" not in screen_text(pilot.app)
        await pilot.press("G")
        await shows(pilot, "How it runs", "start now")
        assert all(len(row) <= 80 for row in screen_text(pilot.app).splitlines())


@pytest.mark.parametrize(
    ("key", "text", "says", "option"),
    [
        ("p", "5", "5 launch pairs", "--pairs 5"),
        ("t", "30", "2 runs of 30 s", "--set duration_s=30"),
        ("r", "4", "4 runs of 20 s", "--set runs=4"),
        ("u", "2,8", "conc 2, conc 8", "--set 'concurrency=[2, 8]'"),
        ("w", "decode-bs1", "bench  decode-bs1", "--bench decode-bs1"),
        ("B", "2", "2 h", "--budget 2"),
    ],
)
async def test_each_knob_changes_the_plan_and_its_command(profiles, key, text, says, option):
    (profiles / "decode-bs1.toml").write_text('kind = "bench"\n')
    async with panel(profiles).run_test(size=(160, 48)) as pilot:
        screen = await on_plan(pilot)
        order = [one.arm for one in screen.preview.plan.launches]
        await turned(pilot, key, *(("comma" if char == "," else char) for char in text))
        await shows(pilot, says, option)
        later = [one.arm for one in screen.preview.plan.launches]
        assert later[:6] == order[: len(later)]  # who begins stays
        assert screen.preview.ahead is not None  # the arms are the same: nothing is asked again
        said, _ = screen.copied_text()
        assert said == f"eagletui experiment pays --host gpu1 {option} --seed {screen.preview.record.seed}"


async def test_a_value_that_is_none_changes_nothing(profiles):
    async with panel(profiles).run_test(size=(160, 48), notifications=True) as pilot:
        screen = await on_plan(pilot)
        before = screen.preview
        await turned(pilot, "p", "x")
        await shows(pilot, "x is not a value for launch pairs")
        await pilot.press("escape")
        await until(pilot, lambda: not screen.has_class("-asks"))
        await turned(pilot, "w", *"nowhere")
        await shows(pilot, 'there is no profile "nowhere"')
        assert screen.preview is before
        await turned(pilot, "p")  # nothing typed
        assert screen.preview is before


async def test_enter_starts_what_is_shown(profiles):
    async with panel(profiles).run_test(size=(160, 48)) as pilot:
        screen = await on_plan(pilot)
        await turned(pilot, "p", "2")
        await shows(pilot, "2 launch pairs")
        seed = screen.preview.record.seed
        await pilot.press("enter")
        await until(pilot, lambda: Runner.made)
        (made,) = Runner.made
        assert (made.record.seed, made.record.pairs, made.record.overrides.pairs) == (seed, 2, 2)
        assert made.launches["B"].args["mem-fraction-static"] == 0.9
        await until(pilot, lambda: isinstance(pilot.app.board.experiment, ExperimentState) or Runner.made)
        assert not isinstance(pilot.app.screen, Plan)


async def test_a_plan_that_can_give_no_verdict_is_not_started(profiles):
    async with panel(profiles).run_test(size=(160, 48), notifications=True) as pilot:
        await on_plan(pilot)
        await turned(pilot, "w", *"random")
        await shows(pilot, "✗ draft", "random token ids", "Enter starts nothing", "1 blocking")
        assert not re.search(r"Enter +start\b", screen_text(pilot.app))
        await pilot.press("enter")
        await shows(pilot, "Nothing is started: arm B: draft")
        assert not Runner.made
        assert isinstance(pilot.app.screen, Plan)


async def test_esc_goes_back_and_y_copies(profiles, monkeypatch):
    copied = []
    monkeypatch.setattr(EagleApp, "copy_text", lambda self, text, what: copied.append((text, what)))
    async with panel(profiles).run_test(size=(120, 40)) as pilot:
        screen = await on_plan(pilot)
        await pilot.press("y")
        await until(pilot, lambda: copied)
        assert copied == [(f"eagletui experiment pays --host gpu1 --seed {screen.preview.record.seed}", "command")]
        await pilot.press("escape")
        await until(pilot, lambda: not isinstance(pilot.app.screen, Plan))
        assert not Runner.made
