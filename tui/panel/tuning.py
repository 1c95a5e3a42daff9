"""The tune that this panel runs on a host: asked about, begun or taken up, paused, stopped."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING

from tui.core.errors import UsageError
from tui.core.text import one_line
from tui.panel.bench_control import Measuring
from tui.panel.open_host import OpenHost

if TYPE_CHECKING:
    from pathlib import Path

    from tui.core.groups.session import GroupSession
    from tui.core.profiles.launch_profile import LaunchProfile
    from tui.core.tune.record import TuneRecord
    from tui.core.tune.runner import TuneRunner

_GOAL, _WORKLOAD = "tok_s", "speculation-real-prompts"
_GROUP = "measure"


class Tuning:
    """Starts, steers and ends tunes for tok/s per user; the command has other goals too."""

    def __init__(
        self,
        host: OpenHost,
        measure: Measuring,
        profile_dirs: "Callable[[], list[Path]]",
        reach: "Callable[[Sequence[str]], Awaitable[GroupSession]]",
    ) -> None:
        self._host, self._measure = host, measure
        self._profile_dirs, self._reach = profile_dirs, reach
        self._runner: TuneRunner | None = None

    @property
    def under_way(self) -> bool:
        return self._runner is not None

    def ask(self, profile: str) -> None:
        """Shows the tune under way; else says what one of this profile would do, and begins it when told to."""
        if self.under_way:
            self._host.show_mode("tune")
        elif self._measure.under_way:
            self._host.say("Something is measured here already: 4 shows it")
        else:
            self._host.background("ask", self._ask, profile)

    async def _ask(self, profile: str) -> None:
        from tui.core.tune import report
        from tui.panel.screens.dialog import Confirm
        from tui.panel.widgets.rows import Row

        fresh, earlier = await asyncio.to_thread(self._records, profile)
        lines = [Row([(text, "text")]) for text in report.plan_words(fresh)]
        if earlier is not None:
            done = f"one of {earlier.started_at} is not over, after {earlier.launches} launches: it is continued"
            lines.append(Row([(done, "strong!")]))
        if running := self._host.board.live_servers():
            lines.append(Row([("stops first: ", "muted"), (", ".join(run.short_id for run in running), "text")]))
        verb = "Resume" if earlier is not None else "Begin"
        title = f"Tune {one_line(profile, 60)} for tok/s per user?"
        if await self._host.app.ask(Confirm(("◆", "accent"), title, lines, "No", verb), self._host.board):
            self.start(earlier or fresh)

    def _records(self, profile: str) -> "tuple[TuneRecord, TuneRecord | None]":
        """(a new tune, the one that can be taken up). Raises UsageError."""
        from tui.core.profiles.load import load_bench
        from tui.core.tune import record as tune_record
        from tui.core.tune.runner import begin_tune, resumed_tune

        launch, bench = self._load(profile, {}), load_bench(_WORKLOAD, self._profile_dirs())
        fresh = begin_tune(launch, {}, bench, _GOAL, self._host.board.host)
        earlier = tune_record.unfinished(profile, fresh.host, _GOAL)
        if earlier is None or earlier.sets:  # one with overrides is the command's
            return fresh, None
        try:
            return fresh, resumed_tune(earlier, launch, bench)
        except UsageError:  # changed since
            return fresh, None

    def _load(self, profile: str, sets: Mapping[str, object]) -> "LaunchProfile":
        from tui.core.profiles.load import load_launch

        return load_launch(profile, self._profile_dirs(), sets)

    def start(self, record: "TuneRecord") -> None:
        """Runs it beside the interface; its screen shows it."""
        self._host.show_mode("tune")
        self._host.background(_GROUP, self._run, record)

    async def _run(self, record: "TuneRecord") -> None:
        from tui.core.tune.runner import TuneRunner

        host = self._host
        words = f"eagletui tune {record.profile} --for {record.goal} --host {record.host} --resume"
        with self._measure.held(
            f"The tune is not over: what it launched keeps running there, and {words} continues it."
        ):
            runner = TuneRunner(
                await self._reach([record.host]), record, lambda sets: self._load(record.profile, sets), {}
            )
            self._runner = runner
            try:
                async with aclosing(runner.states()) as states:
                    async for state in states:
                        host.board.tune = state
                        host.touch(soon=True)
                host.app.ring(f"{one_line(record.profile, 60)} on {host.board.host}: tuned")
            finally:
                self._runner = None
                host.touch(soon=True)

    def pause(self) -> bool | None:
        """Pauses after the launch under way, or resumes; True where it pauses now, None where nothing can."""
        state = self._host.board.tune
        if self._runner is None or state is None:
            return None
        if state.paused:
            self._runner.resume()
        else:
            self._runner.pause()
        return not state.paused

    def stop(self) -> None:
        """Ends it now: measurement and server are stopped; it can be resumed."""
        if self._runner is not None:
            self._runner.stop()
