"""This machine's record of launches: which run is where, how long its phases took, how it ended.

One JSON file a run under the data directory, written to a temporary name and renamed, so that a kill at any moment
leaves either the old or the new content, and two panels can write at once.
"""

import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path

from tui.core.config import data_dir, write_whole
from tui.core.errors import Slug, UsageError
from tui.core.text import one_line


@dataclass(frozen=True)
class LaunchRecord:
    """One launch from this machine."""

    run_id: str
    host: str
    kind: str  # server, bench
    profile: str
    launched_at: str  # ISO 8601 UTC
    sets: Mapping[str, object] = field(default_factory=dict)
    model: str | None = None
    args: Mapping[str, object] = field(default_factory=dict)  # without secrets
    sglang: str | None = None
    port: int | None = None
    warm: bool | None = None  # whether the model was in the host's page cache at the launch
    outcome: str | None = None
    cause: str | None = None
    phase: str | None = None  # the last one begun
    ready_after_s: float | None = None
    phase_took_s: Mapping[str, float] = field(default_factory=dict)
    exit_code: int | None = None
    ended_at: str | None = None
    ledger: Sequence[Mapping[str, object]] = ()  # memory of each rank: the fields of startup.LedgerRow
    mem_fraction: float | None = None  # in force: as given, or as SGLang chose it
    graph_batch: int | None = None  # the largest batch whose graph was (or was to be) captured


@dataclass(frozen=True)
class PhaseHistory:
    """How long something took in earlier starts (seconds); `n` starts were seen."""

    median_s: float
    low_s: float
    high_s: float
    n: int


def launches_dir() -> Path:
    return data_dir() / "launches"


def write(record: LaunchRecord) -> None:
    """Stores a record, replacing the one of the same run."""
    text = json.dumps(asdict(record), ensure_ascii=False, indent=1) + "\n"
    write_whole(launches_dir() / f"{record.run_id}.json", text)


def _read(path: Path) -> LaunchRecord | None:
    known = {f.name for f in fields(LaunchRecord)}
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        record = LaunchRecord(**{key: value for key, value in raw.items() if key in known})
        record = replace(record, ledger=tuple(record.ledger))
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return None  # half a file of an older crash, or a newer format: it must not hide the others
    return record if record.run_id == path.stem and _sound(record) else None


def _sound(record: LaunchRecord) -> bool:
    """Whether the values that are computed with have their types; the file may be somebody's experiment."""
    texts = (record.run_id, record.host, record.kind, record.profile, record.launched_at)
    maybe_texts = (record.outcome, record.cause, record.phase)
    took = record.phase_took_s
    return (
        all(isinstance(text, str) for text in texts)
        and all(text is None or isinstance(text, str) for text in maybe_texts)
        and isinstance(record.sets, dict)
        and isinstance(record.args, dict)
        and isinstance(took, dict)
        and all(_is_number(value) for value in took.values())
        and (record.ready_after_s is None or _is_number(record.ready_after_s))
        and (record.mem_fraction is None or _is_number(record.mem_fraction))
        and (record.graph_batch is None or type(record.graph_batch) is int)
        and all(isinstance(row, dict) for row in record.ledger)
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def read(run_id: str) -> LaunchRecord | None:
    """The record of one run, None where there is none."""
    return _read(launches_dir() / f"{run_id}.json")


def read_all() -> list[LaunchRecord]:
    """All launches, newest first."""
    try:
        paths = [path for path in launches_dir().iterdir() if path.suffix == ".json" and path.is_file()]
    except OSError:
        return []
    found = [record for path in paths if (record := _read(path))]
    return sorted(found, key=lambda record: record.launched_at, reverse=True)


def match_run(reference: str, run_ids: Iterable[str]) -> str | None:
    """The run id that `reference` names: the id, its six digits, or a unique prefix of either.

    Raises UsageError where several fit; returns None where none does.
    """
    ids = list(dict.fromkeys(run_ids))
    if not reference:
        return None  # `stop "$RUN"` with an empty variable means no run, and not the only one there is
    if reference in ids:
        return reference
    digits = [run_id for run_id in ids if run_id.rsplit("-", 1)[-1] == reference]
    fitting = digits or [
        run_id for run_id in ids if run_id.startswith(reference) or run_id.rsplit("-", 1)[-1].startswith(reference)
    ]
    if len(fitting) > 1:
        some = ", ".join(fitting[:3]) + (" …" if len(fitting) > 3 else "")
        raise UsageError(
            f"{one_line(reference, 60)} fits {len(fitting)} runs: {some}",
            "give more of the id",
            slug=Slug.AMBIGUOUS_RUN,
        )
    return fitting[0] if fitting else None


def _history(values: list[float]) -> PhaseHistory | None:
    return PhaseHistory(statistics.median(values), min(values), max(values), len(values)) if values else None


def _configuration(sets: Mapping[str, object]) -> dict[str, str]:
    """What makes a start another one; the port does not."""
    return {key: str(value) for key, value in sets.items() if key != "port"}


def usual(
    host: str,
    profile: str,
    sets: Mapping[str, object] | None = None,
    sglang: str | None = None,
    warm: bool | None = None,
) -> tuple[dict[str, PhaseHistory], PhaseHistory | None]:
    """Durations of each phase, and from launch to ready, over the last ten such starts here that reached ready.

    Args:
        sets: overrides of the profile; a start with others is another configuration.
        sglang: starts with this version count alone, where there are any.
        warm: so do starts with the model in the page cache, or not in it.
    """
    wanted = _configuration(sets or {})
    ready = [
        record
        for record in read_all()
        if record.host == host
        and record.profile == profile
        and _configuration(record.sets) == wanted
        and record.ready_after_s is not None
    ]
    if sglang is not None:
        ready = [record for record in ready if record.sglang == sglang] or ready
    if warm is not None:
        ready = [record for record in ready if record.warm == warm] or ready
    ready = ready[:10]
    phases: dict[str, list[float]] = {}
    for record in ready:
        for phase, took in record.phase_took_s.items():
            phases.setdefault(phase, []).append(took)
    by_phase = {phase: history for phase, values in phases.items() if (history := _history(values))}
    return by_phase, _history([record.ready_after_s for record in ready if record.ready_after_s is not None])
