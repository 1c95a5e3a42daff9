"""Profiles by name: launch, bench and experiment profiles, with all errors at once.

A profile is found by its file's name without `.toml`, first directory first. docs/profiles.md describes the format.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tui.core.errors import Slug, UsageError
from tui.core.hints import Action, Hint
from tui.core.model.profile import (
    METHODS,
    REFERENCE,
    SIDE_BY_SIDE,
    BenchProfile,
    ExperimentArm,
    ExperimentProfile,
    Limits,
    LoadPoint,
    Search,
    arm_letters,
)
from tui.core.profiles.checks import did_you_mean, tables
from tui.core.profiles.files import KINDS, SETS, Library, ProfileBroken, ProfileError, ProfileFile, problems
from tui.core.profiles.grid import arms_of
from tui.core.profiles.launch_profile import LaunchProfile
from tui.core.profiles.resolve import Sets, parse_sets, resolve
from tui.core.profiles.secrets import public_sets
from tui.core.text import one_line

_WORDS = ("description", "hypothesis", "known")
_BENCH_KEYS = ("driver", "dataset", "input_len", "output_len", "runs", *_WORDS)
BENCH_KEYS = frozenset(
    ["dataset", "input_len", "output_len", "runs", "concurrency", "rate", "duration_s", "slo"]
)  # of a load


@dataclass(frozen=True)
class ProfileEntry:
    """A file found, broken or not."""

    name: str
    kind: str | None
    path: Path
    description: str | None
    errors: tuple[ProfileError, ...] = ()


def discover(dirs: Iterable[Path]) -> list[ProfileEntry]:
    """Every profile of the directories, by kind and name; a name found earlier hides a later one.

    Broken files are in the list, with all their errors; they hide nothing but their own name.
    """
    library = Library(dirs)
    found = []
    for name in library.paths:
        entry = library.named(name)
        assert entry is not None
        errors = entry.errors
        if entry.kind == "launch":
            errors = resolve(library, entry, ())[1]
        elif entry.kind == "experiment":
            errors = _experiment_errors(library, entry)
        description = entry.table.get("description")
        text = one_line(description) if isinstance(description, str) else None
        found.append(ProfileEntry(name, entry.kind, entry.path, text, tuple(errors)))
    return sorted(found, key=lambda entry: (KINDS.index(entry.kind) if entry.kind else len(KINDS), entry.name))


def _experiment_errors(library: Library, entry: ProfileFile) -> list[ProfileError]:
    """What is wrong with an experiment, and with what it names."""
    found = list(entry.problems)
    bench = entry.table.get("bench")
    if isinstance(bench, str) and library.kind_of(bench) != "bench":
        near = did_you_mean(bench, [name for name in library.paths if library.kind_of(name) == "bench"])
        found.append(("bench", f'there is no bench profile "{bench}"', near))
    given = len(tables(entry.table.get("arms")))
    for number, arm in enumerate(arms_of(entry.table)):
        name, sets = arm.get("profile"), arm.get("set", {})
        if not isinstance(name, str) or not isinstance(sets, dict):
            continue
        key = f"arms.{number}.profile" if number < given else "grid.profile"
        profile = library.named(name)
        if profile is None or profile.kind != "launch":
            found.append((key, f'there is no launch profile "{name}"', did_you_mean(name, library.paths)))
            continue
        for error in resolve(library, profile, tuple(sets.items()))[1]:
            place = f"arms.{number}.set" if number < given else "grid"
            found.append((place if error.path == SETS else key, str(error), None))
    return [ProfileError(entry.path, *problem) for problem in dict.fromkeys(found)]


def load_launch(name: str, dirs: Iterable[Path], sets: Sets = ()) -> LaunchProfile:
    """A launch profile with what it extends, and `--set` applied.

    `sets` are "k=v" texts, or already read values by key; `env.X`, `requires.X` and `gpus` are meant literally, any
    other key is a flag. Raises UsageError: unknown name (slug unknown_profile), not a launch profile, or broken
    (ProfileBroken, every error).
    """
    library = Library(dirs)
    entry = _named(library, name, "launch")
    errors: list[ProfileError] = []
    items = parse_sets(sets, errors)
    profile, resolved = resolve(library, entry, items)
    if errors or profile is None:
        raise ProfileBroken(
            name, [*(e for e in resolved if e.path != SETS), *errors, *(e for e in resolved if e.path == SETS)]
        )
    return profile


def load_bench(name: str, dirs: Iterable[Path], sets: Sets = ()) -> BenchProfile:
    """A bench profile, with `--set` applied: keys of a bench profile; one number is a list of one load.

    Raises UsageError as `load_launch` does.
    """
    entry = _named(Library(dirs), name, "bench")
    errors = entry.errors
    table = _with_sets(entry.table, parse_sets(sets, errors))
    errors += [ProfileError(SETS, *problem) for problem in problems(table, "bench") if problem not in entry.problems]
    if errors:
        raise ProfileBroken(name, errors)
    users = tuple(LoadPoint(concurrency=count) for count in table.get("concurrency", ()))
    rates = tuple(LoadPoint(rate=float(rate)) for rate in table.get("rate", ()))
    search = None
    if slo := table.get("slo"):
        kind = "concurrency" if users else "rate"
        limits = Limits(**{key: float(value) for key, value in slo.items()})
        search = Search(limits, kind, *map(float, table[kind]))
    return BenchProfile(
        name=name,
        points=(LoadPoint(search=search.kind),) if search else users or rates or (LoadPoint(concurrency=1),),
        duration_s=float(table.get("duration_s", BenchProfile.duration_s)),
        search=search,
        command=tuple(table.get("command", ())),
        path=entry.path,
        **{key: table[key] for key in _BENCH_KEYS if key in table},
    )


def _with_sets(table: Mapping[str, Any], sets: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """A bench profile's table with overrides; loads of both kinds exclude each other, so the later one replaces the other."""
    changed = dict(table)
    for key, value in sets:
        if key in ("concurrency", "rate"):
            changed.pop("rate" if key == "concurrency" else "concurrency", None)
            value = value if isinstance(value, list) else [value]
        changed[key] = value
    return changed


def load_experiment(name: str, dirs: Iterable[Path]) -> ExperimentProfile:
    """An experiment, with the bench and launch profiles that it names checked too. Raises UsageError as `load_launch`."""
    library = Library(dirs)
    entry = _named(library, name, "experiment")
    if errors := _experiment_errors(library, entry):
        raise ProfileBroken(name, errors)
    table = entry.table
    looks = tuple(table.get("looks", ()))
    arms, written = [], arms_of(table)
    for letter, arm in zip(arm_letters(len(written)), written, strict=True):
        against = None if letter == REFERENCE else arm.get("against", REFERENCE)
        arms.append(ExperimentArm(letter, arm["profile"], dict(arm.get("set", {})), against))
    planned = looks or any(arm.against not in (None, REFERENCE) for arm in arms)
    return ExperimentProfile(
        name=name,
        bench=table["bench"],
        arms=tuple(arms),
        pairs=table.get("pairs", looks[-1] if looks else ExperimentProfile.pairs),
        looks=looks,
        margin=float(table.get("margin", ExperimentProfile.margin)),
        budget_h=table.get("budget_h"),
        method=table.get("method") or METHODS[len(arms) > SIDE_BY_SIDE and not planned],
        path=entry.path,
        **{key: table.get(key) for key in _WORDS},
    )


def kind_of(name: str, dirs: Iterable[Path]) -> str | None:
    """launch, bench or experiment; None where the file does not say. Raises UsageError where there is no such profile."""
    return _named(Library(dirs), name).kind


def bench_table(bench: BenchProfile) -> dict[str, Any]:
    """A bench profile as its file would say it, with what it leaves out."""
    table: dict[str, Any] = {"kind": "bench", "driver": bench.driver, "dataset": bench.dataset}
    if search := bench.search:
        table[search.kind] = [search.low, search.high] if search.kind == "rate" else [int(search.low), int(search.high)]
        table["slo"] = {key: value for key, value in vars(search.limits).items() if value is not None}
    elif bench.points[0].rate is not None:
        table["rate"] = [point.rate for point in bench.points]
    else:
        table["concurrency"] = [point.concurrency for point in bench.points]
    keys = ("input_len", "output_len", "duration_s", "runs", "command", *_WORDS)
    return table | _given(bench, keys)


def experiment_table(experiment: ExperimentProfile) -> dict[str, Any]:
    """An experiment as its file would say it, with what it leaves out; secrets are masked."""
    table = {"kind": "experiment"} | _given(
        experiment, ("bench", "method", "pairs", "looks", "margin", "budget_h", *_WORDS)
    )
    table["arms"] = [
        {"profile": arm.profile} | ({"set": public_sets(arm.sets)} if arm.sets else {}) | _given(arm, ("against",))
        for arm in experiment.arms
    ]
    return table


def _given(profile: object, keys: Iterable[str]) -> dict[str, Any]:
    values = {key: getattr(profile, key) for key in keys}
    return {key: list(v) if isinstance(v, tuple) else v for key, v in values.items() if v is not None and v != ()}


def _named(library: Library, name: str, kind: str | None = None) -> ProfileFile:
    """The file of a profile by name. Raises UsageError where there is none, or it is of another kind."""
    entry = library.named(name)
    if entry is None:
        hint = did_you_mean(name, library.paths) or Hint(Action.LIST_PROFILES)
        raise UsageError(f'there is no profile "{one_line(name)}"', hint, slug=Slug.UNKNOWN_PROFILE)
    if kind and entry.kind and entry.kind != kind:
        message = f"{name} is a profile of kind {entry.kind}, not {kind}"
        raise UsageError(message, f"use eagletui {entry.kind} {name}", slug=Slug.WRONG_KIND)
    return entry
