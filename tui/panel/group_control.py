"""Launching and stopping a group from the panel, and moving through its members."""

import asyncio
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tui import format as fmt
from tui.core.errors import EagletuiError, UsageError
from tui.core.model.group import Member
from tui.core.model.phases import Outcome
from tui.panel.group_watch import Groups
from tui.panel.host_app import HostApp
from tui.panel.open_group import OpenGroup

if TYPE_CHECKING:
    from tui.core.groups.session import GroupPlan, GroupProgress, GroupSession
    from tui.core.profiles.launch_profile import LaunchProfile
    from tui.panel.open_log import Beside
    from tui.panel.panel_host import PanelHost


class GroupControl:
    """What a person does with whole groups; at most one launch and one stop of each at a time."""

    def __init__(self, app: HostApp, groups: Groups) -> None:
        self._app, self._groups = app, groups

    def _host(self, name: str) -> "PanelHost":
        return self._groups.host(name)

    # -- launching -------------------------------------------------------------------------------------------------

    async def make_plan(self, profile: "LaunchProfile", sets: Sequence[str], *, reach: bool) -> "GroupPlan":
        """The exact commands of all members, and the findings of all hosts. Raises EagletuiError.

        Without `reach` no host is opened for it: who only looks at a profile is not asked for passwords.
        """
        from tui.core.groups import planning
        from tui.core.profiles.resolve import read_sets
        from tui.panel.screens.plan_rows import hosts_text

        here = self._app.board.host  # where a member goes that names no host
        names = planning.hosts_of(profile, here)
        away = [name for name in names if not self._groups.is_open(name)]
        if away and not reach:
            raise UsageError(f"{hosts_text(away)}: not open here", "Enter opens what is missing and looks")
        session = await self.reach(names)
        try:
            return await planning.plan(session, profile, here, read_sets(sets))
        except EagletuiError:
            raise
        except Exception as error:
            raise self._app.report_fault(error) from None

    async def reach(self, names: Sequence[str]) -> "GroupSession":
        """A session over hosts, those that are not open among them. Raises HostError where one is not reached."""
        await asyncio.gather(*(self._host(name).connection.ready() for name in names))
        return self._groups.session()

    def launch(self, plan: "GroupPlan", replace: bool) -> None:
        """Carries out a plan that was shown."""
        host = self._host(plan.group.serving.host)
        self._app.show_mode("dashboard", host.board)
        host.background("launch", self._launch, plan, replace)

    async def _launch(self, plan: "GroupPlan", replace: bool) -> None:
        hosts = [self._host(name) for name in plan.group.hosts]

        def busy(words: str | None) -> None:
            for host in hosts:
                host.board.busy = words
                host.touch(soon=True)

        from tui.panel.screens.plan_rows import hosts_text

        busy(f"launching {plan.group.profile} on {hosts_text(plan.group.hosts)}")
        try:
            async for step in self._groups.session().launch(plan, replace=replace):
                busy(step.text)
                if step.run is not None and step.member is not None:
                    self._host(step.member.host).displayed.watch(step.run)
                    self._groups.look()
        finally:
            busy(None)

    # -- stopping --------------------------------------------------------------------------------------------------

    def ask_to_stop(self, opened: OpenGroup) -> None:
        """Asks, then stops all members."""
        from tui.panel.screens.dialog import Confirm
        from tui.panel.screens.plan_rows import hosts_text, measured_rows
        from tui.panel.widgets.rows import facts_of

        if not opened.alive:
            self._app.say("No server to stop")
            return
        facts = [("server", f"{opened.group.profile}, group {opened.short_id}")]
        for one in opened.seen():
            run = one.state.run if one.state is not None else None
            pid = f"PID {run.pid}" if run is not None and run.pid is not None else "PID not known"
            if not opened.group.job or one.node is not None:
                facts.append((one.member.name, f"{one.place} · {pid}"))
        count = fmt.plural(len(opened.group.members), "member")
        order = "router, prefill, decode" if opened.roles else "rank 0 first, so that all of them drain"
        title, no, yes = f"Stop all {count} on {hosts_text(opened.group.hosts)}?", "No, let it run", "Yes, stop all"
        note = f"Order: {order}; what is left after 20 s is killed. Nothing else is touched."
        if opened.group.job:
            title, note, no, yes = _about_job(opened)
        ends = measured_rows(self._host(opened.group.serving.host).board.runs, opened.group.group_id, None)
        dialog = Confirm(("■ STOP", "warn!"), title, [*facts_of(facts), [], *ends, [(note, "muted")]], no, yes)

        def answered(yes: bool | None) -> None:
            if yes:
                self._host(opened.group.serving.host).background("stop", self._stop, opened)

        self._app.push_screen(dialog, answered)

    async def _stop(self, opened: OpenGroup) -> None:
        whole = "the job" if opened.group.job else f"all {len(opened.group.members)} members"
        opened.stop = f"asking {whole} to stop"
        self._app.touch(soon=True)
        told: dict[str, GroupProgress] = {}
        try:
            async for step in self._groups.session().stop(opened.group):
                opened.stop = step.text
                if step.member is not None:
                    told[step.member.name] = step
                self._app.touch(soon=True)
        except Exception:
            opened.stop = None
            raise
        unknown = [name for name, step in told.items() if step.stop is not None and step.stop.step != "done"]
        done = "the job has ended" if opened.group.job else "all members have stopped"
        ends = f"{', '.join(unknown)}: not known whether it ended" if unknown else done
        opened.stop = ends
        self._app.say(f"{opened.group.profile}: {ends}", severity="warning" if unknown else "information")

    # -- members ---------------------------------------------------------------------------------------------------

    def next_member(self, mode: str) -> None:
        """The next member's own dashboard, or its log where a log is displayed; after the last the whole group."""
        app, opened = self._app, self._groups.of(self._app.board)
        if opened is None:
            app.say("This server is not one of a group")
            return
        members = opened.group.members
        if mode == "logs":
            shown = app.board.run.run_id if app.board.run is not None else None
            here = next((at for at, member in enumerate(members) if member.run_id == shown), -1)
            self.display(members[(here + 1) % len(members)], "logs")
        elif opened.at is None or opened.at + 1 < len(members):
            opened.at = 0 if opened.at is None else opened.at + 1
            self.display(members[opened.at], "dashboard")
        else:
            opened.at = None
            self.display(opened.group.serving, "dashboard")

    def open_member(self) -> None:
        """Why the group ended, on the dashboard of the member that did; else the log of the one that serves."""
        opened = self._groups.of(self._app.board)
        failed = opened.state.failed if opened is not None and opened.state is not None else None
        if opened is not None and failed is not None:
            opened.at = opened.group.members.index(failed)
            self.display(failed, "dashboard")
        elif opened is not None:
            self.display(opened.group.serving, "logs")

    def logs_beside(self) -> "list[Beside]":
        """What can be shown beside the log of a member: those of the members on other hosts."""
        from tui.panel.open_log import Beside

        opened, here = self._groups.of(self._app.board), self._app.board.host
        return [
            Beside(
                f"{one.member.name} {one.member.host}",
                f"{opened.group.profile}, run {one.state.run.short_id}, {one.state.run.state}",
                source=functools.partial(self._host(one.member.host).log_of, one.state.run),
            )
            for one in (opened.seen() if opened is not None else ())
            if opened is not None
            and one.member.host != here
            and one.state is not None
            and one.state.run.log_path is not None
        ]

    def display(self, member: Member, mode: str | None = None) -> None:
        """Displays the run of a member on its host, in one of the modes of that host."""
        host = self._host(member.host)
        board = self._groups.board_of(member)
        if board.state is not None and board is not host.board:
            host.displayed.pick(board.state.run)
            self._groups.look()
        if mode is not None:
            self._app.show_mode(mode, host.board)


def _about_job(opened: OpenGroup) -> tuple[str, str, str, str]:
    """What is asked before a job is stopped, what then happens, and the two answers."""
    job, host = opened.job, opened.group.serving.host
    named = f"job {job.job_id} on {host}" if job is not None else f"the job on {host}"
    if opened.outcome is Outcome.QUEUED:
        note = "It has not begun: scancel takes it out of the queue. No other job is touched."
        return f"Cancel {named}?", note, "No, let it wait", "Yes, cancel it"
    note = (
        "Rank 0 is asked to drain and ends the others, so that the job ends COMPLETED 0:0; what is left after 20 s is "
        "ended by scancel. No other job is touched."
    )
    return f"Stop {named}?", note, "No, let it run", "Yes, stop it"
