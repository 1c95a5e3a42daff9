"""Hypotheses of all entries: those that people wrote and those of experiments, with where they are and what they rest on."""

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace

from tui.core.journal.model import Entry, Environment, Hypothesis, Kind, Note, RunRow, Status, Tried
from tui.core.model.verdict import Verdict, VerdictKind

_DECIDED = {VerdictKind.FASTER: Status.HELD, VerdictKind.SLOWER: Status.REFUTED, VerdictKind.EQUIVALENT: Status.EQUAL}
_LOOKS = (VerdictKind.LOOKS_FASTER, VerdictKind.LOOKS_SLOWER)

# An experiment of this machine that is not over, by its id: as it is now, and whether a process runs it.
Live = Callable[[str], tuple[Tried, bool] | None]


def status_of(verdicts: Sequence[Verdict]) -> Status:
    """Where a hypothesis is by the verdicts of an experiment: that its arms are faster than what they are held against.

    One status where all that is decided agrees; verdicts that contradict each other leave it open.
    """
    decided = {_DECIDED[verdict.verdict] for verdict in verdicts if verdict.verdict in _DECIDED}
    if len(decided) == 1:
        return decided.pop()
    return Status.EARLY if not decided and any(verdict.verdict in _LOOKS for verdict in verdicts) else Status.OPEN


def hypotheses(
    entries: Sequence[Entry], rows: Sequence[RunRow], notes: Sequence[Note], live: Live, now: Mapping[str, Environment]
) -> tuple[Hypothesis, ...]:
    """Newest first.

    Args:
        entries: in the order of their times, without those that were retracted.
        rows: newest first.
        now: hosts as they were last seen.
    """
    tried = {entry.tried.experiment_id: entry.tried for entry in entries if entry.tried is not None}  # the last word
    ended = {entry.tried.experiment_id: entry.at for entry in entries if entry.tried and entry.kind == Kind.VERDICT}
    found: dict[str, Hypothesis] = {}
    of_experiments: dict[tuple[str, str], str] = {}  # (host, text): the entry that it was begun with
    for entry in entries:
        experiment = entry.tried if entry.kind == Kind.EXPERIMENT else None
        if entry.kind == Kind.HYPOTHESIS:
            named = tuple(ref.removeprefix("experiment:") for ref in entry.about if ref.startswith("experiment:"))
            found[entry.id] = Hypothesis(
                entry.id, entry.text, Status.OPEN, entry.at, entry.by, entry.host, experiments=named, about=entry.about
            )
        elif experiment is not None:
            text = experiment.hypothesis or f"experiment {experiment.name}"
            key = of_experiments.setdefault((experiment.host, text), entry.id)
            known = found.get(key) or Hypothesis(key, text, Status.OPEN, entry.at, entry.by, experiment.host)
            found[key] = replace(known, experiments=(*known.experiments, experiment.experiment_id))
    running: set[str] = set()
    for name in {one.experiments[-1] for one in found.values() if one.experiments}:  # an older one cannot be resumed
        if (present := live(name)) is not None:
            tried[name], runs = present
            running |= {name} if runs else set()
    settled = {ref: entry for entry in entries if entry.kind == Kind.SETTLE for ref in entry.about}
    judged = (_settled(_judged(one, tried, ended, running), settled.get(one.entry_id)) for one in found.values())
    complete = (_with_runs(one, rows, notes, tried, now) for one in judged)
    return tuple(sorted(complete, key=lambda one: (one.asked_at, one.entry_id), reverse=True))


def _judged(
    one: Hypothesis, tried: Mapping[str, Tried], ended: Mapping[str, str], running: Container[str]
) -> Hypothesis:
    """With what its experiments say: the one that runs, else the newest that says something."""
    known = [tried[name] for name in one.experiments if name in tried]
    if not known:
        return one
    runs = known[-1].experiment_id in running
    newest = known[-1] if runs else next((each for each in reversed(known) if each.verdicts), known[-1])
    status = Status.RUNNING if runs else status_of(newest.verdicts)
    over = status not in (Status.RUNNING, Status.OPEN, Status.EARLY)
    return replace(
        one,
        status=status,
        host=one.host or newest.host,
        settled_at=ended.get(newest.experiment_id) if over else None,
        verdicts=newest.verdicts,
        arms=newest.arms,
        failed=newest.failed,
        launches=(newest.done, newest.launches),
    )


def _settled(one: Hypothesis, word: Entry | None) -> Hypothesis:
    """With a person's word, which counts more but for one that runs."""
    try:
        status = Status(word.state or "") if word is not None else None
    except ValueError:  # of a later version
        status = None
    if word is None or status is None or one.status is Status.RUNNING:
        return one
    return replace(one, status=status, settled_at=None if status is Status.OPEN else word.at, why=word.text or None)


def _with_runs(
    one: Hypothesis,
    rows: Sequence[RunRow],
    notes: Sequence[Note],
    tried: Mapping[str, Tried],
    now: Mapping[str, Environment],
) -> Hypothesis:
    """With the launches that it rests on: of its experiments, of their arms' profiles there, and those it names."""
    ids = {run for name in one.experiments if name in tried for run in tried[name].runs}
    ids |= {ref.removeprefix("run:") for ref in one.about if ref.startswith("run:")}
    profiles = {ref.removeprefix("profile:") for ref in one.about if ref.startswith("profile:")}
    profiles |= {arm.profile for arm in one.arms if arm.against}
    runs = tuple(row for row in rows if row.run_id in ids or (row.profile in profiles and one.host in (None, row.host)))
    references = {one.entry_id, *(f"experiment:{name}" for name in one.experiments)}
    references |= {ref for run in runs for ref in (run.entry_id, f"run:{run.run_id}")}
    measured = next((row for row in runs if row.run_id in ids and row.tok_s is not None), None)
    host = one.host or (runs[0].host if runs else None)
    environment = measured.environment if measured is not None else Environment()
    return replace(
        one,
        runs=runs,
        host=host,
        notes=tuple(note for note in notes if references.intersection(note.about)),
        environment=environment,
        since_then=since_then(environment, host, now) if host is not None else (),
    )


def since_then(then: Environment, host: str, now: Mapping[str, Environment]) -> tuple[str, ...]:
    """What of a host is no longer as it was when something was measured there."""
    present = now.get(host)
    if present is None:
        return ()
    names = {"driver": "the driver", "sglang": "SGLang", "torch": "torch"}
    pairs = ((words, getattr(then, name), getattr(present, name)) for name, words in names.items())
    return tuple(
        f"{words} of {host} is now {after} (it was {before})"
        for words, before, after in pairs
        if before and after and before != after
    )
