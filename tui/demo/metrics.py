"""/metrics of the simulated server, in Prometheus' text format, with the names and labels of SGLang 0.5.23."""

from typing import TYPE_CHECKING

from tui.demo.engine import Histogram

if TYPE_CHECKING:
    from tui.demo.api import Api


def render(api: "Api") -> str:
    """The whole page."""
    engine, config, c = api.engine, api.engine.config, api.engine.counters
    name = str(api.args["served_model_name"])
    main = f'engine_type="unified",model_name="{name}"'
    tail = 'pp_rank="0",tp_rank="0"'
    ranks = f'{main},moe_ep_rank="0",{tail}'
    lines: list[str] = []

    def family(metric: str, kind: str, text: str) -> None:
        lines.append(f"# HELP sglang:{metric} {text}")
        lines.append(f"# TYPE sglang:{metric} {kind}")

    def gauge(metric: str, value: float, text: str, labels: str = ranks) -> None:
        family(metric, "gauge", text)
        lines.append(f"sglang:{metric}{{{labels}}} {float(value)}")

    def by_stream(metric: str, values: dict[bool, int], text: str) -> None:
        family(metric, "counter", text)
        for stream in (False, True):
            labels = f'engine_type="unified",is_streaming="{str(stream).lower()}",model_name="{name}"'
            lines.append(f"sglang:{metric}{{{labels}}} {float(values[stream])}")

    def histogram(metric: str, series: list[tuple[str, str, Histogram]], text: str) -> None:
        family(metric, "histogram", text)
        for before, after, values in series:
            lines.append(f"sglang:{metric}_sum{{{before}{after}}} {values.sum}")
            total = 0
            for bound, count in zip([*map(str, values.bounds), "+Inf"], values.counts, strict=True):
                total += count
                lines.append(f'sglang:{metric}_bucket{{{before}le="{bound}",{after}}} {float(total)}')
            lines.append(f"sglang:{metric}_count{{{before}{after}}} {float(total)}")

    used = engine.used_tokens()
    capacity = config.pool_tokens
    by_stream("prompt_tokens_total", c.prompt_tokens, "Number of prefill tokens processed.")
    by_stream("generation_tokens_total", c.generation_tokens, "Number of generation tokens processed.")
    by_stream("num_requests_total", c.requests, "Number of requests processed.")
    family("cached_tokens_total", "counter", "Number of cached prompt tokens.")
    lines.append(f'sglang:cached_tokens_total{{cache_source="device",{main}}} {float(c.cached_tokens)}')
    family("num_aborted_requests_total", "counter", "Number of requests aborted.")
    lines.append(f"sglang:num_aborted_requests_total{{{main}}} {float(c.aborted)}")
    if config.speculative:
        family("spec_verify_calls_total", "counter", "Number of speculative verify calls.")
        lines.append(f"sglang:spec_verify_calls_total{{{main}}} {float(c.verify_calls)}")
    family("realtime_tokens_total", "counter", "Tokens processed, counted as they come.")
    for mode, count in (
        ("prefill_compute", c.prefill_tokens),
        ("decode", c.decode_tokens),
        ("prefill_cache", c.prefill_cached),
    ):
        lines.append(
            f'sglang:realtime_tokens_total{{engine_type="unified",mode="{mode}",model_name="{name}",'
            f'moe_ep_rank="0",{tail}}} {float(count)}'
        )
    family("cuda_graph_passes_total", "counter", "Forward passes by graph mode.")
    for mode, count in (
        ("prefill_none", c.prefill_passes),
        ("decode_full", c.decode_graph_passes),
        ("decode_none", c.decode_eager_passes),
    ):
        lines.append(
            f'sglang:cuda_graph_passes_total{{engine_type="unified",mode="{mode}",model_name="{name}",'
            f'moe_ep_rank="0",{tail}}} {float(count)}'
        )
    gauge("num_running_reqs", len(engine.running), "The number of running requests.")
    gauge("num_queue_reqs", len(engine.waiting), "The number of requests in the waiting queue.")
    gauge("num_used_tokens", used, "The number of used tokens.")
    gauge("kv_used_tokens", used, "The number of used tokens.")
    gauge("kv_available_tokens", capacity - used, "The number of available tokens.")
    gauge("token_usage", round(used / max(1, capacity), 2), "The token usage.")
    gauge("full_token_usage", used / max(1, capacity), "The token usage of full attention layers.")
    gauge("gen_throughput", engine.gen_throughput, "The generation throughput (token/s).")
    gauge("cache_hit_rate", engine.cache_hit_rate, "The prefix cache hit rate.")
    gauge("is_cuda_graph", float(engine.in_graph), "Whether the batch is using CUDA graph.")
    gauge("max_total_num_tokens", capacity, "Maximum total number of tokens in the KV cache pool.")
    gauge("context_len", config.context_len, "Context length.")
    gauge("utilization", 0.0, "The utilization.")
    gauge("new_token_ratio", 0.7, "The new token ratio.")
    gauge("weight_memory_usage_gb", api.memory.weight, "Memory of the weights, GB.")
    gauge("kv_cache_memory_usage_gb", api.memory.kv_cache, "Memory of the KV cache, GB.")
    gauge("startup_available_gpu_memory_gb", api.memory.available, "Free memory after the start, GB.")
    family("graph_memory_usage_gb", "gauge", "Memory of the graphs, GB.")
    for phase in api.timings.cuda_graph:
        lines.append(
            f'sglang:graph_memory_usage_gb{{engine_type="unified",model_name="{name}",moe_ep_rank="0",phase="{phase}",'
            f"{tail}}} {float(api.memory.graph.get(phase, 0.0))}"
        )
    if config.speculative:
        gauge(
            "spec_accept_length",
            engine.accept_length,
            "Mean acceptance length of speculative decoding (accepted drafts + bonus token per forward).",
        )
        gauge("spec_accept_rate", engine.accept_rate, "The rate of accepted draft tokens.")
        gauge("spec_num_steps", config.steps, "Steps of the draft model.")
        gauge("spec_num_draft_tokens", config.draft_tokens, "Draft tokens a verify step.")
    family("startup_time_seconds", "gauge", "Time of the parts of the start.")
    for part in ("load_weight", "kv_cache_allocation", "scheduler_e2e", "tokenizer_e2e"):
        lines.append(
            f'sglang:startup_time_seconds{{engine_type="unified",model_name="{name}",phase="{part}"}} '
            f"{getattr(api.timings, part)}"
        )

    def streamed(values: dict[bool, Histogram]) -> list[tuple[str, str, Histogram]]:
        return [
            (f'engine_type="unified",is_streaming="{str(stream).lower()}",', f'model_name="{name}"', values[stream])
            for stream in (False, True)
        ]

    histogram("time_to_first_token_seconds", streamed(c.ttft), "Time to first token in seconds.")
    histogram("e2e_request_latency_seconds", streamed(c.e2e), "End-to-end request latency in seconds.")
    plain = [('engine_type="unified",', f'model_name="{name}"', c.itl)]
    histogram("inter_token_latency_seconds", plain, "Inter-token latency in seconds.")
    queue = [('engine_type="unified",', f'model_name="{name}",moe_ep_rank="0",{tail}', c.queue)]
    histogram("queue_time_seconds", queue, "Queueing time in seconds.")
    return "\n".join(lines) + "\n"
