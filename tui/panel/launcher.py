"""Launching, replacing and stopping servers from the panel: what is planned, asked first, and shown while it happens."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from tui import format as fmt
from tui.core.errors import EagletuiError
from tui.core.model.phases import Outcome
from tui.panel.connection import Connection
from tui.panel.host_view import run_name
from tui.panel.open_host import OpenHost

if TYPE_CHECKING:
    from tui.core.groups.session import GroupPlan
    from tui.core.model.run import Run
    from tui.core.profiles.launch_profile import LaunchProfile
    from tui.core.server.launch import LaunchPlan
    from tui.core.server.stop import StopProgress

_OVER = (Outcome.STOPPED, Outcome.CRASHED, Outcome.FINISHED)


class Launcher:
    """Carries out launches and stops, one at a time each.

    Args:
        launched: called with each run that was started.
        launch_group: carries out the launch of a group, which is about several hosts.
    """

    def __init__(
        self,
        host: OpenHost,
        connection: Connection,
        launched: "Callable[[Run], None]",
        launch_group: "Callable[[GroupPlan, bool], None]",
    ) -> None:
        self._host = host
        self._connection = connection
        self._launched = launched
        self._launch_group = launch_group

    # -- launching -------------------------------------------------------------------------------------------------

    async def make_plan(self, profile: "LaunchProfile", sets: Sequence[str]) -> "LaunchPlan":
        """The exact command and the findings. Raises EagletuiError."""
        from tui.core.profiles.resolve import read_sets

        session = await self._connection.ready()
        try:
            return await session.plan(profile, read_sets(sets))  # the profile was loaded with the same ones
        except EagletuiError:
            raise
        except Exception as error:
            raise self._host.app.report_fault(error) from None

    def preview(self, *, replace: bool = False, edit: bool = False) -> None:
        """The launch dialog for the profile under the cursor, to replace or edit also for the last one."""
        chosen = getattr(self._host.app.screen, "chosen_launch", None)
        profile = chosen() if callable(chosen) else None
        if profile is None and (replace or edit):
            profile = self._last_profile()
        self._preview(profile, replace=replace, edit=edit)

    def _preview(self, profile: str | None, *, replace: bool = False, sets: str = "", edit: bool = False) -> None:
        """The launch dialog; what it answers is launched in the background and shown on the dashboard."""
        from tui.panel.screens.launch import LaunchDialog

        def chosen(answer: "tuple[LaunchPlan | GroupPlan, bool] | None") -> None:
            if answer is None:
                return
            from tui.core.groups.session import GroupPlan

            self._host.show_mode("dashboard")
            plan, replace = answer
            if isinstance(plan, GroupPlan):
                self._launch_group(plan, replace)
            else:
                self.launch(plan, replace)

        dialog = LaunchDialog(profile, self._last_profile(), replace=replace, sets=sets, edit=edit)
        self._host.app.push_screen(dialog, chosen)

    def _last_profile(self) -> str | None:
        board = self._host.board
        if board.run is not None and board.run.profile:
            return board.run.profile
        return next((run.profile for run in board.runs if run.profile), None)

    def preview_suggested_change(self) -> None:
        """The suggested change as an override of the same profile, shown before it is launched."""
        state = self._host.board.state
        diagnosis = state.diagnosis if state else None
        if state is None or diagnosis is None or not diagnosis.set or not state.run.profile:
            self._host.say("Nothing to apply: no change is suggested here")
            return
        from tui.core.profiles.resolve import read_sets
        from tui.core.server import launch_records

        known = launch_records.read(state.run.run_id)
        earlier = known.sets if known else state.run.extra.get("sets") or {}
        self.preview_of(state.run.profile, {**read_sets(earlier), **diagnosis.set})

    def preview_of(self, profile: str, sets: "Mapping[str, object]") -> None:
        """The launch dialog for a profile with some flags changed."""
        import shlex

        from tui.core.profiles.toml_text import toml_value

        self._preview(profile, sets=shlex.join(f"{key}={toml_value(value)}" for key, value in sets.items()))

    def launch(self, plan: "LaunchPlan", replace: bool) -> None:
        """Carries out a plan that was shown; with `replace` our servers in its way are stopped first."""
        self._host.background("launch", self._launch, plan, replace)

    async def _launch(self, plan: "LaunchPlan", replace: bool) -> None:
        host, board = self._host, self._host.board
        board.busy = f"launching {plan.profile.name}"
        host.touch(soon=True)
        try:
            async for step in self._connection.session().launch(plan, replace=replace):
                board.busy, board.stop = step.text, step.stop or board.stop
                host.touch(soon=True)
            board.stop = None
            if step.run is not None:
                self._launched(step.run)
        finally:
            board.busy = None
            host.touch()

    # -- stopping --------------------------------------------------------------------------------------------------

    def ask_to_stop(self) -> None:
        """Asks, then stops the displayed server."""
        from tui.core.server.asking import url_of
        from tui.panel.screens.dialog import Confirm
        from tui.panel.screens.plan_rows import gpus_text, measured_rows
        from tui.panel.widgets.rows import facts_of

        host, board = self._host, self._host.board
        run = board.run
        if run is None or (board.state and board.state.outcome in _OVER and not run.orphans):
            host.say("No server to stop")
            return
        if run.foreign:
            owner = run.owner or "unknown"
            host.say(f"PID {run.pid} was not started by eagletui; its owner {owner} can stop it", severity="warning")
            return
        facts = [
            ("host", board.host),
            ("server", f"{run_name(run)}, run {run.short_id}"),
            ("PID", str(run.pid) if run.pid is not None else fmt.NONE),
            ("GPUs", gpus_text(run.gpus)),
            ("port", str(run.port) if run.port is not None else fmt.NONE),
        ]
        note = "It is asked to drain first; what is left after 20 s is killed. Nothing else is touched."
        url = url_of(run.argv, run.port) if run.port is not None and run.job is None else None
        dialog = Confirm(
            ("■ STOP", "warn!"),
            f"Stop this server on {board.host}?",
            [*facts_of(facts), [], *measured_rows(board.runs, run.run_id, url), [(note, "muted")]],
            "No, let it run",
            "Yes, stop it",
        )

        def answered(yes: bool | None) -> None:
            if yes:
                host.background("stop", self._stop, run)

        host.app.push_screen(dialog, answered)

    async def _stop(self, run: "Run") -> None:
        from tui.core.server.stop import StopProgress

        self._show_stop(StopProgress("requested", f"asking {run.short_id} to stop"))
        board = self._host.board
        try:
            async for progress in self._connection.session().stop(run):
                if board.run is None or board.run.run_id == run.run_id:
                    self._show_stop(progress)
                if progress.done:
                    self._host.say(f"{run.profile or run.short_id}: {progress.text}")
        except Exception:
            self._show_stop(None)
            raise

    def _show_stop(self, progress: "StopProgress | None") -> None:
        self._host.board.stop = progress
        self._host.touch(soon=True)
