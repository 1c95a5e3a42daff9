"""The protocol of the helper on the host (`tui/remote/eaglerun.sh`): one call, its answer, runs out of its lines.

The helper is sent on the standard input of `/bin/sh -s`; an answer is lines of fields between tabs, closed by `end`.
"""

import shlex
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from weakref import WeakKeyDictionary

from tui.core.errors import EagletuiError, HostError, Slug, UsageError
from tui.core.hints import Action, Hint
from tui.core.link.programs import shell_program
from tui.core.link.transport import Transport
from tui.core.masking.written import learn_environment, learn_words
from tui.core.model.run import Run, RunState, StopState
from tui.core.runs.containers import box_of
from tui.core.text import one_line, read_json, sanitize

_CALL_TIMEOUT_S = 45.0  # a launch may wait 12 s for each of its locks
_SLOW_LINK_BYTES_S = 50_000

Fields = dict[str, str]


def helper_script(command: str, *args: str, variables: Mapping[str, str] | None = None) -> str:
    """A script that runs one command of the helper; every argument and variable is quoted here."""
    head = "".join(f"{name}={shlex.quote(value)}\n" for name, value in (variables or {}).items())
    words = " ".join(shlex.quote(arg) for arg in (command, *args))
    return f'{head}ER_SELF={shlex.quote(shell_program("eaglerun.sh"))}\neval "$ER_SELF"\ner_main {words}\n'


class Answer:
    """The lines of one call, by their first word. Raises the error that the helper names."""

    def __init__(self, host: str, stdout: bytes) -> None:
        self.lines: list[list[str]] = []
        self.commands: dict[str, dict[str, Any]] = {}  # cmd.json by run
        text = stdout.decode("utf-8", "replace").split("\n")
        at = 0
        complete = False
        while at < len(text):
            fields = text[at].split("\t")
            at += 1
            if fields[0] == "cmd" and len(fields) > 1:
                end = text.index(".", at) if "." in text[at:] else len(text)
                self.commands[fields[1]] = _json_object("\n".join(text[at:end]))
                at = end + 1
            elif fields[0] == "end":
                complete = True
            elif fields[0]:
                self.lines.append(fields)
        for fields in self.of("error"):
            raise _error(host, fields[1], one_line(" ".join(fields[2:])))
        if not complete:
            said = one_line(stdout.decode("utf-8", "replace")[-200:])
            raise HostError(
                f"{host}: the answer about the runs was incomplete" + (f": {said}" if said else ""),
                "try again; if it stays, look at the host's memory and process limits",
                slug=Slug.BAD_ANSWER,
            )

    def of(self, word: str) -> list[list[str]]:
        """The lines that begin with a word."""
        return [fields for fields in self.lines if fields[0] == word]

    def named(self, word: str) -> list[Fields]:
        """The same, their `name=value` fields by name."""
        return [dict(f.split("=", 1) for f in fields[1:] if "=" in f) for fields in self.of(word)]


async def call(transport: Transport, command: str, *args: str, variables: Mapping[str, str] | None = None) -> Answer:
    """Runs one command of the helper."""
    script = helper_script(command, *args, variables=variables)
    done = await transport.run(script, timeout_s=_CALL_TIMEOUT_S + len(script) / _SLOW_LINK_BYTES_S)
    return Answer(transport.host, done.stdout)


def _error(host: str, slug: str, detail: str) -> EagletuiError:
    match slug:
        case "no-proc":
            return HostError(
                f"{host}: /proc is missing; runs need Linux",
                "logs can still be read: eagletui logs HOST:FILE",
                slug=Slug.UNSUPPORTED_HOST,
            )
        case "no-state-dir":
            return EagletuiError(
                f"{host}: no directory for the state of runs can be written (tried {detail})",
                "free space or make one of them writable, with no symbolic link and owned by you",
                slug=Slug.NO_STATE_DIR,
            )
        case "write-failed":
            return EagletuiError(
                f"{host}: the files of the run could not be written to {detail}; nothing was started",
                "free space there (df -h, df -i, quota) and launch again",
                slug=Slug.DISK_FULL,
            )
        case "no-lease":
            return EagletuiError(
                f"{host}: {detail or 'somebody'} is taking GPUs there right now",
                "try again in a moment",
                slug=Slug.BUSY,
            )
        case "other-namespace":
            return EagletuiError(
                f"{host}: {detail} runs in another PID namespace (a container); no signal was sent",
                "stop it from inside that container",
                slug=Slug.OTHER_NAMESPACE,
            )
        case "no-engine":
            return UsageError(
                f"{host}: {detail} is not installed there", "name the engine that has it", slug=Slug.UNKNOWN_RUN
            )
        case "no-container":
            return UsageError(
                f"{host}: the container engine answers: {detail}",
                "docker ps -a (podman ps -a) there lists what you may see",
                slug=Slug.UNKNOWN_RUN,
            )
        case "bad-id":
            return UsageError(f"Bad run id {detail!r}", Hint(Action.LIST_RUNS, host), slug=Slug.UNKNOWN_RUN)
    return EagletuiError(f"{host}: {slug} {detail}".rstrip(), "this is a fault of eagletui")


# Fields to values


def number(text: str | None) -> int | None:
    """A whole number, None for anything else."""
    try:
        return int(text or "")
    except ValueError:
        return None


def iso_time(epoch: str | float | None) -> str | None:
    """Seconds since 1970 as ISO 8601 UTC, None for anything else."""
    try:
        return datetime.fromtimestamp(float(epoch or ""), UTC).isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):
        return None


def iso_stamp(value: object) -> str | None:
    """A time stamp in ISO 8601 as one of UTC in whole seconds, None for anything else."""
    try:
        return datetime.fromisoformat(str(value)).astimezone(UTC).isoformat(timespec="seconds")
    except ValueError:
        return None


def _json_object(text: str) -> dict[str, Any]:
    try:
        value = read_json(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _texts(value: object) -> tuple[str, ...]:
    return tuple(sanitize(str(item)) for item in value) if isinstance(value, list) else ()


def _pids(words: list[str]) -> tuple[int, ...]:
    """Of words `pid:start`."""
    return tuple(int(pid) for pid in (word.split(":")[0] for word in words) if pid.isdigit())


# Runs

_known_commands: "WeakKeyDictionary[Transport, dict[str, dict[str, Any]]]" = WeakKeyDictionary()


def knows_commands(transport: Transport) -> bool:
    """Whether cmd.json of this host's runs was asked for already."""
    return transport in _known_commands


async def runs_of(transport: Transport, answer: Answer) -> tuple[Run, ...]:
    """The runs of an answer, newest first, with their cmd.json, which is asked for once a run."""
    known = _known_commands.setdefault(transport, {})
    known.update(answer.commands)
    found = [fields for fields in answer.named("run") if fields.get("id")]
    missing = [fields["id"] for fields in found if fields["id"] not in known]
    if missing:
        more = await call(transport, "commands", *missing)
        known.update({run_id: more.commands.get(run_id, {}) for run_id in missing})
    runs = tuple(_run(transport.host, fields, known[fields["id"]]) for fields in found)
    for run in runs:
        if run.state is RunState.STAGED:
            known.pop(run.run_id, None)  # a repeated launch writes it again
    return tuple(sorted(runs, key=lambda run: (run.started_at or "", run.run_id), reverse=True))


async def stop_state_of(transport: Transport, answer: Answer) -> StopState:
    """How far the stop of the answer's run has come."""
    runs = await runs_of(transport, answer)
    if not runs:
        return StopState(None, None)
    words = answer.named("run")[0].get("stop", "").split()
    if len(words) < 5:
        return StopState(runs[0], runs[0].stop)
    return StopState(runs[0], runs[0].stop, runs[0].stop_by, iso_time(words[2]), _pids(words[5:]))


def _run(host: str, fields: Fields, command: Mapping[str, Any]) -> Run:
    try:
        state = RunState(fields.get("st", ""))
    except ValueError:
        state = RunState.UNKNOWN
    # step, its time, that of the request, whether the main process lived then, who, pids
    stop = fields.get("stop", "").split()
    asked = len(stop) >= 5
    directory = fields.get("dir") or None
    env, extra = command.get("env"), command.get("extra")
    argv = _texts(command.get("argv"))
    variables = {one_line(str(k)): sanitize(str(v)) for k, v in env.items()} if isinstance(env, dict) else {}
    learn_words(argv)
    learn_environment(variables)
    return Run(
        run_id=fields["id"],
        kind=one_line(fields.get("kind", "")) or "server",
        profile=one_line(fields.get("profile", "")) or None,
        host=host,
        state=state,
        pid=number(fields.get("pid")),
        port=number(fields.get("port")),
        started_at=iso_time(fields.get("at")) or iso_stamp(command.get("launched_at")),
        ended_at=iso_time(fields.get("end")),
        exit_code=number(fields.get("rc")),
        stop=stop[0] if stop else None,
        stopped_by_us=asked and stop[3] == "1",
        orphans=_pids(fields.get("left", "").split()),
        directory=directory,
        log_path=f"{directory}/log" if directory else None,
        argv=argv,
        container=box_of(argv, variables, fields.get("cid", ""), fields["id"]),
        why=fields.get("why", "").replace("-", " ") or None,
        gpus=tuple(int(g) for g in fields.get("gpus", "").split(",") if g.isdigit()),
        env=variables,
        notes=_texts(command.get("notes")),
        extra=extra if isinstance(extra, dict) else {},
        stop_by=one_line(stop[4], 80) if asked else None,
        start_ticks=number(fields.get("start")),
        supervised=fields.get("sup") == "1" if state is RunState.RUNNING else None,
    )
