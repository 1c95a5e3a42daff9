"""Records of SGLang's and vLLM's benchmarks as JSON: one object each, told apart by their keys."""

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from tui.core.model.result import SpecConfig
from tui.core.results.external.found import JSON_KEYS, UNLIMITED, Posted, measurable, number_of
from tui.core.text import one_line

# Without the unit in SGLang of 2024; milliseconds all the same.
_LATENCY = re.compile(r"(mean|median|std|max|min|p\d+(?:\.\d+)?)_(ttft|tpot|itl|e2el|e2e_latency|e2e)(?:_ms)?")
EVALSCOPE_FIRST = "Time taken for tests (s)"
_EVALSCOPE = {  # labels of evalscope's versions before 2026: our key, and the factor to its unit
    EVALSCOPE_FIRST: ("duration_s", 1),
    "Number of concurrency": ("max_concurrency", 1),
    "Total requests": ("num_prompts", 1),
    "Succeed requests": ("successful", 1),
    "Failed requests": ("failed", 1),
    "Throughput(average tokens/s)": ("output_tok_s", 1),
    "Output token throughput (tok/s)": ("output_tok_s", 1),
    "Input token throughput (tok/s)": ("input_tok_s", 1),
    "Total token throughput (tok/s)": ("total_tok_s", 1),
    "Average QPS": ("req_per_s", 1),
    "Request throughput (req/s)": ("req_per_s", 1),
    "Average latency (s)": ("mean_e2e_ms", 1000),
    "Average time to first token (s)": ("mean_ttft_ms", 1000),
    "Average time per output token (s)": ("mean_tpot_ms", 1000),
    "Average inter-token latency (s)": ("mean_itl_ms", 1000),
}
_ARGS_LIMIT = 2000  # flags of a server that are kept


def record_of(raw: Mapping[str, Any]) -> Posted | None:
    """The record that an object holds; None where it is none that we know."""
    keys = raw.keys()
    if {"steps", "topk", "num_draft_tokens"} <= keys:
        return _speculative(raw)
    if {"completed", "duration"} <= keys or {"successful_requests", "total_latency"} <= keys:
        return serving(raw)
    if "median_decode_latency" in keys or {"prefill_latency", "prefill_throughput"} <= keys:
        return _one_batch(raw)
    if {"batch_size", "output_len", "latency", "overall_throughput"} <= keys:
        return _one_batch_server(raw)
    if {"task", "num_requests", "latency"} <= keys:
        return _task(raw)
    if (summary := evalscope(raw)) is not None:
        return summary
    if {"elapsed_time", "requests_per_second", "tokens_per_second"} <= keys:
        return _throughput(raw)
    return None


def latency_key(point: str, name: str) -> str:
    """ "mean", "e2el" -> "mean_e2e_ms": how the flat record spells it."""
    name = "e2e" if name.startswith("e2e") else name
    return f"{'median' if point == 'p50' else point}_{name}_ms"


def serving(raw: Mapping[str, Any]) -> Posted:
    """A record of one of the serving benchmarks, as far as its keys are there."""
    posted = Posted(kind="offline" if "successful_requests" in raw else "serving")
    info = raw.get("server_info")
    is_vllm = "model_id" in raw or "tokenizer_id" in raw or "total_token_throughput" in raw
    posted.tool = "vllm" if is_vllm else "sglang"
    for key, ours in JSON_KEYS.items():
        posted.put(ours, raw.get(key))
    posted.dataset = _text(raw.get("dataset_name"))
    if posted.dataset is None or posted.dataset.startswith("random"):
        posted.put("input_len", raw.get("random_input_len"))
        posted.put("output_len", raw.get("random_output_len"))
    else:  # the others stand there too, with their defaults
        posted.put("output_len", raw.get("sharegpt_output_len"))
    for key, value in raw.items():
        if matched := _LATENCY.fullmatch(key):
            posted.put(latency_key(*matched.groups()), value)
    rate = raw.get("request_rate")
    posted.put("request_rate", rate if isinstance(rate, str) else number_of(rate))
    cache = raw.get("cache_report")
    if isinstance(cache, dict):
        posted.put("cache_hit_rate_pct", cache.get("cache_hit_rate_pct"))
    posted.tag = _text(raw.get("tag")) or _text(raw.get("label"))
    posted.model = _text(raw.get("model_id"))
    posted.started_at = _local_date(raw.get("date"))
    if isinstance(info, dict):
        _server(posted, info)
    _details(posted, raw)
    return posted


def _server(posted: Posted, info: Mapping[str, Any]) -> None:
    inner = info.get("decode")  # of a disaggregated pair
    if isinstance(inner, list) and inner and isinstance(inner[0], dict):
        info = inner[0]
    posted.server_version = _text(info.get("version"))
    posted.model = _text(info.get("served_model_name")) or _text(info.get("model_path"))
    posted.server_args = {
        one_line(key, 80): _plain(value)
        for key, value in list(info.items())[:_ARGS_LIMIT]
        if not isinstance(value, dict | list) and key != "version"
    }
    posted.spec = spec_of(info)


def spec_of(info: Mapping[str, Any]) -> SpecConfig | None:
    """Speculative decoding as SGLang's `/server_info` names it; None where it is off."""
    algorithm = _text(info.get("speculative_algorithm"))
    if algorithm is None:
        return None
    return SpecConfig(
        algorithm,
        steps=_whole(info.get("speculative_num_steps")),
        topk=_whole(info.get("speculative_eagle_topk")),
        draft_tokens=_whole(info.get("speculative_num_draft_tokens")),
        draft_model=_text(info.get("speculative_draft_model_path")),
    )


def _details(posted: Posted, raw: Mapping[str, Any]) -> None:
    """What `--output-details` (SGLang) and `--save-detailed` (vLLM) add: one list entry a request."""
    errors = raw.get("errors")
    if isinstance(errors, list) and errors:
        posted.put("num_prompts", len(errors))
        posted.put("failed", sum(bool(error) for error in errors))
    inputs, ttfts, gaps, lengths = (raw.get(key) for key in ("input_lens", "ttfts", "itls", "output_lens"))
    if not isinstance(ttfts, list) or not isinstance(gaps, list) or not isinstance(lengths, list):
        return
    if not len(ttfts) == len(gaps) == len(lengths):
        return
    inputs = inputs if isinstance(inputs, list) and len(inputs) == len(ttfts) else [None] * len(ttfts)
    failed = errors if isinstance(errors, list) else []
    seconds, tokens = 0.0, 0
    for index, (ttft, between, length) in enumerate(zip(ttfts, gaps, lengths, strict=True)):
        error = failed[index] if index < len(failed) else None
        if not isinstance(between, list) or not all(_number(gap) is not None for gap in between):
            posted.rows.clear()
            return
        posted.rows.append(
            {
                "i": index,
                "in": _whole(inputs[index]),
                "out": _whole(length),
                "ttft_s": _number(ttft),
                "gaps_us": [round(gap * 1e6) for gap in between],
                "err": one_line(str(error), 300) if error else None,
            }
        )
        if not error and between:
            seconds += sum(between)
            tokens += len(between)
    # SGLang's native path divides a chunk's gap over its tokens, so that there is one for each token after the first.
    if seconds > 0 and posted.figures.get("backend") in ("sglang", "sglang-native"):
        posted.token_times = (seconds, tokens)


def _speculative(raw: Mapping[str, Any]) -> Posted:
    posted = Posted("sglang", "speculative")
    for key, ours, scale in (
        ("batch_size", "batch_size", 1),
        ("steps", "steps", 1),
        ("topk", "topk", 1),
        ("num_draft_tokens", "num_draft_tokens", 1),
        ("acc_length", "accept_length", 1),
        ("step_time", "step_time_ms", 1000),
        ("speed", "speed", 1),
        ("completion_tokens", "completion_tokens", 1),
    ):
        posted.put(ours, _scaled(raw.get(key), scale))
    return posted


def _one_batch(raw: Mapping[str, Any]) -> Posted:
    posted = Posted("sglang", "one_batch", tag=_text(raw.get("run_name")))
    for key in ("batch_size", "input_len", "output_len"):
        posted.put(key, raw.get(key))
    posted.put("prefill_latency_ms", _scaled(raw.get("prefill_latency"), 1000))
    posted.put("input_tok_s", raw.get("prefill_throughput"))
    posted.put("step_time_ms", _scaled(raw.get("median_decode_latency"), 1000))
    posted.put("output_tok_s", raw.get("median_decode_throughput"))
    posted.put("duration_s", raw.get("total_latency"))
    posted.put("total_tok_s", raw.get("overall_throughput"))
    return posted


def _one_batch_server(raw: Mapping[str, Any]) -> Posted:
    posted = Posted("sglang", "one_batch_server", tag=_text(raw.get("run_name")))
    for key in ("batch_size", "input_len", "output_len"):
        posted.put(key, raw.get(key))
    posted.put("duration_s", raw.get("latency"))
    posted.put("input_tok_s", raw.get("input_throughput"))
    posted.put("output_tok_s", raw.get("output_throughput"))
    posted.put("total_tok_s", raw.get("overall_throughput"))
    posted.put("last_ttft_ms", _scaled(raw.get("last_ttft", raw.get("ttft")), 1000))
    posted.put("last_gen_tok_s", raw.get("last_gen_throughput"))
    posted.put("steady_output_tok_s", raw.get("steady_state_output_throughput"))
    posted.put("cache_hit_rate_pct", _scaled(raw.get("cache_hit_rate"), 100))
    posted.put("output_tokens", raw.get("total_output_tokens"))
    if (number_of(raw.get("acc_length")) or 0) > 0:  # -1 where there is no speculation
        posted.put("accept_length", raw["acc_length"])
    return posted


def _task(raw: Mapping[str, Any]) -> Posted:
    posted = Posted("sglang", "mtbench", dataset=_text(raw.get("task")))
    other = raw.get("other") if isinstance(raw.get("other"), dict) else {}
    assert isinstance(other, dict)
    posted.put("questions", other.get("num_questions", raw.get("num_requests")))
    posted.put("tok_s", raw.get("throughput"))
    posted.put("accept_length", raw.get("accept_length"))
    posted.put("duration_s", raw.get("latency"))
    posted.put("max_concurrency", other.get("parallel"))
    return posted


def evalscope(figures: Mapping[str, object]) -> Posted | None:
    """The record of a run's summary, by label; None where these are other figures."""
    if not {EVALSCOPE_FIRST, "Succeed requests"} <= figures.keys():
        return None
    posted = Posted("evalscope")
    for label, value in figures.items():
        number = number_of(value)
        if label == "Request rate (req/s)":
            posted.put("request_rate", UNLIMITED if number == -1 else value)
        elif number is not None:  # else the path of its database, and the like
            key, factor = _EVALSCOPE.get(label, (re.sub(r"\W+", "_", label.lower()).strip("_")[:60], 1))
            posted.put(key, number * factor)
    return posted


def _throughput(raw: Mapping[str, Any]) -> Posted:
    posted = Posted("vllm", "throughput")
    posted.put("duration_s", raw.get("elapsed_time"))
    posted.put("num_prompts", raw.get("num_requests"))
    posted.put("req_per_s", raw.get("requests_per_second"))
    posted.put("total_tok_s", raw.get("tokens_per_second"))
    return posted


def _scaled(value: object, factor: float) -> float | None:
    number = number_of(value) if type(value) in (int, float) else None
    return None if number is None else number * factor


def _number(value: object) -> float | None:
    """A number of a list: one that can have been measured."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return value if measurable(value) and value >= 0 else None


def _text(value: object) -> str | None:
    return one_line(value, 200) if isinstance(value, str) and value.strip() else None


def _plain(value: object) -> object:
    if isinstance(value, str):
        return one_line(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _whole(value: object) -> int | None:
    return value if type(value) is int and measurable(value) else None


def _local_date(value: object) -> str | None:
    """vLLM's `20250828-224128`, in the writer's time zone, taken for ours."""
    try:
        moment = datetime.strptime(str(value), "%Y%m%d-%H%M%S").astimezone(UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
