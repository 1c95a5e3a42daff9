"""What the commands of the command line do; `tui.cli` only parses them."""

import asyncio
import contextlib
import os
import re
import shlex
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import BinaryIO

from tui.commands.output import emit, run_async, say
from tui.commands.terminal import TerminalAsker, interactive, read_line
from tui.core.config import (
    config_dir,
    data_dir,
    default_host,
    load_settings,
    profile_dirs,
    shipped_profiles_dir,
    state_dir,
)
from tui.core.errors import EagletuiError, HostError, Slug, TimedOut, UsageError
from tui.core.link.transport import LinkState
from tui.core.model.log import LogRecord
from tui.core.model.phases import Outcome
from tui.core.runs.control import Run
from tui.core.server import launch_records
from tui.core.server.session import HostSession, ServerState, open_session
from tui.core.server.watch import RunUpdate, is_over, outcome_of_files
from tui.core.sglang.diagnosis import Diagnosis
from tui.core.text import one_line, sanitize

_EXIT_FOLLOWS_S = 15.0
_DROPPED_WAIT_S = 15.0
_LOOK_S = 10.0  # how long a look at a run may take


@asynccontextmanager
async def session(host: str) -> AsyncIterator[HostSession]:
    """A connected session, closed at the end."""
    opened = await open_session(host, TerminalAsker())
    try:
        try:
            await opened.open()
        except HostError as error:
            if error.slug != Slug.DROPPED or not await _link_comes_up(opened):
                raise
        yield opened
    finally:
        await opened.close()


async def _link_comes_up(opened: HostSession) -> bool:
    """sshd drops new connections at random while many are under way (MaxStartups); the link is tried again by itself."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_DROPPED_WAIT_S):
            async for status in opened.link():
                if status.state is LinkState.UP:
                    return True
                if status.state in (LinkState.REFUSED, LinkState.WAITING):
                    return False
    return False


def host_of_run(run: str, host: str | None) -> str:
    """Where a run is: this machine's record of launches knows, else the host asked for."""
    if host:
        return host
    known = launch_records.read_all()
    run_id = launch_records.match_run(run, [record.run_id for record in known])
    return next((record.host for record in known if record.run_id == run_id), default_host())


def diagnosis_json(diagnosis: Diagnosis | None) -> dict[str, object] | None:
    """A diagnosis as scripts see it."""
    if diagnosis is None:
        return None
    evidence = diagnosis.evidence
    return {
        "cause": diagnosis.cause,
        "title": diagnosis.title,
        "phase": diagnosis.phase,
        "rank": diagnosis.rank,
        "evidence": {"line": evidence.line, "text": evidence.text} if evidence else None,
        "advice": list(diagnosis.advice),
        "set": dict(diagnosis.set),
    }


def state_json(state: ServerState) -> dict[str, object]:
    """A server's state as `launch`, `wait` and `stop` print it."""
    run = state.run
    return {
        "run": run.run_id,
        "host": run.host,
        "profile": run.profile,
        "outcome": state.outcome,
        "phase": state.phase if run.kind == "server" else None,
        "diagnosis": diagnosis_json(state.diagnosis),
        "pid": run.pid,
        "port": run.port,
        "started": run.started_at,
        "ended": run.ended_at,
        "exit_code": run.exit_code,
        "ready_after_s": round(state.ready_after_s, 1) if state.ready_after_s is not None else None,
        "error": None,
    }


def run_json(run: Run, outcome: str, phase: str | None, cause: str | None) -> dict[str, object]:
    """A run as `ps` prints it."""
    return {
        "run": run.run_id,
        "kind": run.kind,
        "profile": run.profile,
        "host": run.host,
        "outcome": outcome,
        "phase": phase,
        "cause": cause,
        "pid": run.pid,
        "port": run.port,
        "started": run.started_at,
        "ended": run.ended_at,
        "exit_code": run.exit_code,
        "state": run.state,
        "owner": run.owner,
        "orphans": list(run.orphans),
    }


# -- gpus -------------------------------------------------------------------------------------------------------------


def gpus_command(host: str | None, watch: bool, file: Path | None, query: str | None, as_json: bool) -> int:
    """`eagletui gpus`: exit code 1 where the host gave an error instead of GPUs."""
    from tui.core.host.gpu_csv import parse_smi, smi_text
    from tui.core.host.gpus import GpuSample, gpu_table, gpus_json, sample_error

    def show(sample: GpuSample, samples: int) -> None:
        if as_json:
            emit(gpus_json(sample, samples))
        elif sample.error:
            raise sample_error(sample, str(file or host or default_host())) or EagletuiError("no GPU data")
        else:
            print(gpu_table(sample), flush=True)

    if file is not None:
        try:
            text = smi_text(file.read_bytes())
        except OSError as error:
            unreadable = UsageError(f"{file}: {error.strerror}", "name a readable file", slug=Slug.UNKNOWN_FILE)
            unreadable.details = {"gpus": [], "samples": 0}
            raise unreadable from None
        sample, samples = parse_smi(text, query)
        show(sample, samples)
        return 1 if sample.error else 0

    async def sample_host() -> int:
        try:
            return await sample_session()
        except EagletuiError as error:
            error.details = {"gpus": [], "samples": count}
            raise

    count = 0

    async def sample_session() -> int:
        nonlocal count
        from tui.core.host import gpu_sampler

        async with session(host or default_host()) as opened:
            if not watch:
                sample = await gpu_sampler.one_sample(opened.transport, opened.entry.python)
                show(sample, 1)
                return 1 if sample.error else 0
            async for sample in opened.gpus():
                count += 1
                if sample.error and not as_json:  # asked again by itself
                    say(f"{sample.error}: {sample.detail or 'no GPU data'}")
                else:
                    show(sample, count)
        return 0

    return run_async(sample_host())


# -- profiles ---------------------------------------------------------------------------------------------------------


def profiles_list(directory: Path | None, as_json: bool) -> int:
    """`eagletui profiles list`."""
    from tui.core.profiles.profiles import discover

    entries = discover(profile_dirs(directory))
    if as_json:
        emit(
            [
                {
                    "name": entry.name,
                    "kind": entry.kind,
                    "path": str(entry.path),
                    "description": entry.description,
                    "errors": [{"key": e.key, "message": e.message, "suggestion": e.suggestion} for e in entry.errors],
                }
                for entry in entries
            ]
        )
        return 0
    width = max((len(entry.name) for entry in entries), default=0)
    for kind in ("launch", "bench", "experiment"):
        for entry in entries:
            if entry.kind == kind and not entry.errors:
                print(f"{kind:<11} {entry.name:<{width}}  {entry.description or ''}".rstrip())
    for entry in entries:
        for error in entry.errors:
            print(f"broken      {error}")
    return 0


def profiles_show(directory: Path | None, name: str, sets: tuple[str, ...], host: str | None, as_json: bool) -> int:
    """`eagletui profiles show`: the command for the host's SGLang where it was seen before, else for the newest."""
    from tui.core.host import facts_cache
    from tui.core.profiles.profiles import build_command, load_launch, render_command

    profile = load_launch(name, profile_dirs(directory), sets)
    where = host or profile.host or default_host()
    entry = load_settings().host(where)
    facts = facts_cache.remembered(entry)
    command = build_command(profile, entry, facts.sglang if facts else None, None)
    if as_json:
        emit({"env": dict(command.env), "argv": list(command.argv), "host": where, "notes": list(command.notes)})
        return 0
    print(render_command(command))
    for note in command.notes:
        say(f"note: {note}")
    return 0


def profiles_import(file: Path, save_as: str | None, as_json: bool) -> int:
    """`eagletui profiles import`."""
    from tui.core.profiles.importing.shell_command import import_command
    from tui.core.profiles.profiles import save_profile

    try:
        posted = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}", "name a readable file", slug=Slug.UNKNOWN_FILE) from None
    found = import_command(posted.decode("utf-8", "replace"), os.path.expanduser("~"))
    saved = save_profile(found.profile, save_as, config_dir() / "profiles") if save_as else None
    if as_json:
        emit(
            {
                "env": dict(found.env),
                "argv": list(found.argv),
                "profile": found.profile,
                "warnings": list(found.warnings),
                "saved": str(saved) if saved else None,
            }
        )
        return 0
    print(found.profile.rstrip())
    for warning in found.warnings:
        say(f"warning: {warning}")
    if saved:
        say(f"saved as {saved}")
    return 0


# -- runs -------------------------------------------------------------------------------------------------------------


def launch_command(
    directory: Path | None,
    name: str,
    host: str | None,
    sets: tuple[str, ...],
    replace_running: bool,
    wait_ready: bool,
    timeout: float | None,
    as_json: bool,
) -> int:
    """`eagletui launch`."""
    from tui.core.profiles.profiles import load_launch

    profile = load_launch(name, profile_dirs(directory), sets)

    async def start() -> int:
        async with session(host or profile.host or default_host()) as opened:
            plan = await opened.plan(profile, dict(item.split("=", 1) for item in sets))
            for finding in plan.findings:
                if finding.level == "warn":
                    say(str(finding))
            run = await opened.launch(plan, replace=replace_running)
            if not as_json:
                say(f"started {run.run_id} on {run.host}, port {run.port}")
            if wait_ready:
                limit = timeout if timeout is not None else profile.startup_timeout_s
                return await _wait(opened, run, "ready", limit, as_json)
            # A launch that dies at once (no such program, a bad flag) is said now, not at the next look.
            state = await _settled_state(opened, run)
            if as_json:
                emit(state_json(state))
            elif state.outcome is Outcome.CRASHED:
                _tell(state)
            else:
                print(run.run_id)
            return 1 if state.outcome is Outcome.CRASHED else 0

    return run_async(start())


def _tell(state: ServerState) -> None:
    """The end of a wait, for a person."""
    run = state.run
    if state.outcome is Outcome.READY:
        took = f" after {state.ready_after_s:.0f} s" if state.ready_after_s is not None else ""
        say(f"ready{took}: {run.run_id} on {run.host}, port {run.port}")
        return
    code = f", exit code {run.exit_code}" if run.exit_code is not None else ""
    where = f" in {state.phase.replace('_', ' ')}" if run.kind == "server" else ""
    say(f"{state.outcome}{code}: {run.run_id}{where}")
    if state.diagnosis:
        say(f"{state.diagnosis.cause}: {state.diagnosis.title}")
        if state.diagnosis.evidence:
            say(f"line {state.diagnosis.evidence.line}: {one_line(state.diagnosis.evidence.text, 200)}")
        for advice in state.diagnosis.advice:
            say(f"- {advice}")
        if state.diagnosis.set:
            say(f"try: {_launch_again(run, state.diagnosis.set)}")


def _launch_again(run: Run, change: Mapping[str, object]) -> str:
    """The command that launches a run's profile as it was, with a change; secrets of the first launch are left out."""
    from tui.core.profiles.profiles import MASK, toml_value

    known = launch_records.read(run.run_id)
    sets = {**(known.sets if known else {}), **change}
    words = ["eagletui", "launch", run.profile or "NAME", "--host", run.host]
    for key, value in sets.items():
        if value != MASK:
            words += ["--set", f"{key}={value if isinstance(value, str) else toml_value(value)}"]
    return shlex.join(words)


def _is_decided(update: RunUpdate, until: str) -> bool:
    """Whether a wait is over; of a run that has ended the last update has the whole log, and the diagnosis."""
    state = update.state
    if is_over(state.run):
        return False
    return until == "ready" and state.outcome in (Outcome.READY, Outcome.FINISHED)


async def _wait(opened: HostSession, run: Run, until: str, timeout_s: float, as_json: bool) -> int:
    last: ServerState | None = None
    shown: object = None
    crashed_at: float | None = None
    began = asyncio.get_running_loop().time()
    link = opened.transport.status
    try:
        # However short the patience: what the host says at present is heard.
        async with asyncio.timeout(max(timeout_s, _LOOK_S)) as limit, aclosing(opened.watch(run)) as updates:
            async for update in updates:
                last = update.state
                if _is_decided(update, until):
                    break
                if last.outcome is Outcome.CRASHED and until == "ready" and not is_over(last.run):
                    # The exit code follows within seconds; what lingers longer is told without one.
                    crashed_at = crashed_at or time.monotonic()
                    if time.monotonic() - crashed_at > _EXIT_FOLLOWS_S:
                        break
                if (error := link().error) and link().state in (LinkState.WAITING, LinkState.REFUSED):
                    raise error  # nobody is here to log in again
                if not as_json and update.settled and last.outcome is Outcome.STARTING:
                    shown = _say_progress(last, shown)
                now = asyncio.get_running_loop().time()
                if is_over(last.run):
                    limit.reschedule(now + _LOOK_S)  # the rest of its log is all that is missing
                elif update.settled:
                    limit.reschedule(max(now, began + timeout_s))
            limit.reschedule(None)
    except TimeoutError:
        message = f"{run.run_id} is not {'ready' if until == 'ready' else 'over'} after {timeout_s:g} s"
        hint = "it goes on; eagletui wait takes a longer --timeout"
        if as_json and last is not None:
            emit({**state_json(last), "error": TimedOut.slug, "message": message, "hint": hint})
            return TimedOut.exit_code
        raise TimedOut(message, hint) from None
    if last is None:
        raise EagletuiError(f"{run.run_id} gave no state", "see eagletui ps")
    measured = await _measured(opened, last.run)
    if as_json:
        emit(state_json(last) | measured)
    else:
        _tell(last)
    if until == "ready":
        return 0 if last.outcome is Outcome.READY else 1
    return 0 if last.run.exit_code == 0 or last.run.stopped_by_us else 1


async def _measured(opened: HostSession, run: Run) -> dict[str, object]:
    """What a measurement has left on the host, stored here: nobody may have looked while it went on."""
    if run.kind != "bench" or not is_over(run):
        return {}
    from tui.core.bench import bench_run

    try:
        found = await bench_run.collect(opened, run)
    except EagletuiError as error:
        say(error.message)
        return {"results": []}
    say(f"{len(found)} results of {run.run_id} are stored")
    return {"results": [result.result_id for result in found]}


def _say_progress(state: ServerState, shown: object) -> object:
    """Says how far a start is where that is news; what was said is the next call's `shown`."""
    progress = state.startup.progress
    suspected, slower = state.suspected, state.slower
    key = (
        (state.phase, state.stale, progress and progress.done * 10 // max(1, progress.total)),
        (suspected and (suspected.kind, suspected.hard), state.suspicion is None, slower and slower.phase),
    )
    if key == shown:
        return shown
    line = state.phase.replace("_", " ")
    if progress:
        line += f" {progress.what} {progress.done}/{progress.total}"
    if state.suspicion is not None:
        evidence = f" ({'; '.join(suspected.evidence)})" if suspected and suspected.evidence else ""
        line += f": it may hang: {state.suspicion}{evidence}"
    elif slower is not None:
        line += f": slower than ever here ({slower.took_s:.0f} s, at most {slower.slowest_s:.0f} s before); perhaps {slower.reasons[0]}"
    say(f"{time.strftime('%H:%M:%S')} {'link lost, was at ' if state.stale else ''}{line}")
    return key


def ps_command(host: str | None, as_json: bool) -> int:
    """`eagletui ps`."""

    async def show() -> int:
        async with session(host or default_host()) as opened:
            rows = []
            for run in await opened.runs():
                rows.append(run_json(run, *await _outcome_of(opened, run)))
        if as_json:
            emit(rows)
            return 0
        if not rows:
            say(f"no runs on {host or default_host()}; eagletui launch NAME starts one")
            return 0
        print(f"{'RUN':<34} {'OUTCOME':<9} {'PHASE OR CAUSE':<20} {'PID':>8} {'PORT':>6}  STARTED")
        for row in rows:
            name = f"{row['profile'] or row['owner'] or '–'} {str(row['run'])[-6:]}"
            print(
                f"{name[:34]:<34} {row['outcome']!s:<9} {row['cause'] or row['phase'] or '–'!s:<20} "
                f"{row['pid'] or '–':>8} {row['port'] or '–':>6}  {row['started'] or '–'}"
            )
        return 0

    return run_async(show())


async def _outcome_of(opened: HostSession, run: Run) -> tuple[str, str | None, str | None]:
    """Outcome, phase and cause: of an ended run by its files and this machine's record, of a live one by a look."""
    outcome = outcome_of_files(run)
    if outcome is not None:
        known = launch_records.read(run.run_id)
        return outcome, known.phase if known else None, known.cause if known else None
    latest = await _settled_state(opened, run)
    phase = latest.phase if run.kind == "server" else None
    return latest.outcome, phase, latest.diagnosis.cause if latest.diagnosis else None


async def _settled_state(opened: HostSession, run: Run) -> ServerState:
    """The state once the log has been read up to its present end."""
    latest: ServerState | None = None
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_LOOK_S), aclosing(opened.watch(run)) as updates:
            async for update in updates:
                latest = update.state
                if update.settled and not is_over(latest.run):
                    break
    if latest is None:
        raise EagletuiError(f"{run.run_id} gave no state", "try again")
    return latest


def wait_command(run: str, until: str, timeout: float | None, host: str | None, as_json: bool) -> int:
    """`eagletui wait`."""

    async def waiting() -> int:
        async with session(host_of_run(run, host)) as opened:
            found = await opened.find_run(run)
            return await _wait(opened, found, until, 3600.0 if timeout is None else timeout, as_json)

    return run_async(waiting())


def stop_command(run: str, yes: bool, grace: float, host: str | None, as_json: bool) -> int:
    """`eagletui stop`: idempotent; asks only on a terminal."""

    async def stopping() -> int:
        async with session(host_of_run(run, host)) as opened:
            found = await opened.find_run(run)
            if is_over(found) and not found.orphans:
                if as_json:
                    emit(_stopped_json(found, None))
                else:
                    say(f"{found.run_id} has ended already")
                return 0
            if not yes and not as_json and interactive():
                gpus = f", GPUs {', '.join(map(str, found.gpus))}" if found.gpus else ""
                say(f"stop {found.run_id} on {found.host}, PID {found.pid}{gpus}?")
                answer = await read_line("[yes/No] ")
                if (answer or "").strip().lower() not in ("y", "yes"):
                    say("not stopped")
                    return 1
            last = None
            async for last in opened.stop(found, grace_s=grace):
                asked.append(found.run_id)
                if not as_json:
                    say(last.text)
            after = await opened.find_run(found.run_id)
            stuck = last is not None and last.step == "stuck"
            if as_json:
                document = _stopped_json(after, last.memory_held_mib if last else None)
                if stuck and last:
                    document |= {"error": "stuck", "message": last.text, "hint": "look at the host's dmesg"}
                emit(document)
            return 1 if stuck else 0

    asked: list[str] = []
    try:
        return run_async(stopping())
    except KeyboardInterrupt:
        if asked:
            raise EagletuiError(
                "interrupted", f"the host goes on stopping {asked[0]} by itself", slug=Slug.INTERRUPTED
            ) from None
        raise


def _stopped_json(run: Run, held_mib: float | None) -> dict[str, object]:
    known = launch_records.read(run.run_id)
    return {
        "run": run.run_id,
        "host": run.host,
        "profile": run.profile,
        "outcome": outcome_of_files(run) or Outcome.STOPPED,
        "phase": known.phase if known else None,
        "diagnosis": None,
        "pid": run.pid,
        "port": run.port,
        "started": run.started_at,
        "ended": run.ended_at,
        "exit_code": run.exit_code,
        "orphans": list(run.orphans),
        "mem_held_mib": held_mib,
        "error": None,
    }


# -- logs and diagnosis -----------------------------------------------------------------------------------------------


# user@name, user@[address], [address]; a port; the path
_SSH_FILE = re.compile(r"((?:[^/:]*@)?(?:\[[^\]/]*\]|(?<=@)[^/:]+)(?::\d+(?=:))?):(.*)", re.DOTALL)


def _names_a_file(what: str) -> bool:
    return "/" in what or ":" in what or os.path.isfile(what)


def _split_host(what: str) -> tuple[str | None, str]:
    """`HOST:FILE` or a file here; an existing path here is never taken for a host."""
    if os.path.exists(what):
        return None, what
    if (matched := _SSH_FILE.fullmatch(what)) is not None:
        host, path = matched.groups()
    else:
        host, colon, path = what.partition(":")
        if not colon or not host or "/" in host:
            return None, what
    if not path:
        raise UsageError(f"{one_line(what, 80)} names no file", "write HOST:FILE", slug=Slug.UNKNOWN_FILE)
    return host, path


async def _run_or_no_file(opened: HostSession, what: str) -> Run:
    try:
        return await opened.find_run(what)
    except UsageError as error:
        if error.slug != Slug.UNKNOWN_RUN:
            raise
        raise UsageError(
            f"{one_line(what, 80) or repr('')} is neither a file here nor a run on {opened.entry.name}",
            f"see eagletui ps {opened.entry.name}, or write HOST:FILE",
            slug=Slug.UNKNOWN_RUN,
        ) from None


def logs_command(what: str, follow: bool, host: str | None, as_json: bool) -> int:
    """`eagletui logs`: the bytes as they are where stdout is no terminal, except that secrets are masked."""
    from tui.core.logs.follow import follow as follow_file
    from tui.core.masking import SecretMask

    mask = SecretMask()
    raw = not sys.stdout.isatty()

    def out(data: bytes) -> None:
        masked = mask.feed(data)
        if raw:
            sys.stdout.buffer.write(masked)
            sys.stdout.buffer.flush()
        else:
            sys.stdout.write(sanitize(masked.decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n")))
            sys.stdout.flush()

    async def copy(opened: HostSession, path: str, run: Run | None) -> int:
        from tui.core.sglang.tracker import LogTracker

        tracker = LogTracker()
        state = {"over": not follow}
        tasks = []
        if run is not None and follow:
            state["over"] = is_over(run)
            tasks.append(asyncio.create_task(_watch_end(opened, run, state)))
        chunks = follow_file(opened.transport, path, ended=lambda: bool(state["over"]))
        try:
            async for chunk in chunks:
                if chunk.event == "gone" and (not follow or chunk.identity is None):
                    raise _gone(path, opened.entry.name)  # else it is being rotated, and comes again
                if chunk.event and chunk.event != "ended":
                    say(f"[{chunk.event.replace('_', ' ')}]")
                if chunk.event in ("replaced", "truncated"):
                    tracker.reset()
                if as_json:
                    for record in tracker.feed(chunk.data):
                        emit(_record_json(record))
                elif chunk.data:
                    out(chunk.data)
            if as_json:
                for record in tracker.flush():
                    emit(_record_json(record))
            else:
                out(b"")
                if rest := mask.flush():
                    sys.stdout.buffer.write(rest) if raw else sys.stdout.write(
                        sanitize(rest.decode("utf-8", "replace"))
                    )
                sys.stdout.flush()
        finally:
            await chunks.aclose()
            for task in tasks:
                task.cancel()
        return 0

    where, path = _split_host(what) if _names_a_file(what) else (None, "")
    if path and where is None:
        path = os.path.abspath(path)

    async def show() -> int:
        if path:
            async with session(where or "local") as opened:
                return await copy(opened, path, None)
        async with session(host_of_run(what, host)) as opened:
            run = await _run_or_no_file(opened, what)
            return await copy(opened, _log_of(run), run)

    return run_async(show())


def logs_view(named: list[str], host: str | None) -> int:
    """`eagletui logs` on a terminal: one log, or two of them side by side."""
    from tui.panel.log_app import Target, run_log_view

    targets = []
    for what in named:
        if _names_a_file(what):
            where, path = _split_host(what)
            targets.append(Target(where or "local", path if where else os.path.abspath(path)))
        else:
            targets.append(Target(host_of_run(what, host), run=what))
    return run_log_view(*targets)


def _log_of(run: Run) -> str:
    if run.log_path is None:
        raise EagletuiError(
            f"the output of {run.run_id} goes nowhere that can be read",
            "start it with eagletui, or with its output in a file",
            slug=Slug.NO_LOG,
        )
    return run.log_path


def _gone(path: str, host: str) -> UsageError:
    return UsageError(f"{path} is not there on {host}", "check the path", slug=Slug.UNKNOWN_FILE)


def _record_json(record: LogRecord) -> dict[str, object]:
    from tui.core.masking import mask_secrets

    return {
        "line": record.number,
        "offset": record.offset,
        "time": record.time,
        "rank": record.rank,
        "kind": record.kind,
        "phase": record.phase,
        "text": mask_secrets(record.text.encode("utf-8", "replace")).decode("utf-8", "replace"),
    }


async def _watch_end(opened: HostSession, run: Run, state: dict[str, bool]) -> None:
    from tui.core.runs import control as runs

    while not state["over"]:
        with contextlib.suppress(EagletuiError):
            seen = await runs.refresh(opened.transport, run)
            state["over"] = seen is None or is_over(seen)
        await asyncio.sleep(1.0)


def diagnose_command(what: str, host: str | None, as_json: bool, *, follow: bool = False) -> int:
    """`eagletui diagnose`: 0 whenever it could read; with `follow` a report at each change, until the run is over."""
    from tui.core.server.forecast import prefer_worked
    from tui.core.server.watch import exit_evidence
    from tui.core.sglang.diagnosis import Diagnosis, ExitEvidence
    from tui.core.sglang.report import report_of, report_text
    from tui.core.sglang.patterns import patterns
    from tui.core.sglang.state import StartupState
    from tui.core.sglang.tracker import LogTracker

    for problem in patterns().problems:
        say(f"pattern left out: {one_line(problem)}")
    tracker = LogTracker(records=False)
    shown: list[object] = []

    def show(run: Run | None = None, exit: ExitEvidence | None = None, outcome: Outcome | None = None) -> None:
        known = launch_records.read(run.run_id) if run is not None else None

        def prefer(found: Diagnosis, state: StartupState) -> Diagnosis:
            assert known is not None
            past = [record for record in launch_records.read_all() if record.run_id != known.run_id]
            return prefer_worked(found, state, known.host, known.args, past)

        found = report_of(tracker, exit=exit, prefer=prefer if known is not None else None)
        if outcome is not None:  # a log may end without a word
            found["outcome"] = outcome
        key = [found[name] for name in ("phase", "outcome", "cause", "evidence")]
        if key == shown:
            return
        if shown and not as_json:
            print()
        shown[:] = key
        emit(found) if as_json else print(report_text(found), flush=True)

    def read_all(file: BinaryIO) -> int:
        # A pipe gives what it has, so that a report comes as soon as it can.
        while block := os.read(file.fileno(), 1 << 17):
            tracker.feed(block)
            if follow:
                show()
        tracker.flush()
        show()
        return 0

    if what == "-":
        return read_all(sys.stdin.buffer)
    where, path = _split_host(what) if _names_a_file(what) else (None, what)
    is_file = _names_a_file(what)
    if is_file and where is None and not follow:
        try:
            with open(path, "rb") as file:
                return read_all(file)
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror}", "name a readable file", slug=Slug.UNKNOWN_FILE) from None
    if is_file and where is None:
        path = os.path.abspath(path)

    async def read_there() -> int:
        from tui.core.logs.follow import follow as follow_file

        name = where or ("local" if is_file else host_of_run(what, host))
        async with session(name) as opened:
            target, run = path, None
            state = {"over": not follow}
            tasks = []
            if not is_file:
                run = await _run_or_no_file(opened, what)
                target = _log_of(run)
                if follow:
                    state["over"] = is_over(run)
                    tasks.append(asyncio.create_task(_watch_end(opened, run, state)))
            chunks = follow_file(opened.transport, target, ended=lambda: bool(state["over"]))
            try:
                async for chunk in chunks:
                    if chunk.event == "gone" and (not follow or chunk.identity is None):
                        raise _gone(target, name)
                    if chunk.event in ("replaced", "truncated"):
                        tracker.reset()
                    tracker.feed(chunk.data)
                    if follow and chunk.data and chunk.offset + len(chunk.data) >= (chunk.size or 0):
                        show(run)
            finally:
                await chunks.aclose()
                for task in tasks:
                    task.cancel()
            tracker.flush()
            if run is None:
                show()
            else:
                run = await opened.find_run(run.run_id) if follow else run
                show(run, await exit_evidence(opened.transport, run), outcome_of_files(run))
            return 0

    return run_async(read_there())


# -- doctor and paths -------------------------------------------------------------------------------------------------


def paths_command(as_json: bool) -> int:
    """`eagletui paths`."""
    from tui.core.results.store import results_dir

    places = {
        "config": config_dir() / "config.toml",
        "profiles": config_dir() / "profiles",
        "shipped_profiles": shipped_profiles_dir(),
        "patterns": config_dir() / "patterns",
        "launches": launch_records.launches_dir(),
        "results": results_dir(),
        "data": data_dir(),
        "state": state_dir(),
    }
    if as_json:
        emit({name: str(path) for name, path in places.items()})
        return 0
    for name, path in places.items():
        print(f"{name:<17} {path}{'' if path.exists() else '  (not there yet)'}")
    return 0


def doctor_command(host: str | None, as_json: bool) -> int:
    """`eagletui doctor`: 1 where something is missing that a launch needs."""
    from tui.core.server.doctor import examine

    name = host or default_host()
    findings = run_async(examine(name, TerminalAsker()))
    failed = any(finding.level == "block" for finding in findings)
    if as_json:
        emit(
            {
                "host": name,
                "findings": [{"check": f.check, "level": f.level, "text": f.text} for f in findings],
                "error": "doctor" if failed else None,
            }
        )
    else:
        for finding in findings:
            mark = {"ok": "✓", "warn": "▲", "block": "✗"}[finding.level]
            print(f"{mark} {finding.check:<10} {finding.text}")
    return 1 if failed else 0
