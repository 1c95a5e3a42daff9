"""Which runs are one group, and in which order its members start and stop."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tui.core.model.group import Group, Member, Role, group_of
from tui.core.model.run import Run, short_id

# A router sends nothing before there is somebody to send it to; the ranks of one server wait for each other.
_STARTS = ((Role.RANK, Role.PREFILL, Role.DECODE), (Role.ROUTER,))
_STOPS = ((Role.ROUTER,), (Role.PREFILL,), (Role.DECODE,))


@dataclass(frozen=True)
class FoundGroup:
    """A group with the runs of it that were seen; on hosts that were not asked there are more."""

    group: Group
    runs: dict[str, Run] = field(default_factory=dict)  # by id


def groups_among(runs: Iterable[Run]) -> list[FoundGroup]:
    """The groups that some of these runs are members of, in the order of the runs."""
    found: dict[str, FoundGroup] = {}
    for run in runs:
        group = group_of(run.extra)
        if group is not None and any(member.run_id == run.run_id for member in group.members):
            found.setdefault(group.group_id, FoundGroup(group)).runs[run.run_id] = run
    return list(found.values())


def member_named(reference: str, group: Group) -> Member | None:
    """The member that its own id, or its short form (`7c31d0-1`), names; None where the whole group is meant."""
    return next((one for one in group.members if reference in (one.run_id, short_id(one.run_id))), None)


def starts(group: Group) -> list[list[Member]]:
    """Members that are started at once, one list after the other."""
    return _present([member for member in group.members if member.role in roles] for roles in _STARTS)


def stops(group: Group) -> list[list[Member]]:
    """Members that are stopped at once, one list after the other. Rank 0 tells the other ranks to end with it."""
    by_role = [[member for member in group.members if member.role in roles] for roles in _STOPS]
    ranks = [member for member in group.members if member.role is Role.RANK]
    return _present([*by_role, ranks[:1], ranks[1:]])


def _present(lists: Iterable[Sequence[Member]]) -> list[list[Member]]:
    return [list(members) for members in lists if members]
