"""Runs: one process tree on a host, started at most once, found again by any later eagletui, stopped as a whole.

The work is done by `tui/remote/eaglerun.sh`, which is sent on the standard input of `/bin/sh -s`; this module builds
its input and reads its answers. docs/runs.md describes the files of a run, its states, and what is guaranteed.
"""

import asyncio
import getpass
import json
import re
import shlex
import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from functools import cache
from secrets import token_hex
from typing import Any
from weakref import WeakKeyDictionary

import tui
from tui.core.errors import EagletuiError, HostError, LinkLost, Slug, TimedOut, UsageError
from tui.core.hints import Action, Hint
from tui.core.link.programs import shell_program
from tui.core.link.scripts import shell_path
from tui.core.link.transport import Transport
from tui.core.model.conflict import in_use
from tui.core.text import one_line, read_json, sanitize

_MAX_VALUE_BYTES = 131_071  # Linux: MAX_ARG_STRLEN, for one argument or NAME=VALUE
_MAX_TOTAL_BYTES = 1_000_000  # below what Linux takes for all of them with an 8 MiB stack (2 MiB)
_MAX_FILE_BYTES = 4 << 20  # of the files of a launch, together: they travel in the script, and a shell holds them
_CALL_TIMEOUT_S = 45.0  # a launch may wait 12 s for each of its locks
_SLOW_LINK_BYTES_S = 50_000
_RETRY_S = 0.3
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Shells keep these to themselves (assigning them fails, or they do not survive), and two are ours.
_ENV_RESERVED = frozenset(
    [
        "PPID",
        "UID",
        "EUID",
        "GROUPS",
        "BASHOPTS",
        "SHELLOPTS",
        "BASH_VERSINFO",
        "OPTIND",
        "IFS",
        "_",
        "PWD",
        "OLDPWD",
        "EAGLETUI_RUN",
        "SPT_NOENV",
    ]
)
_FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
# Names in a run's directory that are not to be had: docs/runs.md.
_FILES_RESERVED = re.compile(
    r"(cmd\.json|meta|spec|secret|secret\.yaml|claim|pid|log|exit|stop|failed)(\.t\d+)?|stop\.grace|(launch|stopper)\..*"
)
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f]")  # newline and tab are legitimate in a value
_NOT_A_WORD = re.compile(r"[^A-Za-z0-9._@+-]+")
_CONTAINERS = frozenset(["docker", "podman", "nerdctl", "kubectl", "srun", "ssh", "lxc-attach", "machinectl"])


class RunState(StrEnum):
    """What the files of a run and the process list say; see docs/runs.md."""

    STAGED = "staged"
    STARTING = "starting"
    RUNNING = "running"
    FINISHING = "finishing"
    EXITED = "exited"
    LOST = "lost"  # rebooted, supervisor killed, or it died before the start: the exit code can't be known
    UNKNOWN = "unknown"  # other PID namespace
    FOREIGN = "foreign"  # started by somebody else; read-only


@dataclass(frozen=True)
class Run:
    """One run as last seen."""

    run_id: str
    kind: str  # server, bench
    profile: str | None
    host: str
    state: RunState
    pid: int | None = None
    port: int | None = None
    started_at: str | None = None  # ISO 8601 UTC
    ended_at: str | None = None
    exit_code: int | None = None
    stop: str | None = None  # requested, term, term-all, kill, done, stuck: how far a stop has come
    stopped_by_us: bool = False
    orphans: tuple[int, ...] = ()  # processes of the run that outlived its main process
    directory: str | None = None  # on the host
    log_path: str | None = None  # on the host; None where a foreign server's output goes nowhere we can read
    argv: tuple[str, ...] = ()
    owner: str | None = None  # user, for foreign servers
    why: str | None = None  # reason of LOST or UNKNOWN
    gpus: tuple[int, ...] = ()  # as declared at the launch
    env: Mapping[str, str] = field(default_factory=dict)  # as set at the launch, without secrets
    notes: tuple[str, ...] = ()  # renamed flags and the like, from the launch
    extra: Mapping[str, Any] = field(default_factory=dict)  # `LaunchRequest.extra`
    stop_by: str | None = None  # who asked for the stop, user@machine
    start_ticks: int | None = None  # with `pid` this names one process; clock ticks since the host's boot
    supervised: bool | None = None  # False: the exit code will not be known

    @property
    def short_id(self) -> str:
        """The six digits that screens show."""
        return self.run_id.rsplit("-", 1)[-1]

    @property
    def foreign(self) -> bool:
        """Whether somebody else started it: it is watched only."""
        return self.state is RunState.FOREIGN

    @property
    def live(self) -> bool:
        """Whether its main process lives, or is about to; never of a foreign one."""
        return self.state in (RunState.STARTING, RunState.RUNNING, RunState.FINISHING)

    @property
    def active(self) -> bool:
        """Whether a process of it lives, or may come to live."""
        if self.state in (RunState.EXITED, RunState.LOST):
            return bool(self.orphans)
        return self.state is not RunState.STAGED


@dataclass(frozen=True)
class InRunDir:
    """An argument that is a file in the run's directory, which only the host knows; `prefix` stands before the path."""

    name: str
    prefix: str = ""


SECRET_ARGS_FILE = InRunDir("secret.yaml")


@dataclass(frozen=True)
class LaunchRequest:
    """What to start. Values reach the process byte for byte; no shell interprets them.

    Args:
        run_id: from `new_run_id`; repeating a request with the same id starts nothing twice.
        kind: server or bench.
        argv: an `InRunDir` becomes a path in the run's directory. Where `secret_args` are given and no argument names
            `SECRET_ARGS_FILE`, `--config <that file>` is put at the end.
        cwd: a leading `~/` is the home directory there; without it, the home directory, or the run's own directory
            where there are `files`.
        files: text by name, put into the run's directory before the start; UTF-8, at most 4 MiB together. An
            `InRunDir` argument names one.
        secret_env: set for the process, in no file once it runs.
        secret_args: SGLang flags (no dashes) that go into the file passed by `--config`; the file is there until the
            run ends.
        port: what it will listen on; a second run with this port, or another listener, refuses the launch.
        gpus: indices it will use; a live run with one of them refuses the launch. () = not declared.
        extra: JSON values kept in cmd.json.
        hide: further secret values, masked in cmd.json (they are in `argv` because this SGLang takes them nowhere else).
    """

    run_id: str
    kind: str
    profile: str
    argv: tuple[str | InRunDir, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str | None = None
    secret_env: Mapping[str, str] = field(default_factory=dict)
    secret_args: Mapping[str, str] = field(default_factory=dict)
    port: int | None = None
    gpus: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)
    hide: tuple[str, ...] = ()
    files: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class StopState:
    """How far a stop has come.

    `step` is one of requested, term, term-all, kill, done, stuck, or None where no stop was asked for.
    """

    run: Run | None  # None: there is no such run on the host
    step: str | None
    by: str | None = None  # who asked, user@machine
    requested_at: str | None = None  # ISO 8601 UTC, the host's clock
    pids: tuple[int, ...] = ()  # what could not be ended, at step stuck

    @property
    def over(self) -> bool:
        """Nothing more will happen by itself."""
        return self.step in ("done", "stuck") or self.run is None or not self.run.active


@dataclass(frozen=True)
class PortHolder:
    """Who listens on a port; None = not visible to this user."""

    port: int
    pid: int | None
    user: str | None
    command: str | None  # sanitised, one line
    run_id: str | None  # if it is a process of one of our runs

    def __str__(self) -> str:
        if self.run_id:
            return f"run {self.run_id}"
        who = f"PID {self.pid}" if self.pid else "a process that this user cannot see"
        return who + (f" of {self.user}" if self.user else "") + (f" ({self.command})" if self.command else "")


class RunBusy(EagletuiError):
    """The launch was refused because a GPU or the port is taken, or somebody is launching there right now.

    Attributes:
        what: gpus, port, listener or lock.
        run_id: our run that has it, if it is one.
        by: who stops that run or holds the lock, user@machine.
        holder: who listens, for `listener`.
    """

    slug = Slug.BUSY

    def __init__(
        self,
        message: str,
        hint: str | Hint,
        *,
        what: str,
        run_id: str | None = None,
        by: str | None = None,
        holder: PortHolder | None = None,
    ) -> None:
        super().__init__(message, hint)
        self.what = what
        self.run_id = run_id
        self.by = by
        self.holder = holder


# -- building the helper's input ----------------------------------------------------------------------------------


@cache
def helper_text() -> str:
    """The helper without comments and indentation: that halves what each call sends."""
    return shell_program("eaglerun.sh")


def helper_script(command: str, *args: str, variables: Mapping[str, str] | None = None) -> str:
    """A script that runs one command of the helper; every argument and variable is quoted here."""
    head = "".join(f"{name}={shlex.quote(value)}\n" for name, value in (variables or {}).items())
    call = " ".join(shlex.quote(arg) for arg in (command, *args))
    return f'{head}ER_SELF={shlex.quote(helper_text())}\neval "$ER_SELF"\ner_main {call}\n'


def _check_value(name: str, value: str) -> int:
    """Raises UsageError where a value cannot be passed to a process; its length in bytes."""
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise UsageError(f"{name} is not valid text", "type it anew, as UTF-8", slug=Slug.BAD_VALUE) from None
    found = _CONTROL.search(value)
    if found:
        raise UsageError(
            f"{name} holds the control character 0x{ord(found.group()):02x}", "remove it", slug=Slug.BAD_VALUE
        )
    if size > _MAX_VALUE_BYTES:
        raise UsageError(
            f"{name} is {size} bytes long; Linux takes at most {_MAX_VALUE_BYTES} in one value",
            "put it into a file on the host",
            slug=Slug.BAD_VALUE,
        )
    return size


def _check(request: LaunchRequest) -> None:
    if not valid_run_id(request.run_id):
        raise UsageError(f"bad run id {one_line(request.run_id, 60)!r}", "use new_run_id", slug=Slug.BAD_VALUE)
    if request.kind not in ("server", "bench"):
        raise UsageError(f"unknown kind {request.kind!r}", "server or bench", slug=Slug.BAD_VALUE)
    if not request.argv or request.argv[0] == "":
        raise UsageError("the command is empty", "give the profile a command", slug=Slug.BAD_VALUE)
    total = 0
    for number, arg in enumerate(request.argv):
        before = request.argv[number - 1] if number else None
        after = f" (after {before})" if isinstance(before, str) and re.fullmatch(r"--?[\w-]+", before) else ""
        text = arg if isinstance(arg, str) else arg.prefix + arg.name
        if isinstance(arg, InRunDir) and not re.fullmatch(r"[A-Za-z0-9._-]+", arg.name):
            raise UsageError(f"bad file name {arg.name!r}", "letters, digits, dots", slug=Slug.BAD_VALUE)
        total += _check_value(f"argument {number}{after}", text) + 9
    for what, names in (("environment variable", request.env), ("secret variable", request.secret_env)):
        for name, value in names.items():
            if not _ENV_NAME.fullmatch(name):
                raise UsageError(
                    f"bad {what} name {one_line(name, 60)!r}", "letters, digits and _", slug=Slug.BAD_VALUE
                )
            if name in _ENV_RESERVED or name.startswith("ER_"):
                raise UsageError(f"{what} {name} cannot be set", "leave it out", slug=Slug.BAD_VALUE)
            total += _check_value(f"{what} {name}", value) + len(name) + 10
    for name, value in request.secret_args.items():
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", name):
            raise UsageError(f"bad flag name {one_line(name, 60)!r}", "without dashes", slug=Slug.BAD_VALUE)
        _check_value(f"secret flag --{name}", value)
    if total > _MAX_TOTAL_BYTES:
        raise UsageError(
            f"arguments and environment are {total} bytes long; at most {_MAX_TOTAL_BYTES} can be passed",
            "put long values into a file on the host",
            slug=Slug.BAD_VALUE,
        )
    for name, data in request.files.items():
        if not _FILE_NAME.fullmatch(name) or _FILES_RESERVED.fullmatch(name):
            raise UsageError(
                f"bad file name {one_line(name, 60)!r}",
                "letters, digits, dots; none of the run's own files",
                slug=Slug.BAD_VALUE,
            )
        try:
            if "\0" in data.decode():
                raise ValueError
        except ValueError:
            raise UsageError(f"the file {name} is no UTF-8 text", "give text", slug=Slug.BAD_VALUE) from None
    if (sent := sum(map(len, request.files.values()))) > _MAX_FILE_BYTES:
        raise UsageError(
            f"the files of the run are {sent} bytes long; at most {_MAX_FILE_BYTES} are sent",
            "make them smaller",
            slug=Slug.BAD_VALUE,
        )
    if request.cwd is not None:
        _check_value("cwd", request.cwd)
        if "\n" in request.cwd or not request.cwd.startswith(("/", "~/")):
            raise UsageError(
                f"cwd {one_line(request.cwd, 60)!r} is no absolute path", "begin it with / or ~/", slug=Slug.BAD_VALUE
            )
    if request.port is not None and not 0 < request.port < 65536:
        raise UsageError(f"port {request.port} is not between 1 and 65535", "choose another", slug=Slug.BAD_VALUE)
    if any(gpu < 0 for gpu in request.gpus):
        raise UsageError("a GPU index is negative", "count GPUs from 0", slug=Slug.BAD_VALUE)


def _spec(request: LaunchRequest) -> str:
    """The file that sets argv, directory and environment; argv first, so that no variable can shadow ours."""

    def word(arg: str | InRunDir) -> str:
        if isinstance(arg, str):
            return shlex.quote(arg)
        return f'{shlex.quote(arg.prefix) if arg.prefix else ""}"$ER_DIR"/{arg.name}'

    lines = ["set -- " + " ".join(word(arg) for arg in request.argv)]
    if request.cwd is not None:
        lines.append(f"ER_CWD={shell_path(request.cwd)}")
    elif request.files:
        lines.append("ER_CWD=$ER_DIR")
    return "\n".join(lines + _exports(request.env))


def _exports(values: Mapping[str, str]) -> list[str]:
    return [f"{name}={shlex.quote(value)}; export {name}" for name, value in values.items()]


def _command_json(request: LaunchRequest, who: str) -> str:
    """cmd.json: what was launched, for people and for later eagletuis; no secret is in it."""
    hidden = sorted(
        {v for v in (*request.secret_env.values(), *request.secret_args.values(), *request.hide) if v},
        key=len,
        reverse=True,
    )

    def mask(text: str) -> str:
        for value in hidden:
            text = text.replace(value, "***")
        return text

    document = {
        "version": 1,
        "run": request.run_id,
        "kind": request.kind,
        "profile": request.profile,
        "argv": [mask(a) if isinstance(a, str) else f"{mask(a.prefix)}{a.name}" for a in request.argv],
        "env": {name: mask(value) for name, value in request.env.items()},
        "secret_env": list(request.secret_env),
        "secret_args": list(request.secret_args),
        "cwd": request.cwd,
        "port": request.port,
        "gpus": list(request.gpus),
        "notes": [mask(note) for note in request.notes],
        "eagletui": tui.__version__,
        "launched_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "launched_by": who,
        "extra": dict(request.extra),
    }
    return json.dumps(document, indent=1, ensure_ascii=False)


def new_run_id(profile: str, now: float | None = None) -> str:
    """`<profile>-<YYYYMMDDTHHMMSSZ>-<6 hex>`; `now` in seconds since 1970."""
    name = _NOT_A_WORD.sub("-", profile).replace("@", "-").replace("+", "-").strip(".-")[:50].rstrip(".-")
    stamp = datetime.fromtimestamp(time.time() if now is None else now, UTC)
    return f"{name or 'run'}-{stamp:%Y%m%dT%H%M%SZ}-{token_hex(3)}"


def valid_run_id(run_id: str) -> bool:
    """Whether a text can be the id of a run (it names a directory)."""
    return re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}", run_id) is not None


@cache
def me() -> str:
    """Who asks, as written into locks and stops: user@machine, one word."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):
        user = "unknown"
    return _NOT_A_WORD.sub("_", f"{user}@{socket.gethostname()}")[:80]


# -- calls --------------------------------------------------------------------------------------------------------

Fields = dict[str, str]


class _Answer:
    """The lines of one call, by their first word."""

    def __init__(self, host: str, stdout: bytes) -> None:
        self.host = host
        self.lines: list[list[str]] = []
        self.commands: dict[str, dict[str, Any]] = {}
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
            raise _error(host, fields[1], " ".join(fields[2:]))
        if not complete:
            said = one_line(stdout.decode("utf-8", "replace")[-200:])
            raise HostError(
                f"{host}: the answer about the runs was incomplete" + (f": {said}" if said else ""),
                "try again; if it stays, look at the host's memory and process limits",
                slug=Slug.BAD_ANSWER,
            )

    def of(self, word: str) -> list[list[str]]:
        return [fields for fields in self.lines if fields[0] == word]

    def named(self, word: str) -> list[Fields]:
        return [dict(f.split("=", 1) for f in fields[1:] if "=" in f) for fields in self.of(word)]


def _json_object(text: str) -> dict[str, Any]:
    try:
        value = read_json(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _error(host: str, slug: str, detail: str) -> EagletuiError:
    detail = one_line(detail)
    if slug == "no-proc":
        return HostError(
            f"{host}: /proc is missing; runs need Linux",
            "logs can still be read: eagletui logs HOST:FILE",
            slug=Slug.UNSUPPORTED_HOST,
        )
    if slug == "no-state-dir":
        return EagletuiError(
            f"{host}: no directory for the state of runs can be written (tried {detail})",
            "free space or make one of them writable, with no symbolic link and owned by you",
            slug=Slug.NO_STATE_DIR,
        )
    if slug == "write-failed":
        return EagletuiError(
            f"{host}: the files of the run could not be written to {detail}; nothing was started",
            "free space there (df -h, df -i, quota) and launch again",
            slug=Slug.DISK_FULL,
        )
    if slug == "other-namespace":
        return EagletuiError(
            f"{host}: {detail} runs in another PID namespace (a container); no signal was sent",
            "stop it from inside that container",
            slug=Slug.OTHER_NAMESPACE,
        )
    if slug == "bad-id":
        return UsageError(f"bad run id {detail!r}", Hint(Action.LIST_RUNS, host), slug=Slug.UNKNOWN_RUN)
    return EagletuiError(f"{host}: {slug} {detail}".rstrip(), "this is a fault of eagletui")


async def _call(transport: Transport, command: str, *args: str, variables: Mapping[str, str] | None = None) -> _Answer:
    script = helper_script(command, *args, variables=variables)
    done = await transport.run(script, timeout_s=_CALL_TIMEOUT_S + len(script) / _SLOW_LINK_BYTES_S)
    return _Answer(transport.host, done.stdout)


_known_commands: "WeakKeyDictionary[Transport, dict[str, dict[str, Any]]]" = WeakKeyDictionary()


def _number(text: str | None) -> int | None:
    try:
        return int(text or "")
    except ValueError:
        return None


def _iso(epoch: str | float | None) -> str | None:
    try:
        return datetime.fromtimestamp(float(epoch or ""), UTC).isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):
        return None


def _texts(value: object) -> tuple[str, ...]:
    return tuple(sanitize(str(item)) for item in value) if isinstance(value, list) else ()


def _stop_fields(text: str) -> tuple[str | None, str | None, bool, str | None, tuple[int, ...]]:
    """step, time of the request, whether the main process lived then, who, pids."""
    words = text.split()
    if len(words) < 5:
        return (words[0] if words else None), None, False, None, ()
    pids = tuple(int(w.split(":")[0]) for w in words[5:] if w.split(":")[0].isdigit())
    return words[0], _iso(words[2]), words[3] == "1", one_line(words[4], 80), pids


def _run(host: str, fields: Fields, command: Mapping[str, Any]) -> Run:
    try:
        state = RunState(fields.get("st", ""))
    except ValueError:
        state = RunState.UNKNOWN
    step, _, alive_then, by, _ = _stop_fields(fields.get("stop", ""))
    directory = fields.get("dir") or None
    env = command.get("env")
    extra = command.get("extra")
    started = _iso(fields.get("at")) or _iso_text(command.get("launched_at"))
    return Run(
        run_id=fields["id"],
        kind=one_line(fields.get("kind", "")) or "server",
        profile=one_line(fields.get("profile", "")) or None,
        host=host,
        state=state,
        pid=_number(fields.get("pid")),
        port=_number(fields.get("port")),
        started_at=started,
        ended_at=_iso(fields.get("end")),
        exit_code=_number(fields.get("rc")),
        stop=step,
        stopped_by_us=alive_then,
        orphans=tuple(int(w.split(":")[0]) for w in fields.get("left", "").split() if w.split(":")[0].isdigit()),
        directory=directory,
        log_path=f"{directory}/log" if directory else None,
        argv=_texts(command.get("argv")),
        why=fields.get("why", "").replace("-", " ") or None,
        gpus=tuple(int(g) for g in fields.get("gpus", "").split(",") if g.isdigit()),
        env={one_line(str(k)): sanitize(str(v)) for k, v in env.items()} if isinstance(env, dict) else {},
        notes=_texts(command.get("notes")),
        extra=extra if isinstance(extra, dict) else {},
        stop_by=by,
        start_ticks=_number(fields.get("start")),
        supervised=fields.get("sup") == "1" if state is RunState.RUNNING else None,
    )


def _iso_text(value: object) -> str | None:
    try:
        return datetime.fromisoformat(str(value)).astimezone(UTC).isoformat(timespec="seconds")
    except ValueError:
        return None


async def _runs(transport: Transport, answer: _Answer) -> tuple[Run, ...]:
    """The runs of an answer, with their cmd.json, which is asked for once a run."""
    known = _known_commands.setdefault(transport, {})
    known.update(answer.commands)
    found = [fields for fields in answer.named("run") if fields.get("id")]
    missing = [fields["id"] for fields in found if fields["id"] not in known]
    if missing:
        more = await _call(transport, "commands", *missing)
        known.update({run_id: more.commands.get(run_id, {}) for run_id in missing})
    runs = tuple(_run(transport.host, fields, known[fields["id"]]) for fields in found)
    for run in runs:
        if run.state is RunState.STAGED:
            known.pop(run.run_id, None)  # a repeated launch writes it anew
    return tuple(sorted(runs, key=lambda run: (run.started_at or "", run.run_id), reverse=True))


async def launch(
    transport: Transport, request: LaunchRequest, *, who: str | None = None, timeout_s: float = 120.0
) -> Run:
    """Starts a run at most once, however often it is called with one id; a run that is there already is returned.

    A link that is lost meanwhile is waited for, and the launch repeated, until its outcome is known.

    Args:
        timeout_s: after so long the last LinkLost or TimedOut is raised; the run may then exist all the same, and the
            same request finds out.

    Raises:
        UsageError: a value that cannot be passed.
        RunBusy: the port or a GPU is taken; nothing was started.
        EagletuiError: the files could not be written; nothing was started.
    """
    _check(request)
    argv = request.argv
    if request.secret_args and not any(a == SECRET_ARGS_FILE for a in argv if isinstance(a, InRunDir)):
        request = replace(request, argv=(*argv, "--config", SECRET_ARGS_FILE))
    who = _NOT_A_WORD.sub("_", who)[:80] if who else me()
    variables = {
        "ER_SPEC": _spec(request),
        "ER_SECRET": "\n".join(_exports(request.secret_env)),
        # JSON strings are YAML strings.
        "ER_ARGS": "\n".join(f"{name}: {json.dumps(value)}" for name, value in request.secret_args.items()),
        "ER_CMD": _command_json(request, who),
        "ER_FILES": " ".join(request.files),
        **{f"ER_FILE_{at}": data.decode() for at, data in enumerate(request.files.values(), 1)},
    }
    arguments = (
        request.run_id,
        request.kind,
        str(request.port) if request.port is not None else "-",
        ",".join(str(gpu) for gpu in sorted(set(request.gpus))) or "-",
        who,
        one_line(request.profile, 200) or "-",
    )
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            answer = await _call(transport, "launch", *arguments, variables=variables)
            for busy in answer.named("busy"):
                raise await _busy(transport, busy)
            found = await _runs(transport, answer)
            break
        except (LinkLost, TimedOut):
            if time.monotonic() + _RETRY_S > deadline:
                raise
            await asyncio.sleep(_RETRY_S)
    if not found or found[0].state is RunState.STAGED:
        raise EagletuiError(
            f"{transport.host}: {request.run_id} did not start within 10 s",
            "the host is very busy; launch again, it starts at most once",
            slug=Slug.NOT_STARTED,
        )
    return found[0]


async def _busy(transport: Transport, busy: Fields) -> RunBusy:
    what = busy.get("what", "")
    by = one_line(busy.get("by", ""), 80) or None
    run_id = one_line(busy.get("run", ""), 100) or None
    if what == "listener":
        port = _number(busy.get("port")) or 0
        holder = await listener(transport, port)
        return RunBusy(
            f"{transport.host}: {in_use(f'port {port}', holder or 'a process that has just ended')}",
            "stop it or choose another port",
            what=what,
            run_id=holder.run_id if holder else None,
            holder=holder,
        )
    if what == "lock":
        return RunBusy(
            f"{transport.host}: {by or 'somebody'} is launching on {busy.get('name', '').replace('-', ' ')} right now",
            "try again in a moment",
            what=what,
            by=by,
        )
    thing = f"port {busy.get('port')}" if what == "port" else f"GPU {busy.get('gpus')}"
    stopping = busy.get("stop") not in ("", "done", "stuck", None)
    return RunBusy(
        f"{transport.host}: {in_use(thing, run_id)}" + (f", which {by or 'somebody'} is stopping" if stopping else ""),
        "wait until it is gone" if stopping else Hint(Action.STOP_OR_REPLACE, run_id or ""),
        what=what,
        run_id=run_id,
        by=by if stopping else None,
    )


async def status(transport: Transport, ids: Sequence[str]) -> tuple[Run, ...]:
    """These runs as they are now, newest first; those that are not on the host are left out."""
    if not ids:
        return ()
    return await _runs(transport, await _call(transport, "status", *ids))


async def refresh(transport: Transport, run: Run) -> Run | None:
    """The same run as it is now, None where its files are gone; a foreign server that ended is EXITED."""
    if run.state is RunState.FOREIGN or run.run_id.startswith("foreign-"):
        for other in await foreign(transport):
            if other.pid == run.pid and (run.start_ticks is None or other.start_ticks == run.start_ticks):
                return other
        return replace(run, state=RunState.EXITED)
    found = await status(transport, [run.run_id])
    return found[0] if found else None


async def list_runs(transport: Transport) -> tuple[Run, ...]:
    """All runs of this user on the host, newest first; of those that are over, the host keeps the newest 200."""
    first = transport not in _known_commands
    return await _runs(transport, await _call(transport, "all" if first else "list"))


def conflicts(runs: Iterable[Run], *, port: int | None, gpus: Sequence[int]) -> tuple[Run, ...]:
    """Those runs that a launch on this port and these GPUs would have to replace."""
    return tuple(
        run
        for run in runs
        if run.active
        and run.state not in (RunState.FOREIGN, RunState.UNKNOWN)
        and (set(run.gpus) & set(gpus) or (port is not None and run.port == port))
    )


async def stop(
    transport: Transport, run_id: str, grace_s: float = 20.0, *, who: str | None = None, timeout_s: float = 120.0
) -> StopState:
    """Asks for the end of a run's whole tree; the host carries it out by itself, so a lost link cannot cut it short.

    Returns as soon as the host has it; a link that is lost before that is waited for, up to `timeout_s`.

    First SIGTERM to the main process alone, up to `grace_s` seconds; then SIGTERM, then SIGKILL to what is left.
    Asking again changes nothing, except that a shorter patience is heard. Follow it with `stop_state`.

    Raises:
        UsageError: a foreign server.
        EagletuiError: the run is in another PID namespace; no signal was sent.
    """
    if run_id.startswith("foreign-"):
        raise UsageError(
            f"{run_id} was not started by eagletui; it is watched only",
            "stop it the way it was started",
            slug=Slug.FOREIGN,
        )
    grace = str(max(0, -int(-grace_s // 1)))
    by = _NOT_A_WORD.sub("_", who)[:80] if who else me()
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return await _stop_answer(transport, await _call(transport, "stop", run_id, grace, by))
        except (LinkLost, TimedOut):
            if time.monotonic() + _RETRY_S > deadline:
                raise
            await asyncio.sleep(_RETRY_S)


async def stop_state(transport: Transport, run_id: str) -> StopState:
    """How far the stop of a run has come."""
    return await _stop_answer(transport, await _call(transport, "status", run_id))


async def _stop_answer(transport: Transport, answer: _Answer) -> StopState:
    runs = await _runs(transport, answer)
    if not runs:
        return StopState(None, None)
    step, requested, _, by, pids = _stop_fields(answer.named("run")[0].get("stop", ""))
    return StopState(runs[0], step, by, requested, pids)


# -- other people's servers, and ports ----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Process:
    pid: int
    start: int
    ppid: int
    session: int
    user: str
    argv: tuple[str, ...]


@dataclass(frozen=True)
class _Listening:
    address: str  # as /proc/net has it, hexadecimal
    port: int
    uid: int
    inode: str

    @property
    def answers_loopback(self) -> bool:
        """Whether a connection to 127.0.0.1 or ::1 may reach it."""
        return (
            set(self.address) == {"0"}
            or self.address in ("0100007F", "00000000000000000000000001000000")
            or self.address == "0000000000000000FFFF00000100007F"
        )


class _Facts:
    """What one call said about processes and sockets."""

    def __init__(self, answer: _Answer) -> None:
        self.processes: dict[int, _Process] = {}
        for f in answer.of("proc"):
            if len(f) < 8:
                continue
            command = "\t".join(f[7:]).rstrip("\x01").split("\x01")
            pid, start, ppid, _group, session = (int(x) for x in f[1:6])
            self.processes[pid] = _Process(pid, start, ppid, session, f[6], tuple(command))
        self.output = {int(f[1]): "\t".join(f[2:]) for f in answer.of("out")}
        self.parent = {int(f[1]): int(f[2]) for f in answer.of("up")}
        self.listening = []
        for f in answer.of("listen"):
            address, _, port = f[1].rpartition(":")
            self.listening.append(_Listening(address, int(port, 16), int(f[2]), f[3]))
        self.socket_pids: dict[str, set[int]] = {}
        for f in answer.of("sock"):
            self.socket_pids.setdefault(f[2], set()).add(int(f[1]))
        self.users = {int(f[1]): f[2] for f in answer.of("user")}
        self.owner: dict[int, str] = {}
        for f in answer.of("ours"):
            for word in f[2].split():
                self.owner.setdefault(int(word.split(":")[0]), f[1])
        me_line = answer.of("me")
        self.my_uid = int(me_line[0][1]) if me_line else None
        clock = answer.of("clock")
        self.boot_epoch = _number(clock[0][1]) if clock else None
        self.ticks = (_number(clock[0][2]) if clock else None) or 100

    def started_at(self, process: _Process) -> str | None:
        if self.boot_epoch is None:
            return None
        return _iso(self.boot_epoch + process.start / self.ticks)

    def ports_of(self, pids: set[int]) -> set[int]:
        return {row.port for row in self.listening if self.socket_pids.get(row.inode, set()) & pids}


def _is_server(argv: Sequence[str]) -> bool:
    """Whether a command line is a server of SGLang or vLLM, and not a shell, an editor or a grep that names one."""
    if not argv or not argv[0]:
        return False
    if argv[0].startswith(("sglang::", "VLLM::", "vllm::")):
        return True
    words = list(argv)
    if re.fullmatch(r"(python|pypy)[\d.]*t?", words[0].rsplit("/", 1)[-1]):
        words = words[1:]
        while words and words[0].startswith("-"):
            option = words.pop(0)
            if option == "-m":
                module = words[0] if words else ""
                return (
                    module.startswith(("sglang.launch_server", "sglang.srt.entrypoints"))
                    or (module.startswith("vllm.entrypoints.") and module.endswith("api_server"))
                    or (module in ("sglang", "sglang.cli.main", "vllm") and words[1:2] == ["serve"])
                )
            if option in ("-X", "-W", "--check-hash-based-pycs") and words:
                words.pop(0)
            elif option.startswith("-c"):
                return False
        if not words:
            return False
        if words[0].rsplit("/", 1)[-1] == "launch_server.py" and "sglang" in words[0]:
            return True
    return words[0].rsplit("/", 1)[-1] in ("sglang", "vllm") and words[1:2] == ["serve"]


def _argv_port(argv: Sequence[str]) -> int | None:
    for at, word in enumerate(argv):
        if word == "--port" and at + 1 < len(argv):
            return _number(argv[at + 1])
        if word.startswith("--port="):
            return _number(word[7:])
    return None


def _groups(facts: _Facts) -> dict[int, set[int]]:
    """Servers: the topmost process of each, and all of its processes that were reported."""
    servers = {pid for pid, process in facts.processes.items() if _is_server(process.argv)}

    def top(pid: int) -> int:
        best, at, seen = pid, pid, {pid}
        while (at := facts.parent.get(at, 0)) > 1 and at not in seen:
            seen.add(at)
            if at in servers:
                best = at
        return best

    groups: dict[int, set[int]] = {}
    for pid in servers:
        groups.setdefault(top(pid), set()).add(pid)
    # Ranks whose launcher died have no way up; their session says that they belong together.
    by_session: dict[int, int] = {}
    for pid in sorted(groups, key=lambda p: (facts.processes[p].start, p)):
        process = facts.processes[pid]
        titled = process.argv[0].startswith(("sglang::", "VLLM::", "vllm::"))
        first = by_session.setdefault(process.session, pid)
        if first != pid and titled:
            groups[first] |= groups.pop(pid)
    return groups


def _foreign(facts: _Facts, host: str) -> tuple[Run, ...]:
    found = []
    for pid, members in _groups(facts).items():
        if any(member in facts.owner for member in members):
            continue
        process = facts.processes[pid]
        listening = facts.ports_of(members)
        port = _argv_port(process.argv)
        if port is None:
            usual = 8000 if any("vllm" in word for word in process.argv[:4]) else 30000
            own = facts.ports_of({pid})
            if usual in listening or not own:
                port = usual if not process.argv[0].startswith(("sglang::", "VLLM::", "vllm::")) else None
            else:
                port = min(own)
        found.append(
            Run(
                run_id=f"foreign-{pid}",
                kind="server",
                profile=None,
                host=host,
                state=RunState.FOREIGN,
                pid=pid,
                port=port,
                started_at=facts.started_at(process),
                log_path=facts.output.get(pid),
                argv=tuple(sanitize(word) for word in process.argv),
                owner=one_line(process.user, 80),
                start_ticks=process.start,
            )
        )
    return tuple(sorted(found, key=lambda run: (run.started_at or "", run.pid or 0), reverse=True))


async def foreign(transport: Transport) -> tuple[Run, ...]:
    """Servers of SGLang and vLLM that are not ours, newest first; to be watched only.

    Each has the id `foreign-<pid>`, with the topmost process of its tree as pid, and a log where its standard output
    is a file that can be read.
    """
    return _foreign(_Facts(await _call(transport, "foreign")), transport.host)


async def listener(transport: Transport, port: int) -> PortHolder | None:
    """Who listens on a port of the host, None where nobody does."""
    facts = _Facts(await _call(transport, "port", str(port)))
    if not facts.listening:
        return None
    rows = sorted(facts.listening, key=lambda row: (row.inode not in facts.socket_pids, not row.answers_loopback))
    row = rows[0]
    pid = min(facts.socket_pids.get(row.inode, ()), default=None)
    process = facts.processes.get(pid) if pid is not None else None
    return PortHolder(
        port=port,
        pid=pid,
        user=one_line(process.user if process else facts.users.get(row.uid, str(row.uid)), 80),
        command=one_line(" ".join(process.argv), 200) if process else None,
        run_id=facts.owner.get(pid) if pid is not None else None,
    )


async def port_belongs_to(transport: Transport, run: Run) -> bool | None:
    """Whether it is this run that answers on its port.

    False also where nobody listens there yet. None where this cannot be told: the listener's process is not visible,
    or the command is one of a container runtime, whose processes are not its children.
    """
    if run.port is None:
        return False
    if run.state is RunState.FOREIGN:
        facts = _Facts(await _call(transport, "foreign"))
        ours = next((members for pid, members in _groups(facts).items() if pid == run.pid), set())
        facts.listening = [row for row in facts.listening if row.port == run.port]
    else:
        facts = _Facts(await _call(transport, "port", str(run.port), run.run_id))
        ours = {pid for pid, owner in facts.owner.items() if owner == run.run_id}
    rows = [row for row in facts.listening if row.answers_loopback] or facts.listening
    if not rows:
        return False
    in_container = any(word.rsplit("/", 1)[-1] in _CONTAINERS for word in run.argv[:8])
    mine = False
    for row in rows:
        holders = facts.socket_pids.get(row.inode, set())
        if holders & ours:
            mine = True
        elif in_container:
            return None
        elif holders or (row.uid != facts.my_uid and run.state is not RunState.FOREIGN):
            return False  # seen, and another's; or of a user whom this run's processes are not
        else:
            return None
    return mine
