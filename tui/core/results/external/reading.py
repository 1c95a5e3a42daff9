"""Benchmarks that somebody else ran: what SGLang's and vLLM's tools print or write becomes results.

Text blocks and one-line figures, JSON and JSON lines, in any mixture and however they were pasted: padded, coloured,
quoted, fenced, behind a log's prefix. `docs/results.md` lists the forms. A figure that the file leaves out stays None.
"""

import codecs
import hashlib
import itertools
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from tui.core.bench.collect import args_sha
from tui.core.errors import Slug, UsageError
from tui.core.model.result import (
    SCHEMA,
    Counts,
    Distribution,
    Latencies,
    Load,
    MeasuredServer,
    Result,
    SpecConfig,
    Speculation,
    Throughput,
    Tool,
)
from tui.core.results.codec import from_json
from tui.core.results.external import foreign
from tui.core.results.external.found import Posted
from tui.core.results.external.from_json import record_of
from tui.core.results.external.from_table import PERCENTILES, table_at
from tui.core.results.external.from_text import TextReader
from tui.core.results.store import is_result_id
from tui.core.text import sanitize

POSTED_HOST = "posted"  # the host of a record that says none

_EXPECTED = (
    'paste the block that begins with "Serving Benchmark Result", or give the JSON or JSONL file that '
    "sglang.benchmark.serving, bench_speculative or vllm bench serve wrote"
)
_QUOTE = re.compile(r"^\s*(?:>\s?)+")
_ROUNDING = 0.006  # of figures that are printed with two digits
_FASTEST_MS = 0.05  # a token: 20,000 tokens a second of one user
_PIECE = 4096  # characters
_LONGEST_TOKEN = 16  # of JSON, but strings
_LATENCY_POINTS = ("mean", "p50", "p90", "p95", "p99", "max")
# Figures that have a place of their own in a result; the others are kept under their names.
_PLACED = frozenset(
    [
        "backend",
        "request_rate",
        "max_concurrency",
        "num_prompts",
        "successful",
        "failed",
        "duration_s",
        "input_tokens",
        "output_tokens",
        "req_per_s",
        "input_tok_s",
        "output_tok_s",
        "total_tok_s",
        "accept_length",
    ]
)
_PLACED_LATENCY = re.compile(r"(mean|median|p90|p95|p99|max)_(ttft|tpot|itl|e2e)_ms")


def decode(data: bytes) -> str:
    """The text of a file, whatever editor or shell wrote it: UTF-8, or UTF-16 with its mark."""
    for mark, encoding in (
        (codecs.BOM_UTF8, "utf-8-sig"),
        (codecs.BOM_UTF16_LE, "utf-16"),
        (codecs.BOM_UTF16_BE, "utf-16"),
    ):
        if data.startswith(mark):
            return data.decode(encoding, "replace")
    return data.decode("utf-8", "replace")


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


def parse(text: str, *, host: str | None = None, profile: str | None = None) -> list[Result]:
    """The results that a text holds; see `read_posted`."""
    return [found.result for found in read_posted(text, host=host, profile=profile).records]


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
            result, rows = _result(record), tuple(record.rows)
            times[result.result_id] += 1
            if (nth := times[result.result_id]) > 1:  # the very same figures twice are two runs
                result = replace(result, result_id=f"{result.result_id}-{nth}")
        server = replace(result.server, host=host or result.server.host, profile=profile or result.server.profile)
        found.append(Imported(replace(result, server=server), rows))
    if not found and left_out.others:
        names = list(left_out.others)
        many = ", ".join(names[:-1]) + " and " + names[-1] if names[1:] else names[0]
        raise UsageError(f"it is {many}", left_out.others[names[0]].advice, slug=Slug.FOREIGN_BENCHMARK)
    if not found:
        why = f": {left_out.problems[0]}" if left_out.problems else ""
        raise UsageError(f"no benchmark result is in it{why}", _EXPECTED, slug=Slug.NOTHING_RECOGNISED)
    return Import(tuple(found), tuple(left_out.problems))


# Reading -------------------------------------------------------------------------------------------------------------


class _LeftOut:
    """What of a text is no record."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.others: dict[str, foreign.Foreign] = {}  # other tools' blocks by name, in their order

    def is_of_another(self, place: str, other: foreign.Foreign | None) -> bool:
        """Whether it is another tool's, which is then said once, however many lines tell it."""
        if other is not None and other.what not in self.others:
            self.others[other.what] = other
            self.problems.append(f"{place} is of {other.what}: left out")
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
    reader = TextReader()
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
            left_out.problems.append(f"{place} is no whole JSON object: left out")
        if (table := table_at(lines, number - 1)) is not None:
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
        return record_of(raw)
    try:  # one of ours
        if raw["schema"] != SCHEMA:
            raise ValueError("another version wrote it")
        result = from_json(Result, raw)
        if not is_result_id(result.result_id):
            raise ValueError("result_id: is no file name")
    except ValueError as error:
        left_out.problems.append(f"{place} is no result of this version of eagletui ({error}): left out")
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
        and all(abs(a - b) <= _ROUNDING for a, b in shared)
        and any(a != b for a, b in shared)
    )


# What a record says --------------------------------------------------------------------------------------------------


def _result(posted: Posted) -> Result:
    figures = posted.figures
    invalid = _reasons_against(posted)
    load = _load(posted)
    tool = posted.tool or "unknown"
    told = json.dumps([tool, posted.kind, sorted(figures.items()), sorted(posted.broken)], default=str)
    return Result(
        result_id=f"import-{hashlib.sha256(told.encode('utf-8', 'backslashreplace')).hexdigest()[:12]}",
        bench=posted.tag or _bench_name(posted),
        started_at=posted.started_at,
        tool=Tool(tool, backend=_text(figures.get("backend"))),
        server=MeasuredServer(
            POSTED_HOST,
            sets=_sets(posted),
            args=posted.server_args,
            args_sha=args_sha(posted.server_args),
            model=posted.model,
            version=posted.server_version,
            spec=posted.spec or _spec(posted),
        ),
        load=load,
        duration_s=posted.number("duration_s"),
        counts=Counts(
            ok=posted.count("successful"),
            errors=posted.count("failed"),
            input_tokens=posted.count("input_tokens"),
            output_tokens=posted.count("output_tokens"),
        ),
        throughput=Throughput(
            per_user_tok_s=_per_user(posted),
            output_tok_s_full=posted.number("output_tok_s") if "tok_s" not in figures else posted.number("tok_s"),
            input_tok_s=posted.number("input_tok_s"),
            total_tok_s=posted.number("total_tok_s"),
            req_s=posted.number("req_per_s"),
        ),
        latencies=Latencies(**{ours: _distribution(posted, name) for ours, name in _LATENCIES}),
        speculation=_speculation(posted),
        valid=not invalid,
        suspicious=(*invalid, *_doubts(posted)),
        posted={key: value for key, value in figures.items() if _is_extra(posted, key)},
        notes=_notes(posted),
    )


_LATENCIES = (("ttft", "ttft"), ("tpot", "tpot"), ("gap", "itl"), ("e2e", "e2e"))


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _bench_name(posted: Posted) -> str:
    name = posted.kind if posted.kind != "serving" else (posted.dataset or "serving")
    lengths = [posted.count(key) for key in ("input_len", "output_len")]
    return f"{name} {lengths[0]}/{lengths[1]}" if all(lengths) else name


def _load(posted: Posted) -> Load:
    rate = posted.figures.get("request_rate")
    batch = posted.count("batch_size")
    return Load(
        kind="open" if isinstance(rate, int | float) or rate == "trace" else "closed",
        concurrency=batch if batch is not None else posted.count("max_concurrency"),
        rate=float(rate) if isinstance(rate, int | float) else None,
        dataset=posted.dataset or "",
        seed=posted.seed,
        requests=posted.count("num_prompts"),
        input_len=posted.count("input_len"),
        output_len=posted.count("output_len"),
        ignore_eos=posted.ignore_eos,
        temperature=posted.temperature,
    )


def _sets(posted: Posted) -> dict[str, object]:
    """What a sweep of speculation varied: each of its records is another configuration."""
    flags = {
        "speculative-num-steps": "steps",
        "speculative-eagle-topk": "topk",
        "speculative-num-draft-tokens": "num_draft_tokens",
    }
    return {flag: value for flag, key in flags.items() if (value := posted.count(key)) is not None}


def _spec(posted: Posted) -> SpecConfig | None:
    if not posted.count("steps"):
        return None  # not said, or 0: without speculation
    return SpecConfig("", posted.count("steps"), posted.count("topk"), draft_tokens=posted.count("num_draft_tokens"))


def _speculation(posted: Posted) -> Speculation | None:
    accept_length = posted.number("accept_length")
    drafts, accepted = posted.count("drafts"), posted.count("accepted_tokens")
    if accept_length is None and not drafts:
        return None
    # vLLM's come from its counters, over this run; SGLang's is an average since the last flush of its cache.
    return Speculation(
        verify_steps=drafts,
        correct_drafts=accepted,
        proposed_drafts=posted.count("draft_tokens"),
        tau=(accepted + drafts) / drafts if drafts and accepted is not None else None,
        cycle_ms=posted.number("step_time_ms") if posted.kind == "speculative" else None,
        server_accept_length=accept_length,
    )


def _per_user(posted: Posted) -> float | None:
    if posted.token_times is not None:
        seconds, tokens = posted.token_times
        return tokens / seconds
    if posted.kind == "speculative":
        return posted.number("speed")
    if posted.kind == "one_batch" and (step := posted.number("step_time_ms")):
        return 1000 / step
    return None


def _no_latencies(posted: Posted) -> bool:
    """Whether its latencies are of no request at all: zeros that mean nothing."""
    return posted.count("successful") == 0 or any(key.endswith("_ms") for key in posted.broken)


def _distribution(posted: Posted, name: str) -> Distribution | None:
    if posted.count("successful") is None or _no_latencies(posted):
        return None
    values = {point: posted.number(f"{'median' if point == 'p50' else point}_{name}_ms") for point in _LATENCY_POINTS}
    if all(value is None for value in values.values()):
        return None
    return Distribution(posted.count("successful") or 0, **values)


def _is_extra(posted: Posted, key: str) -> bool:
    """Whether a figure has no place of its own in the result."""
    if _PLACED_LATENCY.fullmatch(key):
        # Without the count of requests they are no distribution, only figures.
        return posted.count("successful") is None and not _no_latencies(posted)
    return key not in _PLACED


def _reasons_against(posted: Posted) -> list[str]:
    """Why the record must not count."""
    reasons = []
    successful, failed = posted.count("successful"), posted.count("failed")
    if successful == 0:
        reasons.append("no request succeeded")
    if posted.broken:
        some = ", ".join(sorted(posted.broken)[:3]) + (" …" if len(posted.broken) > 3 else "")
        reasons.append(f"not a number: {some}")
    negative = sorted(key for key in posted.figures if (posted.number(key) or 0) < 0)
    if negative:
        reasons.append(f"negative: {', '.join(negative[:3])}")
    if posted.number("duration_s") == 0:
        reasons.append("it took no time")
    if successful and posted.count("output_tokens") == 0 and posted.kind == "serving":
        reasons.append("no token was generated")
    if failed and successful is not None and failed > successful:
        reasons.append(f"{failed} requests failed, {successful} succeeded")
    return reasons


def _doubts(posted: Posted) -> list[str]:
    """What a reader should know although the record counts."""
    return [said for doubt in _DOUBTS if (said := doubt(posted)) is not None]


COUNTS_REQUESTED = "SGLang's benchmark counts the requested length there, too much where replies stop early"


def _doubt_counted(posted: Posted) -> str | None:
    backend, output = posted.figures.get("backend"), posted.count("output_tokens")
    if posted.tool != "sglang" or not isinstance(backend, str) or output == posted.count("successful"):
        return None
    if not backend.startswith(("sglang-oai", "vllm", "lmdeploy")) or output is None:
        return None
    return f"backend {backend}: {COUNTS_REQUESTED}"


def _doubt_failures(posted: Posted) -> str | None:
    successful, prompts, failed = (posted.count(key) for key in ("successful", "num_prompts", "failed"))
    if not successful:
        return None
    if failed:
        return f"{failed} requests failed"
    if prompts is not None and successful < prompts:
        return f"{successful} of {prompts} requests succeeded"
    return None


def _doubt_concurrency(posted: Posted) -> str | None:
    limit, mean = posted.count("max_concurrency"), posted.number("concurrency")
    if limit and mean is not None and mean > limit * 1.01:
        return f"a mean concurrency of {mean:g} above the limit of {limit}"
    return None


def _doubt_sums(posted: Posted) -> str | None:
    duration = posted.number("duration_s")
    if posted.kind not in ("serving", "offline") or not duration:
        return None
    for tokens, rate in (
        ("successful", "req_per_s"),
        ("input_tokens", "input_tok_s"),
        ("output_tokens", "output_tok_s"),
    ):
        said, count = posted.number(rate), posted.number(tokens)
        if said is None or count is None:
            continue
        computed = count / duration
        # Both sides are rounded to two digits.
        if abs(computed - said) > _ROUNDING + 0.01 * computed + count * _ROUNDING / duration**2:
            return f"{rate} is {said:g}, but {tokens} over duration_s is {computed:.4g}"
    return None


def _doubt_order(posted: Posted) -> str | None:
    for name in ("ttft", "tpot", "itl", "e2e"):
        points = [
            (point, value)
            for point in ("median", "p90", "p95", "p99", "max")
            if (value := posted.number(f"{point}_{name}_ms")) is not None
        ]
        for (low, a), (high, b) in itertools.pairwise(points):
            if a > b + _ROUNDING:
                return f"{low} {name} is above {high} {name}"
    ttft, e2e = posted.number("mean_ttft_ms"), posted.number("mean_e2e_ms")
    if ttft is not None and e2e is not None and ttft > e2e + _ROUNDING and posted.count("successful"):
        return "the first token comes after the whole reply"
    return None


def _doubt_stream(posted: Posted) -> str | None:
    successful, output = posted.count("successful"), posted.count("output_tokens")
    if not successful or output is None or output <= successful:
        return None
    if posted.number("mean_ttft_ms") == 0:
        return "a first token after 0 ms: the replies were not streamed, or were empty"
    return None


def _doubt_pace(posted: Posted) -> str | None:
    """A time between tokens that no server has: chunks that came together, or replies that were not streamed."""
    successful, output = posted.count("successful"), posted.count("output_tokens")
    if _no_latencies(posted) or (successful is not None and output is not None and output <= successful):
        return None
    for name in ("tpot", "itl"):
        for point in ("median", "mean"):
            value = posted.number(f"{point}_{name}_ms")
            if value is not None and 0 <= value < _FASTEST_MS:
                return (
                    f"a {point} {name} of {value:g} ms, which no server has: "
                    "tokens came together, or the replies were not streamed"
                )
    return None


def _doubt_acceptance(posted: Posted) -> str | None:
    accept_length = posted.number("accept_length")
    if accept_length is None:
        return None
    if 0 < accept_length < 1:
        return f"an accept length of {accept_length:g}: without the bonus token it cannot be compared"
    if accept_length > 1 and (posted.dataset or "").startswith("random"):
        return "an accept length on random tokens says nothing about text"
    return None


def _doubt_cache(posted: Posted) -> str | None:
    rate = posted.number("cache_hit_rate_pct")
    return f"{rate:g} % of the prompt tokens came from the cache" if rate is not None and rate > 1 else None


def _doubt_model(posted: Posted) -> str | None:
    if posted.kind != "speculative":
        return None
    return "its speed is accept length over a fast step time: a model, not a measurement"


_DOUBTS: tuple[Callable[[Posted], str | None], ...] = (
    _doubt_counted,
    _doubt_failures,
    _doubt_concurrency,
    _doubt_sums,
    _doubt_order,
    _doubt_stream,
    _doubt_pace,
    _doubt_acceptance,
    _doubt_cache,
    _doubt_model,
)


def _notes(posted: Posted) -> tuple[str, ...]:
    notes = []
    if posted.tool == "sglang" and posted.kind == "serving" and posted.number("accept_length") is not None:
        notes.append("its accept length is the server's average since the last flush of its cache")
    peak, mean = posted.number("peak_output_tok_s"), posted.number("output_tok_s")
    if peak is not None and mean is not None and peak < mean * 0.99:
        notes.append(f"its peak of {peak:g} tok/s is below its mean of {mean:g}: a peak counts chunks, not tokens")
    limit, most = posted.count("max_concurrency"), posted.number("peak_concurrent")
    if limit and most is not None and most > limit:
        notes.append(f"its peak of {most:g} requests at once is above the limit of {limit}: it counts whole seconds")
    if posted.kind == "one_batch":
        notes.append("without a server: one batch straight through the model")
    return tuple(notes)
