"""The bench screen from frozen states: what it shows at every size, what its keys do, what is stored."""

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest

from tests.support import bench_states, fakes
from tests.support.driving import screen_text, shows, until
from tui.core.errors import UsageError
from tui.core.experiment import history, one_bench
from tui.core.experiment import runner as experiment
from tui.core.experiment.history import Baseline
from tui.core.model.experiment import ArmStatus, ExperimentState
from tui.core.model.profile import LoadPoint
from tui.core.model.verdict import VerdictKind
from tui.core.results import store
from tui.core.sglang.diagnosis import Diagnosis
from tui.panel.app import EagleApp
from tui.panel.bench_control import Measuring
from tui.panel.bench_view import compare
from tui.panel.screens.bench_details import verdict_rows
from tui.panel.screens.bench_dialogs import BenchDialog, ExperimentDialog, bench_warnings
from tui.panel.screens.dialog import Ask, Confirm, Facts
from tui.panel.screens.plan import Plan
from tui.panel.widgets.bench.arm_card import ratio_color
from tui.panel.widgets.rows import plain

SIZES = [(160, 48), (120, 36), (80, 24)]
STATES = ("running", "launching", "failed", "finished", "undecided", "one_arm", "hostile", "searching")


def panel(profiles: Path | None = None, scene: str = "ready", **more: object) -> EagleApp:
    return EagleApp("gpu1", open_session=fakes.Hosts(fakes.scene(scene)), profiles_dir=profiles, **more)


@pytest.fixture
def profiles(tmp_path: Path) -> Path:
    directory = fakes.profiles_in(tmp_path / "own")
    (directory / "users.toml").write_text(
        'kind = "bench"\ndescription = "one user and four"\nconcurrency = [1, 4]\nduration_s = 20\nruns = 2\n'
    )
    (directory / "random.toml").write_text('kind = "bench"\ndataset = "random-ids"\n')
    (directory / "pays.toml").write_text(
        'kind = "experiment"\nhypothesis = "drafts pay"\nbench = "users"\npairs = 2\n'
        '[[arms]]\nprofile = "base"\n[[arms]]\nprofile = "eagle"\nset = { mem-fraction-static = 0.9 }\n'
    )
    return directory


def stored_is_read(app: EagleApp) -> bool:
    """Whether nothing that is read from the disk will still replace what a test puts onto the board."""
    return all(worker.is_finished for worker in app.workers if worker.group.startswith("stored"))


async def on_bench(pilot, state: ExperimentState | None) -> None:
    """The bench screen with this state on the board."""
    app = pilot.app
    await until(pilot, lambda: app.board.state is not None and app.board.connected)
    await pilot.press("4")
    await until(pilot, lambda: app.screen.NAME == "Bench")
    app.board.experiment = state
    app.screen.update()
    await pilot.pause()
    app.screen.update()
    await pilot.pause()


# -- what is shown -----------------------------------------------------------------------------------------------------


async def test_four_arms_side_by_side_with_all_that_decides():
    async with panel().run_test(size=(160, 48)) as pilot:
        await on_bench(pilot, bench_states.running())
        text = screen_text(pilot.app)
        for said in (
            "graphs-and-eagle3", "does a smaller graph range help", "launch 12 of 12 · run 2 of 3 · about 3 min left",
            "concurrency 1 · steady 60 s × 3 runs × 3 launches · order ABCD DCBA ABCD · workload prompts, temperature 0",
            "cuda-graph-max-bs = 512", "✓ DONE", "◐ RUNNING", "1.09×", "0.81×", "of B so far", "✓ BEST", "reference",
            "9 of 9 runs", "7 of 9 runs", "2.31", "32.0 ms", "11.17 ms", "214 ms", "1.82 kW", "88.4 GiB", "✓ 9 of 9 valid",
            "now  73.4 tok/s",
            "↑ B is 9.1 % faster than A   (95 % CI 7.5 … 10.8, 3 launch pairs, paired ABBA)   82.0 → 89.5 tok/s",
            "◐ D against B: 3 launch pairs needed for a verdict, 2 measured. So far 18.1 % lower: screening only",
            "host noise floor ±0.6 %", "Every run", "tok/s, one row per launch",
            "Does speculation pay?", "C from 2.87", "D from 3.19", "↑ pays", "↓ loses", "C can reach 4.0 at best",
            "short by 0.56", "▲ Both lose. D pays at 74 % acceptance per draft token; it has 65 %.",
        ):  # fmt: skip
            assert said in text, said
        assert text.count("L2") == 5  # three cards and two verdicts; D has none yet
        assert [len(row) for row in text.split("\n")] == [160] * 48


@pytest.mark.parametrize("size", SIZES)
async def test_many_arms_are_a_table_that_says_why(size):
    async with panel().run_test(size=size) as pilot:
        await on_bench(pilot, bench_states.campaign())
        text = screen_text(pilot.app)
        for said in (
            "rung 1 ●B ✗F ●A ●D ●C ✗E",
            "fresh pairs ●A ●B ●B ●A",
            "↑ best, confirmed",
            "↓ left behind",
            "✗ nccl",
            "ref",
        ):
            assert said in text, said
        assert "Every run" not in text  # dots of so many arms say nothing
        if size[0] >= 120:
            assert "NCCL_ALGO is set" in text
        else:
            while pilot.app.screen.selected != "E":
                await pilot.press("right")
            await pilot.pause()
            assert "E  NCCL_ALGO is set" in screen_text(pilot.app)


async def test_a_screening_under_way_promises_no_verdict():
    state = replace(bench_states.campaign(), finalist=None, finished=False, verdicts=())
    async with panel().run_test(size=(160, 48)) as pilot:
        await on_bench(pilot, state)
        text = screen_text(pilot.app)
        assert "A screening gives no verdict: its best is confirmed or refuted on fresh launch pairs with A" in text
        assert "screening, rung 1" in text


async def test_every_run_is_a_dot_and_what_does_not_count_a_cross():
    async with panel().run_test(size=(160, 48)) as pilot:
        await on_bench(pilot, bench_states.failed())
        rows = screen_text(pilot.app).split("\n")
        dots = next(row for row in rows if "9 of 9 runs" in row)
        assert dots.count("●") == 9 + 8
        assert dots.count("✗") == 1
        title = next(i for i, row in enumerate(rows) if row.startswith(" Every run"))
        plot = "\n".join(rows[title:])
        assert plot.count("●") == 9 + 8
        assert plot.count("✗") == 1


@pytest.mark.parametrize("size", SIZES)
async def test_the_guard_that_failed_is_told_in_its_own_words(size):
    async with panel().run_test(size=size) as pilot:
        await on_bench(pilot, bench_states.failed())
        await pilot.press("right")
        await shows(pilot, "✗ B run 2 of launch 2 does not count: 3.1 % of the prompt tokens came from", "limit 1 %")
        await shows(pilot, "C: no result", "oom_kv_pool", "8 of 9 valid" if size[0] > 100 else "8/9")


async def test_an_unfinished_pair_shows_no_ratio():
    state = bench_states.launching()
    views = {view.letter: view for view in compare(state).arms}
    assert views["B"].ratio is not None
    assert views["B"].so_far
    assert views["D"].ratio is None
    assert views["D"].level is None
    async with panel().run_test(size=(160, 48)) as pilot:
        await on_bench(pilot, state)
        await shows(pilot, "◐ STARTING", "no pair with B yet", "of A so far", "◐ launching B, load weights 41/64")
        assert "D against B: 3 launch pairs needed for a verdict, 0 measured" in screen_text(pilot.app)


def test_a_ratio_so_far_is_that_of_the_complete_pairs_alone():
    state = bench_states.running()
    d = compare(state).arm("D")
    assert d is not None
    assert d.pairs == 2
    third = bench_states.running(
        arms=(*state.arms[:3], replace(state.arms[3], results=(*state.arms[3].results, bench_states.result("D", 3, 2, 9.9))))
    )  # fmt: skip
    assert compare(third).arm("D").ratio == d.ratio


def test_a_verdict_on_the_way_is_no_level():
    waiting = replace(
        bench_states.B_FASTER, verdict=VerdictKind.INDISTINCT, n_pairs=2, ci=None, level="L1", text="B against A: not yet (2 of 3)"
    )  # fmt: skip
    view = compare(bench_states.running(verdicts=(waiting,))).arm("B")
    assert view.so_far
    assert view.level is None
    done = compare(bench_states.finished()).arm("B")
    assert not done.so_far
    assert done.level == "L2"


@pytest.mark.parametrize(
    ("kind", "glyph", "said"),
    [
        (VerdictKind.INDISTINCT, "≈", "A and B: not distinguishable (−0.4 … +1.1 %, 3 pairs). To see 1 % you need 5 pairs"),
        (VerdictKind.EQUIVALENT, "≡", "A and B: equivalent within 2 % (−0.4 … +1.1 %, 3 pairs)"),
    ],
)  # fmt: skip
async def test_what_is_not_told_apart_is_no_winner(kind, glyph, said):
    async with panel().run_test(size=(160, 48)) as pilot:
        await on_bench(pilot, bench_states.undecided(kind))
        await shows(pilot, f"{glyph} {said}", "1.00×")
        assert "BEST" not in screen_text(pilot.app)


async def test_a_screening_is_no_winner_and_has_no_colour_of_one():
    screened = bench_states.finished(
        arms=(bench_states.arm("A"), bench_states.arm("B")), verdicts=(bench_states.LOOKS_FASTER,)
    )
    assert ratio_color(compare(screened).arm("B")) == "text"
    assert ratio_color(compare(bench_states.finished()).arm("B")) == "ok"
    assert ratio_color(compare(bench_states.finished()).arm("C")) == "warn"
    assert ratio_color(compare(bench_states.launching()).arm("B")) == "text"  # so far
    async with panel().run_test(size=(160, 48)) as pilot:
        await on_bench(pilot, screened)
        await shows(pilot, "↗ B looks 9.1 % faster than A", "82.0 → 89.5 tok/s", "1.09×")
        assert "BEST" not in screen_text(pilot.app)


@pytest.mark.parametrize("name", STATES)
@pytest.mark.parametrize("theme", ["dark", "light"])
async def test_it_is_drawn_at_every_size(name, theme):
    async with panel(theme=theme).run_test(size=(160, 48)) as pilot:
        await on_bench(pilot, getattr(bench_states, name)())
        sizes = (*SIZES, (200, 60), (100, 30), (80, 60), (40, 12), (20, 5))
        for size in sizes if theme == "dark" else SIZES[1:2]:  # colours move nothing
            await pilot.resize_terminal(*size)
            await until(pilot, lambda size=size: len(screen_text(pilot.app).split("\n")) == size[1])
            for _ in range(3):  # each plot in its turn
                await pilot.press("p")
                pilot.app.screen.update()
            rows = screen_text(pilot.app).split("\n")
            assert all(len(row) <= size[0] for row in rows)
            if size in SIZES:
                assert "link" in rows[0] or "●" in rows[0]
                assert "q quit" in rows[-1]
                for arm in pilot.app.board.experiment.arms:
                    assert any(re.search(rf"(^|[ ▌]){arm.letter} ", row) for row in rows[3:20]), arm.letter


@pytest.mark.parametrize("size", SIZES)
async def test_text_of_a_host_does_no_harm(size):
    async with panel().run_test(size=size) as pilot:
        await on_bench(pilot, bench_states.hostile())
        text = screen_text(pilot.app)
        assert not any(ord(char) < 32 and char != "\n" for char in text)
        assert "\u202e" not in text
        await pilot.press("v")
        await until(pilot, lambda: isinstance(pilot.app.screen, Facts))
        await pilot.press("escape", "enter")
        await until(pilot, lambda: isinstance(pilot.app.screen, Facts))
        assert "\x1b" not in screen_text(pilot.app)


async def test_words_are_not_cut_in_the_middle_on_a_small_screen():
    async with panel().run_test(size=(80, 24)) as pilot:
        await on_bench(pilot, bench_states.running())
        await shows(
            pilot, "cuda-graph-max-bs = 512", "speculative-num-steps = 5", "↑ B is 9.1 % faster than A", "✓ 9/9", "0.82×",
            "kimi-k2.5-eagle3 · speculative-num-steps = 5", "now 73.4 tok/s", "◐ D against B: 3 launch pairs needed for a verdict",
        )  # fmt: skip
        await pilot.press("p")
        await shows(pilot, "Does speculation pay?", "▲ Both lose.")
        await pilot.press("p")
        await shows(pilot, "Now, tok/s")


async def test_one_arm_shows_its_loads_and_no_ratio():
    two = LoadPoint(concurrency=4)
    state = bench_states.one_arm(bench=replace(bench_states.BENCH, points=(bench_states.ONE, two)))
    async with panel().run_test(size=(160, 48)) as pilot:
        await on_bench(pilot, state)
        await shows(
            pilot,
            "Loads",
            "users",
            "One configuration, nothing to compare it with",
            "Now, tok/s",
            "concurrency 1 4 [ ]",
        )
        assert "×" not in screen_text(pilot.app).split("Verdict")[0].split("Loads")[1]
        await pilot.press("]")
        await until(pilot, lambda: pilot.app.screen.comparison.point == two)
        await pilot.press("]")
        await until(pilot, lambda: pilot.app.screen.comparison.point == bench_states.ONE)


async def test_the_screen_goes_with_the_load_that_is_measured():
    two = LoadPoint(concurrency=4)
    bench = replace(bench_states.BENCH, points=(bench_states.ONE, two))
    state = bench_states.one_arm(bench=bench)
    async with panel().run_test(size=(160, 48)) as pilot:
        await on_bench(pilot, state)
        assert pilot.app.screen.comparison.point == bench_states.ONE
        arm = state.arms[0]
        later = replace(state, arms=(replace(arm, live=replace(arm.live, point=two)),))
        await on_bench(pilot, later)
        assert pilot.app.screen.comparison.point == two
        await on_bench(pilot, replace(later, arms=(replace(arm, live=None),)))
        assert pilot.app.screen.comparison.point == two  # between two runs it does not jump back


@pytest.mark.parametrize("size", SIZES)
async def test_a_search_shows_its_curve_and_the_knee(size):
    said = "A holds 6 users at once, not 7"
    async with panel().run_test(size=size) as pilot:
        await on_bench(pilot, bench_states.searching(over=False))
        await shows(pilot, "◐ 4 users at once: window; 2 held so far", "What load does it hold?", "search 1 of 1 at 4")
        await on_bench(pilot, bench_states.searching(over=True))
        await shows(pilot, said, "95 %", "highest concurrency 1 … 64", "95 % of replies within")
        rows = screen_text(pilot.app).split("\n")
        plot = rows[next(i for i, row in enumerate(rows) if "What load does it hold?" in row) :]
        assert "\n".join(plot).count("◆") == 1
        assert [load for load in ("1", "2", "4", "6", "8") if load in plot[-3].split("  ")]
        if size == (160, 48):
            await shows(pilot, "◆ 6", "98.0 %", "9.80", "✓ holds", "✗ fails, just", "users")
        await pilot.press("enter")
        await shows(pilot, "holds 6 users at once, not 7")


def test_two_searches_have_two_lines_and_no_economics():
    state = bench_states.searching(over=True)
    spec = bench_states.arm("C", against="A", results=bench_states.searched("C", {1: 100, 8: 99, 9: 10}))
    found = compare(replace(state, arms=(*state.arms, spec)))
    assert [view.tok_s for view in found.arms] == pytest.approx([6, 8])
    assert [(view.knee, len(view.loads)) for view in found.arms] == [(6, 6), (8, 3)]
    assert not found.economics


async def test_the_dialog_of_a_search_says_how_much_it_measures_at_most(profiles):
    (profiles / "aaa.toml").write_text(
        'kind = "bench"\nslo = { ttft_ms = 500 }\nconcurrency = [2, 64]\nduration_s = 30\nruns = 2\n'
    )
    async with panel(profiles).run_test(size=(120, 36)) as pilot:
        await until(pilot, lambda: pilot.app.board.state is not None)
        await pilot.press("b")
        await until(pilot, lambda: isinstance(pilot.app.screen, BenchDialog))
        await pilot.press("g")
        await shows(
            pilot, "highest concurrency from 2 to 64", "95 % of replies within TTFT 500 ms",
            "2 searches of at most 11 loads, 30 to 150 s each, at most 1 h 06 min in all",
        )  # fmt: skip


async def test_an_empty_screen_says_which_keys_fill_it():
    async with panel().run_test(size=(120, 36)) as pilot:
        await on_bench(pilot, None)
        await shows(
            pilot, "nothing was measured on gpu1", "b  measures kimi-k2.5-eagle3-mem088", "E  opens an experiment"
        )
    async with panel(scene="idle").run_test(size=(120, 36)) as pilot:
        await until(pilot, lambda: pilot.app.board.connected)
        await pilot.press("4")
        await shows(pilot, "l  launches a server; once it is ready, b measures it")


async def test_an_unchanged_state_sends_nothing():
    async with panel().run_test(size=(160, 48)) as pilot:
        await on_bench(pilot, bench_states.running())
        widgets = [
            pilot.app.screen.query_one(f"#{name}") for name in ("arms", "verdicts", "rundots", "economics", "benchhead")
        ]
        for widget in widgets:
            widget._exchange_repaint_regions()
        pilot.app.screen.update()
        assert not any(widget._exchange_repaint_regions() for widget in widgets)


async def test_without_unicode_every_cell_is_ascii(monkeypatch):
    from tui.panel.widgets import paint

    monkeypatch.setenv("LANG", "de_DE.ISO-8859-1")
    paint.plain_terminal.cache_clear()
    try:
        async with panel().run_test(size=(160, 48)) as pilot:
            await on_bench(pilot, bench_states.running())
            text = screen_text(pilot.app)
            assert "9 of 9 runs" in text
            assert text.isascii(), {char for char in text if not char.isascii()}
    finally:
        paint.plain_terminal.cache_clear()


# -- keys --------------------------------------------------------------------------------------------------------------


async def test_arrows_and_tab_select_an_arm():
    async with panel().run_test(size=(160, 48)) as pilot:
        await on_bench(pilot, bench_states.running())
        screen = pilot.app.screen
        assert screen.selected == "D"  # what is measured
        await pilot.press("tab")
        assert screen.selected == "A"
        await pilot.press("right", "j")
        assert screen.selected == "C"
        await pilot.press("left", "k")
        assert screen.selected == "A"
        pilot.app.board.experiment = bench_states.running(left_s=20.0)
        screen.update()
        assert screen.selected == "A"  # a person's choice stays


async def test_v_shows_the_verdict_with_what_it_rests_on_and_why_a_cycle_is_dear():
    async with panel().run_test(size=(120, 60)) as pilot:
        await on_bench(pilot, bench_states.running())
        await pilot.press("left", "v")
        await shows(
            pilot, "↓ C is 19.4 % slower than B", "0.806, 95 % interval 0.789 … 0.823", "L2: three launch pairs or more",
            "two launches of the same differ by ±0.6 % here", "an effect of 1.2 %", "Speculation pays from accept length 2.87",
            "It pays from 78 % acceptance per draft token; it has 64 %", "A cycle costs more than is normal", "all-reduces",
        )  # fmt: skip
        await pilot.press("y", "escape")
        await until(pilot, lambda: pilot.app.screen.NAME == "Bench")


@pytest.mark.parametrize("size", SIZES)
async def test_a_draft_that_changes_the_text_is_said_at_every_size(size):
    state = bench_states.finished(verdicts=(bench_states.B_FASTER, bench_states.C_CHANGES))
    async with panel().run_test(size=size) as pilot:
        await on_bench(pilot, state)
        await pilot.press("right", "right")  # the row of the selected arm stays where rows are few
        await shows(pilot, "B and C: not distinguishable", "· C changes the text")
    comparison = compare(state)
    details = plain(verdict_rows(comparison, comparison.arm("C")), 70)
    assert "replies: 120 of 240 differ (B against itself: 0 of 230)" in details
    assert "token 3 of the reply to item 12\n  B  is the answer\n  C  was the answer" in details


async def test_enter_shows_every_run_with_all_guards():
    async with panel().run_test(size=(120, 60)) as pilot:
        await on_bench(pilot, bench_states.failed())
        await pilot.press("right", "enter")
        await shows(
            pilot, "Runs of B", "✗ run 2 of launch 2  61.0 tok/s", "✗  cache: 3.1 % of the prompt tokens", "1 of 9 runs: 3.1 % of the prompt", "✓ run 3 of launch 3",
            "–  throttle", "the driver reports no throttling", "kimi-k2.5-baseline-20261006", "8 × NVIDIA RTX PRO 6000",
        )  # fmt: skip


async def test_b_chooses_a_bench_and_starts_it(profiles, monkeypatch):
    asked: list[tuple[str, str]] = []
    going: asyncio.Event = asyncio.Event()

    async def measured(session, bench, target, others) -> AsyncIterator[ExperimentState]:
        asked.append((bench.name, target.url))
        yield bench_states.one_arm()
        await going.wait()
        yield bench_states.one_arm(finished=True)

    monkeypatch.setattr(one_bench, "measure_running", measured)
    async with panel(profiles).run_test(size=(120, 36)) as pilot:
        await until(pilot, lambda: pilot.app.board.state is not None)
        await pilot.press("b")
        await shows(pilot, "Measure the running server", "kimi-k2.5-eagle3-mem088", "run 4f9c2a", "users")
        dialog = pilot.app.screen
        assert isinstance(dialog, BenchDialog)
        names = [entry.name for entry in dialog.found]
        await pilot.press(*["j"] * ((names.index("random") - dialog.at) % len(names)))
        await shows(pilot, "random tokens with speculation", "about 3 min")
        await pilot.press(*["j"] * ((names.index("users") - dialog.at) % len(names)))
        await shows(
            pilot,
            "concurrency 1, 4",
            "2 runs of 20 s at each load, up to 100 s each where the server is slow",
            "about 2 min",
        )
        await pilot.press("enter")
        await until(pilot, lambda: asked == [("users", "http://127.0.0.1:30000")])
        await shows(pilot, "kimi-k2.5-eagle3-mem088 ─", "◐ RUNNING", "S stop")
        await pilot.press("b")  # one thing at a time
        await pilot.pause()
        assert not isinstance(pilot.app.screen, BenchDialog)
        going.set()
        await until(pilot, lambda: not pilot.app.measure.under_way)


async def test_b_without_a_ready_server_says_why(profiles):
    async with panel(profiles, scene="idle").run_test(size=(120, 36), notifications=True) as pilot:
        await until(pilot, lambda: pilot.app.board.connected)
        await pilot.press("b")
        await shows(pilot, "✗ no server is ready; l launches one")
        assert "Enter  measure" not in screen_text(pilot.app)
        await pilot.press("enter")
        await pilot.pause()
        assert isinstance(pilot.app.screen, BenchDialog)


class FakeRunner:
    """Speaks as `experiment.ExperimentRunner` does."""

    made: ClassVar[list[object]] = []

    def __init__(self, session, record, profile, launches, judge=None) -> None:
        self.record, self.profile, self.launches = record, profile, launches
        self.paused = self.stopped = False
        self.more = 0
        self.changed = asyncio.Event()
        self.made.append(self)

    async def states(self) -> AsyncIterator[ExperimentState]:
        while not self.stopped:
            yield bench_states.running(paused=self.paused)
            await self.changed.wait()
            self.changed.clear()
        yield bench_states.finished(message="stopped after 11 of 12 launches")

    def _say(self) -> None:
        self.changed.set()

    def pause(self) -> None:
        self.paused = True
        self._say()

    def resume(self) -> None:
        self.paused = False
        self._say()

    def stop(self) -> None:
        self.stopped = True
        self._say()

    def more_pairs(self, count: int = 1) -> None:
        if self.more:
            raise UsageError("pays looks at 3 pairs; more would not be the test that was planned", "begin a new one")
        self.more += count


async def nothing_against_it(self, preview):
    """Stands in for the pre-flight of the arms."""
    return replace(preview, ahead=())


@pytest.fixture
def runner(monkeypatch):
    monkeypatch.setattr(Measuring, "look_ahead", nothing_against_it)
    FakeRunner.made = []
    monkeypatch.setattr(experiment, "ExperimentRunner", FakeRunner)
    return FakeRunner


async def begun(pilot) -> None:
    """From the list to the plan, and from the plan to the start."""
    await pilot.press("enter")
    await until(pilot, lambda: isinstance(pilot.app.screen, Plan) and pilot.app.screen.preview.ahead is not None)
    await pilot.press("enter")


async def test_an_experiment_by_keyboard(profiles, runner):
    async with panel(profiles).run_test(size=(120, 40), notifications=True) as pilot:
        await on_bench(pilot, None)
        await pilot.press("E")
        await until(pilot, lambda: isinstance(pilot.app.screen, ExperimentDialog))
        dialog = pilot.app.screen
        names = [entry.name for entry in dialog.found]
        await pilot.press(*["j"] * ((names.index("pays") - dialog.at) % len(names)))
        await shows(
            pilot, "will first stop what is in its way: kimi-k2.5-eagle3-mem088", "drafts pay", "arm A", "base · reference",
            "eagle · mem-fraction-static = 0.9 · against A", "4 launches in 2 rounds, every second one mirrored: AB BA",
            "concurrency 1, 4, 2 runs of 20 s", "an estimate, as not every arm was started here",
        )  # fmt: skip
        await begun(pilot)
        await until(pilot, lambda: runner.made)
        assert runner.made[0].record.order in (tuple("ABBA"), tuple("BAAB"))
        assert runner.made[0].launches["B"].args["mem-fraction-static"] == 0.9
        await shows(pilot, "◐ RUNNING", "space pause")
        await pilot.press("space")
        await shows(pilot, "■ PAUSED", "Pauses when this launch is measured")
        await pilot.press("space")
        await until(pilot, lambda: "■ PAUSED" not in screen_text(pilot.app))
        await pilot.press("P")
        await until(pilot, lambda: runner.made[0].more == 1)
        await pilot.press("P")
        await shows(pilot, "more would not be the test that was planned")
        await pilot.press("S")
        await shows(pilot, "End this measurement on gpu1?", "graphs-and-eagle3", "No, let it run")
        await pilot.press("enter")  # the safe answer has the focus
        await pilot.pause()
        assert not runner.made[0].stopped
        await pilot.press("S")
        await until(pilot, lambda: isinstance(pilot.app.screen, Confirm))
        await pilot.press("tab", "enter")
        await until(pilot, lambda: runner.made[0].stopped)
        await shows(pilot, "stopped after 11 of 12 launches", "b bench")


async def test_a_broken_experiment_is_listed_and_says_why(profiles):
    (profiles / "worse.toml").write_text('kind = "experiment"\nbench = "userz"\n[[arms]]\nprofile = "base"\n')
    async with panel(profiles).run_test(size=(120, 40)) as pilot:
        await on_bench(pilot, None)
        await pilot.press("E")
        await until(pilot, lambda: isinstance(pilot.app.screen, ExperimentDialog))
        dialog = pilot.app.screen
        names = [entry.name for entry in dialog.found]
        await pilot.press(*["j"] * ((names.index("worse") - dialog.at) % len(names)))
        await shows(pilot, "✗ ", "worse.toml")
        await pilot.press("enter")
        await pilot.pause()
        assert not pilot.app.measure.under_way


async def test_a_fault_of_a_measurement_is_one_line(profiles, monkeypatch):
    async def measured(session, bench, target, others) -> AsyncIterator[ExperimentState]:
        yield bench_states.one_arm()
        raise UsageError("the server does not generate", "see its log with 2")

    monkeypatch.setattr(one_bench, "measure_running", measured)
    async with panel(profiles).run_test(size=(120, 36), notifications=True) as pilot:
        await until(pilot, lambda: pilot.app.board.state is not None)
        await pilot.press("b")
        await until(pilot, lambda: isinstance(pilot.app.screen, BenchDialog))
        await pilot.press("enter")
        await shows(pilot, "the server does not generate")
        await until(pilot, lambda: pilot.app.board.experiment is None)
        await shows(pilot, "nothing was measured on gpu1")


async def test_a_measurement_that_goes_on_is_followed_again(monkeypatch):
    asked: list[str] = []

    async def followed(session, run, others) -> AsyncIterator[ExperimentState]:
        assert list(others) == ["gpu1"]  # of a group on several hosts, the figures of all that are open
        asked.append(run.run_id)
        yield bench_states.one_arm(experiment_id=run.run_id)
        await asyncio.Event().wait()

    monkeypatch.setattr(one_bench, "under_way", followed)
    script = fakes.scene("ready")
    own = fakes.run(run_id="users-20261006T203000Z-be0001", kind="bench", extra={"measure": {"experiment": None}})
    part = fakes.run(run_id="users-20261006T203100Z-be0002", kind="bench", extra={"measure": {"experiment": "pays-1"}})
    app = EagleApp("gpu1", open_session=fakes.Hosts(replace(script, runs=(*script.runs, part, own))))
    async with app.run_test(size=(120, 36)) as pilot:
        await until(pilot, lambda: asked)
        await pilot.press("4")
        await shows(pilot, "◐ RUNNING", "S stop")
        assert asked == [own.run_id]  # that of an experiment is followed by whoever runs that
        said = app.measure.farewell()
        assert said is not None
        assert "keeps running there" in said


@pytest.mark.parametrize("answer", ["background", "last launch"])
async def test_leaving_hands_the_experiment_over_to_a_process_of_its_own(profiles, runner, monkeypatch, answer):
    from tui.core.experiment import background, elsewhere
    from tui.core.experiment import record as experiment_record

    said: list[str] = []
    asked: list[object] = []
    leave = EagleApp.exit

    def exit(self, *args, message=None, **more):
        said.append(str(message))
        leave(self, *args, message=message, **more)

    async def started(words, name):
        asked.append(words)
        return background.Background(4711, "pays-1", Path("/log"), Path("/out"))

    monkeypatch.setattr(EagleApp, "exit", exit)
    monkeypatch.setattr(background, "start", started)
    monkeypatch.setattr(experiment_record, "read", lambda _: object())
    monkeypatch.setattr(elsewhere, "ask_to_stop", lambda *words: asked.append(words))
    async with panel(profiles).run_test(size=(80, 24)) as pilot:
        await on_bench(pilot, None)
        await pilot.press("E")
        await until(pilot, lambda: isinstance(pilot.app.screen, ExperimentDialog))
        dialog = pilot.app.screen
        names = [entry.name for entry in dialog.found]
        await pilot.press(*["j"] * ((names.index("pays") - dialog.at) % len(names)))
        await shows(pilot, "4 launches in 2 rounds")
        await begun(pilot)
        await until(pilot, lambda: pilot.app.board.experiment)
        await pilot.press("q")
        await shows(
            pilot,
            "What becomes of the experiment?",
            "Keep running in background",
            "Stop after this launch",
            "graphs-and-eagle3 on gpu1, launch 12 of 12",
            "Enter stay (chosen)",
        )
        await pilot.press("enter")  # the safe answer has the focus
        await until(pilot, lambda: not isinstance(pilot.app.screen, Ask))
        assert not said
        await pilot.press("q")
        await until(pilot, lambda: isinstance(pilot.app.screen, Ask))
        await pilot.press(*["tab"] * (1 if answer == "background" else 2), "enter")
        await until(pilot, lambda: said)
    words = ["--profiles", str(profiles), "experiment", "graphs-and-eagle3", "--host", "gpu1", "--resume"]
    last = [("pays-1", elsewhere.Stop.AFTER_LAUNCH)] if answer == "last launch" else []
    assert asked == [words, *last]
    assert "in the background (PID 4711): eagletui experiment graphs-and-eagle3 --attach follows it" in said[0]


async def test_leaving_twice_asks_once(profiles, runner):
    async with panel(profiles).run_test(size=(120, 40)) as pilot:
        await on_bench(pilot, bench_states.running())
        pilot.app.measure._runner = object()
        await pilot.press("q")
        await until(pilot, lambda: isinstance(pilot.app.screen, Ask))
        await pilot.press("ctrl+c")
        await until(pilot, lambda: pilot.app._leaving)


async def test_an_experiment_of_another_process_is_followed_and_left_alone(profiles, monkeypatch):
    from tui.core.experiment import elsewhere
    from tui.core.experiment import record as experiment_record
    from tui.core.profiles.load import load_bench, load_experiment, load_launch

    dirs = [profiles]
    profile = load_experiment("pays", dirs)
    launches = {arm.letter: load_launch(arm.profile, dirs, arm.sets) for arm in profile.arms}
    record = experiment.begin(profile, load_bench("users", dirs), launches, "gpu1", 1)
    experiment_record.write(record)
    over = asyncio.Event()
    drivers = {record.experiment_id: 4711}

    async def follow(experiment_id: str) -> AsyncIterator[ExperimentState]:
        assert experiment_id == record.experiment_id
        yield bench_states.running(driver=4711)
        await over.wait()
        experiment_record.write(replace(record, outcome="done", message="done", ended_at="2026-10-06T20:00:00Z"))
        yield bench_states.finished()

    monkeypatch.setattr(elsewhere, "follow", follow)
    monkeypatch.setattr(experiment_record, "drivers", lambda: drivers)
    async with panel(profiles).run_test(size=(120, 40), notifications=True) as pilot:
        await until(pilot, lambda: pilot.app.board.experiment)
        await pilot.press("4")
        await shows(pilot, "◐ RUNNING", "launch 12 of 12", "run by PID 4711")
        text = screen_text(pilot.app)
        assert "space pause" not in text
        assert "S stop" not in text
        assert " measured" not in text.split("\n")[1]
        for key in ("space", "S", "P"):
            await pilot.press(key)
        await shows(pilot, "Run by PID 4711; eagletui experiment", "--stop after-launch")
        assert not isinstance(pilot.app.screen, Confirm)
        assert "run by PID 4711, and goes on" in (pilot.app.measure.farewell() or "")
        over.set()
        await until(pilot, lambda: not pilot.app.measure.under_way)
        await shows(pilot, "b bench")


async def test_one_more_pair_of_an_experiment_that_is_over_asks_first(profiles, runner):
    from tui.core.experiment import record as experiment_record
    from tui.core.experiment.record import Cell
    from tui.core.profiles.load import load_bench, load_experiment, load_launch

    dirs = [profiles]
    profile = load_experiment("pays", dirs)
    launches = {arm.letter: load_launch(arm.profile, dirs, arm.sets) for arm in profile.arms}
    record = experiment.begin(profile, load_bench("users", dirs), launches, "gpu1", 1)
    for letter in "AB":
        store.write(replace(bench_states.result(letter, 1, 1, 80.0), experiment=record.experiment_id))
    cells = [
        Cell(cell.number, cell.arm, cell.pair, ArmStatus.MEASURED, result_ids=(f"bench-{cell.arm}1-c1-1",))
        for cell in record.cells
    ]
    experiment_record.write(
        replace(record, cells=tuple(cells), outcome="done", message="done", ended_at="2026-10-06T20:00:00Z")
    )
    async with panel(profiles).run_test(size=(120, 40), notifications=True) as pilot:
        await until(pilot, lambda: pilot.app.board.measured is not None)
        await pilot.press("4")
        await shows(pilot, "drafts pay", "P one more pair")
        await pilot.press("P")
        await shows(pilot, "Measure one more pair of pays?", "2, one of each arm", "stops first", "4f9c2a")
        await pilot.press("enter")
        await pilot.pause()
        assert not runner.made
        await pilot.press("P")
        await until(pilot, lambda: isinstance(pilot.app.screen, Confirm))
        await pilot.press("tab", "enter")
        await until(pilot, lambda: runner.made)
        assert runner.made[0].more == 1
        assert runner.made[0].record.experiment_id == record.experiment_id


DIALOGS = {
    "bench": ("b",),
    "experiments": ("4", "E"),
    "stored": ("4", "c"),
    "verdict": ("4", "v"),
    "runs": ("4", "enter"),
}


@pytest.mark.parametrize("name", DIALOGS)
async def test_dialogs_are_drawn_at_every_size_with_the_way_back(name, profiles):
    store_all("B", "C")
    async with panel(profiles).run_test(size=(120, 36)) as pilot:
        await until(pilot, lambda: pilot.app.board.state is not None and pilot.app.board.measured is not None)
        for key in DIALOGS[name]:
            await pilot.press(key)
            await pilot.pause()
        await until(pilot, lambda: len(pilot.app.screen_stack) > 1)
        for size in ((160, 48), (120, 36), (80, 24), (80, 60), (40, 12), (20, 5)):
            await pilot.resize_terminal(*size)
            await until(pilot, lambda size=size: len(screen_text(pilot.app).split("\n")) == size[1])
            await pilot.pause()
            assert all(len(row) <= size[0] for row in screen_text(pilot.app).split("\n"))
            if size[0] >= 80:
                await until(pilot, lambda: "Esc" in screen_text(pilot.app))


def test_what_makes_a_bench_say_less():
    bench = replace(bench_states.BENCH, dataset="random-ids", runs=1, duration_s=5.0)
    assert len(bench_warnings(bench, speculative=True)) == 3
    assert not bench_warnings(bench_states.BENCH, speculative=True)


# -- what is stored ----------------------------------------------------------------------------------------------------


def store_all(*letters: str) -> None:
    for letter in letters:
        for result in bench_states.results(letter):
            store.write(replace(result, experiment=None, arm=None, launch_number=None))


async def test_what_is_stored_stands_side_by_side():
    store_all("B", "C")
    async with panel().run_test(size=(160, 48)) as pilot:
        await until(pilot, lambda: pilot.app.board.connected)
        await pilot.press("4")
        await shows(
            pilot, "speculation-real-prompts", "cuda-graph-max-bs = 128", "speculative-num-steps = 3", "slower than A"
        )
        await shows(pilot, "0.80×", "Does speculation pay?", "measured 6 Oct")
        await pilot.press("c")
        await shows(pilot, "Which configurations side by side?", "9 of 9 runs valid")
        await pilot.press("space", "enter")
        await until(pilot, lambda: len(pilot.app.board.measured.arms) == 1)
        await shows(pilot, "One configuration, nothing to compare it with")


def test_configurations_of_another_bench_or_model_do_not_stand_side_by_side():
    store_all("A", "B")
    other = bench_states.result("C", 1, 1, 70.0)
    store.write(replace(other, bench="decode-bs1", experiment=None))
    found = history.configurations("gpu1")
    assert [one.profile for one in found] == [bench_states.PROFILE[letter] for letter in "BAC"] or len(found) == 3
    ours = [one for one in found if one.bench == bench_states.BENCH.name]
    assert history.comparable(ours[0], ours[1])
    assert not history.comparable(ours[0], next(one for one in found if one.bench == "decode-bs1"))
    state = history.side_by_side(ours)
    assert [arm.letter for arm in state.arms] == ["A", "B"]
    assert state.verdicts
    assert history.configurations("gpu2") == ()
    assert history.newest("gpu2") is None


async def test_export_writes_a_file_of_each_format(tmp_path, monkeypatch):
    async with panel().run_test(size=(120, 36), notifications=True) as pilot:
        await on_bench(pilot, bench_states.running(name="../strange [name]"))
        await pilot.press("x")
        await shows(pilot, "Exported to")
        from tui.core.config import data_dir

        files = sorted((data_dir() / "exports").iterdir())
        assert [path.suffix for path in files] == [".csv", ".html", ".md"]
        assert files[0].name.startswith("strange-name-")
        assert len(files[0].read_text().splitlines()) == 1 + 9 * 3 + 7
        assert all("89.5" in file.read_text() or "89.6" in file.read_text() for file in files[1:])


# -- the dashboard -----------------------------------------------------------------------------------------------------

BASE = Baseline("kimi-k2.5-baseline", "/data/models/Kimi-K2.5", 1, 89.5, "L2")


@pytest.mark.parametrize("size", SIZES)
async def test_the_dashboard_says_from_where_speculation_pays(size):
    async with panel().run_test(size=size) as pilot:
        await until(pilot, lambda: pilot.app.board.decodes_now() and stored_is_read(pilot.app))
        assert "pays from" not in screen_text(pilot.app)  # nothing is stored
        pilot.app.board.baselines = (BASE,)
        pilot.app.screen.update()
        await shows(pilot, "EAGLE3 pays from accept length 2.87; you have 2.31 → 0.81×, a loss")
        if size[0] >= 150:
            await shows(
                pilot,
                "against kimi-k2.5-baseline, 89.5 tok/s at concurrency 1 (L2)",
                "baseline 89.5",
                "break-even 2.87",
            )


async def test_a_slow_tokenizer_does_not_hide_a_loss_but_what_explains_it_does():
    script = fakes.scene("ready")
    for cause, wins in (("tokenizer", False), ("draft_config", True)):
        seen = Diagnosis(cause, "what was seen of it", None, None, None)
        update = replace(script.updates[-1], state=replace(script.updates[-1].state, observations=(seen,)))
        app = EagleApp("gpu1", open_session=fakes.Hosts(replace(script, updates=(*script.updates[:-1], update))))
        async with app.run_test(size=(160, 48)) as pilot:
            await until(pilot, lambda app=app: app.board.decodes_now() and stored_is_read(app))
            app.board.baselines = (BASE,)
            app.screen.update()
            await shows(pilot, "what was seen of it" if wins else "EAGLE3 pays from accept length 2.87")


@pytest.mark.parametrize("other", [{"model": "/data/models/Other"}, {"concurrency": 4}])
async def test_a_baseline_of_another_model_or_load_says_nothing(other):
    async with panel().run_test(size=(160, 48)) as pilot:
        await until(pilot, lambda: pilot.app.board.decodes_now() and stored_is_read(pilot.app))
        pilot.app.board.baselines = (replace(BASE, **other),)
        assert pilot.app.board.economics() is None


def test_baselines_are_read_from_what_is_stored():
    store_all("B", "C")
    [found] = history.baselines("gpu1")
    assert (found.profile, found.model, found.concurrency, found.level) == (
        "kimi-k2.5-baseline", "/data/models/Kimi-K2.5", 1, "L2",
    )  # fmt: skip
    assert 89.4 < found.tok_s < 89.8


def test_statuses_have_a_glyph_each():
    from tui.panel.widgets.bench.arm_card import _STATUS

    assert set(_STATUS) == set(ArmStatus)
    assert len({glyph + word for glyph, word, _ in _STATUS.values()}) == len(_STATUS)


async def test_an_arm_none_of_whose_runs_counts_is_not_done():
    state = bench_states.one_arm()
    server = state.arms[0]
    broken = tuple(bench_states.result("C", 1, run, 61.0, failed="cache") for run in (1, 2))
    over = replace(server, status=ArmStatus.MEASURED, launches_done=1, results=broken, live=None)
    for finished, badge in ((replace(state, arms=(over,), finished=True), "✗ NONE COUNTS"), (state, "RUNNING")):
        async with panel().run_test(size=(120, 36)) as pilot:
            await on_bench(pilot, finished)
            text = screen_text(pilot.app)
            assert badge in text
            assert ("none of 2 runs counts" in text) is (finished is not state)
            assert "DONE" not in text
            assert "no run is complete yet" not in text
