"""A whole bench: all points and runs, or searches, each run from its warm-up to its files."""

from __future__ import annotations

import contextlib
import json
from typing import Any

from tui.remote.loadgen.bench import Bench
from tui.remote.loadgen.counters import counted_by_then, hit_rate
from tui.remote.loadgen.load import Load
from tui.remote.loadgen.prompts import Workload
from tui.remote.loadgen.protocol import Stop, label_of, say, uptime, write_whole
from tui.remote.loadgen.search import Search
from tui.remote.loadgen.warmup import judge, warm_up


async def measure(bench: Bench, point: dict[str, Any], run: int) -> Load:
    """One measured run, from its warm-up to its files; its load, all replies in. Raises Stop."""
    plan, server = bench.plan, bench.server
    label = label_of(point)
    warmup = await warm_up(bench, point, run)
    flushed = await server.flush()
    before, idle_before = await server.at_rest(warmup.least)  # or what lags of it counts as the window's
    workload = Workload(plan, label, str(run), fresh=flushed is True)
    load = Load(bench, point, run, workload, "window")
    bench.left_s -= plan.duration_s
    await load.go(plan.max_requests)
    done = [x for x in load.all if x.output is not None]
    least = None if load.failed else counted_by_then(before, sum(x.output or 0 for x in done))
    after, idle_after = await server.at_rest(least)
    identity, accept_length = await server.after_run()
    zero = load.zero
    rows = f"{label}-{run}.rows.jsonl.gz"
    meta: dict[str, Any] = {
        "label": label,
        "point": point,
        "run": run,
        "seed": plan.seed,
        "started_at": round(load.started_at, 3),
        "uptime_s": round(uptime(zero), 3),
        "window": [round(moment - zero, 6) for moment in load.window] if load.window else None,
        "end_s": round(load.seconds(), 6),
        "requests": len(load.all),
        "flush": {"ok": flushed, "hit_rate": hit_rate(done, before, after)},
        "counters": {"before": before, "after": after, "idle": idle_before and idle_after},
        "gpu": bench.gpus.during(zero, load.ended_at),
        "graph": load.log.graph(),
        "client": load.client(),
        "server": {"first": server.first_identity, "after": identity},
        "warmup": warmup.meta,
        "errors": load.errors(),
        "accept_length": accept_length if load.verify else None,
        "options": {"continuous_usage": server.continuous_usage, "spec_details": server.spec_details},
        "cores": bench.cores,
        "rounds": -(-len(load.all) // len(plan.items)) if plan.dataset != "random-ids" else 1,
    }
    bench.gpus.forget(load.ended_at)
    meta["rows_sha256"] = write_whole(rows, load.rows())
    name = f"{label}-{run}.json"
    sha = write_whole(name, json.dumps(meta).encode())
    say(
        "run",
        label=label,
        point=point,
        run=run,
        meta=name,
        rows=rows,
        sha256={"meta": sha, "rows": meta["rows_sha256"]},
    )
    judge(load)
    return load


async def search_once(bench: Bench, search: Search, run: int, later: float) -> None:
    """One search, from its first point to its answer. Raises Stop.

    Args:
        later: seconds that the searches after this one take at most.
    """
    plan = bench.plan
    each = plan.warmup_s + plan.duration_s
    search.restart()
    while (load := search.next()) is not None:
        bench.left_s = later + (search.most - len(search.points)) * each - plan.warmup_s
        measured = await measure(bench, {search.kind: load}, run)
        search.judge(load, *measured.held(search))
    say("search", kind=search.kind, run=run, points=search.points, found=search.found, fails_from=search.fails_from)


async def carry_out(bench: Bench) -> None:
    """All points and runs, or searches. Raises Stop."""
    plan = bench.plan
    try:
        await bench.server.facts()
        await bench.server.negotiate()
        await bench.server.write()
        bench.left_s = len(plan.points) * (plan.warmup_s + plan.runs * plan.duration_s)
        if plan.search is not None:
            each = plan.search.most * (plan.warmup_s + plan.duration_s)
            for run in range(1, plan.runs + 1):
                await search_once(bench, plan.search, run, (plan.runs - run) * each)
        for point in plan.points:
            bench.left_s -= plan.warmup_s
            for run in range(1, plan.runs + 1):
                await measure(bench, point, run)
        with contextlib.suppress(Stop):  # all runs are whole, whatever became of the server meanwhile
            await bench.server.write()
    finally:
        bench.server.close()
        bench.gpus.end()
