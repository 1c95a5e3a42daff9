"""/metrics of the simulated server, in Prometheus' text format, with the names and labels of SGLang 0.5.23."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from tui.demo.engine import Engine, Histogram
from tui.demo.startup import Memory, Timings

_RANK = {"moe_ep_rank": "0", "pp_rank": "0", "tp_rank": "0"}
_STREAMING = {stream: {"is_streaming": str(stream).lower()} for stream in (False, True)}


class Metered(Protocol):
    """What the page is about."""

    args: Mapping[str, Any]
    engine: Engine
    timings: Timings
    memory: Memory


class _Page:
    """Families of metrics, as they are written; labels stand in the order of their names."""

    def __init__(self, model_name: str) -> None:
        self.lines: list[str] = []
        self._labels = {"engine_type": "unified", "model_name": model_name}

    def family(self, metric: str, kind: str, text: str) -> None:
        self.lines += [f"# HELP sglang:{metric} {text}", f"# TYPE sglang:{metric} {kind}"]

    def value(self, metric: str, value: float, labels: Mapping[str, str]) -> None:
        words = ",".join(f'{name}="{label}"' for name, label in sorted({**self._labels, **labels}.items()))
        self.lines.append(f"sglang:{metric}{{{words}}} {float(value)}")

    def gauge(self, metric: str, value: float, text: str) -> None:
        self.family(metric, "gauge", text)
        self.value(metric, value, _RANK)

    def counter(self, metric: str, text: str, series: Sequence[tuple[float, Mapping[str, str]]]) -> None:
        self.family(metric, "counter", text)
        for value, labels in series:
            self.value(metric, value, labels)

    def histogram(self, metric: str, text: str, series: Sequence[tuple[Histogram, Mapping[str, str]]]) -> None:
        self.family(metric, "histogram", text)
        for values, labels in series:
            self.value(f"{metric}_sum", values.sum, labels)
            total = 0
            for bound, count in zip([*map(str, values.bounds), "+Inf"], values.counts, strict=True):
                total += count
                self.value(f"{metric}_bucket", total, {**labels, "le": bound})
            self.value(f"{metric}_count", total, labels)


def render(api: Metered) -> str:
    """The whole page."""
    page = _Page(str(api.args["served_model_name"]))
    _counters(page, api)
    _gauges(page, api)
    c = api.engine.counters
    first, whole = ([(values[stream], _STREAMING[stream]) for stream in (False, True)] for values in (c.ttft, c.e2e))
    page.histogram("time_to_first_token_seconds", "Time to first token in seconds.", first)
    page.histogram("e2e_request_latency_seconds", "End-to-end request latency in seconds.", whole)
    page.histogram("inter_token_latency_seconds", "Inter-token latency in seconds.", [(c.itl, {})])
    page.histogram("queue_time_seconds", "Queueing time in seconds.", [(c.queue, _RANK)])
    return "\n".join(page.lines) + "\n"


def _counters(page: _Page, api: Metered) -> None:
    c = api.engine.counters
    for metric, counted, text in (
        ("prompt_tokens_total", c.prompt_tokens, "Number of prefill tokens processed."),
        ("generation_tokens_total", c.generation_tokens, "Number of generation tokens processed."),
        ("num_requests_total", c.requests, "Number of requests processed."),
    ):
        page.counter(metric, text, [(counted[stream], _STREAMING[stream]) for stream in (False, True)])
    page.counter(
        "cached_tokens_total", "Number of cached prompt tokens.", [(c.cached_tokens, {"cache_source": "device"})]
    )
    page.counter("num_aborted_requests_total", "Number of requests aborted.", [(c.aborted, {})])
    if api.engine.config.speculative:
        page.counter("spec_verify_calls_total", "Number of speculative verify calls.", [(c.verify_calls, {})])
    tokens = {"prefill_compute": c.prefill_tokens, "decode": c.decode_tokens, "prefill_cache": c.prefill_cached}
    passes = {
        "prefill_none": c.prefill_passes,
        "decode_full": c.decode_graph_passes,
        "decode_none": c.decode_eager_passes,
    }
    for metric, modes, text in (
        ("realtime_tokens_total", tokens, "Tokens processed, counted as they come."),
        ("cuda_graph_passes_total", passes, "Forward passes by graph mode."),
    ):
        page.counter(metric, text, [(count, {**_RANK, "mode": mode}) for mode, count in modes.items()])


def _gauges(page: _Page, api: Metered) -> None:
    engine, config, memory = api.engine, api.engine.config, api.memory
    used, capacity = engine.used_tokens(), config.pool_tokens
    page.gauge("num_running_reqs", len(engine.running), "The number of running requests.")
    page.gauge("num_queue_reqs", len(engine.waiting), "The number of requests in the waiting queue.")
    page.gauge("num_used_tokens", used, "The number of used tokens.")
    page.gauge("kv_used_tokens", used, "The number of used tokens.")
    page.gauge("kv_available_tokens", capacity - used, "The number of available tokens.")
    page.gauge("token_usage", round(used / max(1, capacity), 2), "The token usage.")
    page.gauge("full_token_usage", used / max(1, capacity), "The token usage of full attention layers.")
    page.gauge("gen_throughput", engine.gen_throughput, "The generation throughput (token/s).")
    page.gauge("cache_hit_rate", engine.cache_hit_rate, "The prefix cache hit rate.")
    page.gauge("is_cuda_graph", engine.in_graph, "Whether the batch is using CUDA graph.")
    page.gauge("max_total_num_tokens", capacity, "Maximum total number of tokens in the KV cache pool.")
    page.gauge("context_len", config.context_len, "Context length.")
    page.gauge("utilization", 0.0, "The utilization.")
    page.gauge("new_token_ratio", 0.7, "The new token ratio.")
    page.gauge("weight_memory_usage_gb", memory.weight, "Memory of the weights, GB.")
    page.gauge("kv_cache_memory_usage_gb", memory.kv_cache, "Memory of the KV cache, GB.")
    page.gauge("startup_available_gpu_memory_gb", memory.available, "Free memory after the start, GB.")
    page.family("graph_memory_usage_gb", "gauge", "Memory of the graphs, GB.")
    for phase in api.timings.cuda_graph:
        page.value("graph_memory_usage_gb", memory.graph.get(phase, 0.0), {**_RANK, "phase": phase})
    if config.speculative:
        text = "Mean acceptance length of speculative decoding (accepted drafts + bonus token per forward)."
        page.gauge("spec_accept_length", engine.accept_length, text)
        page.gauge("spec_accept_rate", engine.accept_rate, "The rate of accepted draft tokens.")
        page.gauge("spec_num_steps", config.steps, "Steps of the draft model.")
        page.gauge("spec_num_draft_tokens", config.draft_tokens, "Draft tokens a verify step.")
    page.family("startup_time_seconds", "gauge", "Time of the parts of the start.")
    for part in ("load_weight", "kv_cache_allocation", "scheduler_e2e", "tokenizer_e2e"):
        page.value("startup_time_seconds", getattr(api.timings, part), {"phase": part})
