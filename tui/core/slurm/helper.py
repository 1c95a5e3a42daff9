"""The protocol of the helper on a login host (`tui/remote/slurm.sh`): one call, its answer, jobs and runs out of its lines."""

import json
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from tui.core.errors import EagletuiError, HostError, Slug, UsageError
from tui.core.hints import Action, Hint
from tui.core.link.programs import shell_program
from tui.core.link.retry import until_answered
from tui.core.link.transport import Transport
from tui.core.model.job import Job, JobEnd, JobState
from tui.core.model.run import Run, RunState
from tui.core.runs.request import requester
from tui.core.slurm.script import JobRequest
from tui.core.slurm.words import FIELDS, job_at_end, job_of_line
from tui.core.text import one_line, read_json, sanitize

_CALL_S = 45.0
_SUBMIT_S = 150.0  # a controller that is away takes 9 s to say so, and is asked several times
_UNIT = "\x1f"
NO_SLURM = "no_slurm"
_AGAIN = "Slurm has put it back into the queue, and a launch starts once"


@dataclass(frozen=True)
class Rank:
    """What the node of a rank wrote down."""

    number: int
    node: str | None = None
    pid: int | None = None  # on that node
    exit_code: int | None = None
    ended_s: float | None = None


@dataclass(frozen=True)
class JobFiles:
    """A launch as its directory on the shared disk shows it."""

    run_id: str
    directory: str
    job_id: str | None  # None: it was not submitted, or that is not known yet
    exit_code: int | None = None  # of the server's step
    begun_s: float | None = None
    stop: tuple[str, float | None, str] | None = None  # how far a stop has come, when, who asked
    drained_s: float | None = None
    refused: bool = False  # Slurm started it again
    last_words: str | None = None  # Slurm's, of a job that is over
    said: str | None = None  # by srun and the daemons of the nodes, in the logs
    ranks: tuple[Rank, ...] = ()


@dataclass(frozen=True)
class Answer:
    """One look at a cluster."""

    cluster: str | None
    jobs: tuple[Job, ...] | None  # None: the controller was not asked, or did not answer
    trouble: str | None = None  # what it said then
    runs: tuple[JobFiles, ...] = ()
    commands: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # cmd.json by run
    submitted: str | None = None


def _script(words: Iterable[str], variables: Mapping[str, str] | None = None) -> str:
    head = "".join(f"{name}={shlex.quote(value)}\n" for name, value in (variables or {}).items())
    text = " ".join(shlex.quote(word) for word in words)
    return f'{head}SL_SELF={shlex.quote(shell_program("slurm.sh"))}\neval "$SL_SELF"\nsl_main {text}\n'


async def _call(
    transport: Transport,
    *words: str,
    variables: Mapping[str, str] | None = None,
    timeout_s: float = _CALL_S,
    alone: bool = False,
) -> list[list[str]]:
    """The lines of an answer. Raises the error that the helper names."""
    done = await transport.run(_script(words, variables), timeout_s=timeout_s, alone=alone)
    lines = [line.split(_UNIT) for line in done.stdout.decode("utf-8", "replace").split("\n")]
    for fields in lines:
        if fields[0] == "error":
            raise _error(transport.host, fields[1], fields[2] if len(fields) > 2 else "")
    if ["end"] not in lines:
        said = one_line(done.stdout.decode("utf-8", "replace")[-200:] or done.stderr.decode("utf-8", "replace")[-200:])
        raise HostError(
            f"{transport.host}: the answer about its jobs was incomplete" + (f": {said}" if said else ""),
            "try again; if it stays, look at the host's memory and process limits",
            slug=Slug.BAD_ANSWER,
        )
    return lines


def _error(host: str, slug: str, detail: str) -> EagletuiError:
    detail = one_line(detail, 300)
    match slug:
        case "no-slurm":
            return HostError(
                f"{host}: there is no Slurm: squeue is not on the PATH of a shell that ssh starts",
                "name a login host of the cluster, or set PATH for it",
                slug=NO_SLURM,
            )
        case "no-controller":
            hint = "its controller may be back in a moment: try again"
            said = f"{host}: Slurm's controller does not answer; nothing was submitted: {detail}"
            return HostError(said, hint, slug=Slug.NO_ANSWER)
        case "no-state-dir" | "write-failed":
            return EagletuiError(
                f"{host}: the files of the job could not be written to {detail}; nothing was submitted",
                "the home directory must be writable, and on a disk that the nodes share",
                slug=Slug.NO_STATE_DIR,
            )
        case "refused":
            said = detail.removeprefix("sbatch: error: ")
            return EagletuiError(f"{host}: Slurm refused the job: {said}", "change [slurm]", slug=Slug.REFUSED)
        case "unknown":
            return HostError(
                f"{host}: it is not known whether Slurm took the job: {detail}",
                f"eagletui ps {host} shows it if it did; it starts at most once",
                slug=Slug.NO_ANSWER,
            )
        case "unknown-run" | "not-submitted":
            return UsageError(
                f"{host}: no job of the run {detail}", Hint(Action.LIST_RUNS, host), slug=Slug.UNKNOWN_RUN
            )
    return EagletuiError(f"{host}: {slug} {detail}".rstrip(), "this is a fault of eagletui")


# What may be asked


async def look(transport: Transport, cluster: str | None, known: Iterable[str], *, ask: bool) -> Answer:
    """All jobs and runs of the user, with one squeue; the files alone without `ask`."""
    return _answer(await _call(transport, "look", cluster or "-", "ask" if ask else "files", *known))


async def submit(transport: Transport, request: JobRequest) -> Answer:
    """Submits a job at most once, however often it is called with one id; a link that is lost meanwhile is waited for.

    Raises EagletuiError(slug="refused") where Slurm does not take it, HostError where it is not known whether it did.
    """
    variables = {
        "JOB_SCRIPT": request.script,
        "JOB_COMMAND": request.command,
        "JOB_SECRET": request.secret,
        # JSON strings are YAML strings.
        "JOB_ARGS": "\n".join(f"{name}: {json.dumps(value)}" for name, value in request.secret_args.items()),
    }
    words = ("submit", request.run_id, str(request.ranks), request.into or "")
    ask = lambda: _call(transport, *words, variables=variables, timeout_s=_SUBMIT_S)  # noqa: E731
    return _answer(await until_answered(transport, ask, _SUBMIT_S))


async def start_estimate(transport: Transport, script: str) -> tuple[bool, str]:
    """Whether Slurm would take the job, and what it says of that: when it could start, or why it cannot."""
    for fields in await _call(transport, "test", variables={"JOB_SCRIPT": script}):
        if fields[0] == "test" and len(fields) == 3:
            said = re.sub(r"(^|\s)(sbatch|allocation failure): (error: )?", " ", one_line(fields[2], 300)).strip()
            return fields[1] == "0", said
    return False, "no answer"


async def stop(transport: Transport, cluster: str | None, run_id: str, grace_s: float, who: str | None) -> Answer:
    """Has the login host stop a job; it goes on by itself. Idempotent."""
    words = ("stop", cluster or "-", run_id, str(max(0, round(grace_s))), requester(who))
    return _answer(await _call(transport, *words, alone=True))


@dataclass(frozen=True)
class Allocation:
    """A job that holds its nodes for launches, as `hold` found or made it."""

    hold_id: str
    job: Job
    used: bool  # a launch was put into it before


async def hold(transport: Transport, name: str, script: str) -> Allocation:
    """The allocation of this name that lives, or another; submitted at most once. Raises as `submit`."""
    ask = lambda: _call(transport, "hold", name, variables={"JOB_SCRIPT": script}, timeout_s=_SUBMIT_S)  # noqa: E731
    lines = await until_answered(transport, ask, _SUBMIT_S)
    _, hold_id, used, *_ = [*next(fields for fields in lines if fields[0] == "held"), "", ""]
    fields = next(fields[1:] for fields in lines if fields[0] == "job")
    job = job_of_line(fields) or Job(fields[0], JobState.UNKNOWN, "")
    return Allocation(one_line(hold_id, 120), job, bool(used))


async def keep(transport: Transport, name: str) -> None:
    """Says that the allocation of this name is still wanted; the controller is not asked."""
    await _call(transport, "keep", "-", name)


async def release(transport: Transport, name: str) -> None:
    """Gives the allocations of this name back; their jobs end by themselves. Idempotent."""
    await _call(transport, "release", "-", name, alone=True)


# Lines to values


def _answer(lines: list[list[str]]) -> Answer:
    answered = any(fields[:2] == ["queue", "ok"] for fields in lines)
    trouble = next((one_line(f[2], 200) for f in lines if f[:2] == ["queue", "failed"] and len(f) > 2), None)
    ranks: dict[str, list[Rank]] = {}
    for fields in lines:
        if fields[0] == "rank" and len(fields) == 5 and fields[2].isdigit():
            ranks.setdefault(fields[1], []).append(_rank(int(fields[2]), fields[3], fields[4]))
    files = [_files(f, tuple(ranks.get(f[1], ()))) for f in lines if f[0] == "run" and len(f) == 11]
    jobs = [job_of_line(f[1:]) for f in lines if f[0] == "job" and len(f) == FIELDS + 1]
    cluster = next((f[1] for f in lines if f[0] == "cluster" and len(f) == 2 and f[1] != "-"), None)
    return Answer(
        cluster=cluster,
        jobs=tuple(job for job in jobs if job is not None) if answered else None,
        trouble=trouble,
        runs=tuple(files),
        commands={f[1]: _object(f[2]) for f in lines if f[0] == "cmd" and len(f) == 3},
        submitted=next((f[1] for f in lines if f[0] == "submitted" and len(f) == 2), None),
    )


def _object(text: str) -> dict[str, Any]:
    try:
        value = read_json(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _stamp(text: str) -> float | None:
    """Seconds since 1970, with a fraction where the node's date has one."""
    found = re.match(r"\d{1,12}(\.\d{1,9})?", text)
    return float(found[0]) if found is not None else None


def _whole(text: str) -> int | None:
    return int(text) if re.fullmatch(r"\d{1,9}", text) else None


def _rank(number: int, node: str, ended: str) -> Rank:
    name, pid, *_ = [*node.split(), "", ""]
    code, at, *_ = [*ended.split(), "", ""]
    return Rank(number, one_line(name, 80) or None, _whole(pid), _whole(code), _stamp(at))


def _files(fields: list[str], ranks: tuple[Rank, ...]) -> JobFiles:
    _, run_id, directory, job_id, code, begun, stop, drained, refused, last_words, said = fields
    step, at, who, *_ = [*stop.split(), "", "", ""]
    return JobFiles(
        run_id=one_line(run_id, 100),
        directory=directory,
        job_id=job_id if re.fullmatch(r"\d{1,18}", job_id) else None,
        exit_code=_whole(code.partition(" ")[0]),
        begun_s=_stamp(begun),
        stop=(step, _stamp(at), one_line(who, 80)) if step else None,
        drained_s=_stamp(drained),
        refused=bool(refused),
        last_words=last_words or None,
        said=one_line(said, 400) or None,
        ranks=ranks,
    )


def _iso(epoch_s: float | None) -> str | None:
    """With a fraction of a second: which rank ended first may hang on it."""
    if epoch_s is None:
        return None
    try:
        return datetime.fromtimestamp(epoch_s, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return None


def job_of(files: JobFiles, jobs: Mapping[str, Job], trouble: str | None, *, had_begun: bool = False) -> Job | None:
    """The job of a launch: by Slurm's last words, by its line in the queue, or unknown with the reason; None: not submitted.

    `had_begun`: it was seen to have begun before Slurm was asked.
    """
    if files.job_id is None:
        return None
    if files.last_words is not None:
        job = job_at_end(
            files.last_words,
            files.job_id,
            files.run_id,
            drained_s=files.drained_s,
            exit_code=files.exit_code,
            said=files.said,
        )
        return replace(job, end=JobEnd.REQUEUE_REFUSED) if files.refused else job
    found = jobs.get(files.job_id)
    if trouble is None and found is not None:
        if found.state is JobState.OVER:  # its last words say more, and are on their way
            return replace(found, state=JobState.ENDING, word="COMPLETING", end=None, run_id=files.run_id)
        if files.begun_s is not None and found.state in (JobState.QUEUED, JobState.STARTING):
            if found.state is JobState.QUEUED and had_begun:
                return replace(found, never=f"it can never run: {_AGAIN}", run_id=files.run_id)
            # The files are newer.
            return replace(found, state=JobState.RUNNING, word="RUNNING", reason=None, run_id=files.run_id)
        return replace(found, run_id=files.run_id)
    why = (
        f"the controller does not answer: {trouble}" if trouble is not None else "Slurm's word of its end is not in yet"
    )
    base = found or Job(files.job_id, JobState.UNKNOWN, "", run_id=files.run_id)
    return replace(base, state=JobState.UNKNOWN, word="", unknown=why)


def runs_of(host: str, files: JobFiles, job: Job | None, command: Mapping[str, Any]) -> tuple[Run, ...]:
    """The ranks of a launch as runs, each with its log on the shared disk."""
    argv, env, extra = command.get("argv"), command.get("env"), command.get("extra")
    words = tuple(sanitize(str(word)) for word in argv) if isinstance(argv, list) else ()
    port = command.get("port")
    ranks = len(files.ranks)
    found = []
    for rank in files.ranks:
        nodes = ("--nnodes", str(ranks), "--node-rank", str(rank.number)) if ranks > 1 else ()
        state, why = _state(files, job, rank)
        over = state in (RunState.EXITED, RunState.LOST)
        ended_s = rank.ended_s or (job.ends_s if job is not None else None)
        found.append(
            Run(
                run_id=f"{files.run_id}-{rank.number}",
                kind="server",
                profile=one_line(str(command.get("profile") or ""), 100) or None,
                host=host,
                state=state,
                pid=rank.pid if not over and rank.node is not None else None,
                port=port + rank.number if type(port) is int else None,
                started_at=_iso(files.begun_s) or one_line(str(command.get("launched_at") or ""), 40) or None,
                ended_at=_iso(ended_s) if over else None,
                exit_code=_exit_code(rank, job) if over else None,
                stop=files.stop[0] if files.stop is not None else None,
                stopped_by_us=files.stop is not None,
                stop_by=files.stop[2] if files.stop is not None else None,
                directory=files.directory,
                log_path=f"{files.directory}/log.{rank.number}",
                argv=(*words, *nodes),
                env={one_line(str(k)): sanitize(str(v)) for k, v in env.items()} if isinstance(env, dict) else {},
                extra=extra if isinstance(extra, dict) else {},
                why=why,
                job=job,
                node=rank.node,
            )
        )
    return tuple(found)


def _exit_code(rank: Rank, job: Job | None) -> int | None:
    if rank.exit_code is not None or job is None or job.end not in (JobEnd.FAILED, JobEnd.COMPLETED):
        return rank.exit_code
    return job.exit_code


def _state(files: JobFiles, job: Job | None, rank: Rank) -> tuple[RunState, str | None]:
    if job is None:
        return RunState.STAGED, None
    if job.state is JobState.OVER:
        state = RunState.LOST if job.end is JobEnd.LOST else RunState.EXITED
        return state, job.sentence or None
    if job.state is JobState.QUEUED:
        return RunState.QUEUED, job.sentence
    if rank.exit_code is not None or files.exit_code is not None or job.state is JobState.ENDING:
        return RunState.FINISHING, None  # Slurm's word of the end is waited for
    if job.state is JobState.UNKNOWN:
        return RunState.UNKNOWN, job.sentence
    return RunState.STARTING if rank.node is None else RunState.RUNNING, None
