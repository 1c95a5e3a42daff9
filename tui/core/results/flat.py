"""One result as a flat record: what `--json` of `bench` and `results` prints, and the columns of an export.

Latencies, counts and rates have the names of SGLang's own benchmark; null means that the figure isn't there. What an
imported record says of itself stands under its own name as it was posted.
"""

from collections.abc import Callable
from functools import reduce

from tui.core.model.result import GuardStatus, Result


def _at(path: str) -> Callable[[Result], object]:
    """What is at a path of attributes; None where one on the way is."""
    names = path.split(".")
    return lambda result: reduce(lambda value, name: None if value is None else getattr(value, name), names, result)


def _first(*paths: str) -> Callable[[Result], object]:
    """The first of several that is there."""
    reads = [_at(path) for path in paths]
    return lambda result: next((value for read in reads if (value := read(result)) is not None), None)


def _found(kind: str) -> Callable[[Result], float | None]:
    """The highest load of a kind that a search found."""

    def read(result: Result) -> float | None:
        capacity = result.capacity
        if capacity is None or capacity.search.kind != kind or capacity.found is None:
            return None
        return int(capacity.found) if kind == "concurrency" else capacity.found

    return read


def _request_rate(result: Result) -> float | str | None:
    load = result.load
    return load.rate if load.rate is not None else "inf" if load.kind == "closed" else None


def _max_concurrency(result: Result) -> float | None:
    return result.load.concurrency if result.capacity is None else _found("concurrency")(result)


_COLUMNS: dict[str, Callable[[Result], object]] = {
    "result": _at("result_id"),
    "bench": _at("bench"),
    "started": _at("started_at"),
    "host": _at("server.host"),
    "profile": _at("server.profile"),
    "run": _at("server.run_id"),
    "bench_run": _at("bench_run_id"),
    "run_index": _at("run_index"),
    "experiment": _at("experiment"),
    "arm": _at("arm"),
    "launch": _at("launch_number"),
    "tool": _at("tool.name"),
    "tool_version": _at("tool.version"),
    "backend": _at("tool.backend"),
    "model": _at("server.model"),
    "server_version": _at("server.version"),
    "sets": lambda result: dict(result.server.sets),
    "spec_algorithm": lambda result: result.server.spec.algorithm or None if result.server.spec else None,
    "steps": _at("server.spec.steps"),
    "topk": _at("server.spec.topk"),
    "num_draft_tokens": _at("server.spec.draft_tokens"),
    "slo_share": _at("slo.share"),
    "slo_holds": _at("slo.holds"),
    "goodput_req_s": _at("throughput.goodput_req_s"),
    "max_rate": _found("rate"),
    "max_at_least": _at("capacity.at_least"),
    "load": _at("load.kind"),
    "dataset": lambda result: result.load.dataset or None,
    "request_rate": _request_rate,
    "max_concurrency": _max_concurrency,
    "num_prompts": _at("load.requests"),
    "successful": _at("counts.ok"),
    "failed": _at("counts.errors"),
    "duration_s": _at("duration_s"),
    "window_s": _at("window.duration_s"),
    "input_tokens": _at("counts.input_tokens"),
    "output_tokens": _at("counts.output_tokens"),
    "per_user_tok_s": _at("throughput.per_user_tok_s"),
    "req_per_s": _at("throughput.req_s"),
    "input_tok_s": _at("throughput.input_tok_s"),
    # Tools that know no window give the whole run's rate this name.
    "output_tok_s": _first("throughput.output_tok_s", "throughput.output_tok_s_full"),
    "output_tok_s_full": _at("throughput.output_tok_s_full"),
    "total_tok_s": _at("throughput.total_tok_s"),
    "output_tok_s_per_gpu": _at("throughput.output_tok_s_per_gpu"),
    # Of other tools alone.
    **dict.fromkeys(("peak_output_tok_s", "peak_concurrent", "concurrency"), lambda _: None),
    **{
        f"{point}_{name}_ms": _at(f"latencies.{attribute}.{'p50' if point == 'median' else point}")
        for name, attribute in (("ttft", "ttft"), ("tpot", "tpot"), ("itl", "gap"), ("e2e", "e2e"))
        for point in ("mean", "median", "p90", "p95", "p99", "max")
    },
    "accept_length": _first("speculation.tau", "speculation.counter_accept_length", "speculation.server_accept_length"),
    "tau": _at("speculation.tau"),
    "cycle_ms": _at("speculation.cycle_ms"),
    "verify_steps": _at("speculation.verify_steps"),
    "power_w": _at("gpu.power_w"),
    "joules_per_token": _at("gpu.joules_per_token"),
    "mem_peak_mib": _at("gpu.memory_peak_mib"),
    "sm_mhz": _at("gpu.sm_mhz"),
    "guards": lambda result: {guard.id: guard.status.value for guard in result.guards},
    "failed_guards": lambda result: [guard.text for guard in result.guards if guard.status is GuardStatus.FAILED],
    "valid": _at("valid"),
    "suspicious": lambda result: list(result.suspicious),
    "notes": lambda result: list(result.notes),
}


def flat(result: Result) -> dict[str, object]:
    """The flat record of a result; every key is there, whatever the result lacks is None."""
    record = {name: read(result) for name, read in _COLUMNS.items()}
    # A posted figure stands where ours has none, and never for one of ours.
    return record | {key: value for key, value in result.posted.items() if record.get(key) is None}
