"""One result as a flat record: what `--json` of `bench` and `results` prints, and the columns of an export.

Latencies, counts and rates have the names of SGLang's own benchmark; null means that the figure isn't there. What an
imported record says of itself stands under its own name as it was posted.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from tui.core.config import HostKind
from tui.core.model.result import Result
from tui.core.records import at, paths, picked, to_json

SIMULATED = "SIMULATED: measured on eagletui's simulated host, not on real GPUs"


def _found(kind: str) -> Callable[[Result], float | None]:
    """The highest load of a kind that a search found."""

    def read(result: Result) -> float | None:
        capacity = result.capacity
        if capacity is None or capacity.search.kind != kind or capacity.found is None:
            return None
        return int(capacity.found) if kind == "concurrency" else capacity.found

    return read


def on_demo(host: str) -> bool:
    """Whether it is a simulated host: no figure of it is one of real GPUs."""
    return HostKind.of(host) is HostKind.DEMO


def simulated(result: Result) -> bool:
    """Whether a result was measured on a simulated host."""
    return on_demo(result.server.host)


def _request_rate(result: Result) -> float | str | None:
    load = result.load
    return load.rate if load.rate is not None else "inf" if load.kind == "closed" else None


def _max_concurrency(result: Result) -> float | None:
    return result.load.concurrency if result.capacity is None else _found("concurrency")(result)


def _first(value: object, words: str) -> object:
    """The first of several attributes that is there."""
    return next((found for found in picked(value, words).values() if found is not None), None)


_LATENCIES = " ".join(
    f"{point}_{name}_ms=latencies.{attribute}.{'p50' if point == 'median' else point}"
    for name, attribute in (("ttft", "ttft"), ("tpot", "tpot"), ("itl", "gap"), ("e2e", "e2e"))
    for point in ("mean", "median", "p90", "p95", "p99", "max")
)
# All columns in their order: each an attribute of a result, or computed below.
_COLUMNS = f"""
    result=result_id bench started=started_at host=server.host profile=server.profile run=server.run_id
    bench_run=bench_run_id run_index experiment arm launch=launch_number
    tool=tool.name tool_version=tool.version backend=tool.backend model=server.model server_version=server.version
    sets=server.sets spec_algorithm steps=server.spec.steps topk=server.spec.topk
    num_draft_tokens=server.spec.draft_tokens slo_share=slo.share slo_holds=slo.holds
    goodput_req_s=throughput.goodput_req_s max_rate max_at_least=capacity.at_least
    load=load.kind dataset request_rate max_concurrency num_prompts=load.requests
    successful=counts.ok failed=counts.errors duration_s window_s=window.duration_s
    input_tokens=counts.input_tokens output_tokens=counts.output_tokens
    per_user_tok_s=throughput.per_user_tok_s req_per_s=throughput.req_s input_tok_s=throughput.input_tok_s
    output_tok_s output_tok_s_full=throughput.output_tok_s_full total_tok_s=throughput.total_tok_s
    output_tok_s_per_gpu=throughput.output_tok_s_per_gpu peak_output_tok_s peak_concurrent concurrency
    {_LATENCIES}
    accept_length tau=speculation.tau cycle_ms=speculation.cycle_ms verify_steps=speculation.verify_steps
    power_w=gpu.power_w joules_per_token=gpu.joules_per_token mem_peak_mib=gpu.memory_peak_mib sm_mhz=gpu.sm_mhz
    guards failed_guards valid suspicious notes simulated_host
"""
_COMPUTED: dict[str, Callable[[Result], object]] = {
    "max_rate": _found("rate"),
    "request_rate": _request_rate,
    "max_concurrency": _max_concurrency,
    "spec_algorithm": lambda result: result.server.spec.algorithm or None if result.server.spec else None,
    "dataset": lambda result: result.load.dataset or None,
    # Tools that know no window give the whole run's rate this name.
    "output_tok_s": lambda result: _first(result.throughput, "output_tok_s output_tok_s_full"),
    # Of other tools alone.
    **dict.fromkeys(("peak_output_tok_s", "peak_concurrent", "concurrency"), lambda _: None),
    "accept_length": lambda result: _first(result.speculation, "tau counter_accept_length server_accept_length"),
    "guards": lambda result: {guard.id: guard.status for guard in result.guards},
    "simulated_host": simulated,
    "failed_guards": lambda result: [guard.text for guard in result.failed_guards],
}
# How each column is read, by its name.
READS: dict[str, Callable[[Result], Any]] = {
    key: _COMPUTED.get(key) or partial(at, path=path) for key, path in paths(_COLUMNS)
}


def flat(result: Result) -> dict[str, object]:
    """The flat record of a result; every key is there, whatever the result lacks is None."""
    record = {name: to_json(read(result)) for name, read in READS.items()}
    # A posted figure stands where ours has none, and never for one of ours.
    return record | {key: value for key, value in result.posted.items() if record.get(key) is None}
