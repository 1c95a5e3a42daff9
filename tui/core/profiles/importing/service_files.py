"""Commands in systemd units, supervisord's programs and Dockerfiles, with the environment that these set.

Formats: systemd.service(5), systemd.exec(5) and systemd.syntax(7); supervisord's configuration; the Dockerfile reference.
"""

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from tui.core.profiles.importing.call import Call, Reading, filled
from tui.core.profiles.importing.servers import server_calls
from tui.core.profiles.importing.unresolved import Unresolved, unresolved
from tui.core.text import one_line

_QUIET = frozenset(["type", "restart", "restartsec", "standardoutput", "standarderror", "syslogidentifier", "killmode"])
_SHELL = ["sh", "-c"]
_SPECIFIER = re.compile(r"%(?:(%)|([A-Za-z]))")


def servers_of_unit(text: str, reading: Reading) -> list[Call]:
    """The servers of a unit's ExecStart lines."""
    found: list[Call] = []
    for section in _sections(text):
        env: dict[str, str] = {}
        cwd = None
        starts: list[tuple[int, str]] = []
        missed: list[str] = []
        left: list[str] = []
        gone: list[Unresolved] = []
        for line, key, value in section:
            name = key.lower()
            if name == "execstart":
                starts = [*starts, (line, re.sub(r"^[-@+!:|]+", "", value))] if value else []
            elif name == "environment":
                env |= dict(word.split("=", 1) for word in _split(value) if "=" in word)
            elif name in ("environmentfile", "passenvironment"):
                missed.append(f"line {line}: the variables of {one_line(value, 80)}, which are not in this text")
            elif name == "workingdirectory":
                cwd = value.removeprefix("-")
            elif name.startswith("exec"):
                missed.append(f"line {line}: {one_line(f'{key}={value}', 100)}")
            elif name not in _QUIET and section.name == "service":
                left.append(f"{key}={value}")
        env = {name: _specified(value, reading, gone) for name, value in env.items()}
        for line, command in starts:
            call = Call(tuple(_specified(word, reading, gone) for word in _split(command)), env, cwd, line)
            call = _variables(call, reading).leave(*gone).miss(*missed)
            if left:
                call = call.warn(f"of the unit these were left out: {one_line(', '.join(left), 300)}")
            found += server_calls(call, reading)
    return found


class _Section(list[tuple[int, str, str]]):
    """Line, key and value of an INI section."""

    name = ""


def _sections(text: str) -> list[_Section]:
    sections = [_Section()]
    for number, line in _whole_lines(text, "#;"):
        if header := re.match(r"[ \t]*\[([^\]\n]*)\]", line):
            sections.append(_Section())
            sections[-1].name = header[1].strip().lower()
        elif match := re.match(r"[ \t]*(?![#;])([\w.-]+)[ \t]*=[ \t]*(.*)$", line):
            if not sections[-1].name and match[1].lower().startswith("exec"):
                sections[-1].name = "service"
            sections[-1].append((number, match[1], match[2].strip()))
        elif line[:1] in " \t" and line.strip() and sections[-1]:
            where, key, value = sections[-1][-1]
            sections[-1][-1] = (where, key, f"{value} {line.strip()}")
    return sections


def _split(text: str) -> list[str]:
    """Words between blanks and quotes; where a quote stays open, between blanks."""
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def _specified(word: str, reading: Reading, gone: list[Unresolved]) -> str:
    """A word with %% for a percent sign; another specifier (%i, %h) is the manager's to know."""

    def value(match: re.Match[str]) -> str:
        given = "%" if match[1] else reading.given(match[0], match[2])
        if given is None:
            gone.append(unresolved(match[0], "is filled in by systemd"))
        return match[0] if given is None else given

    return _SPECIFIER.sub(value, word)


def _variables(call: Call, reading: Reading) -> Call:
    """systemd's own $NAME, a word of which becomes several, and ${NAME}, which stays one."""
    argv: list[str] = []
    for word in call.argv:
        alone = re.fullmatch(r"\$(\w+)", word)
        value = (reading.given(alone[1]) or call.env.get(alone[1])) if alone else None
        argv += _split(value) if value is not None else [word]
    return replace(call, argv=tuple(argv)).filled(reading, call.env, "systemd")


def servers_of_supervisor(text: str, reading: Reading) -> list[Call]:
    """The servers of supervisord's programs."""
    found: list[Call] = []
    for section in _sections(text):
        settings = {key.lower(): (line, value) for line, key, value in section}
        line, command = settings.get("command", (0, ""))
        if not section.name.startswith(("program:", "fcgi-program:")) or not command:
            continue
        env = _pairs_of(settings.get("environment", (0, ""))[1])
        argv = tuple(_split(re.sub(r"[ \t];.*$", "", command)))
        where = section.name.partition(":")[2]
        call = Call(argv, env, settings.get("directory", (0, None))[1], line, where).filled(reading, env)
        found += server_calls(call, reading)
    return found


def _pairs_of(text: str) -> dict[str, str]:
    """A="1",B='2',C=3."""
    pairs = re.findall(r"""([A-Za-z_]\w*)[ \t]*=[ \t]*("[^"]*"|'[^']*'|[^,\s]*)""", text)
    return {name: value.strip("\"'") for name, value in pairs}


@dataclass
class _Stage:
    """What a stage of a Dockerfile has said so far."""

    env: dict[str, str] = field(default_factory=dict)
    cwd: str | None = None
    entry: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)
    line: int = 0
    gone: list[Unresolved] = field(default_factory=list)

    def call(self) -> Call:
        """What it starts: behind an ENTRYPOINT for a shell nothing of CMD counts."""
        words = self.entry if self.entry[:2] == _SHELL else [*self.entry, *self.command]
        return Call(tuple(words), self.env, self.cwd, self.line, inside=True).leave(*self.gone)


def servers_of_dockerfile(text: str, reading: Reading) -> list[Call]:
    """The server that an image starts: ENTRYPOINT and CMD of each stage, in exec or in shell form."""
    stages = [_Stage()]
    args: dict[str, str] = {}
    for line, name, rest in _instructions(text):
        stage = stages[-1]
        known = {**args, **stage.env}
        match name:
            case "FROM":
                stages.append(_Stage())
            case "ARG":
                key, equals, value = rest.partition("=")
                given = reading.given(key.strip())
                if given is not None or equals:
                    args[key.strip()] = " ".join(_split(value)) if given is None else given
            case "ENV":
                stage.env |= _env_of(rest, known, reading, stage.gone)
            case "WORKDIR":
                stage.cwd = filled(rest, reading, known, stage.gone)
            case "ENTRYPOINT":
                stage.entry, stage.command, stage.line = _form(rest), [], line
            case "CMD":
                stage.command, stage.line = _form(rest), stage.line if stage.entry else line
    found = [call for stage in stages for call in server_calls(stage.call(), reading)]
    return [call.warn("paths are those inside the container") for call in found]


def _instructions(text: str) -> Iterator[tuple[int, str, str]]:
    """Line, name and arguments."""
    for number, line in _whole_lines(text, "#"):
        if match := re.match(r"[ \t]*([A-Za-z]+)[ \t]+(.*)$", line):
            yield number, match[1].upper(), match[2].strip()


def _whole_lines(text: str, comment: str) -> Iterator[tuple[int, str]]:
    """Lines with their numbers; a backslash continues a line, comments between are dropped."""
    held: list[str] = []
    start = 1
    for number, line in enumerate(text.split("\n"), 1):
        if held and line.lstrip()[:1] in [*comment]:
            continue
        start = start if held else number
        more = line.rstrip().endswith("\\")
        held.append(line.rstrip()[:-1] if more else line)
        if not more:
            yield start, " ".join([held[0], *(part.strip() for part in held[1:])])
            held = []
    if held:
        yield start, " ".join(held)


def _form(rest: str) -> list[str]:
    """CMD and ENTRYPOINT: a JSON list as it is, any other text for a shell."""
    if rest.startswith("["):
        try:
            return [str(word) for word in json.loads(rest)]
        except (ValueError, TypeError, RecursionError):
            pass
    return [*_SHELL, rest]


def _env_of(rest: str, known: Mapping[str, str], reading: Reading, gone: list[Unresolved]) -> dict[str, str]:
    """ENV A=1 B="2 3", and the old ENV A 1."""
    if not re.match(r"[A-Za-z_]\w*=", rest):
        name, _, value = rest.partition(" ")
        pairs = {name: value.strip()}
    else:
        pairs = dict(word.split("=", 1) for word in _split(rest) if "=" in word)
    return {name: reading.given(name) or filled(value, reading, known, gone) for name, value in pairs.items()}
