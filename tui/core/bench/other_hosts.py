"""The GPUs of a group's other hosts while it is measured: a sampler on each, and their figures beside the generator's.

The generator sees its own host. On each other one a run samples (`tui/remote/group_gpus.py`): it goes on without us, and ends
with the bench, with its part of the group, or after the longest that such a bench takes. Which they are, and how far the
clocks are apart, is in the bench run's cmd.json, so that whoever collects it over links to them has all figures.
"""

import asyncio
import contextlib
import hashlib
import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from tui.core.bench.collect import Asked, SampledHost
from tui.core.bench.driver import Order, host_python, launch_request
from tui.core.bench.loadgen_driver import LoadgenDriver, gpus_of, python_program
from tui.core.bench.metrics import Meta
from tui.core.errors import EagletuiError, HostError, LinkLost, TimedOut
from tui.core.link.retry import patiently
from tui.core.link.transport import LinkState, Transport
from tui.core.logs.blocks import MAX_BLOCK_BYTES, read_block
from tui.core.model.group import Role
from tui.core.model.profile import BenchProfile
from tui.core.model.result import Result
from tui.core.runs import control
from tui.core.server.session import HostSession
from tui.core.text import one_line
from tui.remote.loadgen.plan import LIMITS

Sessions = Mapping[str, HostSession]  # by the names of hosts; one that is missing has no link
NO_LINK = "it could not be reached"
_LINK_S = 30.0  # that a host may take to answer, a lost link's return included
_PROBES = 3  # of a clock; that with the shortest way counts
_LOG_LIMIT = 64 << 20  # bytes of a sampler's log: a day of eight GPUs
_TRIES = 10  # until its last samples are there
_AGAIN_S = 0.5
_GAP_S = 5.0  # without a sample
_BEFORE_S = 6.0  # processes are listed every five seconds only
_SPARE_S = 600.0  # for the looks at the server and the first requests


# -- starting and ending ----------------------------------------------------------------------------------------------


async def sample_others(session: HostSession, order: Order, others: Sessions, run_id: str) -> tuple[SampledHost, ...]:
    """Starts a sampler on each other host of a group that is measured; where one cannot, it is said why.

    Args:
        session: with the host that measures.
        run_id: of the bench; with the same one nothing starts twice.

    Raises HostError where the host that measures does not tell its clock.
    """
    target = order.target
    if target.group is None:
        return ()
    names = [host for host in target.group.hosts if host != target.group.serving.host and gpus_of(target, host) != []]
    if not names:
        return ()
    here_s = await _clock(session.way)
    return tuple(await asyncio.gather(*(_begin(host, others.get(host), order, run_id, here_s) for host in names)))


async def _begin(host: str, session: HostSession | None, order: Order, run_id: str, here_s: float) -> SampledHost:
    found = SampledHost(host, missing=NO_LINK)
    if session is None:
        return found
    node = session.way is not session.transport
    target = order.target
    pids = [part.run.pid for part in target.parts if part.run.host == host and part.run.pid is not None]
    document = {"gpus": gpus_of(target, host), "pids": pids, "most_s": longest_s(order.profile)}
    digits = hashlib.sha256(f"{run_id} {host}".encode()).hexdigest()[:6]
    try:
        async with asyncio.timeout(_LINK_S):
            facts = await session.facts()
            if facts.python_error:
                return SampledHost(host, missing=f"a sampler needs Python: {facts.python_error}", node=node)
            ahead_s = await _clock(session.way) - here_s
            program = python_program(host_python(session.entry, facts), "group_gpus.py", document)
            program = replace(program, argv=(*session.words_for(()), *program.argv))
            request = launch_request(f"{run_id.rpartition('-')[0]}-{digits}", f"{order.profile.name} gpus", program)
            # From here on it may run, whatever is heard of it.
            found = SampledHost(host, request.run_id, ahead_s, node=node)
            await control.launch(session.transport, replace(request, extra={"samples_for": run_id}))
    except (TimeoutError, LinkLost, TimedOut):
        return found
    except EagletuiError as error:
        return SampledHost(host, missing=one_line(error.message, 200), node=node)
    return found


def with_nodes(session: HostSession, sampled: Sequence[SampledHost], others: Sessions) -> Sessions:
    """`others`, and for the nodes of a cluster the host that measures, which has the runs of their samplers."""
    return {**others, **{one.host: session for one in sampled if one.node}}


def longest_s(bench: BenchProfile) -> float:
    """What a bench takes at most, seconds."""
    loads = bench.search.most_points if bench.search is not None else len(bench.points)
    each = bench.warmup_s + LIMITS["ramp_s"] + bench.duration_max_s + LIMITS["drain_s"]
    if bench.driver != LoadgenDriver.name:  # another tool ends when its requests do
        each += max(10 * bench.duration_s, LIMITS["request_s"])
    return _SPARE_S + loads * bench.runs * each


async def _clock(transport: Transport) -> float:
    """Seconds by which a host's /proc/uptime, which no clock change moves, is ahead of a clock here. Raises HostError."""
    found = []
    for _ in range(_PROBES):
        asked = time.monotonic()
        done = await transport.run("cat /proc/uptime")
        took = time.monotonic() - asked
        try:
            found.append((took, float(done.stdout.split()[0]) - asked - took / 2))
        except (ValueError, IndexError):
            raise HostError(f"{transport.host}: /proc/uptime cannot be read", "measure from another host") from None
    return min(found)[1]


async def end_sampling(others: Sequence[SampledHost], sessions: Sessions) -> None:
    """Ends the samplers of a bench that is over, where their hosts can be asked; elsewhere they end by themselves."""

    async def end(session: HostSession, run_id: str) -> None:
        with contextlib.suppress(EagletuiError, TimeoutError):
            async with asyncio.timeout(_LINK_S):
                if session.transport.status().state is LinkState.UP:
                    await control.stop(session.transport, run_id, 1.0, timeout_s=_LINK_S)

    await asyncio.gather(*(end(sessions[o.host], o.run_id) for o in others if o.run_id and o.host in sessions))


# -- collecting -------------------------------------------------------------------------------------------------------


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


@dataclass
class Told:
    """What a sampler has said so far, by its host's /proc/uptime."""

    samples: list[list[Any]] = field(default_factory=list)  # [t, index, W, %, MiB, MHz, mask], as the generator's
    pids: list[tuple[float, int, bool]] = field(
        default_factory=list
    )  # t, process on the GPUs, whether it is the group's
    latest: float = 0.0
    error: str | None = None

    def take(self, line: bytes) -> None:
        """A line of its log; what is none of its lines is left out."""
        try:
            told = json.loads(line)
            if "error" in told:
                self.error = one_line(str(told["error"]), 100)
                return
            for sample in told["samples"]:
                t, index, *figures, mask = sample
                known = all(value is None or _number(value) for value in figures)
                if (
                    _number(t)
                    and type(index) is int
                    and len(figures) == 4
                    and known
                    and type(mask) in (int, type(None))
                ):
                    self.samples.append(sample)
            self.pids += [(t, pid, ours is True) for t, pid, ours in told["pids"] if _number(t) and type(pid) is int]
            if _number(told["t"]):
                self.latest = max(self.latest, told["t"])
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
            return

    def during(self, zero: float, meta: Meta) -> dict[str, Any]:
        """Its part of `gpu` of a run that began at `zero` by its clock: figures as the generator's, or what is `missing`."""
        if self.error is not None:
            return {"missing": self.error}
        end_s = meta["end_s"]
        begin, end = meta.get("window") or (0.0, end_s)
        samples = [[round(t - zero, 3), *rest] for t, *rest in self.samples if 0 <= t - zero <= end_s]
        times = [sample[0] for sample in samples if begin <= sample[0] <= end]
        gap_s = max(later - earlier for earlier, later in pairwise([begin, *sorted(times), end]))
        if not times or gap_s > _GAP_S:
            return {"missing": f"nothing was sampled for {gap_s:.0f} s of the run"}
        seen = {(pid, ours) for t, pid, ours in self.pids if -_BEFORE_S <= t - zero <= end_s}
        known = {pid for pid, ours in seen if ours}  # none: it is in another process namespace, or not on these GPUs
        return {"samples": samples, "foreign_pids": sorted({pid for pid, _ in seen} - known) if known else None}


class OtherHosts:
    """The samplers of one bench, as far as there are links to them."""

    def __init__(self, asked: Asked, sessions: Sessions) -> None:
        self._asked, self._sessions = asked, sessions
        self._logs = {other.host: _Log() for other in asked.others}

    def adds_to(self, stored: Result) -> bool:
        """Whether a result lacks what can be asked now: whoever stored it had no link."""
        lacking = [one.host for one in (stored.gpu.hosts if stored.gpu else ()) if one.missing == NO_LINK]
        return any(host in self._sessions and host in self._logs for host in lacking)

    async def merged(self, meta: Meta) -> Meta:
        """What the generator left of a run, with `gpu` of all hosts. Raises KeyError, TypeError where it is not that."""
        if not self._asked.others:
            return meta
        found = await asyncio.gather(*(self._during(other, meta) for other in self._asked.others))
        hosts = {other.host: told for other, told in zip(self._asked.others, found, strict=True)}
        members = self._asked.server.members
        here = next((one.host for one in members if one.host not in hosts and one.name != Role.ROUTER), None)
        if here is not None:
            hosts = {here: meta.get("gpu") or {"missing": "no GPU figures"}, **hosts}
        return {**meta, "gpu": {"hosts": hosts}}

    async def _during(self, other: SampledHost, meta: Meta) -> dict[str, Any]:
        session, log = self._sessions.get(other.host), self._logs[other.host]
        if other.run_id is None:
            return {"missing": other.missing or NO_LINK}
        if session is None or (log.given_up and session.transport.status().state is not LinkState.UP):
            return {"missing": NO_LINK}
        zero = meta["uptime_s"] + other.ahead_s
        until = zero + (meta.get("window") or (0.0, meta["end_s"]))[1]
        try:
            async with asyncio.timeout(_LINK_S):
                for _ in range(_TRIES):
                    over = await log.read(session.transport, other.run_id)
                    if over or log.told.latest >= until:
                        break
                    await asyncio.sleep(_AGAIN_S)
        except TimeoutError:
            log.given_up = True
            return {"missing": NO_LINK}
        except EagletuiError as error:
            return {"missing": one_line(error.message, 200)}
        return log.told.during(zero, meta)


@dataclass
class _Log:
    """The log of a sampler, read on from where it was."""

    told: Told = field(default_factory=Told)
    given_up: bool = False
    _file: str | None = None
    _rest: bytes = b""
    _read: int = 0

    async def read(self, transport: Transport, run_id: str) -> bool:
        """Takes what is new; whether no more will come. Waits for a lost link. Raises EagletuiError."""
        found = await patiently(transport, lambda: control.status(transport, [run_id]))
        if not found or found[0].log_path is None:
            raise EagletuiError("its sampler is gone", "measure again")
        path = found[0].log_path
        while self._read < _LOG_LIMIT:
            block = await patiently(
                transport, lambda: read_block(transport, path, self._read, MAX_BLOCK_BYTES, file=self._file)
            )
            if block is None or not block.data:
                break
            self._file = block.file
            self._read += len(block.data)
            *lines, self._rest = (self._rest + block.data).split(b"\n")
            for line in lines:
                self.told.take(line)
        return found[0].over
