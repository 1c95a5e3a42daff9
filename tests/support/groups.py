"""A group of two nodes and the states of its members, made up."""

from dataclasses import replace

from tests.support import fakes
from tui.core.groups.group_state import MemberState
from tui.core.model.group import Group, Member, Role
from tui.core.model.phases import Outcome
from tui.core.model.run import Run, RunState
from tui.core.sglang.diagnose import diagnose
from tui.core.sglang.diagnosis import ExitEvidence
from tui.core.sglang.tracker import LogTracker

ID = "big-20261130T120000Z-7c31d0"
GROUP = Group(ID, "big", (Member(Role.RANK, 0, "gpu3", f"{ID}-0"), Member(Role.RANK, 1, "gpu4", f"{ID}-1")))
RANK0, RANK1 = GROUP.members
GLOO = "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.1]:39741"
LOST_PEER = [
    "[2026-11-30 12:01:00 TP0] Scheduler hit an exception: Traceback (most recent call last):",
    '  File "/x/sglang/srt/managers/scheduler.py", line 1, in run_scheduler_process',
    GLOO,
    "",
    "[2026-11-30 12:01:00] Received sigquit from a child process. It usually means the child failed.",
]
OUT_OF_MEMORY = [
    "[2026-11-30 12:00:55 TP1] Scheduler hit an exception: Traceback (most recent call last):",
    '  File "/x/sglang/srt/managers/scheduler.py", line 1, in run_scheduler_process',
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.1 GiB",
    "",
    "[2026-11-30 12:00:55] Received sigquit from a child process. It usually means the child failed.",
]


def run_of(member: Member, **changes: object) -> Run:
    base = fakes.run(
        run_id=member.run_id, host=member.host, profile="big", started_at="2026-11-30T12:00:00+00:00",
        extra={"group": GROUP.extra()},
    )  # fmt: skip
    return replace(base, **changes)  # type: ignore[arg-type]


def state(member: Member, make=fakes.starting, run: dict[str, object] | None = None, **changes: object) -> MemberState:
    return MemberState(member, make(run=run_of(member, **(run or {})), **changes))


def dead(member: Member, lines: list[str], after_s: int, code: int = 137, **run: object) -> MemberState:
    """A member that ended by itself so many seconds after its launch, with these lines at the end of its log."""
    tracker = LogTracker()
    tracker.feed(("\n".join(["[2026-11-30 12:00:10] server_args=ServerArgs(tp_size=2)", *lines]) + "\n").encode())
    tracker.flush()
    startup = tracker.state()
    ended = f"2026-11-30T12:{after_s // 60:02d}:{after_s % 60:02d}+00:00"
    over = run_of(member, **{"state": RunState.EXITED, "exit_code": code, "ended_at": ended, "pid": None, **run})
    found, _ = diagnose(startup, exit=ExitEvidence(exit_code=code, stopped_by_us=over.stopped_by_us))
    outcome = Outcome.STOPPED if over.stopped_by_us else Outcome.CRASHED
    return MemberState(member, fakes.starting(run=over, outcome=outcome, startup=startup, diagnosis=found))
