"""An experiment as it was asked for: its profile, what the asker changes for this once, and all that it names, loaded."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from tui.core.errors import Slug, UsageError
from tui.core.experiment import record as experiment_record
from tui.core.experiment.overrides import Overrides, arm_of
from tui.core.groups import planning
from tui.core.model.profile import BenchProfile, ExperimentProfile
from tui.core.profiles.launch_profile import LaunchProfile
from tui.core.profiles.load import BENCH_KEYS, load_bench, load_experiment, load_launch
from tui.core.profiles.resolve import read_sets


@dataclass(frozen=True)
class Wanted:
    """What is launched and measured; the host is where a server goes that names none."""

    profile: ExperimentProfile
    bench: BenchProfile
    launches: Mapping[str, LaunchProfile]  # by letter, with the arm's overrides
    host: str
    overrides: Overrides = field(default_factory=Overrides)

    @property
    def hosts(self) -> tuple[str, ...]:
        """Of all arms, each once."""
        return tuple(
            dict.fromkeys(h for launch in self.launches.values() for h in planning.hosts_of(launch, self.host))
        )

    def free(self) -> None:
        """Raises EagletuiError (slug busy) where another process of this machine runs this experiment."""
        if (running := experiment_record.driven(self.profile.name, self.host)) is not None:
            raise experiment_record.busy(running.experiment_id, experiment_record.driver(running.experiment_id) or 0)


def wanted(
    profile: ExperimentProfile | str,
    dirs: Iterable[Path],
    host: str | None,
    default_host: str,
    overrides: Overrides | None = None,
) -> Wanted:
    """An experiment, with what is changed for this once.

    Args:
        profile: or its name.
        host: where a server goes that names none; None: to the host of the first arm, else to `default_host`.

    Raises UsageError: an unknown name, a broken profile, a value that is none.
    """
    dirs, overrides = tuple(dirs), overrides or Overrides()
    profile = load_experiment(profile, dirs) if isinstance(profile, str) else profile
    letters = [arm.letter for arm in profile.arms]
    of_bench, of_arms = [], []
    for letter, text in map(arm_of, overrides.sets):
        if letter and letter not in letters:
            raise UsageError(f"{profile.name} has no arm {letter}", f"it has {', '.join(letters)}", slug=Slug.BAD_VALUE)
        if not letter and text.partition("=")[0].strip() in BENCH_KEYS:
            of_bench.append(text)
        else:
            of_arms.append((letter, text))
    if overrides.pairs is not None and profile.looks and overrides.pairs != profile.pairs:
        looks = ", ".join(map(str, profile.looks))
        raise UsageError(
            f"{profile.name} looks at {looks} pairs; --pairs would be another test", "change looks in the profile",
            slug=Slug.LOOKS,
        )  # fmt: skip
    arms = []
    launches = {}
    for arm in profile.arms:
        texts = [text for letter, text in of_arms if letter in ("", arm.letter)]
        load_launch(arm.profile, dirs, texts)  # what is none of its keys, or no value, is said by its name
        arms.append(replace(arm, sets={**arm.sets, **read_sets(texts)}))
        launches[arm.letter] = load_launch(arm.profile, dirs, arms[-1].sets)
    profile = replace(
        profile,
        arms=tuple(arms),
        bench=overrides.bench or profile.bench,
        pairs=overrides.pairs or profile.pairs,
        budget_h=overrides.budget_h or profile.budget_h,
    )
    bench = load_bench(profile.bench, dirs, of_bench)
    first = launches[letters[0]]
    where = planning.home_of(first, host or first.host or default_host)
    return Wanted(profile, bench, launches, where, overrides)
