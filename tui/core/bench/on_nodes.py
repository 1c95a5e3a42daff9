"""A measurement of a server that is a job of Slurm: its nodes are the hosts, and what measures there are steps of the job.

The generator is a step on the node of rank 0, so its requests go by 127.0.0.1 whatever the server listens on; on each
other node a step samples the GPUs. As runs they are the login host's, whose home the nodes share: followed, stopped and
collected like any other.
"""

from dataclasses import replace

from tui.core.bench.other_hosts import Sessions
from tui.core.bench.target import Part, Target
from tui.core.model.run import Run
from tui.core.server.node_session import NodeSession, node_sessions
from tui.core.server.session import HostSession


async def on_nodes(session: HostSession, measured: Target, others: Sessions) -> tuple[HostSession, Target, Sessions]:
    """Where a target is measured, and with its nodes in the place of their login host; as it was where it is no job.

    Raises UsageError where a rank has no node, HostError.
    """
    served = measured.run
    if served is None or served.job is None or measured.group is None:
        return session, measured, others
    nodes = node_sessions(session, [served, *(part.run for part in measured.parts)])
    on = {run.run_id: await _on(nodes, run) for run in (served, *(part.run for part in measured.parts))}
    members = tuple(replace(member, host=on[member.run_id].host) for member in measured.group.members)
    by_id = {member.run_id: member for member in members}
    here = nodes[on[served.run_id].host]
    target = replace(
        measured,
        run=on[served.run_id],
        through=here.way,
        group=replace(measured.group, members=members),
        parts=tuple(Part(by_id[part.member.run_id], part.url, on[part.run.run_id]) for part in measured.parts),
    )
    return here, target, nodes


async def _on(nodes: dict[str, NodeSession], run: Run) -> Run:
    """A rank as its node has it."""
    assert run.node is not None  # `node_sessions` has seen to it
    return replace(run, host=run.node, gpus=await nodes[run.node].own_gpus())
