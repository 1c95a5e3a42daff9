"""Launches that a caller names by an id of its own: asked for again, it is the same launch, whatever became of the answer."""

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tui.core.config import state_dir
from tui.core.errors import Slug, UsageError
from tui.core.runs.request import new_run_id, valid_run_id
from tui.core.text import one_line


def run_id_for(request_id: str, profile: str, host: str, sets: Mapping[str, object]) -> str:
    """The id of the run that this request is for; the first one to ask decides it, and it is kept.

    Raises UsageError where the request was for another launch, or what is kept of it cannot be read.
    """
    path = state_dir() / "requests" / f"{hashlib.sha256(request_id.encode()).hexdigest()[:32]}.json"
    asked = {"profile": profile, "host": host, "sets": json.dumps({key: str(sets[key]) for key in sorted(sets)})}
    if not path.exists():
        _write_first(path, {"request_id": request_id, **asked, "run_id": new_run_id(profile)})
    try:
        known = json.loads(path.read_text(encoding="utf-8"))
        run_id = known["run_id"]
    except (ValueError, TypeError, KeyError):
        run_id = None
    if not isinstance(run_id, str) or not valid_run_id(run_id):
        raise UsageError(
            f"{path} cannot be read: which run {one_line(request_id, 80)} was for is not known",
            "see eagletui ps, then use another id",
            slug=Slug.UNREADABLE_FILE,
        )
    if any(known.get(key) != value for key, value in asked.items()):
        raise UsageError(
            f"request {one_line(request_id, 80)} was for {known.get('profile')} on {known.get('host')} with {known.get('sets')}",
            "give each launch an id of its own",
            slug=Slug.EXISTS,
        )
    return run_id


def _write_first(path: Path, document: dict[str, str]) -> None:
    """Writes a file whole, unless somebody else was first."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(document, file)
            file.flush()
            os.fsync(handle)
        os.link(name, path)
    except FileExistsError:
        pass
    finally:
        os.unlink(name)
