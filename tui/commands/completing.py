"""What the shell completes: hosts, profiles, runs, results and flags, by what this machine knows; no host is asked."""

import contextlib
import re
from collections.abc import Callable, Iterable

import click
from click.shell_completion import CompletionItem

from tui.core.errors import EagletuiError
from tui.core.text import one_line

_MOST = 200  # more cannot be chosen from
_PLAIN = re.compile(r"[\w.@:+/=-]+")  # the shell's script quotes nothing: any other word is not offered

Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]
_Found = Iterable[tuple[str, str]]  # a word, and what it is


def _completes(words: Callable[[click.Context], _Found]) -> Complete:
    def complete(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
        items: list[CompletionItem] = []
        with contextlib.suppress(EagletuiError, OSError):  # what is broken is said by the command itself
            for word, about in words(ctx):
                if word.startswith(incomplete) and _PLAIN.fullmatch(word) and len(items) < _MOST:
                    items.append(CompletionItem(word, help=one_line(about, 60) or None))
        return items

    return complete


def _hosts(_: click.Context) -> _Found:
    from tui.panel.host_names import known_hosts

    return known_hosts()


def _profiles(*kinds: str) -> Complete:
    def words(ctx: click.Context) -> _Found:
        from tui.core.config import profile_dirs
        from tui.core.profiles.files import Library

        library = Library(profile_dirs(ctx.find_root().params.get("profiles")))
        for name in sorted(library.paths):
            entry = library.named(name)
            if entry is not None and entry.kind in kinds:
                about = entry.table.get("description")
                yield name, about if isinstance(about, str) else entry.kind or ""

    return _completes(words)


def _runs(_: click.Context) -> _Found:
    from tui.core.model.run import short_id
    from tui.core.server.launch_records import read_all

    for record in read_all():
        yield short_id(record.run_id), f"{record.profile} on {record.host}, {record.outcome or record.launched_at}"


def _measured(ctx: click.Context) -> _Found:
    from tui.core.results.store import read_all

    results = read_all()
    yield from {name: "all its results that count" for r in results if (name := r.server.profile) is not None}.items()
    yield from ((result.result_id, f"{result.bench} at {result.point.label}") for result in reversed(results))


def _flags(_: click.Context) -> _Found:
    from tui.core.sglang.flags import flag_table

    yield from ((f"{name}=", "") for name in sorted(flag_table().newest_flags))
    yield from (("env.", "a variable of the environment"), ("gpus=", "of these GPUs"))


def _bench_keys(_: click.Context) -> _Found:
    from tui.core.profiles.schema import Bench

    return ((f"{name}=", "") for name in Bench.model_fields)


hosts = _completes(_hosts)
launch_profiles, bench_profiles, experiments = _profiles("launch"), _profiles("bench"), _profiles("experiment")
any_profile = _profiles("launch", "bench", "experiment")


def runs_or_files(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Runs, or else what the shell itself offers."""
    return runs(ctx, parameter, incomplete) or [CompletionItem(incomplete, type="file")]


runs, measured = _completes(_runs), _completes(_measured)
flags, bench_keys = _completes(_flags), _completes(_bench_keys)
