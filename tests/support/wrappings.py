"""Everything that people's tools put around a log before they paste it, applied to logs whose answer is known."""

import html
import json
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.log_reports import report
from tui.core.text import sanitize

LOGS = Path(__file__).parents[1] / "data" / "logs"
SAME = ("phase", "outcome", "cause", "rank", "advice", "set", "progress", "ranks_seen", "last_decode", "ledger")


@dataclass
class Wrapped:
    """Lines of a wrapped log, and where each line of the log itself stands among them."""

    lines: list[str]
    places: list[int]  # of the log's line n: index n - 1, from 1


Wrap = Callable[[list[str], random.Random], Wrapped]


def each(change: Callable[[str, int, random.Random], str]) -> Wrap:
    """A wrapping that changes every line alone; the lines are counted from 1."""

    def wrap(lines: list[str], chance: random.Random) -> Wrapped:
        return Wrapped([change(line, at, chance) for at, line in enumerate(lines, 1)], list(range(1, len(lines) + 1)))

    return wrap


def before(prefix: Callable[[int, random.Random], str], bare: bool = False) -> Wrap:
    """A prefix before every line; `bare`: an empty line loses the blanks at the prefix's end."""
    return each(lambda line, at, chance: prefix(at, chance) + line if line or not bare else prefix(at, chance).rstrip())


def _clock(at: int) -> str:
    return f"{10 + at // 3600 % 12:02}:{at // 60 % 60:02}:{at % 60:02}"


def _prose(lines: list[str], chance: random.Random) -> Wrapped:
    head = [
        "### Describe the bug",
        "",
        "My server does not do what I want, please help.",
        "",
        "```bash",
        "nvidia-smi",
        "```",
        "",
    ]
    language = chance.choice(["", "text", "log", "shell"])
    return Wrapped(
        [*head, "```" + language, *lines, "```", "", "Any ideas?"],
        [at + len(head) + 1 for at in range(1, len(lines) + 1)],
    )


def _page(lines: list[str], chance: random.Random) -> Wrapped:
    inner = [html.escape(line) for line in lines]
    return Wrapped(["<div><pre>", *inner, "</pre></div>"], [at + 1 for at in range(1, len(lines) + 1)])


def _details(lines: list[str], chance: random.Random) -> Wrapped:
    found = _prose(lines, chance)
    return Wrapped(["<details><summary>Log</summary>", "", *found.lines, "</details>"], [at + 2 for at in found.places])


def _narrow(wide: int, trimmed: bool) -> Wrap:
    def wrap(lines: list[str], chance: random.Random) -> Wrapped:
        found: list[str] = []
        places, broken = [], 0
        for line in lines:
            places.append(len(found) + 1)
            whole = "\r" in line  # a bar: a terminal shows its last frame
            line = line if whole else sanitize(line)
            parts = [line] if whole else [line[at : at + wide] for at in range(0, len(line), wide)] or [""]
            broken += len(parts) > 1
            found += [part.rstrip() if trimmed else part for part in parts]
        # Of one line nobody can tell that a terminal broke it.
        return Wrapped(found, places) if broken > 2 else Wrapped(lines, list(range(1, len(lines) + 1)))

    return wrap


def _among(lines: list[str], chance: random.Random, mine: str, others: dict[str, list[str]]) -> Wrapped:
    """Several containers write into one stream."""
    found: list[str] = []
    places = []
    for line in lines:
        while chance.random() < 0.3:
            name = chance.choice(sorted(others))
            found.append(name + chance.choice(others[name]))
        places.append(len(found) + 1)
        found.append(mine + line)
    for name, texts in others.items():
        found += [name + text for text in texts]
    return Wrapped(found, places)


_ACCESS = [
    '10.0.0.3 - - [06/Oct/2026:20:01:03 +0000] "GET / HTTP/1.1" 502 157',
    "2026/10/06 20:01:04 [error] 31#31: *1 connect() failed",
]
_CLIENT = [
    "Traceback (most recent call last):",
    "requests.exceptions.ConnectionError: refused",
    "waiting for the server",
]


def _compose(lines: list[str], chance: random.Random) -> Wrapped:
    return _among(lines, chance, "sglang-1  | ", {"nginx-1   | ": _ACCESS, "client-1  | ": _CLIENT})


def _pods(lines: list[str], chance: random.Random) -> Wrapped:
    return _among(lines, chance, "[pod/llm-0/server] ", {"[pod/llm-0/proxy] ": _ACCESS, "[pod/job-x/client] ": _CLIENT})


def _stern(lines: list[str], chance: random.Random) -> Wrapped:
    return _among(
        lines,
        chance,
        "llm-7f9c4d-x2x4 server ",
        {"gate-66d5-zk2 gateway ": _ACCESS, "llm-7f9c4d-x2x4 client ": _CLIENT},
    )


def _docker_line(line: str, at: int, chance: random.Random) -> str:
    return json.dumps({"log": line + "\n", "stream": "stderr", "time": f"2026-10-06T{_clock(at)}.123456789Z"})


def _pieces(make: Callable[[str, bool], str], limit: int) -> Wrap:
    def wrap(lines: list[str], chance: random.Random) -> Wrapped:
        found: list[str] = []
        places = []
        for line in lines:
            places.append(len(found) + 1)
            parts = [line[at : at + limit] for at in range(0, len(line), limit)] or [""]
            found += [make(part, part_at == len(parts) - 1) for part_at, part in enumerate(parts)]
        return Wrapped(found, places)

    return wrap


def _docker_piece(part: str, last: bool) -> str:
    return json.dumps({"log": part + "\n" * last, "stream": "stderr", "time": "2026-10-06T20:01:03.1Z"})


def _unknown(lines: list[str], chance: random.Random) -> Wrapped:
    """A prefix of random structure: words, counters, times and signs."""
    fields: list[Callable[[int], str]] = []
    for _ in range(chance.randint(1, 4)):
        word = "".join(chance.choice("abcdefghkmnprstuvz") for _ in range(chance.randint(2, 9)))
        start = chance.randint(0, 5000)
        kinds: list[Callable[[int], str]] = [
            lambda at, word=word: word,
            lambda at, word=word, start=start: f"{word}-{start}",
            lambda at, start=start: f"{start + at}",
            lambda at: f"2026-10-06T{_clock(at)}.{at:03}Z",
            lambda at: _clock(at),
            lambda at, word=word, start=start: f"{word}={start + at % 7}",
        ]
        left, right = chance.choice([("", ""), ("[", "]"), ("(", ")"), ("<", ">"), ("{", "}")])
        kind = chance.choice(kinds)
        fields.append(lambda at, kind=kind, left=left, right=right: left + kind(at) + right)
    gap, end = chance.choice([" ", " - ", " | ", "  "]), chance.choice([": ", " | ", " >> ", "> ", " : ", " ~ "])
    return before(lambda at, _: gap.join(field(at) for field in fields) + end)(lines, chance)


def _cut(lines: list[str], chance: random.Random) -> Wrapped:
    stamped = [at for at, line in enumerate(lines[:-1]) if line.startswith("[20")]
    if stamped and stamped[0] == 0 and len(stamped) > 1:
        lines = [lines[0][chance.randint(1, 18) :], *lines[1:]]
    return Wrapped(lines, list(range(1, len(lines) + 1)))


WRAPPINGS: dict[str, Wrap] = {
    "quoted": before(lambda at, _: "> "),
    "quoted, empty lines trimmed": before(lambda at, _: "> ", bare=True),
    "quoted without blanks": before(lambda at, _: ">"),
    "quoted twice": before(lambda at, _: "> > "),
    "quoted three times, close": before(lambda at, _: ">>> ", bare=True),
    "indented by 1": before(lambda at, _: " "),
    "indented by 4": before(lambda at, _: "    ", bare=True),
    "indented by a tab": before(lambda at, _: "\t"),
    "numbered 12:": before(lambda at, _: f"{at}: ", bare=True),
    "numbered by grep": before(lambda at, _: f"{at}:"),
    "numbered with an arrow": before(lambda at, _: f"{at:6}\u2192"),
    "numbered with a bar": before(lambda at, _: f"{at:4} | ", bare=True),
    "numbered, cat": before(lambda at, _: f"{at:6}\t"),
    "numbered, less": before(lambda at, _: f"{at:7} "),
    "numbered from 4711": before(lambda at, _: f"{at + 4710} | "),
    "Markdown": _prose,
    "a details element": _details,
    "a page": _page,
    "escaped": each(lambda line, at, _: html.escape(line)),
    "carriage returns": each(lambda line, at, _: line + "\r"),
    "coloured": each(lambda line, at, _: f"\x1b[3{at % 7 + 1}m{line}\x1b[0m"),
    "colours without escape": each(lambda line, at, _: f"[36m(Engine pid=77)[0m {line}"),
    "colours written out": each(lambda line, at, _: f"^[[32m{line}^[[0m"),
    "journald": before(lambda at, _: f"Oct 06 {_clock(at)} gpu1 sglang[4242]: "),
    "journald, precise": before(lambda at, _: f"2026-10-06T{_clock(at)}+0200 gpu1 python3[4242]: "),
    "kubectl": before(lambda at, _: f"2026-10-06T{_clock(at)}.118402311Z "),
    "GitHub Actions": before(lambda at, _: f"2026-10-06T{_clock(at)}.1184023Z "),
    "GitHub's gh": before(lambda at, _: f"build\tRun tests\t2026-10-06T{_clock(at)}.1184023Z "),
    "compose alone": before(lambda at, _: "sglang-1  | ", bare=True),
    "swarm": before(lambda at, _: "llm_sglang.1.k2x9w7q4@gpu-node-1    | "),
    "compose": _compose,
    "pods": _pods,
    "stern": _stern,
    "Docker's file": each(_docker_line),
    "Docker's file in pieces": _pieces(_docker_piece, 400),
    "CRI": before(lambda at, _: f"2026-10-06T{_clock(at)}.118402311+02:00 stderr F "),
    "CRI in pieces": _pieces(lambda part, last: f"2026-10-06T20:01:03.1+02:00 stderr {'PF'[last]} {part}", 400),
    "JSON lines": each(
        lambda line, at, _: json.dumps({"ts": 1_791_316_863 + at, "level": "info", "caller": "run.go:7", "msg": line})
    ),
    "JSON lines, nested": each(
        lambda line, at, _: json.dumps(
            {"@timestamp": f"2026-10-06T{_clock(at)}Z", "k8s": {"pod": "llm-0", "body": line}}
        )
    ),
    "Ray": before(lambda at, _: "(SGLangEngine pid=3111, ip=10.0.0.3) "),
    "Ray, coloured": before(lambda at, _: "\x1b[36m(RayActor pid=3111)\x1b[0m "),
    "Ray, repeated": each(
        lambda line, at, chance: (
            f"(RayActor pid=3111) {line}" + (" [repeated 7x across cluster]" if line and chance.random() < 0.2 else "")
        )
    ),
    "a wrapper with SGLang's stamp": before(lambda at, _: f"[2026-10-06 {_clock(at)}] (TaskRunner pid=3483799) "),
    "typographic quotes": each(lambda line, at, _: re.sub(r'"([^"]*)"', "\u201c\\1\u201d", line)),
    "blanks of a word processor": each(lambda line, at, _: line.replace("  ", " \xa0")),
    "flattened": each(lambda line, at, _: line.lstrip(" ")),
    "padded": each(lambda line, at, _: line if "\r" in line else line.ljust(180)),
    "a table": each(lambda line, at, _: f'{1791316863000 + at},"' + line.replace('"', '""') + '"'),
    "a box": each(lambda line, at, _: line if "\r" in line else f"\u2502 {line:<200} \u2502"),
    "code by line": each(lambda line, at, _: f"`{line}`" if line else line),
    "Fluent Bit": each(lambda line, at, _: json.dumps({"stream": "stderr", "logtag": "F", "log": line})),
    "logcli": before(lambda at, _: f'2026-10-06T{_clock(at)}+02:00 {{app="sglang", pod="llm-0"}} '),
    "Slurm": before(lambda at, _: "0: "),
    "torchrun": before(lambda at, _: "[default0]:"),
    "mpirun": before(lambda at, _: "[1,0]<stderr>:"),
    "a logger": before(lambda at, chance: f"2026-10-06 {_clock(at)},{at % 1000:03} - __main__ - INFO - "),
    "two wrappers": before(lambda at, _: f"Oct 06 {_clock(at)} gpu1 docker[99]: llm-a1 || "),
    "unknown": _unknown,
    "unknown, again": _unknown,
    "80 columns": _narrow(80, False),
    "80 columns, trimmed": _narrow(80, True),
    "132 columns": _narrow(132, False),
    "cut": _cut,
}


_STAMP = re.compile(r"\[(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d)(?:\.\d{3})?(?: [A-Z_]+\d+)*\] ")
Format = Callable[[str, str, str, str], str]
# Formats that a logging configuration may give SGLang's records: (date, time, source, message) to a line.
FORMATS: dict[str, Format] = {
    "levels and lines": lambda day, clock, source, text: f"{day} {clock} INFO 4242 [{source}] {text}",
    "Python's own": lambda day, clock, source, text: (
        f"{day} {clock},118 - sglang.srt.{source.split('.')[0]} - INFO - {text}"
    ),
    "basicConfig": lambda day, clock, source, text: f"INFO:sglang.srt.{source.split('.')[0]}:{text}",
    "loguru": lambda day, clock, source, text: f"{day} {clock}.118 | INFO     | {source} - {text}",
    "logfmt": lambda day, clock, source, text: f'time="{day} {clock}" level=info src={source} msg="{text}"',
    "JSON": lambda day, clock, source, text: json.dumps(
        {"asctime": f"{day} {clock},118", "levelname": "INFO", "filename": source, "message": text}
    ),
    "JSON, epoch": lambda day, clock, source, text: json.dumps(
        {"level": 20, "ts": 1_791_316_863.5, "event": text, "logger": source}
    ),
}


def formatted(lines: list[str], make: Format | None) -> list[str]:
    """Records in another format, without rank tags, which no other format has; `make` None: in SGLang's own."""
    found = []
    for at, line in enumerate(lines):
        match = _STAMP.match(line)
        source = ("scheduler.py:3120", "model_runner.py:412", "http_server.py:77")[at % 3]
        if match is None:
            found.append(line)
        elif make is None:
            found.append(f"[{match[1]} {match[2]}] {line[match.end() :]}")
        else:
            found.append(make(match[1], match[2], source, line[match.end() :]))
    return found


def raw_lines(path: Path) -> list[str]:
    """The lines of a recorded log."""
    lines = path.read_bytes().decode("utf-8", "surrogateescape").split("\n")
    return lines[:-1] if not lines[-1] else lines


def as_bytes(lines: list[str]) -> bytes:
    """Lines as a file."""
    return "\n".join(lines).encode("utf-8", "surrogateescape") + b"\n"


def differences(path: Path, name: str, plain: dict[str, Any], seed: int = 0, then: str | None = None) -> Iterator[str]:
    """How the answer to a wrapped log differs from that to the log itself; nothing where it is the same.

    Args:
        then: a second wrapping around the first.
    """
    chance = random.Random(f"{path.name} {name} {then} {seed}")
    wrapped = WRAPPINGS[name](raw_lines(path), chance)
    if then is not None:
        outer = WRAPPINGS[then](wrapped.lines, chance)
        wrapped = Wrapped(outer.lines, [outer.places[at - 1] for at in wrapped.places])
    found = report(as_bytes(wrapped.lines))
    for key in SAME:
        if found[key] != plain[key]:
            yield f"{key}: {str(found[key])[:200]} instead of {str(plain[key])[:200]}"
    mine, theirs = found["evidence"], plain["evidence"]
    if (mine and mine["text"]) != (theirs and theirs["text"]):
        yield f"evidence: {mine} instead of {theirs}"
    elif mine and theirs and theirs["line"] and mine["line"] != wrapped.places[theirs["line"] - 1]:
        yield f"line {mine['line']} instead of {wrapped.places[theirs['line'] - 1]}"
