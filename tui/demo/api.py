"""The HTTP endpoints of the simulated server, with the keys and shapes that SGLang 0.5.23 answers with."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from tui.demo import metrics
from tui.demo.engine import Engine
from tui.demo.frames import answer
from tui.demo.generation import Generation, Refused, body_of
from tui.demo.http import Exchange
from tui.demo.startup import Memory, Timings

OPEN_PATHS = ("/health", "/ready", "/metrics")
_DEPRECATED = {"/get_model_info": "/model_info", "/get_server_info": "/server_info"}


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
        self.generation = Generation(args, engine)

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
        if path in _DEPRECATED:
            self.engine.out.record(f"Endpoint '{path}' is deprecated. Please use '{_DEPRECATED[path]}' instead.")
            path = _DEPRECATED[path]
        match method, path:
            case _, "/health" | "/health_generate":
                await self._health(exchange)
            case _, "/ready":
                exchange.answer(503 if self.starting or self.stopping else 200)
            case _, "/":
                exchange.json(200, "SGLang is running")
            case (_, "/ping") | ("POST", "/freeze_gc"):
                exchange.answer(200)
            case _, "/model_info":
                exchange.json(200, self.model_info)
            case _, "/server_info":
                exchange.json(200, self.server_info())
            case _, "/v1/models":
                exchange.json(200, {"object": "list", "data": [self._model_card()]})
            case _, "/v1/loads":
                exchange.json(200, self.loads())
            case _, "/metrics" if self.args["enable_metrics"]:
                exchange.answer(200, metrics.render(self).encode(), "text/plain; version=0.0.4; charset=utf-8")
            case (("GET" | "POST"), "/flush_cache"):
                await self._flush(exchange)
            case "POST", "/abort_request":
                self.generation.abort(body_of(exchange))
                exchange.answer(200)
            case (("POST" | "PUT"), "/generate"):
                await self.generation.native(exchange)
            case "POST", "/v1/chat/completions":
                await self.generation.openai(exchange, chat=True)
            case "POST", "/v1/completions":
                await self.generation.openai(exchange, chat=False)
            case _:
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
            request = self.generation.submit("HEALTH_CHECK", "", 1, 1, ignore_eos=True, stream=False)
            await self.generation.finished(request, exchange)
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

    def _model_card(self) -> dict[str, Any]:
        name = self.args["served_model_name"]
        length = self.engine.config.context_len
        return answer("model_card", id=name, root=name, created=int(time.time()), max_model_len=length)

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
            **answer(
                "server_info",
                launch_command=" ".join(self.argv),
                status="starting" if self.starting else "ready",
                max_total_num_tokens=config.pool_tokens,
                max_req_input_len=self.generation.max_input,
                startup_time=startup,
                internal_states=[state],
            ),
        }

    def loads(self) -> dict[str, Any]:
        """Running, waiting and memory, as /v1/loads has it."""
        engine, config = self.engine, self.engine.config
        used = engine.used_tokens()
        now = time.time()
        load = answer(
            "load",
            timestamp=now,
            num_running_reqs=len(engine.running),
            num_waiting_reqs=len(engine.waiting),
            num_waiting_uncached_tokens=sum(r.prompt_tokens for r in engine.waiting),
            **dict.fromkeys(("num_used_tokens", "num_total_tokens", "num_active_tokens"), used),
            max_total_num_tokens=config.pool_tokens,
            max_running_requests=config.max_running,
            token_usage=round(used / max(1, config.pool_tokens), 4),
            gen_throughput=round(engine.gen_throughput, 2),
            cache_hit_rate=round(engine.cache_hit_rate, 4),
            total_prefill_uncached_tokens=engine.counters.prefill_tokens,
            total_prefill_busy_us=int(1e6 * config.prefill_s(0) * engine.counters.prefill_passes),
            memory={
                "weight_gb": round(self.memory.weight, 3),
                "kv_cache_gb": round(self.memory.kv_cache, 3),
                "graph_gb": round(sum(self.memory.graph.values()), 3),
                "token_capacity": config.pool_tokens,
            },
        )
        load["queues"] = {**load["queues"], "waiting": len(engine.waiting)}
        if engine.accept_length:
            load["speculative"] = {"accept_length": engine.accept_length, "accept_rate": engine.accept_rate}
        stamp = datetime.fromtimestamp(now, UTC).isoformat()
        return answer("loads", timestamp=stamp, num_accelerators=config.tp, loads=[load])
