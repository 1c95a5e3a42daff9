"""What people paste around a launch command, taken away: prose, fences, prompts, quotes; and what kind of text is left.

A text is tried as what it looks like (a manifest, a unit, a Dockerfile, Python), then as shell text, then the lines around
each call alone. Nothing in it is run.
"""

import html
import re
import shlex
import textwrap
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace

from tui.core.errors import UsageError
from tui.core.profiles.importing import batch_job
from tui.core.profiles.importing.bash_tree import MAX_BYTES, Unclosed
from tui.core.profiles.importing.call import Call, Reading
from tui.core.profiles.importing.servers import in_shell
from tui.core.profiles.importing.shell import Shell
from tui.core.text import one_line

_DASHES = re.compile(r"(?<=\s)[\u2013\u2014\u2012\u2212]{1,2}(?=[A-Za-z])")
_QUOTES = str.maketrans(
    {"\u201c": '"', "\u201d": '"', "\u201e": '"', "\u2018": "'", "\u2019": "'", "\u00a0": " ", "\u202f": " "}
    | dict.fromkeys("\u200b\u200c\u200d\u2060\ufeff", "")
)
_PROMPT = re.compile(
    r"^[ \t]*(?:\((?:[\w.-]+|\([\w.-]+\)[ \t]*)\)[ \t]*)*(?:\[?[\w.-]+@[\w.-]+[^\n$#%]{0,80}[$#%]|(?:ba|z)?sh-[\d.]+[$#]|\$|[\u276f\u279c]"
    r"(?:[ \t]+[~\w./-]{1,80}(?=[ \t]))?)[ \t]+(?=\S)"
)
# What other tools write on a line of its own, and the shell text that it means.
_DIALECTS = [
    (re.compile(rf"^[ \t]*{pattern}"), plain)
    for pattern, plain in (
        (r"(?:!(?=[\w/])|%%(?:bash|sh)\b.*|\+{1,3}[ \t]+(?=\w))", ""),  # a notebook, set -x
        (r"(?:%env|set)[ \t]+(?=[A-Z_]\w*=)", "export "),  # a notebook, cmd.exe
        (r"\$env:(\w+)[ \t]*=[ \t]*", r"export \1="),  # PowerShell
        (r"(?:\[[\w.]+\][ \t]*)?\$([A-Za-z_]\w*)[ \t]+=[ \t]*", r"\1="),
        (r"(?:\[[\w.]+\][ \t]*)\$([A-Za-z_]\w*)[ \t]*=[ \t]*", r"\1="),
        (r"(?i:param)[ \t]*\([ \t]*$", ""),
        (r"set -[gU]?x[ \t]+(\w+)[ \t]+(?=\S)", r"export \1="),  # fish
        (r"([A-Za-z_]\w*)[ \t]*(?:\?|::?)=[ \t]*", r"\1="),  # a Makefile
        (r"@-?(?=[\w$])", ""),
    )
]
_FENCE = re.compile(r"^[ \t>]*(?:[-*+][ \t]+|\d+[.)][ \t]+)?(```+|~~~+)[ \t]*([\w.+-]*)")
_MARKS = re.compile(r"^[ \t]*(?:>[ \t]?)*(?:(?:[-*+\u2022]|\d{1,3}[.):])[ \t]+)?(?:#+[ \t]*(?=\S))?")
_CALL = re.compile(
    r"(?:^|(?<=[\s\"'`(]))(?:[\w./$-]*python[\d.]*[ \t]+-m[ \t]+sglang\.launch_server|sglang[ \t]+serve)\b.*"
)
_RELEVANT = re.compile(r"sglang|launch_server|--model")
_SERVER_LINE = re.compile(r"launch_server\b|\bsglang[ \t]+serve\b")


def servers_in(text: str, reading: Reading, env: Mapping[str, str] | None = None, depth: int = 0) -> list[Call]:
    """Every server call in a text, in order, whatever the text is. `env` is what a shell around it exported.

    Raises UsageError where nothing was found and the text cannot be read.
    """
    if not _RELEVANT.search(text):
        return []
    reading.inner = servers_in
    failure: UsageError | None = None
    for reader in (_manifest, _service, _python, _shell, _lists, _cut):
        try:
            if found := reader(text, reading, dict(env or {}), depth):
                return found
        except Unclosed as error:
            failure = failure or error
    if failure:
        raise failure
    return []


# What pgrep -a and ps -eo pid,args print: a number, and what was started.
_PROCESS = re.compile(r"^[ \t]*\d{1,8}[ \t]+(?=\S*(?:python|sglang)[\w.-]*(?:[ \t]|$))")
_A_SERVER = re.compile(r"\bsglang(?:[. ](?:launch_server|serve)\b|/launch_server\.py\b)")


def tidied(text: str, warnings: list[str]) -> str:
    """Undoes what posting does to a text: typography, escapes of a web page, quoting, line ends."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    if text.count("\0") > 2 and "\n" not in text:  # /proc/PID/cmdline
        text = shlex.join(text.rstrip("\0").split("\0"))
    plain = _DASHES.sub("--", text.translate(_QUOTES))
    if plain != text:
        warnings.append("typographic quotes, dashes or blanks were replaced by plain ones")
    if re.search(r"&(?:amp|quot|lt|gt|#39|#x27);", plain):
        plain = html.unescape(plain)
        warnings.append("the escapes of a web page were replaced by what they stand for")
    lines = plain.split("\n")
    filled = [line for line in lines if line.strip()]
    while filled and all(line.lstrip().startswith(">") for line in filled):
        lines = [line.lstrip().removeprefix(">").removeprefix(" ") for line in lines]
        filled = [line for line in lines if line.strip()]
    return textwrap.dedent("\n".join(_of_processes(lines, warnings)))


def _of_processes(lines: list[str], warnings: list[str]) -> list[str]:
    """Lines of a list of processes (`pgrep -a`, `ps -eo pid,args`) without their numbers, and without other processes."""
    listed = [line for line in lines if _PROCESS.match(line)]
    others = [line for line in listed if not _A_SERVER.search(line)]
    if len(others) == len(listed):
        return lines
    if others:
        warnings.append(f"a list of processes: {len(others)} that start no server are left out")
    return [_PROCESS.sub("", line) for line in lines if line not in others]


def blocks(text: str) -> list[tuple[str, int]]:
    """The fenced blocks of Markdown, each with the number of lines in front of it."""
    lines = text.split("\n")
    found: list[tuple[str, int]] = []
    fence, start = "", 0
    for number, line in enumerate(lines):
        match = _FENCE.match(line)
        if match and not fence:
            fence, start = match[1], number + 1
        elif match and fence and not match[2] and match[1].startswith(fence[:3]):
            found.append((textwrap.dedent("\n".join(lines[start:number])), start))
            fence = ""
    if fence:
        found.append(("\n".join(lines[start:]), start))
    return found


_CMD = re.compile(r"(?im)[ \t]\^[ \t]*$|^[ \t]*@echo off|^[ \t]*set[ \t]+[a-z_]\w*=")
_POWERSHELL = re.compile(r"(?m)[ \t]`[ \t]*$|^[ \t]*\$env:\w")
_DRIVE = re.compile(r"(?<![\w\"'])[A-Za-z]:\\[^\s\"'|&<>]*")


def _of_windows(text: str) -> str:
    """Text for PowerShell or cmd.exe with its variables and paths as a POSIX shell writes them."""
    cmd = _CMD.search(text) is not None
    if not cmd and not _POWERSHELL.search(text):
        return text
    text = re.sub(r"(?m)^(?P<head>[ \t]*\[\w+\][ \t]*\$\w+[ \t]*=.*),[ \t]*$", r"\g<head>", text)  # of param( )
    text = re.sub(r"(?im)(^[ \t]*param[ \t]*\([ \t]*\n(?:[^()\n]*\n){0,60})[ \t]*\)[ \t]*$", r"\1", text)
    text = re.sub(r"%([A-Za-z_]\w+)%", r"${\1}", text) if cmd else text
    return _DRIVE.sub(lambda path: path[0].replace("\\", "\\\\"), text)


def _without_prompts(text: str) -> str:
    """Shell text without prompts, and with the line ends that another shell or an escape made put right."""
    text = _of_windows(text)
    lines: list[str] = []
    shown = text.split("\n")
    for number, line in enumerate(shown):
        below = shown[number + 1].lstrip() if number + 1 < len(shown) else ""
        if lines and lines[-1].rstrip().endswith("\\"):
            line = re.sub(r"^[ \t]*>[ \t](?=\s*\S)", "", line)
        else:
            line = _PROMPT.sub("", line)
            for pattern, meant in _DIALECTS:
                line = pattern.sub(meant, line)
        if below.startswith("-"):  # ` and ^ continue a line on Windows, \\ is a backslash that was escaped
            line = re.sub(r"(?<=\s)(?:\\\\|`|\^)[ \t]*$", lambda _: "\\", line)
        lines.append(line)
    return "\n".join(lines)


def _shell(text: str, reading: Reading, env: dict[str, str], depth: int) -> list[Call]:
    text = _without_prompts(text)
    found = in_shell(text, Shell(reading, env), depth=depth)
    if not found or not depth:
        # A call in a branch that would not be taken is still one that was posted.
        lines = {call.line for call in found}
        others = in_shell(text, Shell(reading, env), depth=depth, branches=False)
        found += [call for call in others if call.line not in lines]
    if batch_job.asks(text):
        return [batch_job.as_job(call, text) for call in found]
    if job := re.findall(r"(?m)^#(?:PBS|BSUB)[ \t]+([^\n#]*)", text):
        left = one_line(", ".join(option.strip() for option in job), 300)
        found = [call.warn(f"of the job these were left out: {left}") for call in found]
    return found


def _cut(text: str, reading: Reading, env: dict[str, str], depth: int) -> list[Call]:
    """The lines of each call alone: its variables above it, its continuations, without list marks, quotes and `#`."""
    found: list[Call] = []
    lines = text.split("\n")
    end = 0
    for number, line in enumerate(lines):
        if number < end or not _SERVER_LINE.search(line):
            continue
        start = number
        while start > end and re.search(r"\\\s*$|^\W*(?:export[ \t]+)?[A-Za-z_]\w*=\S*\s*$", lines[start - 1]):
            start -= 1
        end = number + 1
        while end < len(lines) and (
            lines[end - 1].rstrip().endswith("\\") or _MARKS.sub("", lines[end]).startswith("--")
        ):
            end += 1
        piece = "\n".join(_MARKS.sub("", part) for part in lines[start:end])
        for attempt in (piece, *_inline(line)):
            calls: list[Call] = []
            with suppress(UsageError):
                calls = _shell(attempt, reading, env, depth + 1)
            found += [replace(call, line=start + call.line) for call in calls]
            if calls:
                break
    rest = sum(1 for line in lines if line.strip()) - len({call.line for call in found})
    if found and rest:
        found = [call.miss(f"the text around the call in line {call.line} is not shell text") for call in found]
    return found


def _inline(line: str) -> Iterator[str]:
    """What stands between backticks, or behind the last quote, of a line that has a call."""
    for match in re.finditer(r"`([^`\n]{10,4000})`", line):
        if _SERVER_LINE.search(match[1]):
            yield match[1]
    if call := _CALL.search(line):
        yield re.sub(r"[\"'`.,;)\]]+$", "", call[0])


def _manifest(text: str, reading: Reading, env: dict[str, str], depth: int) -> list[Call]:
    if not re.search(r"(?m)^[ \t]*(?:- +)*[\"']?[\w./-]+[\"']?[ \t]*:(?:[ \t\[]|$)|^[ \t]*[\[{]", text):
        return []
    first = re.search(r"(?m)^#!|<<-?[ \t]*['\"]?\w", text)
    if first and _is_shell_first(text, first.start()):
        return []
    from tui.core.profiles.importing.manifests import servers_of_manifest

    return servers_of_manifest(text, reading, depth)


def _is_shell_first(text: str, at: int) -> bool:
    """Whether a script begins before any key of a manifest does."""
    key = re.search(r"(?m)^(?:apiVersion|kind|services|version|name|spec|x-[\w-]+)[ \t]*:", text)
    return key is None or at < key.start()


def _service(text: str, reading: Reading, env: dict[str, str], depth: int) -> list[Call]:
    from tui.core.profiles.importing import service_files

    readers: tuple[tuple[str, Callable[[str, Reading], list[Call]]], ...] = (
        (r"(?m)^[ \t]*ExecStart[ \t]*=", service_files.servers_of_unit),
        (r"(?m)^[ \t]*\[(?:program|fcgi-program):", service_files.servers_of_supervisor),
        (r"(?m)^[ \t]*(?:FROM|CMD|ENTRYPOINT)[ \t]+\S", service_files.servers_of_dockerfile),
    )
    for pattern, reader in readers:
        if re.search(pattern, text) and (found := reader(text, reading)):
            return found
    return []


def _python(text: str, reading: Reading, env: dict[str, str], depth: int) -> list[Call]:
    if len(text) > MAX_BYTES:
        return []
    from tui.core.profiles.importing.python_text import servers_of_python

    return servers_of_python(text, reading)


def _lists(text: str, reading: Reading, env: dict[str, str], depth: int) -> list[Call]:
    from tui.core.profiles.importing.python_text import servers_of_lists

    return servers_of_lists(text, reading) if len(text) <= MAX_BYTES else []
