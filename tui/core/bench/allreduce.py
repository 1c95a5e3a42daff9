"""The all-reduce micro-benchmark (`tui/remote/allreduce.py`) run on a host, kept, and found again for the economics.

It measures the host and no server: a bench profile of driver command whose command names `{allreduce}`. Its figures are
kept in a file of its own under the data directory, because it is not a result of a configuration.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any

from tui.core.bench.driver import Program, host_python, launch_request
from tui.core.errors import EagletuiError, Slug
from tui.core.hints import Action, Hint
from tui.core.link.programs import program
from tui.core.link.retry import patiently, until
from tui.core.link.scripts import shell_path
from tui.core.model.profile import BenchProfile
from tui.core.model.result import AllReduce, Result
from tui.core.model.run import Run
from tui.core.records import RecordFiles, from_json
from tui.core.runs import control
from tui.core.runs.request import InRunDir, new_run_id
from tui.core.server.session import HostSession
from tui.core.text import one_line, read_json

PROGRAM = InRunDir("allreduce.py")
WORD, PYTHON = "{allreduce}", "{python}"
_POLL_S = 0.5
_LOG_BYTES = 1 << 20


@dataclass(frozen=True)
class Point:
    """One size: `tokens` x hidden x 2 bytes; microseconds of one all-reduce on the slowest rank."""

    what: str  # decode, verify
    batch: int
    tokens: int
    bytes: int
    samples: int
    median_us: float
    p99_us: float
    min_us: float
    step_ms: float  # 2 x layers of them
    draft_tokens: int | None = None


@dataclass(frozen=True)
class Report:
    """What the micro-benchmark measured on a host."""

    run_id: str
    host: str
    measured_at: str  # ISO 8601 UTC
    backend: str  # nccl, gloo
    mode: str  # graph, eager
    ranks: int
    hidden: int
    layers: int
    points: tuple[Point, ...]
    model: str | None = None  # its directory, where the sizes are from there
    dtype: str | None = None
    device: str | None = None
    torch: str | None = None
    nccl: str | None = None
    env: Mapping[str, str] | None = None
    seconds: float | None = None
    notes: tuple[str, ...] = ()

    def at(self, tokens: int) -> float | None:
        """Median microseconds of one all-reduce of so many tokens, None where that size was not measured."""
        return next((point.median_us for point in self.points if point.tokens == tokens), None)


def is_one(profile: BenchProfile) -> bool:
    """Whether a bench profile is the micro-benchmark."""
    return profile.driver == "command" and WORD in profile.command


async def start(session: HostSession, profile: BenchProfile) -> Run:
    """Starts it on the host, in the Python that has SGLang. Raises HostError, EagletuiError."""
    words: dict[str, str | InRunDir] = {PYTHON: host_python(session.entry, await session.facts()), WORD: PROGRAM}
    argv = tuple(words.get(word, word) for word in profile.command)
    started = Program(argv, {PROGRAM.name: program(PROGRAM.name).encode()}, session.entry.env)
    return await control.launch(session.transport, launch_request(new_run_id(profile.name), profile.name, started))


async def wait(session: HostSession, run: Run) -> Report:
    """What it reports at its end, stored. Raises EagletuiError with its own slug and hint where it failed; HostError."""

    async def look() -> Run:
        return await patiently(session.transport, partial(control.refresh, session.transport, run)) or run

    run = await until(lambda seen: seen.over, look, every_s=_POLL_S)
    script = f"tail -c {_LOG_BYTES} {shell_path(run.log_path or '/dev/null')}"
    said = await patiently(session.transport, partial(session.transport.run, script))
    document = _last_document(said.stdout)
    if document is None or document.get("event") == "error":
        raise _failure(run, document, said.stdout)
    try:
        report = from_json(
            Report, {**document, "run_id": run.run_id, "host": session.entry.name, "measured_at": run.started_at or ""}
        )
    except ValueError as error:
        raise EagletuiError(f"{run.run_id}: {error}", f"eagletui logs {run.short_id} has what it said") from None
    FILES.write(report)
    return report


def _last_document(output: bytes) -> dict[str, Any] | None:
    for line in reversed(output.decode("utf-8", "replace").splitlines()):
        try:
            document = read_json(line)
        except ValueError:
            continue
        if isinstance(document, dict):
            return document
    return None


def _failure(run: Run, document: Mapping[str, Any] | None, output: bytes) -> EagletuiError:
    if document is not None:
        text, hint = one_line(str(document.get("text")), 300), one_line(str(document.get("hint")), 200)
        return EagletuiError(text, hint, slug=one_line(str(document.get("slug")), 40))
    lines = [line for line in output.decode("utf-8", "replace").splitlines() if line.strip()]
    last = one_line(lines[-1], 200) if lines else "it printed nothing"
    why = "stopped" if run.stopped_by_us else f"exit code {run.exit_code}"
    return EagletuiError(
        f"{run.run_id} ended without figures ({why}): {last}",
        Hint(Action.LOGS, run.short_id),
        slug=Slug.STOPPED if run.stopped_by_us else Slug.FAILED,
    )


# --- found again ------------------------------------------------------------------------------------------------------


FILES = RecordFiles(Report, "all-reduce", attrgetter("run_id"))


def latest(host: str, model: str | None) -> Report | None:
    """The newest report of a model's sizes on a host that can be read."""
    found = [report for report in FILES.read_all() if (report.host, report.model) == (host, model)]
    return max(found, key=lambda report: (report.measured_at, report.run_id), default=None)


def of_results(spec: Sequence[Result], layers: int | None = None) -> tuple[int | None, AllReduce | None]:
    """Layers of the model, and one all-reduce at the sizes that these speculative results have, as far as is known.

    Args:
        layers: as the user gave it; a report of another number of layers is then of another model.
    """
    for result in spec:
        config, users = result.server.spec, result.load.concurrency
        report = latest(result.server.host, result.server.model) if result.server.model else None
        if report is None or layers not in (None, report.layers):
            continue
        if config is None or config.draft_tokens is None or users is None:
            return report.layers, None
        decode, verify = report.at(users), report.at(users * config.draft_tokens)
        measured = None if decode is None or verify is None else AllReduce(decode, verify)
        return report.layers, measured
    return layers, None
