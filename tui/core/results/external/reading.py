"""Benchmarks that somebody else ran: what the tools print or write becomes results.

Text blocks and one-line figures, JSON and JSON lines, in any mixture and however they were pasted: padded, coloured,
quoted, fenced, behind a log's prefix. `docs/results.md` lists the forms. A figure that the file leaves out stays None.
"""

import codecs
import re
from collections import Counter
from collections.abc import Container, Iterator
from dataclasses import dataclass, replace
from typing import Any

from tui.core.errors import Slug, UsageError
from tui.core.model.result import SCHEMA, Result
from tui.core.records import from_json
from tui.core.results.external import foreign, forms
from tui.core.results.external.blocks import BlockReader, is_title
from tui.core.results.external.decoding import decoded
from tui.core.results.external.merging import Records, merged
from tui.core.results.external.pairs import PairReader
from tui.core.results.external.posted import DATA, TOOLS, Posted
from tui.core.results.external.prefixes import unprefixed
from tui.core.results.external.to_result import result_of
from tui.core.results.store import is_result_id
from tui.core.text import sanitize

_EXPECTED = (
    'paste the block that begins with "Serving Benchmark Result", another tool\'s whole table, or give the JSON or JSONL '
    "file that it wrote (docs/results.md lists the tools)"
)
_QUOTE = re.compile(r"^\s*(?:>\s?)+")
_YAML = re.compile(r"^[ -]{0,8}(?:guidellm_version: |type_: generative_benchmark$)", re.MULTILINE)
_YAML_LIMIT = 4 << 20  # characters


def decode(data: bytes) -> str:
    """The text of a file, whatever editor or shell wrote it: UTF-8, or UTF-16 with its mark."""
    utf_16 = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return data.decode("utf-16" if utf_16 else "utf-8-sig", "replace")


@dataclass(frozen=True)
class Imported:
    """One record of a text."""

    result: Result
    rows: tuple[dict[str, object], ...] = ()  # one a request where it holds them: i, in, out, ttft_s, gaps_us, err


@dataclass(frozen=True)
class Import:
    """What a text holds, in its order, and what of it was left out."""

    records: tuple[Imported, ...]
    problems: tuple[str, ...] = ()


def read_posted(text: str, *, host: str | None = None, profile: str | None = None) -> Import:
    """The results that a text holds, with their requests.

    Args:
        host: where they were measured; "posted" where it isn't said.
        profile: of the server, to compare with results of ours.

    Raises UsageError where it holds nothing that is read; what is another tool's is named.
    """
    left_out = _LeftOut()
    found: list[Imported] = []
    times: Counter[str] = Counter()
    for record in merged(_records(text, left_out)):
        if isinstance(record, Posted) and (lacks := _lacks(record)):
            left_out.is_cut("a result", record.tool, lacks)
            continue
        rows: tuple[dict[str, object], ...] = ()
        if isinstance(record, Result):
            result = record
        else:
            result, rows = result_of(record), tuple(record.rows)
            times[result.result_id] += 1
            if (nth := times[result.result_id]) > 1:  # the very same figures twice are two runs
                result = replace(result, result_id=f"{result.result_id}-{nth}")
        server = replace(result.server, host=host or result.server.host, profile=profile or result.server.profile)
        found.append(Imported(replace(result, server=server), rows))
    if not found:
        raise left_out.refusal()
    return Import(tuple(found), left_out.problems({record.result.tool.name for record in found}))


class _LeftOut:
    """What of a text is no record."""

    def __init__(self) -> None:
        self.cut: dict[str, tuple[str, str, str]] = {}  # by tool: of what, what is missing, what to give
        self.others: dict[str, foreign.Foreign] = {}  # other tools' output by name, in its order
        self._problems: list[tuple[str, str | None]] = []  # and the tool that it is of, where that is one that is read

    def add(self, problem: str, tool: str | None = None) -> None:
        self._problems.append((problem, tool))

    def is_of_another(self, place: str, other: foreign.Foreign | None) -> bool:
        """Whether it is another tool's, which is then reported once, however many lines show it."""
        if other is not None and other.what not in self.others:
            self.others[other.what] = other
            self.add(f"{place} is from {other.what}: left out", other.tool)
        return other is not None

    def is_cut(self, place: str, tool: str | None, lacks: str) -> None:
        """A part of a tool's output: what is missing is said, and nothing of it is read."""
        about = TOOLS.get(tool or "", {})
        what = f"{about['what']}'s output" if "what" in about else "a table of results"
        self.add(f"{place} is a part of {what}, without {lacks}: left out")
        self.cut.setdefault(tool or "", (what, lacks, about.get("give", "paste all of it")))

    def problems(self, read: Container[str | None]) -> tuple[str, ...]:
        """Without those that only say that a tool's output is there whose records were read, or called a part."""
        return tuple(text for text, tool in self._problems if tool is None or not (tool in read or tool in self.cut))

    def refusal(self) -> UsageError:
        """Where nothing is a record."""
        for what, lacks, give in self.cut.values():
            return UsageError(f"it is a part of {what}, without {lacks}", give, slug=Slug.FOREIGN_BENCHMARK)
        if self.others:
            names = list(self.others)
            advice = self.others[names[0]].advice.replace("{other}", DATA["advice"]["other"])
            many = ", ".join(names[:-1]) + " and " + names[-1] if names[1:] else names[0]
            return UsageError(f"it is {many}", advice, slug=Slug.FOREIGN_BENCHMARK)
        why = f": {self._problems[0][0]}" if self._problems else ""
        return UsageError(f"it holds no benchmark result{why}", _EXPECTED, slug=Slug.NOTHING_RECOGNISED)


def _clean(line: str) -> str:
    return _QUOTE.sub("", sanitize(line).replace("\xa0", " ").replace("\u200b", "")).rstrip()


def _lacks(posted: Posted) -> str:
    """Without which figures a record of another tool is a part of one."""
    known = posted.figures.keys() | posted.broken | ({"verdict"} if posted.verdict or posted.against else set())
    wanted = [choice.split("|") for choice in TOOLS.get(posted.tool or "", {}).get("whole", ())]
    return ", ".join(DATA["missing"][keys[0]] for keys in wanted if known.isdisjoint(keys))


def _records(text: str, left_out: _LeftOut) -> Iterator[Records]:
    """Records as they come: those of a table together."""
    lines = unprefixed([_clean(line) for line in re.split(r"\r\n|\n|\r", text)])
    whole = "\n".join(lines)
    if whole.lstrip().startswith("[") and (array := decoded(whole, len(whole) - len(whole.lstrip()))):
        yield from _of_array(array[0] if isinstance(array[0], list) else [], left_out)
        return
    if found := _of_yaml(whole, left_out):
        yield found
        return
    reader, pairs = BlockReader(), PairReader()
    offset = after = no_table = 0
    for number, line in enumerate(lines, 1):
        begin, offset, place = offset, offset + len(line) + 1, f"line {number}"
        if begin < after:
            continue  # inside an object that was read
        brace = line.find("{")
        if brace >= 0 and (value := decoded(whole, begin + brace)) is not None:
            raw, end = value
            if isinstance(raw, dict) and (found := _of_object(raw, place, left_out)):
                after = end
                yield from _each(pairs.flush(), reader.flush())
                yield found
                continue
            if isinstance(raw, dict) and left_out.is_of_another(place, foreign.of_object(raw)):
                after = end
                continue
        elif line.startswith('{"'):
            left_out.add(f"{place} is not a whole JSON object: left out")
        read = forms.table_at(lines, number - 1) if number > no_table else None
        if read is not None and not read[0]:
            no_table = number + read[1].taken - 1  # its rows are looked at one by one, and not as heads of the rest
        elif read is not None:
            records, table = read
            after = begin + sum(len(row) + 1 for row in lines[number - 1 : number - 1 + table.taken])
            yield from _each(pairs.flush(), reader.flush())
            if table.cut is not None:
                left_out.is_cut(place, records[0].tool, table.cut)
            else:
                yield records
            continue
        other = foreign.of_line(line)
        elsewhere = is_title(line) or (other is not None and other.tool != pairs.tool)
        taken, ended = (False, pairs.flush()) if elsewhere else pairs.feed(line)
        yield from _each(ended)
        if taken or left_out.is_of_another(place, other):
            yield from _each(reader.leave())
        else:
            yield from _each(reader.feed(line))
    yield from _each(pairs.flush(), reader.flush())


def _of_yaml(text: str, left_out: _LeftOut) -> Records:
    """The records of GuideLLM's report in YAML, which has the keys of the one in JSON."""
    if len(text) > _YAML_LIMIT or not _YAML.search(text) or "<<" in text:  # merges may grow without bound
        return []
    import yaml  # of which nothing else here has need

    try:
        raw = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (yaml.YAMLError, ValueError, RecursionError):
        return []
    return _of_object(raw, "it", left_out) if isinstance(raw, dict) else []


def _each(*ended: list[Posted]) -> Iterator[Records]:
    return ([posted] for records in ended for posted in records)


def _of_array(items: list[Any], left_out: _LeftOut) -> Iterator[Records]:
    if records := forms.of_rows(items):
        yield records
        return
    for number, item in enumerate(items, 1):
        if isinstance(item, dict):
            if found := _of_object(item, f"entry {number}", left_out):
                yield found
            else:
                left_out.is_of_another(f"entry {number}", foreign.of_object(item))


def _of_object(raw: dict[str, Any], place: str, left_out: _LeftOut) -> Records:
    if not ("result_id" in raw and "schema" in raw):
        return list(forms.of_object(raw))
    try:  # one of ours
        if raw["schema"] != SCHEMA:
            raise ValueError("another version wrote it")
        result = from_json(Result, raw)
        if not is_result_id(result.result_id):
            raise ValueError("result_id: not a file name")
    except ValueError as error:
        left_out.add(f"{place} is not a result of this version of eagletui ({error}): left out")
        return []
    return [result]
