"""What was measured: one JSON file a run under the data directory, and the raw rows compressed beside it.

Rows are written first, so that a record always has whole rows. These files are the only truth.
"""

import contextlib
import gzip
import json
import os
import re
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Any

from tui.core.config import write_whole
from tui.core.errors import EagletuiError, Slug, UsageError
from tui.core.hints import Action, Hint
from tui.core.masking.known import hidden
from tui.core.masking.written import mask_text
from tui.core.model.result import Result
from tui.core.profiles.secrets import MASK, public_env, public_sets
from tui.core.records import RecordFiles, Stamp, stamp_of
from tui.core.server.launch_records import runs_named
from tui.core.sglang.flags import flag_table
from tui.core.text import one_line

FILES = RecordFiles(Result, "results", attrgetter("result_id"), indent=None)
_ROWS = ".rows.jsonl.gz"
_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")
_ROWS_LIMIT = 1 << 30  # bytes of rows, unpacked
_STALE_S = 3600.0  # a temporary file this old belongs to a process that was killed


def is_result_id(text: str) -> bool:
    """Whether a result may have this id: it is the name of its files."""
    return _ID.fullmatch(text) is not None


def _checked(result_id: str) -> str:
    if not is_result_id(result_id):
        raise UsageError(
            f"{one_line(result_id, 60)!r} is not a result id",
            "eagletui results lists those that are stored",
            slug=Slug.UNKNOWN_RESULT,
        )
    return result_id


def _rows_path(result_id: str) -> Path:
    return FILES.directory / (_checked(result_id) + _ROWS)


def write(result: Result, rows_gz: bytes | None = None, meta: Mapping[str, object] | None = None) -> None:
    """Stores a result, replacing the one of the same id; without rows, those that are there stay.

    Args:
        rows_gz: its raw rows: JSON lines, gzip, one request a line.
        meta: what the load generator says of the run beside them; stored as their first line, under the key `meta`.
    """
    path = _rows_path(result.result_id)
    _sweep()
    if rows_gz is not None:
        head = (
            gzip.compress(json.dumps({"meta": hidden(dict(meta))}).encode() + b"\n", mtime=0)
            if meta is not None
            else b""
        )
        write_whole(path, head + rows_gz)
    FILES.write(without_secrets(result))


def without_secrets(result: Result) -> Result:
    """The result as it may be stored and shown: keys and tokens among the server's arguments masked."""
    server = result.server
    return replace(
        result,
        server=replace(
            server,
            argv=public_argv(server.argv),
            args={**server.args, **public_sets({name: v for name, v in server.args.items() if v})},
            sets=public_sets(server.sets),
            env=public_env(server.env),
            members=tuple(replace(one, env=public_env(one.env)) for one in server.members),
        ),
    )


def public_argv(argv: Sequence[str]) -> tuple[str, ...]:
    """A command line as it may be shown: what follows a flag that takes a secret is masked, and so are tokens."""
    table = flag_table()
    words: list[str] = []
    secret = False
    for word in argv:
        words.append(MASK if secret else mask_text(word))
        secret = word.startswith("--") and table.canonical(word[2:]) in table.secret
    return tuple(words)


def _sweep() -> None:
    """Removes what killed writers left under temporary names."""
    with contextlib.suppress(OSError), os.scandir(FILES.directory) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                with contextlib.suppress(OSError):
                    if time.time() - entry.stat().st_mtime > _STALE_S:
                        os.unlink(entry.path)


def read(result_id: str) -> Result | None:
    """The result of this id; None where there is none, or it cannot be read."""
    return FILES.read(_checked(result_id))


def read_all() -> list[Result]:
    """All results that can be read, newest first; those that do not say when they began come last."""
    return sorted(FILES.read_all(), key=lambda result: (result.started_at or "", result.result_id), reverse=True)


def rows_stamp(result_id: str) -> Stamp | None:
    """What changes when the rows of a result do; None where none were stored."""
    try:
        return stamp_of(os.stat(_rows_path(result_id)))
    except OSError:
        return None


def row_lines(result_id: str) -> Iterator[bytes]:
    """The file of raw rows, a line at a time, the one of meta first; errors as of `rows`."""
    left = _ROWS_LIMIT
    try:
        with gzip.open(_rows_path(result_id), "rb") as file:
            while line := file.readline(left + 1):
                left -= len(line)
                if left < 0:
                    raise _damaged(result_id)
                yield line
    except FileNotFoundError:
        return
    except (OSError, EOFError, zlib.error):
        raise _damaged(result_id) from None


def rows(result_id: str) -> list[dict[str, Any]]:
    """The raw rows, one request each; empty where none were stored. Raises EagletuiError where they are damaged."""
    return raw(result_id)[1]


def raw(result_id: str) -> tuple[dict[str, Any] | None, list[dict[str, Any]]]:
    """What a result was computed from: meta (None where none was stored) and rows; errors as of `rows`."""
    try:
        found = [json.loads(line) for line in row_lines(result_id) if line.strip()]
    except (ValueError, RecursionError):
        found = [None]
    if not all(isinstance(row, dict) for row in found):
        raise _damaged(result_id)
    if found and isinstance(meta := found[0].get("meta"), dict):
        return meta, found[1:]
    return None, found


def _damaged(result_id: str) -> EagletuiError:
    return EagletuiError(
        f"the rows of {result_id} are damaged: {_rows_path(result_id)}",
        "its stored figures stand, they only cannot be recomputed",
        slug=Slug.BROKEN_ROWS,
    )


def resolve(ref: str, among: Iterable[Result] | None = None) -> list[Result]:
    """The results that `ref` names, newest first.

    A result id; a run id of the measuring run or of the server, or its six digits; a launch profile's name: all its
    valid results; else a prefix that fits one result or one run alone.

    Args:
        among: look here only, instead of at everything that is stored.

    Raises UsageError where nothing fits, or several things do.
    """
    results = read_all() if among is None else list(among)

    def of_run(run_id: str) -> list[Result]:
        return [result for result in results if run_id in (result.bench_run_id, result.server.run_id)]

    if found := [result for result in results if result.result_id == ref] or (of_run(ref) if ref else []):
        return found
    if of_profile := [result for result in results if result.server.profile == ref]:
        if valid := [result for result in of_profile if result.valid]:
            return valid
        raise UsageError(
            f"none of the {len(of_profile)} results of {ref} is valid",
            Hint(Action.LIST_RESULTS),
            slug=Slug.UNKNOWN_RESULT,
        )
    runs = {run for result in results for run in (result.bench_run_id, result.server.run_id) if run}
    if fitting := runs_named(ref, sorted(runs)):
        return of_run(_only("runs", ref, fitting))
    prefixed = sorted(result.result_id for result in results if ref and result.result_id.startswith(ref))
    if prefixed:
        name = _only("results", ref, prefixed)
        return [result for result in results if result.result_id == name]
    raise UsageError(
        f"{one_line(ref, 60)!r} is not a stored result, run or profile with results",
        "eagletui results lists what is stored",
        slug=Slug.UNKNOWN_RESULT,
    )


def _only(what: str, ref: str, fitting: list[str]) -> str:
    if len(fitting) == 1:
        return fitting[0]
    some = ", ".join(fitting[:3]) + (" …" if len(fitting) > 3 else "")
    raise UsageError(
        f"{one_line(ref, 60)} fits {len(fitting)} {what}: {some}", "type more characters", slug=Slug.AMBIGUOUS_RESULT
    )
