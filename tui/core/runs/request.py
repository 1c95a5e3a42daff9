"""What to start: a launch request, what of it can be passed to a process, and the texts that the helper is given."""

import getpass
import json
import re
import shlex
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from secrets import token_hex
from typing import Any

import tui
from tui.core.errors import Slug, UsageError
from tui.core.link.scripts import shell_path
from tui.core.masking.known import MASK, hide
from tui.core.runs.containers import CID_FILE, SECRET_FILE_INSIDE, container_of, engine_script, words_of_run
from tui.core.runs.docker_run import without_ours
from tui.core.text import one_line

_MAX_VALUE_BYTES = 131_071  # Linux: MAX_ARG_STRLEN, for one argument or NAME=VALUE
_MAX_TOTAL_BYTES = 1_000_000  # below what Linux takes for all of them with an 8 MiB stack (2 MiB)
_MAX_FILE_BYTES = 4 << 20  # of the files of a launch, together: they travel in the script, and a shell holds them
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
_FILE_PATH = re.compile(f"{_FILE_NAME.pattern}(/{_FILE_NAME.pattern}){{0,5}}")  # in a run's directory
# Names in a run's directory that are taken: docs/runs.md.
_FILES_RESERVED = re.compile(
    r"(cmd\.json|meta|measures|spec|secret|secret\.yaml|claim|pid|log|exit|stop|failed|engine|cid|gone|copier|log\.from)(\.t\d+)?|stop\.grace|"
    r"(launch|stopper|keeper)\..*"
)
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f]")  # newline and tab are legitimate in a value
_NOT_A_KEY = re.compile(r"[^A-Za-z0-9._@:/-]")
_NOT_A_WORD = re.compile(r"[^A-Za-z0-9._@+-]+")


@dataclass(frozen=True)
class InRunDir:
    """An argument that is a file in the run's directory, which only the host knows; `prefix` stands before the path."""

    name: str
    prefix: str = ""


RUN_DIR = "."  # the directory itself, as the name of an `InRunDir`
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
        measures: of a bench, words for the server that it measures: while one runs, another with one of them is refused.
        uses: of a bench, the GPUs of that server: it is refused where a lease of somebody else is on them.
        files: text by path, put into the run's directory before the start; UTF-8, at most 4 MiB together. An
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
    measures: tuple[str, ...] = ()
    uses: tuple[int, ...] = ()


def new_run_id(profile: str, now: float | None = None) -> str:
    """`<profile>-<YYYYMMDDTHHMMSSZ>-<6 hex>`; `now` in seconds since 1970."""
    name = _NOT_A_WORD.sub("-", profile).replace("@", "-").replace("+", "-").strip(".-")[:50].rstrip(".-")
    stamp = datetime.fromtimestamp(time.time() if now is None else now, UTC)
    return f"{name or 'run'}-{stamp:%Y%m%dT%H%M%SZ}-{token_hex(3)}"


def valid_run_id(run_id: str) -> bool:
    """Whether a text can be the id of a run (it names a directory)."""
    return _FILE_NAME.fullmatch(run_id) is not None


@cache
def _me() -> str:
    try:
        user = getpass.getuser()
    except (OSError, KeyError):
        user = "unknown"
    return f"{user}@{socket.gethostname()}"


def requester(who: str | None) -> str:
    """Who asks, as written into locks and stops: user@machine (of this process by default), one word."""
    return _NOT_A_WORD.sub("_", who or _me())[:80]


# What can be passed to a process


def _bad(message: str, hint: str) -> UsageError:
    return UsageError(message, hint, slug=Slug.BAD_VALUE)


def check(request: LaunchRequest) -> None:
    """Raises UsageError where the request, or a value of it, cannot be passed."""
    if not valid_run_id(request.run_id):
        raise _bad(f"Bad run id {one_line(request.run_id, 60)!r}", "use new_run_id")
    if request.kind not in ("server", "bench"):
        raise _bad(f"Unknown kind {request.kind!r}", "server or bench")
    total = _check_arguments(request)
    total += _check_environment("Environment variable", request.env)
    total += _check_environment("Secret variable", request.secret_env)
    for name, value in request.secret_args.items():
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", name):
            raise _bad(f"Bad flag name {one_line(name, 60)!r}", "give it without dashes")
        _check_value(f"Secret flag --{name}", value)
    if total > _MAX_TOTAL_BYTES:
        raise _bad(
            f"Arguments and environment are {total} bytes long; at most {_MAX_TOTAL_BYTES} can be passed",
            "put long values into a file on the host",
        )
    _check_files(request.files)
    if request.cwd is not None:
        _check_value("The working directory", request.cwd)
        if "\n" in request.cwd or not request.cwd.startswith(("/", "~/")):
            name = one_line(request.cwd, 60)
            raise _bad(f"The working directory {name!r} is not an absolute path", "begin it with / or ~/")
    if request.port is not None and not 0 < request.port < 65536:
        raise _bad(f"Port {request.port} is not between 1 and 65535", "choose another port")
    if any(gpu < 0 for gpu in request.gpus):
        raise _bad("A GPU index is negative", "count GPUs from 0")


def _check_value(name: str, value: str) -> int:
    """The length of a value in bytes. Raises UsageError where it cannot be passed to a process."""
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise _bad(f"{name} is not valid text", "type it again, as UTF-8") from None
    if found := _CONTROL.search(value):
        raise _bad(f"{name} holds the control character 0x{ord(found.group()):02x}", "remove it")
    if size > _MAX_VALUE_BYTES:
        raise _bad(
            f"{name} is {size} bytes long; Linux takes at most {_MAX_VALUE_BYTES} in one value",
            "put it into a file on the host",
        )
    return size


def _check_arguments(request: LaunchRequest) -> int:
    """The bytes that the arguments take."""
    if not request.argv or request.argv[0] == "":
        raise _bad("The command is empty", "give the profile a command")
    total = 0
    for number, arg in enumerate(request.argv):
        before = request.argv[number - 1] if number else None
        after = f" (after {before})" if isinstance(before, str) and re.fullmatch(r"--?[\w-]+", before) else ""
        text = arg if isinstance(arg, str) else arg.prefix + arg.name
        if isinstance(arg, InRunDir) and arg.name != RUN_DIR and not _FILE_PATH.fullmatch(arg.name):
            raise _bad(f"Bad file name {arg.name!r}", "use letters, digits, dots, and / between directories")
        total += _check_value(f"Argument {number}{after}", text) + 9
    return total


def _check_environment(what: str, values: Mapping[str, str]) -> int:
    """The bytes that these variables take."""
    total = 0
    for name, value in values.items():
        if not _ENV_NAME.fullmatch(name):
            raise _bad(f"{what} {one_line(name, 60)!r} has a bad name", "use letters, digits and _")
        if name in _ENV_RESERVED or name.startswith("ER_"):
            raise _bad(f"{what} {name} cannot be set", "leave it out")
        total += _check_value(f"{what} {name}", value) + len(name) + 10
    return total


def _check_files(files: Mapping[str, bytes]) -> None:
    for name, data in files.items():
        if not _FILE_PATH.fullmatch(name) or _FILES_RESERVED.fullmatch(name):
            raise _bad(
                f"Bad file name {one_line(name, 60)!r}",
                "use letters, digits, dots, / between directories, and none of the names of the run's own files",
            )
        try:
            if "\0" in data.decode():
                raise ValueError
        except ValueError:
            raise _bad(f"The file {name} is not UTF-8 text", "give text") from None
    if (sent := sum(map(len, files.values()))) > _MAX_FILE_BYTES:
        raise _bad(
            f"The files of the run are {sent} bytes long; at most {_MAX_FILE_BYTES} are sent", "make them smaller"
        )


# What the helper is given


def launch_arguments(request: LaunchRequest, who: str) -> tuple[str, ...]:
    """The arguments of the helper's `launch`."""
    return (
        request.run_id,
        request.kind,
        str(request.port) if request.port is not None else "-",
        ",".join(str(gpu) for gpu in sorted(set(request.gpus))) or "-",
        who,
        one_line(request.profile, 200) or "-",
    )


def launch_variables(request: LaunchRequest, who: str) -> dict[str, str]:
    """The shell variables of the helper's `launch`."""
    return {
        "ER_SPEC": _spec(request),
        "ER_SECRET": "\n".join(exports(request.secret_env)),
        # JSON strings are YAML strings.
        "ER_ARGS": "\n".join(f"{name}: {json.dumps(value)}" for name, value in request.secret_args.items()),
        "ER_CMD": command_json(request, who),
        "ER_ENGINE": _engine(request),
        "ER_KEYS": " ".join(_NOT_A_KEY.sub("_", key) for key in request.measures),
        "ER_USES": ",".join(map(str, request.uses)),
        "ER_FILES": " ".join(request.files),
        **{f"ER_FILE_{at}": data.decode() for at, data in enumerate(request.files.values(), 1)},
    }


def _whole_argv(request: LaunchRequest) -> tuple[str | InRunDir, ...]:
    """The command as it starts: with the file of secret flags, and with what a run adds to a container's line."""
    argv = request.argv
    container = container_of(argv)
    secrets = bool(request.secret_args) and SECRET_ARGS_FILE not in argv
    if secrets:
        argv = (*argv, "--config", SECRET_FILE_INSIDE if container is not None else SECRET_ARGS_FILE)
    if container is None:
        return argv
    mount: tuple[str | InRunDir, ...] = ()
    if secrets:
        source = InRunDir(SECRET_ARGS_FILE.name, f"type=bind,readonly,target={SECRET_FILE_INSIDE},source=")
        mount = ("--mount", source)
    kept, _ = without_ours(container)
    words = [word for option in kept.options for word in option.words]
    options = [argv[int(word[1:])] if word.startswith("\0") else word for word in words]
    ours = (*words_of_run(container, request.run_id), InRunDir(CID_FILE), *mount)
    return (*container.engine, "run", *ours, *options, *argv[container.image_at :])


def _engine(request: LaunchRequest) -> str:
    container = container_of(request.argv)
    return "" if container is None else engine_script(container, request.env)


def _spec(request: LaunchRequest) -> str:
    """The file that sets argv, directory and environment; argv first, so that no variable can shadow ours."""

    def word(arg: str | InRunDir) -> str:
        if isinstance(arg, str):
            return shlex.quote(arg)
        return f'{shlex.quote(arg.prefix) if arg.prefix else ""}"$ER_DIR"/{arg.name}'

    lines = ["set -- " + " ".join(word(arg) for arg in _whole_argv(request))]
    if request.cwd is not None:
        lines.append(f"ER_CWD={shell_path(request.cwd)}")
    elif request.files:
        lines.append("ER_CWD=$ER_DIR")
    return "\n".join(lines + exports(request.env))


def exports(values: Mapping[str, str]) -> list[str]:
    """Shell text that sets variables for what is started behind it, a line each."""
    return [f"{name}={shlex.quote(value)}; export {name}" for name, value in values.items()]


def command_json(request: LaunchRequest, who: str) -> str:
    """cmd.json: what was launched, for people and for later eagletuis; no secret is in it."""
    secrets = {*request.secret_env.values(), *request.secret_args.values(), *request.hide} - {""}
    longest_first = sorted(secrets, key=len, reverse=True)

    def mask(text: str) -> str:
        for value in longest_first:
            text = text.replace(value, MASK)
        return hide(text)

    document = {
        "version": 1,
        "run": request.run_id,
        "kind": request.kind,
        "profile": request.profile,
        "argv": [mask(a) if isinstance(a, str) else f"{mask(a.prefix)}{a.name}" for a in _whole_argv(request)],
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
