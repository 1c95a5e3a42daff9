"""A group as everybody sees it who watches one: the states of its members, and what follows for the whole."""

from dataclasses import dataclass

from tui.core.model.group import Group, Member
from tui.core.model.job import Job
from tui.core.model.log import LogRecord
from tui.core.model.phases import Outcome, Phase
from tui.core.server.server_state import ServerState


@dataclass(frozen=True)
class MemberState:
    """One member as last seen."""

    member: Member
    state: ServerState | None = None  # None: nothing was heard of it yet
    link_lost: bool = False  # its host cannot be asked now: it is unknown, not dead

    @property
    def place(self) -> str:
        """Where it runs: its host, or its node of a cluster."""
        return self.state.run.node or self.member.host if self.state is not None else self.member.host


@dataclass(frozen=True)
class Condition:
    """One thing that must hold before the group is ready, as people read it."""

    text: str  # "every member is alive", "/readiness of the router"
    holds: bool | None  # None: not known yet
    detail: str | None = None  # "200", "worker http://gpu4:30002 is missing"
    since_s: float | None = None  # time.time() since when it holds


@dataclass(frozen=True)
class GroupState:
    """A group as the panel, `wait` and `launch --wait` see it.

    Ready: every member lives, no log has a fatal line, the serving member is ready, and for roles the router sends one
    request through. Failed: by the first member that ended; its log is the diagnosis. A lost link is unknown.
    """

    group: Group
    outcome: Outcome
    phase: Phase  # of the member that is furthest behind
    members: tuple[MemberState, ...]  # as in `group.members`
    conditions: tuple[Condition, ...] = ()
    failed: Member | None = None  # whose log says why
    late: str | None = None  # which member the others wait for: a sentence
    started_s: float | None = None  # time.time() at the launch
    ready_after_s: float | None = None  # launch to ready

    @property
    def waits_for(self) -> str | None:
        """What a group waits for whose members are all ready by themselves; None where it is a member, or nothing."""
        if any(one.state is None or one.state.outcome is not Outcome.READY for one in self.members):
            return None
        found = next((one for one in self.conditions if not one.holds), None)
        return f"{found.text}: {found.detail or 'not known'}" if found is not None else None

    def place_of(self, member: Member) -> str:
        """Where a member runs: its host, or its node of a cluster."""
        return next((one.place for one in self.members if one.member == member), member.host)

    @property
    def job(self) -> Job | None:
        """The job of Slurm that it is; None of a group that is none."""
        return next((one.state.run.job for one in self.members if one.state is not None and one.state.run.job), None)

    @property
    def eta_s(self) -> float | None:
        """Seconds to ready: of the member that takes longest, as far as earlier starts say."""
        serving = [one.state for one in self.members if one.state is not None and not one.member.follows]
        return max((state.eta_s for state in serving if state.eta_s is not None), default=None)

    @property
    def failure(self) -> ServerState | None:
        """The state whose diagnosis is the group's."""
        return next((one.state for one in self.members if one.member == self.failed), None)


@dataclass(frozen=True)
class GroupUpdate:
    """What one tick of watching a group brought."""

    state: GroupState
    records: tuple[tuple[Member, LogRecord], ...] = ()  # new lines of all logs, each with whose it is
    settled: bool = False  # every member that can be asked has been heard to its present end
