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

from tui.core.bench.collect import Asked, kind_of, point_document, point_of, result_id
from tui.core.bench.driver import Finished, Measured, Order, Program
from tui.core.bench.guards import simulated
from tui.core.bench.sglang_driver import refuse_miscounting
from tui.core.bench.target import Seen, Target
from tui.core.bench.workload import DEFAULT_INPUT_LEN, Dataset
from tui.core.errors import Slug, UsageError
from tui.core.host.gpus import HostFacts
from tui.core.model.profile import BenchProfile, LoadPoint
from tui.core.model.result import Guard, GuardStatus, Load, Result, Tool
from tui.core.results.external.reading import decode, read_posted
from tui.core.runs.request import InRunDir
from tui.core.text import one_line

NAME = "command"
PROGRAM = InRunDir("command.sh")
_FROM_RUN = [
    "bench",
    "started_at",
    "server",
    "run_index",
    "bench_run_id",
    "guards",
    "experiment",
    "arm",
    "launch_number",
    "pair_number",
]

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


class CommandDriver:
    """Measures with a command of the user's, which brings its own data."""

    name = NAME
    needs_python = False

    def dataset(self, profile: BenchProfile) -> Dataset:
        return Dataset(NAME, NAME)

    def seen_by(self, seen: Seen, data: Dataset, target: Target, facts: HostFacts) -> Seen:
        return seen

    def program(self, order: Order) -> Program:
        refuse_miscounting(order.profile.command)
        text = program(order.profile, order.target, order.seen)
        return Program(("sh", PROGRAM), {PROGRAM.name: text}, order.env)

    def result_id(self, run_id: str, label: str, number: int) -> None:
        """Its output may hold several results."""

    def files(self, event: Mapping[str, Any]) -> Mapping[str, tuple[str, str | None]]:
        return {"output": (str(event["output"]), None)}

    def results(self, finished: Finished) -> tuple[Measured, ...]:
        found = assemble(finished.run_id, finished.asked, finished.event, finished.files["output"])
        return tuple(map(Measured, found))


def program(profile: BenchProfile, measured: Target, seen: Seen) -> bytes:
    """The shell program of all runs; in the command's words `{url}`, `{host}`, `{port}`, `{model}`, `{concurrency}`,
    `{rate}`, `{input_len}`, `{output_len}` and `{run}` stand for what they are."""
    lines = [_PROGRAM]
    for point in profile.points:
        for run in range(1, profile.runs + 1):
            words = _command_words(profile, measured, seen, point, run)
            document = json.dumps(point_document(point))
            lines.append(shlex.join(["one", point.label, document, str(run), *words]))
    lines.append("""printf '{"event":"done"}\\n'\n""")
    return "\n".join(lines).encode()


def _command_words(profile: BenchProfile, measured: Target, seen: Seen, point: LoadPoint, run: int) -> list[str]:
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
    began, ended = float(event["began"]), float(event["ended"])
    status = GuardStatus.FAILED if code else GuardStatus.OK
    guards = [Guard("exit", status, f"it ended with exit code {code}", code, 0), simulated(asked.server.env or None)]
    text = decode(output)
    posted, foreign = _posted(text)
    if not posted:
        guards.append(Guard("output", GuardStatus.FAILED, _nothing_found(text, foreign)))
    failed = any(guard.status is GuardStatus.FAILED for guard in guards)
    base = Result(
        result_id=result_id(run_id, point.label, run),
        bench=asked.bench.name,
        started_at=datetime.fromtimestamp(began, UTC).isoformat(timespec="seconds"),
        tool=Tool(NAME),
        server=asked.server,
        load=Load(kind_of(point), point.concurrency, point.rate, dataset=NAME, output_len=asked.bench.output_len),
        run_index=run,
        bench_run_id=run_id,
        duration_s=ended - began,
        guards=tuple(guards),
        valid=not failed,
        **asked.place,
    )
    return tuple(_as_ours(one, base, number) for number, one in enumerate(posted, 1)) or (base,)


def _posted(text: str) -> tuple[list[Result], str | None]:
    """The results in an output; where there are none, the tool by name if it is one whose reports are not read."""
    try:
        return [found.result for found in read_posted(text).records], None
    except UsageError as error:
        return [], error.message if error.slug == Slug.FOREIGN_BENCHMARK else None


def _nothing_found(text: str, foreign: str | None) -> str:
    last = next((line for line in reversed(text.splitlines()) if line.strip()), "nothing")
    why = f"{foreign}, which is not read" if foreign else f"it ends with: {one_line(last, 160)}"
    return f"no benchmark result is in its output; {why}"


def _as_ours(posted: Result, base: Result, number: int) -> Result:
    """A posted result as one of this run: what the run knows comes from `base`, figures are its own."""
    load, of_run = posted.load, base.load
    known = load.concurrency or load.rate
    return replace(
        posted,
        **{name: getattr(base, name) for name in _FROM_RUN},
        result_id=base.result_id if number == 1 else f"{base.result_id}-{number}",
        tool=Tool(NAME, posted.tool.version, posted.tool.name),
        load=replace(
            load,
            kind=load.kind if known else of_run.kind,
            concurrency=load.concurrency or of_run.concurrency,
            rate=load.rate or of_run.rate,
        ),
        duration_s=base.duration_s if posted.duration_s is None else posted.duration_s,
        valid=posted.valid and base.valid,
    )
