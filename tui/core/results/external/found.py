"""A benchmark as somebody else's tool printed or wrote it, on its way into a `Result`.

Figures have the flat record's keys (`flat.py`): milliseconds, seconds, tokens a second. A figure that was `nan` is left
out and remembered in `broken`.
"""

import math
from dataclasses import dataclass, field

from tui.core.model.result import SpecConfig
from tui.core.text import one_line

UNLIMITED = "inf"  # a request rate: everything at once

# Labels of text blocks, lower case, without units: SGLang's, vLLM's, and their older spellings.
LABELS = {
    "backend": "backend",
    "traffic request rate": "request_rate",
    "request rate configured": "request_rate",
    "max request concurrency": "max_concurrency",
    "max reqeuest concurrency": "max_concurrency",  # SGLang until early 2025
    "maximum request concurrency": "max_concurrency",
    "successful requests": "successful",
    "failed requests": "failed",
    "benchmark duration": "duration_s",
    "total input tokens": "input_tokens",
    "total input text tokens": "input_text_tokens",
    "total input vision tokens": "input_vision_tokens",
    "total generated tokens": "output_tokens",
    "total output tokens": "output_tokens",
    "total generated tokens (retokenized)": "retokenized_tokens",
    "total output tokens (retokenized)": "retokenized_tokens",
    "request throughput": "req_per_s",
    "request goodput": "goodput_req_per_s",
    "user throughput": "user_tok_s",
    "slo attainment": "slo_attainment_pct",
    "input token throughput": "input_tok_s",
    "output token throughput": "output_tok_s",
    "total token throughput": "total_tok_s",
    "peak output token throughput": "peak_output_tok_s",
    "max output tokens per second": "peak_output_tok_s",
    "peak concurrent requests": "peak_concurrent",
    "last generation throughput": "last_gen_tok_s",
    "concurrency": "concurrency",
    "accept length": "accept_length",
    "acceptance length": "accept_length",
    "acceptance rate": "acceptance_rate_pct",
    "drafts": "drafts",
    "draft tokens": "draft_tokens",
    "accepted tokens": "accepted_tokens",
    "cache hit rate": "cache_hit_rate_pct",
}

# Keys of the serving benchmarks' JSON, SGLang's and vLLM's, old and new.
JSON_KEYS = {
    "backend": "backend",
    "endpoint_type": "backend",
    "max_concurrency": "max_concurrency",
    "num_prompts": "num_prompts",
    "completed": "successful",
    "successful_requests": "successful",
    "failed": "failed",
    "duration": "duration_s",
    "total_latency": "duration_s",
    "total_input_tokens": "input_tokens",
    "total_input": "input_tokens",
    "total_input_text_tokens": "input_text_tokens",
    "total_input_vision_tokens": "input_vision_tokens",
    "total_output_tokens": "output_tokens",
    "total_output": "output_tokens",
    "total_output_tokens_retokenized": "retokenized_tokens",
    "request_throughput": "req_per_s",
    "request_inthroughput": "req_per_s",  # vLLM, early 2024
    "request_goodput": "goodput_req_per_s",
    "request_goodput:": "goodput_req_per_s",  # vLLM until 2025
    "input_throughput": "input_tok_s",
    "output_throughput": "output_tok_s",
    "output_token_throughput": "output_tok_s",  # SGLang, 2024
    "total_throughput": "total_tok_s",
    "total_token_throughput": "total_tok_s",
    "last_gen_throughput": "last_gen_tok_s",
    "max_output_tokens_per_s": "peak_output_tok_s",
    "max_concurrent_requests": "peak_concurrent",
    "concurrency": "concurrency",
    "accept_length": "accept_length",
    "spec_decode_acceptance_length": "accept_length",
    "spec_decode_acceptance_rate": "acceptance_rate_pct",
    "spec_decode_num_drafts": "drafts",
    "spec_decode_draft_tokens": "draft_tokens",
    "spec_decode_accepted_tokens": "accepted_tokens",
}

_COUNTS = frozenset(
    [
        "max_concurrency",
        "num_prompts",
        "successful",
        "failed",
        "input_tokens",
        "input_text_tokens",
        "input_vision_tokens",
        "output_tokens",
        "retokenized_tokens",
        "drafts",
        "draft_tokens",
        "accepted_tokens",
        "input_len",
        "output_len",
        "batch_size",
        "steps",
        "topk",
        "num_draft_tokens",
        "questions",
        "peak_concurrent",
    ]
)
_SMALLEST, _LARGEST = 1e-12, 1e15  # what a clock or a counter can give, but 0
_NOTHING = frozenset(("", "none", "null", "not set", "n/a", "na", "-"))

Figure = float | int | str


@dataclass
class Posted:
    """One record of a file, being gathered."""

    tool: str | None = None  # sglang, vllm, tensorrt_llm, evalscope
    kind: str = "serving"  # serving, offline, speculative, mtbench, one_batch, one_batch_server, throughput
    figures: dict[str, Figure] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)  # keys of figures that are no numbers
    dataset: str | None = None
    seed: int | None = None
    temperature: float | None = None
    ignore_eos: bool | None = None
    model: str | None = None
    server_version: str | None = None
    server_args: dict[str, object] = field(default_factory=dict)
    spec: SpecConfig | None = None
    started_at: str | None = None
    tag: str | None = None
    token_times: tuple[float, int] | None = None  # seconds after first tokens, and tokens that came in them
    rows: list[dict[str, object]] = field(default_factory=list)

    def put(self, key: str, value: object) -> None:
        """Takes a figure as JSON or text gives it; the first of a name stays."""
        if key in self.figures or key in self.broken:
            return
        if key in ("backend", "request_rate") and isinstance(value, str):
            value = one_line(value, 60)
            if key == "backend" or value in (UNLIMITED, "trace"):
                if value.lower() not in _NOTHING:
                    self.figures[key] = value
                return
        if value is None or isinstance(value, bool | list | dict):
            return
        if isinstance(value, str) and value.strip().lower() in _NOTHING:
            return
        number = number_of(value)
        if number is None or math.isnan(number):
            self.broken.add(key)
        elif math.isinf(number):
            if key == "request_rate":
                self.figures[key] = UNLIMITED
            elif key != "max_concurrency":
                self.broken.add(key)
        elif not measurable(number):
            self.broken.add(key)
        else:
            whole = key in _COUNTS and number.is_integer()
            self.figures[key] = int(number) if whole else number

    def number(self, key: str) -> float | None:
        value = self.figures.get(key)
        return None if isinstance(value, str) else value

    def count(self, key: str) -> int | None:
        value = self.figures.get(key)
        return value if isinstance(value, int) else None


def measurable(number: float) -> bool:
    """Whether it can have been measured: neither nan nor inf, nor so large or small that computing with it ends there."""
    return number == 0 or _SMALLEST <= abs(number) <= _LARGEST


def number_of(value: object) -> float | None:
    """A figure as a number, thousands separators dropped; nan and inf stay what they are; None for anything else."""
    if isinstance(value, str):
        value = value.replace(",", "").replace("_", "")
    try:
        return float(value)  # type: ignore[arg-type]  # whatever it cannot take is a TypeError
    except (ValueError, TypeError, OverflowError):
        return None
