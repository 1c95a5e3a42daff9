"""One result as a flat record: what `--json` of `bench` and `results` prints, and the columns of an export.

Latencies, counts and rates have the names of SGLang's own benchmark; null means that the figure isn't there. What an
imported record says of itself stands under its own name as it was posted.
"""

from tui.core.model.result import Distribution, GuardStatus, Latencies, Result, SpecConfig, Speculation

_LATENCIES = (("ttft", "ttft"), ("tpot", "tpot"), ("itl", "gap"), ("e2e", "e2e"))
_POINTS = (("mean", "mean"), ("median", "p50"), ("p90", "p90"), ("p95", "p95"), ("p99", "p99"), ("max", "max"))
_NO_SPECULATION = Speculation()
_NO_DISTRIBUTION = Distribution(0)
_NO_SPEC = SpecConfig("")


def flat(result: Result) -> dict[str, object]:
    """The flat record of a result; every key is there, whatever the result lacks is None."""
    server, load, counts, rates = result.server, result.load, result.counts, result.throughput
    speculation = result.speculation or _NO_SPECULATION
    spec = server.spec or _NO_SPEC
    record: dict[str, object] = {
        "result": result.result_id,
        "bench": result.bench,
        "started": result.started_at,
        "host": server.host,
        "profile": server.profile,
        "run": server.run_id,
        "bench_run": result.bench_run_id,
        "run_index": result.run_index,
        "experiment": result.experiment,
        "arm": result.arm,
        "launch": result.launch_number,
        "tool": result.tool.name,
        "tool_version": result.tool.version,
        "backend": result.tool.backend,
        "model": server.model,
        "server_version": server.version,
        "sets": dict(server.sets),
        "spec_algorithm": spec.algorithm or None,
        "steps": spec.steps,
        "topk": spec.topk,
        "num_draft_tokens": spec.draft_tokens,
        "slo_share": result.slo.share if result.slo else None,
        "slo_holds": result.slo.holds if result.slo else None,
        "goodput_req_s": rates.goodput_req_s,
        "max_rate": _capacity(result, "rate"),
        "max_at_least": result.capacity.at_least if result.capacity else None,
        "load": load.kind,
        "dataset": load.dataset or None,
        "request_rate": load.rate if load.rate is not None else "inf" if load.kind == "closed" else None,
        "max_concurrency": load.concurrency if result.capacity is None else _capacity(result, "concurrency"),
        "num_prompts": load.requests,
        "successful": counts.ok,
        "failed": counts.errors,
        "duration_s": result.duration_s,
        "window_s": result.window.duration_s if result.window else None,
        "input_tokens": counts.input_tokens,
        "output_tokens": counts.output_tokens,
        "per_user_tok_s": rates.per_user_tok_s,
        "req_per_s": rates.req_s,
        "input_tok_s": rates.input_tok_s,
        # Tools that know no window give the whole run's rate this name.
        "output_tok_s": rates.output_tok_s if rates.output_tok_s is not None else rates.output_tok_s_full,
        "output_tok_s_full": rates.output_tok_s_full,
        "total_tok_s": rates.total_tok_s,
        "output_tok_s_per_gpu": rates.output_tok_s_per_gpu,
        "peak_output_tok_s": None,
        "peak_concurrent": None,
        "concurrency": None,
        **_latencies(result.latencies),
        "accept_length": _first(speculation.tau, speculation.counter_accept_length, speculation.server_accept_length),
        "tau": speculation.tau,
        "cycle_ms": speculation.cycle_ms,
        "verify_steps": speculation.verify_steps,
        "power_w": result.gpu.power_w if result.gpu else None,
        "joules_per_token": result.gpu.joules_per_token if result.gpu else None,
        "mem_peak_mib": result.gpu.memory_peak_mib if result.gpu else None,
        "sm_mhz": result.gpu.sm_mhz if result.gpu else None,
        "guards": {guard.id: guard.status.value for guard in result.guards},
        "failed_guards": [guard.text for guard in result.guards if guard.status is GuardStatus.FAILED],
        "valid": result.valid,
        "suspicious": list(result.suspicious),
        "notes": list(result.notes),
    }
    # A posted figure stands where ours has none, and never for one of ours.
    return record | {key: value for key, value in result.posted.items() if record.get(key) is None}


def _capacity(result: Result, kind: str) -> float | None:
    """The highest load of a kind that a search found."""
    capacity = result.capacity
    if capacity is None or capacity.search.kind != kind or capacity.found is None:
        return None
    return int(capacity.found) if kind == "concurrency" else capacity.found


def _first(*values: float | None) -> float | None:
    return next((value for value in values if value is not None), None)


def _latencies(latencies: Latencies) -> dict[str, object]:
    found: dict[str, object] = {}
    for name, attribute in _LATENCIES:
        distribution = getattr(latencies, attribute) or _NO_DISTRIBUTION
        for point, of_distribution in _POINTS:
            found[f"{point}_{name}_ms"] = getattr(distribution, of_distribution)
    return found
