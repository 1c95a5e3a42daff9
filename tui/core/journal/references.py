"""What a note or a hypothesis is about, from how a person names it."""

from collections.abc import Iterable

from tui.core.config import load_settings, profile_dirs
from tui.core.errors import Slug, UsageError
from tui.core.journal.model import Entry, Hypothesis, Journal, Kind
from tui.core.profiles.files import Library
from tui.core.server.launch_records import wholes_named
from tui.core.text import one_line

_BY_PEOPLE = (Kind.NOTE, Kind.IDEA, Kind.HYPOTHESIS)


def canonical(reference: str, journal: Journal) -> str:
    """`run:ID`, `result:ID`, `experiment:ID`, `profile:NAME`, `host:NAME` or the id of an entry.

    Args:
        reference: one of these; or an id, the six digits of a run, a name, the beginning of an id.
        journal: all of it.

    Raises UsageError where nothing fits, or several do.
    """
    kind, _, name = reference.partition(":")
    known = _known(journal)
    if kind in ("profile", "host") and name:  # that may not be known here
        return f"{kind}:{one_line(name, 200)}"
    if any(entry.id == reference for entry in journal.entries):
        return reference
    if kind in known:
        known, reference = {kind: known[kind]}, name
    for kind, names in known.items():
        if reference in names:
            return f"{kind}:{names[reference]}"
    found = [f"{kind}:{names[one]}" for kind, names in known.items() for one in _beginnings(kind, reference, names)]
    if len(known) > 1:
        found += [entry.id for entry in journal.entries if entry.kind in _BY_PEOPLE and _begins(entry.id, reference)]
    return _only(reference, list(dict.fromkeys(found)))


def entry_named(reference: str, kinds: Iterable[str], journal: Journal) -> Entry:
    """The entry of one of these kinds that a person names by its id, or its beginning. Raises UsageError."""
    among = {entry.id: entry for entry in journal.entries if entry.kind in kinds}
    found = [reference] if reference in among else [one for one in among if _begins(one, reference)]
    return among[_only(reference, found)]


def hypothesis_named(reference: str, journal: Journal) -> Hypothesis:
    """The hypothesis of an entry's id, or of an experiment. Raises UsageError."""
    try:
        meant = canonical(reference, journal)
    except UsageError:
        meant = f"experiment:{reference}"
    own_first = sorted(journal.hypotheses, key=lambda one: not one.entry_id.startswith("experiment:"))
    for one in own_first:
        if meant == one.entry_id or meant.removeprefix("experiment:") in one.experiments:
            return one
    raise _nothing(reference, "hypothesis")


def _known(journal: Journal) -> dict[str, dict[str, str]]:
    """By kind what a person may type, and which id that is; the first kind that has it is meant."""
    tried = [entry.tried for entry in reversed(journal.entries) if entry.tried is not None]  # of a name the newest
    runs = [row.run_id for row in journal.runs]
    profiles = [*(row.profile for row in journal.runs), *Library(profile_dirs(None)).paths]
    hosts = [*(row.host for row in journal.runs), *load_settings().hosts]
    return {
        "run": {run_id: run_id for run_id in runs},
        "experiment": {one.name: one.experiment_id for one in tried}
        | {one.experiment_id: one.experiment_id for one in tried},
        "result": {entry.measured.result_id: entry.measured.result_id for entry in journal.entries if entry.measured},
        "profile": {name: name for name in profiles},
        "host": {name: name for name in hosts},
    }


def _beginnings(kind: str, reference: str, names: Iterable[str]) -> Iterable[str]:
    if kind == "run":
        return wholes_named(reference, names)
    return (name for name in names if kind in ("experiment", "result") and reference and name.startswith(reference))


def _begins(entry_id: str, reference: str) -> bool:
    """By the id, or its digits alone."""
    return bool(reference) and (entry_id.startswith(reference) or entry_id.partition("-")[2].startswith(reference))


def _only(reference: str, found: list[str]) -> str:
    if len(found) == 1:
        return found[0]
    if not found:
        raise _nothing(reference, "run, result, experiment, profile, host or entry of the journal")
    some = ", ".join(found[:3]) + (" …" if len(found) > 3 else "")
    raise UsageError(
        f"{one_line(reference, 60)} fits {len(found)} things: {some}", "type more characters", slug=Slug.UNKNOWN_ENTRY
    )


def _nothing(reference: str, what: str) -> UsageError:
    return UsageError(
        f"{one_line(reference, 60)!r} is no {what}", "eagletui journal --json lists all of it", slug=Slug.UNKNOWN_ENTRY
    )
