"""A group: runs on one or several hosts that make up one server, as every part of the program knows it.

What is written here goes into cmd.json of every member (`LaunchRequest.extra["group"]`), so that each host can name the
whole group without the others.
"""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from tui.core.text import one_line

_MEMBER_ID = re.compile(r"(.*-[0-9a-f]{6})-(\d{1,3})")  # `<group id>-<place>`
_MOST_MEMBERS = 1000


class Role(StrEnum):
    """What a member does for its group."""

    RANK = "rank"  # one node of a server with --nnodes
    PREFILL = "prefill"
    DECODE = "decode"
    ROUTER = "router"

    def name_of(self, number: int) -> str:
        """`rank 0`, `prefill 1`; `router`, of which there is one."""
        return self.value if self is Role.ROUTER else f"{self.value} {number}"


@dataclass(frozen=True)
class Member:
    """One run of a group."""

    role: Role
    number: int  # among those of its role, from 0; of a rank: its --node-rank
    host: str  # as the settings name it
    run_id: str  # `<group id>-<place in the group>`

    @property
    def follows(self) -> bool:
        """Whether it serves nobody itself: a node above rank 0 answers /health with 200 whatever it is."""
        return self.role is Role.RANK and self.number > 0

    @property
    def name(self) -> str:
        return self.role.name_of(self.number)


@dataclass(frozen=True)
class Group:
    """Which runs belong together; what they do now is `tui.core.groups.group_state`."""

    group_id: str  # as a run's id: `<profile>-<YYYYMMDDTHHMMSSZ>-<6 hex>`
    profile: str
    members: tuple[Member, ...]  # in the order of their start
    job: bool = False  # it is a job of its host's Slurm, a rank a node

    @property
    def serving(self) -> Member:
        """The member that clients talk to: the router, else node rank 0."""
        return next((member for member in self.members if member.role is Role.ROUTER), self.members[0])

    @property
    def hosts(self) -> tuple[str, ...]:
        """Each host once, in the order of the members."""
        return tuple(dict.fromkeys(member.host for member in self.members))

    def extra(self) -> dict[str, Any]:
        """What goes into cmd.json of each member, as `extra["group"]`."""
        members = [{**asdict(member), "role": member.role.value} for member in self.members]
        kind = {"job": True} if self.job else {}
        return {"id": self.group_id, "profile": self.profile, "members": members, **kind}


def group_of(extra: Mapping[str, Any] | None) -> Group | None:
    """The group that `extra` of a run names (a host may have written anything there); None where it is of none."""
    told = extra.get("group") if isinstance(extra, Mapping) else None
    try:
        members = tuple(
            Member(
                Role(one["role"]),
                int(one["number"]),
                one_line(str(one["host"]), 100),
                one_line(str(one["run_id"]), 100),
            )
            for one in told["members"][:_MOST_MEMBERS]  # type: ignore[index]
        )
        group_id, profile = (one_line(str(told[key]), 100) for key in ("id", "profile"))  # type: ignore[index]
        group = Group(group_id, profile, members, job=told.get("job") is True)  # type: ignore[union-attr]
    except (TypeError, KeyError, ValueError, AttributeError):
        return None
    return group if members else None


def member_of(run_id: str, extra: Mapping[str, Any] | None) -> Member | None:
    """The member that a run is of the group that its `extra` names; None of a run of its own."""
    group = group_of(extra)
    return next((one for one in group.members if one.run_id == run_id), None) if group is not None else None


def group_id_of(run_id: str) -> str | None:
    """The group that a run's id says it is of, None for a run of its own."""
    match = _MEMBER_ID.fullmatch(run_id)
    return match[1] if match else None
