"""What is written into the journal: by people through `note`, `idea` and the like, by itself through `sync`."""

import contextlib
import itertools
import json
import os
import secrets
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from tui import __version__
from tui.core.config import write_whole
from tui.core.errors import EagletuiError, Slug, UsageError, of_system
from tui.core.journal import entries
from tui.core.journal.model import SETTLED, Entry, Kind, Status
from tui.core.journal.sources import SOURCES, news, now
from tui.core.masking.written import mask_text
from tui.core.records import stamp_of
from tui.core.text import epoch_of, one_line, read_json, sanitize

BY_A_PERSON = (*sorted(SETTLED), Status.PARKED, Status.OPEN)
_LONGEST_TEXT = 4000  # characters


def sync() -> int:
    """Adds what launches, results and experiments of this machine say and the journal lacks; how many entries.

    Whoever calls it, and however often, each thing is written once. Where nothing has changed since the last call it
    looks at the times of files only. Raises OSError, and EagletuiError where another process holds the journal.
    """
    present = _present()
    if not present or _seen() == present:
        return 0
    with entries.locked():
        seen, known = _seen() or {}, entries.load().entries
        changed = [place for place, stamp in present.items() if seen.get(place) != stamp]
        added = sorted(_missing(changed, known), key=lambda entry: epoch_of(entry.at) or 0.0)
        entries.append(added)
        _write_markdown()  # also where nothing is added: whoever added it may have been killed before
        _has_seen(present)
    return len(added)


def sync_quietly() -> None:
    """`sync` at the end of something else, which it never fails: what stands in its way is one line on stderr."""
    try:
        sync()
    except (EagletuiError, OSError) as error:
        said = error.message if isinstance(error, EagletuiError) else of_system(error).message
        with contextlib.suppress(OSError):
            print(f"eagletui: the journal was not written: {sanitize(said)}", file=sys.stderr, flush=True)


def _missing(places: Iterable[str], known: Iterable[Entry]) -> Iterator[Entry]:
    """What the records at these places say, as far as no entry says it already."""
    ids = {entry.id for entry in known}
    latest = {(entry.kind, _what(entry)): news(entry) for entry in known}
    sources = {source.files.directory_name: source for source in SOURCES}
    for place in places:
        directory, _, name = place.rpartition("/")
        record = sources[directory].files.read(name.removesuffix(".json"))
        for entry in sources[directory].entries(record) if record is not None else ():
            key = entry.kind, _what(entry)
            if key in latest:
                if latest[key] == news(entry):
                    continue
                number = next(n for n in itertools.count(2) if f"{entry.id}#{n}" not in ids)
                entry = replace(entry, id=f"{entry.id}#{number}", at=now())
            ids.add(entry.id)
            latest[key] = news(entry)
            yield entry


def _what(entry: Entry) -> str:
    return entry.id.partition(":")[2].partition("#")[0]


_Present = dict[str, list[int]]  # place of a record below the data directory: what changes when it does


def _present() -> _Present:
    """Every stored record."""
    found: _Present = {}
    for source in SOURCES:
        with contextlib.suppress(OSError), os.scandir(source.files.directory) as files:
            for file in files:
                if file.name.endswith(".json") and file.name[0] != ".":
                    with contextlib.suppress(OSError):
                        found[f"{source.files.directory_name}/{file.name}"] = list(stamp_of(file.stat()))
    return found


def _seen_path() -> Path:
    return entries.directory() / ".seen.json"


def _seen() -> _Present | None:
    """What the last `sync` saw; None where another version wrote it, or its entries were cut or replaced (by git) since."""
    try:
        seen, file = read_json(_seen_path().read_bytes()), os.stat(entries.path())
        same = seen["of"] == [__version__, file.st_ino] and seen["size"] <= file.st_size
        return dict(seen["records"]) if same else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _has_seen(present: _Present) -> None:
    file = os.stat(entries.path())
    seen = {"of": [__version__, file.st_ino], "size": file.st_size, "records": present}
    write_whole(_seen_path(), json.dumps(seen))


def _write_markdown() -> None:
    """The whole journal as Markdown; the caller holds the lock. It is made anew with the next entry: a failure loses nothing."""
    from tui.core.journal.markdown import markdown
    from tui.core.journal.reading import read

    with contextlib.suppress(OSError):
        write_whole(entries.directory() / "journal.md", markdown(read()))


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
    by = one_line(author or os.environ.get("USER") or os.environ.get("LOGNAME") or "", 60).strip() or "somebody"
    entry = Entry(f"{kind}-{secrets.token_hex(5)}", now(), kind, by, mask_text(text), tuple(about), state)
    with entries.locked():
        entries.append([entry])
        _write_markdown()
    return entry
