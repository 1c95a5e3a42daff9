"""What this machine's stores say, as entries: launches, results, experiments, tunes. Another store is a line of `SOURCES`."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from tui.core.experiment import record as experiment_record
from tui.core.experiment.record import ExperimentRecord
from tui.core.experiment.state import knocked_out
from tui.core.journal.model import ITSELF, Ended, Entry, Environment, Kind, Launched, Measured, Tried
from tui.core.journal.words import clock, configured
from tui.core.model.experiment import ArmStatus
from tui.core.model.group import group_id_of, group_of
from tui.core.model.result import Result
from tui.core.profiles.secrets import public_sets
from tui.core.records import RecordFiles
from tui.core.results import store
from tui.core.server import launch_records
from tui.core.server.launch_records import LaunchRecord
from tui.core.sglang.flags import flag_table
from tui.core.text import epoch_of, one_line
from tui.core.tune import record as tune_record
from tui.core.tune.record import Status, TuneRecord
from tui.core.tune.report import range_words, so_far
from tui.core.verdicts.sentences import load_words

_ENDS = ("crashed", "lost", "stopped", "finished")  # of a group the first of these that one of its members has
PLACES = ("port", "host")  # where a server listens makes no other configuration
_MOST_FACTS = 20  # of a verdict


@dataclass(frozen=True)
class Source:
    """One kind of stored records, and the entries that one of them makes."""

    files: RecordFiles[Any]
    entries: Callable[[Any], Iterator[Entry]]


def configuration(profile: str, args: Mapping[str, object], env: Mapping[str, str], sets: Mapping[str, object]) -> str:
    """A sum of what is launched: flags under their usual names and variables; without flags the profile with its changes."""
    canonical = flag_table().canonical
    flags = {canonical(name): str(value) for name, value in args.items() if value is not False}
    others = {} if flags else {"": profile} | {name: str(value) for name, value in sets.items()}
    parts = [{k: v for k, v in part.items() if k not in PLACES} for part in (flags, dict(env), others)]
    return _sum(parts)


def _sum(parts: object) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:12]


def of_launch(record: LaunchRecord) -> Iterator[Entry]:
    """A launch; of a group one for all its members, at the host of the one that serves."""
    if record.kind != "server":
        return
    group = group_of({"group": record.group})
    members = [record]
    if group is not None:
        found = (launch_records.read(member.run_id) for member in group.members)
        members = [one for one in found if one is not None] or [record]
        record = next((one for one in members if one.run_id == group.serving.run_id), members[0])
    run_id = group_id_of(record.run_id) or record.run_id
    sums = [configuration(one.profile, one.args, one.env, one.sets) for one in members]
    environment = Environment(record.gpu_names, record.driver, record.sglang, record.torch)
    launched = Launched(
        run_id,
        record.host,
        record.profile,
        sums[0] if len(sums) == 1 else _sum(sums),
        **{name: getattr(record, name) for name in ("model", "sets", "args", "env", "difference")},
        parent=record.extends,
        environment=environment,
    )
    text = f"launched {configured(record.profile, record.sets)} on {record.host}"
    yield _entry(Kind.LAUNCH, run_id, record.launched_at, text, launched=launched)
    yield from _progress(run_id, record.host, members)


def _progress(run_id: str, host: str, members: list[LaunchRecord]) -> Iterator[Entry]:
    """That a launch was ready, and how it ended."""
    begun = members[0].launched_at
    took = [one.ready_after_s for one in members if one.ready_after_s is not None]
    if len(took) == len(members):
        after = max(took)
        ended = Ended(run_id, host, "ready", phase="ready", ready_after_s=after)
        yield _entry(Kind.READY, run_id, later(begun, after), f"ready after {clock(after)}", ended=ended)
    ends = ["stopped" if one.stopped_with_group else one.outcome for one in members]
    outcome = next((end for end in _ENDS if end in ends), None)
    if outcome is None:
        return
    of = members[ends.index(outcome)]
    same = ("cause", "phase", "card", "exit_code", "ended_at", "stopped_by")
    ended = Ended(
        run_id, host, outcome, **{name: getattr(of, name) for name in same}, ready_after_s=max(took, default=None)
    )
    yield _entry(Kind.END, run_id, of.ended_at or now(), _end_words(ended, begun), ended=ended)


def _end_words(ended: Ended, begun: str) -> str:
    ran_s = seconds_between(begun, ended.ended_at)
    words = ended.outcome + (f" by {one_line(ended.stopped_by, 60)}" if ended.stopped_by else "")
    words += f" after {clock(ran_s)}" if ran_s is not None else ""
    if ended.outcome not in ("crashed", "lost"):
        return words
    return f"{words}: {ended.cause or 'unknown'}" + (f", {ended.card.title}" if ended.card else "")


def of_result(result: Result) -> Iterator[Entry]:
    server = result.server
    tok_s = result.throughput.per_user_tok_s
    why = "; ".join(guard.text for guard in result.failed_guards) or "; ".join(result.suspicious)
    measured = Measured(
        result.result_id,
        server.host,
        result.bench,
        run_id=server.run_id,
        profile=server.profile,
        load=load_words(result.point),
        tok_s=tok_s,
        valid=result.valid,
        why=None if result.valid else one_line(why or "invalid"),
        experiment=result.experiment,
        arm=result.arm,
        environment=Environment(server.gpus, server.driver, server.version),
    )
    figure = f"{tok_s:,.1f} tok/s per user" if tok_s is not None else "no rate"
    text = f"{result.bench}, {measured.load}: {figure}" + ("" if result.valid else f"; does not count: {measured.why}")
    yield _entry(Kind.RESULT, result.result_id, result.started_at or now(), text, measured=measured)


def of_experiment(record: ExperimentRecord) -> Iterator[Entry]:
    tried = tried_of(record)
    begun = replace(tried, launches=tried.launches, done=0, failed=(), runs=(), outcome="running", verdicts=())
    text = f"began experiment {record.name}" + (f": {tried.hypothesis}" if tried.hypothesis else "")
    yield _entry(Kind.EXPERIMENT, record.experiment_id, record.started_at or now(), text, tried=begun)
    if record.outcome == "running":
        return
    said = "; ".join(verdict.text for verdict in tried.verdicts) or record.message or "without a verdict"
    text = f"experiment {record.name} {record.outcome}: {one_line(said, 1000)}"
    yield _entry(Kind.VERDICT, record.experiment_id, record.ended_at or now(), text, tried=tried)


def tried_of(record: ExperimentRecord) -> Tried:
    """An experiment as it is now."""
    arms = record.profile.arms
    failed = [(arm, knocked_out(record, arm.letter)) for arm in arms]
    return Tried(
        record.experiment_id,
        record.name,
        record.host,
        record.bench.name,
        hypothesis=record.profile.hypothesis,
        arms=tuple(replace(arm, sets=public_sets(arm.sets)) for arm in arms),
        launches=len(record.cells),
        done=sum(cell.over for cell in record.cells),
        failed=tuple(f"{arm.letter}: {cell.cause}, {cell.reason}" for arm, cell in failed if cell is not None),
        runs=tuple(
            dict.fromkeys(cell.run_id for cell in record.cells if cell.run_id and cell.status is not ArmStatus.QUEUED)
        ),
        outcome=record.outcome,
        verdicts=tuple(
            replace(verdict, same_text=None, facts=verdict.facts[:_MOST_FACTS]) for verdict in record.verdicts
        ),
    )


def of_tune(record: TuneRecord) -> Iterator[Entry]:
    """Each step that is over, on the launch that it made; then what was found."""
    where = (f"profile:{record.profile}", f"host:{record.host}")
    for taken in record.steps:
        if taken.status is Status.RUNNING:
            continue
        step, about = taken.step, (f"run:{taken.run_id}",) if taken.run_id else ()
        if taken.experiment_id and not about:
            about = (f"experiment:{taken.experiment_id}",)
        text = f"tune {record.profile}, step {taken.number}, {step.title}: {taken.words}. Why: {step.why}"
        name = f"{record.tune_id}-{taken.number}"
        yield replace(_entry(Kind.TUNE, name, taken.ended_at or now(), text), about=(*about, *where))
    if record.ended_at is not None:
        said = "; ".join(filter(None, (range_words(record), so_far(record), record.message)))
        text = f"tune {record.profile} for {record.goal}, {record.outcome}: {one_line(said, 1000)}"
        yield replace(_entry(Kind.TUNE, record.tune_id, record.ended_at, text), about=where)


SOURCES = (
    Source(launch_records.FILES, of_launch),
    Source(store.FILES, of_result),
    Source(experiment_record.FILES, of_experiment),
    Source(tune_record.FILES, of_tune),
)


def news(entry: Entry) -> object:
    """What makes an entry worth writing again about the same thing; what never changes is None."""
    if entry.kind == Kind.END and entry.ended is not None:
        return entry.ended.outcome, entry.ended.cause
    if entry.measured is not None:
        return entry.measured.tok_s, entry.measured.valid
    if entry.kind == Kind.TUNE:  # one that was resumed ends again
        return entry.text
    if entry.kind == Kind.VERDICT and entry.tried is not None:
        return entry.tried.outcome, tuple(verdict.text for verdict in entry.tried.verdicts)
    return None


def _entry(kind: Kind, of: str, at: str, text: str, **parts: Any) -> Entry:
    return Entry(f"{kind}:{of}", at, kind, ITSELF, text, **parts)


def now() -> str:
    """The present as entries carry it."""
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def later(at: str, seconds: float) -> str:
    """A time so many seconds after another."""
    begun = epoch_of(at)
    if begun is None:
        return at
    return (datetime.fromtimestamp(begun, UTC) + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def seconds_between(begun: str | None, ended: str | None) -> float | None:
    """From one time to another; None where one is not known, or they are in no order."""
    a, b = epoch_of(begun), epoch_of(ended)
    return b - a if a is not None and b is not None and b >= a else None
