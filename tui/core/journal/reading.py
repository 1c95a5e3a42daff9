"""The journal as it is read: hypotheses, ideas, notes, dead ends and runs of all entries."""

from collections.abc import Mapping

from tui.core.journal import entries
from tui.core.journal.model import Entry, Journal, Known, RunRow
from tui.core.profiles.launch_profile import LaunchProfile


def read(host: str | None = None) -> Journal:
    """The journal, or of it what is about one host (and what people wrote about none). Reads files; raises OSError."""
    stored = entries.load()
    return Journal(host, tuple(reversed(stored.entries)), left_out=entries.left_out_words(stored))


def all_runs(query: str = "", journal: Journal | None = None) -> tuple[RunRow, ...]:
    """Runs that fit a query, newest first. Raises UsageError for a key or a value that means nothing.

    Args:
        query: words that stand anywhere in a run, and `key:value[,value]` with the keys of `KEYS`.
        journal: one that was read already.
    """
    return (journal or read()).runs


def knows(profile: LaunchProfile, sets: Mapping[str, object], host: str) -> tuple[Known, ...]:
    """What earlier launches say of one that is to be made: of the same configuration first, then of the same flags there.

    Args:
        profile: with `sets` applied.
    """
    return ()


def entry_named(reference: str) -> Entry | None:
    """The entry of an id, or of an unambiguous beginning of it."""
    return None
