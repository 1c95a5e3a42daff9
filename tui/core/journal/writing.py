"""What is written into the journal: by people through `note`, `idea` and the like, by itself through `sync`."""

import os
import secrets
from collections.abc import Iterable
from datetime import UTC, datetime

from tui.core.errors import Slug, UsageError
from tui.core.journal import entries
from tui.core.journal.model import SETTLED, Entry, Kind, Status
from tui.core.masking.written import mask_text
from tui.core.text import one_line, sanitize

BY_A_PERSON = (*sorted(SETTLED), Status.PARKED, Status.OPEN)
_LONGEST_TEXT = 4000  # characters


def sync() -> int:
    """Adds what launches, results and experiments of this machine say and the journal lacks; how many entries."""
    return 0


def note(text: str, about: Iterable[str] = (), author: str | None = None) -> Entry:
    """Writes a note about references (see `references.canonical`), or about nothing."""
    return _written(Kind.NOTE, text, about, author)


def idea(text: str, about: Iterable[str] = (), author: str | None = None) -> Entry:
    """Writes an idea, open."""
    return _written(Kind.IDEA, text, about, author)


def hypothesis(text: str, about: Iterable[str] = (), author: str | None = None) -> Entry:
    """Writes a hypothesis; one that names experiments has the status of their verdicts until a person settles it."""
    return _written(Kind.HYPOTHESIS, text, about, author)


def tick(idea_id: str, state: str = "done", why: str = "", author: str | None = None) -> Entry:
    """An idea is done, dropped, or open again."""
    return _written(Kind.TICK, why, (idea_id,), author, state, may_be_empty=True)


def settle(hypothesis_id: str, status: Status, why: str = "", author: str | None = None) -> Entry:
    """A person's word on a hypothesis: held, refuted, equal, parked, a dead end, or open again."""
    return _written(Kind.SETTLE, why, (hypothesis_id,), author, str(status), may_be_empty=True)


def retract(entry_id: str, why: str = "", author: str | None = None) -> Entry:
    """Takes back a note, an idea or a hypothesis: it stays in the file and is no longer shown."""
    return _written(Kind.RETRACT, why, (entry_id,), author, may_be_empty=True)


def _written(
    kind: Kind,
    text: str,
    about: Iterable[str],
    author: str | None,
    state: str | None = None,
    *,
    may_be_empty: bool = False,
) -> Entry:
    """Raises UsageError for a text that says nothing or is too long, OSError where it cannot be written."""
    text = sanitize(text).strip()
    if not text and not may_be_empty:
        raise UsageError(f"the {kind} is empty", "type what it shall say", slug=Slug.BAD_VALUE)
    if len(text) > _LONGEST_TEXT:
        raise UsageError(
            f"the {kind} has {len(text):,} characters, and {_LONGEST_TEXT:,} is the limit",
            "put the rest into a second one",
            slug=Slug.TOO_LONG,
        )
    by = one_line(author or os.environ.get("USER") or os.environ.get("LOGNAME") or "somebody", 60)
    now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    entry = Entry(f"{kind}-{secrets.token_hex(5)}", now, kind, by, mask_text(text), tuple(about), state)
    with entries.locked():
        entries.append([entry])
    return entry
