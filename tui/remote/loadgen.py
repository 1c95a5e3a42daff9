"""Load generator: runs on the GPU host against a server on it and measures what a client sees.

    python3 loadgen.py bench.json            (working directory: where the artifacts go)

Needs Python 3.8 and nothing else; uvloop and orjson are used where they can be imported. It ends by itself: every request,
every phase and the number of requests are bounded. SIGTERM (or SIGINT) ends it at once and leaves whole what is finished.

bench.json
    version        1
    base_url       "http://127.0.0.1:30000"
    api            "generate" (SGLang's own) or "chat" (OpenAI's, also vLLM's)
    model          name for "chat"; null: the first of /v1/models
    headers_env    null, or the name of the environment variable that holds the API key
    points         [{"concurrency": 4}, {"rate": 2.0}]: users at once, or requests a second (Poisson)
    search         instead of points: {"kind": "concurrency" | "rate", "low", "high", "ttft_ms", "tpot_ms", "e2e_ms": milliseconds
                   or null, "share", "most"}: the highest load between low and high at which this share of the replies
                   due in the window is within all limits, measured at most at so many points; a reply that failed is not
    runs           measured runs at each point, or searches; run numbers begin at 1
    duration_s     length of the steady window of each run, at least
    duration_max_s, needs  optional: {"tokens": 500, "replies": 5}; the window goes on until so many tokens came and so many
                   replies began in it, duration_max_s at most (default: duration_s)
    max_requests   null, or requests at most in a run
    output_len     tokens at most a request (an item's own output_len outranks it)
    input_len      tokens a request, of random-ids
    dataset        {"kind": "prompts" | "random-ids" | "jsonl", "sha": text or null, "items": [...]}
                   an item is {"prompt": text} or {"messages": [...]} or {"input_ids": [...]}, with an optional "output_len";
                   "chat" takes no token ids
    vocab          [low, high): ids that random-ids draws from
    seed           integer; (seed, point, run) fixes prompts, their order and the arrival times
    ignore_eos, temperature, warmup_s
    server         {"log": path or null, "pid": integer or null, "gpus": [indices] or null}
    limits         optional; seconds, with defaults: connect_s 10, stall_s 180 (no byte), request_s 900, drain_s 300,
                   ramp_s 120 (all users busy), settle_s 5 (counters at rest), tail_s 2 (end of a body after its last event)

A run: warm-up with other prompts (once a point until the step is steady: the median gap between chunks of three 2-s spans
within 3 %, at most warmup_s; before later runs of the point a short one) → drained → cache flushed → counters read → load →
at the end of the window no new request → drained → counters read when they rest. The window begins when each user has had
a first chunk (open loop: when the first request has ended) and lasts duration_s, longer where it lacks what is needed, or
until max_requests leave a user idle.
The items go round in an order of their own for each run; from the second round on, and where the cache can't be flushed,
a short mark is put in front of a prompt so that the prefix cache does not answer.

A search doubles the load from the lowest until one fails, then halves what lies between the highest that holds and the
lowest that fails, until they are neighbours or within 5 %. Each point is a run with its files; the search itself leaves none.

Files, each whole from the moment it has its name; LABEL is c4 or r2.5
    LABEL-RUN.rows.jsonl.gz   a request a line, in the order of `i`; times in seconds since the run began, null where it did
                              not happen or is not known:
        i                 number of the request
        t_sched           when it was due: open loop, its arrival; closed loop, when its user became free
        t_send            when it was handed to the socket
        t_first, t_last   first and last chunk with new tokens
        in, out           prompt and completion tokens as the reply said
        chunks            chunks with new tokens
        k1                tokens of the first chunk
        verify_ct         verify steps, correct_drafts, proposed_drafts: of speculative decoding; null without it
        cached            prompt tokens from the prefix cache
        finish            "stop", "length", ... as the server names it
        err               null, or a reason: "SLUG" or "SLUG: detail", SLUG one of connect, reset, closed, http, stalled,
                          too_slow, too_large, not_ended, malformed, server, no_tokens, no_count, drain
        gaps_us           microseconds between chunks, after the first: chunks - 1 of them
        toks              tokens of each chunk after the first; null, as k1, where the server counts only at the end
        item, prompt      number of the dataset's item (null: drawn), and a hash of what was asked: equal for equal prompts
        ids               token ids of the reply; null where the server doesn't give them ("chat")
        texts             its text, a piece a chunk; null where it is not sent piece by piece
    LABEL-RUN.json            meta: label, point, run, seed, started_at (epoch of time 0), window [begin, end] or null, end_s,
        requests (begun), flush {ok: true | false | null (no such endpoint), hit_rate: cached / in over the rows, else by
        the counters, or null},
        counters {before, after: {name: sum over series, ranks of one replica counted once} or null (no /metrics),
        idle: whether the server said it was idle at both readings},
        gpu {samples: [[t, index, power_w, util_pct, mem_mib, sm_mhz, throttle (bit mask of NVML)]], foreign_pids: [...] or
        null (can't be told)} or null,
        graph {on, off: decode lines in the server's log during the window} or null,
        client {cpu_fraction (of a core, in the window), lost_s (in the window, the sum of what the loop was late by beyond
        LATE_S each time), late_mean_ms (of a stamp at any moment of the window), loop_lag_p99_ms, loop_lag_max_ms, send_lag_mean_ms, send_lag_p99_ms, rss_mib},
        server {first, after: {model, version, args_sha (of what it says of itself), pid_started (clock ticks since boot; null:
        not known)}, at the start of the bench and after the run; after is null where it did not answer},
        warmup {seconds, stable, requests}, errors {reason: count}, accept_length: what SGLang itself gives as the average
        since the flush (mean over its replicas), or null,
        options {continuous_usage, spec_details}: what "chat" was asked for, rounds (through the items), rows_sha256
    server.json               {"kind": "sglang" | "vllm" | null, "version", "first": {"server_info", "model_info", "models"},
                              "last": the same at the end, "env": allow-listed variables of server.pid or null, "argv"};
                              written when the first run begins and once more at the end; without secrets

stdout: one JSON object a line, at most 4 a second
    {"event": "hello", "version": 1, "python", "uvloop", "orjson" (versions or null), "sha256" (of this file), "pid"}
    {"event": "progress", "label", "point", "run", "runs", "phase": "warmup" | "window" | "drain", "t" (s in this phase),
     "tok_s" (over the last second), "tokens", "active", "completed", "errors", "ttft_ms", "tpot_ms" (medians of this run so
     far), "accept_length", "power_w" (sum), "memory_used_mib" (fullest GPU), "left_s" (of the whole bench)};
     "window" includes the ramp before it
    {"event": "run", "label", "point", "run", "meta": file, "rows": file, "sha256": {"meta", "rows"}}
    {"event": "search", "kind", "run", "points": [{"label", "point", "replies", "met", "holds"}] in the order measured, "found", "fails_from":
     the highest load that holds and the lowest that fails, or null}: after the points of each search
    {"event": "done"}
    {"event": "error", "slug", "text", "hint"}, then exit status 1; slugs: bad_plan, unreachable, unauthorized, no_endpoint,
     refused (the server takes no such request), server_lost, interrupted, disk, internal
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import ctypes
import gc
import gzip
import hashlib
import importlib
import json
import math
import os
import random
import re
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator
from typing import Any
from urllib.parse import urlsplit

VERSION = 1
MAX_HEAD = 64 * 1024
MAX_FRAME = 64 * 1024 * 1024  # an event without an end
MAX_TEXT = 64 * 1024  # of an answer that isn't a stream: an error's words
MAX_ANSWER = 16 * 1024 * 1024  # of /metrics, /server_info
KEEP_ALIVE_S = 4.0  # uvicorn closes after 5
PROGRESS_S = 0.25
TICK_S = 0.02
LATE_S = 0.05  # what a loop on a busy machine is late by now and then
SPAN_S = 2.0  # of the spans that must agree before a warm-up counts as steady
SPAN_GAPS = 20  # gaps between chunks that a span must hold, or it says nothing
SPREAD = 0.03
WARM_REQUESTS = 64  # at most, before the spans are looked at
SHORT_OUTPUT = 64  # tokens, of the short warm-up
GONE = 10  # refused connections in a row: the server has ended
LIMITS = {
    "connect_s": 10.0,
    "stall_s": 180.0,
    "request_s": 900.0,
    "drain_s": 300.0,
    "ramp_s": 120.0,
    "settle_s": 5.0,
    "tail_s": 2.0,
}

clock = time.perf_counter


def optional(name: str) -> Any:
    """A module that may be missing here: None then."""
    try:
        return importlib.import_module(name)
    except Exception:
        return None


uvloop = optional("uvloop")
orjson = optional("orjson")
loads: Callable[[bytes | bytearray], Any] = orjson.loads if orjson else json.loads


def dumps(document: Any) -> bytes:
    """JSON without spaces."""
    if orjson:
        with contextlib.suppress(TypeError):  # half a surrogate pair, which a server may send
            return bytes(orjson.dumps(document))
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")


class Stop(Exception):
    """Ends the bench with an `error` event."""

    def __init__(self, slug: str, text: str, hint: str) -> None:
        super().__init__(text)
        self.slug, self.text, self.hint = slug, text, hint


def say(event: str, **fields: Any) -> None:
    """One line of the protocol."""
    with contextlib.suppress(BrokenPipeError, ValueError):
        sys.stdout.write(json.dumps({"event": event, **fields}, separators=(",", ":")) + "\n")
        sys.stdout.flush()


def short(text: str) -> str:
    """One line of at most 200 characters: what becomes part of a reason."""
    return " ".join(text.split())[:200]


# --- what is asked for ----------------------------------------------------------------------------------------------


class Plan:
    """bench.json, checked."""

    def __init__(self, document: Any) -> None:
        def need(holds: object, text: str) -> None:
            if not holds:
                raise Stop("bad_plan", "bench.json: " + text, "see the head of loadgen.py")

        need(isinstance(document, dict), "not an object")
        need(document.get("version") == VERSION, f"version is {document.get('version')!r}, not {VERSION}")
        url = urlsplit(str(document.get("base_url", "")))
        need(url.scheme == "http" and url.hostname, "base_url is not an http:// address")
        self.host: str = url.hostname or ""
        self.port: int = url.port or 80
        self.prefix: str = url.path.rstrip("/")
        self.api: str = document.get("api", "generate")
        need(self.api in ("generate", "chat"), f"api is {self.api!r}, not generate or chat")
        self.model: str | None = document.get("model")
        self.key: str | None = None
        variable = document.get("headers_env")
        if variable:
            self.key = os.environ.get(variable)
            need(self.key, f"headers_env: {variable} is not set")
        self.points: list[dict[str, Any]] = document.get("points") or []
        search = document.get("search")
        self.search: Search | None = Search(search) if search else None
        need(self.points or self.search, "no points")
        for point in self.points:
            value = point.get("concurrency", point.get("rate"))
            need(len(point) == 1 and isinstance(value, (int, float)) and value > 0, f"bad point {point!r}")
            need("concurrency" not in point or isinstance(value, int), f"bad point {point!r}")
        self.runs: int = int(document.get("runs", 1))
        self.duration_s: float = float(document["duration_s"])
        self.duration_max_s = max(self.duration_s, float(document.get("duration_max_s") or 0.0))
        needs = document.get("needs") or {}
        self.needs: tuple[int, int] = int(needs.get("tokens") or 0), int(needs.get("replies") or 0)
        self.max_requests: int | None = document.get("max_requests")
        self.output_len: int = int(document["output_len"])
        self.input_len: int = int(document.get("input_len") or 0)
        need(
            self.runs > 0 and self.duration_s > 0 and self.output_len > 0,
            "runs, duration_s or output_len is not above 0",
        )
        need(self.max_requests is None or self.max_requests > 0, "max_requests is not above 0")
        dataset = document.get("dataset") or {}
        self.dataset: str = dataset.get("kind", "")
        self.items: list[dict[str, Any]] = dataset.get("items") or []
        need(self.dataset in ("prompts", "random-ids", "jsonl"), f"unknown dataset {self.dataset!r}")
        vocab = document.get("vocab")
        self.vocab: tuple[int, int] | None = (int(vocab[0]), int(vocab[1])) if vocab else None
        if self.dataset == "random-ids":
            need(self.vocab and self.vocab[1] > self.vocab[0] >= 0, "random-ids without a vocab [low, high)")
            need(self.input_len > 0, "random-ids without input_len")
            need(self.api == "generate", "random-ids needs the api generate: chat takes no token ids")
        else:
            need(self.items, f"dataset {self.dataset} without items")
            for number, item in enumerate(self.items):
                kinds = [kind for kind in ("prompt", "messages", "input_ids") if item.get(kind)]
                need(len(kinds) == 1, f"item {number} needs one of prompt, messages, input_ids")
                need(self.api == "chat" or kinds[0] != "messages", f"item {number}: messages need the api chat")
                need(
                    self.api == "generate" or kinds[0] != "input_ids", f"item {number}: input_ids need the api generate"
                )
        self.seed: int = int(document.get("seed", 1))
        self.ignore_eos: bool = bool(document.get("ignore_eos", False))
        self.temperature: float = float(document.get("temperature", 0.0))
        self.warmup_s: float = float(document.get("warmup_s", 30.0))
        server = document.get("server") or {}
        self.log: str | None = server.get("log")
        self.pid: int | None = server.get("pid")
        self.gpus: list[int] | None = server.get("gpus")
        self.limits: dict[str, float] = {**LIMITS, **(document.get("limits") or {})}

    @classmethod
    def read(cls, path: str) -> Plan:
        """Raises Stop("bad_plan") for anything that can't be carried out."""
        try:
            with open(path, "rb") as file:
                return cls(json.loads(file.read()))
        except OSError as error:
            raise Stop("bad_plan", f"{path}: {error.strerror}", "give the path of bench.json") from None
        except (ValueError, TypeError, KeyError, AttributeError, IndexError) as error:
            raise Stop("bad_plan", f"{path}: {type(error).__name__}: {error}", "see the head of loadgen.py") from None


def label_of(point: dict[str, Any]) -> str:
    """c4 or r2.5."""
    return f"c{point['concurrency']}" if "concurrency" in point else f"r{point['rate']:g}"


class Search:
    """Which load to measure next, and what that says; a search begins with `restart`."""

    WITHIN = 1.05  # how close the highest load that holds comes to the lowest that fails

    def __init__(self, document: dict[str, Any]) -> None:
        self.kind: str = document["kind"]
        self.low: float = document["low"]
        self.high: float = document["high"]
        self.share: float = document["share"]
        self.limits = [(name, document[name]) for name in ("ttft_ms", "tpot_ms", "e2e_ms") if document.get(name)]
        self.most: int = document["most"]
        if self.kind not in ("concurrency", "rate") or not 0 < self.low < self.high or not self.limits:
            raise ValueError("search without a kind, bounds or limits")
        self.restart()

    def restart(self) -> None:
        """Forgets what was judged."""
        self.found: float | None = None  # the highest load that holds
        self.fails_from: float | None = None  # the lowest that fails
        self.points: list[dict[str, Any]] = []

    def next(self) -> float | None:
        """The load to measure next; None at the end."""
        found, fails, whole = self.found, self.fails_from, self.kind == "concurrency"
        if fails is None:
            if found is None:
                return self.low
            return min(2 * found, self.high) if found < self.high else None
        if found is None or fails <= self.WITHIN * found or (whole and fails - found <= 1):
            return None
        return (found + fails) // 2 if whole else float(f"{(found * fails) ** 0.5:.3g}")

    def judge(self, load: float, replies: int, met: int) -> None:
        """Takes what was measured at a load: so many replies, so many of them within the limits."""
        holds = replies > 0 and met >= self.share * replies
        if holds:
            self.found = load
        else:
            self.fails_from = load
        point = {self.kind: load}
        told = {"label": label_of(point), "point": point, "replies": replies, "met": met, "holds": holds}
        self.points.append(told)

    def met(self, row: dict[str, Any], begin: str) -> bool:
        """Whether a reply is within all limits; the time to its first token counts from `begin`."""
        if row["err"] or row["t_first"] is None:
            return False
        took = {"ttft_ms": row["t_first"] - row[begin], "e2e_ms": row["t_last"] - row[begin], "tpot_ms": 0.0}
        later = (row["out"] or 0) - (row["k1"] or 1)
        if later > 0 and row["gaps_us"]:
            took["tpot_ms"] = (row["t_last"] - row["t_first"]) / later
        return all(round(took[name] * 1e3, 3) <= limit for name, limit in self.limits)


class Workload:
    """The prompts of one run, one after another; the same for the same plan, label, run and `fresh`.

    fresh: whether the prefix cache was emptied, so that the first round needs no marks.
    """

    def __init__(self, plan: Plan, label: str, run: str, fresh: bool, output_len: int | None = None) -> None:
        self.plan = plan
        self.run = run
        self.fresh = fresh
        self.output_len = output_len
        self.rng = random.Random(f"{plan.seed}/{label}/{run}")
        self.round = 0
        self.item: int | None = None
        self.order: list[int] = []

    def __iter__(self) -> Iterator[tuple[dict[str, Any], int]]:
        """Fields of a request that carry the prompt, and its output length; `item` is the number of its item."""
        plan = self.plan
        while True:
            if plan.vocab and plan.dataset == "random-ids":
                low, high = plan.vocab
                ids = [low + int(part * (high - low)) for part in (self.rng.random() for _ in range(plan.input_len))]
                yield {"input_ids": ids}, self.output_len or plan.output_len
                continue
            if not self.order:
                self.order = list(range(len(plan.items)))
                self.rng.shuffle(self.order)
                self.round += 1
            number = self.item = self.order.pop()
            length = int(plan.items[number].get("output_len") or plan.output_len)
            yield self._fields(number), min(self.output_len or length, length)

    def _fields(self, number: int) -> dict[str, Any]:
        item = self.plan.items[number]
        # Different from the first token on, so that items don't share a beginning through their marks.
        mark = random.Random(f"{self.run}/{self.round}/{number}") if self.round > 1 or not self.fresh else None
        word = "".join(mark.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(5)) + ". " if mark else ""
        if "input_ids" in item:
            ids = list(item["input_ids"])
            return {"input_ids": [mark.choice(ids), *ids] if mark else ids}
        if "prompt" in item:
            text = word + item["prompt"]
            return {"messages": [{"role": "user", "content": text}]} if self.plan.api == "chat" else {"text": text}
        first, *others = item["messages"]
        if isinstance(first.get("content"), str):
            first = {**first, "content": word + first["content"]}
        return {"messages": [first, *others]}


# --- one request ----------------------------------------------------------------------------------------------------


class Owner:
    """Who is told about a request: once at its first chunk with tokens, once when it is over."""

    tokens = 0  # that came, of all its requests

    def first(self, exchange: Exchange) -> None:
        """The first chunk with tokens came."""

    def ended(self, exchange: Exchange) -> None:
        """It is over; `exchange.error` says how."""
        raise NotImplementedError


class Exchange:
    """A request and what became of it. Times are `clock()` seconds.

    `stamps` holds the time of each chunk that brought tokens and `counts` the tokens so far; where the server counts only
    at the end (`exact` is false) the counts are of chunks.
    """

    def __init__(self, owner: Owner, method: str, path: str, body: bytes, stream: bool) -> None:
        self.owner, self.method, self.path, self.body, self.stream = owner, method, path, body, stream
        self.index = self.user = self.length = self.tries = 0
        self.item: int | None = None
        self.prompt = ""
        self.sched = 0.0
        self.sent: float | None = None
        self.done_at: float | None = None  # when the stream said that nothing follows
        self.stamps = array.array("d")
        self.counts = array.array("q")
        self.text_raw = bytearray()  # of all chunks, as JSON has it between its quotes
        self.text_ends = array.array("q")  # where the text of each chunk ends in it
        self.pieces = not path.endswith("/generate")  # an event brings new text, not all so far
        self.ids: list[int] | None = None
        self.tokens = 0
        self.exact = True  # each chunk so far came with its count
        self.status = 0
        self.text = b""  # body of an answer that isn't a stream
        self.over = False
        self.error: str | None = None
        self.finish: str | None = None
        self.input: int | None = None
        self.output: int | None = None
        self.cached: int | None = None
        self.verify: int | None = None
        self.correct: int | None = None
        self.proposed: int | None = None

    def grew(self, count: int, now: float) -> None:
        """A chunk with tokens: `count` of them so far."""
        if not self.stamps:
            self.owner.first(self)
        self.owner.tokens += count - self.tokens
        self.tokens = count
        self.stamps.append(now)
        self.counts.append(count)
        self.text_ends.append(len(self.text_raw))

    def wrote(self, text: bytes | bytearray) -> None:
        """Text of the newest chunk, or more of it, as JSON has it between its quotes."""
        if self.text_ends:
            self.text_raw += text
            self.text_ends[-1] = len(self.text_raw)

    def frame(self, frame: bytes, now: float) -> None:
        """One event of the stream."""
        if self.exact and self.stamps and plain(frame, 0, len(frame)):
            found = COUNT.match(frame, max(0, frame.rfind(COUNT_NAME)))
            if found is not None and int(found[1]) > self.tokens:
                self.grew(int(found[1]), now)
                if self.pieces:
                    self.wrote(text_in(frame, 0, len(frame)))
                return
        if frame.strip() == b"[DONE]":
            self.done_at = now
            return
        try:
            said = loads(frame)
        except ValueError:
            said = None
        if not isinstance(said, dict):
            self.error = self.error or "malformed: an event that is no JSON object"
            return
        count, content, usage_only = self._absorb(said)
        if count is not None:
            # Tokens without text are a chunk where each one so far was counted. Usage behind a reply is none where its
            # chunks brought no counts, in an event of its own or in that of the end.
            if count > self.tokens and (content or (self.exact and (self.stamps or not usage_only))):
                self.grew(count, now)
        elif content:
            self.exact = False
            self.grew(self.tokens + 1, now)
        if content:
            self.wrote(json.dumps(content)[1:-1].encode())

    def _absorb(self, said: dict[str, Any]) -> tuple[int | None, str, bool]:
        """Takes what a frame says: the tokens so far as it counts them, the text it brought, and whether it is usage alone."""
        refused = said.get("error") or (said if said.get("object") == "error" else None)
        if refused:
            self.error = self.error or "server: " + short(words_of(refused))
        count = None
        content = ""
        meta, usage, choices = said.get("meta_info"), said.get("usage"), said.get("choices")
        if isinstance(meta, dict):
            count = whole(meta.get("completion_tokens"))
            self.input = whole(meta.get("prompt_tokens"), self.input)
            self.cached = whole(meta.get("cached_tokens"), self.cached)
            self._speculation(meta)
            self._finished(meta.get("finish_reason"))
            ids = said.get("output_ids")
            # All of them, unless the server sends only the new ones.
            self.ids = ids if isinstance(ids, list) and len(ids) == count else None
        if isinstance(usage, dict):
            count = whole(usage.get("completion_tokens"))
            self.input = whole(usage.get("prompt_tokens"), self.input)
            details = usage.get("prompt_tokens_details")
            if isinstance(details, dict):
                self.cached = whole(details.get("cached_tokens"), self.cached)
        extension = said.get("sglext")
        if isinstance(extension, dict) and isinstance(extension.get("spec_tokens_details"), dict):
            self._speculation(extension["spec_tokens_details"])
        if isinstance(choices, list):
            for choice in choices:
                if isinstance(choice, dict):
                    delta = choice.get("delta")
                    delta = delta if isinstance(delta, dict) else {}
                    parts = ("reasoning_content", "reasoning", "content", "tool_calls")
                    for part in (*(delta.get(name) for name in parts), choice.get("text")):
                        content += part if isinstance(part, str) else json.dumps(part) if part else ""
                    self._finished(choice.get("finish_reason"))
        if count is not None:
            self.output = count
        return count, content, choices == []

    def _speculation(self, said: dict[str, Any]) -> None:
        verify = whole(said.get("spec_verify_ct"))
        if verify:
            self.verify = verify
            for correct in ("spec_num_correct_drafts", "spec_accept_token_num"):
                self.correct = whole(said.get(correct), self.correct)
            for proposed in ("spec_num_proposed_drafts", "spec_draft_token_num"):
                self.proposed = whole(said.get(proposed), self.proposed)

    def _finished(self, reason: Any) -> None:
        if isinstance(reason, dict):
            if reason.get("type") == "abort":
                self.error = self.error or "server: abort: " + short(str(reason.get("message", "")))
            reason = reason.get("type")
        if isinstance(reason, str):
            self.finish = reason

    def complete(self) -> None:
        """The body has ended as it should: says whether the reply is whole."""
        if self.stream and self.output is not None and not self.exact:
            self.owner.tokens += self.output - self.tokens  # its chunks were counted, not its tokens
            self.tokens = self.output
        if self.error is None and self.stream:
            if self.finish is None:
                self.error = "closed: the stream ended before the reply did"
            elif self.output is None:
                self.error = "no_count: the reply came without a token count"
            elif not self.stamps:
                self.error = "no_tokens: the reply came without a token"

    def end(self, error: str | None = None) -> None:
        """It is over; at most once."""
        if not self.over:
            self.over = True
            self.error = self.error or error
            if self.error is not None and self.exact and self.tokens:
                self.output = self.tokens  # that came before it broke off
            self.owner.ended(self)

    def row(self, zero: float) -> dict[str, Any]:
        """The line of rows.jsonl."""

        def at(moment: float | None) -> float | None:
            return None if moment is None else round(moment - zero, 6)

        stamps, counts, exact = self.stamps, self.counts, self.exact
        return {
            "i": self.index,
            "t_sched": at(self.sched),
            "t_send": at(self.sent),
            "t_first": at(stamps[0]) if stamps else None,
            "t_last": at(stamps[-1]) if stamps else None,
            "in": self.input,
            "out": self.output,
            "chunks": len(stamps),
            "k1": counts[0] if exact and counts else None,
            "verify_ct": self.verify,
            "correct_drafts": self.correct,
            "proposed_drafts": self.proposed,
            "cached": self.cached,
            "finish": self.finish,
            "err": self.error,
            "gaps_us": [round((b - a) * 1e6) for a, b in zip(stamps, stamps[1:])],
            "toks": [b - a for a, b in zip(counts, counts[1:])] if exact else None,
            "item": self.item,
            "prompt": self.prompt,
            "ids": self.ids,
            "texts": self._texts() if self.pieces else None,
        }

    def _texts(self) -> list[str] | None:
        """The text of each chunk; a surrogate pair that two of them share goes to the second."""
        raw, ends = self.text_raw, self.text_ends
        pieces = [bytes(raw[a:b]) for a, b in zip([0, *ends], ends)]
        try:
            texts: list[str] = json.loads(b'["' + b'","'.join(pieces) + b'"]' if pieces else b"[]")
        except ValueError:
            return None
        half = ""
        for number, text in enumerate(texts):
            text = half + text
            half = text[-1] if text and "\ud800" <= text[-1] <= "\udbff" and number + 1 < len(texts) else ""
            whole_text = text[: len(text) - len(half)]
            texts[number] = whole_text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        return texts


def whole(value: Any, otherwise: int | None = None) -> int | None:
    """A count that a server gave, or else what was known."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else otherwise


def words_of(refusal: Any) -> str:
    """The words of an error as one of the servers puts them."""
    for key in ("error", "message", "detail"):
        if isinstance(refusal, dict) and refusal.get(key):
            return words_of(refusal[key])
    return refusal if isinstance(refusal, str) else json.dumps(refusal)


# --- HTTP/1.1 and server-sent events --------------------------------------------------------------------------------


class Malformed(Exception):
    """The bytes are not what HTTP allows."""


# In a JSON text a name with its quotes and a colon can only be a member: inside a string the quotes are escaped.
COUNT_NAME = b'"completion_tokens":'
COUNT = re.compile(COUNT_NAME + rb"\s*(\d+)")
TEXTS = (b'"content":"', b'"reasoning_content":"', b'"reasoning":"')
TEXT_NAME = b'content":"'  # of reasoning_content as well
TEXT = re.compile(rb'"(reasoning_content|reasoning|content|text)":\s*"((?:[^"\\]|\\.)*)"')
UNFINISHED = b'"finish_reason":null'
TOOLS = b'"tool_calls":['
FIRST = (b"reasoning_content", b"reasoning")  # what a delta says before its content
SIZE = re.compile(rb"[ \t]*([0-9A-Fa-f]{1,12})[ \t]*(?:;[^\r\n]*)?\r?\n")


def text_in(data: bytes | bytearray, begin: int, end: int) -> bytes | bytearray:
    """The text that an event brings, as JSON has it between its quotes, reasoning first; empty where there is none."""
    where = data.find(TEXT_NAME, begin, end)
    if where > 0 and data.find(TEXT_NAME, where + 1, end) < 0 and data.find(b'"reasoning":"', begin, end) < 0:
        where += len(TEXT_NAME)
        close = data.find(b'"', where, end)
        if data[close - 1] != 92:  # a backslash: perhaps the quote is the text's own
            return data[where:close]
    found = [(match[1] not in FIRST, match[2]) for match in TEXT.finditer(data, begin, end)]
    return b"".join(text for _, text in sorted(found, key=lambda each: each[0]))


def plain(data: bytes | bytearray, begin: int, end: int) -> bool:
    """Whether an event is in the middle of a reply: neither its end nor a tool call, which are read as JSON."""
    return data.find(UNFINISHED, begin, end) > 0 and data.find(TOOLS, begin, end) < 0


class Reader:
    """Reads replies, fed with whatever bytes arrive: `exchange` takes what they say.

    The common case, whole HTTP chunks that hold one event each, is handled without copying and without reading the JSON:
    `completion_tokens` is looked for from the end of the event, behind the text.
    """

    exchange: Exchange | None = None
    heard = 0.0  # when the last byte came

    def __init__(self) -> None:
        self.smooth = False  # between two HTTP chunks and between two events of a stream
        self.buffer = bytearray()
        self.step: Callable[[], bool] = self._head
        self.left = 0  # bytes of the HTTP chunk or of the counted body
        self.chunked = False
        self.reusable = True
        self.streaming = False  # the reply is an event stream
        self.pending = bytearray()  # of an event stream: what has no end of line yet
        self.scanned = 0
        self.swallow = False  # a line ended with CR: an LF that follows belongs to it
        self.data: list[bytes] = []

    def completed(self) -> None:
        """The reply has ended, and the next one may begin on this connection."""

    def feed(self, data: bytes | bytearray, size: int) -> None:
        """Takes the first `size` bytes of `data`, which may be overwritten afterwards. Raises Malformed."""
        now = self.heard = clock()
        at = 0
        exchange = self.exchange
        if self.smooth and exchange is not None:
            while at < size:
                line = data.find(b"\r\n", at, at + 18)
                try:
                    end = line + 2 + int(data[at:line], 16)
                except ValueError:
                    break
                # One line, which ends the event, which ends the chunk.
                if end + 2 > size or data.find(b"\n", line + 2, end) != end - 2:
                    break
                if not data.startswith(b"\n\n\r\n", end - 2) or not data.startswith(b"data: {", line + 2):
                    break
                if not plain(data, line, end):
                    break
                where = data.rfind(COUNT_NAME, line, end)
                if where > 0:
                    found = COUNT.match(data, where)
                    # A first count is looked at closely, and usage behind a reply without counts is no chunk.
                    if found is None or not exchange.exact or not exchange.tokens:
                        break
                    count = int(found[1])
                    grown = count - exchange.tokens
                    if grown <= 0:
                        break
                else:
                    for name in TEXTS:
                        where = data.find(name, line, end)
                        if where > 0 and data[where + len(name)] != 34:
                            break
                    else:
                        break
                    exchange.exact = False
                    count = exchange.tokens + 1
                    grown = 1
                if not exchange.tokens:
                    exchange.owner.first(exchange)
                exchange.owner.tokens += grown
                exchange.tokens = count
                exchange.stamps.append(now)
                exchange.counts.append(count)
                exchange.text_ends.append(len(exchange.text_raw))
                if exchange.pieces:
                    exchange.wrote(text_in(data, line, end))
                at = end + 2
            if at == size:
                return
        self._read(data[at:size])

    def _read(self, data: bytes | bytearray) -> None:
        if self.exchange is None:
            raise Malformed("bytes that nobody asked for")
        self.buffer += data
        while self.exchange is not None and self.step():
            pass
        self.smooth = (
            self.exchange is not None
            and self.streaming
            and self.step == self._size
            and not self.buffer
            and not self.pending
            and not self.data
            and not self.swallow
        )

    def end_of_file(self) -> str | None:
        """The peer has closed: None where that is how this reply ends, else the reason."""
        if self.exchange is None:
            return None
        if self.step == self._until_closed:
            self._finish()
            return None
        return "closed: the connection ended in the middle of a reply"

    # Each step reads one thing from the buffer: false where it needs more bytes.

    def _head(self) -> bool:
        match = re.search(rb"\r?\n\r?\n", self.buffer)
        if match is None:
            if len(self.buffer) > MAX_HEAD:
                raise Malformed("a head without an end")
            return False
        first, *others = bytes(self.buffer[: match.start()]).splitlines() or [b""]
        del self.buffer[: match.end()]
        status = re.match(rb"HTTP/1\.([01]) (\d{3})(?: |$)", first)
        if status is None:
            raise Malformed("not HTTP: " + short(first[:60].decode("latin-1")))
        headers: dict[bytes, bytes] = {}
        for line in others:
            name, _, value = line.partition(b":")
            headers[name.strip().lower()] = value.strip()
        exchange = self.exchange
        assert exchange is not None
        exchange.status = int(status[2])
        if exchange.status < 200:
            return True
        connection = headers.get(b"connection", b"").lower()
        self.reusable = b"close" not in connection and (status[1] == b"1" or b"keep-alive" in connection)
        kind = headers.get(b"content-type", b"").lower()
        self.streaming = exchange.stream and exchange.status == 200 and kind.startswith(b"text/event-stream")
        length = headers.get(b"content-length")
        self.chunked = headers.get(b"transfer-encoding", b"").lower().endswith(b"chunked")
        if self.chunked:
            self.step = self._size
        elif exchange.status in (204, 304):
            self._finish()
        elif length is not None:
            if not length.isdigit():
                raise Malformed("a bad Content-Length")
            self.left = int(length)
            self.step = self._counted
            if not self.left:
                self._finish()
        else:
            self.reusable = False
            self.step = self._until_closed
        return True

    def _size(self) -> bool:
        match = SIZE.match(self.buffer)
        if match is None:
            if len(self.buffer) > 1024 or b"\n" in self.buffer:
                raise Malformed("a bad chunk size: " + short(bytes(self.buffer[:40]).decode("latin-1")))
            return False
        self.left = int(match[1], 16)
        del self.buffer[: match.end()]
        self.step = self._counted if self.left else self._trailer
        return True

    def _counted(self) -> bool:
        part = self.buffer[: self.left]
        if not part:
            return False
        del self.buffer[: len(part)]
        self.left -= len(part)
        self._body(bytes(part))
        if not self.left and self.exchange is not None:
            if self.chunked:
                self.step = self._gap
            else:
                self._finish()
        return True

    def _gap(self) -> bool:
        if self.buffer.startswith(b"\r\n") or self.buffer.startswith(b"\n"):
            del self.buffer[: 2 if self.buffer[0] == 13 else 1]
            self.step = self._size
            return True
        if self.buffer and self.buffer != b"\r":
            raise Malformed("a chunk longer than it said")
        return False

    def _trailer(self) -> bool:
        end = self.buffer.find(b"\n")
        if end < 0:
            if len(self.buffer) > MAX_HEAD:
                raise Malformed("a trailer without an end")
            return False
        line = bytes(self.buffer[:end]).strip()
        del self.buffer[: end + 1]
        if not line:
            self._finish()
        return True

    def _until_closed(self) -> bool:
        part = bytes(self.buffer)
        self.buffer.clear()
        if part:
            self._body(part)
        return False

    def _finish(self) -> None:
        exchange = self.exchange
        assert exchange is not None
        if self.streaming:
            if self.pending:
                self._line(bytes(self.pending))
            self._line(b"")
        elif exchange.stream:
            text = exchange.text.decode("utf-8", "replace")
            with contextlib.suppress(ValueError):
                text = words_of(loads(exchange.text))
            if exchange.status == 200:
                exchange.error = "malformed: the reply is no event stream: " + short(text)
            else:
                exchange.error = f"http: {exchange.status}: " + short(text)
        self.step = self._head
        self.pending.clear()
        self.data.clear()
        self.scanned = 0
        self.streaming = self.smooth = self.swallow = False
        exchange.complete()
        self.completed()

    def _body(self, part: bytes) -> None:
        exchange = self.exchange
        assert exchange is not None
        if self.streaming:
            self._events(part)
        else:
            exchange.text += part
            if len(exchange.text) > (MAX_TEXT if exchange.stream else MAX_ANSWER):
                raise Malformed("a reply without an end")

    def _events(self, part: bytes) -> None:
        if self.swallow and part:
            self.swallow = False
            if part[0] == 10:
                part = part[1:]
        pending = self.pending
        pending += part
        begin = 0
        while True:
            end = pending.find(b"\n", max(begin, self.scanned))
            carriage = pending.find(b"\r", max(begin, self.scanned), end if end >= 0 else len(pending))
            if carriage >= 0:
                end = carriage
            elif end < 0:
                break
            self._line(bytes(pending[begin:end]))
            begin = self.scanned = end + 1
            if carriage >= 0:
                if begin == len(pending):
                    self.swallow = True
                elif pending[begin] == 10:
                    begin = self.scanned = begin + 1
        del pending[:begin]
        self.scanned = len(pending)
        if len(pending) > MAX_FRAME:
            raise Malformed("an event without an end")

    def _line(self, line: bytes) -> None:
        """A line of an event stream; an empty one ends the event. Names, ids and comments don't matter here."""
        if line:
            if line.startswith(b"\xef\xbb\xbf"):
                line = line[3:]
            if line.startswith(b"data:"):
                self.data.append(line[6:] if line.startswith(b"data: ") else line[5:])
        elif self.data:
            frame = b"\n".join(self.data)
            self.data.clear()
            if self.exchange is not None:
                self.exchange.frame(frame, self.heard)


# asyncio's plain protocol allocates 256 KiB for each read, which costs several times the read itself.
RECEIVED = bytearray(256 * 1024)  # shared: what came is taken before the next read


class Connection(Reader, asyncio.BufferedProtocol):
    """One connection of the pool."""

    def __init__(self, client: Client) -> None:
        super().__init__()
        self.client = client
        self.transport: Any = None
        self.fresh = True  # no reply has come on it yet

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def get_buffer(self, sizehint: int) -> bytearray:
        return RECEIVED

    def buffer_updated(self, nbytes: int) -> None:
        try:
            self.feed(RECEIVED, nbytes)
        except Malformed as error:
            self.fail(f"malformed: {error}")

    def begin(self, exchange: Exchange) -> None:
        """Sends the request."""
        self.exchange = exchange
        self.client.active.add(self)
        request = self.client.head(exchange) + exchange.body
        exchange.sent = self.heard = clock()
        if self.transport.is_closing():
            self.fail("reset: closed before the request was sent")
        else:
            self.transport.write(request)

    def completed(self) -> None:
        exchange, self.exchange = self.exchange, None
        assert exchange is not None
        self.client.active.discard(self)
        self.fresh = False
        if self.reusable and not self.buffer and not self.transport.is_closing():
            self.client.idle.append(self)
        else:
            self.transport.abort()
        exchange.end()

    def fail(self, error: str) -> None:
        """Gives the request up, and the connection with it."""
        exchange, self.exchange = self.exchange, None
        self.smooth = False
        self.client.active.discard(self)
        self.transport.abort()
        if exchange is not None:
            exchange.end(error)

    def connection_lost(self, error: Exception | None) -> None:
        with contextlib.suppress(ValueError):
            self.client.idle.remove(self)
        exchange = self.exchange
        if exchange is None:
            return
        # A server may close an idle connection in the moment it is used again: nothing was read, so it is sent once more.
        if not self.fresh and not exchange.tries and self.step == self._head and not self.buffer:
            exchange.tries += 1
            self.exchange = None
            self.client.active.discard(self)
            self.client.send(exchange, reuse=False)
            return
        reason: str | None
        if error is not None:
            reason = "reset: " + short(getattr(error, "strerror", None) or type(error).__name__)
        else:
            try:
                reason = self.end_of_file()
            except Malformed as malformed:
                reason = f"malformed: {malformed}"
        if reason is not None:
            self.fail(reason)


class Client:
    """Keep-alive connections to the server, one request at a time on each."""

    def __init__(self, loop: asyncio.AbstractEventLoop, plan: Plan) -> None:
        self.loop, self.plan = loop, plan
        self.idle: list[Connection] = []
        self.active: set[Connection] = set()
        self.opening: dict[asyncio.Task[None], Exchange] = {}
        host = f"[{plan.host}]" if ":" in plan.host else plan.host
        self.common = f"Host: {host}:{plan.port}\r\nAccept: */*\r\nUser-Agent: eagletui-loadgen/{VERSION}\r\n"
        if plan.key:
            self.common += f"Authorization: Bearer {plan.key}\r\n"

    def head(self, exchange: Exchange) -> bytes:
        """Request line and headers."""
        kind = "Content-Type: application/json\r\n" if exchange.body else ""
        return (
            f"{exchange.method} {self.plan.prefix}{exchange.path} HTTP/1.1\r\n{self.common}{kind}"
            f"Content-Length: {len(exchange.body)}\r\n\r\n"
        ).encode("latin-1", "replace")

    def send(self, exchange: Exchange, reuse: bool = True) -> None:
        """Hands a request to the newest idle connection, or to a new one."""
        now = clock()
        while reuse and self.idle:
            connection = self.idle.pop()
            if now - connection.heard < KEEP_ALIVE_S and not connection.transport.is_closing():
                connection.begin(exchange)
                return
            connection.transport.abort()
        task = self.loop.create_task(self._open(exchange))
        self.opening[task] = exchange
        task.add_done_callback(self._opened)

    def _opened(self, task: asyncio.Task[None]) -> None:
        exchange = self.opening.pop(task)
        if task.cancelled():  # perhaps before it had begun
            exchange.end("drain: not connected")

    async def _open(self, exchange: Exchange) -> None:
        connecting = self.loop.create_connection(lambda: Connection(self), self.plan.host, self.plan.port)
        limit = self.plan.limits["connect_s"]
        try:
            _, connection = await asyncio.wait_for(connecting, limit)
        except OSError as error:
            exchange.end("connect: " + short(error.strerror or str(error)))
        except Exception:  # the time-out is a class of its own before Python 3.11
            exchange.end(f"connect: no answer within {limit:g} s")
        else:
            connection.begin(exchange)

    def watch(self) -> None:
        """Ends what takes too long; called a few times a second."""
        now = clock()
        limits = self.plan.limits
        for connection in list(self.active):
            exchange = connection.exchange
            if exchange is None or exchange.sent is None or not exchange.stream:
                continue
            if now - connection.heard > limits["stall_s"]:
                connection.fail(f"stalled: no byte for {limits['stall_s']:g} s")
            elif exchange.done_at is not None and now - exchange.done_at > limits["tail_s"]:
                connection.fail(f"not_ended: the body went on {limits['tail_s']:g} s after its last event")
            elif now - exchange.sent > limits["request_s"]:
                connection.fail(f"too_slow: not ended after {limits['request_s']:g} s")
            elif len(exchange.stamps) > 2 * exchange.length + 64:
                connection.fail("too_large: more chunks than tokens were asked for")

    def abandon(self, error: str) -> None:
        """Ends every request under way."""
        for task in list(self.opening):
            task.cancel()
        for connection in list(self.active):
            connection.fail(error)

    def close(self) -> None:
        """Closes everything."""
        self.abandon("drain: closed")
        for connection in self.idle:
            connection.transport.abort()
        self.idle.clear()

    async def ask(self, method: str, path: str, document: Any = None, limit_s: float = 20.0) -> Exchange:
        """One request that isn't measured; `error` and `status` say how it went."""
        inquiry = Inquiry(self.loop.create_future())
        stream = bool(document and document.get("stream"))
        exchange = Exchange(inquiry, method, path, b"" if document is None else dumps(document), stream)
        exchange.length = sys.maxsize
        self.send(exchange)
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.shield(inquiry.future), limit_s)
        if not exchange.over:
            for connection in list(self.active):
                if connection.exchange is exchange:
                    connection.fail(f"stalled: no answer within {limit_s:g} s")
            for task, opening in list(self.opening.items()):
                if opening is exchange:
                    task.cancel()
            exchange.end(f"stalled: no answer within {limit_s:g} s")
        return exchange


class Inquiry(Owner):
    """Waits for one request."""

    def __init__(self, future: asyncio.Future[None]) -> None:
        self.future = future

    def ended(self, exchange: Exchange) -> None:
        if not self.future.done():
            self.future.set_result(None)


# --- what the server says about itself ------------------------------------------------------------------------------

COUNTERS = re.compile(
    r"sglang:(prompt_tokens|generation_tokens|cached_tokens|num_requests|num_aborted_requests|spec_verify_calls)_total"
    r"|vllm:(prompt_tokens|generation_tokens|request_success|num_preemptions|prefix_cache_queries|prefix_cache_hits"
    r"|spec_decode_num_drafts|spec_decode_num_draft_tokens|spec_decode_num_accepted_tokens)_total"
)
GAUGES = re.compile(r"sglang:num_(running|queue)_reqs|vllm:num_requests_(running|waiting)")
CACHE_COUNTERS = (
    ("sglang:cached_tokens_total", "sglang:prompt_tokens_total"),
    ("vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total"),
)
OUTPUT_COUNTERS = ("sglang:generation_tokens_total", "vllm:generation_tokens_total")
SERIES = re.compile(r"^([a-z]+:\w+)(?:\{(.*)\})? (\S+)")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
RANKS = frozenset(("tp_rank", "pp_rank", "moe_ep_rank", "ep_rank", "moe_dp_rank", "attn_cp_rank", "pid"))


def read_metrics(text: str) -> tuple[dict[str, float], float]:
    """Counters by name, each the sum over its series, and the requests that run or wait.

    Ranks of one replica report the same work: of series that differ only in them the largest counts. Totals that are
    broken down by priority as well carry an empty `priority`; the parts are left out.
    """
    groups: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    for line in text.splitlines():
        found = SERIES.match(line)
        if found is None or not (COUNTERS.fullmatch(found[1]) or GAUGES.fullmatch(found[1])):
            continue
        try:
            value = float(found[3])
        except ValueError:
            continue
        labels = LABEL.findall(found[2] or "")
        if not math.isfinite(value) or any(name == "priority" and content for name, content in labels):
            continue
        group = found[1], tuple(sorted(label for label in labels if label[0] not in RANKS))
        groups[group] = max(groups.get(group, value), value)
    counters: dict[str, float] = {}
    busy = 0.0
    for (name, _), value in groups.items():
        if GAUGES.fullmatch(name):
            busy += value
        else:
            counters[name] = counters.get(name, 0.0) + value
    return {name: int(value) if value == int(value) else value for name, value in sorted(counters.items())}, busy


SECRET = re.compile(r"(api_?key|secret|passw|credential|hf_token|access_token|auth_token)", re.IGNORECASE)
SECRET_FLAG = re.compile(r"(--[\w-]*(?:api[-_]key|secret|password|token)[= ]+)('[^']*'|\"[^\"]*\"|\S+)")
ENVIRONMENT = re.compile(
    r"(NCCL|NVSHMEM|UCX|GLOO|SGLANG|SGL|VLLM|CUDA|NVIDIA|TORCH|TORCHINDUCTOR|PYTORCH|FLASHINFER|TRITON|DG|OMP)_"
    r"|(HF_HUB_OFFLINE|TRANSFORMERS_OFFLINE|LD_PRELOAD)$"
)
SECRET_VARIABLE = re.compile(r"KEY|TOKEN|SECRET|PASS|CRED", re.IGNORECASE)


def without_secrets(value: Any, key: str | None) -> Any:
    """The same document with secret members, the values of secret flags and the key itself taken out."""
    if isinstance(value, dict):
        return {
            name: None if value is None else "***" if SECRET.search(str(name)) else without_secrets(value, key)
            for name, value in value.items()
        }
    if isinstance(value, list):
        hidden = False
        parts = []
        for part in value:
            parts.append("***" if hidden else without_secrets(part, key))
            hidden = isinstance(part, str) and bool(re.match(r"--[\w-]*(api[-_]key|secret|password|token)$", part))
        return parts
    if isinstance(value, str):
        value = value.replace(key, "***") if key else value
        return SECRET_FLAG.sub(r"\1***", value)
    return value


def environment_of(pid: int | None) -> tuple[dict[str, str] | None, list[str] | None]:
    """Variables of a process that bear on its speed, and its arguments; None where they can't be read."""
    if pid is None:
        return None, None
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            pairs = [part.partition(b"=") for part in file.read().split(b"\0")]
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = [word.decode("utf-8", "replace") for word in file.read().split(b"\0")[:-1]]
    except OSError:
        return None, None
    variables = {name.decode("utf-8", "replace"): value.decode("utf-8", "replace") for name, _, value in pairs}
    return {
        name: value
        for name, value in sorted(variables.items())
        if ENVIRONMENT.match(name) and not SECRET_VARIABLE.search(name)
    }, words


def identity_of(facts: dict[str, Any], version: str | None, pid: int | None) -> dict[str, Any]:
    """What tells one server from another: also a second start of the same, where its process or its random seed shows."""
    info = facts["server_info"] if isinstance(facts["server_info"], dict) else {}
    models = facts["models"].get("data") if isinstance(facts["models"], dict) else None
    listed = models if isinstance(models, list) else []
    names = [each.get("id") for each in listed if isinstance(each, dict)]
    # Rates, averages and the state of its scheduler change while it runs: what it was started with are texts and whole numbers.
    said = json.dumps({k: v for k, v in info.items() if isinstance(v, (str, int))}, sort_keys=True)
    return {
        "model": info.get("model_path") or (names[0] if names else None),
        "version": version,
        "args_sha": hashlib.sha256(said.encode()).hexdigest()[:16] if info else None,
        "pid_started": started_of(pid),
    }


def started_of(pid: int | None) -> int | None:
    """When a process began, in clock ticks since boot; None where it isn't there."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None


class Server:
    """The server that is measured: what it is, its counters, its cache."""

    def __init__(self, client: Client, plan: Plan) -> None:
        self.client, self.plan = client, plan
        self.kind: str | None = None
        self.version: str | None = None
        self.first: dict[str, Any] | None = None
        self.first_identity: dict[str, Any] | None = None
        self.continuous_usage = self.spec_details = plan.api == "chat"
        self.pieces = plan.api == "chat"  # an event brings new text, not all so far
        self.metrics = True

    async def _document(self, *paths: str) -> Any:
        for path in paths:
            answer = await self.client.ask("GET", path)
            if answer.error:
                raise Stop("unreachable", f"GET {path}: {answer.error}", "is the server up, and on this port?")
            if answer.status == 401:
                raise Stop("unauthorized", f"GET {path}: 401", "name the variable with the API key in headers_env")
            if answer.status == 200:
                with contextlib.suppress(ValueError):
                    return loads(answer.text)
        return None

    async def facts(self) -> dict[str, Any]:
        """What it says about itself now. Raises Stop."""
        server_info = await self._document("/server_info", "/get_server_info")
        model_info = await self._document("/model_info", "/get_model_info") if server_info else None
        models = await self._document("/v1/models")
        if isinstance(server_info, dict):
            self.kind, self.version = "sglang", server_info.get("version")
            self.pieces = self.plan.api == "chat" or bool(server_info.get("incremental_streaming_output"))
        else:
            version = await self._document("/version")
            if isinstance(version, dict) and "version" in version:
                self.kind, self.version = "vllm", str(version["version"])
        if self.plan.model is None and isinstance(models, dict):
            with contextlib.suppress(LookupError, TypeError):
                self.plan.model = models["data"][0]["id"]
        found = {"server_info": server_info, "model_info": model_info, "models": models}
        return {name: without_secrets(value, self.plan.key) for name, value in found.items()}

    async def identity(self) -> dict[str, Any] | None:
        """What tells this server from another one on its port; None where it doesn't answer."""
        try:
            return identity_of(await self.facts(), self.version, self.plan.pid)
        except Stop:
            return None

    async def write(self) -> None:
        """server.json, with the facts of now as the last ones."""
        facts = await self.facts()
        self.first = self.first or facts
        self.first_identity = self.first_identity or identity_of(facts, self.version, self.plan.pid)
        env, argv = environment_of(self.plan.pid)
        document = {
            "kind": self.kind,
            "version": self.version,
            "first": self.first,
            "last": facts,
            "env": env,
            "argv": without_secrets(argv, self.plan.key),
        }
        write_whole("server.json", json.dumps(document).encode())

    def request(self, fields: dict[str, Any], length: int) -> tuple[str, dict[str, Any]]:
        """Path and body of a request for a prompt."""
        plan = self.plan
        if plan.api == "generate":
            sampling: dict[str, Any] = {"max_new_tokens": length, "temperature": plan.temperature}
            if plan.ignore_eos:
                sampling["ignore_eos"] = True
            return "/generate", {**fields, "sampling_params": sampling, "stream": True}
        document = {
            "model": plan.model,
            **fields,
            "max_tokens": length,
            "temperature": plan.temperature,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if plan.ignore_eos:
            document["ignore_eos"] = True
        if self.continuous_usage:
            document["stream_options"] = {"include_usage": True, "continuous_usage_stats": True}
        if self.spec_details:
            document["return_spec_tokens_details"] = True
        return "/v1/chat/completions", document

    async def negotiate(self) -> None:
        """One short generation, with fewer extras each time that the server refuses. Raises Stop."""
        self.spec_details = self.spec_details and self.kind == "sglang"
        workload = iter(Workload(self.plan, "probe", "probe", fresh=False))
        while True:
            fields, length = next(workload)
            path, document = self.request(fields, min(length, 8))
            answer = await self.client.ask("POST", path, document, self.plan.limits["stall_s"])
            if answer.status in (400, 422) and (self.spec_details or self.continuous_usage):
                if self.spec_details:
                    self.spec_details = False
                else:
                    self.continuous_usage = False
                continue
            if answer.status == 401:
                raise Stop("unauthorized", f"POST {path}: 401", "name the variable with the API key in headers_env")
            if answer.status == 404:
                hint = (
                    "this server has no such endpoint; try the api chat"
                    if path == "/generate"
                    else "check model and address"
                )
                raise Stop("no_endpoint", f"POST {path}: {answer.error}", hint)
            if answer.error:
                slug = "unreachable" if answer.status == 0 else "refused"
                raise Stop(
                    slug, f"POST {path}: {answer.error}", "send one such request by hand and read the server's log"
                )
            return

    async def flush(self) -> bool | None:
        """Empties the prefix cache; None where there is no endpoint for it."""
        until = clock() + self.plan.limits["settle_s"]
        for path in ("/flush_cache", "/reset_prefix_cache"):
            while True:
                answer = await self.client.ask("POST", path)
                if answer.status == 200:
                    return True
                if answer.status in (404, 405):
                    break
                if answer.error or answer.status in (401, 403) or clock() > until:
                    return False
                await asyncio.sleep(0.2)
        return None

    async def accept_length(self) -> float | None:
        """The average that SGLang itself keeps since the last flush; None without speculation."""
        info = None
        with contextlib.suppress(Stop):  # a server that died at the end of a run costs no run
            if self.kind == "sglang":
                info = await self._document("/server_info", "/get_server_info")
        states = info.get("internal_states") if isinstance(info, dict) else None
        said = [
            state["avg_spec_accept_length"]
            for state in (states if isinstance(states, list) else [])
            if isinstance(state, dict) and isinstance(state.get("avg_spec_accept_length"), float)
        ]
        return round(statistics.mean(said), 4) if said else None

    async def _counters(self) -> tuple[dict[str, float], float] | None:
        answer = await self.client.ask("GET", "/metrics")
        if answer.status == 200 and answer.error is None:
            return read_metrics(answer.text.decode("utf-8", "replace"))
        self.metrics = not 400 <= answer.status < 500
        return None

    async def at_rest(self, least: dict[str, float] | None = None) -> tuple[dict[str, float] | None, bool]:
        """Counters that no longer change on an idle server, and whether it said that it is idle.

        least: waited for as well, as long as settle_s allows: counters may lag behind the replies.
        """
        until = clock() + self.plan.limits["settle_s"]
        before: tuple[dict[str, float], float] | None = None
        while self.metrics:
            found = await self._counters()
            if found is None:
                break
            counters, busy = found
            reached = all(counters.get(name, 0) >= value for name, value in (least or {}).items())
            if found == before and not busy and reached:
                return counters, True
            if clock() > until:
                return counters, not busy
            before = found
            await asyncio.sleep(0.2)
        return None, False


# --- the host around it ---------------------------------------------------------------------------------------------


def write_whole(name: str, content: bytes) -> str:
    """A file that has its name only when it is whole; returns its SHA-256."""
    part = f".{name}.part"
    try:
        with open(part, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, name)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(part)
        raise Stop("disk", f"{name}: {error.strerror}", "make room on the host, then measure again") from None
    return hashlib.sha256(content).hexdigest()


def family(root: int) -> set[int]:
    """A process and all that descend from it."""
    parents: dict[int, int] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat", "rb") as file:
                    parents[int(entry)] = int(file.read().rpartition(b")")[2].split()[1])
            except (OSError, ValueError, IndexError):
                continue  # it ended meanwhile
    found = {root}
    grown = True
    while grown:
        children = {pid for pid, parent in parents.items() if parent in found} - found
        grown = bool(children)
        found |= children
    return found


class Child:
    """A program that prints lines until it is ended; it never outlives this process."""

    def __init__(self, loop: asyncio.AbstractEventLoop, argv: list[str], line: Callable[[str], None]) -> None:
        libc = ctypes.CDLL(None)
        buffer = shutil.which("stdbuf")  # output into a pipe may be held back until 4 KiB have come together
        self.loop, self.line = loop, line
        self.rest = b""
        self.process = subprocess.Popen(
            [buffer, "-oL", *argv] if buffer else argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            preexec_fn=lambda: libc.prctl(1, signal.SIGKILL),  # PR_SET_PDEATHSIG
        )
        assert self.process.stdout is not None
        self.descriptor = self.process.stdout.fileno()
        os.set_blocking(self.descriptor, False)
        loop.add_reader(self.descriptor, self._read)

    def _read(self) -> None:
        try:
            data = os.read(self.descriptor, 65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.loop.remove_reader(self.descriptor)
            return
        *lines, self.rest = (self.rest + data).split(b"\n")
        for line in lines:
            self.line(line.decode("utf-8", "replace").strip())

    def end(self) -> None:
        """Kills it."""
        self.loop.remove_reader(self.descriptor)
        with contextlib.suppress(OSError):
            self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


class Gpus:
    """Samples of the GPUs by nvidia-smi, once a second; the processes on them, every five."""

    def __init__(self, loop: asyncio.AbstractEventLoop, plan: Plan) -> None:
        self.loop, self.plan = loop, plan
        self.samples: list[list[Any]] = []  # [clock, index, W, %, MiB, MHz, mask]
        self.pids: list[tuple[float, int]] = []
        self.children: list[Child] = []
        self.program = shutil.which("nvidia-smi")
        self.reasons = ["clocks_throttle_reasons.active", "clocks_event_reasons.active"]  # an old name and a new one
        if self.program is not None and plan.gpus != []:
            self._ask_for_samples()
            self._start("--query-compute-apps=pid", 5, self._process)

    def _ask_for_samples(self) -> None:
        fields = f"index,power.draw,utilization.gpu,memory.used,clocks.sm,{self.reasons.pop()}"
        self._start(f"--query-gpu={fields}", 1, self._sample)

    def _start(self, query: str, period_s: int, line: Callable[[str], None]) -> None:
        chosen = ["-i", ",".join(map(str, self.plan.gpus))] if self.plan.gpus else []
        argv = [str(self.program), query, "--format=csv,noheader,nounits", *chosen, "-l", str(period_s)]
        self.children.append(Child(self.loop, argv, line))

    def _sample(self, line: str) -> None:
        if "not a valid field" in line and self.reasons:
            self._ask_for_samples()
        parts = [part.strip() for part in line.split(",")]
        if len(parts) != 6 or not parts[0].isdigit():
            return

        def number(text: str) -> float | None:
            try:
                return float(text)
            except ValueError:
                return None

        mask = None
        with contextlib.suppress(ValueError):
            mask = int(parts[5], 16)
        self.samples.append([clock(), int(parts[0]), *map(number, parts[1:5]), mask])

    def _process(self, line: str) -> None:
        if line.isdigit():
            self.pids.append((clock(), int(line)))

    def now(self) -> tuple[float | None, float | None]:
        """Power of all in W, and memory of the fullest in MiB."""
        newest = {sample[1]: sample for sample in self.samples[-64:] if clock() - sample[0] < 5}
        powers = [sample[2] for sample in newest.values() if sample[2] is not None]
        memory = [sample[4] for sample in newest.values() if sample[4] is not None]
        return (sum(powers) if powers else None), (max(memory) if memory else None)

    def during(self, begin: float, end: float) -> dict[str, Any] | None:
        """Samples and foreign processes of a run."""
        samples = [[round(at - begin, 3), *rest] for at, *rest in self.samples if begin <= at <= end]
        if not samples:
            return None
        # From shortly before: the list comes every five seconds only.
        seen = {pid for at, pid in self.pids if begin - 6 <= at <= end}
        foreign = None
        if self.plan.pid is not None:
            ours = family(self.plan.pid)
            if seen & ours:  # else the server is in another process namespace, or not on these GPUs
                foreign = sorted(seen - ours)
        return {"samples": samples, "foreign_pids": foreign}

    def forget(self, before: float) -> None:
        """Drops what no later run needs."""
        self.samples = [sample for sample in self.samples if sample[0] >= before]
        self.pids = [entry for entry in self.pids if entry[0] >= before - 6]

    def end(self) -> None:
        """Ends the samplers."""
        for child in self.children:
            child.end()
        self.children = []


class LogSpan:
    """The part of the server's log that was written during the window."""

    GRAPH = re.compile(rb"Decode batch[^\n]*?(?:cuda|cpu|npu) graph: (True|False)")

    def __init__(self, path: str | None) -> None:
        self.path = path
        self.begin = self.end = None  # type: tuple[int, int, int] | None

    def mark(self) -> tuple[int, int, int] | None:
        """Device, inode and length now."""
        if self.path is None:
            return None
        try:
            status = os.stat(self.path)
        except OSError:
            return None
        return status.st_dev, status.st_ino, status.st_size

    def graph(self) -> dict[str, int] | None:
        """Decode lines with and without a graph; None where the log can't tell."""
        if self.path is None or self.begin is None or self.end is None or self.begin[:2] != self.end[:2]:
            return None
        left = self.end[2] - self.begin[2]
        if left < 0:
            return None
        on = off = 0
        try:
            with open(self.path, "rb") as file:
                file.seek(self.begin[2])
                rest = b""
                while left > 0:
                    block = file.read(min(left, 1 << 20))
                    if not block:
                        break
                    left -= len(block)
                    head, newline, rest = (rest + block).rpartition(b"\n")
                    for found in self.GRAPH.finditer(head + newline):
                        on, off = on + (found[1] == b"True"), off + (found[1] == b"False")
                    rest = rest[-4096:]
        except OSError:
            return None
        return {"on": on, "off": off}


# --- one run --------------------------------------------------------------------------------------------------------


class Bench:
    """What all runs share."""

    def __init__(self, loop: asyncio.AbstractEventLoop, plan: Plan) -> None:
        self.loop, self.plan = loop, plan
        self.client = Client(loop, plan)
        self.server = Server(self.client, plan)
        self.gpus = Gpus(loop, plan)
        self.left_s = 0.0  # of the runs that have not begun


class Load(Owner):
    """Requests at one load: a closed loop of users, or arrivals at a rate. `go` carries it out.

    Nothing here is a task or a coroutine a request: the end of one begins the next.
    """

    def __init__(self, bench: Bench, point: dict[str, Any], run: int, workload: Workload, phase: str) -> None:
        self.bench, self.plan, self.loop = bench, bench.plan, bench.loop
        self.point, self.run, self.phase = point, run, phase
        self.users: int | None = point.get("concurrency")
        self.rate: float | None = point.get("rate")
        self.workload = workload
        self.prompts = iter(workload)
        self.ready: deque[Exchange] = deque()
        self.all: list[Exchange] = []
        self.under_way = 0
        self.completed = 0
        self.failed = 0
        self.failed_in_a_row = 0
        self.opened = True  # new requests may begin
        self.window: tuple[float, float] | None = None
        self.window_begin: float | None = None
        self.tokens_before = 0  # tokens that had come when the window began
        self.begun_in_window = 0  # replies
        self.busy: set[int] = set()
        self.over: asyncio.Future[None] = self.loop.create_future()
        self.recent: deque[tuple[float, float | None]] = deque(maxlen=400)  # TTFT in s and TPOT in ms of replies
        self.history: deque[tuple[float, int]] = deque(maxlen=64)  # clock, tokens
        self.verify = self.accepted = 0
        self.lags = array.array("d")
        self.lost_s = self.late_s = 0.0
        self.tick_due = float("inf")
        self.cpu_begin = self.cpu_end = 0.0
        self.log = LogSpan(bench.plan.log)
        self.zero = clock()
        self.started_at = time.time()
        self.ended_at = self.zero
        self.ramp_s = self.plan.limits["ramp_s"]
        self.limit: int | None = None  # requests
        self.timers: list[asyncio.TimerHandle] = []
        self.arrival = 0.0
        self.arrivals = random.Random(f"{self.plan.seed}/{label_of(point)}/{run}/arrivals")

    # Requests

    def _make(self) -> Exchange:
        fields, length = next(self.prompts)
        path, document = self.bench.server.request(fields, length)
        exchange = Exchange(self, "POST", path, dumps(document), True)
        exchange.length = length
        exchange.pieces = self.bench.server.pieces
        exchange.item = self.workload.item
        exchange.prompt = hashlib.sha256(dumps([fields, length])).hexdigest()[:16]
        return exchange

    def _begin(self, user: int, due: float) -> None:
        if not self.opened:
            return
        if self.limit is not None and len(self.all) >= self.limit:
            self.stop()
            return
        exchange = self.ready.popleft() if self.ready else self._make()
        exchange.index, exchange.user, exchange.sched = len(self.all), user, due
        self.all.append(exchange)
        self.under_way += 1
        self.bench.client.send(exchange)

    def _arrive(self) -> None:
        assert self.rate is not None
        # The time that counts is when a request was due, however late this loop is.
        while self.opened and self.arrival <= clock():
            self._begin(0, self.arrival)
            self.arrival += self.arrivals.expovariate(self.rate)
        if self.opened:
            self.timers.append(self.loop.call_later(max(0.0, self.arrival - clock()), self._arrive))
            del self.timers[:-8]

    def first(self, exchange: Exchange) -> None:
        if self.window_begin is not None:
            self.begun_in_window += 1
        if self.users is not None and self.window_begin is None and self.phase == "window":
            self.busy.add(exchange.user)
            if len(self.busy) == self.users:
                self._open_window()

    def ended(self, exchange: Exchange) -> None:
        self.under_way -= 1
        now = clock()
        if exchange.error is None:
            self.completed += 1
            self.failed_in_a_row = 0
            self._remember(exchange)
            if self.rate is not None and self.window_begin is None and self.phase == "window":
                self._open_window()
        else:
            self.failed += 1
            self.failed_in_a_row += 1
            gone = exchange.error.startswith("connect")
            if self.failed_in_a_row >= (GONE if gone else max(20, 4 * (self.users or 1))) and (
                gone or not self.completed
            ):
                self.stop()
        if self.users is not None and self.opened:
            if exchange.error is None:
                self._begin(exchange.user, now)
            else:
                pause = min(1.0, 0.05 * 2 ** min(self.failed_in_a_row, 5))
                self.loop.call_later(pause, self._begin, exchange.user, now + pause)
        self._look()

    def _remember(self, exchange: Exchange) -> None:
        stamps = exchange.stamps
        k1 = exchange.counts[0] if exchange.exact else 1
        rest = (exchange.output or 0) - k1
        tpot = (stamps[-1] - stamps[0]) / rest * 1e3 if rest > 0 and len(stamps) > 1 else None
        self.recent.append((stamps[0] - exchange.sched, tpot))
        if exchange.verify:
            self.verify += exchange.verify
            correct = exchange.correct
            self.accepted += (exchange.output or 0) - 1 if correct is None else correct + exchange.verify

    # Phases

    def _open_window(self) -> None:
        self.window_begin = clock()
        self.cpu_begin = time.process_time()
        self.log.begin = self.log.mark()
        self.lags = array.array("d")
        self.tokens_before = self.tokens
        self.timers.append(self.loop.call_later(self.plan.duration_s, self._stop_if_enough))

    def _stop_if_enough(self) -> None:
        """Ends the window once it holds what is needed, or has been as long as it may."""
        if not self.opened or self.window_begin is None:
            return
        plan = self.plan
        tokens, replies = plan.needs
        passed = clock() - self.window_begin
        enough = self.tokens - self.tokens_before >= tokens and self.begun_in_window >= replies
        if enough or passed >= plan.duration_max_s:
            self.stop()
        else:
            pause = min(PROGRESS_S, plan.duration_max_s - passed)
            self.timers.append(self.loop.call_later(pause, self._stop_if_enough))
            del self.timers[:-8]

    def stop(self) -> None:
        """No new request from here on; the window ends."""
        if not self.opened:
            return
        self.opened = False
        now = clock()
        if self.window_begin is not None:
            self.window = self.window_begin, now
            if now > self.tick_due:  # the tick that this end has overtaken
                self.lags.append(now - self.tick_due)
            self.lost_s = sum(lag - LATE_S for lag in self.lags if lag > LATE_S)
            # What comes while the loop is late is stamped at its end: half a lag late on average, for as long as the lag.
            self.late_s = sum(lag * lag for lag in self.lags) / 2 / (now - self.window_begin)
            self.cpu_end = time.process_time()
            self.log.end = self.log.mark()
        if self.phase == "window":
            self.phase = "drain"
        self.timers.append(self.loop.call_later(self.plan.limits["drain_s"], self._give_up))
        self._look()

    def _give_up(self) -> None:
        self.bench.client.abandon(f"drain: not ended {self.plan.limits['drain_s']:g} s after the window")

    def _look(self) -> None:
        if not self.opened and not self.under_way and not self.over.done():
            self.over.set_result(None)

    async def go(self, limit: int | None, warm: Callable[[Load], bool] | None = None) -> None:
        """Until drained. limit: requests at most; warm: of a warm-up, says when it is enough."""
        self.limit = limit
        count = self.users or 4
        self.ready.extend(self._make() for _ in range(min(count, limit or count)))
        self.zero = clock()
        self.started_at = time.time()
        gc.collect()
        gc.freeze()
        gc.disable()
        helpers = [self.loop.create_task(self._tick()), self.loop.create_task(self._sweep(warm))]
        try:
            if self.users is not None:
                for user in range(self.users):
                    self._begin(user, self.zero)
            else:
                assert self.rate is not None
                self.arrival = self.zero + self.arrivals.expovariate(self.rate)
                self._arrive()
            done, _ = await asyncio.wait([self.over, *helpers], return_when=asyncio.FIRST_COMPLETED)
            for each in done:
                each.result()  # a helper ends only by a fault of its own
        finally:
            self.opened = False
            for helper in helpers:
                helper.cancel()
            for timer in self.timers:
                timer.cancel()
            gc.enable()
            gc.unfreeze()
            self.ended_at = clock()
        self._progress(self.ended_at)

    async def _tick(self) -> None:
        """How late the loop is, and prompts made ahead so that users who end together don't wait for them."""
        while True:
            self.tick_due = clock() + TICK_S
            await asyncio.sleep(TICK_S)
            self.lags.append(clock() - self.tick_due)
            if self.opened and len(self.ready) < min(256, self.users or 4):
                self.ready.append(self._make())

    async def _sweep(self, warm: Callable[[Load], bool] | None) -> None:
        while True:
            await asyncio.sleep(PROGRESS_S)
            now = clock()
            self.bench.client.watch()
            self.history.append((now, self.tokens))
            self._progress(now)
            if self.opened and (warm(self) if warm else self.window_begin is None and now - self.zero > self.ramp_s):
                self.stop()

    def _progress(self, now: float) -> None:
        then, tokens = next(((t, n) for t, n in self.history if now - t <= 1.05), (self.zero, 0))
        plan = self.plan
        ttft = statistics.median(entry[0] for entry in self.recent) * 1e3 if self.recent else None
        tpots = [entry[1] for entry in self.recent if entry[1] is not None]
        power, memory = self.bench.gpus.now()
        end = (self.window_begin or now) + plan.duration_s if self.phase == "window" else now
        say(
            "progress",
            label=label_of(self.point),
            point=self.point,
            run=self.run,
            runs=plan.runs,
            phase=self.phase,
            t=round(now - (self.window_begin or self.zero), 2),
            tok_s=round((self.tokens - tokens) / (now - then), 1) if now > then else None,
            tokens=self.tokens,
            active=self.under_way,
            completed=self.completed,
            errors=self.failed,
            ttft_ms=None if ttft is None else round(ttft, 2),
            tpot_ms=round(statistics.median(tpots), 3) if tpots else None,
            accept_length=round(self.accepted / self.verify, 3) if self.verify else None,
            power_w=None if power is None else round(power, 1),
            memory_used_mib=memory,
            left_s=round(self.bench.left_s + max(0.0, end - now), 1),
        )

    # What came of it

    def seconds(self) -> float:
        """From the first request to the last reply."""
        return self.ended_at - self.zero

    def client_load(self) -> dict[str, Any]:
        """Whether this program was the bottleneck."""
        begin, end = self.window or (self.zero, self.ended_at)
        waits = [x.sent - x.sched for x in self.all if x.sent is not None and begin <= x.sched <= end]
        return {
            "cpu_fraction": round((self.cpu_end - self.cpu_begin) / (end - begin), 4) if self.window else None,
            "lost_s": round(self.lost_s, 6) if self.window else None,
            "late_mean_ms": round(self.late_s * 1e3, 6) if self.window else None,
            "loop_lag_p99_ms": high(self.lags),
            "loop_lag_max_ms": round(max(self.lags) * 1e3, 3) if self.lags else None,
            "send_lag_mean_ms": round(statistics.fmean(waits) * 1e3, 3) if waits else None,
            "send_lag_p99_ms": high(waits),
            "rss_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
        }

    def errors(self) -> dict[str, int]:
        """Reasons and how often; at most 20 of them."""
        found: dict[str, int] = {}
        for exchange in self.all:
            if exchange.error is not None:
                reason = exchange.error if exchange.error in found or len(found) < 20 else exchange.error.split(":")[0]
                found[reason] = found.get(reason, 0) + 1
        return found

    def held(self, search: Search) -> tuple[int, int]:
        """Replies that were due in the window, and how many of them are within the limits; none without a window."""
        zero, (begin, end) = self.zero, self.window or (1.0, 0.0)
        # By the figures of the files, so that whoever reads them comes to the same.
        begin, end = round(begin - zero, 6), round(end - zero, 6)
        rows = [x.row(zero) for x in self.all if begin <= round(x.sched - zero, 6) <= end]
        since = "t_sched" if self.rate is not None else "t_send"
        return len(rows), sum(search.met(row, since) for row in rows)

    def rows(self) -> bytes:
        """rows.jsonl.gz"""
        text = b"".join(dumps(exchange.row(self.zero)) + b"\n" for exchange in self.all)
        return gzip.compress(text, 6)


def high(values: Iterable[float]) -> float | None:
    """99th percentile, in milliseconds of seconds."""
    ordered = sorted(values)
    return round(ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))] * 1e3, 3) if ordered else None


class Warmth:
    """Says when a warm-up is enough: enough replies, and three spans of time whose median gap between chunks agrees.

    The gap is the step of the server, whatever the replies' lengths and however many drafts are accepted in a step: with
    one user the rate itself never keeps within 3 % over two seconds.
    """

    def __init__(self, requests: int, limit_s: float) -> None:
        self.requests, self.limit_s = requests, limit_s
        self.spans: list[float] = []  # median gap, seconds
        self.begin: float | None = None
        self.stable = False

    def __call__(self, load: Load) -> bool:
        now = clock()
        if now - load.zero >= self.limit_s:
            return True
        if self.begin is None:
            if load.tokens:
                self.begin = now
            return False
        if now - self.begin >= SPAN_S:
            gaps = self.gaps(load, self.begin)
            self.spans = [*self.spans[-2:], statistics.median(gaps)] if len(gaps) >= SPAN_GAPS else []
            self.begin = now
        if len(self.spans) == 3 and max(self.spans) - min(self.spans) <= SPREAD * statistics.mean(self.spans):
            self.stable = load.completed >= self.requests
        return self.stable

    @staticmethod
    def gaps(load: Load, since: float) -> list[float]:
        """Seconds between chunks, of those that came since."""
        found = []
        for exchange in load.all:
            stamps = exchange.stamps
            if stamps and stamps[-1] >= since:
                first = max(1, bisect_left(stamps, since))
                found += [stamps[i] - stamps[i - 1] for i in range(first, len(stamps))]
        return found


# --- the whole bench ------------------------------------------------------------------------------------------------


async def warm_up(bench: Bench, point: dict[str, Any], run: int) -> dict[str, Any]:
    """Long before the first run of a point, short before the others. Raises Stop where nothing works."""
    plan = bench.plan
    label = label_of(point)
    users = point.get("concurrency") or 4
    if run == 1:
        load = Load(bench, point, run, Workload(plan, label, f"w{run}", fresh=False), "warmup")
        warmth = Warmth(min(2 * users, WARM_REQUESTS), plan.warmup_s)
        await load.go(None, warmth)
        stable = warmth.stable
    else:
        load = Load(bench, {"concurrency": users}, run, Workload(plan, label, f"w{run}", False, SHORT_OUTPUT), "warmup")
        await load.go(users, lambda load: clock() - load.zero >= plan.warmup_s)
        stable = True
    judge(load)
    return {"seconds": round(load.seconds(), 3), "stable": stable, "requests": len(load.all)}


def judge(load: Load) -> None:
    """Raises Stop where not one request got through, or the server is gone."""
    reason = next((x.error for x in reversed(load.all) if x.error is not None), None)
    if reason is None:
        return
    if load.failed_in_a_row >= GONE and reason.startswith("connect"):
        raise Stop("server_lost", reason, "read the end of the server's log")
    if not load.completed:
        raise Stop("refused", reason, "no request got through; read the server's log")


def hit_rate(done: list[Exchange], before: dict[str, float] | None, after: dict[str, float] | None) -> float | None:
    """Share of prompt tokens that came from the prefix cache: as the replies said, else as the counters do."""
    told = [(x.cached, x.input) for x in done if x.cached is not None and x.input]
    hits: float = sum(cached for cached, _ in told)
    asked: float = sum(tokens for _, tokens in told)
    if not told and before is not None and after is not None:
        for cached, prompt in CACHE_COUNTERS:
            if prompt in after:
                hits = after.get(cached, 0) - before.get(cached, 0)
                asked = after[prompt] - before.get(prompt, 0)
    return round(hits / asked, 6) if asked > 0 else None


async def measure(bench: Bench, point: dict[str, Any], run: int) -> Load:
    """One measured run, from its warm-up to its files; its load, all replies in. Raises Stop."""
    plan, server = bench.plan, bench.server
    label = label_of(point)
    warmup = await warm_up(bench, point, run)
    flushed = await server.flush()
    before, idle_before = await server.at_rest()
    workload = Workload(plan, label, str(run), fresh=flushed is True)
    load = Load(bench, point, run, workload, "window")
    bench.left_s -= plan.duration_s
    await load.go(plan.max_requests)
    done = [x for x in load.all if x.output is not None]
    least = {}
    if before is not None and not load.failed:
        name = next((name for name in OUTPUT_COUNTERS if name in before), None)
        if name:
            least = {name: before[name] + sum(x.output or 0 for x in done)}
    after, idle_after = await server.at_rest(least)
    identities = {"first": server.first_identity, "after": await server.identity()}
    zero = load.zero
    rows = f"{label}-{run}.rows.jsonl.gz"
    meta: dict[str, Any] = {
        "label": label,
        "point": point,
        "run": run,
        "seed": plan.seed,
        "started_at": round(load.started_at, 3),
        "window": [round(moment - zero, 6) for moment in load.window] if load.window else None,
        "end_s": round(load.seconds(), 6),
        "requests": len(load.all),
        "flush": {"ok": flushed, "hit_rate": hit_rate(done, before, after)},
        "counters": {"before": before, "after": after, "idle": idle_before and idle_after},
        "gpu": bench.gpus.during(zero, load.ended_at),
        "graph": load.log.graph(),
        "client": load.client_load(),
        "server": identities,
        "warmup": warmup,
        "errors": load.errors(),
        "accept_length": await server.accept_length() if load.verify else None,
        "options": {"continuous_usage": server.continuous_usage, "spec_details": server.spec_details},
        "rounds": -(-len(load.all) // len(plan.items)) if plan.dataset != "random-ids" else 1,
    }
    bench.gpus.forget(load.ended_at)
    meta["rows_sha256"] = write_whole(rows, load.rows())
    name = f"{label}-{run}.json"
    sha = write_whole(name, json.dumps(meta).encode())
    say(
        "run",
        label=label,
        point=point,
        run=run,
        meta=name,
        rows=rows,
        sha256={"meta": sha, "rows": meta["rows_sha256"]},
    )
    judge(load)
    return load


async def search_once(bench: Bench, search: Search, run: int, later: float) -> None:
    """One search, from its first point to its answer. Raises Stop.

    Args:
        later: seconds that the searches after this one take at most.
    """
    plan = bench.plan
    each = plan.warmup_s + plan.duration_s
    search.restart()
    while (load := search.next()) is not None:
        bench.left_s = later + (search.most - len(search.points)) * each - plan.warmup_s
        measured = await measure(bench, {search.kind: load}, run)
        search.judge(load, *measured.held(search))
    say("search", kind=search.kind, run=run, points=search.points, found=search.found, fails_from=search.fails_from)


async def carry_out(bench: Bench) -> None:
    """All points and runs, or searches. Raises Stop."""
    plan = bench.plan
    try:
        await bench.server.facts()
        await bench.server.negotiate()
        await bench.server.write()
        bench.left_s = len(plan.points) * (plan.warmup_s + plan.runs * plan.duration_s)
        if plan.search is not None:
            each = plan.search.most * (plan.warmup_s + plan.duration_s)
            for run in range(1, plan.runs + 1):
                await search_once(bench, plan.search, run, (plan.runs - run) * each)
        for point in plan.points:
            bench.left_s -= plan.warmup_s
            for run in range(1, plan.runs + 1):
                await measure(bench, point, run)
        with contextlib.suppress(Stop):  # all runs are whole, whatever became of the server meanwhile
            await bench.server.write()
    finally:
        bench.client.close()
        bench.gpus.end()


def raise_file_limit() -> None:
    """As many connections as this user may have."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def main(argv: list[str], work: Callable[[Bench], Coroutine[Any, Any, None]] = carry_out) -> int:
    """Exit status: 0 done, 1 after an `error` event. `work`: what is carried out instead of a bench."""
    with open(__file__, "rb") as file:
        sha = hashlib.sha256(file.read()).hexdigest()
    versions = {name: getattr(module, "__version__", None) for name, module in (("uvloop", uvloop), ("orjson", orjson))}
    say("hello", version=VERSION, python=sys.version.split()[0], **versions, sha256=sha, pid=os.getpid())
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop() if uvloop else asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        if len(argv) != 2:
            raise Stop("bad_plan", "one argument is needed", "python3 loadgen.py bench.json")
        plan = Plan.read(argv[1])
        raise_file_limit()
        task = loop.create_task(work(Bench(loop, plan)))
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, task.cancel)
        loop.run_until_complete(task)
    except Stop as stop:
        say("error", slug=stop.slug, text=stop.text, hint=stop.hint)
        return 1
    except asyncio.CancelledError:
        say(
            "error",
            slug="interrupted",
            text="ended by a signal",
            hint="finished runs are whole; measure again for the others",
        )
        return 1
    except Exception as error:
        say(
            "error",
            slug="internal",
            text=f"{type(error).__name__}: {error}",
            hint="this is a fault of the load generator",
        )
        return 1
    finally:
        loop.close()
    say("done")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
