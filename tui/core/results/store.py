"""What was measured: one JSON file a run under the data directory, and the raw rows compressed beside it.

Each is written under a temporary name and renamed, rows first, so that a kill at any moment leaves whole files and a
record always has whole rows; two panels can write at once. These files are the only truth: the index is built from
them, and only those that changed are read again.
"""

import contextlib
import gzip
import json
import os
import re
import stat
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tui.core.config import data_dir, write_whole
from tui.core.errors import EagletuiError, Slug, UsageError
from tui.core.hints import Action, Hint
from tui.core.masking import mask_secrets
from tui.core.model.result import SCHEMA, Result
from tui.core.profiles.secrets import MASK, is_secret_env, public_sets
from tui.core.results.codec import from_json, to_json
from tui.core.sglang.flags import flag_table
from tui.core.text import one_line

_ROWS = ".rows.jsonl.gz"
_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")
_RECORD_LIMIT = 8 << 20  # bytes of one record; far above what any of ours needs
_ROWS_LIMIT = 1 << 30  # bytes of rows, unpacked
_STALE_S = 3600.0  # a temporary file this old belongs to a process that was killed


Stamp = tuple[int, int, int]  # time, size and inode of a file: others where it was replaced


@dataclass(frozen=True)
class _Seen:
    stamp: Stamp
    result: Result | None  # None: cannot be read


_index: dict[Path, _Seen] = {}


def results_dir() -> Path:
    return data_dir() / "results"


def is_result_id(text: str) -> bool:
    """Whether a result may have this id: it is the name of its files."""
    return _ID.fullmatch(text) is not None


def _path(result_id: str) -> Path:
    if not is_result_id(result_id):
        raise UsageError(
            f"{one_line(result_id, 60)!r} is no result id", Hint(Action.LIST_RESULTS), slug=Slug.UNKNOWN_RESULT
        )
    return results_dir() / f"{result_id}.json"


def _rows_path(result_id: str) -> Path:
    record = _path(result_id)
    return record.with_name(result_id + _ROWS)


def write(result: Result, rows_gz: bytes | None = None, meta: Mapping[str, object] | None = None) -> None:
    """Stores a result, replacing the one of the same id; without rows, those that are there stay.

    Args:
        rows_gz: its raw rows: JSON lines, gzip, one request a line.
        meta: what the load generator says of the run beside them; stored as their first line, under the key `meta`.
    """
    path = _path(result.result_id)
    text = json.dumps(to_json(without_secrets(result)), ensure_ascii=False, allow_nan=False)
    _sweep()
    if rows_gz is not None:
        head = gzip.compress(json.dumps({"meta": meta}).encode() + b"\n", mtime=0) if meta is not None else b""
        write_whole(_rows_path(result.result_id), head + rows_gz)
    write_whole(path, text.encode("utf-8", "backslashreplace").decode("utf-8") + "\n")


def without_secrets(result: Result) -> Result:
    """The result as it may be stored and shown: keys and tokens among the server's arguments masked."""
    server = result.server
    env = {name: MASK if is_secret_env(name, value) else value for name, value in server.env.items()}
    return replace(
        result,
        server=replace(
            server,
            argv=public_argv(server.argv),
            args={**server.args, **public_sets({name: v for name, v in server.args.items() if v})},
            sets=public_sets(server.sets),
            env=env,
        ),
    )


def public_argv(argv: Sequence[str]) -> tuple[str, ...]:
    """A command line as it may be shown: what follows a flag that takes a secret is masked, and so are tokens."""
    table = flag_table()
    words: list[str] = []
    secret = False
    for word in argv:
        words.append(MASK if secret else mask_secrets(word.encode("utf-8", "replace")).decode("utf-8"))
        secret = word.startswith("--") and table.canonical(word[2:]) in table.secret
    return tuple(words)


def _sweep() -> None:
    """Removes what killed writers left under temporary names."""
    with contextlib.suppress(OSError), os.scandir(results_dir()) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                with contextlib.suppress(OSError):
                    if time.time() - entry.stat().st_mtime > _STALE_S:
                        os.unlink(entry.path)


def _load(path: Path) -> Result | None:
    try:
        with open(path, "rb") as file:
            raw = json.loads(file.read(_RECORD_LIMIT + 1), parse_constant=lambda _: None)
        if not isinstance(raw, dict) or raw.get("schema", SCHEMA) != SCHEMA:
            return None
        result = from_json(Result, raw)
    except (OSError, ValueError, RecursionError):
        return None  # half a file, or somebody else's: it must not hide the others
    return result if result.result_id == path.stem else None


def _stamp(info: os.stat_result) -> Stamp:
    return info.st_mtime_ns, info.st_size, info.st_ino


def _seen(path: Path) -> _Seen | None:
    """The record at `path`, read again only where the file is another; None where there is none."""
    try:
        info = os.stat(path)
    except OSError:
        _index.pop(path, None)
        return None
    stamp = _stamp(info)
    known = _index.get(path)
    if known is None or known.stamp != stamp:
        whole = stat.S_ISREG(info.st_mode) and info.st_size <= _RECORD_LIMIT
        known = _index[path] = _Seen(stamp, _load(path) if whole else None)
    return known


def read(result_id: str) -> Result | None:
    """The result of this id; None where there is none, or it cannot be read."""
    known = _seen(_path(result_id))
    return known.result if known else None


def _all_seen() -> list[_Seen]:
    directory = results_dir()
    try:
        names = [name for name in os.listdir(directory) if name.endswith(".json") and name[0] != "."]
    except OSError:
        return []
    return [known for name in names if (known := _seen(directory / name)) is not None]


def read_all() -> list[Result]:
    """All results that can be read, newest first; those that do not say when they began come last."""
    found = [known.result for known in _all_seen() if known.result is not None]
    return sorted(found, key=lambda result: (result.started_at or "", result.result_id), reverse=True)


def unreadable() -> int:
    """How many files there are not results of this version: broken, foreign or newer."""
    return sum(known.result is None for known in _all_seen())


def rows_stamp(result_id: str) -> Stamp | None:
    """What changes when the rows of a result do; None where none were stored."""
    try:
        return _stamp(os.stat(_rows_path(result_id)))
    except OSError:
        return None


def row_lines(result_id: str) -> Iterator[bytes]:
    """The file of raw rows, a line at a time, the one of meta first; errors as of `rows`."""
    try:
        with gzip.open(_rows_path(result_id), "rb") as file:
            yield from file
    except FileNotFoundError:
        return
    except (OSError, EOFError, zlib.error):
        raise _damaged(result_id) from None


def rows(result_id: str) -> list[dict[str, Any]]:
    """The raw rows, one request each; empty where none were stored. Raises EagletuiError where they are damaged."""
    return raw(result_id)[1]


def raw(result_id: str) -> tuple[dict[str, Any] | None, list[dict[str, Any]]]:
    """What a result was computed from: meta (None where none was stored) and rows; errors as of `rows`."""
    path = _rows_path(result_id)
    try:
        with gzip.open(path, "rb") as file:
            text = file.read(_ROWS_LIMIT + 1)
        if len(text) > _ROWS_LIMIT:
            raise ValueError
        found = [json.loads(line) for line in text.splitlines() if line.strip()]
    except FileNotFoundError:
        return None, []
    except (OSError, EOFError, ValueError, zlib.error, RecursionError):
        found = [None]
    if not all(isinstance(row, dict) for row in found):
        raise _damaged(result_id)
    if found and isinstance(meta := found[0].get("meta"), dict):
        return meta, found[1:]
    return None, found


def _damaged(result_id: str) -> EagletuiError:
    return EagletuiError(
        f"the rows of {result_id} are damaged: {_rows_path(result_id)}",
        "its stored figures stand, they only cannot be computed anew",
        slug=Slug.BROKEN_ROWS,
    )


def recompute(result: Result) -> Result | None:
    """The result with figures and guards computed anew from its rows, by the definitions of today.

    None where it has no rows of ours. Raises EagletuiError where they are damaged, or not those of this version.
    """
    from tui.core.bench.guards import Judgement, judge_again
    from tui.core.bench.metrics import figures

    meta, found = raw(result.result_id)
    if meta is None or not found:
        return None
    rate, of_one = result.throughput.output_tok_s, result.throughput.output_tok_s_per_gpu
    try:
        gpus = round(rate / of_one) if rate and of_one else None
        limits = result.slo.limits if result.slo else None
        anew = figures(found, meta, gpus=gpus, limits=limits)
        verdict = judge_again(found, meta, anew, Judgement(result.guards, result.suspicious))
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise EagletuiError(
            f"the rows of {result.result_id} are not those of this version: {one_line(repr(error), 80)}",
            "what is stored of it stands",
            slug=Slug.BROKEN_ROWS,
        ) from None
    return replace(
        result,
        window=anew.window,
        duration_s=anew.duration_s,
        counts=anew.counts,
        throughput=anew.throughput,
        latencies=anew.latencies,
        speculation=anew.speculation,
        gpu=anew.gpu,
        client=anew.client,
        guards=verdict.guards,
        valid=verdict.valid,
        suspicious=verdict.suspicious,
        slo=anew.slo,
    )


def answer_anew(found: Result, of_id: Callable[[str], Result | None]) -> Result | None:
    """The answer of a search, anew from the results of its loads as they are now; None where one of them is gone.

    Args:
        of_id: the result with an id.
    """
    from tui.core.bench.capacity import answer

    assert found.capacity is not None
    loads = [of_id(point.result_id) for point in found.capacity.points]
    there = [load for load in loads if load is not None]
    if len(there) < len(loads):
        return None
    try:
        return answer(there, found.capacity.search, found.result_id)
    except ValueError:
        return None


def _digits(run_id: str | None) -> str:
    return run_id.rsplit("-", 1)[-1] if run_id else ""


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

    if exact := [result for result in results if result.result_id == ref]:
        return exact
    runs = {run for result in results for run in (result.bench_run_id, result.server.run_id) if run}
    if ref in runs:
        return of_run(ref)
    if of_profile := [result for result in results if result.server.profile == ref]:
        if valid := [result for result in of_profile if result.valid]:
            return valid
        raise UsageError(
            f"none of the {len(of_profile)} results of {ref} is valid",
            Hint(Action.LIST_RESULTS),
            slug=Slug.UNKNOWN_RESULT,
        )
    ways: list[Callable[[str], bool]] = [
        lambda run: _digits(run) == ref,
        lambda run: run.startswith(ref) or _digits(run).startswith(ref),
    ]
    for fits in ways if ref else []:
        fitting = sorted(run for run in runs if fits(run))
        if len(fitting) == 1:
            return of_run(fitting[0])
        if fitting:
            raise _ambiguous(ref, "runs", fitting)
    prefixed = sorted(result.result_id for result in results if ref and result.result_id.startswith(ref))
    if len(prefixed) > 1:
        raise _ambiguous(ref, "results", prefixed)
    if prefixed:
        return [result for result in results if result.result_id == prefixed[0]]
    raise UsageError(
        f"{one_line(ref, 60)!r} is no stored result, run or profile with results",
        Hint(Action.LIST_RESULTS),
        slug=Slug.UNKNOWN_RESULT,
    )


def _ambiguous(ref: str, what: str, fitting: list[str]) -> UsageError:
    some = ", ".join(fitting[:3]) + (" …" if len(fitting) > 3 else "")
    return UsageError(
        f"{one_line(ref, 60)} fits {len(fitting)} {what}: {some}", "give more of it", slug=Slug.AMBIGUOUS_RESULT
    )
