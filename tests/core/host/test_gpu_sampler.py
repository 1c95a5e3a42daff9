"""The sampler on this machine: real pynvml over a stand-in for the driver's library, and a stand-in for nvidia-smi."""

import ast
import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tui.core.errors import LinkLost
from tui.core.host.gpu_sampler import SamplerTiming, one_sample, sample_gpus
from tui.core.host.gpu_sources import SOURCES, Feed, sampler_script
from tui.core.host.gpus import FIGURES
from tui.core.host.host_facts import host_facts
from tui.core.link.local import LocalTransport
from tui.core.link.transport import LinkState, LinkStatus

TESTS = Path(__file__).parents[2]
FAST = SamplerTiming(stall_after_s=0.3, first_after_s=20.0, replace_after_s=1.0, retry_s=0.1, restart_s=0.05)
DEADLINE_S = 60.0


@pytest.fixture(scope="session")
def compiled(tmp_path_factory):
    """Directories with libnvidia-ml.so.1, the present one and one of an old driver."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if not compiler:
        pytest.skip("needs a C compiler: apt-get install gcc libc6-dev")
    made = {}
    for name, flags in (("new", []), ("old", ["-DOLD"])):
        directory = tmp_path_factory.mktemp(f"nvml-{name}")
        source = TESTS / "nvml" / "nvml_stand_in.c"
        library = directory / "libnvidia-ml.so.1"
        subprocess.run([compiler, "-shared", "-fPIC", *flags, "-o", library, source], check=True)
        made[name] = directory
    return made


class Fault:
    """Words that a stand-in obeys, changeable while it runs, and the log of its starts."""

    def __init__(self, directory: Path) -> None:
        self.file = directory / "fault"
        self.log = directory / "starts"
        self.set("")
        self.log.touch()

    def set(self, words: str) -> None:
        new = self.file.with_suffix(".new")
        new.write_text(words)
        new.replace(self.file)

    def starts(self, what: str = "") -> list[str]:
        return [line for line in self.log.read_text().splitlines() if what in line]


@pytest.fixture
def fault(tmp_path):
    return Fault(tmp_path)


@pytest.fixture
async def host(request, fault):
    """Makes hosts: `host("nvml")`, `host("old")` or `host("smi")`, with further variables of its environment."""
    opened = []

    def make(kind: str, transport: type[LocalTransport] = LocalTransport, **variables: str) -> LocalTransport:
        env = {**os.environ, "FAKE_PIDS": str(os.getpid()), **variables}
        if kind == "smi":
            env |= {"PATH": f"{TESTS / 'bin'}:{env['PATH']}", "PYTHONPATH": str(TESTS / "nvml" / "missing")}
            env |= {"FAKE_SMI_FILE": str(fault.file), "FAKE_SMI_LOG": str(fault.log)}
        else:
            directories = request.getfixturevalue("compiled")
            env |= {"LD_LIBRARY_PATH": str(directories["old" if kind == "old" else "new"])}
            env |= {"FAKE_FILE": str(fault.file), "FAKE_LOG": str(fault.log)}
        opened.append(transport(env=env))
        return opened[-1]

    yield make
    for transport in opened:
        await transport.close()


def samples(transport, python=sys.executable, timing=FAST):
    return aclosing(sample_gpus(transport, python, 0.05, timing=timing))


async def until(stream, condition):
    """The first sample that meets a condition."""
    async with asyncio.timeout(DEADLINE_S):
        async for sample in stream:
            if condition(sample):
                return sample
    raise AssertionError("the samples ended")


# -- NVML -------------------------------------------------------------------------------------------------------------


async def test_nvml_figures(host):
    sample = await one_sample(host("nvml", FAKE_PIDS=f"{os.getpid()} 4000000"), sys.executable)
    assert (sample.source, sample.error, len(sample.gpus)) == ("nvml", None, 2)
    gpu = sample.gpus[0]
    assert (gpu.index, gpu.uuid, gpu.name, gpu.bus_id) == (0, "GPU-aaaa-1", "NVIDIA H200", "00000000:10:00.0")
    assert (gpu.memory_used_mib, gpu.memory_reserved_mib, gpu.memory_total_mib) == (1600, 600, 143771)
    assert (gpu.utilization_pct, gpu.temperature_c, gpu.power_limit_w) == (50, 40, 700)
    assert gpu.power_w == pytest.approx(123.456)
    assert (gpu.sm_clock_mhz, gpu.memory_clock_mhz, gpu.pcie_link_gen, gpu.pcie_link_width) == (1980, 3201, 5, 16)
    assert (gpu.pcie_rx_mib_s, gpu.pcie_tx_mib_s) == (2, 1)
    assert gpu.throttle_reasons == ("power cap",)
    assert (gpu.mig_mode, gpu.unified_memory, gpu.health) == (False, False, None)
    ours, gone = gpu.processes
    assert (ours.pid, ours.memory_used_mib) == (os.getpid(), 512)
    assert ours.user
    assert ours.name
    assert (gone.pid, gone.user, gone.name) == (4000000, None, None)
    assert sample.gpus[1].processes == ()
    assert abs(sample.taken_at - time.time()) < 3600


async def test_old_library(host):
    gpu = (await one_sample(host("old"), sys.executable)).gpus[0]
    assert (gpu.memory_used_mib, gpu.memory_reserved_mib) == (1600, None)
    assert gpu.throttle_reasons == ("hardware slowdown",)
    assert [process.pid for process in gpu.processes] == [os.getpid()]


@pytest.mark.parametrize(
    ("words", "error"), [("zero", "no_devices"), ("mismatch", "driver_mismatch"), ("nodriver", "unreadable")]
)
async def test_nvml_named_errors(host, fault, words, error):
    fault.set(words)
    sample = await one_sample(host("nvml"), sys.executable)
    assert (sample.error, sample.gpus, sample.source) == (error, (), "nvml")
    assert sample.detail


@pytest.mark.fault("G1")
async def test_nvml_per_cell_errors(host, fault):
    fault.set("err")
    gpu = (await one_sample(host("nvml"), sys.executable)).gpus[0]
    assert (gpu.temperature_c, gpu.health, gpu.utilization_pct) == (None, "error", 50)


async def test_process_without_memory_figure(host, fault):
    fault.set("nomem")
    gpu = (await one_sample(host("nvml"), sys.executable)).gpus[0]
    assert gpu.processes[0].memory_used_mib is None


async def test_no_permission_is_no_zero(host, fault):
    fault.set("noperm nothrottle")
    gpu = (await one_sample(host("nvml"), sys.executable)).gpus[0]
    assert (gpu.memory_used_mib, gpu.memory_total_mib, gpu.processes) == (None, None, None)
    assert (gpu.throttle_reasons, gpu.health, gpu.unified_memory) == (None, None, False)


def _memory_total_mib():
    return int(Path("/proc/meminfo").read_text().split()[1]) / 1024


@pytest.mark.parametrize("kind", ["nvml", "smi"])
async def test_unified_memory_is_the_hosts(host, fault, kind):
    fault.set("unified")
    gpu = (await one_sample(host(kind), sys.executable)).gpus[0]
    assert gpu.unified_memory
    assert gpu.memory_total_mib == pytest.approx(_memory_total_mib())
    assert 0 < gpu.memory_used_mib < gpu.memory_total_mib


@pytest.mark.fault("G4", "MIG", sees="parent and instances", holds="no utilisation is made up")
async def test_mig_by_nvml(host, fault):
    fault.set("mig noperm")
    sample = await one_sample(host("nvml"), sys.executable)
    parent, first, second, other = sample.gpus
    assert (parent.mig_mode, parent.utilization_pct, parent.memory_total_mib) == (True, None, None)
    assert [process.pid for process in parent.processes] == [os.getpid()]
    assert (first.index, first.parent_uuid, first.memory_total_mib) == (0, parent.uuid, 18000)
    assert first.uuid != second.uuid
    assert (other.mig_mode, other.parent_uuid) == (False, None)


@pytest.mark.fault("G4")
async def test_mig_by_nvidia_smi(host, fault):
    fault.set("mig")
    parent, first, second, other = (await one_sample(host("smi"), sys.executable)).gpus
    assert (parent.mig_mode, parent.uuid, first.parent_uuid) == (True, "GPU-aaaa-0", "GPU-aaaa-0")
    assert (first.uuid, second.uuid, first.name) == ("MIG-cccc-0", "MIG-cccc-1", "MIG 1g.18gb")
    assert (other.index, other.mig_mode) == (1, False)


@pytest.mark.parametrize(("kind", "lost"), [("nvml", "GPU-aaaa-2"), ("smi", "GPU-aaaa-1")])
@pytest.mark.fault("G3", "a GPU is lost", sees="that it is lost", holds="the others are shown")
async def test_a_lost_gpu_keeps_its_name_and_hides_no_other(host, fault, kind, lost):
    async with samples(host(kind)) as stream:
        await until(stream, lambda sample: len(sample.gpus) == 2)
        fault.set("lost")
        sample = await until(stream, lambda sample: any(gpu.health for gpu in sample.gpus))
        well, ill = sample.gpus
        assert (ill.uuid, ill.index, ill.health) == (lost, 1, "lost")
        assert (ill.memory_used_mib, ill.utilization_pct, ill.processes in (None, ())) == (None, None, True)
        assert (well.health, well.utilization_pct) == (None, 50)
        fault.set("")
        await until(stream, lambda sample: all(gpu.health is None for gpu in sample.gpus))


@pytest.mark.parametrize("kind", ["nvml", "smi"])
async def test_reset_required(host, fault, kind):
    fault.set("reset")
    well, ill = (await one_sample(host(kind), sys.executable)).gpus
    assert (ill.health, ill.temperature_c, well.health) == ("requires_reset", None, None)


# -- silence ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["nvml", "smi"])
@pytest.mark.fault(
    "G6",
    "a driver that hangs",
    sees="how long it has been silent, and in what",
    holds="one sampler at a time, replaced once",
)
async def test_a_hung_sampler_is_replaced_once_and_recovers(host, fault, kind):
    what = "" if kind == "nvml" else "--query-gpu"
    timing = replace(FAST, first_after_s=4.0)
    async with samples(host(kind), timing=timing) as stream:
        good = await until(stream, lambda sample: sample.stalled_s is None)
        fault.set("hang")
        silent = await until(stream, lambda sample: sample.stalled_s is not None)
        assert [gpu.uuid for gpu in silent.gpus] == [gpu.uuid for gpu in good.gpus]
        # Long enough for a third, were there one.
        await until(stream, lambda sample: (sample.stalled_s or 0) > 11)
        assert len(fault.starts(what)) == 2
        fault.set("")
        after = await until(stream, lambda sample: sample.stalled_s is None)
        assert len(after.gpus) == 2
        assert len(fault.starts(what)) == 2


async def test_the_probe_says_where_the_driver_hangs(host, fault):
    fault.set("hang")
    sample = await one_sample(host("nvml"), sys.executable, timeout_s=9)
    assert (sample.error, sample.gpus) == ("unreadable", ())
    assert "nvmlDeviceGetPowerUsage" in sample.detail


async def test_nothing_stays_behind(host, fault):
    for kind in ("nvml", "smi"):
        async with samples(host(kind)) as stream:
            await until(stream, lambda sample: sample.gpus)
            fault.set("hang")
            await until(stream, lambda sample: sample.stalled_s is not None)
        pids = {int(line.split()[0]) for line in fault.starts()}
        assert pids
        await gone(pids)
        fault.set("")


async def gone(pids):
    """Waits until none of the processes lives."""
    async with asyncio.timeout(DEADLINE_S):
        while any(_lives(pid) for pid in pids):  # noqa: ASYNC110 - other people's processes have no event
            await asyncio.sleep(0.05)


def _lives(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


# -- nvidia-smi -------------------------------------------------------------------------------------------------------


async def test_smi_figures(host):
    sample = await one_sample(host("smi"), sys.executable)
    assert (sample.source, sample.error, len(sample.gpus)) == ("nvidia-smi", None, 2)
    gpu = sample.gpus[0]
    assert (gpu.index, gpu.uuid, gpu.name, gpu.bus_id) == (0, "GPU-aaaa-0", "NVIDIA H200", "00000000:10:00.0")
    assert (gpu.memory_used_mib, gpu.memory_reserved_mib, gpu.memory_total_mib) == (1600, 600, 143771)
    assert (gpu.utilization_pct, gpu.temperature_c, gpu.power_w, gpu.power_limit_w) == (50, 40, 123.46, 700)
    assert (gpu.sm_clock_mhz, gpu.memory_clock_mhz, gpu.pcie_link_gen, gpu.pcie_link_width) == (1980, 3201, 5, 16)
    assert gpu.throttle_reasons == ("power cap",)
    assert (gpu.pcie_rx_mib_s, gpu.mig_mode, gpu.unified_memory, gpu.health) == (None, False, False, None)
    (process,) = gpu.processes
    assert (process.pid, process.memory_used_mib, process.name) == (os.getpid(), 512, "python3, or so")
    assert process.user == subprocess.run(["id", "-nu"], capture_output=True, text=True).stdout.strip()
    assert sample.gpus[1].processes == ()


async def test_no_process_per_tick(host, fault):
    async with samples(host("smi")) as stream:
        for _ in range(20):
            await until(stream, lambda sample: len(sample.gpus) == 2)
        queries = [line.split(" ", 1)[1].split("=")[0] for line in fault.starts()]
    assert sorted(queries) == ["--help-query-gpu", "--query-compute-apps", "--query-compute-apps", "--query-gpu"]


async def test_fields_of_an_old_driver(host, fault):
    fault.set("old")
    gpu = (await one_sample(host("smi"), sys.executable)).gpus[0]
    assert (gpu.memory_used_mib, gpu.memory_reserved_mib, gpu.pcie_link_gen) == (1000, None, 5)
    assert gpu.throttle_reasons == ("hardware slowdown",)


async def test_a_field_that_is_listed_but_refused(host, fault):
    fault.set("refuse")
    async with samples(host("smi")) as stream:
        sample = await until(stream, lambda sample: True)
        assert sample.error is None
        assert (sample.gpus[0].power_limit_w, sample.gpus[0].power_w) == (None, 123.46)


async def test_noise_between_rows(host, fault):
    fault.set("noise")
    async with samples(host("smi")) as stream:
        for _ in range(5):
            sample = await until(stream, lambda sample: True)
            assert [gpu.health for gpu in sample.gpus] == [None, None]


async def test_a_sampler_that_ends_is_started_again(host, fault):
    fault.set("die3 nopids")
    async with samples(host("smi")) as stream:
        for _ in range(8):
            sample = await until(stream, lambda sample: True)
            assert (len(sample.gpus), sample.error) == (2, None)
    assert len(fault.starts("--query-gpu")) > 1
    await gone({int(line.split()[0]) for line in fault.starts()})


@pytest.mark.fault("G7", "half a row", sees="the row before it", holds="never half a figure")
async def test_half_a_row_is_dropped(host, fault):
    fault.set("half")
    async with samples(host("smi")) as stream:
        sample = await until(stream, lambda sample: True)
        assert (sample.error, sample.gpus) == ("unreadable", ())
        fault.set("")
        sample = await until(stream, lambda sample: sample.error is None)
        assert len(sample.gpus) == 2


@pytest.mark.parametrize(("words", "error"), [("mismatch", "driver_mismatch"), ("none", "no_devices")])
@pytest.mark.fault("G2", "driver and library differ", sees="that by name", holds="asked again every 30 s")
async def test_smi_named_errors_are_asked_again(host, fault, words, error):
    fault.set(words)
    async with samples(host("smi")) as stream:
        sample = await until(stream, lambda sample: True)
        assert (sample.error, sample.gpus) == (error, ())
        fault.set("")
        await until(stream, lambda sample: sample.error is None)


async def test_no_processes_is_known_to_be_none(host, fault):
    fault.set("nopids")
    sample = await one_sample(host("smi"), sys.executable)
    assert sample.gpus[0].processes == ()


@pytest.mark.parametrize("python", ["/nowhere/python", "/bin/false", sys.executable])
async def test_without_nvml_nvidia_smi_is_asked(host, python):
    sample = await one_sample(host("smi"), python)
    assert (sample.source, len(sample.gpus)) == ("nvidia-smi", 2)


async def test_without_the_library_nvidia_smi_is_asked(host, fault):
    fault.set("nolib")
    sample = await one_sample(host("nvml", PATH=f"{TESTS / 'bin'}:{os.environ['PATH']}"), sys.executable)
    assert (sample.source, sample.error, len(sample.gpus)) == ("nvidia-smi", None, 2)


@pytest.mark.fault("E3", "no nvidia-smi, no NVML", sees="that there are no GPU figures, and why", holds="runs work")
async def test_neither(host, tmp_path):
    bare = tmp_path / "bin"
    bare.mkdir()
    for tool in ("sh", "sleep", "kill", "id"):
        (bare / tool).symlink_to(shutil.which(tool))
    sample = await one_sample(host("nvml", PATH=str(bare)), "python3")
    assert (sample.error, sample.gpus) == ("nvidia_smi_missing", ())


# -- link -------------------------------------------------------------------------------------------------------------


class Link(LocalTransport):
    """This machine behind a link that can be cut."""

    state = LinkState.UP

    def __init__(self, **keywords):
        super().__init__(**keywords)
        self.up = asyncio.Event()
        self.cut = asyncio.Event()
        self.streams = 0

    @contextlib.asynccontextmanager
    async def stream(self, script):
        self.streams += 1
        async with super().stream(script) as inner:
            outer = self

            class Cut:
                async def read(self, max_bytes=65536):
                    reading = asyncio.ensure_future(inner.read(max_bytes))
                    cut = asyncio.ensure_future(outer.cut.wait())
                    await asyncio.wait([reading, cut], return_when=asyncio.FIRST_COMPLETED)
                    if outer.cut.is_set():
                        reading.cancel()
                        raise LinkLost("cut")
                    cut.cancel()
                    return await reading

                def stderr_tail(self):
                    return inner.stderr_tail()

            yield Cut()

    def status(self):
        return LinkStatus(self.host, self.state, 0.0)

    async def watch(self):
        yield self.status()
        await self.up.wait()
        yield self.status()


async def test_a_lost_link_is_a_pause(host):
    link = host("nvml", Link)
    async with samples(link) as stream:
        await until(stream, lambda sample: sample.gpus)
        link.state = LinkState.LOST
        link.cut.set()
        waiting = asyncio.ensure_future(until(stream, lambda sample: True))
        done, _ = await asyncio.wait([waiting], timeout=0.5)
        assert not done
        assert link.streams == 1
        link.state = LinkState.UP
        link.cut.clear()
        link.up.set()
        sample = await waiting
        assert (sample.stalled_s, len(sample.gpus), link.streams) == (None, 2, 2)


class Replay(LocalTransport):
    """A host whose sampler says all that it has to say at once."""

    text = b""

    @contextlib.asynccontextmanager
    async def stream(self, script):
        chunks = [self.text]

        class All:
            async def read(self, max_bytes=65536):
                return chunks.pop() if chunks else b""

            def stderr_tail(self):
                return b""

        yield All()


async def test_a_slow_reader_gets_the_newest_only():
    host = Replay()
    host.text = b"".join(
        b'\nN {"t": %d, "gpus": [{"i": 0, "uuid": "GPU-1", "utilization_pct": %d}]}\n' % (tick, tick)
        for tick in range(1, 50)
    )
    seen = []
    async with samples(host) as stream:
        async for sample in stream:
            seen.append(sample.gpus[0].utilization_pct)
            break
    assert seen == [49]


# -- bad input --------------------------------------------------------------------------------------------------------

_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=8,
)
_keys = [
    *(figure.name for figure in FIGURES if figure.nvml),
    *["i", "total", "used", "reserved", "host_memory", "rx_tx", "processes", "na", "failed", "parent"],
]
_smi_line = st.builds(
    lambda kind, cells: f"{kind} {', '.join(cells)}",
    st.sampled_from("EFMGLPQX"),
    st.lists(
        st.sampled_from(["index", "uuid", "0", "[N/A]", "GPU-1", "²", "9" * 400, "|", ""]) | st.text(), max_size=6
    ),
)
_nvml_line = st.builds(
    lambda gpus, rest: "N " + json.dumps({"gpus": gpus, **rest}),
    st.lists(st.dictionaries(st.sampled_from(_keys), _json, max_size=8), max_size=3) | _json,
    st.dictionaries(st.sampled_from(["t", "fatal", "text", "stalled", "in"]), _json, max_size=2),
)


@given(st.lists(_smi_line | _nvml_line | st.text(), max_size=12))
def test_no_line_of_a_host_raises(lines):
    feed = Feed()
    feed.line("F index,uuid,memory.used,name")
    for line in lines:
        feed.line(line)


def test_no_two_sources_share_a_line():
    kinds = [kind for source in SOURCES for kind in source.kinds]
    assert len(kinds) == len(set(kinds))


# -- what is sent -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gpu_probe.py", "host_facts.py"])
def test_programs_run_on_old_pythons(name):
    source = (TESTS.parent / "tui" / "remote" / name).read_text()
    ast.parse(source, feature_version=(3, 8))


@pytest.mark.parametrize("shell", [["sh"], ["bash"], ["dash"], ["busybox", "sh"]])
def test_script_parses(shell):
    if not shutil.which(shell[0]):
        pytest.skip(f"needs {shell[0]}: apt-get install {shell[0]}")
    script = "{\n" + sampler_script("~/it's a/python", 1.0) + "\n}\n"
    done = subprocess.run([*shell, "-n", "-s"], input=script, text=True, capture_output=True)
    assert (done.returncode, done.stderr) == (0, "")


async def test_facts_by_nvml(host):
    facts = await host_facts(host("nvml"), sys.executable)
    assert facts.gpu_names == ("NVIDIA H200", "NVIDIA H200")
    assert facts.compute_capabilities == ("9.0", "9.0")
    assert facts.memory_total_mib == (143771, 143771)
    assert (facts.driver, facts.cuda, facts.persistence_mode) == ("580.95.05", "13.0", True)
