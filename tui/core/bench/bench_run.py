"""A measurement as a run on the host: started once, followed over any number of lost links, collected by whoever comes.

The load generator runs beside the server and continues without us. What is needed to make results of its files is in the
run's cmd.json, so any later eagletui can collect what finished while nobody looked; collecting twice writes one file.
"""

import asyncio
import contextlib
import hashlib
import json
import re
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from tui.core.bench import target
from tui.core.bench.beside import beside, container_beside, reached
from tui.core.bench.capacity import answer
from tui.core.bench.collect import Asked, Place, measurement_of, point_of, result_id
from tui.core.bench.driver import Driver, Finished, Order, host_python, launch_request
from tui.core.bench.drivers import DRIVERS
from tui.core.bench.loadgen_driver import LoadgenDriver
from tui.core.bench.on_nodes import on_nodes
from tui.core.bench.other_hosts import OtherHosts, Sessions, end_sampling, sample_others, with_nodes
from tui.core.bench.progress import Progress
from tui.core.bench.target import Seen, Target
from tui.core.errors import EagletuiError, HostError, LinkLost, Slug, TimedOut, UsageError
from tui.core.hints import Action, Hint
from tui.core.host.gpus import HostFacts
from tui.core.link.retry import follow_through, patiently, until
from tui.core.link.transport import Transport
from tui.core.logs.blocks import MAX_BLOCK_BYTES, read_block
from tui.core.logs.follow import Chunk, follow
from tui.core.model.experiment import LiveRun
from tui.core.model.group import Member
from tui.core.model.profile import BenchProfile, LoadPoint
from tui.core.model.result import MeasuredMember, MeasuredServer, Result
from tui.core.model.run import Run, RunState
from tui.core.results import store
from tui.core.runs import control
from tui.core.runs.request import LaunchRequest, new_run_id
from tui.core.server import launch_records
from tui.core.server.asking import KEY_VARIABLE
from tui.core.server.launch_records import LaunchRecord
from tui.core.server.session import HostSession
from tui.core.text import one_line

_POLL_S = 1.0
_ALIVE_S = 3.0  # so long after a line about its progress a measurement is not asked for: nothing is started beside it
_FILE_LIMIT = 256 << 20  # bytes of one file of a run; its log has four lines a second of some 400 bytes
_TRIES = 3
_FACTS_S = 30.0  # that another host may take to say what it is
DEFAULT_SEED = 1


async def start(
    session: HostSession,
    profile: BenchProfile,
    measured: Target,
    *,
    run_id: str | None = None,
    seed: int = DEFAULT_SEED,
    place: Place | None = None,
    driver: Driver | None = None,
    others: Sessions | None = None,
) -> Run:
    """Starts the measurement on the host, once however often it is asked for with one `run_id`.

    Args:
        seed: decides prompts and their order, together with the number of a run: the same for all arms.
        place: in an experiment; kept in the results.
        driver: another one than the profile's.
        others: with the other hosts of a group, whose GPUs are sampled meanwhile.

    Raises:
        UsageError: the profile cannot be measured on this server.
        EagletuiError: the server is not ready or does not generate; another measurement of it is under way.
        HostError: the host cannot run it.
    """
    driver = driver or DRIVERS[profile.driver]
    data = await asyncio.to_thread(driver.dataset, profile)
    if run_id is not None:
        known = await control.status(session.transport, [run_id])
        if known and known[0].state is not RunState.STAGED:
            return replace(known[0], host=session.entry.name)
    session, measured, others = await on_nodes(session, measured, others or {})
    facts = await session.facts()
    box = container_beside(measured, facts, driver)
    if facts.python_error and driver.needs_python and box is None:
        raise _no_python(session, facts)
    await _nobody_else(session, measured)
    measured = await reached(session, measured, box)
    seen = driver.seen_by(await target.look(session, measured, data), data, measured, facts)
    order = Order(profile, data, measured, seen, seed, host_python(session.entry, facts), session.entry.env)
    _check_length(order)
    of_hosts = {session.entry.name: facts, **await _facts_of(measured, others or {})}
    asked = _asked(order, _server(session, measured, seen, of_hosts), place or Place())
    program = driver.program(order)
    if box is not None:
        program, asked = beside(program, box, facts, measured.log_path), replace(asked, container=str(box))
    if seen.key:
        program = replace(program, env={**program.env, KEY_VARIABLE: seen.key})
    program = replace(program, argv=(*session.words_for(program.env), *program.argv))
    now = datetime.now(UTC)
    name = run_id or new_run_id(profile.name, now.timestamp())
    request = launch_request(name, profile.name, program, (_run_id(measured), _own_url(measured)), measured.gpus)
    _record(request.run_id, session.entry.name, profile.name, now)
    sampled = others if driver.needs_python else None
    return replace(await _launch(session, request, asked, order, sampled), host=session.entry.name)


def _record(run_id: str, host: str, bench: str, now: datetime) -> None:
    """Before it is asked for: whatever happens to the link, this machine knows where it is."""
    launched_at = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    launch_records.write(LaunchRecord(run_id=run_id, host=host, kind="bench", profile=bench, launched_at=launched_at))


async def _launch(
    session: HostSession, request: LaunchRequest, asked: Asked, order: Order, others: Sessions | None
) -> Run:
    """Starts the samplers of other hosts, unless `others` is None, and then the program."""
    sampled = await sample_others(session, order, others, request.run_id) if others is not None else ()
    request = replace(request, extra=replace(asked, others=sampled).to_extra())
    try:
        return await control.launch(session.transport, request)
    except EagletuiError as error:
        if not isinstance(error, LinkLost | TimedOut):  # after those it may run all the same
            await end_sampling(sampled, with_nodes(session, sampled, others or {}))
        raise


def _no_python(session: HostSession, facts: HostFacts) -> HostError:
    return HostError(
        f"{session.entry.name}: the load generator needs Python: {facts.python_error}",
        "name an interpreter in the host's entry; beside a server in a container none is needed",
        slug=Slug.NO_PYTHON,
    )


def _check_length(order: Order) -> None:
    """Raises UsageError where the server takes no requests that long."""
    most, input_len, output_len = order.seen.max_input, order.input_len, order.profile.output_len
    if most is not None and (input_len or 0) + output_len > most:
        asked_for = f"{input_len} tokens in and " if input_len else ""
        raise UsageError(
            f"{order.target} takes {most} tokens a request, fewer than {asked_for}{output_len} out",
            "make input_len or output_len smaller, or launch with a larger context-length",
            slug=Slug.TOO_LONG,
        )


async def _nobody_else(session: HostSession, measured: Target) -> None:
    """Raises EagletuiError where a measurement of this server is under way: both would measure each other."""
    runs = await control.list_runs(session.transport)
    if (other := measurement_of(runs, _run_id(measured), _own_url(measured))) is not None:
        raise EagletuiError(
            f"{measured} is being measured by {other.run_id}", Hint(Action.WAIT_OR_STOP, other.short_id), slug=Slug.BUSY
        )


def _own_url(measured: Target) -> str | None:
    """The address, where no other server can have it: that of a job is its node's, where another may have the same."""
    return None if measured.run is not None and measured.run.job is not None else measured.url


def _run_id(measured: Target) -> str | None:
    """The launch that is measured: of a group, the group's."""
    if measured.group is not None:
        return measured.group.group_id
    return measured.run.run_id if measured.run else None


async def _facts_of(measured: Target, others: Sessions) -> dict[str, HostFacts]:
    """What the other hosts of a group are, as far as they answer."""

    async def of(host: str) -> HostFacts | None:
        with contextlib.suppress(EagletuiError, TimeoutError):
            async with asyncio.timeout(_FACTS_S):
                return await others[host].facts()
        return None

    hosts = [host for host in (measured.group.hosts if measured.group is not None else ()) if host in others]
    found = zip(hosts, await asyncio.gather(*map(of, hosts)), strict=True)
    return {host: facts for host, facts in found if facts is not None}


def _server(session: HostSession, measured: Target, seen: Seen, known: Mapping[str, HostFacts]) -> MeasuredServer:
    facts = known[session.entry.name]
    run, part = measured.run, measured.speaks
    ours = run is not None and run.profile is not None
    job = run is not None and run.job is not None
    sets = run.extra.get("sets") if run else None
    names = facts.gpu_names
    return MeasuredServer(
        host=session.entry.name,
        profile=run.profile if run else None,
        run_id=_run_id(measured),
        launched_at=run.started_at if run else None,
        url=measured.url,
        sets=sets if isinstance(sets, dict) else {},
        argv=store.public_argv(run.argv) if run else (),
        env=dict((part.run if part else run).env) if run and ours else {},
        model=seen.model,
        version=seen.version,
        gpus=tuple(names[index] for index in measured.gpus if index < len(names)),
        driver=facts.driver,
        members=_members(measured, known),
        nodes=measured.group.hosts if job and measured.group is not None else (),
    )


def _members(measured: Target, known: Mapping[str, HostFacts]) -> tuple[MeasuredMember, ...]:
    """Who makes up a group, the router last; each with what its host is, as far as that is known."""
    if measured.group is None or measured.run is None:
        return ()
    parts = [(part.member, part.url, part.run) for part in measured.parts]

    def of(member: Member, url: str | None, run: Run) -> MeasuredMember:
        facts = known.get(member.host)
        names = facts.gpu_names if facts is not None else ()
        return MeasuredMember(
            member.name,
            member.host,
            member.run_id,
            url,
            store.public_argv(run.argv),
            run.gpus,
            env=dict(run.env),
            gpu_names=tuple(names[gpu] for gpu in run.gpus if gpu < len(names)),
            driver=facts.driver if facts is not None else None,
            version=facts.sglang if facts is not None else None,
        )

    return tuple(of(*one) for one in (*parts, (measured.group.serving, measured.url, measured.run)))


def _asked(order: Order, server: MeasuredServer, place: Place) -> Asked:
    run = order.target.run
    said_by = order.target.speaks.run if order.target.speaks else run
    launched = launch_records.read(said_by.run_id) if said_by else None
    return Asked(
        bench=replace(order.profile, path=None),
        server=server,
        api=order.seen.api,
        seed=order.seed,
        dataset=order.data.name,
        dataset_sha=order.data.sha,
        input_len=order.input_len,
        ignore_eos=order.random_ids,
        gpus=order.target.gpu_count,
        version_meant=launched.sglang if launched else None,
        from_profile=run is not None and run.profile is not None,
        **asdict(place),
    )


# -- following --------------------------------------------------------------------------------------------------------


async def follow_run(
    session: HostSession, run: Run, others: Sessions | None = None
) -> AsyncGenerator[LiveRun | Result, None]:
    """The states of a measurement and each result as its run ends, to the end; survives the link, also of one long over.

    Results are stored before they are given. Closing it leaves the measurement going on.

    Args:
        others: with the other hosts of a group; what samples the GPUs there is ended with the measurement.

    Raises:
        EagletuiError: it ended without having measured everything: by an error of its own (with its slug), stopped,
            lost, or its program could not be started.
        HostError: the host cannot be used, or the session was closed.
    """
    asked = Asked.of(run.run_id, run.extra)
    others = with_nodes(session, asked.others, others or {})
    elsewhere = OtherHosts(asked, others)
    seen = _RunWatch(session, run)
    watching = asyncio.create_task(seen.watch())
    progress = Progress()
    shown: LiveRun | None = None
    try:
        async with aclosing(_chunks(session.transport, _log_path(run), seen.over)) as chunks:
            async for chunk in chunks:
                if watching.done() and (failed := watching.exception()):
                    raise failed
                progress.feed(chunk.data)
                seen.heard(chunk, ending=progress.done or progress.error is not None)
                for event in progress.ended:
                    for result in await _results(session, run, asked, event, progress.sha, elsewhere):
                        yield result
                progress.ended.clear()
                if progress.live is not shown and progress.live is not None and chunk.caught_up:
                    shown = progress.live
                    yield shown
        await watching
        await end_sampling(asked.others, others)
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
    if problem := _how_it_ended(seen.run, progress):
        raise problem


def _how_it_ended(run: Run, progress: Progress) -> EagletuiError | None:
    if progress.done:
        return None
    if run.stop is not None and run.stopped_by_us:
        by = f" by {run.stop_by}" if run.stop_by else ""
        return EagletuiError(f"{run.run_id} was stopped{by}", "what it had measured is stored", slug=Slug.STOPPED)
    if progress.error is not None:
        return progress.error
    if run.exit_code is None:
        why = f": {run.why}" if run.why else ""
        return EagletuiError(f"{run.run_id} is lost{why}", "measure again", slug=Slug.LOST)
    return EagletuiError(
        f"the load generator ended with exit code {run.exit_code}: {progress.last_words()}",
        Hint(Action.LOGS, run.short_id),
        slug=Slug.GENERATOR_FAILED,
    )


def other_hosts(run: Run) -> tuple[str, ...]:
    """The hosts on which the GPUs are sampled for a measurement, beside its own. Raises as `collect`."""
    return tuple(
        other.host for other in Asked.of(run.run_id, run.extra).others if other.run_id is not None and not other.node
    )


async def collect(session: HostSession, run: Run, others: Sessions | None = None) -> tuple[Result, ...]:
    """Every result that a measurement has left on the host so far, stored; calling it again changes nothing, but adds
    figures of hosts that could not be reached before.

    Raises EagletuiError where the run is not a measurement, or a file of it is damaged; HostError, LinkLost.
    """
    asked = Asked.of(run.run_id, run.extra)
    progress = Progress()
    progress.feed(await _read(session, run, _log_path(run)) or b"")
    others = with_nodes(session, asked.others, others or {})
    elsewhere = OtherHosts(asked, others)
    found = [await _results(session, run, asked, event, progress.sha, elsewhere) for event in progress.ended]
    if run.over:
        await end_sampling(asked.others, others)
    return tuple(result for results in found for result in results)


def _log_path(run: Run) -> str:
    if run.log_path is None:
        raise EagletuiError(f"{run.run_id} has no log", "measure again", slug=Slug.NOT_COLLECTABLE)
    return run.log_path


class _RunWatch:
    """The generator's run as the host last reported it."""

    def __init__(self, session: HostSession, run: Run) -> None:
        self._session, self.run = session, run
        self._alive_until = 0.0  # time.monotonic()

    def heard(self, chunk: Chunk, *, ending: bool) -> None:
        """What its log brought: while that grows, it lives."""
        if ending:
            self._alive_until = 0.0
        elif chunk.data:
            self._alive_until = time.monotonic() + _ALIVE_S

    def over(self) -> bool:
        return self.run.over

    async def watch(self) -> None:
        if not self.over():
            await until(lambda seen: seen.over, self._look, every_s=_POLL_S, transport=self._session.transport)

    async def _look(self) -> Run:
        if time.monotonic() < self._alive_until:
            return self.run
        found = await control.refresh(self._session.transport, self.run)
        self.run = (
            replace(found, host=self.run.host)
            if found is not None
            else replace(self.run, state=RunState.LOST, why="its files are gone")
        )
        return self.run


async def _chunks(transport: Transport, path: str, ended: Callable[[], bool]) -> AsyncGenerator[Chunk, None]:
    """The log from its first byte; a link that needs a person to come back is waited for."""
    last: Chunk | None = None
    opened = follow_through(transport, lambda: follow(transport, path, after=last, ended=ended))
    async with aclosing(opened) as chunks:
        async for chunk in chunks:
            if isinstance(chunk, Chunk):
                last = chunk
                yield chunk


# -- collecting -------------------------------------------------------------------------------------------------------


async def _results(
    session: HostSession, run: Run, asked: Asked, event: Mapping[str, Any], sha: str | None, elsewhere: OtherHosts
) -> tuple[Result, ...]:
    """What a run or a search that has ended gives: as it is stored, else from the files on the host, and stored then."""
    if event["event"] == "search":
        return (await asyncio.to_thread(_answer_of_search, run, asked, event),)
    try:
        driver = DRIVERS[event.get("tool", LoadgenDriver.name)]
        named = driver.result_id(run.run_id, point_of(event["point"]).label, int(event["run"]))
        files = driver.files(event)
    except (KeyError, TypeError, ValueError):
        raise _damaged(run, "a line of its log") from None
    stored = await asyncio.to_thread(store.read, named) if named is not None else None
    if stored is not None and not elsewhere.adds_to(stored):
        return (stored,)
    data = {name: await _fetch(session, run, *place) for name, place in files.items()}
    if asked.others and "meta" in data:
        try:
            data["meta"] = json.dumps(await elsewhere.merged(json.loads(data["meta"]))).encode()
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise _damaged(run, files["meta"][0]) from None

    def make() -> tuple[Result, ...]:
        try:
            found = driver.results(Finished(run.run_id, asked, event, data, sha))
        except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
            first, _ = next(iter(files.values()))
            raise _damaged(run, f"{first} ({type(error).__name__}: {one_line(str(error), 80)})") from None
        results = [store.without_secrets(each.result) for each in found]
        for each, result in zip(found, results, strict=True):
            store.write(result, each.rows, each.meta)
        return tuple(results)

    # A second of computing for a large run: the screen keeps running meanwhile.
    return await asyncio.to_thread(make)


def _answer_of_search(run: Run, asked: Asked, event: Mapping[str, Any]) -> Result:
    """The answer of a search, from the results of its loads: those are stored, their events came before."""
    try:
        number, labels = int(event["run"]), [point_of(point["point"]).label for point in event["points"]]
        named = result_id(run.run_id, LoadPoint(search=event["kind"]).label, number)
        of_loads = [store.read(result_id(run.run_id, label, number)) for label in labels]
        if asked.bench.search is None or not all(of_loads):
            raise ValueError
        found = store.read(named) or answer([r for r in of_loads if r], asked.bench.search, named)
    except (KeyError, TypeError, ValueError):
        raise _damaged(run, "the end of a search") from None
    store.write(found)
    return found


def _damaged(run: Run, what: str) -> EagletuiError:
    return EagletuiError(
        f"{run.run_id}: {what} cannot be read", "its files are on the host; measure again", slug=Slug.BROKEN_ROWS
    )


async def _fetch(session: HostSession, run: Run, name: str, sha: str | None) -> bytes:
    """A file of the run, whole. Raises EagletuiError where it is not what its checksum says, or is gone."""
    for _ in range(_TRIES):
        data = await _read(session, run, _path(run, name))
        if data is not None and (sha is None or hashlib.sha256(data).hexdigest() == sha):
            return data
    raise _damaged(run, name)


def _path(run: Run, name: str) -> str:
    """A file in the run's directory; its name comes from the host."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name):
        raise _damaged(run, "the name of a file")
    return f"{run.directory}/{name}"


async def _read(session: HostSession, run: Run, path: str) -> bytes | None:
    """A file on the host as it is now, None where there is none; lost links are waited for."""
    data = bytearray()
    file: str | None = None
    while True:
        read = partial(read_block, session.transport, path, len(data), MAX_BLOCK_BYTES, file=file)
        found = await patiently(session.transport, read)
        if found is None or (file is not None and found.file != file):
            return None
        file = found.file
        data += found.data
        if not found.data or len(data) >= found.size:
            return bytes(data)
        if found.size > _FILE_LIMIT:
            raise _damaged(run, f"{path}, which has {found.size} bytes,")
