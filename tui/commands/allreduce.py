"""`eagletui bench NAME` where the profile is the all-reduce micro-benchmark."""

from tui.commands.output import emit, run_async, say
from tui.commands.sessions import session
from tui.core.bench import allreduce
from tui.core.bench.allreduce import Report
from tui.core.config import default_host
from tui.core.model.profile import BenchProfile
from tui.core.records import to_json
from tui.core.text import aligned


def measure_allreduce(profile: BenchProfile, host: str | None, as_json: bool) -> int:
    """Measures the host, not a server: 0 with figures, 1 where it failed."""

    async def measure() -> Report:
        async with session(host or default_host()) as opened:
            run = await allreduce.start(opened, profile)
            if not as_json:
                say(f"{run.run_id} measures {opened.entry.name}")
            return await allreduce.wait(opened, run)

    report = run_async(measure())
    if as_json:
        emit({**to_json(report), "error": None})
    else:
        print(table(report))
    return 0


def table(report: Report) -> str:
    """The figures as aligned lines."""
    with_graphs = "in CUDA graphs" if report.mode == "graph" else "call by call"
    library = f"{report.backend} {report.nccl}" if report.nccl else report.backend
    calls = f"{2 * report.layers} of them"
    rows: list[tuple[str, ...]] = [("", "users", "tokens", "bytes", "median µs", "p99 µs", f"{calls}, ms")]
    for point in report.points:
        name = point.what if point.draft_tokens is None else f"{point.what} {point.draft_tokens} drafts"
        figures = f"{point.batch} {point.tokens} {point.bytes:,} {point.median_us:,.1f} {point.p99_us:,.1f} {point.step_ms:,.2f}"
        rows.append((name, *figures.split()))
    head = (
        f"{report.ranks} ranks on {report.device or 'unknown'} ({library}, {with_graphs}), hidden {report.hidden}, "
        f"{report.layers} layers"
    )
    return "\n".join([head, *aligned(rows), *report.notes])
