"""Profiles that are launched as a group, whichever kind it is: nodes of one server, a job, or prefill, decode and router."""

from collections.abc import Mapping
from dataclasses import replace

from tui.core.config import HostEntry
from tui.core.groups import roles
from tui.core.groups.jobs import plan_job
from tui.core.groups.nodes import plan_nodes
from tui.core.groups.session import GroupPlan, GroupSession
from tui.core.model.group import Role
from tui.core.profiles.launch_profile import LaunchProfile, SlurmTable
from tui.core.profiles.roles import member_profile
from tui.core.server import launch_records
from tui.core.server.gpu_claim import claimed_gpus
from tui.core.server.launch_records import PhaseHistory


def on_host(profile: LaunchProfile, entry: HostEntry) -> LaunchProfile:
    """The profile as it is launched there: on a login host of Slurm as a job, also where it has no `[slurm]`."""
    if not entry.slurm or profile.several or profile.container is not None:
        return profile
    return replace(profile, slurm=SlurmTable())


def hosts_of(profile: LaunchProfile, host: str) -> tuple[str, ...]:
    """The hosts that a launch needs, each once; `host` where a member of a `[group]` names none, and of a single server."""
    return tuple(dict.fromkeys(place[2] for place in _places(profile, host)))


def home_of(profile: LaunchProfile, host: str) -> str:
    """The host where it is measured: that of rank 0, or of the router; `host` of a single server."""
    return _places(profile, host)[0 if profile.nodes is not None else -1][2]


def _places(profile: LaunchProfile, host: str) -> list[tuple[Role, int, str]]:
    """Role, number and host of each member; a single server is as a rank 0."""
    if profile.group:
        return roles.places(profile, host)
    hosts = profile.nodes.hosts if profile.nodes is not None else (host,)
    return [(Role.RANK, rank, each) for rank, each in enumerate(hosts)]


def gpus_on(profile: LaunchProfile, host: str) -> dict[str, tuple[int, ...]]:
    """The GPUs that a launch takes, by host; () where the profile does not say which. A job's are the cluster's business."""
    if profile.slurm is not None:
        return {}
    members = [profile]
    if profile.nodes is not None:
        members = [replace(profile, args={**profile.args, "nnodes": len(profile.nodes.hosts)})] * len(
            profile.nodes.hosts
        )
    elif profile.group:
        members = [member_profile(profile, table) for table in profile.group]
    found: dict[str, set[int]] = {}
    unknown = set()
    for (role, _, where), member in zip(_places(profile, host), members, strict=True):
        if role is Role.ROUTER or member.gpus == ():
            continue
        gpus = claimed_gpus(member)
        found.setdefault(where, set()).update(gpus)
        unknown |= set() if gpus else {where}
    return {where: () if where in unknown else tuple(sorted(gpus)) for where, gpus in found.items()}


def usual_start(profile: LaunchProfile, host: str, sets: Mapping[str, object]) -> PhaseHistory | None:
    """How long starts took, launch to ready; of a group those of the member that takes longest. None: there were none."""
    starts = [
        launch_records.usual(where, profile.name, sets, part=role.name_of(number) if profile.several else None)[1]
        for role, number, where in _places(profile, host)
    ]
    return max((start for start in starts if start is not None), key=lambda start: start.median_s, default=None)


async def plan(
    groups: GroupSession,
    profile: LaunchProfile,
    host: str,
    sets: Mapping[str, object] | None = None,
    group_id: str | None = None,
) -> GroupPlan:
    """The launch of such a profile, checked on each host and between them. Raises HostError where one is away.

    `group_id` is from `new_run_id`, for a caller that must know it before.
    """
    if profile.nodes is not None:
        return await plan_nodes(groups, profile, sets, group_id)
    if profile.slurm is not None:
        return await plan_job(groups, profile, host, sets, group_id)
    return await roles.plan_roles(groups, profile, host, sets, group_id)
