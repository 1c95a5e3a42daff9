"""The referee: SGLang's own benchmark on the same server, and whether the load generator agrees with it.

`tui/remote/sglang_bench.py` drives it on the host. Full-run output rates are compared: the tool knows
no window. Its clock runs on through one GET /server_info after the last reply; what that takes is measured and taken out.
"""

import gzip
import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tui.core.bench import collect
from tui.core.bench.collect import Asked, result_of, server_of
from tui.core.bench.driver import Finished, Measured, Order, Program
from tui.core.bench.guards import Judgement, judge
from tui.core.bench.loadgen_driver import checked, plan, python_program
from tui.core.bench.metrics import Figures, counter, figures
from tui.core.bench.target import Seen, Target
from tui.core.bench.workload import Dataset, dataset_of
from tui.core.errors import Slug, UsageError
from tui.core.host.gpus import HostFacts
from tui.core.model.profile import BenchProfile
from tui.core.model.result import Guard, GuardStatus, Result, Speculation, Tool, Window
from tui.core.results.external.plausibility import COUNTS_REQUESTED
from tui.core.results.external.reading import read_posted
from tui.core.sglang.flags import version_at_least

NAME = "sglang"
AGREEMENT = 0.01  # a smaller difference, as a share, is none

_RUN_S = 10.0  # a shorter run says nothing
# Guards that the tool gives no figures for.
_NO_WINDOW = frozenset(["window", "chunks", "client_cpu", "client_lag", "steady", "overload"])
_MISCOUNTING = ("sglang-oai", "sglang-oai-chat")
# From here on its chat client counts by the server's usage, and bears the event that has nothing else (read in its source;
# 0.5.6 does not). `tui/remote/sglang_bench.py` looks at the source that it runs.
_COUNTS_CHAT = "0.5.14"


class SglangDriver:
    """Measures with SGLang's own benchmark, by SGLang's own endpoint: `/generate`, as in all stored results of it.

    Args:
        verify: each run with the load generator as well, the same number of requests, by the interface of the bench where
            the tool counts rightly there.
    """

    name = NAME
    needs_python = True

    def __init__(self, verify: bool = False) -> None:
        self._verify = verify

    def dataset(self, profile: BenchProfile) -> Dataset:
        return dataset_of(profile)

    def seen_by(self, seen: Seen, data: Dataset, target: Target, facts: HostFacts) -> Seen:
        return through(seen, data, str(target), facts.sglang if self._verify else None)

    def program(self, order: Order) -> Program:
        return python_program(order.python, "sglang_bench.py", plan(order) | {"verify": self._verify})

    def result_id(self, run_id: str, label: str, number: int) -> str:
        return result_id(run_id, label, number)

    def files(self, event: Mapping[str, Any]) -> Mapping[str, tuple[str, str | None]]:
        return checked(event, "meta", "record")

    def results(self, finished: Finished) -> tuple[Measured, ...]:
        meta, record, server_file = finished.json("meta"), finished.files["record"], finished.json("server")
        result, rows = assemble(finished.run_id, finished.asked, meta, record, server_file)
        return (Measured(result, rows),)


def result_id(run_id: str, label: str, number: int) -> str:
    return f"{collect.result_id(run_id, label, number)}-{NAME}"


def through(seen: Seen, data: Dataset, what: str, version: str | None) -> Seen:
    """The server as the referee measures it: by the interface of the bench where the tool counts rightly there, else by
    SGLang's own endpoint.

    Args:
        version: of the host's SGLang, None where it is not known.

    Raises UsageError where the server is not SGLang, or the data are conversations or token ids of the user's.
    """
    if seen.kind != NAME:
        raise UsageError(
            f"{what} is not an SGLang server; through the OpenAI endpoints SGLang's benchmark counts the requested length, "
            "not what came",
            'measure it with driver = "eagletui"',
            slug=Slug.WRONG_API,
        )
    if data.needs_chat or (data.has_ids and data.kind != "random-ids"):
        raise UsageError(
            f"SGLang's benchmark takes texts or random ids, and {data.name} holds others",
            'write {"prompt": "..."} lines, or measure with driver = "eagletui"',
            slug=Slug.UNSUPPORTED,
        )
    counts = version_at_least(version, _COUNTS_CHAT)
    return seen if counts else replace(seen, api="generate")


def refuse_miscounting(argv: Sequence[str]) -> None:
    """Raises UsageError for a command of SGLang's benchmark whose token counts are wrong where replies stop early."""
    named = [
        word.partition("=")[2] or following
        for word, following in zip(argv, [*argv[1:], ""], strict=True)
        if word.partition("=")[0] == "--backend"
    ]
    if any(backend in _MISCOUNTING for backend in named) and "include_usage" not in " ".join(argv):
        raise UsageError(
            f"--backend {named[-1]} counts the requested length of every reply, not what came",
            "use --backend sglang",
            slug=Slug.WRONG_API,
        )


def assemble(
    run_id: str, asked: Asked, meta: Mapping[str, Any], record: bytes, server_file: Mapping[str, Any]
) -> tuple[Result, bytes]:
    """The result of one run of the referee, and its requests as rows of the store.

    Args:
        run_id: of the bench run.
        meta, record, server_file: its files, as docs/load-generator.md describes them.

    Raises ValueError, KeyError, TypeError where a file is not what it should be.
    """
    try:
        (posted,) = read_posted(record.decode("utf-8")).records
    except UsageError as error:
        raise ValueError(error.message) from None
    said = posted.result
    server, checks, _ = server_of(asked, server_file)
    server_tokens = counter(meta, "generation_tokens_total")
    counts = replace(
        said.counts,
        server_output_tokens=round(server_tokens) if server_tokens is not None else None,
        cached_tokens=None,
    )
    end_s = float(meta["end_s"])
    # Its own imports come first and take longer than many a run: the GPU figures are of the time it says it measured.
    begin_s = max(0.0, end_s - (said.duration_s or end_s))
    measured = figures([], {**meta, "window": [begin_s, end_s]})
    found = Figures(
        window=Window(begin_s, end_s, "full"),
        duration_s=said.duration_s,
        counts=counts,
        throughput=said.throughput,
        latencies=said.latencies,
        speculation=_speculation(said, meta),
        gpu=measured.gpu,
        client=None,
    )
    verdict = judge([], meta, found, checks)
    # Of a posted record nobody knows whether usage was asked for; here it was.
    suspicious = (text for text in said.suspicious if COUNTS_REQUESTED not in text)
    guards = (_long_enough(said), *(guard for guard in verdict.guards if guard.id not in _NO_WINDOW))
    result = result_of(
        run_id,
        asked,
        meta,
        server,
        Tool(NAME, meta.get("version"), "sglang-oai-chat" if asked.api == "chat" else "sglang"),
        int(meta["requests"]),
        found,
        Judgement(guards, (*suspicious, *verdict.suspicious)),
    )
    result = replace(
        result,
        result_id=result_id(run_id, result.point.label, result.run_index),
        valid=result.valid and said.valid,
        posted={**said.posted, "server_info_ms": meta.get("server_info_ms")},
        notes=said.notes,
    )
    rows = "".join(json.dumps(row) + "\n" for row in posted.rows)
    return result, gzip.compress(rows.encode(), mtime=0)


def _long_enough(said: Result) -> Guard:
    lasted = said.duration_s or 0.0
    status = GuardStatus.OK if lasted >= _RUN_S else GuardStatus.FAILED
    return Guard("duration", status, f"the run took {lasted:.1f} s (at least {_RUN_S:g})", lasted, _RUN_S)


def _speculation(said: Result, meta: Mapping[str, Any]) -> Speculation | None:
    steps = counter(meta, "spec_verify_calls_total")
    made = counter(meta, "generation_tokens_total")
    output, ok = said.counts.output_tokens, said.counts.ok
    if not steps:
        return said.speculation
    return Speculation(
        verify_steps=round(steps),
        # The first token of each reply comes from its prefill.
        tau=(output - ok) / steps if output is not None and ok is not None else None,
        server_accept_length=said.speculation.server_accept_length if said.speculation else None,
        counter_accept_length=made / steps if made is not None else None,
    )


# Agreement -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Agreement:
    """Two tools on one server at one load. Rates are full-run output tokens a second."""

    label: str  # of the load
    ours: tuple[float, ...]  # one a run
    referee: tuple[float, ...]  # the same runs, what GET /server_info takes taken out of its clock
    referee_raw: tuple[float, ...]  # as it printed them
    difference: float  # ours against the referee's, by their means, a share
    spread: float  # of the runs of either tool, the larger one: (highest - lowest) / mean; 0 for one run
    limit: float  # a share: the difference may be as large

    @property
    def passes(self) -> bool:
        return abs(self.difference) <= self.limit


def agreement(label: str, ours: Sequence[Result], referee: Sequence[Result]) -> Agreement:
    """Whether both tools give the same rate, within 1 % or the spread of their runs, the larger.

    Raises UsageError where one of them has no run.
    """
    mine = [rate for result in ours if (rate := result.throughput.output_tok_s_full)]
    raw = [rate for result in referee if (rate := result.throughput.output_tok_s_full)]
    theirs = [rate for result in referee if (rate := _corrected_rate(result))]
    if not mine or not theirs:
        who = "the load generator" if not mine else "SGLang's benchmark"
        raise UsageError(f"{who} has no rate at {label}", "see the results, measure again", slug=Slug.NO_RATE)
    spread = max(_spread(mine), _spread(theirs))
    return Agreement(
        label=label,
        ours=tuple(mine),
        referee=tuple(theirs),
        referee_raw=tuple(raw),
        difference=statistics.fmean(mine) / statistics.fmean(theirs) - 1,
        spread=spread,
        limit=max(AGREEMENT, spread),
    )


def _corrected_rate(result: Result) -> float | None:
    rate, duration = result.throughput.output_tok_s_full, result.duration_s
    extra = result.posted.get("server_info_ms")
    if rate is None or not duration or not isinstance(extra, int | float):
        return rate
    return rate * duration / max(duration / 2, duration - extra / 1000)


def _spread(rates: Sequence[float]) -> float:
    return (max(rates) - min(rates)) / statistics.fmean(rates)
