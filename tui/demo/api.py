"""The HTTP endpoints of the simulated server, with the keys and shapes that SGLang 0.5.23 answers with."""

import asyncio
import json
import time
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from tui.demo import metrics
from tui.demo.engine import CHARS_PER_TOKEN, Engine, Request
from tui.demo.http import Exchange
from tui.demo.startup import Memory, Timings

VERSION = "0.5.23"
OPEN_PATHS = ("/health", "/ready", "/metrics")


class Refused(Exception):
    """A request that is answered with an error; `body` is what it says."""

    def __init__(self, status: int, body: object) -> None:
        super().__init__(str(status))
        self.status, self.body = status, body


class Api:
    """All endpoints of one server."""

    def __init__(
        self,
        args: Mapping[str, Any],
        engine: Engine,
        timings: Timings,
        memory: Memory,
        *,
        argv: Sequence[str],
        model_info: Mapping[str, Any],
        health_generates: bool = True,
    ) -> None:
        self.args, self.engine = args, engine
        self.timings, self.memory = timings, memory
        self.argv = argv
        self.model_info = model_info
        self.health_generates = health_generates
        self.starting = True
        self.stopping = False
        self.requests: dict[str, Request] = {}

    # --- dispatch ---------------------------------------------------------------------------------------------------

    async def handle(self, exchange: Exchange) -> None:
        """Answers one request."""
        query = exchange.query
        path = query.path.rstrip("/") or "/"
        key = self.args["api_key"]
        if key and not path.startswith(OPEN_PATHS) and query.headers.get("authorization") != f"Bearer {key}":
            admin = self.args["admin_api_key"]
            if not (admin and path == "/flush_cache" and query.headers.get("authorization") == f"Bearer {admin}"):
                exchange.json(401, {"error": "Unauthorized"})
                return
        try:
            await self._route(exchange, query.method, path)
        except Refused as refused:
            if not exchange.answered:
                exchange.json(refused.status, refused.body)

    async def _route(self, exchange: Exchange, method: str, path: str) -> None:
        out = self.engine.out
        if path in ("/health", "/health_generate"):
            await self._health(exchange)
        elif path == "/ready":
            exchange.answer(503 if self.starting or self.stopping else 200)
        elif path == "/":
            exchange.json(200, "SGLang is running")
        elif path == "/ping":
            exchange.answer(200)
        elif path in ("/model_info", "/get_model_info"):
            if path == "/get_model_info":
                out.record("Endpoint '/get_model_info' is deprecated. Please use '/model_info' instead.")
            exchange.json(200, self.model_info)
        elif path in ("/server_info", "/get_server_info"):
            if path == "/get_server_info":
                out.record("Endpoint '/get_server_info' is deprecated. Please use '/server_info' instead.")
            exchange.json(200, self.server_info())
        elif path == "/v1/models":
            exchange.json(200, {"object": "list", "data": [self._model_card()]})
        elif path == "/v1/loads":
            exchange.json(200, self.loads())
        elif path == "/metrics" and self.args["enable_metrics"]:
            exchange.answer(200, metrics.render(self).encode(), "text/plain; version=0.0.4; charset=utf-8")
        elif path == "/flush_cache" and method in ("GET", "POST"):
            await self._flush(exchange)
        elif path == "/abort_request" and method == "POST":
            self._abort(self._json(exchange))
            exchange.answer(200)
        elif path == "/freeze_gc" and method == "POST":
            exchange.answer(200)
        elif path == "/generate" and method in ("POST", "PUT"):
            await self._generate(exchange)
        elif path == "/v1/chat/completions" and method == "POST":
            await self._openai(exchange, chat=True)
        elif path == "/v1/completions" and method == "POST":
            await self._openai(exchange, chat=False)
        else:
            exchange.json(404, {"detail": "Not Found"})

    # --- small ones -------------------------------------------------------------------------------------------------

    async def _health(self, exchange: Exchange) -> None:
        if self.stopping:
            self.engine.out.record("Health check request received during shutdown. Returning 503.")
        if self.starting or self.stopping:
            exchange.answer(503)
            return
        if self.health_generates and exchange.query.method == "GET":
            # The real one generates a token and looks for an answer once a second.
            request = self._new("HEALTH_CHECK", "", 1, 1, ignore_eos=True, stream=False)
            await self._finished(request, exchange)
            await asyncio.sleep(max(0.0, 1.0 - (time.time() - exchange.query.received)))
        exchange.answer(200)

    async def _flush(self, exchange: Exchange) -> None:
        wait = float(exchange.query.params.get("timeout", ["0"])[0] or 0)
        until = time.monotonic() + wait
        flushed = self.engine.flush()
        while not flushed and time.monotonic() < until:
            await asyncio.sleep(0.05)
            flushed = self.engine.flush()
        if flushed:
            self.engine.out.record("Cache flushed successfully!", 0)
        else:
            self.engine.out.record(
                "Cache not flushed because there are pending requests. "
                f"#queue-req: {len(self.engine.waiting)}, #running-req: {len(self.engine.running)}",
                0,
            )
        text = ("Cache flushed.\n" if flushed else "Flush cache failed.\n") + (
            "Please check backend logs for more details. "
            "(When there are running or waiting requests, the operation will not be performed.)\n"
        )
        exchange.answer(200 if flushed else 400, text.encode(), None)

    def _abort(self, body: dict[str, Any]) -> None:
        for rid, request in list(self.requests.items()):
            if body.get("abort_all") or (body.get("rid") and rid.startswith(str(body["rid"]))):
                self.engine.abort(request)

    def _model_card(self) -> dict[str, Any]:
        name = self.args["served_model_name"]
        return {
            "id": name,
            "object": "model",
            "created": int(time.time()),
            "owned_by": "sglang",
            "root": name,
            "parent": None,
            "max_model_len": self.engine.config.context_len,
        }

    def server_info(self) -> dict[str, Any]:
        """Resolved arguments, flat, with what the schedulers say of themselves."""
        config, memory, t = self.engine.config, self.memory, self.timings
        startup = {
            "load_weight": t.load_weight,
            "kv_cache_allocation": t.kv_cache_allocation,
            "scheduler_e2e": t.scheduler_e2e,
            "cuda_graph": dict(t.cuda_graph),
            "tokenizer_e2e": t.tokenizer_e2e,
        }
        graph = {phase: round(memory.graph.get(phase, 0.0), 3) for phase in t.cuda_graph}
        state = {k: v for k, v in self.args.items() if k != "custom_sigquit_handler"}
        state |= {
            "world_size": config.tp,
            "startup_time": startup,
            "effective_max_running_requests_per_dp": config.max_running,
            "last_gen_throughput": self.engine.gen_throughput,
            "memory_usage": {
                "weight": round(memory.weight, 3),
                "kvcache": round(memory.kv_cache, 3),
                "startup_available": round(memory.available, 3),
                "token_capacity": config.pool_tokens,
                "token_capacity_swa": None,
                "graph": graph,
            },
            "decode_cuda_graph_bs": self.args["cuda_graph_config"]["decode"]["bs"] if config.graphs else [],
            "decode_cuda_graph_memory_gb": graph["decode"],
        }
        if (accept := self.engine.average_accept_length) is not None:
            state["avg_spec_accept_length"] = accept
        return {
            **self.args,
            "launch_command": " ".join(self.argv),
            "status": "starting" if self.starting else "ready",
            "max_total_num_tokens": config.pool_tokens,
            "max_req_input_len": self._max_input(),
            "startup_time": startup,
            "hicache_object_layout": {
                "enabled": False,
                "backend": None,
                "page_size": 1,
                "hicache_object_layout": {"pools": []},
                "reason": "Hierarchical cache is disabled",
            },
            "kv_events": None,
            "internal_states": [state],
            "version": VERSION,
            "frontend": "python",
        }

    def _max_input(self) -> int:
        config = self.engine.config
        return min(config.context_len, config.pool_tokens) - 6

    def loads(self) -> dict[str, Any]:
        """Running, waiting and memory, as /v1/loads has it."""
        engine, config = self.engine, self.engine.config
        used = engine.used_tokens()
        now = time.time()
        load: dict[str, Any] = {
            "timestamp": now,
            "dp_rank": 0,
            "num_running_reqs": len(engine.running),
            "num_waiting_reqs": len(engine.waiting),
            "num_waiting_uncached_tokens": sum(r.prompt_tokens for r in engine.waiting),
            "num_used_tokens": used,
            "num_total_tokens": used,
            "num_active_tokens": used,
            "num_prealloc_ready_tokens": 0,
            "max_total_num_tokens": config.pool_tokens,
            "max_running_requests": config.max_running,
            "token_usage": round(used / max(1, config.pool_tokens), 4),
            "gen_throughput": round(engine.gen_throughput, 2),
            "cache_hit_rate": round(engine.cache_hit_rate, 4),
            "utilization": 0.0,
            "total_prefill_uncached_tokens": engine.counters.prefill_tokens,
            "total_prefill_busy_us": int(1e6 * config.prefill_s(0) * engine.counters.prefill_passes),
            "decode_moments": [0.0] * 6,
            "memory": {
                "weight_gb": round(self.memory.weight, 3),
                "kv_cache_gb": round(self.memory.kv_cache, 3),
                "graph_gb": round(sum(self.memory.graph.values()), 3),
                "token_capacity": config.pool_tokens,
            },
        }
        if engine.accept_length:
            load["speculative"] = {"accept_length": engine.accept_length, "accept_rate": engine.accept_rate}
        load["disaggregation"] = {
            "mode": "null",
            "prefill_bootstrap_queue_reqs": 0,
            "prefill_inflight_queue_reqs": 0,
            "decode_prealloc_queue_reqs": 0,
            "decode_transfer_queue_reqs": 0,
            "decode_retracted_queue_reqs": 0,
            "kv_transfer_speed_gb_s": 0.0,
            "kv_transfer_latency_ms": 0.0,
        }
        load["queues"] = {
            "waiting": len(engine.waiting),
            "grammar": 0,
            "paused": 0,
            "retracted": 0,
            "prealloc_ready": 0,
        }
        return {
            "timestamp": datetime.fromtimestamp(now, UTC).isoformat(),
            "version": VERSION,
            "accelerator": None,
            "num_accelerators": config.tp,
            "loads": [load],
        }

    # --- generation -------------------------------------------------------------------------------------------------

    def _json(self, exchange: Exchange) -> dict[str, Any]:
        try:
            body = json.loads(exchange.query.body or b"{}")
        except ValueError as error:
            message = f"1 validation error:\n  {{'type': 'json_invalid', 'msg': 'JSON decode error', 'ctx': {{'error': '{error}'}}}}"
            raise Refused(
                400, {"object": "error", "message": message, "type": "Bad Request", "param": None, "code": 400}
            ) from None
        if not isinstance(body, dict):
            raise Refused(
                400,
                {"object": "error", "message": "1 validation error", "type": "Bad Request", "param": None, "code": 400},
            )
        return body

    def _new(
        self,
        rid: str | None,
        prompt: str,
        tokens: int,
        max_new: int,
        *,
        ignore_eos: bool,
        stream: bool,
        ids: bool = False,
    ) -> Request:
        limit = self.engine.config.context_len
        if tokens + max_new > limit:
            raise Refused(
                400,
                {
                    "error": {
                        "message": f"Requested token count exceeds the model's maximum context length of {limit} tokens. "
                        f"You requested a total of {tokens + max_new} tokens: {tokens} tokens from the input messages and "
                        f"{max_new} tokens for the completion. Please reduce the number of tokens in the input messages "
                        "or the completion to fit within the limit."
                    }
                },
            )
        room = self._max_input()
        if tokens > room:
            raise Refused(
                400,
                {
                    "error": {
                        "message": f"Input length ({tokens} tokens) exceeds the maximum allowed length ({room} tokens). "
                        "Use a shorter input or enable --allow-auto-truncate."
                    }
                },
            )
        request = Request(
            rid=rid or uuid.uuid4().hex,
            prompt=prompt,
            prompt_tokens=tokens,
            max_new_tokens=max(1, min(max_new, room + 5 - tokens)),
            ignore_eos=ignore_eos,
            stream=stream,
            random_prompt=ids,
            received=time.time(),
        )
        self.requests[request.rid] = request
        self.engine.submit(request)
        return request

    @staticmethod
    def _sampling(params: Mapping[str, Any], default: int) -> tuple[int, bool]:
        temperature = params.get("temperature", 1.0)
        if not isinstance(temperature, int | float) or temperature < 0:
            raise Refused(
                400, {"error": {"message": f"temperature must be a non-negative finite number, got {temperature}."}}
            )
        wanted = params.get("max_new_tokens", default)
        if not isinstance(wanted, int) or isinstance(wanted, bool) or wanted < 0:
            raise Refused(400, {"error": {"message": f"max_new_tokens must be at least 0, got {wanted}."}})
        return wanted, bool(params.get("ignore_eos", False))

    async def _finished(self, request: Request, exchange: Exchange) -> None:
        """Waits for the end of a request; a client that goes away aborts it."""
        done = asyncio.Event()
        request.notify = lambda: done.set() if request.finish else None
        if request.finish:
            done.set()
        gone = asyncio.ensure_future(exchange.connection.closed.wait())
        waiting = asyncio.ensure_future(done.wait())
        try:
            await asyncio.wait({gone, waiting}, return_when=asyncio.FIRST_COMPLETED)
            if not request.finish:
                self.engine.abort(request)
        finally:
            gone.cancel()
            waiting.cancel()
            self.requests.pop(request.rid, None)

    async def _generate(self, exchange: Exchange) -> None:
        body = self._json(exchange)
        ids = body.get("input_ids")
        text = body.get("text")
        if text is None and ids is None:
            raise Refused(400, {"error": {"message": "Either text, input_ids or input_embeds should be provided."}})
        params = body.get("sampling_params") or {}
        stream = bool(body.get("stream", False))
        batch = isinstance(text, list) or (isinstance(ids, list) and bool(ids) and isinstance(ids[0], list))
        given: Any = text if text is not None else ids
        prompts: list[tuple[str, int, bool]] = []
        for one in given if batch else [given]:
            if isinstance(one, str):
                prompts.append((one, count_tokens(one), False))
            elif isinstance(one, list):
                prompts.append((",".join(map(str, one)), max(1, len(one)), True))
            else:
                raise Refused(400, {"error": {"message": "text must be a string, input_ids a list of numbers."}})
        settings = params if isinstance(params, list) else [params] * len(prompts)
        requests = []
        rids = body.get("rid")
        for at, ((prompt, tokens, random_ids), setting) in enumerate(zip(prompts, settings, strict=False)):
            wanted, ignore_eos = self._sampling(setting, 128)
            rid = rids[at] if isinstance(rids, list) and at < len(rids) else (rids if at == 0 else None)
            requests.append(
                self._new(rid, prompt, tokens, wanted, ignore_eos=ignore_eos, stream=stream, ids=random_ids)
            )
        if stream:
            exchange.begin_stream()
            await asyncio.gather(
                *(
                    self._stream(
                        exchange,
                        r,
                        _Native(
                            r, at if batch else None, exchange, incremental=self.args["incremental_streaming_output"]
                        ),
                    )
                    for at, r in enumerate(requests)
                )
            )
            exchange.chunk(b"data: [DONE]\n\n")
            exchange.end_stream()
            return
        await asyncio.gather(*(self._finished(request, exchange) for request in requests))
        answers = [native_answer(request, exchange.query.received) for request in requests]
        exchange.answer(200, b"[" + b",".join(answers) + b"]" if batch else answers[0])

    async def _stream(self, exchange: Exchange, request: Request, frames: "_Native | _OpenAI") -> None:
        changed = asyncio.Event()
        request.notify = changed.set
        gone = asyncio.ensure_future(exchange.connection.closed.wait())
        gone.add_done_callback(lambda _: changed.set())
        try:
            while not exchange.gone:
                if len(request.output_ids) > frames.sent or request.finish:
                    frames.send()
                if request.finish:
                    return
                await changed.wait()
                changed.clear()
            self.engine.abort(request)
        finally:
            gone.cancel()
            self.requests.pop(request.rid, None)

    async def _openai(self, exchange: Exchange, *, chat: bool) -> None:
        body = self._json(exchange)
        if chat:
            messages = body.get("messages")
            if not isinstance(messages, list) or not messages:
                raise Refused(
                    400,
                    {
                        "object": "error",
                        "message": "1 validation error:\n  {'type': 'missing', 'loc': ('body', 'messages'), 'msg': 'Field required'}",
                        "type": "Bad Request",
                        "param": None,
                        "code": 400,
                    },
                )
            prompt = "\n".join(_content(message) for message in messages)
            tokens = count_tokens(prompt) + 4 * len(messages)
            ids = False
        else:
            raw = body.get("prompt", "")
            raw = raw[0] if isinstance(raw, list) and raw and isinstance(raw[0], str) else raw
            ids = isinstance(raw, list)
            prompt = ",".join(map(str, raw)) if ids else str(raw)
            tokens = max(1, len(raw)) if ids else count_tokens(prompt)
        default = 16 if not chat else max(1, self._max_input() - tokens)
        wanted = body.get("max_completion_tokens") or body.get("max_tokens") or default
        wanted, ignore_eos = self._sampling(
            {
                "temperature": body.get("temperature", 1.0),
                "max_new_tokens": wanted,
                "ignore_eos": body.get("ignore_eos", False),
            },
            default,
        )
        stream = bool(body.get("stream", False))
        request = self._new(None, prompt, tokens, wanted, ignore_eos=ignore_eos, stream=stream, ids=ids)
        name = str(body.get("model") or self.args["served_model_name"])
        if stream:
            exchange.begin_stream()
            options = body.get("stream_options") or {}
            details = bool(body.get("return_spec_tokens_details"))
            frames = _OpenAI(request, exchange, name, chat=chat, usage=options, spec_details=details)
            await self._stream(exchange, request, frames)
            frames.end()
            exchange.chunk(b"data: [DONE]\n\n")
            exchange.end_stream()
            return
        await self._finished(request, exchange)
        count = len(request.output_ids)
        reason = str((request.finish or {}).get("type"))
        matched = (request.finish or {}).get("matched")
        if chat:
            choice: dict[str, Any] = {
                "index": 0,
                "message": {"role": "assistant", "content": "".join(request.words), "reasoning_content": None},
            }
        else:
            choice = {"index": 0, "text": "".join(request.words)}
        choice |= {"logprobs": None, "finish_reason": reason, "matched_stop": matched}
        exchange.json(
            200,
            {
                "id": request.rid,
                "object": "chat.completion" if chat else "text_completion",
                "created": int(time.time()),
                "model": name,
                "choices": [choice],
                "usage": {
                    "prompt_tokens": tokens,
                    "total_tokens": tokens + count,
                    "completion_tokens": count,
                    "prompt_tokens_details": {"cached_tokens": request.cached_tokens}
                    if self.args["enable_cache_report"]
                    else None,
                    "reasoning_tokens": 0,
                    "completion_tokens_details": None,
                },
                "metadata": {
                    "weight_version": "default",
                    "weight_versions": [{"version": "default", "start": 0, "end": count}],
                },
            },
        )


def count_tokens(text: str) -> int:
    """Tokens of a text: there is no tokenizer here, so its length decides."""
    return max(1, round(len(text) / CHARS_PER_TOKEN))


def _content(message: Any) -> str:
    content = message.get("content") if isinstance(message, dict) else ""
    if isinstance(content, list):
        return " ".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return str(content or "")


def _meta(request: Request) -> dict[str, Any]:
    cached = request.cached_tokens
    return {
        "id": request.rid,
        "finish_reason": request.finish,
        "prompt_tokens": request.prompt_tokens,
        "weight_version": "default",
        "num_retractions": 0,
        "storage_prefetch_wait": 0.0,
        "storage_staging_wait": 0.0,
        "forward_entry_time": request.forward_entry,
        "prefill_finished_time": request.prefill_finished,
        "queue_time": request.queue_s,
        "reasoning_tokens": 0,
        "completion_tokens": len(request.output_ids),
        "cached_tokens": cached,
        "cached_tokens_details": {"device": cached, "host": 0} if cached else None,
        "dp_rank": None,
    }


def _final_meta(request: Request, received: float) -> dict[str, Any]:
    count = len(request.output_ids)
    meta: dict[str, Any] = {}
    for name, value in _meta(request).items():
        if name == "cached_tokens_details":
            meta["weight_versions"] = [{"version": "default", "start": 0, "end": count}]
        meta[name] = value
    meta["e2e_latency"] = request.finished - received
    if request.verify_steps:
        meta |= _speculation(request)
    meta |= {
        "request_received_ts": received,
        "first_token_latency": request.first_token - received,
        "api_server_dispatch_finish_ts": received + 0.0006,
        "response_sent_to_client_ts": time.time(),
        "request_finished_ts": request.finished,
    }
    if count > 1 and request.finished > request.first_token:
        meta["decode_throughput"] = (count - 1) / (request.finished - request.first_token)
    return meta


def _speculation(request: Request, **capped: float) -> dict[str, Any]:
    histogram = list(request.histogram)
    while histogram and not histogram[-1]:
        histogram.pop()
    return {
        "spec_accept_rate": request.correct_drafts / max(1, request.proposed_drafts),
        "spec_accept_length": len(request.output_ids) / request.verify_steps,
        **capped,
        "spec_num_correct_drafts": request.correct_drafts,
        "spec_num_proposed_drafts": request.proposed_drafts,
        "spec_verify_ct": request.verify_steps,
        "spec_correct_drafts_histogram": histogram,
    }


def _dump(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def native_answer(request: Request, received: float) -> bytes:
    """The body of /generate for one finished request."""
    body = {
        "text": "".join(request.words),
        "output_ids": request.output_ids,
        "meta_info": _final_meta(request, received),
    }
    return _dump(body).encode()


class _Native:
    """Frames of /generate: each holds everything so far, so text and ids are kept as JSON that only grows.

    Args:
        incremental: each holds what is new.
    """

    def __init__(self, request: Request, index: int | None, exchange: Exchange, *, incremental: bool = False) -> None:
        self.request, self.index, self.exchange, self.incremental = request, index, exchange, incremental
        self.sent = 0
        self.text = ""
        self.ids = ""
        self.fixed: tuple[str, str] | None = None

    def send(self) -> None:
        request = self.request
        first = self.sent == 0
        if self.incremental:
            self.text = self.ids = ""
        for word in request.words[self.sent :]:
            self.text += _dump(word)[1:-1]
        if len(request.output_ids) > self.sent:
            new = ",".join(map(str, request.output_ids[self.sent :]))
            self.ids = f"{self.ids},{new}" if self.ids else new
        self.sent = len(request.output_ids)
        if request.finish:
            meta = _dump(_final_meta(request, self.exchange.query.received))
        elif first:
            meta = _dump({**_meta(request), "response_sent_to_client_ts": time.time()})
        else:
            if self.fixed is None:
                before, after = _dump({**_meta(request), "completion_tokens": "@@"}).split('"@@"')
                self.fixed = (before, after)
            meta = f"{self.fixed[0]}{self.sent}{self.fixed[1]}"
        index = f',"index":{self.index}' if self.index is not None else ""
        self.exchange.chunk(
            f'data: {{"text":"{self.text}","output_ids":[{self.ids}],"meta_info":{meta}{index}}}\n\n'.encode()
        )


class _OpenAI:
    """Frames of the two OpenAI endpoints: each holds what is new."""

    def __init__(
        self,
        request: Request,
        exchange: Exchange,
        name: str,
        *,
        chat: bool,
        usage: Mapping[str, Any],
        spec_details: bool = False,
    ) -> None:
        self.request, self.exchange, self.chat = request, exchange, chat
        self.sent = 0
        self.head = {
            "id": request.rid,
            "object": "chat.completion.chunk" if chat else "text_completion",
            "created": int(time.time()),
            "model": name,
        }
        self.usage = bool(usage.get("include_usage"))
        self.continuous = self.usage and bool(usage.get("continuous_usage_stats"))
        self.begun = False
        self.spec_details = spec_details

    def _usage(self) -> dict[str, Any]:
        count = len(self.request.output_ids)
        tokens = self.request.prompt_tokens
        usage = {"prompt_tokens": tokens, "total_tokens": tokens + count, "completion_tokens": count}
        if self.chat:
            usage["prompt_tokens_details"] = None  # type: ignore[assignment]
        usage["reasoning_tokens"] = 0
        if self.chat:
            usage["completion_tokens_details"] = None  # type: ignore[assignment]
        return usage

    def _frame(self, choice: dict[str, Any] | None, usage: object = "absent") -> None:
        frame: dict[str, Any] = {**self.head, "choices": [choice] if choice is not None else []}
        if usage != "absent":
            frame["usage"] = usage
        self.exchange.chunk(f"data: {_dump(frame)}\n\n".encode())

    def _choice(self, content: dict[str, Any], reason: object = None, matched: object = None) -> dict[str, Any]:
        return {"index": 0, **content, "logprobs": None, "finish_reason": reason, "matched_stop": matched}

    def send(self) -> None:
        request = self.request
        text = "".join(request.words[self.sent :])
        self.sent = len(request.output_ids)
        absent: object = "absent" if self.chat else None
        usage = self._usage() if self.continuous else absent
        reason = (request.finish or {}).get("type")
        matched = (request.finish or {}).get("matched")
        if not self.chat:
            self._frame(self._choice({"text": text}, reason, matched), usage)
            return
        if not self.begun:
            self.begun = True
            opening = {"delta": {"reasoning_content": None, "role": "assistant", "content": ""}}
            self._frame(self._choice(opening))  # with text alone it is counted
        if text:
            self._frame(self._choice({"delta": {"reasoning_content": None, "content": text}}), usage)
        if reason:
            self._frame(self._choice({"delta": {"reasoning_content": None}}, reason, matched))

    def end(self) -> None:
        """The frames behind the text, where they were asked for: speculation, usage."""
        if self.spec_details and self.request.verify_steps:
            details = _speculation(self.request, spec_cap_length=0.0, spec_block_accept_length=0.0)
            details["spec_cap_lens_histogram"] = []
            extension = {"spec_tokens_details": details}
            frame: dict[str, Any] = {**self.head, "choices": [], "usage": None, "sglext": extension}
            self.exchange.chunk(f"data: {_dump(frame)}\n\n".encode())
        if self.usage:
            self._frame(None, self._usage())
