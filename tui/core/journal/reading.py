"""The journal as it is read: hypotheses, ideas, notes, dead ends and runs of all entries."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from tui.core.config import load_settings
from tui.core.errors import EagletuiError
from tui.core.experiment import record as experiment_record
from tui.core.host import facts_cache
from tui.core.journal import entries
from tui.core.journal.claims import hypotheses
from tui.core.journal.dead_ends import dead_ends
from tui.core.journal.knowing import known
from tui.core.journal.model import (
    DeadEnd,
    Entry,
    Environment,
    Hypothesis,
    Idea,
    Journal,
    Kind,
    Known,
    Note,
    RunRow,
    Tried,
)
from tui.core.journal.query import Query, earliest, text_of
from tui.core.journal.rows import run_rows
from tui.core.journal.sources import tried_of
from tui.core.journal.words import difference_words
from tui.core.profiles.launch_profile import LaunchProfile
from tui.core.text import epoch_of
from tui.core.verdicts.sentences import sets_words


def read(host: str | None = None) -> Journal:
    """The journal, or of it what is about one host (and what people wrote about none). Reads files; raises OSError."""
    stored = entries.load()
    return journal_of(stored.entries, host, left_out=entries.left_out_words(stored))


def journal_of(all_entries: Sequence[Entry], host: str | None = None, left_out: str | None = None) -> Journal:
    """What follows from entries that are in the order of their times."""
    gone = {ref for entry in all_entries if entry.kind == Kind.RETRACT for ref in entry.about}
    kept = [entry for entry in all_entries if entry.id not in gone and entry.kind != Kind.RETRACT]
    notes = tuple(reversed([_note(entry) for entry in kept if entry.kind in (Kind.NOTE, Kind.TUNE)]))
    rows = run_rows(kept, notes)
    now = {name: seen for name in {row.host for row in rows} if (seen := _last_seen(name)) is not None}
    found = Journal(
        host,
        entries=tuple(reversed(kept)),
        hypotheses=hypotheses(kept, rows, notes, _unfinished, now),
        ideas=_ideas(kept),
        notes=notes,
        dead_ends=dead_ends(kept, rows, notes),
        runs=rows,
        left_out=left_out,
    )
    return found if host is None else _of_host(found, host)


def all_runs(query: str = "", journal: Journal | None = None) -> tuple[RunRow, ...]:
    """Runs that fit a query, newest first. Raises UsageError for a key or a value that means nothing.

    Args:
        query: words that stand anywhere in a run, and `key:value[,value]` with the keys of `query.KEYS`.
        journal: one that was read already.
    """
    wanted = Query.of(query)
    return tuple(row for row in (journal or read()).runs if wanted.fits(row))


def knows(profile: LaunchProfile, sets: Mapping[str, object], host: str) -> tuple[Known, ...]:
    """What earlier launches say of one that is to be made: of the same configuration, else of the same flags there.

    Args:
        profile: with `sets` applied.

    Raises OSError.
    """
    return known(profile, sets, host, run_rows(entries.load().entries))


def _note(entry: Entry) -> Note:
    return Note(entry.id, entry.at, entry.by, entry.text, entry.about)


def _ideas(kept: Sequence[Entry]) -> tuple[Idea, ...]:
    ideas = {
        entry.id: Idea(entry.id, entry.at, entry.by, entry.text, entry.about)
        for entry in kept
        if entry.kind == Kind.IDEA
    }
    for entry in kept:
        for ref in entry.about if entry.kind == Kind.TICK else ():
            if ref in ideas:
                state = entry.state or "done"
                at = entry.at if state != "open" else None
                ideas[ref] = replace(ideas[ref], state=state, ticked_at=at, why=entry.text or None)
    return tuple(reversed(ideas.values()))


def _last_seen(host: str) -> Environment | None:
    """A host as it was when it was last asked; None where it never was."""
    try:
        facts = facts_cache.remembered(load_settings().host(host))
    except EagletuiError:  # a broken config.toml: whoever needs it says so
        return None
    return Environment(facts.gpu_names, facts.driver, facts.sglang, facts.torch) if facts is not None else None


def _unfinished(experiment_id: str) -> tuple[Tried, bool] | None:
    """An experiment of this machine that is not over, and whether a process runs it."""
    record = experiment_record.read(experiment_id)
    if record is None or record.outcome != "running":
        return None
    return tried_of(record), experiment_record.driver(experiment_id) is not None


def _of_host(whole: Journal, host: str) -> Journal:
    """What is about one host; of people's entries those that are about no other."""
    runs = tuple(row for row in whole.runs if row.host == host)
    of_run = {f"run:{row.run_id}": row.host for row in whole.runs} | {row.entry_id: row.host for row in whole.runs}
    of_entry = {entry.id: entry.host for entry in whole.entries} | of_run

    def here(about: Sequence[str]) -> bool:
        hosts = {ref.removeprefix("host:") if ref.startswith("host:") else of_entry.get(ref) for ref in about} - {None}
        return not hosts or host in hosts

    return replace(
        whole,
        entries=tuple(
            entry for entry in whole.entries if entry.host == host or (entry.host is None and here(entry.about))
        ),
        hypotheses=tuple(one for one in whole.hypotheses if one.host in (None, host)),
        ideas=tuple(one for one in whole.ideas if here(one.about)),
        notes=tuple(one for one in whole.notes if here(one.about)),
        dead_ends=tuple(one for one in whole.dead_ends if one.host == host),
        runs=runs,
    )


def narrowed(
    journal: Journal, *, model: str | None = None, since: str | None = None, search: str | None = None
) -> Journal:
    """Of a journal what is about one model, of a time and later, and has all words of a search.

    Args:
        model: a part of its name or path; what is about no launch at all stays.
        since: as the filter of runs takes it.

    Raises UsageError for a time that is none.
    """
    from_s = earliest(since) if since else 0.0
    words = (search or "").casefold().split()
    wanted = (model or "").casefold()
    models = {f"run:{row.run_id}": row.model or "" for row in journal.runs}
    models |= {row.entry_id: row.model or "" for row in journal.runs}

    def fits(at: str | None, text: str, of: Iterable[str | None]) -> bool:
        named = [models[ref] for ref in of if ref in models]
        if (epoch_of(at) or 0.0) < from_s or (wanted and named and not any(wanted in one.casefold() for one in named)):
            return False
        return all(word in text.casefold() for word in words)

    return replace(
        journal,
        entries=tuple(one for one in journal.entries if fits(one.at, one.text, (*one.about, one.id))),
        hypotheses=tuple(
            one
            for one in journal.hypotheses
            if fits(one.settled_at or one.asked_at, words_of(one), (row.entry_id for row in one.runs))
        ),
        ideas=tuple(one for one in journal.ideas if fits(one.ticked_at or one.at, one.text, one.about)),
        notes=tuple(one for one in journal.notes if fits(one.at, f"{one.by} {one.text}", one.about)),
        dead_ends=tuple(
            one for one in journal.dead_ends if fits(one.at, words_of(one), (f"run:{one.run_id}", one.entry_id))
        ),
        runs=tuple(row for row in journal.runs if fits(row.started_at, text_of(row), (row.entry_id,))),
    )


def words_of(one: Hypothesis | DeadEnd) -> str:
    """Everything that a search may find of it."""
    if isinstance(one, DeadEnd):
        parts: Iterable[str | None] = (one.host, one.profile, one.cause, one.what, one.evidence, one.note)
        return "\n".join(filter(None, (*parts, difference_words(one.difference, 2000), sets_words(one.sets))))
    notes = (note.text for note in one.notes)
    return "\n".join(filter(None, (one.text, one.by, one.why, *(verdict.text for verdict in one.verdicts), *notes)))
