"""One server as a job of a Slurm cluster: a group whose members are ranks, one a node, all known through the login host."""

from collections.abc import Mapping
from dataclasses import replace

from tui.core.config import HostEntry
from tui.core.errors import EagletuiError
from tui.core.groups.session import GroupPlan, GroupSession, JobLaunch, new_group
from tui.core.link.hosts import launch_env
from tui.core.model.group import Group, Role
from tui.core.profiles.command import build_command
from tui.core.profiles.launch_profile import LaunchProfile, SlurmTable
from tui.core.profiles.secrets import public_sets
from tui.core.runs.request import check, command_json, requester
from tui.core.server.finding import Findings
from tui.core.server.gpu_claim import GpuClaim
from tui.core.server.launch import record_of, request_of
from tui.core.slurm import helper
from tui.core.slurm.script import JobRequest, batch_script, sbatch_options, secret_text

SLURM = "slurm"  # the check whose findings are Slurm's
_GPU_LISTS = ("CUDA_VISIBLE_DEVICES",)  # the scheduler says which


async def plan_job(
    groups: GroupSession,
    profile: LaunchProfile,
    host: str,
    sets: Mapping[str, object] | None = None,
    group_id: str | None = None,
) -> GroupPlan:
    """The launch of a profile with `[slurm]`, with what Slurm says of it. Raises HostError where the host has no Slurm."""
    group = group_for(profile, host, group_id)
    session = groups.of(group.serving)
    launch = job_launch(profile, session.entry, group, sets)
    found = Findings()
    try:
        takes, said = await helper.start_estimate(session.transport, launch.request.script)
    except EagletuiError as error:
        if error.slug == helper.NO_SLURM:
            raise
        takes, said = True, ""
        found.warn(SLURM, f"whether Slurm takes the job was not checked: {error.message}")
    if not takes:
        found.block(SLURM, f"Slurm does not take this job: {said}")
    elif said:
        found.ok(SLURM, said)
    return GroupPlan(group, (), tuple(found), launch)


def group_for(profile: LaunchProfile, host: str, group_id: str | None = None) -> Group:
    """The ranks of a job that does not run yet."""
    places = [(Role.RANK, rank, host) for rank in range(_table(profile).nodes)]
    return new_group(profile.name, places, group_id, job=True)


def job_launch(
    profile: LaunchProfile, entry: HostEntry, group: Group, sets: Mapping[str, object] | None = None
) -> JobLaunch:
    """The job of a profile, without asking its host. Raises UsageError where a value cannot be passed."""
    table = _table(profile)
    if table.image is not None:  # whose Python it is
        entry = replace(entry, python="python3")
    env = {name: value for name, value in profile.env.items() if name not in _GPU_LISTS}
    command = build_command(replace(profile, gpus=None, env=env), entry, None, None)
    command = replace(command, env={**launch_env(entry), **command.env})
    public = public_sets(sets or {})
    as_process = request_of(command, profile.name, group.group_id, {"sets": public, "group": group.extra()})
    check(as_process)  # what cannot be passed to a process on a host cannot be passed here
    options = options_of(profile, group.group_id)
    request = JobRequest(
        run_id=group.group_id,
        options=options,
        script=batch_script(table, command, options, group.group_id),
        ranks=table.nodes,
        secret=secret_text(command),
        secret_args=dict(command.secret_args),
        command=command_json(as_process, requester(None)),
    )
    records = (
        record_of(profile, member.run_id, member.host, sets, port=command.port + member.number, group=group.extra())
        for member in group.members
    )
    return JobLaunch(request, tuple(records))


def options_of(profile: LaunchProfile, job_id: str) -> tuple[str, ...]:
    """What Slurm is asked for, an option of sbatch a word; `job_id` names the job."""
    table = _table(profile)
    return sbatch_options(table, job_id, _gpus_per_node(profile, table))


def _table(profile: LaunchProfile) -> SlurmTable:
    assert profile.slurm is not None
    return profile.slurm


def _gpus_per_node(profile: LaunchProfile, table: SlurmTable) -> int | None:
    """As the profile says, else as its flags need; None of another server, whose flags say nothing."""
    if table.gpus_per_node is not None:
        return table.gpus_per_node
    if profile.gpus is not None:
        return len(profile.gpus)
    if profile.command:
        return None
    return -(-GpuClaim.of(profile, {}).count // table.nodes)
