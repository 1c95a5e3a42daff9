"""A server for tests of measuring: it speaks SGLang's /generate and the chat of SGLang and vLLM, and knows the truth.

`python truth_server.py ['{"setting": ...}']` prints its port and serves until it is ended. What a reply is like stands in
the prompt, as words `name=value` (anything else there is ignored); settings are the defaults of all prompts and what
belongs to the whole server:

    tokens      the reply's length (default: what the request allows); it then ends by "stop", else by "length"
    chunk       tokens a chunk (1); with `speculate`, steps accept 1, 2, ... chunk tokens in turn, after a first chunk of one
    speculate   1: verify steps are counted, as by EAGLE-3 with 3 drafts a step
    tick_ms     between two chunks (1); first_ms before the first (0); pause_ms more before the chunk pause_at
    cached      prompt tokens that are said to come from the cache (0); silent=1: chat does not say it
    reasons     chunks of SGLang's chat that are reasoning, before the others (0)
    body        chunked, counted, close (until the connection closes), http10
    lines       lf, crlf, cr: how lines of the event stream end
    pack        chunks of the reply that are written together (1), in one HTTP chunk (pack=3) or one each (pack=-3)
    split       1: every byte is written on its own; cut=1: each write in two halves, cut_ms (0.5) between them
    comments    1: comments, ids and a retry between the events
    spaces      1: JSON with spaces behind commas and colons
    fault       reset, cut, early (the body ends in mid-reply), stall, endless (after its end), babble (tokens without
                end), huge (an event without end), 503, slow_head, garbage, bad_size, bad_json, plain (JSON instead of a
                stream), no_finish, abort, error, no_tokens, no_count, drop (closes the connection after the reply,
                unannounced), bye (says that it does)

    dialect     sglang, vllm          api_key   asked for where given
    refuses     names of request members that get a 400
    counts      factor on the counters: 1.1 is a server that counts wrong; lag_ms: how late they are
    metrics     0: no /metrics        flush     1, 0: no such endpoint, -1: always refused
    incremental 1: /generate sends only the new text
    model       "truth"; seed: of its random numbers, as /server_info tells it (1); tokenizer: path that /model_info tells
    stall_s     once, stall_at_s after its start, the whole server stands still for so long
    slots       replies that are generated at a time; others wait for their first token

GET /truth is what happened, in order: {"what": "generate" | "chat" | the path of anything else, "body", and of a reply
"connection": its number, "at": when it was read, "sends": [(when a chunk was handed to the socket, tokens so far)],
"in", "out", "chunks": [tokens of each], "verify", "correct", "proposed", "cached", "finish", "fault", "whole": it was
sent in full}. Times are of CLOCK_MONOTONIC, as the load generator's. Frames, and what is in a write of its own, are those
of the recordings in tests/data/http; vLLM's are made after its documentation.
"""

import asyncio
import contextlib
import json
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

# What a text may hold: words of the protocol, quotes, line ends, characters of several bytes.
WORDS = (
    " plain", '"completion_tokens":987654', "data: [DONE]\n\n", "é", "\\", "😀", '\\"content":"', "\r\n\r\n", "}]}",
    '{"meta_info":{"completion_tokens":5}}', "finish_reason", " \u2028",
)  # fmt: skip
clock = time.perf_counter  # the load generator's own, comparable between the processes of a machine
DEFAULTS: dict[str, Any] = {
    "chunk": 1, "tick_ms": 1, "first_ms": 0, "cached": 0, "body": "chunked", "lines": "lf", "pack": 1, "dialect": "sglang",
    "counts": 1, "lag_ms": 0, "metrics": 1, "flush": 1, "refuses": [], "model": "truth", "seed": 1, "pause_ms": 0, "cut_ms": 0.5, "stall_s": 0,
}  # fmt: skip
ENDS = {"lf": b"\n", "crlf": b"\r\n", "cr": b"\r"}


class Reply:
    """One reply: its frames and the truth about it."""

    def __init__(self, request: dict[str, Any], settings: dict[str, Any], api: str) -> None:
        content = request.get("text", request.get("input_ids", request.get("messages")))
        text = content[-1]["content"] if api == "chat" else content if isinstance(content, str) else ""
        self.options = {**DEFAULTS, **settings}
        for word in text.split():
            name, equals, value = word.partition("=")
            if equals:
                self.options[name] = int(value) if value.lstrip("-").isdigit() else value
        self.api, self.request = api, request
        sampling = request.get("sampling_params", request)
        names = ("max_new_tokens", "max_tokens", "max_completion_tokens")
        limit = int(next((sampling[name] for name in names if name in sampling), 16))
        natural = self.options.get("tokens")
        stops = natural is not None and natural <= limit and not sampling.get("ignore_eos")
        self.fault = str(self.options.get("fault", ""))
        out = 0 if self.fault == "no_tokens" else natural if stops else limit
        self.truth: dict[str, Any] = {
            "in": len(content) if isinstance(content, list) and api == "generate" else len(text.split()) + 1,
            "out": out,
            "chunks": [],
            "verify": None,
            "correct": None,
            "proposed": None,
            "cached": self.options["cached"],
            "finish": "stop" if stops else "length",
            "fault": self.fault,
            "whole": False,
        }
        left, step = out, 0
        while left:
            if self.options.get("speculate"):
                size = 1 if not step else 1 + (step - 1) % self.options["chunk"]
                if step:
                    for name, more in (("verify", 1), ("correct", size - 1), ("proposed", 3)):
                        self.truth[name] = (self.truth[name] or 0) + more
            else:
                size = self.options["chunk"]
            self.truth["chunks"].append(min(size, left))
            left -= min(size, left)
            step += 1

    def _dump(self, document: dict[str, Any]) -> bytes:
        separators = (", ", ": ") if self.options.get("spaces") else (",", ":")
        return json.dumps(document, separators=separators, ensure_ascii=False).encode()

    def frames(self) -> Iterator[bytes]:
        """The data of each event, "[DONE]" last; a chunk of tokens each but for what comes before and behind them."""
        make = self._generate if self.api == "generate" else self._chat
        for frame in make():
            yield self._dump(frame)
        if self.fault != "no_finish":
            yield b"[DONE]"

    def _generate(self) -> Iterator[dict[str, Any]]:
        truth, sent, text = self.truth, 0, ""
        for number, size in enumerate(truth["chunks"] or [0]):
            new = "".join(WORDS[(sent + i) % len(WORDS)] for i in range(size))
            sent += size
            text = new if self.options.get("incremental") else text + new
            last = number == max(0, len(truth["chunks"]) - 1)
            meta: dict[str, Any] = {
                "id": "6683808ea64e432985409d39b598eb5e",
                "finish_reason": None,
                "prompt_tokens": truth["in"],
                "weight_version": "default",
                "num_retractions": 0,
                "storage_prefetch_wait": 0.0,
                "storage_staging_wait": 0.0,
                "forward_entry_time": 1796019263.5165606,
                "prefill_finished_time": 1796019263.527727,
                "queue_time": 0.0003,
                "reasoning_tokens": 0,
                "completion_tokens": sent,
                "cached_tokens": truth["cached"],
                "cached_tokens_details": {"device": truth["cached"], "host": 0} if truth["cached"] else None,
                "dp_rank": None,
            }
            if last and self.fault != "no_finish":
                meta = self._final(meta)
            elif not number:
                meta["response_sent_to_client_ts"] = 1796019263.5291934
            ids = list(range(sent - size if self.options.get("incremental") else 0, sent))
            yield {"text": text, "output_ids": ids, "meta_info": meta}

    def _final(self, meta: dict[str, Any]) -> dict[str, Any]:
        """What the last event of /generate says, from what the others do."""
        truth = self.truth
        kind, out = truth["finish"], truth["out"]
        meta["finish_reason"] = {"type": kind, **({"matched": 2} if kind == "stop" else {"length": out})}
        if self.fault == "abort":
            meta["finish_reason"] = {"type": "abort", "message": "out of\nmemory", "status_code": 500}
        found: dict[str, Any] = {}
        for name, value in meta.items():
            if name == "cached_tokens_details":
                found["weight_versions"] = [{"version": "default", "start": 0, "end": out}]
            found[name] = value
        found["e2e_latency"] = 0.5
        if truth["verify"]:
            found |= self._speculation()
        for name in ("request_received_ts", "first_token_latency", "api_server_dispatch_finish_ts",
                     "response_sent_to_client_ts", "request_finished_ts", "decode_throughput"):  # fmt: skip
            found[name] = 1.5
        return found

    def _speculation(self) -> dict[str, Any]:
        truth = self.truth
        capped = {"spec_cap_length": 0.0, "spec_block_accept_length": 0.0} if self.api == "chat" else {}
        return {
            "spec_accept_rate": 0.5,
            "spec_accept_length": 1.0,
            **capped,
            "spec_num_correct_drafts": truth["correct"],
            "spec_num_proposed_drafts": truth["proposed"],
            "spec_verify_ct": truth["verify"],
            "spec_correct_drafts_histogram": [5, 8, 1],
            **({"spec_cap_lens_histogram": []} if capped else {}),
        }

    def _chat(self) -> Iterator[dict[str, Any]]:
        truth, sent = self.truth, 0
        asked = self.request.get("stream_options") or {}
        vllm = self.options["dialect"] == "vllm"
        continuous, whole = asked.get("continuous_usage_stats"), asked.get("include_usage")

        def usage() -> dict[str, Any]:
            details = None if self.options.get("silent") else {"cached_tokens": truth["cached"]}
            found = {"prompt_tokens": truth["in"], "total_tokens": truth["in"] + sent, "completion_tokens": sent}
            found["prompt_tokens_details"] = details
            return found if vllm else {**found, "reasoning_tokens": 0, "completion_tokens_details": None}

        def frame(delta: dict[str, Any] | None, finish: str | None = None, **more: Any) -> dict[str, Any]:
            choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
            if not vllm:
                choice["delta"] = {"reasoning_content": None, **(delta or {})}
                choice["matched_stop"] = 2 if finish == "stop" else None
            elif whole and not more:
                more = {"usage": None}
            return {
                "id": "a675b8749d1a4efcb65bfae41f0c2837",
                "object": "chat.completion.chunk",
                "created": 1796019064,
                "model": "truth",
                "choices": [] if delta is None else [choice],
                **more,
            }

        # vLLM counts in every event, SGLang in those with text alone.
        counted = (lambda: {"usage": usage()}) if continuous else dict
        yield frame({"role": "assistant", "content": ""}, **(counted() if vllm else {}))
        for number, size in enumerate(truth["chunks"]):
            text = "".join(WORDS[(sent + i) % len(WORDS)] for i in range(size))
            sent += size
            last = number == len(truth["chunks"]) - 1
            kind = "reasoning_content" if number < self.options.get("reasons", 0) else "content"
            # vLLM puts the finish reason on the last text, SGLang in an event of its own.
            finish = truth["finish"] if vllm and last and self.fault != "no_finish" else None
            yield frame({kind: text}, finish, **counted())
        if self.fault == "no_finish":
            return
        if not vllm or not truth["chunks"]:
            yield frame({}, truth["finish"])
        if self.request.get("return_spec_tokens_details") and truth["verify"]:
            yield frame(None, usage=None, sglext={"spec_tokens_details": self._speculation()})
        if whole and self.fault != "no_count":
            yield frame(None, usage=usage())

    def event(self, frame: bytes) -> bytes:
        """An event of the stream."""
        end = ENDS[self.options["lines"]]
        extra = b": a comment" + end + b"id: 7" + end + b"retry: 100" + end if self.options.get("comments") else b""
        return extra + b"data: " + frame + end + end

    def head(self) -> bytes:
        """Of a reply that is a stream."""
        body = self.options["body"]
        lines = ["HTTP/1.0 200 OK" if body == "http10" else "HTTP/1.1 200 OK"]
        lines.append("content-type: text/event-stream; charset=utf-8")
        if body == "chunked":
            lines.append("Transfer-Encoding: chunked")
        elif body == "counted":
            lines.append(f"Content-Length: {sum(len(self.event(frame)) for frame in self.frames())}")
        if self.fault == "bye":
            lines.append("Connection: close")
        return "\r\n".join(lines).encode() + b"\r\n\r\n"

    def part(self, data: bytes) -> bytes:
        """Bytes of the body as they go out."""
        return b"%x\r\n%b\r\n" % (len(data), data) if self.options["body"] == "chunked" else data

    def end(self) -> bytes:
        """What ends the body."""
        return b"0\r\n\r\n" if self.options["body"] == "chunked" else b""

    def whole(self) -> bytes:
        """The reply as one piece, without its fault."""
        return self.head() + b"".join(self.part(self.event(frame)) for frame in self.frames()) + self.end()


class TruthServer:
    """Serves, and remembers."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = {**DEFAULTS, **settings}
        self.events: list[dict[str, Any]] = []
        self.counted = {"prompt": 0, "generation": 0, "cached": 0, "requests": 0, "verify": 0}
        self.running = 0
        self.connections = 0
        self.tasks: set[asyncio.Task[None]] = set()
        self.began = clock()
        self.stall_s = self.settings["stall_s"]
        self.slots = asyncio.Semaphore(int(settings.get("slots", 1_000_000)))

    async def connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Requests on one connection, one after another."""
        self.connections += 1
        number = self.connections
        try:
            while await self._request(reader, writer, number):
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError, EOFError, asyncio.CancelledError):
            pass  # cancelled: the server ends
        finally:
            writer.close()

    async def _request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        method, target, _ = head.split("\r\n", 1)[0].split(" ")
        path = target.partition("?")[0]
        fields = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line)
        body = await reader.readexactly(int(fields.get("content-length", 0)))
        at = clock()
        key = self.settings.get("api_key")
        if key and not path.startswith(("/truth", "/metrics")) and fields.get("authorization") != f"bearer {key}":
            return self._answer(writer, 401, {"error": "Unauthorized"})
        api = {"/generate": "generate", "/v1/chat/completions": "chat"}.get(path)
        if method == "POST" and api and not (api == "generate" and self.settings["dialect"] == "vllm"):
            return await self._reply(reader, writer, json.loads(body), api, number, at)
        if path == "/truth":
            return self._answer(writer, 200, self.events)
        self.events.append({"what": path})
        return self._answer(writer, *self._other(path))

    def _answer(self, writer: asyncio.StreamWriter, status: int, content: Any) -> bool:
        kind, body = "application/json", json.dumps(content).encode()
        if isinstance(content, str):
            kind, body = "text/plain", content.encode()
        writer.write(
            f"HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body
        )
        return True

    def _other(self, path: str) -> tuple[int, Any]:
        sglang = self.settings["dialect"] == "sglang"
        if path == "/metrics" and self.settings["metrics"]:
            return 200, self._metrics()
        if path == "/v1/models":
            return 200, {"object": "list", "data": [{"id": self.settings["model"], "object": "model"}]}
        if sglang and path == "/server_info":
            command = "python -m sglang.launch_server --api-key hush-hush --tp 8"
            info = {"version": "0.5.23", "model_path": self.settings["model"], "random_seed": self.settings["seed"]}
            return 200, {**info, "api_key": "hush-hush", "tp_size": 8, "launch_command": command}
        if sglang and path == "/model_info":
            tokenizer = self.settings.get("tokenizer")
            return 200, {"model_path": self.settings["model"], "tokenizer_path": tokenizer, "is_generation": True}
        if not sglang and path == "/version":
            return 200, {"version": "0.33.0"}
        if path == ("/flush_cache" if sglang else "/reset_prefix_cache") and self.settings["flush"]:
            return (200, "Cache flushed.") if self.settings["flush"] > 0 else (400, "requests are running")
        return 404, {"detail": "Not Found"}

    def _metrics(self) -> str:
        count = {name: round(value * self.settings["counts"]) for name, value in self.counted.items()}
        if self.settings["dialect"] == "vllm":
            return (
                f'vllm:num_requests_running{{engine="0"}} {self.running}.0\nvllm:num_requests_waiting{{engine="0"}} 0.0\n'
                f'vllm:prompt_tokens_total{{engine="0",model_name="truth"}} {count["prompt"]}.0\n'
                f'vllm:generation_tokens_total{{engine="0",model_name="truth"}} {count["generation"]}.0\n'
            )
        half = count["generation"] // 2
        return (
            "# HELP sglang:generation_tokens_total Tokens.\n"
            f'sglang:num_running_reqs{{model_name="truth",tp_rank="0"}} {self.running}.0\n'
            f'sglang:num_running_reqs{{model_name="truth",tp_rank="1"}} {self.running}.0\n'
            'sglang:num_queue_reqs{model_name="truth",tp_rank="0"} 0.0\n'
            f'sglang:prompt_tokens_total{{is_streaming="true",model_name="truth"}} {count["prompt"]}.0\n'
            f'sglang:generation_tokens_total{{is_streaming="true",model_name="truth"}} {half}.0\n'
            f'sglang:generation_tokens_total{{is_streaming="false",model_name="truth"}} {count["generation"] - half}.0\n'
            f'sglang:cached_tokens_total{{cache_source="device",model_name="truth"}} {count["cached"]}.0\n'
            f'sglang:num_requests_total{{model_name="truth"}} {count["requests"]}.0\n'
            f'sglang:spec_verify_calls_total{{model_name="truth"}} {count["verify"]}.0\n'
            'sglang:gen_throughput{model_name="truth",tp_rank="0"} 123.0\n'
        )

    async def _reply(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        request: dict[str, Any],
        api: str,
        number: int,
        at: float,
    ) -> bool:
        for name in self.settings["refuses"]:
            if name in request or name in (request.get("stream_options") or {}):
                self.events.append({"what": f"refused {name}"})
                return self._answer(writer, 400, {"object": "error", "message": f"unknown field {name}", "code": 400})
        reply = Reply(request, self.settings, api)
        event = {"what": api, "body": request, "connection": number, "at": at, "sends": [], **reply.truth}
        self.events.append(event)
        self.running += 1
        try:
            async with self.slots:
                goes_on = await self._send(reader, writer, reply, event)
        finally:
            self.running -= 1
        if event["whole"]:
            later = asyncio.create_task(self._count(reply.truth))
            self.tasks.add(later)
            later.add_done_callback(self.tasks.discard)
            await asyncio.sleep(0)  # without a lag the counters are right when the next request is read
        return goes_on

    async def _count(self, truth: dict[str, Any]) -> None:
        if self.settings["lag_ms"]:
            await asyncio.sleep(self.settings["lag_ms"] / 1000)
        figures = (("prompt", "in"), ("generation", "out"), ("cached", "cached"), ("verify", "verify"))
        for name, key in figures:
            self.counted[name] += truth[key] or 0
        self.counted["requests"] += 1

    async def _pace(self, options: dict[str, Any], chunk: int) -> None:
        """The time before a chunk, all that holds it up included."""
        await asyncio.sleep(options["tick_ms"] / 1000)
        if chunk == options.get("pause_at"):
            await asyncio.sleep(options["pause_ms"] / 1000)
        if self.stall_s and clock() - self.began >= self.settings["stall_at_s"]:
            stall_s, self.stall_s = self.stall_s, 0
            time.sleep(stall_s)  # noqa: ASYNC251 - nothing else is served meanwhile

    async def _send(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, reply: Reply, event: dict[str, Any]
    ) -> bool:
        options, fault = reply.options, reply.fault

        async def write(data: bytes) -> float:
            """Returns when the last of it went out."""
            if options.get("split"):
                parts = [data[i : i + 1] for i in range(len(data))]
            elif options.get("cut"):
                parts = [data[: len(data) // 2], data[len(data) // 2 :]]
            else:
                parts = [data]
            for piece in parts:
                moment = clock()
                writer.write(piece)
                await writer.drain()
                if piece is not parts[-1]:
                    await asyncio.sleep(options["cut_ms"] / 1000 if options.get("cut") else 0)
            return moment

        if fault == "503":
            return self._answer(writer, 503, {"error": {"message": "the queue is full"}})
        if fault == "plain":
            return self._answer(writer, 200, {"error": "no stream today"})
        if fault == "garbage":
            writer.write(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")
            return True
        # SGLang answers /generate at once, and a chat when it has its first token.
        if reply.api == "chat":
            await asyncio.sleep(options["first_ms"] / 1000)
        if fault == "slow_head":
            await write(reply.head()[:20])
            await reader.read()  # until the client has had enough
        await write(reply.head())
        if reply.api == "generate":
            await asyncio.sleep(options["first_ms"] / 1000)
        frames = list(reply.frames())
        middle = len(frames) // 2
        pack, held = options["pack"], []
        before = 0 if reply.api == "generate" else 1  # events before those with tokens
        tokens, waiting = 0, []
        for number, frame in enumerate(frames):
            chunk = number - before
            if 0 < chunk < len(reply.truth["chunks"]) or fault == "babble":
                await self._pace(options, chunk)
            if number == middle:
                if fault == "reset":
                    linger = struct.pack("ii", 1, 0)
                    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                    writer.transport.abort()
                    return False
                if fault == "cut":
                    return False
                if fault == "early":
                    await write(reply.end())
                    return True
                if fault == "stall":
                    await reader.read()
                if fault == "error":
                    await write(reply.part(reply.event(b'{"error":{"message":"the engine died","code":500}}')))
                if fault == "bad_json":
                    await write(reply.part(reply.event(b'{"text":')))
                if fault == "bad_size":
                    await write(b"xyz\r\n")
                while fault == "huge":
                    await write(reply.part(b"data: " + b"x" * 65536 if number == middle else b"x" * 1048576))
                    number = -1
                while fault == "babble":
                    await write(reply.part(reply.event(frames[number])))
                    reply.truth["chunks"].append(1)
                    reply.truth["out"] += 1
                    frames = list(reply.frames())
                    number += 1
                    await asyncio.sleep(0)
            held.append(reply.event(frame))
            if 0 <= chunk < len(reply.truth["chunks"]):
                tokens += reply.truth["chunks"][chunk]
                waiting.append(tokens)
            if len(held) >= abs(pack) or number == len(frames) - 1:
                moment = await write(reply.part(b"".join(held)) if pack > 0 else b"".join(map(reply.part, held)))
                event["sends"] += [(moment, count) for count in waiting]
                held, waiting = [], []
        while fault == "endless":
            await write(reply.part(b": still here\n\n"))
            await asyncio.sleep(0.01)
        event["whole"] = fault != "abort"
        await write(reply.end())
        return options["body"] in ("chunked", "counted") and fault not in ("drop", "bye")


async def serve(settings: dict[str, Any], started: Any = None) -> None:
    """Until it is cancelled. `started` is called with the port; without it the port is printed."""
    server = TruthServer(settings)
    listening = await asyncio.start_server(
        server.connection, settings.get("host", "127.0.0.1"), settings.get("port", 0), limit=1 << 26
    )
    port = listening.sockets[0].getsockname()[1]
    if started is None:
        print(port, flush=True)
    else:
        started(port, server)
    async with listening:
        await listening.serve_forever()


@contextlib.contextmanager
def truth_server(**settings: Any) -> Iterator[tuple[int, TruthServer]]:
    """The server in a thread of this process: its port and itself (`events` may be read when nothing is under way)."""
    ready = threading.Event()
    found: list[Any] = []

    def started(port: int, server: TruthServer) -> None:
        found.extend((port, server, asyncio.get_running_loop(), asyncio.current_task()))
        ready.set()

    def run() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            asyncio.run(serve(settings, started))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert ready.wait(30)
    port, server, loop, task = found
    try:
        yield port, server
    finally:
        loop.call_soon_threadsafe(task.cancel)
        thread.join(30)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}))
