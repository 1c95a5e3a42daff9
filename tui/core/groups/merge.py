"""What the states of its members say of a whole group: one outcome, one phase, one diagnosis. Pure; asks no host."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from tui.core.groups.group_state import Condition, GroupState, MemberState
from tui.core.model.group import Group, Member, Role
from tui.core.model.phases import Outcome, Phase
from tui.core.server.server_state import ServerState
from tui.core.sglang.diagnose import lost_its_peers
from tui.core.text import epoch_of

AFTER = "after-"  # who asked for a stop: not a person, but the end of another member, named behind it
_LATE_S = 5.0  # so much longer must the others have waited before one counts as late
_PHASES = list(Phase)
_FAILED = (Outcome.CRASHED, Outcome.LOST)
_SERVES = (Phase.READY, Phase.SERVING)


def merge(
    group: Group, seen: Sequence[MemberState], extra: tuple[Condition, ...] = (), *, ready_after_s: float | None = None
) -> GroupState:
    """The group as a whole.

    Args:
        seen: as in `group.members`.
        extra: what must hold besides, before it is ready.
        ready_after_s: launch to ready, where that was seen; else the serving member's.
    """
    serving = seen[group.members.index(group.serving)]
    failed = failed_member(seen)
    conditions = (_alive(seen), _no_fatal_line(seen), *_ready_members(seen), *extra)
    outcome = _outcome(seen, failed, conditions)
    members = tuple(_as_part(one, serving) for one in seen)
    if outcome is Outcome.STOPPED:
        members = tuple(_stopped_with_it(one) for one in members)
    phases = [one.state.phase for one in members if one.state is not None]
    if failed is not None:
        phases = [one.state.phase for one in members if one.member == failed and one.state is not None]
    starts = [one.state.started_s for one in seen if one.state is not None and one.state.started_s is not None]
    ready = outcome is Outcome.READY
    return GroupState(
        group=group,
        outcome=outcome,
        phase=min(phases, key=_PHASES.index) if phases and (failed or len(phases) == len(members)) else Phase.LAUNCH,
        members=members,
        conditions=conditions,
        failed=failed,
        late=_late(members) if outcome is Outcome.STARTING else None,
        started_s=min(starts, default=None),
        ready_after_s=ready_after_s if ready_after_s is not None else (_ready_after_s(seen) if ready else None),
    )


def _ready_after_s(seen: Sequence[MemberState]) -> float | None:
    """Launch to the last member that was ready; of nodes only rank 0 says so."""
    states = [one.state for one in seen if one.state is not None and not one.member.follows]
    if len(states) == 1:
        return states[0].ready_after_s
    known = [
        (s.started_s, s.started_s + s.ready_after_s) for s in states if s.started_s and s.ready_after_s is not None
    ]
    return (
        max(end for _, end in known) - min(begin for begin, _ in known) if known and len(known) == len(states) else None
    )


def has_failed(state: ServerState) -> bool:
    """Whether a member ended, or is ending, by itself and not well. Exit code 0 is an end that somebody wanted."""
    return state.outcome in _FAILED and not state.run.stopped_by_us


def stopped_for(run_stop_by: str | None) -> str | None:
    """The member for whose end another was stopped; None where a person asked."""
    if run_stop_by is None or not run_stop_by.startswith(AFTER) or "@" in run_stop_by:
        return None
    return run_stop_by.removeprefix(AFTER)


def mark_of(member: Member) -> str:
    """Who asks for the stop of the others once this member has ended: one word, kept on their hosts."""
    return AFTER + member.name.replace(" ", "-")


def failed_member(seen: Sequence[MemberState]) -> Member | None:
    """The member whose end is the group's; None where none failed, or somebody had asked for the end of the group.

    A log that names a cause of its own comes before one that only lost its peers; among equals the shortest life. Each
    life is measured by its own host's clock, so the clocks of two hosts need not agree.
    """
    asked = [
        one for one in seen if one.state is not None and one.state.run.stop and not stopped_for(one.state.run.stop_by)
    ]
    if any(one.state is not None and (one.state.run.stopped_by_us or not one.state.run.over) for one in asked):
        return None
    candidates = [one for one in seen if one.state is not None and has_failed(one.state)]
    if candidates:
        return min(candidates, key=lambda one: _blame(one.state)).member
    marks = {stopped_for(one.state.run.stop_by) for one in seen if one.state is not None}
    return next((one.member for one in seen if one.member.name.replace(" ", "-") in marks), None)


class _Blame(NamedTuple):
    consequence: bool
    lived_s: float


def _blame(state: ServerState | None) -> _Blame:
    assert state is not None
    begin, end = epoch_of(state.run.started_at), epoch_of(state.run.ended_at)
    lived_s = end - begin if begin is not None and end is not None else float("inf")
    return _Blame(lost_its_peers(state.startup), lived_s)


def _outcome(seen: Sequence[MemberState], failed: Member | None, conditions: tuple[Condition, ...]) -> Outcome:
    if failed is not None:
        return Outcome.CRASHED
    states = [one.state for one in seen if one.state is not None]
    if any(state.run.over for state in states):
        return Outcome.STOPPED  # what has lost a member on somebody's word serves no more
    if any(one.link_lost for one in seen) or any(state.outcome is Outcome.UNKNOWN for state in states):
        return Outcome.UNKNOWN
    if any(state.outcome is Outcome.QUEUED for state in states):
        return Outcome.QUEUED
    return Outcome.READY if all(one.holds for one in conditions) else Outcome.STARTING


# Conditions


def _alive(seen: Sequence[MemberState]) -> Condition:
    text = "every member is alive"
    over = [one.member.name for one in seen if one.state is not None and one.state.run.over]
    if over:
        return Condition(text, False, f"{', '.join(over)} ended")
    if any(one.state is not None and one.state.outcome is Outcome.QUEUED for one in seen):
        return Condition(text, False, "the job is queued")
    unknown = [f"{one.member.name}: the link to {one.member.host} is lost" for one in seen if one.link_lost]
    unknown += [f"{one.member.name}: nothing heard yet" for one in seen if one.state is None and not one.link_lost]
    return Condition(text, None if unknown else True, "; ".join(unknown) or f"{len(seen)} of {len(seen)}")


def _no_fatal_line(seen: Sequence[MemberState]) -> Condition:
    text = "no log has a fatal line"
    fatal = [one.member.name for one in seen if one.state and one.state.startup.outcome is Outcome.CRASHED]
    if fatal:
        return Condition(text, False, f"that of {', '.join(fatal)} has one")
    return Condition(text, None if any(one.state is None for one in seen) else True)


def _ready_members(seen: Sequence[MemberState]) -> list[Condition]:
    """Of nodes only rank 0 says so: the others answer /health with 200 from before the start to after the end."""
    found = []
    for one in seen:
        if not one.member.follows:
            holds = None if one.state is None or one.link_lost else one.state.outcome is Outcome.READY
            detail = one.state.phase.replace("_", " ") if one.state is not None else None
            text = "the router answers" if one.member.role is Role.ROUTER else f"{one.member.name} is ready"
            found.append(Condition(text, holds, detail))
    return found


def _as_part(one: MemberState, serving: MemberState) -> MemberState:
    """A node above rank 0 is as ready as rank 0, and ends in its phase: what it says itself is that its own part of the
    start is done."""
    state, head = one.state, serving.state
    if state is None or not one.member.follows:
        return one
    served = head is not None and (head.phase in _SERVES or head.outcome is Outcome.READY)
    if state.phase is Phase.WARMUP or state.phase in _SERVES:
        state = replace(state, phase=Phase.SERVING if served else Phase.WARMUP)
    if state.outcome not in (Outcome.STARTING, Outcome.READY):
        return replace(one, state=state)
    if head is not None and head.outcome is Outcome.READY:
        return replace(one, state=replace(state, outcome=Outcome.READY, phase=Phase.SERVING))
    return replace(one, state=replace(state, outcome=Outcome.STARTING, ready_after_s=None))


def _stopped_with_it(one: MemberState) -> MemberState:
    """A rank that rank 0 told to end, whatever its exit code: where a group was stopped, it did not crash."""
    if one.state is None or not one.member.follows or one.state.outcome is not Outcome.CRASHED:
        return one
    return replace(one, state=replace(one.state, outcome=Outcome.STOPPED, diagnosis=None))


def _late(members: Sequence[MemberState]) -> str | None:
    """Which rank the others wait for, or have waited for: in the distributed init all wait for the last to come."""
    ranks = [(one, one.state) for one in members if one.member.role is Role.RANK and one.state is not None]
    begun = [one for one in ranks if _PHASES.index(one[1].phase) >= _PHASES.index(Phase.DISTRIBUTED_INIT)]
    behind = [one for one in ranks if one not in begun]
    if begun and behind:
        names = ", ".join(f"{one.member.name} ({one.place})" for one, _ in behind)
        return f"the others wait for {names}: {'it has' if len(behind) == 1 else 'they have'} not begun the distributed init"
    waits = [(state.phase_took_s.get(Phase.DISTRIBUTED_INIT), one) for one, state in ranks]
    known = [(wait, one) for wait, one in waits if wait is not None]
    if len(known) < 2 or len(known) < len(ranks):
        return None
    (shortest, last), longest = min(known, key=lambda one: one[0]), max(wait for wait, _ in known)
    if longest - shortest < _LATE_S:
        return None
    return f"{last.member.name} ({last.place}) came last: the others waited {longest - shortest:.0f} s for it"
