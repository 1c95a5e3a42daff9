"""One host: composes transport, GPUs, runs, logs, start-up tracking and diagnosis into async iterators of frozen states."""

import asyncio
import contextlib
import dataclasses
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tui.core.config import HostEntry, load_settings
from tui.core.errors import EagletuiError, LinkLost, Slug, TimedOut, UsageError
from tui.core.hints import Action, Hint
from tui.core.host import facts_cache, gpu_sampler
from tui.core.host.gpus import GpuSample, HostFacts
from tui.core.link.hosts import open_transport
from tui.core.link.transport import Asker, LinkState, LinkStatus, Transport
from tui.core.profiles.command import LaunchCommand, build_command
from tui.core.profiles.launch_profile import LaunchProfile
from tui.core.profiles.secrets import public_sets
from tui.core.runs import control as runs
from tui.core.runs.control import LaunchRequest, Run, RunState
from tui.core.server import forecast, launch_records, preflight
from tui.core.server.launch_records import LaunchRecord, PhaseHistory
from tui.core.server.preflight import Finding, Level
from tui.core.server.watch import RunUpdate, RunWatcher, ServerState
from tui.core.sglang import flags as sglang
from tui.core.text import as_text, one_line

if TYPE_CHECKING:
    from tui.core.bench.target import Target
    from tui.core.logs.log_file import LogFile
    from tui.core.model.experiment import LiveRun
    from tui.core.model.profile import BenchProfile
    from tui.core.model.result import Result

__all__ = [
    "HostSession",
    "LaunchPlan",
    "PhaseHistory",
    "PreflightFailed",
    "RunUpdate",
    "ServerState",
    "StopProgress",
    "open_session",
]

_STOP_POLL_S = 0.5
_NOW_S = 10.0  # a sample that is older says nothing of now
_ORDER = {Level.BLOCK: 0, Level.WARN: 1, Level.OK: 2}
_MEMORY_BACK_LIMIT_S = 60.0
_MEMORY_IDLE_MIB = 1500.0  # a context or a desktop may hold that much; a model never holds so little


@dataclass(frozen=True)
class LaunchPlan:
    """A launch that was looked at but not made."""

    profile: LaunchProfile
    command: LaunchCommand
    findings: tuple[Finding, ...]
    facts: HostFacts
    sets: Mapping[str, object] | None = None

    @property
    def blocked(self) -> bool:
        return any(finding.level is Level.BLOCK for finding in self.findings)

    def blocked_without(self, runs_gone: Iterable[str]) -> bool:
        """Whether it would be blocked even if these runs were gone."""
        gone = set(runs_gone)
        return any(f.level is Level.BLOCK and f.run not in gone for f in self.findings)


@dataclass(frozen=True)
class StopProgress:
    """How far a stop has come; the last one has `done` set."""

    step: str  # requested, term, term-all, kill, done, stuck, memory
    text: str  # a sentence
    done: bool = False
    memory_held_mib: float | None = None  # still held on the run's GPUs by anyone


class PreflightFailed(EagletuiError):
    """The launch was not made; `details` carries every finding."""

    slug = Slug.PREFLIGHT

    def __init__(self, plan: LaunchPlan) -> None:
        blocking = [finding for finding in plan.findings if finding.level is Level.BLOCK]
        ours = any(finding.run for finding in blocking)
        super().__init__(
            "not launched: " + "; ".join(f"{f.check}: {f.text}" for f in blocking),
            next((f.hint for f in blocking if f.hint), Hint(Action.REPLACE if ours else Action.FIX_FINDINGS)),
        )
        self.details = {
            "findings": [
                {"check": f.check, "level": str(f.level), "text": str(f).removeprefix(f"{f.check}: ")}
                for f in plan.findings
            ]
        }


async def open_session(name: str, asker: Asker) -> "HostSession":
    """A session with a host by its name; not connected yet (see `HostSession.open`)."""
    entry = load_settings().host(name)
    return HostSession(entry, open_transport(entry, asker))


class HostSession:
    """One host. Everything the panel and the command line do goes through here."""

    def __init__(self, entry: HostEntry, transport: Transport) -> None:
        self.entry = entry
        self.transport = transport
        self._facts: HostFacts | None = None
        self._newest: tuple[float, GpuSample] | None = None
        self._facts_lock = asyncio.Lock()

    @property
    def simulated(self) -> bool:
        return self.entry.name == "demo"

    async def open(self) -> None:
        """Connects. Raises HostError."""
        await self.transport.connect()

    async def close(self) -> None:
        """Ends all iterators; runs go on. Within 2 s."""
        await self.transport.close()

    def link(self) -> AsyncIterator[LinkStatus]:
        """The link's present status, then every change."""
        return self.transport.watch()

    async def facts(self, *, refresh: bool = False) -> HostFacts:
        """Hardware and software of the host: asked once a session, and again on demand."""
        async with self._facts_lock:
            if self._facts is None or refresh:
                self._facts = await facts_cache.facts(self.transport, self.entry)
            return self._facts

    def gpus(self, period_s: float = 1.0) -> AsyncIterator[GpuSample]:
        """Samples for ever; a lost link is a pause, a sampler that hangs is replaced."""
        return self._remembered(gpu_sampler.sample_gpus(self.transport, self.entry.python, period_s))

    async def _remembered(self, samples: AsyncGenerator[GpuSample]) -> AsyncGenerator[GpuSample]:
        async with contextlib.aclosing(samples):
            async for sample in samples:
                self._newest = (time.monotonic(), sample)
                yield sample

    def latest_sample(self) -> GpuSample | None:
        """The newest of `gpus`, None where nobody samples now."""
        if self._newest is None or time.monotonic() - self._newest[0] > _NOW_S:
            return None
        return self._newest[1]

    async def runs(self) -> tuple[Run, ...]:
        """Ours and foreign servers, newest first."""
        found = list(await runs.list_runs(self.transport))
        if not self.simulated:  # it shares this machine's process table: what is real does not belong to it
            found += await runs.foreign(self.transport)
        named = [dataclasses.replace(run, host=self.entry.name) for run in found]
        return tuple(sorted(named, key=lambda run: run.started_at or "", reverse=True))

    async def find_run(self, reference: str) -> Run:
        """The run that an id, its six digits or a unique prefix names. Raises UsageError(slug="unknown_run")."""
        found = await self.runs()
        run_id = launch_records.match_run(reference, [run.run_id for run in found])
        if run_id is None:
            raise UsageError(
                f"no run {one_line(reference, 80) or repr('')} on {self.entry.name}",
                Hint(Action.LIST_RUNS, self.entry.name),
                slug=Slug.UNKNOWN_RUN,
            )
        return next(run for run in found if run.run_id == run_id)

    async def plan(self, profile: LaunchProfile, sets: Mapping[str, object] | None = None) -> LaunchPlan:
        """The exact command and the pre-flight findings."""
        facts = await self.facts()
        flags = await sglang.learn_flags(self.transport, self.entry, facts.sglang) if facts.sglang else None
        command = build_command(profile, self.entry, facts.sglang, flags, home=facts.home)
        if self.simulated:
            from tui.demo.client import demo_env

            command = dataclasses.replace(command, env={**demo_env(os.environ), **command.env})
        sample, found = await asyncio.gather(gpu_sampler.one_sample(self.transport, self.entry.python), self.runs())
        findings = await preflight.preflight(
            self.transport, profile, command, facts=facts, sample=sample, runs=found, host_flags=flags
        )
        if not profile.command:
            earlier = await asyncio.to_thread(launch_records.read_all)
            findings = (*findings, *forecast.findings(self.entry.name, profile.args, earlier))
            findings = tuple(sorted(findings, key=lambda finding: _ORDER[finding.level]))
        return LaunchPlan(profile, command, findings, facts, sets)

    async def launch(self, plan: LaunchPlan, *, replace: bool = False, run_id: str | None = None) -> Run:
        """Starts it at most once. Raises PreflightFailed where the plan is blocked.

        `run_id` is from `runs.new_run_id`, for a caller that must know it before the answer is there.

        With `replace`, our servers in its way are stopped first, unless something else blocks it all the same: a server
        is never stopped for a launch that cannot happen.
        """
        if replace:
            leaving = await self.replaced_by(plan)
            if plan.blocked_without(run.run_id for run in leaving):
                raise PreflightFailed(plan)
            for run in leaving:
                async for _ in self.stop(run):
                    pass
            plan = await self.plan(plan.profile, plan.sets)
        if plan.blocked:
            raise PreflightFailed(plan)
        now = datetime.now(UTC)
        run_id = run_id or runs.new_run_id(plan.profile.name, now.timestamp())
        request = LaunchRequest(
            run_id=run_id,
            kind="server",
            profile=plan.profile.name,
            argv=(*plan.command.argv, *plan.command.open_words),
            env=plan.command.env,
            cwd=plan.command.cwd,
            secret_env=plan.command.secret_env,
            secret_args=plan.command.secret_args,
            port=plan.command.port,
            gpus=claimed_gpus(plan.profile),
            notes=plan.command.notes,
            extra={"sets": public_sets(plan.sets or {})},
            hide=tuple(plan.command.open_args.values()),
        )
        # Recorded before it is asked for: whatever happens to the link, this machine knows the id to ask about.
        launch_records.write(
            LaunchRecord(
                run_id=run_id,
                host=self.entry.name,
                kind="server",
                profile=plan.profile.name,
                launched_at=now.strftime("%Y-%m-%dT%H:%M:%SZ"),
                sets=public_sets(plan.sets or {}),
                model=as_text(plan.profile.arg("model-path")),
                args=plan.profile.public_args,
                sglang=plan.facts.sglang,
                port=plan.command.port,
                warm=next((f.warm for f in plan.findings if f.warm is not None), None),
            )
        )
        return dataclasses.replace(await runs.launch(self.transport, request), host=self.entry.name)

    async def replaced_by(self, plan: LaunchPlan) -> tuple[Run, ...]:
        """Our live servers on the GPUs or the port of a plan: what `replace` stops."""
        wanted = set(claimed_gpus(plan.profile))
        return tuple(
            run
            for run in await self.runs()
            if run.kind == "server"
            and run.active
            and run.state not in (RunState.FOREIGN, RunState.UNKNOWN)
            # Without a list a server takes the GPUs from 0 on, and two such servers meet there.
            and (not wanted or not run.gpus or wanted & set(run.gpus) or run.port == plan.command.port)
        )

    def open_log(self, run: Run) -> "LogFile | None":
        """The log of a run, of any size; None where its output goes nowhere that can be read."""
        from tui.core.logs.log_file import LogFile

        return LogFile(self.transport, run.log_path) if run.log_path is not None else None

    def watch(self, run: Run) -> AsyncGenerator[RunUpdate, None]:
        """Log and state of a run to its end; survives the link."""
        return RunWatcher(
            self.transport,
            run,
            latest=self.latest_sample,
            sample=lambda: gpu_sampler.one_sample(self.transport, self.entry.python),
        ).updates()

    async def bench(self, profile: "BenchProfile", target: "Target") -> AsyncGenerator["LiveRun | Result", None]:
        """Measures a server: states at 4 Hz or less, and each result as it is stored; survives the link.

        Closing it leaves the measurement going on; `tui.core.bench.bench_run` takes it up again. Raises EagletuiError
        where nothing can be measured, or not all of it was.
        """
        from tui.core.bench import bench_run

        run = await bench_run.start(self, profile, target)
        async with contextlib.aclosing(bench_run.follow_run(self, run)) as following:
            async for news in following:
                yield news

    async def stop(self, run: Run, *, grace_s: float = 20.0) -> AsyncIterator[StopProgress]:
        """Stops the whole tree and waits until its GPU memory is back. Idempotent. Raises for a foreign server."""
        if run.state is RunState.FOREIGN:
            raise UsageError(
                f"{run.run_id} was not started by eagletui; it is watched read-only",
                f"its owner {run.owner or 'unknown'} can stop PID {run.pid}",
                slug=Slug.FOREIGN,
            )
        before = await self._held_by(run)
        await runs.stop(self.transport, run.run_id, grace_s)
        yield StopProgress("requested", f"asked {run.short_id} to stop")
        step = "requested"
        while True:
            try:
                now = await runs.stop_state(self.transport, run.run_id)
            except (LinkLost, TimedOut):
                if self.transport.status().state is LinkState.CLOSED:
                    raise
                await asyncio.sleep(_STOP_POLL_S)
                continue  # the stop goes on there; the next call waits for the link
            if now.step and now.step != step:
                step = now.step
                yield StopProgress(step, _STOP_TEXT.get(step, step))
            if now.over:
                break
            await asyncio.sleep(_STOP_POLL_S)
        if step == "stuck":
            pids = ", ".join(map(str, now.pids))
            yield StopProgress("stuck", f"PID {pids} does not end; the driver may hold it", done=True)
            return
        async for progress in self._memory_back(before):
            yield progress

    async def _held_by(self, run: Run) -> set[str]:
        """UUIDs of the GPUs that hold memory now and belong to the run: those it named, else those its processes are on."""
        sample = await gpu_sampler.one_sample(self.transport, self.entry.python)
        ours = {run.pid, *run.orphans}
        return {
            gpu.uuid
            for gpu in sample.gpus
            if gpu.uuid
            and (gpu.index in run.gpus if run.gpus else any(p.pid in ours for p in gpu.processes or ()))
            and (gpu.memory_used_mib or 0.0) > _MEMORY_IDLE_MIB
        }

    async def _memory_back(self, uuids: set[str]) -> AsyncIterator[StopProgress]:
        if not uuids:
            yield StopProgress("done", "stopped", done=True)
            return
        deadline = asyncio.get_running_loop().time() + _MEMORY_BACK_LIMIT_S
        while True:
            sample = await gpu_sampler.one_sample(self.transport, self.entry.python)
            if sample.error:
                said = f"stopped; whether the GPU memory is back is not known ({sample.error.replace('_', ' ')})"
                yield StopProgress("done", said, done=True)
                return
            held = [gpu for gpu in sample.gpus if gpu.uuid in uuids and (gpu.memory_used_mib or 0) > _MEMORY_IDLE_MIB]
            total = sum(gpu.memory_used_mib or 0.0 for gpu in held)
            if not held:
                yield StopProgress("done", "stopped, the GPU memory is back", done=True, memory_held_mib=0.0)
                return
            if asyncio.get_running_loop().time() > deadline:
                holders = {f"PID {p.pid} ({p.user or '?'})" for gpu in held for p in gpu.processes or ()}
                whom = ", ".join(sorted(holders)) or "no process that can be seen"
                yield StopProgress(
                    "done",
                    f"stopped, but {total / 1024:.1f} GiB are still held by {whom}",
                    done=True,
                    memory_held_mib=total,
                )
                return
            yield StopProgress("memory", f"waiting for {total / 1024:.1f} GiB to come back", memory_held_mib=total)
            await asyncio.sleep(_STOP_POLL_S)


_STOP_TEXT = {
    "requested": "stop requested",
    "term": "SIGTERM to the main process, it drains",
    "term-all": "SIGTERM to what is left",
    "kill": "SIGKILL to what is left",
    "done": "every process has ended",
}


def claimed_gpus(profile: LaunchProfile) -> tuple[int, ...]:
    """GPUs that a launch will take, by nvidia-smi's numbers; () where that can't be said."""
    if profile.gpus is not None:
        return profile.gpus
    if profile.command:
        return ()

    def size(name: str) -> int:
        value = profile.arg(name)
        return value if isinstance(value, int) and value > 0 else 1

    visible = profile.env.get("CUDA_VISIBLE_DEVICES")
    replicas = 1 if profile.arg("enable-dp-attention") else size("dp-size")
    base = profile.arg("base-gpu-id")
    first = base if isinstance(base, int) else 0
    wanted = range(first, first + size("tp-size") * size("pp-size") * replicas * size("gpu-id-step"))
    numbers = tuple(wanted)[:: size("gpu-id-step")]
    if visible is None:
        return numbers
    listed = visible.split(",")
    return tuple(int(listed[n]) for n in numbers if n < len(listed) and listed[n].strip().isdigit())
