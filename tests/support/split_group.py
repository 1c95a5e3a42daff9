"""A group of prefill, decode and router as a target of measurements, made up."""

from tests.support import fakes
from tui.core.bench.target import Part, Target
from tui.core.model.group import Group, Member, Role

GROUP = Group(
    "split-20261130T120000Z-7c31d0",
    "split",
    tuple(
        Member(role, 0, host, f"split-20261130T120000Z-7c31d0-{at}")
        for at, (role, host) in enumerate([(Role.PREFILL, "gpu1"), (Role.DECODE, "gpu2"), (Role.ROUTER, "gpu1")])
    ),
)


def target_on(*gpus: tuple[int, ...], decode_host: str) -> Target:
    """Of the group: GPUs of its prefill and its decode."""
    hosts = ("gpu1", decode_host, "gpu1")
    runs = [
        fakes.run(run_id=member.run_id, host=host, gpus=each, pid=100 + at, log_path=f"/log/{at}")
        for at, (member, host, each) in enumerate(zip(GROUP.members, hosts, (*gpus, ()), strict=True))
    ]
    parts = tuple(
        Part(member, f"http://{run.host}:1", run) for member, run in zip(GROUP.members[:2], runs[:2], strict=True)
    )
    return Target("http://127.0.0.1:30000", runs[2], runs[2].pid, group=GROUP, parts=parts)
