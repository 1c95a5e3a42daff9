"""A table with one line a configuration and load, the verdicts between them, and what was launched."""

import math
import re
import shlex
import statistics
from collections.abc import Callable, Iterable, Sequence

import tui
from tui.core.experiment.export.groups import Group, groups
from tui.core.experiment.export.said import environment, said
from tui.core.masking.written import mask_text
from tui.core.model.result import Result
from tui.core.results.flat import READS
from tui.core.results.store import without_secrets
from tui.core.text import one_line
from tui.core.verdicts.metric import METRICS, default_for, metric
from tui.core.verdicts.pairing import launches
from tui.core.verdicts.sentences import answer_words, load_words, sets_words

_NONE = "–"
_ENTITIES = {"<": "&lt;", ">": "&gt;", "&": "&amp;", "|": "\\|", "`": "'", "@": "&#64;", "[": "\\[", "*": "\\*"}


def export(results: Sequence[Result], stored: Iterable[Result] = ()) -> bytes:
    found = groups(results)
    lines = [
        "| | configuration | bench | load | tok/s per user | 95 % | level | launches × runs | tok/s | TTFT | TPOT "
        "| accept length |",
        "|---|---|---|---|--:|---|---|--:|--:|--:|--:|--:|",
    ]
    lines += ["| " + " | ".join(_escaped(cell) for cell in _row(group)) + " |" for group in found]
    lines += ["", "tok/s per user: geometric mean over launches. TTFT and TPOT: medians. "
              "L0: one run; L1: restart variance not measured; L2: three launches or more."]  # fmt: skip
    sentences = said(found, tuple(stored))
    if sentences:
        lines += ["", *(f"- {_escaped(line)}" for line in sentences)]
    for group in found:
        lines += ["", *_launched(group)]
    lines += ["", f"<sub>eagletui {tui.__version__}</sub>"]
    return (mask_text("\n".join(lines)) + "\n").encode()


def _row(group: Group) -> list[str]:
    first = group.results[0]
    name = first.server.profile or first.server.model or "server"
    valid = [result for result in group.results if result.valid]
    low_high = group.interval
    runs = sum(len(launch.values) for launch in group.launches)

    def median(read: Callable[[Result], float | None], digits: int) -> str:
        values = [value for result in valid if (value := read(result)) is not None]
        return f"{statistics.median(values):,.{digits}f}" if values else _NONE

    return [
        group.name,
        f"{name} ({sets_words(first.server.sets)})" if first.server.sets else name,
        first.bench,
        _load_words(group),
        f"{group.rate:,.1f}" if group.rate is not None else _NONE,
        f"{low_high[0]:,.1f} … {low_high[1]:,.1f}" if low_high else _NONE,
        group.level if valid else "invalid",
        f"{len(group.launches)} × {runs // len(group.launches)}" if group.launches else _NONE,
        median(METRICS["output_tok_s"].of, 1),
        median(METRICS["ttft_ms"].of, 1),
        median(METRICS["tpot_ms"].of, 2),
        median(READS["accept_length"], 2),
    ]


def _load_words(group: Group) -> str:
    """The load; of a search, with what each launch's answers say of it."""
    point = group.results[0].point
    yardstick = metric(default_for(point))
    found = [yardstick.show(math.exp(launch.datum)) for launch in launches(group.results, yardstick)]
    # Nothing to compare by is an answer too: none holds, or all that were asked about.
    found = found or [answer_words(result.capacity) for result in group.results if result.capacity]
    return f"{load_words(point)}: {', '.join(found) or _NONE}" if point.search else load_words(point)


def _launched(group: Group) -> list[str]:
    server = without_secrets(group.results[0]).server
    lines = [f"**{group.name}** " + _escaped(environment(group))]
    if server.argv:
        words = [f"{name}={shlex.quote(value)}" for name, value in server.env.items()]
        command = " ".join([*words, shlex.join(server.argv)])
        ticks = max((len(run) for run in re.findall(r"`+", command)), default=0)
        fence = "`" * max(3, ticks + 1)
        lines += ["", f"{fence}sh", one_line(command, 20_000), fence]
    return lines


def _escaped(text: str) -> str:
    return "".join(_ENTITIES.get(character, character) for character in one_line(text, 2000))
