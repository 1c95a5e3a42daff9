"""`driver = "command"`: any benchmark's command, run on the host once for each load and run; what it prints is read.

A small shell program runs one after the other and says so in lines like the load generator's, so it survives the link and
is collected like any measurement. What each run prints goes into a file of its own.
"""

import json
import shlex
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from tui.core.bench.collect import Asked, point_of, result_id
from tui.core.bench.guards import simulated
from tui.core.bench.target import Seen, Target
from tui.core.bench.workload import DEFAULT_INPUT_LEN, Dataset
from tui.core.errors import Slug, UsageError
from tui.core.model.profile import BenchProfile, LoadPoint
from tui.core.model.result import Guard, GuardStatus, Load, Result, Tool
from tui.core.results.external.reading import decode, read_posted
from tui.core.runs.request import InRunDir
from tui.core.text import one_line

TOOL = "command"
PROGRAM = InRunDir("command.sh")
NO_DATA = Dataset(TOOL, TOOL)  # the command brings its own

_PROGRAM = """\
# label, point, run, command...
one() {
  label=$1 point=$2 run=$3
  shift 3
  head="\\"label\\":\\"$label\\",\\"point\\":$point,\\"run\\":$run"
  printf '{"event":"progress",%s,"phase":"window","t":0}\\n' "$head"
  began=$(date +%s)
  "$@" > "$label-$run.out.part" 2>&1 < /dev/null
  code=$?
  mv "$label-$run.out.part" "$label-$run.out"
  printf '{"event":"run","tool":"command",%s,"output":"%s","exit":%s,"began":%s,"ended":%s}\\n' \\
    "$head" "$label-$run.out" "$code" "$began" "$(date +%s)"
}
"""


def program(profile: BenchProfile, measured: Target, seen: Seen) -> bytes:
    """The shell program of all runs; in the command's words `{url}`, `{host}`, `{port}`, `{model}`, `{concurrency}`,
    `{rate}`, `{input_len}`, `{output_len}` and `{run}` stand for what they are."""
    lines = [_PROGRAM]
    for point in profile.points:
        for run in range(1, profile.runs + 1):
            words = _words(profile, measured, seen, point, run)
            told = json.dumps({"concurrency": point.concurrency} if point.rate is None else {"rate": point.rate})
            lines.append(shlex.join(["one", point.label, told, str(run), *words]))
    lines.append("""printf '{"event":"done"}\\n'\n""")
    return "\n".join(lines).encode()


def _words(profile: BenchProfile, measured: Target, seen: Seen, point: LoadPoint, run: int) -> list[str]:
    host, port, _ = measured.address
    meant = {
        "{url}": measured.url,
        "{host}": host,
        "{port}": port,
        "{model}": seen.served or seen.model or "",
        "{concurrency}": point.concurrency if point.concurrency is not None else "",
        "{rate}": f"{point.rate:g}" if point.rate is not None else "inf",
        "{input_len}": profile.input_len or DEFAULT_INPUT_LEN,
        "{output_len}": profile.output_len,
        "{run}": run,
    }
    words = []
    for word in profile.command:
        for name, value in meant.items():
            word = word.replace(name, str(value))
        words.append(word)
    return words


def assemble(run_id: str, asked: Asked, event: Mapping[str, Any], output: bytes) -> tuple[Result, ...]:
    """The results that one run of the command printed; one that does not count where it printed none.

    Raises ValueError, KeyError, TypeError where the event is not one of ours.
    """
    point, run, code = point_of(event["point"]), int(event["run"]), int(event["exit"])
    text = decode(output)
    said = f"it ended with exit code {code}" if code else "it ended with exit code 0"
    guards = [
        Guard("exit", GuardStatus.FAILED if code else GuardStatus.OK, said, code, 0),
        simulated(asked.server.env or None),
    ]
    began, ended = float(event["began"]), float(event["ended"])
    base = Result(
        result_id=result_id(run_id, point.label, run),
        bench=asked.bench.name,
        started_at=datetime.fromtimestamp(began, UTC).isoformat(timespec="seconds"),
        tool=Tool(TOOL),
        server=asked.server,
        load=Load(
            kind="open" if point.rate is not None else "closed",
            concurrency=point.concurrency,
            rate=point.rate,
            dataset=TOOL,
            output_len=asked.bench.output_len,
        ),
        run_index=run,
        bench_run_id=run_id,
        duration_s=ended - began,
        experiment=asked.experiment,
        arm=asked.arm,
        launch_number=asked.launch_number,
        pair_number=asked.pair_number,
    )
    posted: list[Result] = []
    foreign = None
    try:
        posted = [found.result for found in read_posted(text).records]
    except UsageError as error:
        foreign = error.message if error.slug == Slug.FOREIGN_BENCHMARK else None
    if not posted:
        last = next((line for line in reversed(text.splitlines()) if line.strip()), "nothing")
        why = f"{foreign}, which is not read" if foreign else f"it ends with: {one_line(last, 160)}"
        nothing = f"no benchmark result is in its output; {why}"
        guards.append(Guard("output", GuardStatus.FAILED, nothing))
        return (replace(base, guards=tuple(guards), valid=False),)
    failed = any(guard.status is GuardStatus.FAILED for guard in guards)
    return tuple(
        replace(
            one,
            result_id=base.result_id if number == 1 else f"{base.result_id}-{number}",
            bench=base.bench,
            started_at=base.started_at,
            tool=Tool(TOOL, one.tool.version, one.tool.name),
            server=base.server,
            load=replace(
                one.load,
                kind=one.load.kind if one.load.concurrency or one.load.rate else base.load.kind,
                concurrency=one.load.concurrency or base.load.concurrency,
                rate=one.load.rate or base.load.rate,
            ),
            run_index=run,
            bench_run_id=run_id,
            duration_s=one.duration_s if one.duration_s is not None else base.duration_s,
            guards=tuple(guards),
            valid=one.valid and not failed,
            experiment=base.experiment,
            arm=base.arm,
            launch_number=base.launch_number,
            pair_number=base.pair_number,
        )
        for number, one in enumerate(posted, 1)
    )
