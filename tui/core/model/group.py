"""A group: runs on one or several hosts that make up one server, as every part of the program knows it.

What is written here goes into cmd.json of every member (`LaunchRequest.extra["group"]`), so that each host can name the
whole group without the others.
"""

from dataclasses import dataclass
from enum import StrEnum


class Role(StrEnum):
    """What a member does for its group."""

    RANK = "rank"  # one node of a server with --nnodes
    PREFILL = "prefill"
    DECODE = "decode"
    ROUTER = "router"


@dataclass(frozen=True)
class Member:
    """One run of a group."""

    role: Role
    number: int  # among those of its role, from 0; of a rank: its --node-rank
    host: str  # as the settings name it
    run_id: str  # `<group id>-<place in the group>`

    @property
    def name(self) -> str:
        """`rank 0`, `prefill 1`; `router`, of which there is one."""
        return self.role.value if self.role is Role.ROUTER else f"{self.role.value} {self.number}"


@dataclass(frozen=True)
class Group:
    """Which runs belong together; what they do now is `tui.core.groups.group_state`."""

    group_id: str  # as a run's id: `<profile>-<YYYYMMDDTHHMMSSZ>-<6 hex>`
    profile: str
    members: tuple[Member, ...]  # in the order of their start

    @property
    def serving(self) -> Member:
        """The member that clients talk to: the router, else node rank 0."""
        return next((member for member in self.members if member.role is Role.ROUTER), self.members[0])
