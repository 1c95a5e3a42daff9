"""Results to take along: CSV for a spreadsheet, Markdown for an issue, JSON lines for another eagletui.

Nothing secret leaves, and no cell is taken for a formula, a column or markup by what reads it.
"""

import csv
import io
import itertools
import json
import math
import re
import shlex
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import tui
from tui.core.bench.capacity import answer_words
from tui.core.errors import UsageError
from tui.core.experiment import planned
from tui.core.masking import mask_secrets
from tui.core.model.result import Distribution, Result
from tui.core.results.codec import to_json
from tui.core.results.flat import flat
from tui.core.results.store import without_secrets
from tui.core.text import one_line
from tui.core.verdicts import stats
from tui.core.verdicts.judging import screened_words
from tui.core.verdicts.metric import DEFAULT, default_for, metric
from tui.core.verdicts.pairing import Launch, Setting, Side, configuration, launches, setting
from tui.core.verdicts.same_text import fact
from tui.core.verdicts.sentences import count, load_words, sets_words

_LAUNCHES = 3  # of level L2, as for a verdict
_FORMULA = ("=", "+", "-", "@")
_NONE = "–"
_ENTITIES = {"<": "&lt;", ">": "&gt;", "&": "&amp;", "|": "\\|", "`": "'", "@": "&#64;", "[": "\\[", "*": "\\*"}


@dataclass(frozen=True)
class _Group:
    """Runs of one configuration in one setting."""

    name: str  # A, B, … in the order in which they were given
    results: tuple[Result, ...]
    launches: tuple[Launch, ...]  # of the runs that count

    @property
    def level(self) -> str:
        """L0: one run; L1: restarts are not told apart; L2: at least three launches."""
        if len(self.launches) >= _LAUNCHES:
            return "L2"
        return "L1" if sum(len(launch.values) for launch in self.launches) > 1 else "L0"

    @property
    def rate(self) -> float | None:
        """Tokens a second of one user: geometric mean over launches."""
        if not self.launches:
            return None
        return math.exp(statistics.fmean(launch.datum for launch in self.launches))

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 % of `rate`, from at least three launches."""
        if len(self.launches) < _LAUNCHES:
            return None
        found = stats.paired([launch.datum for launch in self.launches])
        return math.exp(found.low), math.exp(found.high)


def _groups(results: Sequence[Result]) -> list[_Group]:
    found: dict[tuple[Setting, object], list[Result]] = {}
    for result in results:
        found.setdefault((setting(result), configuration(result)), []).append(result)
    names = ("".join(letters) for size in itertools.count(1) for letters in itertools.product("ABCDEFGHIJKLMNOPQRSTUVWXYZ", repeat=size))  # fmt: skip
    yardstick = metric(DEFAULT)
    return [
        _Group(name, tuple(group), launches([result for result in group if result.valid], yardstick))
        for name, group in zip(names, found.values(), strict=False)
    ]


def _safe(text: str) -> str:
    return mask_secrets(text.encode("utf-8", "backslashreplace")).decode("utf-8", "replace")


# Lines of JSON --------------------------------------------------------------------------------------------------------


def jsonl(results: Iterable[Result]) -> str:
    """Whole records, one a line: `eagletui results import` reads them."""
    return "".join(json.dumps(to_json(without_secrets(result)), ensure_ascii=False) + "\n" for result in results)


# CSV ------------------------------------------------------------------------------------------------------------------


def as_csv(results: Sequence[Result]) -> str:
    """One row a result: the flat record, what was launched, and what its configuration rests on."""
    groups = {result.result_id: group for group in _groups(results) for result in group.results}
    rows = [_csv_row(result, groups[result.result_id]) for result in results]
    columns = list(dict.fromkeys(key for row in rows for key in row))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_csv_cell(row.get(column)) for column in columns] for row in rows)
    return out.getvalue()


def _csv_row(result: Result, group: _Group) -> dict[str, object]:
    server = without_secrets(result).server
    low, high = group.interval or (None, None)
    return {
        **flat(result),
        "sets": dict(server.sets),
        "gpus": "; ".join(server.gpus),
        "driver": server.driver,
        "argv": shlex.join(server.argv),
        "level": group.level if result.valid else None,
        "launches": len(group.launches),
        "per_user_tok_s_low": low,
        "per_user_tok_s_high": high,
    }


def _csv_cell(value: object) -> object:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return value
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False) if value else ""
    text = one_line(_safe(text), 30_000)
    return f"'{text}" if text.startswith(_FORMULA) else text


# Markdown -------------------------------------------------------------------------------------------------------------


def markdown(results: Sequence[Result], stored: Iterable[Result] = ()) -> str:
    """A table with one line a configuration and load, the verdicts between them, and what was launched.

    Args:
        stored: everything there is: how much launches differ on this host comes from it.
    """
    groups = _groups(results)
    lines = [
        "| | configuration | bench | load | tok/s a user | 95 % | level | launches × runs | tok/s | TTFT | TPOT "
        "| accept length |",
        "|---|---|---|---|--:|---|---|--:|--:|--:|--:|--:|",
    ]
    lines += ["| " + " | ".join(_text(cell) for cell in _row(group)) + " |" for group in groups]
    lines += ["", "tok/s a user: geometric mean over launches. TTFT and TPOT: medians. "
              "L0: one run; L1: restart variance not measured; L2: three launches or more."]  # fmt: skip
    said = _verdicts(groups, tuple(stored))
    if said:
        lines += ["", *(f"- {_text(line)}" for line in said)]
    for group in groups:
        lines += ["", *_launched(group)]
    lines += ["", f"<sub>eagletui {tui.__version__}</sub>"]
    return _safe("\n".join(lines)) + "\n"


def _row(group: _Group) -> list[str]:
    first = group.results[0]
    valid = [result for result in group.results if result.valid]
    low_high = group.interval
    runs = sum(len(launch.values) for launch in group.launches)

    def median(read: Callable[[Result], float | None], digits: int) -> str:
        values = [value for result in valid if (value := read(result)) is not None]
        return f"{statistics.median(values):,.{digits}f}" if values else _NONE

    return [
        group.name,
        _configured(first),
        first.bench,
        _load_words(group),
        f"{group.rate:,.1f}" if group.rate is not None else _NONE,
        f"{low_high[0]:,.1f} … {low_high[1]:,.1f}" if low_high else _NONE,
        group.level if valid else "invalid",
        f"{len(group.launches)} × {runs // len(group.launches)}" if group.launches else _NONE,
        median(_rate, 1),
        median(lambda result: _middle(result.latencies.ttft), 1),
        median(lambda result: _middle(result.latencies.tpot), 2),
        median(_accept_length, 2),
    ]


def _load_words(group: _Group) -> str:
    """The load; of a search, with what each launch's answers say of it."""
    point = group.results[0].point
    yardstick = metric(default_for(point))
    found = [yardstick.show(math.exp(launch.datum)) for launch in launches(group.results, yardstick)]
    # Nothing to compare by is an answer too: none holds, or all that were asked about.
    found = found or [answer_words(result.capacity) for result in group.results if result.capacity]
    return f"{load_words(point)}: {', '.join(found) or _NONE}" if point.search else load_words(point)


def _configured(result: Result) -> str:
    server = result.server
    name = server.profile or server.model or "server"
    return f"{name} ({sets_words(server.sets)})" if server.sets else name


def _rate(result: Result) -> float | None:
    rates = result.throughput
    return rates.output_tok_s if rates.output_tok_s is not None else rates.output_tok_s_full


def _middle(distribution: Distribution | None) -> float | None:
    return distribution.p50 if distribution is not None else None


def _accept_length(result: Result) -> float | None:
    value = flat(result)["accept_length"]
    return value if isinstance(value, float) else None


def _verdicts(groups: Sequence[_Group], stored: tuple[Result, ...]) -> list[str]:
    """Each configuration against the first one of its setting; and what does not count, with the reason."""
    said = []
    by_setting: dict[Setting, list[_Group]] = {}
    for group in groups:
        by_setting.setdefault(setting(group.results[0]), []).append(group)
    for first, *others in by_setting.values():
        asked = [
            (Side(first.name, first.name, first.results), Side(other.name, other.name, other.results))
            for other in others
            if first.launches and other.launches
        ]
        try:
            verdicts = planned.verdicts(asked, metric(default_for(setting(first.results[0]).point)), stored)
        except UsageError as error:  # a launch is on both sides
            said.append(f"no verdict: {error.message}")
            continue
        for verdict in verdicts:
            said.append(verdict.text)
            if verdict.same_text is not None:
                said.append(f"{verdict.b.ref} against {first.name}, {fact(verdict.same_text, first.name)}")
        if screened := screened_words(verdicts):
            said.append(screened)
    for group in groups:
        if invalid := [result for result in group.results if not result.valid]:
            reasons = dict.fromkeys(_why(result) for result in invalid)
            said.append(f"{group.name}: {count(len(invalid), 'run')} left out: {'; '.join(reasons)}")
    return said


def _why(result: Result) -> str:
    failed = [guard.text for guard in result.guards if guard.status == "failed"]
    return "; ".join(failed or result.suspicious) or "invalid"


def _launched(group: _Group) -> list[str]:
    server = without_secrets(group.results[0]).server
    gpus = [f"{len(list(same))} × {name}" for name, same in itertools.groupby(server.gpus)]
    versions = sorted({result.server.version for result in group.results if result.server.version})
    tools = sorted({" ".join(filter(None, (r.tool.name, r.tool.version))) for r in group.results})
    facts = [
        f"server {', '.join(versions)}" if versions else "",
        ", ".join(gpus),
        f"driver {server.driver}" if server.driver else "",
        f"model {server.model}" if server.model else "",
        f"on {server.host}",
        f"measured by {', '.join(tools)}",
    ]
    lines = [f"**{group.name}** " + _text("; ".join(filter(None, facts)))]
    if server.argv:
        words = [f"{name}={shlex.quote(value)}" for name, value in server.env.items()]
        command = " ".join([*words, shlex.join(server.argv)])
        ticks = max((len(run) for run in re.findall(r"`+", command)), default=0)
        fence = "`" * max(3, ticks + 1)
        lines += ["", f"{fence}sh", one_line(command, 20_000), fence]
    return lines


def _text(text: str) -> str:
    return "".join(_ENTITIES.get(character, character) for character in one_line(text, 2000))
