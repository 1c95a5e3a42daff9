"""Launches that a caller names by an id of its own: asked for again, it is the same launch, whatever became of the answer."""

import hashlib
import json
import os
import tempfile
from pathlib import Path

from tui.core.config import state_dir
from tui.core.errors import Slug, UsageError
from tui.core.runs.request import new_run_id


def run_id_for(request_id: str, profile: str) -> str:
    """The id of the run that this request is for; the first one to ask decides it, and it is kept.

    Raises UsageError where the request was for another profile.
    """
    path = state_dir() / "requests" / f"{hashlib.sha256(request_id.encode()).hexdigest()[:32]}.json"
    if not path.exists():
        _write_first(path, {"request_id": request_id, "profile": profile, "run_id": new_run_id(profile)})
    known = json.loads(path.read_text(encoding="utf-8"))
    if known["profile"] != profile:
        raise UsageError(
            f"request {request_id} was for profile {known['profile']}",
            "give each launch an id of its own",
            slug=Slug.EXISTS,
        )
    return str(known["run_id"])


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
