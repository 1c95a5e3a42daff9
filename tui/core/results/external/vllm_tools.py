"""vLLM's throughput benchmark: no server, everything at once."""

import re

from tui.core.results.external.form import LineForm, ObjectForm
from tui.core.results.external.posted import Posted

OBJECTS = (
    ObjectForm(
        "vllm",
        "throughput",
        (["elapsed_time", "requests_per_second", "tokens_per_second"],),
        {
            "elapsed_time": "duration_s",
            "num_requests": "num_prompts",
            "requests_per_second": "req_per_s",
            "tokens_per_second": "total_tok_s",
        },
    ),
)


def _throughput_line(matched: re.Match[str]) -> Posted:
    posted = Posted("vllm", "throughput")
    for key, value in zip(("req_per_s", "total_tok_s", "output_tok_s"), matched.groups(), strict=True):
        posted.put(key, value)
    return posted


LINES = (
    LineForm(
        re.compile(r"\bThroughput:\s*([\d.]+) requests/s, ([\d.]+) (?:total )?tokens/s(?:, ([\d.]+) output tokens/s)?"),
        _throughput_line,
    ),
)
