"""A posted launch command or script becomes a profile. Nothing in it is ever executed.

`shell` reads the text, `wrappers` takes off what stands around the server's call, `written` writes its flags as a
profile. Here the call is found among the other commands. What Kubernetes, compose, Docker and systemd files put around
a command is understood too.
"""

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from tui.core.errors import Slug, UsageError
from tui.core.profiles.importing.bash_tree import MAX_BYTES, unreadable
from tui.core.profiles.importing.shell import Command, Shell
from tui.core.profiles.importing.wrappers import Call, unwrapped
from tui.core.profiles.importing.written import profile_text
from tui.core.sglang.engine import SGLANG
from tui.core.text import one_line

MAX_FLAGS = 500

_MODULE = SGLANG.launch_module
_SHELLS = frozenset(["bash", "sh", "zsh", "dash", "ash", "ksh"])
_DASHES = re.compile(r"(?<=\s)[\u2013\u2014\u2012\u2212]{1,2}(?=[A-Za-z])")
_QUOTES = str.maketrans({"\u201c": '"', "\u201d": '"', "\u2018": "'", "\u2019": "'", "\u00a0": " ", "\u202f": " "})
_PROMPT = re.compile(r"^[ \t]*(?:\([\w.-]+\)[ \t]*)?(?:[\w.-]+@[\w.-]+[^\n$#]{0,80}[$#]|\$)[ \t]+(?=\S)")


@dataclass(frozen=True)
class ImportedCommand:
    """A launch command taken apart."""

    env: Mapping[str, str]  # what the call itself gets beyond the caller's environment
    argv: tuple[str, ...]  # of the innermost server call, flags as typed
    profile: str  # TOML, with whole, present-day flag names
    warnings: tuple[str, ...]


def import_command(text: str, home: str) -> ImportedCommand:
    """Takes shell text apart, or a Kubernetes, compose, Docker or systemd file around it; `home` is what `~` means.

    Raises UsageError: no server call in it (slug no_command), or it cannot be read (slug unreadable_command).
    """
    if len(text) > MAX_BYTES:
        raise unreadable(f"the text is longer than {MAX_BYTES // 1024} KiB")
    warnings: list[str] = []
    found = _found(_tidied(text, warnings), home)
    if not found:
        hint = "it must call python -m sglang.launch_server or sglang serve"
        raise UsageError("there is no SGLang launch command in this text", hint, slug=Slug.NO_COMMAND)
    call = found[0]
    if sum(word.startswith("-") for word in call.argv) > MAX_FLAGS:
        raise unreadable(f"the command has more than {MAX_FLAGS} flags")
    warnings += call.warnings
    if len(found) > 1:
        where = f", in line {call.line}," if call.line else ""
        warnings.append(f"the text has {len(found)} server calls; the first one{where} was taken")
    env = {k: v for k, v in call.env.items() if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", k) and k != "PATH"}
    profile = profile_text(call, (_flags_start(call.argv) or 0), env, warnings)
    return ImportedCommand(env, call.argv, profile, tuple(dict.fromkeys(one_line(text) for text in warnings)))


def _tidied(text: str, warnings: list[str]) -> str:
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
            return shlex.join(str(item) for item in json.loads(rest))
        except (ValueError, TypeError, RecursionError):
            return line
    return rest


# Finding the call ------------------------------------------------------------------------------------------------


def _found(text: str, home: str) -> list[Call]:
    if re.search(r"(?m)^\s*(?:-\s+)?(?:command|args|entrypoint)\s*:", text):
        from tui.core.profiles.importing.manifests import container_commands

        calls = [_server_call(Call(tuple(argv), env, line=0), home) for argv, env in container_commands(text)]
        if found := [_in_container(call) for call in calls if call is not None]:
            return found
    # A call in a branch that would not be taken is still the one that was posted.
    return _in_shell(text, Shell(home)) or _in_shell(text, Shell(home), branches=False)


def _in_container(call: Call) -> Call:
    """A manifest's call, with what it leaves to the cluster."""
    unset = dict.fromkeys(re.findall(r"\$\([A-Za-z_]\w*\)", "\n".join(call.argv)))
    warnings = [f"{name} is not set in this text: it stays as text" for name in unset]
    return call.warn(*warnings, "paths are those inside the container")


def _in_shell(text: str, shell: Shell, *, branches: bool = True) -> list[Call]:
    """Every server call of shell text, wrappers taken off."""
    found: list[Call] = []
    commands = shell.commands(text, branches=branches)
    for number, command in enumerate(commands):
        call = _server_call(Call(command.argv, command.env, command.cwd, command.line), shell.home)
        call = call or _in_here(command, shell)
        if call is not None:
            values = [*call.argv, *call.wrapper, call.cwd or "", *(v for k, v in call.env.items() if k != "PATH")]
            found.append(call.warn(*_around(command, commands[number + 1 :]), *shell.warnings(values)))
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
    if not all(map(str.strip, command.argv)):
        warnings.append(
            f"line {command.line}: a blank after a backslash ends the command there, and is an argument itself"
        )
    for target in command.redirects if command.here is None else ():
        warnings.append(f"the output to {one_line(target, 80)} was left out: every run has its own log")
    return warnings


def _in_here(command: Command, shell: Shell) -> Call | None:
    """A call inside a here-document, of `bash <<EOF` or `cat > run.sh <<EOF`."""
    if command.here is None or "sglang" not in command.here:
        return None
    if PurePosixPath(command.argv[0]).name not in _SHELLS | {"ssh", "cat", "tee", "sudo", "docker"}:
        return None
    found = _in_shell(command.here, Shell(shell.home, dict(command.env)))
    return replace(found[0], line=command.line + found[0].line) if found else None


def _flags_start(argv: Sequence[str]) -> int | None:
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
            if module in ("sglang", "sglang.cli.main") and tuple(argv[at + 2 : at + 3]) == ("serve",):
                return at + 3
            return None
        if argv[at].startswith(f"-m{_MODULE}"):
            return at + 1
        at += 2 if argv[at] in ("-X", "-W") else 1
    script = argv[at] if at < len(argv) else ""
    return at + 1 if script.endswith("launch_server.py") else None


def _server_call(call: Call | None, home: str) -> Call | None:
    """Takes wrappers off until the server's call is reached; None where there is none inside."""
    for _ in range(20):
        if call is None or _flags_start(call.argv) is not None:
            return call
        if call.program in _SHELLS:
            return _shell_string(call, home)
        call = unwrapped(call)
    return None


def _shell_string(call: Call, home: str) -> Call | None:
    """bash -c "..." and bash -lc "..."."""
    at = 1
    while at < len(call.argv) and call.argv[at].startswith(("-", "+")):
        word = call.argv[at]
        if re.fullmatch(r"-[a-z]*c[a-z]*", word):
            # Inside a container another home is meant.
            shell = Shell("~" if call.inside else home, dict(call.env))
            shell.cwd = call.cwd
            found = _in_shell("".join(call.argv[at + 1 : at + 2]), shell)
            if not found:
                return None
            inner = found[0].warn(*call.warnings)
            return replace(inner, line=call.line, wrapper=(*call.wrapper, *inner.wrapper), inside=call.inside)
        at += 2 if word in ("-o", "+o", "--rcfile", "--init-file") else 1
    return None
