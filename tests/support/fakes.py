"""A host made of frozen states: the panel is drawn from them without a connection. Real hosts are in tests/e2e."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

from tui.core.config import HostEntry
from tui.core.errors import HostError, LinkLost
from tui.core.host.gpus import Gpu, GpuProcess, GpuSample, HostFacts
from tui.core.link.transport import LinkState, LinkStatus, Transport
from tui.core.logs.reader import LogStep
from tui.core.model.job import Job
from tui.core.model.phases import Outcome, Phase
from tui.core.model.run import Run, RunState
from tui.core.profiles.command import LaunchCommand
from tui.core.profiles.launch_profile import LaunchProfile
from tui.core.runs.news import Pace
from tui.core.runs.request import LaunchRequest
from tui.core.server import launch
from tui.core.server.finding import Finding, Level
from tui.core.server.launch import LaunchPlan, LaunchProgress
from tui.core.server.launch_records import PhaseHistory
from tui.core.server.server_state import RunUpdate, ServerState
from tui.core.server.stop import StopProgress
from tui.core.sglang.diagnosis import Diagnosis, Evidence
from tui.core.sglang.state import DecodeFigures, LedgerRow, PhaseSpan, Progress, RankState, StartupState
from tui.core.sglang.tracker import LogTracker
from tui.core.slurm.script import JobRequest

if TYPE_CHECKING:
    from tui.core.logs.log_file import LogFile
    from tui.core.slurm.board import JobBoard

GIB = 1024.0
RUN_ID = "kimi-k2.5-eagle3-mem088-20261006T200103Z-4f9c2a"
USUAL = {
    Phase.LAUNCH: 14,
    Phase.DISTRIBUTED_INIT: 9,
    Phase.LOAD_WEIGHTS: 526,
    Phase.DRAFT_MODEL: 11,
    Phase.MEMORY_POOL: 3,
    Phase.CUDA_GRAPH: 91,
    Phase.WARMUP: 13,
}
SERVER_ARGS: dict[str, object] = {
    "model_path": "/data/models/Kimi-K2.5",
    "tp_size": 8,
    "mem_fraction_static": 0.88,
    "speculative_algorithm": "EAGLE3",
    "max_running_requests": 48,
}
ARGV = ("/opt/sglang/bin/python", "-m", "sglang.launch_server", "--model-path", "/data/models/Kimi-K2.5", "--tp", "8",
        "--mem-fraction-static", "0.88", "--speculative-algorithm", "EAGLE3")  # fmt: skip


def log_text() -> bytes:
    """A start as SGLang 0.5.23 writes it, up to the middle of the weights."""
    ranks = [f"TP{rank}" for rank in range(8)]
    lines = [
        "[2026-10-06 20:01:15] UserWarning: 'python -m sglang.launch_server' is still supported, but 'sglang serve' is the recommended way",
        *["[2026-10-06 20:01:15] Ignore import error when loading sglang.srt.models.midashenglm: No module named 'torchaudio'"] * 3,
        "[2026-10-06 20:01:16] Attention backend not specified. Use triton backend by default.",
        "[2026-10-06 20:01:16] WARNING: speculative_num_draft_tokens is adjusted to speculative_num_steps + 1",
        "[2026-10-06 20:01:17] WARNING: Max running requests is reset to 48 for speculative decoding.",
        "[2026-10-06 20:01:17] server_args=ServerArgs(model_path='/data/models/Kimi-K2.5', tp_size=8, mem_fraction_static=0.88, "
        + "x='" + "y" * 4000 + "')",
        *[f"[2026-10-06 20:01:17 {rank}] Init torch distributed begin." for rank in ranks],
        "[Gloo] Rank 0 is connected to 7 peer ranks. Expected number of connected peer ranks is : 7",
        "[2026-10-06 20:01:18 TP0] sglang is using nccl==2.29.3",
        "NCCL version 2.29.3+cuda13.1",
        *[f"[2026-10-06 20:01:26 {rank}] Init torch distributed ends. elapsed=8.91 s, mem usage=0.50 GB" for rank in ranks],
        *[f"[2026-10-06 20:01:26 {rank}] Load weight begin. avail mem=94.50 GB" for rank in ranks],
        "[2026-10-06 20:01:31] Using default HuggingFace chat template with detected content format: openai",
        *["[2026-10-06 20:07:01] Using a slow tokenizer. This might cause a significant slowdown. Consider using a fast tokenizer instead."] * 214,
        "Loading safetensors checkpoint shards:  64% Completed | 41/64 [05:37<03:09,  8.22s/it]",
    ]  # fmt: skip
    return ("\n".join(lines) + "\n").encode()


def ready_text() -> bytes:
    """The rest of the same start, and some decoding."""
    ranks = [f"TP{rank}" for rank in range(8)]
    lines = [
        *[f"[2026-10-06 20:11:01 {rank}] Load weight end. elapsed=574.80 s, type=KimiK25ForConditionalGeneration, "
          "quant=compressed-tensors, avail mem=22.90 GB, mem usage=71.60 GB." for rank in ranks],
        *[f"[2026-10-06 20:11:14 {rank}] KV Cache is allocated. dtype: torch.bfloat16, #tokens: 147840, KV size: 9.69 GB" for rank in ranks],
        *[f"[2026-10-06 20:11:14 {rank}] Memory pool end. avail mem=11.30 GB" for rank in ranks],
        *[f"[2026-10-06 20:11:16 {rank}] Capture cuda graph begin. This can take up to several minutes. avail mem=11.30 GB" for rank in ranks],
        *[f"[2026-10-06 20:11:58 {rank}] Capture cuda graph end. Time elapsed: 42.10 s. mem usage=2.40 GB. avail mem=8.90 GB." for rank in ranks],
        "[2026-10-06 20:12:34 TP0] max_total_num_tokens=147840, chunked_prefill_size=8192, max_prefill_tokens=16384, "
        "max_running_requests=48, context_len=131072",
        "[2026-10-06 20:12:35] INFO:     Uvicorn running on http://127.0.0.1:30000 (Press CTRL+C to quit)",
        "[2026-10-06 20:12:48] The server is fired up and ready to roll!",
        *[f"[2026-10-06 20:34:{second:02d} TP0] Decode batch, #running-req: 1, #token: {2000 + 40 * second}, token usage: 0.02, "
          "accept len: 2.31, accept rate: 0.44, cuda graph: True, gen throughput (token/s): 72.10, #queue-req: 0" for second in range(20)],
    ]  # fmt: skip
    return ("\n".join(lines) + "\n").encode()


def gpus(
    used_gib: float = 47.0, *, straggler: int | None = 5, util: float = 4.0, watts: float = 91.0
) -> tuple[Gpu, ...]:
    """Eight cards of the motivating case."""
    return tuple(
        Gpu(
            index=index,
            uuid=f"GPU-{index}",
            name="NVIDIA RTX PRO 6000 Blackwell Workstation Edition",
            memory_used_mib=(used_gib - (7.1 if index == straggler else 0) + 0.1 * (index % 3)) * GIB,
            memory_total_mib=95.6 * GIB,
            utilization_pct=util + index % 4,
            power_w=watts + index,
            power_limit_w=600.0,
            temperature_c=40.0 + index % 4,
            processes=(GpuProcess(48213 + index, "tuner", "sglang::scheduler", used_gib * GIB),),
        )
        for index in range(8)
    )


FACTS = HostFacts(
    gpu_names=("NVIDIA RTX PRO 6000 Blackwell Workstation Edition",) * 8,
    compute_capabilities=("12.0",) * 8,
    driver="590.48.01",
    cuda="13.1",
    persistence_mode=True,
    sglang="0.5.23",
    user="tuner",
    hostname="gpu1",
)


def run(**changes: object) -> Run:
    """Our server."""
    base = Run(
        run_id=RUN_ID,
        kind="server",
        profile="kimi-k2.5-eagle3-mem088",
        host="gpu1",
        state=RunState.RUNNING,
        pid=48213,
        port=30000,
        started_at="2026-10-06T20:01:03Z",
        log_path="/home/tuner/.eagletui/log",
        argv=ARGV,
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def usual(n: int = 4) -> tuple[dict[Phase, PhaseHistory], PhaseHistory]:
    """What earlier starts took."""
    phases = {phase: PhaseHistory(seconds, seconds * 0.97, seconds * 1.03, n) for phase, seconds in USUAL.items()}
    return phases, PhaseHistory(667.0, 647.0, 687.0, n)


def starting(*, history: bool = True, elapsed: float = 360.0, **changes: object) -> ServerState:
    """In the middle of the weights."""
    phases, total = usual()
    spans = (
        PhaseSpan(Phase.LAUNCH, 0, 14),
        PhaseSpan(Phase.DISTRIBUTED_INIT, 14, 23),
        PhaseSpan(Phase.LOAD_WEIGHTS, 23, None),
    )
    startup = StartupState(
        phase=Phase.LOAD_WEIGHTS,
        progress=Progress("shards", 41, 64),
        ranks=tuple(RankState(f"TP{rank}", Phase.LOAD_WEIGHTS, "20:01:26") for rank in range(8)),
        spans=spans,
        ledger=tuple(LedgerRow(f"TP{rank}", before_gib=94.5) for rank in range(8)),
        lines=1164,
        server_args=SERVER_ARGS,
    )
    state = ServerState(
        run=run(),
        outcome=Outcome.STARTING,
        phase=Phase.LOAD_WEIGHTS,
        startup=startup,
        started_s=time.time() - elapsed,
        phase_took_s={Phase.LAUNCH: 14.0, Phase.DISTRIBUTED_INIT: 9.0, Phase.LOAD_WEIGHTS: elapsed - 23.0},
        usual=phases if history else {},
        usual_total=total if history else None,
        eta_s=359.0 if history else None,
        last_line_age_s=2.0,
        last_progress_age_s=3.0,
        known_at=time.monotonic(),
    )
    return replace(state, **changes)  # type: ignore[arg-type]


def ready(**changes: object) -> ServerState:
    """Serving one user."""
    phases, total = usual()
    took = {Phase.LAUNCH: 14.0, Phase.DISTRIBUTED_INIT: 9.0, Phase.LOAD_WEIGHTS: 575.0, Phase.DRAFT_MODEL: 11.0,
            Phase.MEMORY_POOL: 2.0, Phase.CUDA_GRAPH: 80.0, Phase.WARMUP: 14.0}  # fmt: skip
    startup = StartupState(
        phase=Phase.SERVING,
        outcome=Outcome.READY,
        ranks=tuple(RankState(f"TP{rank}", Phase.SERVING, "20:12:48") for rank in range(8)),
        spans=tuple(PhaseSpan(phase, 0, 1) for phase in took),
        last_decode=DecodeFigures(1, 0, 72.1, 2.31, 0.02, True),
        ledger=tuple(LedgerRow(f"TP{rank}", 94.5, 71.6, 1.6, 10.0, 3.6, 7.7, 147840) for rank in range(8)),
        lines=3402,
        decode_lines=20,
        fired_up=True,
        server_args=SERVER_ARGS,
        max_total_num_tokens=147840,
    )
    state = ServerState(
        run=run(),
        outcome=Outcome.READY,
        phase=Phase.SERVING,
        startup=startup,
        started_s=time.time() - 705.0 - 1284.0,
        ready_after_s=705.0,
        phase_took_s=took,
        usual=phases,
        usual_total=total,
        last_line_age_s=0.4,
        known_at=time.monotonic(),
    )
    return replace(state, **changes)  # type: ignore[arg-type]


def crashed(**changes: object) -> ServerState:
    """No room for the pool."""
    phases, total = usual()
    took = {
        Phase.LAUNCH: 14.0,
        Phase.DISTRIBUTED_INIT: 9.0,
        Phase.LOAD_WEIGHTS: 525.0,
        Phase.DRAFT_MODEL: 11.0,
        Phase.MEMORY_POOL: 2.0,
    }
    startup = StartupState(
        phase=Phase.MEMORY_POOL,
        outcome=Outcome.CRASHED,
        spans=tuple(PhaseSpan(phase, 0, 1) for phase in took),
        ledger=tuple(LedgerRow(f"TP{rank}", 94.5, 71.7 if rank == 0 else 71.6, 1.6) for rank in range(8)),
        lines=2036,
        server_args={**SERVER_ARGS, "mem_fraction_static": 0.76},
    )
    diagnosis = Diagnosis(
        cause="oom_kv_pool",
        title="The KV pool has no room: weights and draft model alone exceed the memory budget.",
        phase=Phase.MEMORY_POOL,
        rank="TP0",
        evidence=Evidence(
            257, "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. "
            "Current value: self.server_args.mem_fraction_static=0.76"
        ),
        advice=(
            "The budget must hold weights, draft model and KV pool together. EAGLE-3 adds 1.6 GiB a rank that the baseline "
            "does not need: with it, 0.76 is spent before the pool gets anything.",
            "The 7.7 GiB left outside the budget at 0.88 are inside SGLang's advice of 5 to 8.",
        ),
        set={"mem-fraction-static": 0.88},
    )  # fmt: skip
    state = ServerState(
        run=run(state=RunState.EXITED, exit_code=1, ended_at="2026-10-06T20:10:26Z"),
        outcome=Outcome.CRASHED,
        phase=Phase.MEMORY_POOL,
        startup=startup,
        diagnosis=diagnosis,
        started_s=time.time() - 600,
        phase_took_s=took,
        usual=phases,
        usual_total=total,
        known_at=time.monotonic(),
    )
    return replace(state, **changes)  # type: ignore[arg-type]


CRASH_TEXT = b"""\
[2026-10-06 20:10:21 TP0] Load weight end. elapsed=10.70 s, type=LlamaForCausalLMEagle3, avail mem=21.20 GB, mem usage=1.60 GB.
[2026-10-06 20:10:24 TP0] Scheduler hit an exception: Traceback (most recent call last):
  File "/opt/sglang/srt/managers/scheduler.py", line 2850, in run_scheduler_process
    scheduler = Scheduler(
    raise RuntimeError(
RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. Current value: self.server_args.mem_fraction_static=0.76

[2026-10-06 20:10:25] Received sigquit from a child process. It usually means the child failed.
"""


@dataclass
class FakeTransport:
    """Counts what the panel asks of the link."""

    host: str = "fake"
    reconnects: int = 0
    last: LinkStatus | None = None
    scripts: list[str] = field(default_factory=list)  # that it was to run

    def reconnect(self) -> None:
        self.reconnects += 1

    def status(self) -> LinkStatus:
        return self.last or LinkStatus("", LinkState.CONNECTING, 0.0)

    async def connect(self) -> None:
        """It is connected."""

    async def watch(self) -> AsyncIterator[LinkStatus]:
        """As `status` has it, once."""
        yield self.status()

    def shell(self, *, for_stream: bool = False) -> object:
        """Nobody gets onto its nodes."""
        raise HostError("a host of states opens no shell")

    async def run(self, script: str, **_: object) -> object:
        """No script runs there."""
        self.scripts.append(script)
        raise LinkLost("a host of states runs no script")

    @asynccontextmanager
    async def stream(self, script: str) -> AsyncIterator["FakeTransport"]:
        """A program on the host that never answers."""
        yield self

    async def read(self) -> bytes:
        await asyncio.Event().wait()
        return b""

    def stderr_tail(self) -> bytes:
        return b""


@dataclass
class FakeJobs:
    """A `JobBoard` that was looked at."""

    cluster: str | None = "hpc"
    theirs: tuple[Job, ...] = ()
    stopped: list[str] = field(default_factory=list)
    requests: list[JobRequest] = field(default_factory=list)

    def others(self) -> tuple[Job, ...]:
        return self.theirs

    def run(self, run_id: str) -> Run | None:
        return None

    async def submit(self, request: JobRequest) -> str:
        self.requests.append(request)
        return "7"


@dataclass
class Script:
    """What a fake host says. Queues are fed by tests while the panel runs."""

    samples: Sequence[tuple[Gpu, ...]] = ()
    link_states: Sequence[LinkState] = (LinkState.CONNECTING, LinkState.UP)
    updates: Sequence[RunUpdate] = ()
    beside: Mapping[str, Sequence[RunUpdate]] = field(default_factory=dict)  # of other runs, by their ids
    runs: Sequence[Run] = ()
    facts: HostFacts = FACTS
    findings: Sequence[Finding] = (
        Finding("gpus", Level.OK, "all 8 are free"),
        Finding("port", Level.OK, "30000 is free"),
    )
    on_open: Callable[["FakeSession"], object] | None = None
    replaced: Sequence[Run] = ()
    jobs: "FakeJobs | None" = None  # of a login host
    files: Transport | None = None  # where the log of the run is read; None: only what is watched can be read


@dataclass
class FakeSession:
    """A `tui.core.server.session.HostSession` without a host; tests/support/test_fakes.py compares them."""

    host: str
    asker: object
    script: Script
    transport: FakeTransport = field(default_factory=FakeTransport)
    link_queue: "asyncio.Queue[LinkStatus]" = field(default_factory=asyncio.Queue)
    sample_queue: "asyncio.Queue[GpuSample]" = field(default_factory=asyncio.Queue)
    update_queue: "asyncio.Queue[RunUpdate | None]" = field(default_factory=asyncio.Queue)
    launched: list[tuple[LaunchPlan, bool]] = field(default_factory=list)
    requests: list[LaunchRequest] = field(default_factory=list)
    stopped: list[Run] = field(default_factory=list)
    closed: bool = False

    def __post_init__(self) -> None:
        self.entry = HostEntry(self.host, self.host)
        self.known_runs = tuple(self.script.runs)
        self.way = self.transport

    def words_for(self, variables: Iterable[str]) -> tuple[str, ...]:
        return ()

    async def open(self) -> None:
        for state in self.script.link_states:
            self.say_link(state)
        if self.script.on_open is not None:
            result = self.script.on_open(self)
            if asyncio.iscoroutine(result):
                await result
        for sample in self.script.samples:
            self.sample_queue.put_nowait(GpuSample(time.time(), sample, "nvml"))
        for update in self.script.updates:
            self.update_queue.put_nowait(update)

    def say_link(self, state: LinkState, **changes: object) -> None:
        """A new state of the link."""
        status = LinkStatus(
            self.host, state, time.monotonic(), time.monotonic() - 0.4, 0.011, address=f"tuner@{self.host}:22"
        )
        self.transport.last = replace(status, **changes)  # type: ignore[arg-type]
        self.link_queue.put_nowait(self.transport.last)

    async def close(self) -> None:
        self.closed = True

    async def link(self) -> AsyncIterator[LinkStatus]:
        while True:
            yield await self.link_queue.get()

    async def hear(self) -> None: ...

    def pace(self, shortest_s: float, longest_s: float) -> Pace:
        return Pace(None, shortest_s, longest_s)

    async def facts(self, *, refresh: bool = False) -> HostFacts:
        return self.script.facts

    async def gpus(self, period_s: float = 1.0) -> AsyncIterator[GpuSample]:
        while True:
            yield await self.sample_queue.get()

    async def sample(self) -> GpuSample:
        return await self.sample_queue.get()

    async def runs(self) -> tuple[Run, ...]:
        return self.known_runs

    def jobs(self, *, launching: bool = False) -> "JobBoard | None":
        return cast("JobBoard | None", self.script.jobs)

    async def ranks(self) -> tuple[Run, ...]:
        return tuple(run for run in self.known_runs if run.job is not None)

    async def heard_runs(self) -> tuple[Run, ...]:
        return self.known_runs

    async def find_run(self, reference: str, *, prefer_live: bool = False, among: tuple[Run, ...] | None = None) -> Run:
        return next(run for run in among or self.known_runs if reference in (run.run_id, run.short_id))

    async def plan(self, profile: LaunchProfile, sets: Mapping[str, object] | None = None) -> LaunchPlan:
        argv = ["/opt/sglang/bin/python", "-m", "sglang.launch_server"]
        for name, value in profile.args.items():
            argv += [f"--{name}"] if value is True else [f"--{name}", str(value)]
        command = LaunchCommand(tuple(argv), {"NCCL_DEBUG": "WARN"}, 30000)
        return LaunchPlan(
            profile, command, tuple(self.script.findings), self.script.facts, replaces=tuple(self.script.replaced)
        )

    async def check(self, plan: LaunchPlan) -> LaunchPlan:
        gone = {run.run_id for run in self.stopped}
        return replace(plan, findings=tuple(f for f in self.script.findings if f.run not in gone))

    async def start(self, request: LaunchRequest) -> Run:
        self.requests.append(request)
        started = run(
            run_id=request.run_id, profile=request.profile, host=self.host, extra=request.extra, argv=request.argv
        )
        self.known_runs = (started, *self.known_runs)
        return started

    async def run_by_id(self, run_id: str) -> Run | None:
        return next((run for run in self.known_runs if run.run_id == run_id), None)

    def launch(
        self, plan: LaunchPlan, *, replace: bool = False, run_id: str | None = None
    ) -> AsyncGenerator[LaunchProgress, None]:
        start = partial(self._start, replaced=replace)
        return launch.steps(plan, replace=replace, check=self.check, stop=self.stop, start=start)

    async def _start(self, plan: LaunchPlan, replaced: bool) -> Run:
        self.launched.append((plan, replaced))
        started = run(run_id=f"{plan.profile.name}-20261006T210000Z-abc123", profile=plan.profile.name)
        self.known_runs = (started, *self.known_runs)
        return started

    def open_log(self, run: Run) -> "LogFile | None":
        from tui.core.logs.log_file import LogFile

        return LogFile(self.script.files or self.transport, run.log_path)

    async def with_log(self, run: Run) -> Run:
        return run

    async def watch(self, run: Run, *, fresh: bool = False) -> AsyncGenerator[RunUpdate, None]:
        for update in self.script.beside.get(run.run_id, ()):
            yield replace(update, log=update.log or LogStep(update.records))
        if run.run_id in self.script.beside:
            await asyncio.Event().wait()
        while (update := await self.update_queue.get()) is not None:
            yield replace(update, log=update.log or LogStep(update.records))

    async def stop(
        self, run: Run, *, grace_s: float = 20.0, who: str | None = None
    ) -> AsyncGenerator[StopProgress, None]:
        self.stopped.append(run)
        yield StopProgress("requested", f"asked {run.short_id} to stop")
        yield StopProgress("done", "stopped, the GPU memory is back", done=True, memory_held_mib=0.0)


class Hosts:
    """`open_session` of an app under test; remembers the sessions it made.

    Args:
        script: of every host, or of each by its name.
    """

    def __init__(self, script: Script | Mapping[str, Script]) -> None:
        self.script = script
        self.sessions: list[FakeSession] = []

    async def __call__(self, host: str, asker: object) -> FakeSession:
        script = self.script if isinstance(self.script, Script) else self.script[host]
        session = FakeSession(host, asker, script)
        self.sessions.append(session)
        return session


def scene(name: str) -> Script:
    """A script whose last state is one of: starting, first, ready, crashed, idle, lost."""
    tracker = LogTracker()
    records = tuple(tracker.feed(log_text()))
    before = gpus(0.6, straggler=None, util=0.0, watts=60.0)
    if name == "idle":
        return Script(samples=(before,))
    if name in ("starting", "first"):
        state = starting(history=name == "starting")
        return Script(samples=(before, gpus(44.0), gpus()), runs=(run(),), updates=(RunUpdate(state, records),))
    if name == "crashed":
        records += tuple(tracker.feed(CRASH_TEXT))
        return Script(samples=(before,), runs=(run(),), updates=(RunUpdate(crashed(), records),))
    records += tuple(tracker.feed(ready_text()))
    now = ready()
    before_it = replace(now, startup=replace(now.startup, decode_lines=19))
    return Script(
        samples=(before, gpus(87.6, straggler=None, util=95.0, watts=234.0)),
        runs=(run(),),
        # What was in the log before is old; the last decode line comes while somebody looks.
        updates=(RunUpdate(before_it, records, settled=True), RunUpdate(now, settled=True)),
    )


def profiles_in(directory: Path) -> Path:
    """A few profiles of every sort, one of them broken."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "base.toml").write_text(
        'kind = "launch"\ndescription = "baseline, graphs up to batch 128"\n'
        '[args]\nmodel-path = "/data/models/Kimi-K2.5"\ntp = 8\nmem-fraction-static = 0.84\n'
    )
    (directory / "eagle.toml").write_text(
        'kind = "launch"\ndescription = "EAGLE-3"\nextends = "base"\nhypothesis = "drafts pay"\n'
        '[args]\nspeculative-algorithm = "EAGLE3"\nspeculative-num-steps = 3\nmem-fraction-static = 0.88\n'
    )
    (directory / "broken.toml").write_text('kind = "launch"\n[args]\nmem-fraction-statc = 0.8\ntp = "eight"\n')
    return directory
