"""A server that is a job of a real Slurm is measured: the generator is a step on its first node, the GPUs of all are in the result."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support import truth_server as truth
from tests.support.slurm import Slurm
from tui.core.bench import bench_run
from tui.core.bench.target import Part, Target
from tui.core.config import HostEntry
from tui.core.errors import EagletuiError, HostError, UsageError
from tui.core.groups.session import new_group
from tui.core.link.local import LocalTransport
from tui.core.model.group import Role
from tui.core.model.job import Job, JobState
from tui.core.model.profile import BenchProfile, LoadPoint
from tui.core.model.result import GuardStatus, Result
from tui.core.model.run import Run, RunState
from tui.core.runs import control
from tui.core.server.node_session import node_sessions
from tui.core.server.session import HostSession

pytestmark = pytest.mark.timeout(300)
SMI = Path(__file__).parents[2] / "bin/nvidia-smi"
QUICK = BenchProfile("quick", (LoadPoint(concurrency=2),), output_len=40, duration_s=3.0, runs=1)
WATTS = 123.46  # of each GPU of the stand-in


class Cluster:
    """A login host, and a job on two nodes with as many GPUs each as asked for; a rank is a process."""

    def __init__(self, slurm: Slurm, directory: Path, until) -> None:
        self.slurm, self.directory, self.until = slurm, directory, until
        (directory / "bin").mkdir()
        smi = directory / "bin/nvidia-smi"
        smi.write_text(f'#!/bin/sh\nFAKE_PIDS_FILE={directory}/pids-of-$SLURMD_NODENAME exec {SMI} "$@"\n')
        smi.chmod(0o755)
        env = {**os.environ, "PATH": f"{smi.parent}:{os.environ['PATH']}"}
        self.session = HostSession(HostEntry("login", "login"), LocalTransport(env=env))
        self.job = ""

    async def target(self, port: int, gpus: int = 2) -> Target:
        script = f"srun -o /dev/null sh -c 'echo $$ >{self.directory}/pids-of-$SLURMD_NODENAME; exec sleep 1000'"
        submit = lambda: self.slurm.submit("-N2", "-w", "n1,n2", f"--gres=gpu:{gpus}", script=script)  # noqa: E731
        self.job = await asyncio.to_thread(submit)
        await self.until(
            lambda: all(self.pids_of(node).exists() and self.pids_of(node).read_text() for node in ("n1", "n2"))
        )
        group = new_group("two", [(Role.RANK, 0, "login"), (Role.RANK, 1, "login")], job=True)
        rank0, rank1 = (self.run(member.run_id, f"n{member.number + 1}", group.extra()) for member in group.members)
        parts = (Part(group.members[1], None, rank1),)
        return Target(f"http://127.0.0.1:{port}", rank0, rank0.pid, group=group, parts=parts)

    def run(self, run_id: str, node: str, extra: dict[str, object]) -> Run:
        job = Job(self.job, JobState.RUNNING, "RUNNING", nodes="n[1-2]")
        pid = int(self.pids_of(node).read_text())
        base = Run(run_id, "server", "two", "login", RunState.RUNNING, pid, extra={"group": extra})
        return replace(base, job=job, node=node, started_at="2026-11-30T12:00:00+00:00")

    def pids_of(self, node: str) -> Path:
        return self.directory / f"pids-of-{node}"

    async def samplers(self) -> list[Run]:
        return [run for run in await control.list_runs(self.session.transport) if "samples_for" in run.extra]

    async def measured(self, target: Target) -> Result:
        run = await bench_run.start(self.session, QUICK, target)
        (result,) = [news async for news in bench_run.follow_run(self.session, run) if isinstance(news, Result)]
        return result


@pytest.fixture
async def cluster(slurm: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, until) -> AsyncIterator[Cluster]:
    monkeypatch.setenv("EAGLETUI_STATE", str(tmp_path / "state"))
    made = Cluster(slurm, tmp_path, until)
    await made.session.open()
    yield made
    await made.session.close()


def guard(result: Result, name: str) -> tuple[GuardStatus, str]:
    (found,) = [one for one in result.guards if one.id == name]
    return found.status, found.text


async def test_the_gpus_of_both_nodes_are_measured_and_a_stranger_on_any_of_them_voids(cluster: Cluster) -> None:
    with truth.truth_server(tick_ms=3) as (port, _):
        target = await cluster.target(port)
        with cluster.pids_of("n2").open("a") as pids:
            pids.write(f" {os.getpid()}")
        result = await cluster.measured(target)
        assert (result.server.host, [member.host for member in result.server.members]) == ("login", ["n2", "n1"])
        assert [(one.host, one.missing) for one in result.gpu.hosts] == [("n1", None), ("n2", None)]
        assert result.gpu.power_w == pytest.approx(4 * WATTS)
        text = f"1 process of others on the GPUs: PID {os.getpid()} of n2 (limit 0)"
        assert guard(result, "foreign") == (GuardStatus.FAILED, text)
        assert all(one.stop is not None or one.over for one in await cluster.samplers())

        # A measurement ends with its job, and says so; the next one is refused.
        run = await bench_run.start(cluster.session, replace(QUICK, duration_s=600.0), target)
        await asyncio.to_thread(cluster.slurm, "scancel", cluster.job)
        with pytest.raises(EagletuiError, match="load generator ended"):
            async for _ in bench_run.follow_run(cluster.session, run):
                pass
        with pytest.raises(EagletuiError, match="is no more"):
            await bench_run.start(cluster.session, QUICK, target)


async def test_a_job_shows_its_own_gpus_alone(cluster: Cluster) -> None:
    target = await cluster.target(1, gpus=1)
    assert target.run is not None
    nodes = node_sessions(cluster.session, [target.run, target.parts[0].run])
    assert list(nodes) == ["n1", "n2"]
    assert [gpu.index for gpu in (await nodes["n2"].sample()).gpus] == [0]
    async with aclosing(nodes["n1"].gpus(0.2)) as samples:
        assert [gpu.index for gpu in (await anext(samples)).gpus] == [0]
        await asyncio.to_thread(cluster.slurm, "scancel", cluster.job)
        with pytest.raises(HostError, match=r"n1 of job .* is no more"):
            async for _ in samples:
                pass
    with pytest.raises(UsageError, match="has no node: it is exited"):
        node_sessions(cluster.session, [replace(target.run, state=RunState.EXITED)])
