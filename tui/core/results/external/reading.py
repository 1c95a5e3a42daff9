"""Benchmarks that somebody else ran: what SGLang's and vLLM's tools print or write becomes results.

Text blocks and one-line figures, JSON and JSON lines, in any mixture and however they were pasted: padded, coloured,
quoted, fenced, behind a log's prefix. `docs/results.md` lists the forms. A figure that the file leaves out stays None.
"""

import codecs
import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from tui.core.errors import Slug, UsageError
from tui.core.model.result import SCHEMA, Result
from tui.core.records import from_json
from tui.core.results.external import foreign, forms
from tui.core.results.external.blocks import BlockReader
from tui.core.results.external.evalscope import PERCENTILES
from tui.core.results.external.plausibility import ROUNDING
from tui.core.results.external.posted import DATA, Posted
from tui.core.results.external.to_result import result_of
from tui.core.results.store import is_result_id
from tui.core.text import sanitize

_EXPECTED = (
    'paste the block that begins with "Serving Benchmark Result", or give the JSON or JSONL file that '
    "sglang.benchmark.serving, bench_speculative or vllm bench serve wrote"
)
_QUOTE = re.compile(r"^\s*(?:>\s?)+")
_PIECE = 4096  # characters
_LONGEST_TOKEN = 16  # of JSON, but strings


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
    for record in _merged(_records(text, left_out), left_out):
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
    if not found and left_out.others:
        names = list(left_out.others)
        advice = left_out.others[names[0]].advice.replace("{other}", DATA["advice"]["other"])
        many = ", ".join(names[:-1]) + " and " + names[-1] if names[1:] else names[0]
        raise UsageError(f"it is {many}", advice, slug=Slug.FOREIGN_BENCHMARK)
    if not found:
        why = f": {left_out.problems[0]}" if left_out.problems else ""
        raise UsageError(f"it holds no benchmark result{why}", _EXPECTED, slug=Slug.NOTHING_RECOGNISED)
    return Import(tuple(found), tuple(left_out.problems))


class _LeftOut:
    """What of a text is no record."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.others: dict[str, foreign.Foreign] = {}  # other tools' blocks by name, in their order

    def is_of_another(self, place: str, other: foreign.Foreign | None) -> bool:
        """Whether it is another tool's, which is then reported once, however many lines show it."""
        if other is not None and other.what not in self.others:
            self.others[other.what] = other
            self.problems.append(f"{place} is from {other.what}: left out")
        return other is not None


def _clean(line: str) -> str:
    return _QUOTE.sub("", sanitize(line).replace("\xa0", " ").replace("\u200b", "")).rstrip()


def _records(text: str, left_out: _LeftOut) -> Iterator[Posted | Result]:
    lines = [_clean(line) for line in re.split(r"\r\n|\n|\r", text)]
    whole = "\n".join(lines)
    if whole.lstrip().startswith("[") and (array := _decoded(whole, len(whole) - len(whole.lstrip()))):
        for number, item in enumerate(array[0] if isinstance(array[0], list) else (), 1):
            if isinstance(item, dict):
                record = _of_object(item, f"entry {number}", left_out)
                if record is not None:
                    yield record
                else:
                    left_out.is_of_another(f"entry {number}", foreign.of_object(item))
        return
    reader = BlockReader()
    offset = after = 0
    for number, line in enumerate(lines, 1):
        begin, offset, place = offset, offset + len(line) + 1, f"line {number}"
        if begin < after:
            continue  # inside an object that was read
        brace = line.find("{")
        if brace >= 0 and (decoded := _decoded(whole, begin + brace)) is not None:
            raw, end = decoded
            record = _of_object(raw, place, left_out) if isinstance(raw, dict) else None
            if record is not None:
                after = end
                yield from reader.flush()
                yield record
                continue
            if isinstance(raw, dict) and left_out.is_of_another(place, foreign.of_object(raw)):
                after = end
                continue
        elif line.startswith('{"'):
            left_out.problems.append(f"{place} is not a whole JSON object: left out")
        if (table := forms.table_at(lines, number - 1)) is not None:
            records, taken = table
            after = begin + sum(len(row) + 1 for row in lines[number - 1 : number - 1 + taken])
            yield from reader.flush()
            yield from records
        elif left_out.is_of_another(place, foreign.of_line(line)):
            yield from reader.leave()
        else:
            yield from reader.feed(line)
    yield from reader.flush()


def _decoded(text: str, at: int) -> tuple[Any, int] | None:
    """The JSON value that begins there, and where it ends.

    Tried on longer and longer pieces: what is none costs the piece that shows it (the error counts the lines before it).
    """
    size = _PIECE
    while True:
        piece = text[at : at + size]
        try:
            value, length = json.JSONDecoder().raw_decode(piece)
            return value, at + length
        except json.JSONDecodeError as error:
            cut = error.pos > size - _LONGEST_TOKEN or error.msg.startswith("Unterminated string")
            if not cut or len(piece) < size:
                return None
        except (ValueError, RecursionError):
            return None
        size *= 4


def _of_object(raw: dict[str, Any], place: str, left_out: _LeftOut) -> Posted | Result | None:
    if not ("result_id" in raw and "schema" in raw):
        return forms.of_object(raw)
    try:  # one of ours
        if raw["schema"] != SCHEMA:
            raise ValueError("another version wrote it")
        result = from_json(Result, raw)
        if not is_result_id(result.result_id):
            raise ValueError("result_id: not a file name")
    except ValueError as error:
        left_out.problems.append(f"{place} is not a result of this version of eagletui ({error}): left out")
        return None
    return result


def _merged(records: Iterator[Posted | Result], left_out: _LeftOut) -> Iterator[Posted | Result]:
    """A tool may print its block and then the same run as JSON: that is one record. So are a summary and its percentiles."""
    held: Posted | Result | None = None
    for record in records:
        if isinstance(record, Posted) and record.kind == PERCENTILES:
            if isinstance(held, Posted) and held.tool == record.tool:
                for key, value in record.figures.items():
                    held.put(key, value)
            else:
                left_out.is_of_another("a table", foreign.EVALSCOPE_PERCENTILES)
            continue
        if isinstance(held, Posted) and isinstance(record, Posted) and _same_run(held, record):
            for key, value in held.figures.items():
                record.put(key, value)
            record.dataset = record.dataset or held.dataset
            record.model = record.model or held.model
        elif held is not None:
            yield held
        held = record
    if held is not None:
        yield held


def _same_run(text: Posted, other: Posted) -> bool:
    keys = ("successful", "input_tokens", "output_tokens", "duration_s", "req_per_s", "mean_ttft_ms")
    both = [(text.number(key), other.number(key)) for key in keys]
    shared = [(a, b) for a, b in both if a is not None and b is not None]
    # Text is rounded and JSON is not; two blocks with the very same figures are two blocks.
    return (
        text.kind == other.kind == "serving"
        and len(shared) >= 4
        and all(abs(a - b) <= ROUNDING for a, b in shared)
        and any(a != b for a, b in shared)
    )
