"""The serving benchmarks of SGLang and vLLM: one JSON object a run, or one row of a table."""

import math
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from tui.core.results.external.form import ObjectForm
from tui.core.results.external.labels import LATENCIES, figure_of, label_of
from tui.core.results.external.posted import JSON_KEYS, Posted, measurable, number_of
from tui.core.results.external.tables import Table
from tui.core.sglang.server_info import speculation
from tui.core.text import as_number, as_text, as_whole, one_line

_ARGS_LIMIT = 2000  # flags of a server that are kept
_KEY = re.compile(r"[a-z][a-z0-9_]{0,60}")
_RATES = frozenset(["output_throughput", "request_throughput", "total_throughput", "total_token_throughput"])
_FEWEST = 3  # columns of ours, below which a table is somebody else's


def _serving(posted: Posted, raw: Mapping[str, Any]) -> None:
    posted.kind = "offline" if "successful_requests" in raw else "serving"
    if "model_id" in raw or "tokenizer_id" in raw or "total_token_throughput" in raw:
        posted.tool = "vllm"
    for key, ours in JSON_KEYS.items():
        posted.put(ours, raw.get(key))
    posted.dataset = as_text(raw.get("dataset_name"), 200)
    if posted.dataset is None or posted.dataset.startswith("random"):
        posted.put("input_len", raw.get("random_input_len"))
        posted.put("output_len", raw.get("random_output_len"))
    else:  # the others stand there too, with their defaults
        posted.put("output_len", raw.get("sharegpt_output_len"))
    for key, value in raw.items():
        if latency := _latency(key):
            posted.put(latency, value)
    rate = raw.get("request_rate")
    posted.put("request_rate", rate if isinstance(rate, str) else number_of(rate))
    cache = raw.get("cache_report")
    if isinstance(cache, dict):
        posted.put("cache_hit_rate_pct", cache.get("cache_hit_rate_pct"))
    posted.tag = as_text(raw.get("tag"), 200) or as_text(raw.get("label"), 200)
    posted.model = as_text(raw.get("model_id"), 200)
    posted.started_at = _local_date(raw.get("date"))
    info = raw.get("server_info")
    if isinstance(info, dict):
        _server(posted, info)
    _details(posted, raw)


def _latency(key: str) -> str | None:
    """Our key of a statistic of a latency; without the unit in SGLang of 2024, milliseconds all the same."""
    label = label_of(key)
    figure = figure_of(label, {}, own=False, shared=LATENCIES) if label.point and label.unit in ("", "ms") else None
    return figure and figure[0]


SERVING = ObjectForm(
    "sglang", "serving", (["completed", "duration"], ["successful_requests", "total_latency"]), more=_serving
)


def _server(posted: Posted, info: Mapping[str, Any]) -> None:
    inner = info.get("decode")  # of a disaggregated pair
    if isinstance(inner, list) and inner and isinstance(inner[0], dict):
        info = inner[0]
    posted.server_version = as_text(info.get("version"), 200)
    posted.model = as_text(info.get("served_model_name"), 200) or as_text(info.get("model_path"), 200)
    posted.server_args = {
        one_line(key, 80): _plain(value)
        for key, value in list(info.items())[:_ARGS_LIMIT]
        if not isinstance(value, dict | list) and key != "version"
    }
    posted.spec = speculation(info)


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
        if not isinstance(between, list) or not all(_measured(gap) is not None for gap in between):
            posted.rows.clear()
            return
        posted.rows.append(
            {
                "i": index,
                "in": as_whole(inputs[index]),
                "out": as_whole(length),
                "ttft_s": _measured(ttft),
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


def _measured(value: object) -> float | None:
    number = as_number(value)
    return number if number is not None and number >= 0 and measurable(number) else None


def _plain(value: object) -> object:
    if isinstance(value, str):
        return one_line(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _local_date(value: object) -> str | None:
    """vLLM's `20250828-224128`, in the writer's time zone, taken for ours."""
    try:
        moment = datetime.strptime(str(value), "%Y%m%d-%H%M%S").astimezone(UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


class ServingRows:
    """A record a row, a column a JSON key: SGLang's grid and its HTML, the sweeps of both as CSV."""

    def fits(self, head: Sequence[str], drawn: bool) -> bool:
        known = sum(cell in JSON_KEYS or _latency(cell) is not None for cell in head)
        return known >= _FEWEST and bool(_RATES & set(head))

    def read(self, table: Table) -> list[Posted]:
        records = []
        for row in table.rows:
            cells = zip(table.head, row, strict=True)
            raw: dict[str, Any] = {
                key: cell if (number := number_of(cell)) is None else number
                for key, cell in cells
                if _KEY.fullmatch(key) and cell.strip().lower() != "nan"  # in a table: this run has none
            }
            if all(number_of(raw.get(key)) is None for key in _RATES):
                continue
            (posted,) = SERVING.read(raw)
            for key in raw.keys() - JSON_KEYS.keys() - {"request_rate"}:
                if _latency(key) is None:
                    posted.put(key, number_of(raw[key]))
            records.append(posted)
        return records
