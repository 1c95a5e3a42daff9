"""Profiles that are launched as a group, whichever kind it is: nodes of one server, a job, or prefill, decode and router."""

from collections.abc import Mapping
from dataclasses import replace

from tui.core.config import HostEntry
from tui.core.groups import roles
from tui.core.groups.jobs import plan_job
from tui.core.groups.nodes import plan_nodes
from tui.core.groups.session import GroupPlan, GroupSession
from tui.core.profiles.launch_profile import LaunchProfile, SlurmTable


def on_host(profile: LaunchProfile, entry: HostEntry) -> LaunchProfile:
    """The profile as it is launched there: on a login host of Slurm as a job, also where it has no `[slurm]`."""
    if not entry.slurm or profile.several or profile.container is not None:
        return profile
    return replace(profile, slurm=SlurmTable())


def hosts_of(profile: LaunchProfile, host: str) -> tuple[str, ...]:
    """The hosts that a launch needs, each once; `host` where a member of a `[group]` names none. () of a single server."""
    if profile.nodes is not None:
        return profile.nodes.hosts
    if profile.slurm is not None:
        return (host,)
    return tuple(dict.fromkeys(place[2] for place in roles.places(profile, host)))


async def plan(
    groups: GroupSession,
    profile: LaunchProfile,
    host: str,
    sets: Mapping[str, object] | None = None,
    group_id: str | None = None,
) -> GroupPlan:
    """The launch of such a profile, checked on each host and between them. Raises HostError where one is away.

    `group_id` is from `new_run_id`, for a caller that must know the id of a `[group]` or a job before.
    """
    if profile.nodes is not None:
        return await plan_nodes(groups, profile, sets)
    if profile.slurm is not None:
        return await plan_job(groups, profile, host, sets, group_id)
    return await roles.plan_roles(groups, profile, host, sets, group_id)
