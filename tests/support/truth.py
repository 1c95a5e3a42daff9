"""Benches of the load generator against the truth server, and their figures by the moments of the server's own sends.

`CASES` is every dialect with one, 16 and 64 users, closed and open loop, and what goes wrong on a server. `run` measures a
case, `compare` holds the product's figures against the truth. `test_truth.py` runs some of them, `benchmarks/true_figures.py` all.
"""

import gzip
import hashlib
import itertools
import json
import math
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from tests.support.generator import generator
from tests.support.truth_server import truth_server
from tui.core.bench.metrics import distribution, figures
from tui.remote.loadgen.protocol import dumps, label_of

LIMIT = 0.005  # share of the truth
USAGE_LAST = {"refuses": ["continuous_usage_stats"]}
DIALECTS: dict[str, tuple[str, dict[str, Any]]] = {
    "generate": ("generate", {}),
    "generate, incremental": ("generate", {"incremental": 1}),
    "chat, continuous usage": ("chat", {}),
    "chat, usage last": ("chat", USAGE_LAST),
    "vLLM chat, continuous usage": ("chat", {"dialect": "vllm"}),
    "vLLM chat, usage last": ("chat", {"dialect": "vllm", **USAGE_LAST}),
}
WRITES: dict[str, dict[str, Any]] = {"a write each": {}, "three a write": {"pack": -3}, "cut in two": {"cut": 1}}


@dataclass(frozen=True)
class Case:
    """A load on a server that behaves in one way. `words` are the prompts', for the truth server to obey, in turn."""

    dialect: str
    point: Mapping[str, float]
    writes: str = "a write each"
    words: Sequence[str] = ("",)
    server: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""

    @property
    def name(self) -> str:
        load = f"{self.point['rate']:g} a second" if "rate" in self.point else f"{self.point['concurrency']} users"
        return ", ".join(filter(None, (self.dialect, self.writes, load, self.note)))


SPEC = {"speculate": 1, "chunk": 4}  # one to four tokens a step
OUTPUT_LEN = 96


def tick_ms(users: float) -> float:
    """Between two chunks: so that all users together get no more than some 1,500 a second from one Python process."""
    return max(5.0, users / 1.5)


def case(dialect: str, users: int = 0, *, rate: float = 0.0, spec: bool = True, **more: Any) -> Case:
    point: dict[str, float] = {"rate": rate} if rate else {"concurrency": users}
    server = {"tick_ms": tick_ms(users or 2 * rate), **(SPEC if spec else {}), **more.pop("server", {})}
    return Case(dialect, point, server=server, **more)


def disturbed(dialect: str) -> list[Case]:
    """What goes wrong on a server, in one dialect."""
    pause = ("", "pause_at=9 pause_ms=400")
    faults = tuple(
        f"fault={name}" if name else "" for name in ("", "", "", "reset", "", "", "", "error", "", "", "", "early")
    )
    return [
        case(dialect, 8, server={"stall_s": 1.0, "stall_at_s": 2.0}, note="the server stalls"),
        case(dialect, rate=12.0, server={"stall_s": 1.0, "stall_at_s": 2.0}, note="the server stalls"),
        case(dialect, 8, words=pause, note="retraction"),
        # Where the server counts at the end, a reply that broke off has a token a chunk.
        case(dialect, 8, words=faults, spec="usage last" not in dialect, note="errors"),
        case(dialect, 16, words=("tokens=9", "tokens=31", "tokens=64", "tokens=17"), note="early stops"),
        case(dialect, rate=12.0, words=("tokens=9", "tokens=64"), writes="cut in two", note="early stops"),
    ]


CASES = [
    *(
        case(dialect, users, writes=writes)
        for dialect, writes, users in itertools.product(DIALECTS, WRITES, (1, 16, 64))
    ),
    *(case(dialect, rate=12.0) for dialect in DIALECTS),
    *itertools.chain.from_iterable(map(disturbed, DIALECTS)),
    *(case(dialect, 4, spec=False, note="no speculation") for dialect in DIALECTS),
]
# Each dialect, way to write, number of users and trouble at least once.
SHORT = [
    case("generate", 1),
    case("generate", 64, words=("tokens=9", "tokens=31", "tokens=64"), note="early stops"),
    case("generate, incremental", 16, writes="cut in two"),
    case("chat, continuous usage", 1),
    case("chat, continuous usage", 64, writes="three a write"),
    case("chat, usage last", 16),
    case("vLLM chat, continuous usage", 16, writes="cut in two"),
    case("vLLM chat, usage last", 1, writes="three a write"),
    case("chat, continuous usage", 4, spec=False, writes="cut in two", note="no speculation"),
    *disturbed("chat, continuous usage")[:2],
    disturbed("generate")[2],
    disturbed("vLLM chat, continuous usage")[3],
    disturbed("generate, incremental")[5],
]


@dataclass(frozen=True)
class Run:
    """What a case left: the load generator's files, and the server's record of the same replies, row by row."""

    case: Case
    rows: list[dict[str, Any]]
    meta: dict[str, Any]
    replies: list[dict[str, Any]]


def run(case: Case, directory: Path, *, duration_s: float, warmup_s: float = 0.3) -> Run:
    """Measures it, in a directory of its own. Raises AssertionError where the load generator says an error."""
    api, dialect = DIALECTS[case.dialect]
    with truth_server(**{**case.server, **dialect, **WRITES[case.writes]}) as (port, server):
        # Each of its own length and wait: users in step would all be on one side of the window's edge, or all on the other.
        items = [
            {"prompt": f"item {n} first_ms={100 + 7 * n % 200} tokens={OUTPUT_LEN - n % 29} {word}"}
            for n, word in zip(range(61), itertools.cycle(case.words), strict=False)
        ]
        plan = {
            "version": 1,
            "base_url": f"http://127.0.0.1:{port}",
            "api": api,
            "points": [dict(case.point)],
            "duration_s": duration_s,
            "output_len": OUTPUT_LEN,
            "dataset": {"kind": "prompts", "items": items},
            "warmup_s": warmup_s,
            "limits": {"settle_s": 3, "drain_s": 30},
        }
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "bench.json").write_text(json.dumps(plan))
        argv = generator(directory)
        done = subprocess.run(argv, cwd=directory, capture_output=True, text=True, timeout=120 + 4 * duration_s)
        assert done.returncode == 0, done.stdout[-500:] + done.stderr
    label = label_of(dict(case.point))
    meta = json.loads((directory / f"{label}-1.json").read_text())
    packed = (directory / f"{label}-1.rows.jsonl.gz").read_bytes()
    rows = [json.loads(line) for line in gzip.decompress(packed).splitlines()]
    told = {prompt_of(event): event for event in server.events if event["what"] in ("generate", "chat")}
    return Run(case, rows, meta, [told[row["prompt"]] for row in rows])


def prompt_of(event: Mapping[str, Any]) -> str:
    """The hash that the load generator's row has for the request."""
    body = event["body"]
    name = "messages" if event["what"] == "chat" else "text"
    length = body.get("max_tokens") or body["sampling_params"]["max_new_tokens"]
    return hashlib.sha256(dumps([{name: body[name]}, length])).hexdigest()[:16]


def lateness(run: Run) -> list[float]:
    """Of each chunk: the load generator's moment less the server's, seconds, from an unknown zero."""
    return [
        row["t_first"] + passed / 1e6 - moment
        for row, reply in zip(run.rows, run.replies, strict=True)
        if row["t_first"] is not None
        for (moment, _), passed in zip(reply["sends"], itertools.accumulate(row["gaps_us"], initial=0), strict=False)
    ]


def zero_of(run: Run) -> float:
    """The server's clock when the run began.

    Both clocks are one; what is unknown is bounded by what came after what: a request is read after it was sent, a chunk
    is there after it was sent. Raises AssertionError where a row contradicts that.
    """
    latest = min(reply["at"] - row["t_send"] for row, reply in zip(run.rows, run.replies, strict=True))
    earliest = -min(lateness(run))
    assert earliest < latest + 1e-5, f"a chunk was there {earliest - latest:.6f} s before it was sent"
    return (earliest + latest) / 2


@dataclass(frozen=True)
class Compared:
    """A figure of the product beside the truth; `allowed` is how far apart they may be."""

    figure: str
    measured: float | None
    true: float | None
    allowed: float

    @property
    def holds(self) -> bool:
        if self.measured is None or self.true is None:
            return self.measured is self.true
        return abs(self.measured - self.true) <= self.allowed

    def __str__(self) -> str:
        if self.measured is None or self.true is None:
            return f"{self.figure}: {self.measured} for {self.true}"
        share = (self.measured / self.true - 1) * 100 if self.true else 0.0
        return f"{self.figure}: {self.measured:.4f} for {self.true:.4f} ({share:+.3f} %, allowed {self.allowed:.4f})"


def compare(run: Run) -> Iterator[Compared]:
    """The product's figures beside those from the server's own sends, by the definitions of docs/measuring.md.

    How far apart a figure may be: half a percent, and what the machine itself adds.
    - Means of latencies: the lag that the load generator measured of its own loop (p99). Their percentiles: the latest chunk.
    - Paces: that lag on both ends of a reply, one way or the other by chance over all replies.
    - What came in a time: that lag, and a chunk, on its ends.
    - Where the server counts at the end of a reply: half a chunk of each reply that the window cuts.
    """
    found = figures(run.rows, run.meta)
    zero = zero_of(run)
    begin, end = (zero + moment for moment in run.meta["window"])
    client = run.meta["client"]
    lag_ms, latest_ms = client["loop_lag_p99_ms"], (zero + max(lateness(run))) * 1e3

    received = [(reply["sends"], row) for row, reply in zip(run.rows, run.replies, strict=True) if reply["sends"]]
    good = [
        (reply, row) for row, reply in zip(run.rows, run.replies, strict=True) if reply["whole"] and not reply["fault"]
    ]
    tokens = paced = 0
    paced_s = 0.0
    gaps_ms, ttft, e2e, tpot = [], [], [], []
    for sends, row in received:
        tokens += sends[0][1] if begin <= sends[0][0] <= end else 0
        for (before, had), (moment, has) in itertools.pairwise(sends):
            tokens += has - had if begin <= moment <= end else 0
            if before >= begin and moment <= end and not row["err"]:
                paced += has - had
                paced_s += moment - before
                gaps_ms.append((moment - before) * 1e3)
    for reply, row in good:
        sends = reply["sends"]
        began = zero + row["t_sched" if "rate" in run.case.point else "t_send"]
        if begin <= began <= end:
            ttft.append((sends[0][0] - began) * 1e3)
            e2e.append((sends[-1][0] - began) * 1e3)
        if begin <= sends[0][0] <= end and len(sends) > 1:
            tpot.append((sends[-1][0] - sends[0][0]) * 1e3 / (sends[-1][1] - sends[0][1]))
    decode_ms = fmean((reply["sends"][-1][0] - reply["sends"][0][0]) * 1e3 for reply, _ in good)
    all_tokens = sum(sends[-1][1] for sends, _ in received)
    took = max(sends[-1][0] for sends, _ in received) - zero - min(row["t_send"] for row in run.rows)

    share = LIMIT
    if run.rows[0]["toks"] is None:
        # Counted at the end: of a reply that the window cuts nobody knows on which side half a chunk was.
        cut = sum(sends[0][0] < edge < sends[-1][0] for sends, _ in received for edge in (begin, end))
        share += cut * fmean(fmean(reply["chunks"]) for reply, _ in good) / 2 / paced
    chunk = max(max(reply["chunks"]) for reply, _ in good)

    def came(figure: str, measured: float | None, true: float, seconds: float, share: float) -> Compared:
        return Compared(figure, measured, true, true * (share + 2e-3 * lag_ms / seconds) + chunk / seconds)

    def latency(
        figure: str, measured: Any, values: list[float], slack_ms: float = lag_ms, ends: float = 1
    ) -> Iterator[Compared]:
        true = distribution(values)
        yield Compared(f"{figure} n", measured.n, true.n, 0.05 * true.n)  # some are at the edge
        for name in ("mean", "p50", "p90", "p95", "p99", "max"):
            value = getattr(true, name)
            slack = slack_ms if name == "mean" else max(slack_ms, ends * latest_ms)
            if measured.n == true.n or None not in (value, getattr(measured, name)):  # else one has too few for it
                yield Compared(f"{figure} {name}", getattr(measured, name), value, LIMIT * (value or 0.0) + slack)

    output = found.throughput
    user = paced / paced_s
    pace = share + 2 * lag_ms / decode_ms / math.sqrt(len(good))
    yield Compared("per-user tok/s", output.per_user_tok_s, user, user * pace)
    yield came("output tok/s", output.output_tok_s, tokens / (end - begin), end - begin, share)
    yield came("output tok/s, whole run", output.output_tok_s_full, all_tokens / took, took, LIMIT)
    yield from latency("TTFT", found.latencies.ttft, ttft)
    yield from latency("E2E", found.latencies.e2e, e2e)
    yield from latency("gap", found.latencies.gap, gaps_ms, ends=2)
    of_decode = 2 * fmean(tpot) / decode_ms
    yield from latency("TPOT", found.latencies.tpot, tpot, of_decode * lag_ms, of_decode)
    yield Compared("failed requests", found.counts.errors, len(run.rows) - len(good), 0)
    steps = sum(reply["verify"] or 0 for reply, _ in good)
    if steps and run.rows[0]["verify_ct"] is not None:
        tau = sum(reply["correct"] + reply["verify"] for reply, _ in good) / steps
        yield Compared("tau", found.speculation and found.speculation.tau, tau, 1e-9)
