"""Groups of runs on hosts that are scripts of states: a server over two nodes, and prefill, decode and router."""

import time
from dataclasses import replace

from tests.support import fakes
from tui.core.model.group import Group, Member, Role
from tui.core.model.log import LogRecord
from tui.core.model.phases import Outcome, Phase
from tui.core.model.run import Run, RunState
from tui.core.server.server_state import RunUpdate, ServerState
from tui.core.sglang.state import LedgerRow, PhaseSpan, Progress, RankState
from tui.core.sglang.tracker import LogTracker

GROUP_ID = "kimi-k2.5-tp16-20261006T200103Z-7c31d0"
NODES = Group(
    GROUP_ID,
    "kimi-k2.5-tp16",
    (Member(Role.RANK, 0, "gpu1", f"{GROUP_ID}-0"), Member(Role.RANK, 1, "gpu2", f"{GROUP_ID}-1")),
)
PD_ID = "kimi-pd-20261006T200103Z-a40c77"
PD = Group(
    PD_ID,
    "kimi-pd",
    (
        Member(Role.PREFILL, 0, "gpu1", f"{PD_ID}-0"),
        Member(Role.DECODE, 0, "gpu2", f"{PD_ID}-1"),
        Member(Role.ROUTER, 0, "gpu1", f"{PD_ID}-2"),
    ),
)


def run_of(group: Group, at: int, **changes: object) -> Run:
    """The run of a member."""
    member = group.members[at]
    argv = (*fakes.ARGV, "--nnodes", "2", "--node-rank", str(member.number)) if member.role is Role.RANK else fakes.ARGV
    base = fakes.run(
        run_id=member.run_id,
        profile=group.profile,
        host=member.host,
        pid=48213 + 1000 * at,
        port=30000 + at,
        argv=argv,
        extra={"group": group.extra()},
        log_path=f"/home/tuner/.eagletui/log{at}",
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def starting(group: Group, at: int, *, done: int = 44, waited_s: float = 41.0) -> ServerState:
    """In the middle of the weights; of a node above rank 0 without a bar."""
    first = 8 * group.members[at].number
    ranks = tuple(RankState(f"TP{rank}", Phase.LOAD_WEIGHTS, "20:01:26") for rank in range(first, first + 8))
    state = fakes.starting()
    follows = group.members[at].follows
    startup = replace(
        state.startup,
        ranks=ranks,
        progress=None if follows else Progress("shards", done, 64),
        ledger=tuple(LedgerRow(rank.tag, before_gib=94.5) for rank in ranks),
        server_args={**fakes.SERVER_ARGS, "nnodes": 2, "tp_size": 16, "dist_init_addr": "10.40.0.11:20000"},
    )
    took = {Phase.LAUNCH: 15.0, Phase.DISTRIBUTED_INIT: waited_s, Phase.LOAD_WEIGHTS: 316.0}
    return replace(state, run=run_of(group, at), startup=startup, phase_took_s=took, started_s=time.time() - 372.0)


def ready(group: Group, at: int) -> ServerState:
    """Serving; a node above rank 0 has no figures of its own."""
    state = fakes.ready()
    first = 8 * group.members[at].number if group.members[at].role is Role.RANK else 0
    ranks = tuple(RankState(f"TP{rank}", Phase.SERVING, "20:12:48") for rank in range(first, first + 8))
    startup = replace(state.startup, ranks=ranks)
    if group.members[at].follows:
        startup = replace(startup, last_decode=None, fired_up=False, follower_up=True, decode_lines=0)
    return replace(state, run=run_of(group, at), startup=startup)


def crashed(group: Group, at: int, lived_s: int = 500) -> ServerState:
    """It died of its own."""
    state = fakes.crashed()
    ended = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(1791316863 + lived_s))
    run = run_of(group, at, state=RunState.EXITED, exit_code=137, started_at="2026-10-06T20:01:03Z", ended_at=ended)
    startup = replace(state.startup, spans=(PhaseSpan(Phase.LAUNCH, 0, 1),))
    return replace(state, run=run, startup=startup)


def scripts(group: Group, *states: ServerState, used_gib: tuple[float, ...] = (26.0, 21.3)) -> dict[str, fakes.Script]:
    """What each host shows, each of whose members is in one of these states."""
    found: dict[str, fakes.Script] = {}
    before = fakes.gpus(0.6, straggler=None, util=0.0, watts=60.0)
    for number, host in enumerate(group.hosts):
        mine = [state for state, member in zip(states, group.members, strict=True) if member.host == host]
        records = tuple(LogTracker().feed(fakes.log_text()))

        def update(state: ServerState, records: tuple[LogRecord, ...] = records) -> RunUpdate:
            return RunUpdate(state, records, settled=state.outcome is not Outcome.CRASHED)

        found[host] = fakes.Script(
            samples=(before, fakes.gpus(used_gib[number], straggler=None, util=3.0)),
            runs=tuple(state.run for state in mine),
            updates=(update(mine[0]),),
            beside={state.run.run_id: (update(state),) for state in mine[1:]},
        )
    return found
