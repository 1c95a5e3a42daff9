"""A server over two hosts is measured: the GPUs of both are in the result, and a stranger on either voids it."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support import truth_server as truth
from tests.support.run_lab import request, sh, until
from tui.core.bench import bench_run, other_hosts
from tui.core.bench.collect import Asked
from tui.core.bench.other_hosts import NO_LINK
from tui.core.bench.target import Part, Target
from tui.core.groups.session import new_group
from tui.core.model.group import Role
from tui.core.model.profile import BenchProfile, LoadPoint
from tui.core.model.result import GuardStatus, Result
from tui.core.runs import control

pytestmark = pytest.mark.timeout(180)
BIN = Path(__file__).parents[2] / "bin"
QUICK = BenchProfile("quick", (LoadPoint(concurrency=2),), output_len=40, duration_s=3.0, runs=1)
WATTS = 123.46  # of each GPU of the stand-in


class TwoNodes:
    """Two hosts with two GPUs each, a rank on each: a process, and for rank 0 a server that tells the truth."""

    def __init__(self, sessions, directory: Path) -> None:
        self.sessions, self.directory = sessions, directory
        self.gpu3, self.gpu4 = sessions["gpu3"], sessions["gpu4"]
        for name, session in sessions.items():
            self.pids_of(name).touch()
            session.transport._env |= {"PATH": f"{BIN}:{os.environ['PATH']}", "FAKE_PIDS_FILE": str(self.pids_of(name))}

    def pids_of(self, host: str) -> Path:
        return self.directory / f"pids-of-{host}"

    async def target(self, port: int) -> Target:
        group = new_group("two", [(Role.RANK, 0, "gpu3"), (Role.RANK, 1, "gpu4")])
        runs = []
        for member in group.members:
            started = await control.launch(
                self.sessions[member.host].transport, request(sh("exec sleep 600"), gpus=(0, 1))
            )
            run = replace(started, host=member.host)
            self.pids_of(member.host).write_text(str(run.pid))
            runs.append(run)
        rank0, rank1 = runs
        return Target(
            f"http://127.0.0.1:{port}", rank0, rank0.pid, group=group, parts=(Part(group.members[1], None, rank1),)
        )

    async def sampling(self) -> list:
        """What samples on gpu4."""
        return [run for run in await control.list_runs(self.gpu4.transport) if "samples_for" in run.extra]


@pytest.fixture
def nodes(make_hosts, tmp_path):
    return TwoNodes(make_hosts("gpu3", "gpu4"), tmp_path)


def guard(result: Result, name: str) -> tuple[GuardStatus, str]:
    (found,) = [one for one in result.guards if one.id == name]
    return found.status, found.text


async def followed(session, run, others) -> Result:
    (result,) = [news async for news in bench_run.follow_run(session, run, others) if isinstance(news, Result)]
    return result


async def test_the_gpus_of_both_hosts_are_measured_and_both_are_looked_at_for_strangers(nodes: TwoNodes, monkeypatch):
    with truth.truth_server(tick_ms=3) as (port, _):
        target = await nodes.target(port)
        run = await bench_run.start(nodes.gpu3, QUICK, target, others=nodes.sessions)
        (sampler,) = await nodes.sampling()
        assert sampler.extra["samples_for"] == run.run_id
        assert abs(Asked.of(run.run_id, run.extra).others[0].ahead_s) < 5  # of one machine
        # Who has no link to gpu4 says so, and gives no part of the power for the whole.
        nodes.gpu4.transport.down = True
        monkeypatch.setattr(other_hosts, "_LINK_S", 0.1)
        alone = await followed(nodes.gpu3, run, nodes.sessions)
        assert guard(alone, "foreign") == (GuardStatus.NOT_APPLICABLE, f"not checked on gpu4: {NO_LINK}")
        assert (alone.gpu.power_w, alone.gpu.memory_peak_mib) == (None, None)
        assert [(one.host, one.missing) for one in alone.gpu.hosts] == [("gpu3", None), ("gpu4", NO_LINK)]
        nodes.gpu4.transport.down = False
        monkeypatch.undo()
        # Whoever has one completes what is stored, and ends the sampler.
        run = await control.refresh(nodes.gpu3.transport, run)
        (result,) = await bench_run.collect(nodes.gpu3, run, nodes.sessions)
        assert result.gpu.power_w == pytest.approx(4 * WATTS)
        assert result.gpu.energy_j == pytest.approx(4 * WATTS * result.window.duration_s)
        assert (result.gpu.memory_peak_mib, result.gpu.sm_mhz) == (2000, 1980)
        assert [(one.host, one.power_w) for one in result.gpu.hosts] == [
            ("gpu3", pytest.approx(2 * WATTS)), ("gpu4", pytest.approx(2 * WATTS)),
        ]  # fmt: skip
        assert guard(result, "foreign") == (GuardStatus.OK, "nobody else was on the GPUs of gpu3, gpu4")
        assert result.gpu.throttle == alone.gpu.throttle != ()

        async def over() -> bool:
            (now,) = await nodes.sampling()
            return now.over

        await until(over, "the end of the sampler")

        # Another measurement, with a process of others on a GPU of the second host.
        with nodes.pids_of("gpu4").open("a") as pids:
            pids.write(f" {os.getpid()}")
        again = await followed(
            nodes.gpu3, await bench_run.start(nodes.gpu3, QUICK, target, others=nodes.sessions), nodes.sessions
        )
        text = f"1 process of others on the GPUs: PID {os.getpid()} of gpu4 (limit 0)"
        assert guard(again, "foreign") == (GuardStatus.FAILED, text)
        assert not again.valid
        assert not any(one.active for one in await nodes.sampling() if not one.stop)
