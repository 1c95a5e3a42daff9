"""SGLang's other benchmarks: speculation sweeps, one batch with and without a server, tasks such as MT-Bench."""

import re
from collections.abc import Mapping
from typing import Any

from tui.core.results.external.form import LineForm, ObjectForm
from tui.core.results.external.posted import Posted, number_of
from tui.core.text import as_text

_LENGTHS = {"batch_size": "batch_size", "input_len": "input_len", "output_len": "output_len"}
_ITEM = re.compile(r"(\w+)=([\d.eE+-]+|nan|None)")


def _tag(posted: Posted, raw: Mapping[str, Any]) -> None:
    posted.tag = as_text(raw.get("run_name"), 200)


def _one_batch_server(posted: Posted, raw: Mapping[str, Any]) -> None:
    _tag(posted, raw)
    if (number_of(raw.get("acc_length")) or 0) > 0:  # -1 where there is no speculation
        posted.put("accept_length", raw["acc_length"])


def _task(posted: Posted, raw: Mapping[str, Any]) -> None:
    other = raw.get("other")
    other = other if isinstance(other, dict) else {}
    posted.dataset = as_text(raw.get("task"), 200)
    posted.put("questions", other.get("num_questions", raw.get("num_requests")))
    posted.put("max_concurrency", other.get("parallel"))


OBJECTS = (
    ObjectForm(
        "sglang",
        "speculative",
        (["steps", "topk", "num_draft_tokens"],),
        {name: name for name in ["batch_size", "steps", "topk", "num_draft_tokens", "speed", "completion_tokens"]}
        | {"acc_length": "accept_length", "step_time": ("step_time_ms", 1000)},
    ),
    ObjectForm(
        "sglang",
        "one_batch",
        (["median_decode_latency"], ["prefill_latency", "prefill_throughput"]),
        _LENGTHS
        | {
            "prefill_latency": ("prefill_latency_ms", 1000),
            "prefill_throughput": "input_tok_s",
            "median_decode_latency": ("step_time_ms", 1000),
            "median_decode_throughput": "output_tok_s",
            "total_latency": "duration_s",
            "overall_throughput": "total_tok_s",
        },
        _tag,
    ),
    ObjectForm(
        "sglang",
        "one_batch_server",
        (["batch_size", "output_len", "latency", "overall_throughput"],),
        _LENGTHS
        | {
            "latency": "duration_s",
            "input_throughput": "input_tok_s",
            "output_throughput": "output_tok_s",
            "overall_throughput": "total_tok_s",
            "last_ttft": ("last_ttft_ms", 1000),
            "ttft": ("last_ttft_ms", 1000),
            "last_gen_throughput": "last_gen_tok_s",
            "steady_state_output_throughput": "steady_output_tok_s",
            "cache_hit_rate": ("cache_hit_rate_pct", 100),
            "total_output_tokens": "output_tokens",
        },
        _one_batch_server,
    ),
    ObjectForm(
        "sglang",
        "mtbench",
        (["task", "num_requests", "latency"],),
        {"throughput": "tok_s", "accept_length": "accept_length", "latency": "duration_s"},
        _task,
    ),
)


def _mtbench_line(matched: re.Match[str]) -> Posted:
    posted = Posted("sglang", "mtbench", dataset="mtbench")
    for key, value in zip(("questions", "tok_s", "accept_length"), matched.groups(), strict=True):
        posted.put(key, value)
    return posted


def _speculative_line(matched: re.Match[str]) -> Posted | None:
    posted = Posted("sglang", "speculative")
    for key, value in _ITEM.findall(matched[1]):
        posted.put("step_time_ms" if key == "step_time" else key, value)
    return posted if "speed" in posted.figures or "speed" in posted.broken else None


LINES = (
    LineForm(
        re.compile(
            r"#questions:\s*(\d+),\s*Throughput:\s*([\d.]+|nan)\s*token/s(?:,\s*Acceptance length:\s*([\d.]+|nan))?"
        ),
        _mtbench_line,
    ),
    LineForm(re.compile(r"\bFinish i=\d+:\s*(.*)"), _speculative_line),
)
