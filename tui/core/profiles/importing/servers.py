"""Finds the SGLang server among commands: what its call looks like, and where it is inside other programs' words."""

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from tui.core.errors import UsageError
from tui.core.profiles.importing.call import SHELLS, Call, Reading
from tui.core.profiles.importing.shell import Command, Shell
from tui.core.profiles.importing.wrappers import changes_nothing, unwrapped
from tui.core.sglang.engine import SGLANG
from tui.core.text import one_line

MAX_SERVERS = 64
MAX_DEPTH = 6  # of scripts in scripts
MAX_WORDS = 2000  # that are looked through for a call

_MODULE = SGLANG.launch_module
MENTIONED = re.compile(rf"{re.escape(_MODULE)}|\bsglang[\s\"',\\-]+serve\b|launch_server\.py")
_PYTHON = re.compile(r"(python|pypy)[\d.]*(t|d)?|.*[$`{<(].*", re.DOTALL)  # or what only running could tell
_MODEL = re.compile(r"--model(?:[-_]path)?(?:=|$)|--config(?:=|$)")


def names_model(call: Call) -> bool:
    """Whether the flags say which model; a file of `--config` may."""
    return bool(model_word(call.argv)) or any(_MODEL.match(word) for word in call.argv)


def model_word(argv: Sequence[str]) -> tuple[str, ...]:
    """The model of `sglang serve MODEL`, which takes it as the first word, or as a flag."""
    start = flags_start(argv) or 0
    first = tuple(argv[start : start + 1])
    return first if start and argv[start - 1] == "serve" and first and first[0][:1] not in ("-", "") else ()


def flags_start(argv: Sequence[str]) -> int | None:
    """The number of words before the flags of an SGLang server call; None where it is none."""
    if not argv:
        return None
    program = argv[0].rpartition("/")[2]
    if program == "sglang":
        return 2 if len(argv) > 1 and argv[1] == "serve" else None
    if not _PYTHON.fullmatch(program):
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


def in_shell(text: str, shell: Shell, *, depth: int = 0, branches: bool = True) -> list[Call]:
    """Every server call of shell text, wrappers taken off. Raises UsageError where the text cannot be read."""
    found: list[Call] = []
    echoed: list[Call] = []
    beside: list[str] = []
    commands = shell.commands(text, branches=branches)
    for number, command in enumerate(commands):
        calls = _of_command(command, shell, depth)
        for call in calls if len(found) < MAX_SERVERS else ():
            following = commands[number + 1 :]
            call = _joined(call, command, following)
            values = [*call.argv, *call.wrapper, call.cwd or "", *(v for k, v in call.env.items() if k != "PATH")]
            group = echoed if command.argv[0] in ("echo", "printf") else found
            group.append(_around(call, command, following).leave(*shell.unresolved(values)))
        if not calls and not command.argv[0].startswith("-") and not changes_nothing(command.argv):
            beside.append(f"line {command.line}: {one_line(command.source, 100)}")
    guesses = [(line, f"line {line}: {sentence}") for line, sentence in dict.fromkeys(shell.guesses)]
    return [
        call.warn(*(sentence for line, sentence in guesses if line <= call.line)).miss(*beside, *call.missed)
        for call in found or echoed
    ]


def _of_command(command: Command, shell: Shell, depth: int) -> list[Call]:
    call = Call(command.argv, command.env, command.cwd, command.line)
    if calls := server_calls(call, shell.reading, depth):
        return calls
    here = command.here
    if here is None and command.redirects and command.argv[0] in ("echo", "printf"):
        here = "\n".join(command.argv[1:])
    if here is None or not MENTIONED.search(here) or depth >= MAX_DEPTH:
        return []
    inner = shell.reading.inner
    found = inner(here, shell.reading, dict(command.env), depth + 1) if inner else []
    return [replace(inner, line=command.line + inner.line if inner.line else command.line) for inner in found]


def _joined(call: Call, command: Command, following: Sequence[Command]) -> Call:
    """A command of one line whose backslashes were lost: flags that stand below it, one a line, are its own."""
    lost = _flags_below(command, following)
    if not lost or command.line != command.end_line or command.here is not None or not all(map(str.strip, call.argv)):
        return call
    words = [word for later in lost for word in later.argv]
    return replace(call, argv=(*call.argv, *words)).warn("the flags below the command were taken for its own")


def _flags_below(command: Command, following: Sequence[Command]) -> list[Command]:
    found = []
    for later in following:
        if not later.argv[0].startswith("-"):
            break
        found.append(later)
    return found


def _around(call: Call, command: Command, following: Sequence[Command]) -> Call:
    """What stands around a call and does not come along."""
    blank = not all(map(str.strip, command.argv))
    warnings = [
        f"line {later.line}: {one_line(later.source, 80)} is not part of the command: "
        "the line before it has no backslash at its end"
        for later in (_flags_below(command, following) if command.line != command.end_line or blank else ())
    ]
    call = call.miss(*warnings)
    if blank:
        call = call.warn(
            f"line {command.line}: a blank after a backslash ends the command there, and is an argument itself"
        )
    for target in command.redirects if command.here is None else ():
        call = call.warn(f"the output to {one_line(target, 80)} was left out: every run has its own log")
    return call


def server_calls(call: Call | None, reading: Reading, depth: int = 0) -> list[Call]:
    """Takes wrappers off until a server's call is reached; more than one where a script inside has more."""
    outer = call
    for _ in range(20):
        if call is None or not call.argv:
            break
        if call.argv[0] in ("-m", "--module"):
            call = replace(call, argv=("python3", "-m", *call.argv[1:]))
        if flags_start(call.argv) is not None:
            return [call]
        if call.program in SHELLS and (inside := _shell_string(call, reading, depth)):
            return inside
        if call.inside and call.argv[0].startswith("--") and names_model(call):
            argv = ("python3", "-m", _MODULE, *call.argv)
            return [replace(call, argv=argv).warn("the image's own entry point was taken for SGLang's server")]
        outer, call = call, unwrapped(call)
    return _somewhere_inside(outer, reading, depth) if outer is not None and outer.argv else []


def _somewhere_inside(call: Call, reading: Reading, depth: int) -> list[Call]:
    """A server's call behind words that nobody knows: `launcher --x python -m …`, `su -c "python -m …"`."""
    if changes_nothing(call.argv) or call.program in ("pip", "pip3", "man", "alias", "export"):
        return []
    for at in range(1, min(len(call.argv), MAX_WORDS)):
        word, near = call.argv[at], call.argv[at : at + 8]
        script = re.sub(r"^--?[\w-]+=", "", word)
        inside: list[Call] = []
        if word in ("-m", "--module") and near[1:2] == (_MODULE,):
            inside = [replace(call, argv=("python3", "-m", *call.argv[at + 1 :]))]
        elif flags_start(near) is not None:
            inside = [replace(call, argv=call.argv[at:])]
        elif " " in script and MENTIONED.search(script):
            with suppress(UsageError):
                inside = _shell_string(replace(call, argv=("sh", "-c", script)), reading, depth)
        elif word.rpartition("/")[2] in SHELLS and MENTIONED.search(" ".join(near[1:4])):
            inside = _shell_string(replace(call, argv=call.argv[at:]), reading, depth)
        if inside:
            front = f"in front of the call: {one_line(' '.join(call.argv[:at]), 100)}"
            return [one.miss(front) for one in inside]
    return []


def _shell_string(call: Call, reading: Reading, depth: int) -> list[Call]:
    """bash -c "..." and bash -lc "...", with the words behind it as $0, $1 and so on."""
    at = 1
    while at < len(call.argv) and call.argv[at].startswith(("-", "+")) and depth < MAX_DEPTH:
        word = call.argv[at]
        if re.fullmatch(r"-[a-z]*c[a-z]*", word):
            text = "".join(call.argv[at + 1 : at + 2])
            if not MENTIONED.search(text):
                return []
            # Inside a container another home is meant.
            home = replace(reading, home="~") if call.inside else reading
            found: list[Call] = []
            for branches in (True, False):
                shell = Shell(home, dict(call.env)).with_arguments(call.argv[at + 2 :] or ("bash",))
                shell.cwd = call.cwd
                found = found or in_shell(text, shell, depth=depth + 1, branches=branches)
            return [_as_inside(inner, call) for inner in found]
        at += 2 if word in ("-o", "+o", "--rcfile", "--init-file") else 1
    return []


def _as_inside(inner: Call, call: Call) -> Call:
    inner = inner.warn(*call.warnings).miss(*call.missed).leave(*call.unresolved)
    wrapper, inside = (*call.wrapper, *inner.wrapper), call.inside or inner.inside
    container = inner.container or call.container
    return replace(inner, line=call.line, where=call.where, wrapper=wrapper, inside=inside, container=container)
