"""What the panel knows about its host: filled by workers, read by widgets. Bounded, and free of Textual."""

import itertools
import os
import statistics
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

from tui import format as fmt
from tui.core.config import HostKind
from tui.core.errors import EagletuiError
from tui.core.host.gpus import MEMORY_IDLE_MIB, Gpu, GpuSample, HostFacts
from tui.core.link.transport import LinkState, LinkStatus
from tui.core.model.group import group_id_of
from tui.core.model.phases import ALIVE, Outcome, Phase
from tui.core.text import as_number, epoch_of

if TYPE_CHECKING:
    from tui.core.experiment.history import Baseline
    from tui.core.groups.group_state import GroupState
    from tui.core.model.experiment import ExperimentState
    from tui.core.model.group import Group
    from tui.core.model.run import Run
    from tui.core.server.server_state import RunUpdate, ServerState
    from tui.core.server.stop import StopProgress
    from tui.core.speculation.economics import Economics
    from tui.core.tune.runner import TuneState
    from tui.panel.cluster_view import Cluster
    from tui.panel.open_log import OpenLog

HISTORY_S = 60.0
_TREND_S = 10.0  # a rate over less is mostly the sampling of the driver
_DECODE_KEPT = 3000
_QUIET_S = (3.0, 5.0, 30.0)  # least, without known intervals, and most that a decode line counts as now
_BUSY_PCT = 5.0  # a GPU below that does no decode steps


@dataclass(frozen=True)
class GpuPoint:
    """One GPU at one moment, what histories and rates need of it."""

    at: float  # monotonic
    utilization_pct: float | None
    power_share: float | None  # of the limit, 0 to 1
    memory_used_mib: float | None


@dataclass(frozen=True)
class DecodePoint:
    """Figures of one `Decode batch` line."""

    at: float  # monotonic, when it was read
    tok_s: float | None
    accept_len: float | None


@dataclass(frozen=True)
class Straggler:
    """A rank whose GPU has loaded clearly less than the others."""

    position: int  # in the run's list of GPUs, which is its TP rank
    behind_s: float | None


@dataclass
class Board:
    """The panel's model of one host. Workers write it, widgets read it; one event loop, so nothing locks."""

    host: str
    link: LinkStatus | None = None
    facts: HostFacts | None = None
    sample: GpuSample | None = None
    sample_at: float | None = None
    points: dict[str, deque[GpuPoint]] = field(default_factory=dict)
    start_memory: dict[str, float] = field(default_factory=dict)  # MiB by GPU when the present run was first seen
    runs: "tuple[Run, ...]" = ()
    runs_read: bool = False  # false: that there are none is not known yet
    run: "Run | None" = None  # the one being watched
    state: "ServerState | None" = None
    group: "Group | None" = None  # that the run is a member of
    group_state: "GroupState | None" = None
    cluster: "Cluster | None" = None  # that this is a login host of
    on_node: "Board | None" = None  # the GPUs of the node that the displayed run is on, where that is not this host
    log: "OpenLog | None" = None  # of the run, as its watch reads it, or of the file that is displayed
    viewing: str | None = None  # what is displayed where there are no modes: `eagletui logs`
    decode: deque[DecodePoint] = field(default_factory=lambda: deque(maxlen=_DECODE_KEPT))
    utc_offset_s: float | None = None
    behind_bytes: int = 0
    stop: "StopProgress | None" = None
    problem: EagletuiError | None = None  # why something the workers do fails just now
    busy: str | None = None  # an intent under way, one line
    started_at: float = field(default_factory=time.monotonic)
    watched_at: float = 0.0  # monotonic, since when the displayed run is watched
    caught_up: bool = False  # what was in the log when the watch began has been read
    start_marked: bool = False  # the log has our line of the start
    own_pids: set[int] = field(default_factory=set)  # on the GPUs now, of a run of ours that lives or lived
    experiment: "ExperimentState | None" = None  # what this panel measures, or measured last
    tune: "TuneState | None" = None  # what this panel tunes, or tuned last
    measured: "ExperimentState | None" = None  # what is stored of this host, as far as it is displayed
    baselines: "tuple[Baseline, ...]" = ()  # stored of this host, without speculation, newest first

    # -- inputs ---------------------------------------------------------------------------------------------------

    def show_host(self, host: str) -> None:
        """Another host, or the same again: nothing is known of it. Widgets hold this object, so it stays."""
        fresh = Board(host)
        for item in fields(self):
            setattr(self, item.name, getattr(fresh, item.name))

    def take_sample(self, sample: GpuSample, now: float | None = None) -> None:
        """A new sample of all GPUs."""
        now = time.monotonic() if now is None else now
        self.sample, self.sample_at = sample, now
        if sample.error is not None or sample.stalled_s:
            return
        self._remember_own(sample)
        for position, gpu in enumerate(sample.gpus):
            key = gpu_key(gpu, position)
            points = self.points.setdefault(key, deque(maxlen=400))
            share = gpu.power_w / gpu.power_limit_w if gpu.power_w is not None and gpu.power_limit_w else None
            points.append(GpuPoint(now, gpu.utilization_pct, share, gpu.memory_used_mib))
            if gpu.memory_used_mib is not None:
                self.start_memory.setdefault(key, gpu.memory_used_mib)

    def watch_run(self, run: "Run | None", log: "OpenLog | None") -> None:
        """Another run is watched from now on: what is known from the last one's log is gone."""
        if run is None or self.run is None or run.run_id != self.run.run_id:
            self.group = self.group_state = None
        self.run, self.state, self.log = run, None, log
        self.decode.clear()
        self.start_memory = {
            key: points[-1].memory_used_mib
            for key, points in self.points.items()
            if points and points[-1].memory_used_mib is not None
        }
        self.stop = self.on_node = None
        self.behind_bytes = 0
        self.caught_up = self.start_marked = False
        self.watched_at = time.monotonic()

    def take_update(self, update: "RunUpdate", now: float | None = None) -> None:
        """One tick of watching the run: its state, and the new lines of its log."""
        now = time.monotonic() if now is None else now
        before = self.state.startup.decode_lines if self.state else 0
        self.state = update.state
        self.run = update.state.run
        self.behind_bytes = update.behind_bytes
        if self.utc_offset_s is None:
            stamp = next((r.time for r in update.records if r.time), None)
            if update.state.startup.lines and stamp and update.state.started_s is not None:
                self.utc_offset_s = fmt.utc_offset(stamp, update.state.started_s)
        figures = update.state.startup.last_decode
        if figures is not None and update.state.startup.decode_lines != before:
            total = figures.total_gen_tok_s if figures.total_gen_tok_s is not None else figures.gen_tok_s
            at = now if self.caught_up else now - self._written_ago_s(update)
            self.decode.append(DecodePoint(at, total, figures.accept_len))
        self.caught_up = self.caught_up or update.settled
        if self.log is not None:
            if not self.start_marked and not self.run.foreign:
                began = fmt.clock(update.state.started_s, self.utc_offset_s)
                self.log.add_marker(f"[eagletui] start {self.run.run_id}", began, Phase.LAUNCH)
            self.log.take(update)
        self.start_marked = True

    def end_log(self) -> None:
        """The displayed run has ended, and its log is read."""
        end = self.end_of(self.state.run) if self.state is not None else None
        if end is not None and self.log is not None:
            self.log.add_marker(*end)

    def end_of(self, run: "Run") -> tuple[str, str] | None:
        """The line that we put behind the log of a run that has ended, and its time."""
        if run.exit_code is None:
            return None
        return f"[eagletui] exit={run.exit_code}", fmt.clock(epoch_of(run.ended_at), self.utc_offset_s)

    def _written_ago_s(self, update: "RunUpdate") -> float:
        """Age of the newest decode line of what was in the log before we came, by its own stamp."""
        lines = (r.time for r in reversed(update.records) if r.time and r.text.startswith("Decode batch"))
        stamp = next(lines, None)
        return fmt.since_stamp(stamp, self.utc_offset_s, time.time())

    # -- what widgets ask -----------------------------------------------------------------------------------------

    @property
    def local(self) -> bool:
        return HostKind.of(self.host) is HostKind.LOCAL

    @property
    def simulated(self) -> bool:
        return HostKind.of(self.host) is HostKind.DEMO

    @property
    def connected(self) -> bool:
        """True while the link is up."""
        return self.link is not None and self.link.state is LinkState.UP

    @property
    def stopping(self) -> bool:
        """True from the moment a stop was asked for until it is done, and the watch of the run has seen that."""
        if self.stop is None:
            return False
        return not self.stop.done or (self.stop.step == "done" and self.run is not None and self.run.live)

    @property
    def stale(self) -> bool:
        """True where what is shown was last seen over a link that is gone."""
        return not self.connected

    def link_age_s(self, now: float | None = None) -> float | None:
        """Seconds since the host's last byte; None for this machine, which has no link."""
        if self.local:
            return None
        now = time.monotonic() if now is None else now
        seen = self.state.known_at or None if self.state else None
        heard = [at for at in (self.link.last_byte_at if self.link else None, self.sample_at, seen) if at]
        return max(0.0, now - max(heard)) if heard else None

    def speed_and_seed(self) -> tuple[str, str]:
        """Speed and seed of the simulated host: of the displayed run, else what the next launch would take."""
        env = self.run.env if self.run is not None else {}
        return (
            env.get("EAGLETUI_DEMO_SPEED") or os.environ.get("EAGLETUI_DEMO_SPEED", "20"),
            env.get("EAGLETUI_DEMO_SEED") or os.environ.get("EAGLETUI_DEMO_SEED", "1"),
        )

    def own_gpus(self) -> list[tuple[str, Gpu]]:
        """GPUs of the displayed run in the order of its ranks, with their keys; all of the host's where it names none."""
        if self.sample is None:
            return []
        keyed = [(gpu_key(gpu, position), gpu) for position, gpu in enumerate(self.sample.gpus)]
        wanted = self.run.gpus if self.run is not None else ()
        if not wanted:
            return keyed
        by_index = {gpu.index: (key, gpu) for key, gpu in keyed}
        return [by_index[index] for index in wanted if index in by_index]

    def budget_fraction(self) -> float | None:
        """`mem_fraction_static` of the displayed server, None where neither its log nor its command says."""
        if self.state is not None:
            fraction = as_number((self.state.startup.server_args or {}).get("mem_fraction_static"))
            if fraction is not None:
                return fraction
        value = argument(self.run.argv if self.run else (), "--mem-fraction-static")
        try:
            return float(value) if value is not None else None
        except ValueError:
            return None

    def budget_mib(self, gpu: Gpu, key: str) -> float | None:
        """Where SGLang's budget ends on a GPU: what was used before, and the fraction of what was free then."""
        fraction = self.budget_fraction()
        if fraction is None or gpu.memory_total_mib is None:
            return None
        before = min(self._before_mib(key, gpu) or 0.0, gpu.memory_total_mib)
        return before + fraction * (gpu.memory_total_mib - before)

    def _before_mib(self, key: str, gpu: Gpu) -> float | None:
        """What was used on a GPU before the server loaded anything."""
        if self.state is not None and gpu.memory_total_mib is not None:
            free = [row.before_gib for row in self.state.startup.ledger if row.before_gib is not None]
            if free:  # the server's own figure; the panel may have been opened in the middle of a load
                return max(0.0, gpu.memory_total_mib - min(free) * fmt.MIB_PER_GIB)
        return self.start_memory.get(key)

    def memory_rate(self, keys: Sequence[str]) -> float | None:
        """MiB a second that these GPUs together gained over the last seconds, None without two samples."""
        gained = span = 0.0
        for key in keys:
            points = [p for p in self.points.get(key, ()) if p.memory_used_mib is not None]
            # What an earlier server gave back is not this one's.
            recent = [p for p in points if points[-1].at - p.at <= _TREND_S and p.at >= self.watched_at]
            if len(recent) < 2:
                continue
            gained += (recent[-1].memory_used_mib or 0.0) - (recent[0].memory_used_mib or 0.0)
            span = max(span, recent[-1].at - recent[0].at)
        return gained / span if span >= 1.0 else None

    def loaded_mib(self) -> list[float | None]:
        """What each GPU of the run has gained since it began, in the order of ranks."""
        loaded: list[float | None] = []
        for key, gpu in self.own_gpus():
            before = self._before_mib(key, gpu)
            known = gpu.memory_used_mib is not None and before is not None
            loaded.append(max(0.0, (gpu.memory_used_mib or 0.0) - (before or 0.0)) if known else None)
        return loaded

    def stragglers(self) -> list[Straggler]:
        """Ranks that have loaded clearly less than the others while weights are loaded.

        The weight bar of a log covers rank 0 only, so this is judged by GPU memory, each against its own start.
        """
        state = self.state
        if state is None or state.outcome is not Outcome.STARTING or state.phase is not Phase.LOAD_WEIGHTS:
            return []
        loaded = self.loaded_mib()
        known = [value for value in loaded if value is not None]
        if len(known) < 3:
            return []
        typical = statistics.median(known)
        if typical < 2 * fmt.MIB_PER_GIB:
            return []
        took = state.phase_took_s.get(Phase.LOAD_WEIGHTS)
        pace = typical / took if took else None
        return [
            Straggler(position, (typical - value) / pace if pace else None)
            for position, value in enumerate(loaded)
            if value is not None and value < 0.9 * typical
        ]

    @property
    def alive(self) -> bool:
        """True while the displayed run has processes that belong on its GPUs."""
        return self.state is not None and self.state.outcome in ALIVE

    def _remember_own(self, sample: GpuSample) -> None:
        """Which processes on the GPUs are ours: they stay so while they die, after the run has ended."""
        mine = self.facts.user if self.facts is not None else None
        claims = [set(run.gpus) for run in self.runs if run.kind == "server" and run.live]
        if self.alive and self.run is not None:
            claims.append(set(self.run.gpus))
        named = {pid for run in (*self.runs, self.run) if run is not None for pid in (run.pid, *run.orphans)}
        present: set[int] = set()
        for gpu in sample.gpus:
            for process in gpu.processes or ():
                present.add(process.pid)
                claimed = any(not wanted or gpu.index in wanted for wanted in claims)
                if process.pid in named or (claimed and process.user in (mine, None)):
                    self.own_pids.add(process.pid)
        if all(gpu.processes is not None for gpu in sample.gpus):
            self.own_pids &= present  # a number that is free may be another's next time

    def other_holders(self) -> list[str] | None:
        """Who else holds GPU memory, one text a process; None where processes are not reported.

        What a run of ours left on the GPUs is not a stranger: see `ending`.
        """
        sample = self.sample
        if sample is None or not sample.gpus or any(gpu.processes is None for gpu in sample.gpus):
            return None
        self._remember_own(sample)  # runs and states come between two samples
        users = {process.pid: process.user for gpu in sample.gpus for process in gpu.processes or ()}
        return [f"{user or '?'} PID {pid}" for pid, user in users.items() if pid not in self.own_pids]

    def ending(self) -> int:
        """Processes on the GPUs of runs of ours that have ended: they are on their way out."""
        if self.alive or self.live_servers() or self.sample is None:
            return 0
        # Drivers are asked for processes less often than for memory: where that is back, nothing is ending any more.
        held = [gpu for gpu in self.sample.gpus if (gpu.memory_used_mib or 0.0) > MEMORY_IDLE_MIB]
        return len(self.own_pids & {process.pid for gpu in held for process in gpu.processes or ()})

    def live_servers(self) -> "list[Run]":
        """Servers that run on the host, ours and foreign ones, oldest first, so that a new one moves no other.

        Of the ranks of a job the first, which stands for it.
        """
        live = [run for run in self.runs if run.kind == "server" and (run.live or run.foreign)]
        ended = self.state is not None and not self.alive
        if ended and self.run is not None:  # the watch knows it before the next look at all runs
            live = [run for run in live if run.run_id != self.run.run_id]
        live.sort(key=lambda run: (run.started_at or "", run.run_id))
        return list({one_server(run): run for run in reversed(live)}.values())[::-1]

    def place(self) -> tuple[int | None, int]:
        """Which of the live servers is displayed (1-based, None where none of them is), and how many there are."""
        ids = [one_server(run) for run in self.live_servers()]
        shown = one_server(self.run) if self.run is not None else None
        if shown is not None and shown not in ids and self.alive:
            ids.append(shown)  # just launched
        return (ids.index(shown) + 1 if shown in ids else None), len(ids)

    def sglang_version(self) -> str | None:
        """Version of SGLang on the host."""
        return self.facts.sglang if self.facts is not None else None

    def economics(self) -> "tuple[Economics, Baseline] | None":
        """Whether speculation pays on the displayed server now; None unless the same model was measured without it.

        The cycle is that of the newest decode line; a baseline counts at as many users as run now, and the fastest of them:
        what speculation has to beat is the best that the host does without it.
        """
        state = self.state
        decode = state.startup.last_decode if state is not None else None
        if state is None or decode is None or not decode.accept_len or not decode.running:
            return None
        rate = decode.total_gen_tok_s if decode.total_gen_tok_s is not None else decode.gen_tok_s
        model = (state.startup.server_args or {}).get("model_path")
        fitting = [b for b in self.baselines if b.model == model and b.concurrency == decode.running]
        base = max(fitting, key=lambda b: b.tok_s, default=None)
        if base is None or not rate or model is None:
            return None
        from tui.core.speculation.economics import Economics

        cycle_ms = decode.accept_len * decode.running / rate * 1000
        return Economics(base.tok_s, cycle_ms, decode.accept_len), base

    def decode_age_s(self, now: float | None = None) -> float | None:
        """Seconds since the last decode line was read."""
        if not self.decode:
            return None
        return (time.monotonic() if now is None else now) - self.decode[-1].at

    def decodes_now(self, now: float | None = None) -> bool:
        """True while the figures of the last decode line are present ones.

        Decode lines come every 40 steps (or as the server is configured), so silence of two intervals ends them, and so do
        GPUs that have nothing to do.
        """
        now = time.monotonic() if now is None else now
        age = self.decode_age_s(now)
        if age is None:
            return False
        newest = list(self.decode)[-9:]
        gaps = [b.at - a.at for a, b in itertools.pairwise(newest) if b.at - a.at < _QUIET_S[2]]
        limit = max(_QUIET_S[0], 2 * statistics.median(gaps)) if gaps else _QUIET_S[1]
        return age <= min(limit, _QUIET_S[2]) and not self._gpus_idle(now)

    def _gpus_idle(self, now: float) -> bool:
        """Whether all GPUs of the run did nothing in the last samples, taken after the last decode line."""
        keys = [key for key, _ in self.own_gpus()]
        since = max(now - 2.5, self.decode[-1].at if self.decode else 0.0)
        for key in keys:
            recent = [point for point in self.points.get(key, ()) if point.at > since]
            if len(recent) < 2 or any(p.utilization_pct is None or p.utilization_pct >= _BUSY_PCT for p in recent):
                return False
        return bool(keys)


def gpu_key(gpu: Gpu, position: int) -> str:
    """What a GPU is remembered by: its UUID, else its place in the list."""
    return gpu.uuid or f"#{gpu.index if gpu.index is not None else position}"


def one_server(run: "Run") -> str:
    """What servers of a host are counted by: the ranks of a job are one."""
    return (group_id_of(run.run_id) if run.job is not None else None) or run.run_id


def run_name(run: "Run") -> str:
    """A run by its profile and what was changed for it."""
    return fmt.configured(run.profile or run.run_id, run.extra.get("sets"))


def argument(argv: Sequence[str], flag: str) -> str | None:
    """The value of a flag in a command line, `--flag value` or `--flag=value`; the last one counts."""
    found = None
    for position, word in enumerate(argv):
        if word == flag and position + 1 < len(argv):
            found = argv[position + 1]
        elif word.startswith(flag + "="):
            found = word[len(flag) + 1 :]
    return found
