"""A measurement as a run on the host: started once, followed over any number of lost links, collected by whom it may.

The load generator runs beside the server and goes on without us. What is needed to make results of its files is in the
run's cmd.json, so any later eagletui can collect what finished while nobody looked; collecting twice writes one file.
"""

import asyncio
import hashlib
import json
import re
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache, partial
from importlib import resources
from typing import Any

from tui.core.bench import command_driver, sglang_driver, target
from tui.core.bench.capacity import answer
from tui.core.bench.collect import Asked, assemble, point_of, result_id, unpack
from tui.core.bench.target import Seen, Target
from tui.core.bench.workload import DEFAULT_INPUT_LEN, KEY_VARIABLE, Dataset, dataset_of, plan
from tui.core.errors import EagletuiError, HostError, Slug, UsageError
from tui.core.hints import Action, Hint
from tui.core.link.retry import follow_through, patiently, until
from tui.core.link.transport import Transport
from tui.core.logs.blocks import MAX_BLOCK_BYTES, read_block
from tui.core.logs.follow import Chunk, follow
from tui.core.model.experiment import LiveRun
from tui.core.model.profile import BenchProfile, LoadPoint
from tui.core.model.result import MeasuredServer, Result
from tui.core.model.run import Run, RunState
from tui.core.profiles.secrets import is_secret_env
from tui.core.results import store
from tui.core.runs import control
from tui.core.runs.request import InRunDir, LaunchRequest, new_run_id
from tui.core.server import launch_records
from tui.core.server.launch_records import LaunchRecord
from tui.core.server.run_end import is_over
from tui.core.server.session import HostSession
from tui.core.text import as_number, as_whole, one_line, read_json

PROGRAM = InRunDir("loadgen.py")
PLAN = InRunDir("bench.json")
_POLL_S = 1.0
_SERIES = 120  # seconds of rate that a live state carries
_FILE_LIMIT = 256 << 20  # bytes of one file of a run; its log has four lines a second of some 400 bytes
_TRIES = 3
DEFAULT_SEED = 1


@cache
def _program() -> bytes:
    return resources.files("tui.remote").joinpath("loadgen.py").read_bytes()


async def start(
    session: HostSession,
    profile: BenchProfile,
    measured: Target,
    *,
    run_id: str | None = None,
    seed: int = DEFAULT_SEED,
    experiment: str | None = None,
    arm: str | None = None,
    launch_number: int | None = None,
    pair_number: int | None = None,
    verify: bool = False,
) -> Run:
    """Starts the generator on the host, once however often it is asked for with one `run_id`.

    Args:
        profile: of driver eagletui, sglang (the referee) or command.
        verify: both measure each run, the same number of requests.
        seed: decides prompts and their order, together with the number of a run: the same for all arms.
        experiment, arm, launch_number, pair_number: kept in the results.

    Raises:
        UsageError: the profile cannot be measured on this server.
        EagletuiError: the server is not ready or does not generate; another measurement of it is under way.
        HostError: the host cannot run it.
    """
    commanded = profile.driver == command_driver.TOOL
    data = command_driver.NO_DATA if commanded else await asyncio.to_thread(dataset_of, profile)
    if run_id is not None:
        known = await control.status(session.transport, [run_id])
        if known and known[0].state is not RunState.STAGED:
            return replace(known[0], host=session.entry.name)
    facts = await session.facts()
    if facts.python_error and not commanded:
        raise HostError(
            f"{session.entry.name}: the load generator needs Python: {facts.python_error}",
            "name an interpreter in the host's entry",
            slug=Slug.NO_PYTHON,
        )
    await _nobody_else(session, measured)
    seen = await target.look(session, measured, data)
    refereed = verify or profile.driver == sglang_driver.TOOL
    if refereed:
        # By driver = "sglang" always /generate, as all stored results of it.
        seen = sglang_driver.through(seen, data, str(measured), facts.sglang if verify else None)
    random_ids = data.kind == "random-ids"
    input_len = (profile.input_len or DEFAULT_INPUT_LEN) if random_ids else None
    if seen.max_input is not None and (input_len or 0) + profile.output_len > seen.max_input:
        asked_for = f"{input_len} tokens in and " if input_len else ""
        raise UsageError(
            f"{measured} takes {seen.max_input} tokens a request, fewer than {asked_for}{profile.output_len} out",
            "make input_len or output_len smaller, or launch with a larger context-length",
            slug=Slug.TOO_LONG,
        )
    run = measured.run
    now = datetime.now(UTC)
    run_id = run_id or new_run_id(profile.name, now.timestamp())
    asked = Asked(
        bench=replace(profile, path=None),
        server=_server(session, measured, seen, facts.gpu_names, facts.driver),
        api=seen.api,
        seed=seed,
        dataset=data.name,
        dataset_sha=data.sha,
        input_len=input_len,
        ignore_eos=random_ids,
        gpus=len(run.gpus) or None if run else None,
        version_meant=_version_meant(run),
        from_profile=run is not None and run.profile is not None,
        experiment=experiment,
        arm=arm,
        launch_number=launch_number,
        pair_number=pair_number,
    )
    if commanded:
        sglang_driver.refuse_miscounting(profile.command)
        argv: tuple[str | InRunDir, ...] = ("sh", command_driver.PROGRAM)
        files = {command_driver.PROGRAM.name: command_driver.program(profile, measured, seen)}
    else:
        document = _plan(profile, data, measured, seen, seed) | ({"verify": verify} if refereed else {})
        python = session.entry.python
        if facts.home and python.startswith("~/"):
            python = f"{facts.home}/{python[2:]}"
        argv = (python, sglang_driver.PROGRAM if refereed else PROGRAM, PLAN)
        files = {PROGRAM.name: _program(), PLAN.name: json.dumps(document, ensure_ascii=False).encode()}
        if refereed:
            files[sglang_driver.PROGRAM.name] = sglang_driver.program()
    env = dict(session.entry.env) if commanded else {}
    if seen.key:
        env[KEY_VARIABLE] = seen.key
    request = LaunchRequest(
        run_id=run_id,
        kind="bench",
        profile=profile.name,
        argv=argv,
        env={name: value for name, value in env.items() if not is_secret_env(name, value)},
        secret_env={name: value for name, value in env.items() if is_secret_env(name, value)},
        extra=asked.to_extra(),
        files=files,
    )
    # Recorded before it is asked for: whatever happens to the link, this machine knows where it is.
    launch_records.write(
        LaunchRecord(
            run_id=run_id,
            host=session.entry.name,
            kind="bench",
            profile=profile.name,
            launched_at=now.strftime("%Y-%m-%dT%H:%M:%SZ"),
        )
    )
    return replace(await control.launch(session.transport, request), host=session.entry.name)


async def _nobody_else(session: HostSession, measured: Target) -> None:
    """Raises EagletuiError where a measurement of this server is under way: both would measure each other."""
    for other in await control.list_runs(session.transport):
        if other.kind != "bench" or not other.active:
            continue
        try:
            asked = Asked.of(other.run_id, other.extra)
        except EagletuiError:
            continue
        mine = measured.run.run_id if measured.run else None
        if asked.server.url == measured.url or (mine and asked.server.run_id == mine):
            raise EagletuiError(
                f"{measured} is being measured by {other.run_id}",
                Hint(Action.WAIT_OR_STOP, other.short_id),
                slug=Slug.BUSY,
            )


def _server(
    session: HostSession, measured: Target, seen: Seen, gpu_names: tuple[str, ...], driver: str | None
) -> MeasuredServer:
    run = measured.run
    ours = run is not None and run.profile is not None
    sets = run.extra.get("sets") if run else None
    return MeasuredServer(
        host=session.entry.name,
        profile=run.profile if run else None,
        run_id=run.run_id if run else None,
        launched_at=run.started_at if run else None,
        url=measured.url,
        sets=sets if isinstance(sets, dict) else {},
        argv=store.public_argv(run.argv) if run else (),
        env=dict(run.env) if run and ours else {},
        model=seen.model,
        version=seen.version,
        gpus=tuple(gpu_names[index] for index in run.gpus if index < len(gpu_names)) if run else (),
        driver=driver,
    )


def _version_meant(run: Run | None) -> str | None:
    """Of SGLang, at the launch from this machine."""
    known = launch_records.read(run.run_id) if run else None
    return known.sglang if known else None


def _plan(profile: BenchProfile, data: Dataset, measured: Target, seen: Seen, seed: int) -> dict[str, Any]:
    run = measured.run
    return plan(
        profile,
        data,
        base_url=measured.url,
        api=seen.api,
        seed=seed,
        vocab_size=seen.vocab_size,
        has_key=seen.key is not None,
        log=run.log_path if run else None,
        pid=measured.pid,
        gpus=run.gpus if run else None,
    )


# -- following --------------------------------------------------------------------------------------------------------


@dataclass
class _Progress:
    """What the generator's lines have said so far."""

    sha: str | None = None
    live: LiveRun | None = None
    ended: list[Mapping[str, Any]] = field(default_factory=list)  # of runs and searches, not taken yet
    done: bool = False
    error: EagletuiError | None = None
    _rest: bytes = b""
    _words: deque[str] = field(default_factory=lambda: deque(maxlen=20))  # lines that are no events
    _series: deque[float | None] = field(default_factory=lambda: deque(maxlen=_SERIES))
    _of: object = None
    _second: int = -1

    def feed(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._line(line)

    def _line(self, line: bytes) -> None:
        try:
            event = read_json(line)
        except ValueError:
            event = None
        if not isinstance(event, dict) or not isinstance(event.get("event"), str):
            if words := one_line(line.decode("utf-8", "replace"), 200):
                self._words.append(words)
            return
        name = event["event"]
        if name == "hello":
            self.sha = str(event.get("sha256") or "") or None
        elif name == "progress":
            self._progressed(event)
        elif name in ("run", "search"):
            self.ended.append(event)
        elif name == "done":
            self.done = True
        elif name == "error":
            hint = event.get("hint")
            self.error = EagletuiError(
                one_line(str(event.get("text")), 300),
                one_line(str(hint), 200) if hint else None,
                slug=one_line(str(event.get("slug")), 40),
            )

    def _progressed(self, event: Mapping[str, Any]) -> None:
        try:
            point, number = point_of(event["point"]), int(event["run"])
        except (KeyError, TypeError, ValueError):
            return
        phase = str(event.get("phase"))
        rate, passed = as_number(event.get("tok_s")), as_number(event.get("t")) or 0.0
        part = point, number, phase == "warmup"
        if part != self._of:
            self._of, self._second = part, -1
            self._series.clear()
        second = int(passed) if phase != "drain" else self._second + 1
        if second > self._second:
            self._second = second
            self._series.append(rate)
        elif self._series:
            self._series[-1] = rate
        self.live = LiveRun(
            point=point,
            run_index=number,
            phase=phase,
            tok_s=rate,
            series=tuple(self._series),
            ttft_ms=as_number(event.get("ttft_ms")),
            tpot_ms=as_number(event.get("tpot_ms")),
            accept_length=as_number(event.get("accept_length")),
            power_w=as_number(event.get("power_w")),
            memory_used_mib=as_number(event.get("memory_used_mib")),
            active=as_whole(event.get("active")),
            completed=as_whole(event.get("completed")) or 0,
            errors=as_whole(event.get("errors")) or 0,
            left_s=as_number(event.get("left_s")),
        )

    def last_words(self) -> str:
        if self._rest.strip():
            self._words.append(one_line(self._rest.decode("utf-8", "replace"), 200))
        return self._words[-1] if self._words else "it said nothing"


async def follow_run(session: HostSession, run: Run) -> AsyncGenerator[LiveRun | Result, None]:
    """The states of a measurement and each result as its run ends, to the end; survives the link, also of one long over.

    Results are stored before they are given. Closing it leaves the measurement going on.

    Raises:
        EagletuiError: it ended without having measured everything: by an error of its own (with its slug), stopped,
            lost, or its program could not be started.
        HostError: the host cannot be used, or the session was closed.
    """
    asked = Asked.of(run.run_id, run.extra)
    seen = _Seen(session, run)
    watching = asyncio.create_task(seen.watch())
    progress = _Progress()
    shown: LiveRun | None = None
    try:
        async with aclosing(_chunks(session.transport, _log_path(run), seen.over)) as chunks:
            async for chunk in chunks:
                if watching.done() and (failed := watching.exception()):
                    raise failed
                progress.feed(chunk.data)
                for event in progress.ended:
                    for result in await _results(session, run, asked, event, progress.sha):
                        yield result
                progress.ended.clear()
                if progress.live is not shown and progress.live is not None and chunk.caught_up:
                    shown = progress.live
                    yield shown
        await watching
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
    if problem := _how_it_ended(seen.run, progress):
        raise problem


def _how_it_ended(run: Run, progress: _Progress) -> EagletuiError | None:
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


async def collect(session: HostSession, run: Run) -> tuple[Result, ...]:
    """Every result that a measurement has left on the host so far, stored; calling it again changes nothing.

    Raises EagletuiError where the run is no measurement, or a file of it is damaged; HostError, LinkLost.
    """
    asked = Asked.of(run.run_id, run.extra)
    progress = _Progress()
    progress.feed(await _read(session, run, _log_path(run)) or b"")
    found = [await _results(session, run, asked, event, progress.sha) for event in progress.ended]
    return tuple(result for results in found for result in results)


def _log_path(run: Run) -> str:
    if run.log_path is None:
        raise EagletuiError(f"{run.run_id} has no log", "measure again", slug=Slug.NOT_COLLECTABLE)
    return run.log_path


class _Seen:
    """The generator's run as the host last told."""

    def __init__(self, session: HostSession, run: Run) -> None:
        self._session, self.run = session, run

    def over(self) -> bool:
        return is_over(self.run)

    async def watch(self) -> None:
        if not self.over():
            await until(is_over, self._look, every_s=_POLL_S, transport=self._session.transport)

    async def _look(self) -> Run:
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
    session: HostSession, run: Run, asked: Asked, event: Mapping[str, Any], sha: str | None
) -> tuple[Result, ...]:
    """What a run or a search that has ended gives, stored: of a command what it printed, else one result."""
    if event["event"] == "search":
        return (await asyncio.to_thread(_answer, run, asked, event),)
    if event.get("tool") != command_driver.TOOL:
        return (await _result(session, run, asked, event, sha),)
    try:
        output = await _read(session, run, _path(run, str(event["output"]))) or b""
        results = command_driver.assemble(run.run_id, asked, event, output)
    except (KeyError, TypeError, ValueError):
        raise _damaged(run, "a line of its log") from None
    results = tuple(map(store.without_secrets, results))
    for result in results:
        await asyncio.to_thread(store.write, result, None)
    return results


async def _result(session: HostSession, run: Run, asked: Asked, event: Mapping[str, Any], sha: str | None) -> Result:
    """The result of a run that has ended: as it is stored, else from the files on the host."""
    refereed = event.get("tool") == sglang_driver.TOOL
    kind = "record" if refereed else "rows"
    try:
        label, number = point_of(event["point"]).label, int(event["run"])
        names = str(event["meta"]), str(event[kind])
        sums = str(event["sha256"]["meta"]), str(event["sha256"][kind])
    except (KeyError, TypeError, ValueError):
        raise _damaged(run, "a line of its log") from None
    named = (sglang_driver.result_id if refereed else result_id)(run.run_id, label, number)
    stored = await asyncio.to_thread(store.read, named)
    if stored is not None:
        return stored
    meta = await _fetch(session, run, names[0], sums[0])
    data = await _fetch(session, run, names[1], sums[1])
    server = await _fetch(session, run, "server.json", None)

    def make() -> Result:
        try:
            if refereed:
                result, rows = sglang_driver.assemble(run.run_id, asked, json.loads(meta), data, json.loads(server))
            else:
                rows = data
                result = assemble(run.run_id, asked, json.loads(meta), unpack(rows), json.loads(server), sha)
        except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
            raise _damaged(run, f"{names[0]} ({type(error).__name__}: {one_line(str(error), 80)})") from None
        result = store.without_secrets(result)
        store.write(result, rows, None if refereed else json.loads(meta))
        return result

    # A second of computing for a large run: the screen goes on meanwhile.
    return await asyncio.to_thread(make)


def _answer(run: Run, asked: Asked, event: Mapping[str, Any]) -> Result:
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
        if data and (sha is None or hashlib.sha256(data).hexdigest() == sha):
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
