"""A posted launch command or script becomes a profile. Nothing in it is ever executed.

The text is read by `shell_words`; here the wrappers around the server's call are taken off (sudo, env, numactl, nohup,
docker run, bash -c ...), the call is found among the other commands, and its flags become a profile's.
Besides shell text, what Kubernetes, compose files, Dockerfiles and systemd units put around a command is understood
as far as it is regular.
"""

import json
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from tui.core.errors import Slug, UsageError
from tui.core.profiles.importing.shell_words import Command, Shell
from tui.core.profiles.importing.yaml_commands import yaml_calls
from tui.core.profiles.profiles import flag_words, is_secret_env, toml_value
from tui.core.sglang.engine import SGLANG
from tui.core.sglang.flags import flag_table, normalise, unabbreviate
from tui.core.text import one_line, sanitize

_MODULE = SGLANG.launch_module
_DASHES = re.compile(r"(?<=\s)[\u2013\u2014\u2012\u2212]{1,2}(?=[A-Za-z])")
_QUOTES = str.maketrans({"\u201c": '"', "\u201d": '"', "\u2018": "'", "\u2019": "'", "\u00a0": " ", "\u202f": " "})
_PROMPT = re.compile(r"^[ \t]*(?:\([\w.-]+\)[ \t]*)?(?:[\w.-]+@[\w.-]+[^\n$#]{0,80}[$#]|\$)[ \t]+(?=\S)")


@dataclass(frozen=True)
class ImportedCommand:
    """A launch command taken apart."""

    env: Mapping[str, str]  # what the call itself gets beyond the caller's environment
    argv: tuple[str, ...]  # of the innermost server call, flags as typed
    profile_toml: str  # normalised names
    warnings: tuple[str, ...]
    wrapper: tuple[str, ...] = ()  # numactl and the like, kept in the profile
    cwd: str | None = None
    line: int = 1  # where in the text

    @property
    def profile(self) -> str:
        """The TOML under the name that `--json` gives it."""
        return self.profile_toml


@dataclass(frozen=True)
class _Call:
    """A command while its wrappers are taken off."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str | None = None
    line: int = 1
    wrapper: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    inside: bool = False  # of a container

    def without(self, count: int, **changes: object) -> "_Call":
        return replace(self, argv=self.argv[count:], **changes)  # type: ignore[arg-type]

    def warn(self, text: str) -> "_Call":
        return self if text in self.warnings else replace(self, warnings=(*self.warnings, text))


def import_command(text: str, home: str) -> ImportedCommand:
    """Takes a posted command or script apart.

    Args:
        text: shell text, or a Kubernetes, compose, Docker or systemd file around it.
        home: what `~` and `$HOME` mean: the caller's own home directory.

    Raises:
        UsageError: no server call in it (slug no_command), or an open quote (slug unreadable_command).
    """
    warnings: list[str] = []
    text = _tidy(text, warnings)
    call, others = _find(text, home)
    if call is None:
        raise UsageError(
            "there is no SGLang launch command in this text",
            "it must call python -m sglang.launch_server or sglang serve",
            slug=Slug.NO_COMMAND,
        )
    warnings += call.warnings
    if others:
        warnings.append(f"the text has {others + 1} server calls; the first one, in line {call.line}, was taken")
    names = (name for name in call.env if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) and name != "PATH")
    env = {name: call.env[name] for name in names}
    profile = _profile(call, env, warnings)
    return ImportedCommand(
        env, call.argv, profile, tuple(dict.fromkeys(one_line(w) for w in warnings)), call.wrapper, call.cwd, call.line
    )


def _tidy(text: str, warnings: list[str]) -> str:
    """Undoes what posting does to a command: prompts, code fences, typographic quotes and dashes."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    plain = _DASHES.sub("--", text.translate(_QUOTES))
    if plain != text:
        warnings.append("typographic quotes, dashes or blanks were replaced by plain ones")
    lines: list[str] = []
    for line in plain.split("\n"):
        if line.strip().startswith("```"):
            line = ""
        before = lines[-1].rstrip() if lines else ""
        if before.endswith("\\"):
            line = re.sub(r"^[ \t]*>[ \t](?=\s*\S)", "", line)
        else:
            line = _PROMPT.sub("", line)
            line = re.sub(r"^[ \t]*ExecStart=[-@+!:]*", "", line)
            line = re.sub(r"^[ \t]*Environment=(?=\S)", "export ", line)
            line = _docker_line(line)
        lines.append(line)
    return "\n".join(lines)


def _docker_line(line: str) -> str:
    """CMD and ENTRYPOINT in their JSON form, and ENV, as shell text."""
    match = re.match(r"^[ \t]*(CMD|ENTRYPOINT|ENV)[ \t]+(.*)$", line)
    if not match:
        return line
    word, rest = match.groups()
    if word == "ENV":
        return f"export {rest}" if "=" in rest else line
    if rest.startswith("["):
        try:
            words = json.loads(rest)
            return shlex.join(str(item) for item in words)
        except (ValueError, TypeError):
            return line
    return rest


# Finding the call ------------------------------------------------------------------------------------------------


def _find(text: str, home: str) -> tuple[_Call | None, int]:
    """The first server call of a text, and how many more there are."""
    found: list[_Call] = []
    if re.search(r"(?m)^\s*(?:-\s+)?(?:command|args|entrypoint)\s*:", text):
        for argv, env in yaml_calls(text):
            call = _unwrap(_Call(tuple(argv), env), home)
            if call is not None:
                found.append(call.warn("paths are those inside the container"))
        if found:
            return found[0], len(found) - 1
    # A call in a branch that would not be taken is still the one that was posted.
    found = _in_shell(text, Shell(home)) or _in_shell(text, Shell(home), branches=False)
    return (found[0], len(found) - 1) if found else (None, 0)


def _in_shell(text: str, shell: Shell, *, branches: bool = True) -> list[_Call]:
    """Every server call of shell text, wrappers taken off."""
    found: list[_Call] = []
    commands = list(shell.commands(text, branches=branches))
    for number, command in enumerate(commands):
        call = _unwrap(_Call(command.argv, command.env, command.cwd, command.line), shell.home)
        if call is None:
            call = _in_here(command, shell)
        if call is None:
            continue
        for warning in _around(command, commands[number + 1 :]):
            call = call.warn(warning)
        values = [*call.argv, *call.wrapper, call.cwd or "", *(v for k, v in call.env.items() if k != "PATH")]
        for warning in shell.warnings(values):
            call = call.warn(warning)
        found.append(call)
    return found


def _around(command: Command, following: Sequence[Command]) -> list[str]:
    """What stands around a call and does not come along."""
    warnings = []
    for later in following:
        if not later.argv[0].startswith("-"):
            break
        warnings.append(
            f"line {later.line}: {one_line(later.source, 80)} is not part of the command: "
            "the line before it has no backslash at its end"
        )
    if any(word.strip() == "" for word in command.argv):
        warnings.append(
            f"line {command.line}: a blank after a backslash ends the command there, and is an argument itself"
        )
    for target in command.redirects if command.here is None else ():
        warnings.append(f"the output to {one_line(target, 80)} was left out: every run has its own log")
    return warnings


def _in_here(command: Command, shell: Shell) -> _Call | None:
    """A call inside a here-document, of `bash <<EOF` or `cat > run.sh <<EOF`."""
    if command.here is None or "sglang" not in command.here:
        return None
    if PurePosixPath(command.argv[0]).name not in ("bash", "sh", "zsh", "dash", "ssh", "cat", "tee", "sudo", "docker"):
        return None
    inner = Shell(shell.home, dict(command.env))
    found = _in_shell(command.here, inner)
    return replace(found[0], line=command.line + found[0].line) if found else None


def _launcher(argv: Sequence[str]) -> int | None:
    """The number of words before the flags of an SGLang server call; None where it is none."""
    if not argv:
        return None
    program = PurePosixPath(argv[0]).name
    if program == "sglang":
        return 2 if len(argv) > 1 and argv[1] == "serve" else None
    if not re.fullmatch(r"(python|pypy)[\d.]*(t|d)?", program):
        return 1 if program == "launch_server.py" else None
    at = 1
    while at < len(argv) and argv[at].startswith("-"):
        if argv[at] == "-m" or (re.fullmatch(r"-[A-Za-z]*m", argv[at]) and at + 1 < len(argv)):
            module = argv[at + 1] if at + 1 < len(argv) else ""
            if module == _MODULE:
                return at + 2
            if module in ("sglang", "sglang.cli.main") and argv[at + 2 : at + 3] == ["serve"]:
                return at + 3
            return None
        if argv[at].startswith(f"-m{_MODULE}"):
            return at + 1
        at += 2 if argv[at] in ("-X", "-W") else 1
    script = argv[at] if at < len(argv) else ""
    return at + 1 if script.endswith("launch_server.py") else None


def _unwrap(call: _Call, home: str, depth: int = 0) -> _Call | None:
    """Takes wrappers off until the server's call is reached; None where there is none inside."""
    while call.argv and depth < 20:
        if _launcher([*call.argv]) is not None:
            return call
        depth += 1
        name = PurePosixPath(call.argv[0]).name
        if name in ("bash", "sh", "zsh", "dash", "ash", "ksh"):
            return _shell_string(call, home)
        taken = _WRAPPERS.get(name)
        if taken is None:
            return None
        further = taken(call)
        if further is None or len(further.argv) >= len(call.argv):
            return None
        call = further
    return None


def _shell_string(call: _Call, home: str) -> _Call | None:
    """bash -c "..." and bash -lc "..."."""
    at = 1
    while at < len(call.argv) and call.argv[at].startswith(("-", "+")):
        word = call.argv[at]
        if re.fullmatch(r"-[a-z]*c[a-z]*", word):
            if at + 1 >= len(call.argv):
                return None
            shell = Shell(home, dict(call.env))
            shell.cwd = call.cwd
            if call.inside:
                shell.home = "~"  # another one, inside the container
            found = _in_shell(call.argv[at + 1], shell)
            if not found:
                return None
            inner = found[0]
            return replace(
                inner,
                line=call.line,
                wrapper=(*call.wrapper, *inner.wrapper),
                warnings=(*call.warnings, *inner.warnings),
                inside=call.inside,
            )
        at += 2 if word in ("-o", "+o", "--rcfile", "--init-file") else 1
    return None


# Wrappers --------------------------------------------------------------------------------------------------------


def _options(argv: Sequence[str], valued: str = "", long_valued: Sequence[str] = ()) -> int:
    """Where the options of a wrapper end: index of its first operand.

    Args:
        argv: with the wrapper's own name first.
        valued: short options that take a value.
        long_valued: long options whose value is a word of its own.
    """
    at = 1
    while at < len(argv) and argv[at].startswith("-") and argv[at] != "-":
        word = argv[at]
        if word == "--":
            return at + 1
        if word.startswith("--"):
            at += 2 if word in long_valued else 1
        else:
            letters = word[1:]
            takes = next((index for index, letter in enumerate(letters) if letter in valued), None)
            at += 2 if takes is not None and takes == len(letters) - 1 else 1
    return at


def _assignments(call: _Call, at: int) -> _Call:
    """NAME=value words in front of the program, as sudo and env take them."""
    env = dict(call.env)
    while at < len(call.argv) and (match := re.match(r"([A-Za-z_]\w*)=", call.argv[at])):
        env[match.group(1)] = call.argv[at][match.end() :]
        at += 1
    return call.without(at, env=env)


def _sudo(call: _Call) -> _Call:
    at = _options(call.argv, "ugpChrtTUDR", ("--user", "--group", "--prompt", "--chdir", "--host", "--role", "--type"))
    return _assignments(call, at).warn('sudo was taken off: where the server needs it, write wrapper = ["sudo", "-n"]')


def _env(call: _Call) -> _Call | None:
    argv = call.argv
    if len(argv) > 2 and argv[1] in ("-S", "--split-string"):
        return replace(call, argv=("env", *shlex.split(argv[2]), *argv[3:])) if argv[2:] else None
    at = _options(argv, "uC", ("--unset", "--chdir"))
    env: dict[str, str] = dict(call.env)
    cwd = call.cwd
    for word, following in zip(argv[1:at], [*argv[2:at], ""], strict=False):
        if word in ("-i", "--ignore-environment", "-"):
            env.clear()
        elif word in ("-u", "--unset"):
            env.pop(following, None)
        elif word in ("-C", "--chdir"):
            cwd = following
    return _assignments(replace(call, env=env, cwd=cwd), at)


def _plain(
    valued: str = "", long_valued: Sequence[str] = (), operands: int = 0, *, keep: bool = False
) -> Callable[[_Call], _Call]:
    """A wrapper of options and `operands` words; `keep` = it matters to speed and stays in the profile."""

    def take(call: _Call) -> _Call:
        at = _options(call.argv, valued, long_valued) + operands
        kept = call.argv[:at] if keep and not call.inside else ()
        kept = kept[:-1] if kept and kept[-1] == "--" else kept
        return call.without(at, wrapper=(*call.wrapper, *kept))

    return take


def _runner(*subcommands: str, valued: str = "", long_valued: Sequence[str] = ()) -> Callable[[_Call], _Call | None]:
    """conda run, uv run and the like."""

    def take(call: _Call) -> _Call | None:
        if len(call.argv) < 2 or call.argv[1] not in subcommands:
            return None
        at = 1 + _options(call.argv[1:], valued, long_valued)
        words = " ".join(call.argv[:at])
        return call.without(at).warn(
            f"{one_line(words, 80)} was taken off: name that environment's python in the host's entry"
        )

    return take


_DOCKER_SWITCHES = frozenset(
    [
        "--detach",
        "--disable-content-trust",
        "--init",
        "--interactive",
        "--no-healthcheck",
        "--oom-kill-disable",
        "--privileged",
        "--publish-all",
        "--quiet",
        "--read-only",
        "--rm",
        "--sig-proxy",
        "--tty",
        "--replace",
        "--tls-verify",
        "--no-hosts",
    ]
)


def _docker(call: _Call) -> _Call | None:
    """docker run, podman run, docker exec: the environment is the container's own."""
    argv = call.argv
    at = 1
    while at < len(argv) and argv[at] not in ("run", "exec", "create"):
        if argv[at] not in ("container", "compose") and not argv[at].startswith("-"):
            return None
        at += 2 if argv[at] in ("-H", "--host", "--context", "-c", "--config", "-f") else 1
    env: dict[str, str] = {}
    cwd = entry = None
    warnings: list[str] = []
    at += 1
    while at < len(argv) and argv[at].startswith("-"):
        word = argv[at]
        name, equals, value = word.partition("=")
        takes = word.startswith("--") and not equals and word not in _DOCKER_SWITCHES
        if not word.startswith("--"):
            letters = word[1:]
            index = next((i for i, letter in enumerate(letters) if letter not in "ditqPT"), None)
            if index is not None:
                name, value = f"-{letters[index]}", letters[index + 1 :].removeprefix("=")
                takes = not value
        if takes:
            value = argv[at + 1] if at + 1 < len(argv) else ""
            at += 1
        at += 1
        if name in ("-e", "--env"):
            variable, given, text = value.partition("=")
            if given:
                env[variable] = text
            elif variable in call.env:
                env[variable] = call.env[variable]
            else:
                warnings.append(f"{variable} comes from the caller's environment, which is not known here")
        elif name in ("-w", "--workdir"):
            cwd = value
        elif name == "--entrypoint":
            entry = value
        elif name == "--env-file":
            warnings.append(f"the variables of {one_line(value, 80)} are not read")
        elif name == "--gpus" and (devices := re.search(r"device=([\d,]+)", value)):
            env.setdefault("CUDA_VISIBLE_DEVICES", devices.group(1))
    if at >= len(argv):
        return None
    image = argv[at]
    inner = ([entry] if entry else []) + list(argv[at + 1 :])
    result = replace(call, argv=tuple(inner), env=env, cwd=cwd, inside=True)
    for warning in warnings:
        result = result.warn(warning)
    return result.warn(
        f"the call inside the container {one_line(image, 80)} was taken: paths are the container's, and it runs on the host itself"
    )


def _apptainer(call: _Call) -> _Call | None:
    at = next((index + 1 for index, word in enumerate(call.argv) if word in ("exec", "run")), None)
    if at is None:
        return None
    end = (
        at
        - 1
        + _options(call.argv[at - 1 :], "BHWSo", ("--bind", "--env", "--pwd", "--home", "--workdir", "--overlay"))
    )
    env = dict(call.env)
    for word, following in zip(call.argv[at:end], [*call.argv[at + 1 : end], ""], strict=False):
        if word == "--env" or word.startswith("--env="):
            text = following if word == "--env" else word.partition("=")[2]
            env |= dict(part.split("=", 1) for part in text.split(",") if "=" in part)
    return call.without(end + 1, env=env, inside=True).warn("the container was taken off: paths are the container's")


def _tmux(call: _Call) -> _Call | None:
    """tmux new -d -s NAME 'command', screen -dmS NAME command."""
    name = PurePosixPath(call.argv[0]).name
    at = _options(call.argv, "SsTt") if name == "screen" else 1 + _options(call.argv[1:], "snxyctFe")
    rest = call.argv[at:]
    if len(rest) == 1 and " " in rest[0]:
        return replace(call, argv=("sh", "-c", rest[0]))
    return call.without(at) if rest else None


def _ssh(call: _Call) -> _Call | None:
    at = _options(call.argv, "bcDEeFIiJLlmOopQRSWw") + 1
    if at >= len(call.argv):
        return None
    return replace(call, argv=("sh", "-c", " ".join(call.argv[at:])), env={}).warn(
        f"the command was for the host {one_line(call.argv[at - 1], 60)}"
    )


def _kubectl(call: _Call) -> _Call | None:
    return call.without(call.argv.index("--") + 1, inside=True) if "--" in call.argv else None


_SRUN = "NncptJAwGoeqDxCLSKI"
_WRAPPERS: dict[str, Callable[[_Call], _Call | None]] = {
    "sudo": _sudo,
    "doas": _plain("uC"),
    "env": _env,
    "nohup": _plain(),
    "setsid": _plain(),
    "time": _plain("fo"),
    "command": _plain(),
    "builtin": _plain(),
    "exec": _plain("a"),
    "eval": lambda call: replace(call, argv=("sh", "-c", " ".join(call.argv[1:]))),
    "nice": _plain("n", ("--adjustment",), keep=True),
    "ionice": _plain("cnp", keep=True),
    "chrt": _plain("TPD", operands=1, keep=True),
    "taskset": _plain(operands=1, keep=True),
    "numactl": _plain(
        "iNmClpP",
        ("--interleave", "--cpunodebind", "--membind", "--physcpubind", "--preferred", "--weighted-interleave"),
        keep=True,
    ),
    "timeout": _plain("ks", ("--kill-after", "--signal"), operands=1),
    "stdbuf": _plain("ioe", ("--input", "--output", "--error")),
    "unbuffer": _plain(),
    "catchsegv": _plain(),
    "prlimit": _plain(),
    "systemd-run": _plain(
        "pEuM",
        ("--unit", "--property", "--setenv", "--slice", "--description", "--working-directory", "--uid", "--gid"),
    ),
    "systemd-inhibit": _plain(),
    "caffeinate": _plain("tw"),
    "strace": _plain("efopsu"),
    "gdb": _plain("x", ("--ex", "-ex")),
    "nsys": _runner("profile", valued="ostcwy", long_valued=("--output", "--trace", "--delay", "--duration")),
    "ncu": _plain("ok", ("--output", "--set", "--kernel-name")),
    "py-spy": _runner("record", "top", valued="ordf", long_valued=("--output", "--rate", "--format")),
    "srun": _plain(
        _SRUN,
        tuple(
            f"--{name}"
            for name in [
                "nodes",
                "ntasks",
                "cpus-per-task",
                "partition",
                "time",
                "job-name",
                "account",
                "nodelist",
                "gres",
                "gpus",
                "output",
                "error",
                "container-image",
                "container-mounts",
                "container-workdir",
                "container-name",
                "mpi",
                "export",
                "mem",
                "qos",
                "chdir",
                "exclude",
                "ntasks-per-node",
                "gpus-per-node",
            ]
        ),
    ),
    "mpirun": _plain("Hxn", ("-np", "--host", "--hostfile", "--np", "--bind-to", "--map-by", "--mca")),
    "conda": _runner("run", valued="np", long_valued=("--name", "--prefix", "--cwd")),
    "mamba": _runner("run", valued="np", long_valued=("--name", "--prefix", "--cwd")),
    "micromamba": _runner("run", valued="np", long_valued=("--name", "--prefix", "--cwd")),
    "uv": _runner(
        "run",
        valued="p",
        long_valued=(
            "--with",
            "--python",
            "--project",
            "--directory",
            "--extra",
            "--group",
            "--index-url",
            "--env-file",
        ),
    ),
    "poetry": _runner("run"),
    "pipenv": _runner("run"),
    "pixi": _runner("run", valued="e", long_valued=("--environment", "--manifest-path")),
    "docker": _docker,
    "podman": _docker,
    "nerdctl": _docker,
    "apptainer": _apptainer,
    "singularity": _apptainer,
    "kubectl": _kubectl,
    "tmux": _tmux,
    "screen": _tmux,
    "ssh": _ssh,
}


# The profile -----------------------------------------------------------------------------------------------------


def _profile(call: _Call, env: Mapping[str, str], warnings: list[str]) -> str:
    """The call as a profile's TOML, with whole, present-day flag names."""
    start = _launcher([*call.argv]) or 0
    args = parse_flags(call.argv[start:], warnings)
    lines = ['kind = "launch"', 'description = "imported launch command"']
    rest = dict(env)
    devices = rest.get("CUDA_VISIBLE_DEVICES", "")
    if re.fullmatch(r"\d+(,\d+)*", devices):
        lines.append(f"gpus = {toml_value([int(number) for number in devices.split(',')])}")
        rest.pop("CUDA_VISIBLE_DEVICES")
    if call.cwd and call.cwd.startswith(("/", "~/")):
        lines.append(f"cwd = {toml_value(call.cwd)}")
    elif call.cwd:
        warnings.append(f"it ran in the directory {one_line(call.cwd, 80)}: write its whole path as cwd")
    if call.wrapper:
        lines.append(f"wrapper = {toml_value(list(call.wrapper))}")
    program = call.argv[0]
    if "/" in program and PurePosixPath(program).name.startswith("python") and not call.inside:
        warnings.append(f"the command used {one_line(program, 100)}: name it as python in the host's entry")
    table = flag_table()
    hidden = [name for name, value in rest.items() if is_secret_env(name, value)]
    hidden += [name for name in args if table.canonical(name) in table.secret]
    for name in hidden:
        warnings.append(f"{name} is a secret: a profile that is saved holds it, in a file only you can read")
    if rest:
        lines += ["", "[env]", *(f"{name} = {toml_value(value)}" for name, value in rest.items())]
    lines += ["", "[args]", *(f"{name} = {toml_value(value)}" for name, value in args.items())]
    return sanitize("\n".join(lines)) + "\n"


def parse_flags(words: Sequence[str], warnings: list[str]) -> dict[str, object]:
    """Flags of a server call by their whole, present-day names, with values as a profile holds them."""
    table = flag_table()
    args: dict[str, object] = {}
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if not word.startswith("-") or _is_number(word):
            if word.strip():
                warnings.append(f"{one_line(word, 80)} belongs to no flag and was left out of the profile")
            continue
        typed, equals, attached = word.partition("=")
        if not re.fullmatch(r"--?[A-Za-z0-9][\w.-]*", typed):
            warnings.append(f"{one_line(word, 80)} is no flag and was left out of the profile")
            continue
        name = _whole_name(typed, warnings)
        values = [attached] if equals else []
        kind = table.type_of(name)
        many = kind is not None and kind.startswith("many_")
        while not equals and kind != "switch" and at < len(words) and (many or not values):
            if (
                words[at].startswith("--")
                or (words[at].startswith("-") and not _is_number(words[at]))
                or not words[at].strip()
            ):
                break
            values.append(words[at])
            at += 1
        value: object = (
            True if not values else [_value(kind, text) for text in values] if many else _value(kind, values[0])
        )
        if name in args and args[name] != value:
            warnings.append(f"{name} is given twice; the last value holds")
        args[name] = value
    return args


def _whole_name(typed: str, warnings: list[str]) -> str:
    """What a typed flag is called in a profile; says so where the spelling would not pass today."""
    table = flag_table()
    name = normalise(typed)
    if "_" in typed:
        warnings.append(f"{one_line(typed, 60)} is refused by SGLang: the profile writes {name}")
    known = table.newest_flags
    canonical = table.canonical(name)
    if canonical in table.types:
        if canonical != name and name not in table.first_names:
            warnings.append(f"{one_line(typed, 60)} is called --{canonical} now: the profile writes {canonical}")
        return canonical
    if table.known(name):
        return name
    whole = unabbreviate(name, known) or unabbreviate(name, frozenset(table.gone)) or _ABBREVIATED.get(name)
    if whole:
        return table.canonical(whole)
    near = table.suggest(name)
    warnings.append(
        f"{one_line(typed, 60)} is no flag of SGLang {table.newest}" + (f": did you mean --{near}?" if near else "")
    )
    return name


# Abbreviations that were unique in the versions people posted from, and are not any more.
_ABBREVIATED = {
    "nccl-init": "dist-init-addr",
    "speculative-draft": "speculative-draft-model-path",
    "speculative-num-draft": "speculative-num-draft-tokens",
    "mem-fraction": "mem-fraction-static",
    "chunked-prefill": "chunked-prefill-size",
    "served-model": "served-model-name",
    "tensor-parallel": "tp-size",
    "data-parallel": "dp-size",
}


def _is_number(text: str) -> bool:
    return re.fullmatch(r"-?\d+(\.\d*)?([eE][-+]?\d+)?|-?\.\d+", text) is not None


def _value(kind: str | None, text: str) -> object:
    """A word as a profile's value: numbers where the flag takes numbers, JSON objects as tables."""
    sort = (kind or "").removeprefix("many_")
    if sort in ("int", "size", "") and re.fullmatch(r"-?\d{1,18}", text):
        return int(text)
    if sort in ("float", "") and _is_number(text):
        return float(text)
    if text.startswith("{"):
        try:
            table = json.loads(text)
        except ValueError:
            return text
        if (
            isinstance(table, dict)
            and flag_words("x", table)[1:] == (json.dumps(table, separators=(",", ":"), ensure_ascii=False),)
            and "null" not in text
        ):
            return table
    return text
