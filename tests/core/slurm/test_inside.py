"""The way onto the nodes of a job of a real Slurm: bytes, cuts, the job's end, and what is left behind on either side."""

import asyncio
import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.slurm import Slurm
from tui.core.errors import HostError, Slug
from tui.core.host.gpu_sampler import SamplerTiming, sample_gpus
from tui.core.link.local import LocalTransport
from tui.core.link.transport import LinkState
from tui.core.slurm.inside import Place, gpus_there, way_into

MARK = "eagletui-inside"


def commands(word: str) -> list[str]:
    """Command lines of this machine's processes with a word in them."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = file.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
        except OSError:
            continue
        if word in text:
            found.append(text)
    return found


def ways_in(job: str) -> list[str]:
    """Ways into a job on the login host, and scripts on its nodes."""
    return [line for line in commands(f"--jobid={job}") if line.startswith("srun")] + commands(MARK)


@pytest.fixture
async def local():
    transport = LocalTransport()
    await transport.connect()
    yield transport
    await transport.close()


@pytest.fixture(scope="module")
def slurm(slurm_cluster: Slurm) -> Iterator[Slurm]:
    """The session's Slurm, whose jobs these tests share; the programs of Slurm and nvidia-smi's stand-in on PATH."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLURM_CONF", slurm_cluster.env["SLURM_CONF"])
        patch.setenv("PATH", f"{Path(__file__).parents[2]}/bin:{os.environ['PATH']}")
        yield slurm_cluster
    slurm_cluster.end_jobs()


def running(slurm: Slurm, *options: str, script: str = "exec sleep 1000") -> str:
    number = slurm.submit(*options, script=script)
    slurm.wait(number, "RUNNING")
    return number


@pytest.fixture(scope="module")
def job(slurm: Slurm) -> str:
    """A job on two nodes whose own step has all their GPUs."""
    return running(slurm, "-N2", "-w", "n1,n2", "--gres=gpu:4", script="exec srun sleep 1000")


@pytest.fixture
def node(local, job):
    return way_into(local, Place(job, "n2"))


async def test_scripts_run_on_the_node_and_say_how_they_end(node):
    done = await node.run("echo $SLURMD_NODENAME; echo err >&2; exit 7")
    assert (done.exit_status, done.stdout, done.stderr) == (7, b"n2\n", b"err\n")


async def test_three_megabytes_are_the_same_both_ways(node, tmp_path):
    data = os.urandom(3_000_000)
    await node.put(data, str(tmp_path / "file"))
    received = b""
    async with node.stream(f"cat {tmp_path}/file; exit 4") as stream:
        while piece := await stream.read():
            received += piece
        assert await stream.exit_status() == 4
    assert received == data


async def test_what_has_no_end_of_line_comes_at_once(node):
    """Without --unbuffered it would wait for one: an answer over HTTP has none."""
    async with node.stream("printf abc; exec sleep 1000") as stream:
        assert await stream.read() == b"abc"


async def test_it_sees_the_gpus_of_the_job_and_takes_none(slurm, local):
    number = running(slurm, "-w", "n3", "--gres=gpu:4")
    node = way_into(local, Place(number, "n3"))
    assert await gpus_there(node) == (0, 1, 2, 3)
    async with node.stream("echo up; exec sleep 1000") as stream:
        assert await stream.read() == b"up\n"
        words = ("srun", f"--jobid={number}", "--exact", "--immediate=20", "--gres=gpu:4", "printenv", "CUDA_VISIBLE_DEVICES")  # fmt: skip
        assert await asyncio.to_thread(slurm, *words) == "0,1,2,3"


async def test_a_job_without_gpus_names_none(slurm, local):
    number = running(slurm, "-w", "n3")
    assert await gpus_there(way_into(local, Place(number, "n3"))) is None


async def test_only_what_it_needs_of_the_environment_travels(monkeypatch, node):
    monkeypatch.setenv("SECRET_OF_MINE", "x")
    said = (await node.run("env; command -v cat")).stdout
    assert b"/cat" in said
    assert b"SECRET_OF_MINE" not in said


async def test_nothing_stays_anywhere_when_the_link_is_cut(slurm, start_sshd, make_ssh_transport, job, until):
    sshd = start_sshd(f"SetEnv SLURM_CONF={slurm.env['SLURM_CONF']}\n")
    outer = make_ssh_transport(sshd.target())
    await outer.connect()
    script = f"trap '' TERM HUP; : {MARK}; echo tick; sleep 1000; sleep 1000"
    async with way_into(outer, Place(job, "n2")).stream(script) as stream:
        await stream.read()
        assert ways_in(job)
        sshd.kill_sessions()
        await until(lambda: not ways_in(job))
    assert slurm.state(job) == "RUNNING"


async def test_a_stream_ends_with_the_job_and_says_so(slurm, local, until):
    job = running(slurm, "-w", "n3", "--gres=gpu:4")
    node = way_into(local, Place(job, "n3"))
    samples = sample_gpus(node, "python3", 0.2, timing=SamplerTiming(restart_s=0.1))
    assert (await anext(samples)).gpus
    await asyncio.to_thread(slurm, "scancel", job)
    async for _ in samples:  # to its end
        pass
    assert node.status().state is LinkState.CLOSED
    with pytest.raises(HostError, match=f"n3 of job {job} is no more: ") as told:
        await node.run("true")
    assert told.value.slug == Slug.LOST
    await until(lambda: ways_in(job) == [])


async def test_a_node_that_the_job_has_not_is_no_way(local, job):
    with pytest.raises(HostError, match=f"no way onto n3 of job {job}: .*not available"):
        await way_into(local, Place(job, "n3")).run("true")


async def test_one_step_samples_for_as_long_as_it_is_read(slurm, job, node):
    def steps() -> list[str]:
        return slurm("squeue", "-h", "-s", "-j", job, "-o", "%i").splitlines()

    async with contextlib.aclosing(sample_gpus(node, "python3", 0.2)) as samples:
        first = await anext(samples)
        assert first.gpus
        before = steps()
        await anext(samples)
        await anext(samples)
        assert steps() == before
    assert await node.run("true")
