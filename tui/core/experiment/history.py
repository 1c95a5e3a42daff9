"""What is stored of a host, as arms side by side: its newest experiment, or configurations that one bench measured."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tui.core.experiment import planned
from tui.core.experiment import record as experiment_record
from tui.core.experiment.so_far import stored_state
from tui.core.model.experiment import ArmState, ArmStatus, ExperimentState
from tui.core.model.profile import REFERENCE, SIDE_BY_SIDE, BenchProfile, LoadPoint, arm_letters
from tui.core.model.result import Result
from tui.core.model.verdict import Verdict
from tui.core.results import store
from tui.core.server import launch_records
from tui.core.verdicts import pairing
from tui.core.verdicts.metric import DEFAULT, default_for, metric
from tui.core.verdicts.pairing import Setting, Side


@dataclass(frozen=True)
class Configuration:
    """All runs of one configuration in one bench on a host, oldest first."""

    profile: str
    bench: str
    results: tuple[Result, ...]

    @property
    def newest(self) -> str | None:
        """When the last run began, ISO 8601 UTC; None where no run says it."""
        return self.results[-1].started_at

    @property
    def speculative(self) -> bool:
        return any(result.speculation is not None for result in self.results)


def configurations(host: str) -> tuple[Configuration, ...]:
    """What is stored of a host, newest first. Reads files."""
    groups: dict[tuple[object, ...], list[Result]] = {}
    for result in store.read_all():
        if result.server.host == host:
            groups.setdefault((_family(result), pairing.configuration(result)), []).append(result)
    found = []
    for group in groups.values():
        group.sort(key=lambda result: (pairing.when(result.started_at), result.run_index))
        server = group[-1].server
        name = server.profile or server.run_id or server.url or "not launched by eagletui"
        found.append(Configuration(name, group[-1].bench, tuple(group)))
    return tuple(sorted(found, key=lambda one: pairing.when(one.newest), reverse=True))


def _family(result: Result) -> Setting:
    """What is the same for configurations that can stand side by side: everything of a setting but the load."""
    key = pairing.setting(result)
    return replace(key, point=LoadPoint(), limits=None, dataset=key.dataset_sha or key.dataset, dataset_sha=None)


def comparable(one: Configuration, other: Configuration) -> bool:
    """Whether two configurations can stand side by side."""
    return _family(one.results[-1]) == _family(other.results[-1])


def newest(host: str) -> ExperimentState | None:
    """What was measured last on a host: the experiment, or the configurations of that bench; None where nothing is stored."""
    stored = configurations(host)
    experiments = [record for record in experiment_record.read_all() if record.host == host]
    latest = max(experiments, key=lambda record: record.started_at or "", default=None)
    if latest is not None and any(cell.result_ids for cell in latest.cells):
        ended = latest.ended_at or latest.started_at or ""
        if (
            not stored
            or pairing.when(stored[0].results[-1].started_at) <= pairing.when(ended)
            or stored[0].results[-1].experiment
        ):
            return stored_state(latest)
    if not stored:
        return None
    return side_by_side([one for one in stored if comparable(one, stored[0])][:SIDE_BY_SIDE])


def side_by_side(chosen: Sequence[Configuration]) -> ExperimentState:
    """Configurations as arms, each against the first one; without speculation first, then by age.

    Args:
        chosen: one to four, all comparable.
    """
    ordered = sorted(chosen, key=lambda one: (one.speculative, pairing.when(one.results[0].started_at)))
    arms = tuple(
        ArmState(
            letter=letter,
            profile=one.profile,
            sets=one.results[-1].server.sets,
            against=None if letter == REFERENCE else REFERENCE,
            status=ArmStatus.MEASURED,
            launches_done=len({result.server.run_id for result in one.results}),
            launches_total=len({result.server.run_id for result in one.results}),
            results=one.results,
        )
        for letter, one in zip(arm_letters(len(ordered)), ordered, strict=True)
    )
    results = [result for one in ordered for result in one.results]
    bench = _bench(results)
    last = max(results, key=lambda result: pairing.when(result.started_at))
    return ExperimentState(
        experiment_id="",
        name=bench.name,
        host=last.server.host,
        bench=bench,
        arms=arms,
        verdicts=tuple(verdict for point in bench.points for verdict in _verdicts(arms, point)),
        finished=True,
        started_at=last.started_at,
    )


def _bench(results: Sequence[Result]) -> BenchProfile:
    """The bench as its results show it; of a search, its answer is what is asked for."""
    points = sorted({result.point for result in results}, key=lambda at: (at.concurrency or 0, at.rate or 0.0))
    searches = [result.capacity.search for result in results if result.capacity is not None]
    if searches:
        points = [point for point in points if point.search is not None]
    last = results[-1]
    windows = [result.window.duration_s for result in results if result.window is not None]
    return BenchProfile(
        name=last.bench,
        points=tuple(points),
        dataset=last.load.dataset,
        output_len=last.load.output_len or 0,
        duration_s=round(max(windows, default=0.0)),
        runs=max(result.run_index for result in results),
        search=searches[-1] if searches else None,
    )


def _verdicts(arms: Sequence[ArmState], point: LoadPoint) -> tuple[Verdict, ...]:
    sides = {
        arm.letter: Side(arm.letter, arm.letter, tuple(r for r in arm.results if r.point == point)) for arm in arms
    }
    base = sides[arms[0].letter]
    others = [sides[arm.letter] for arm in arms[1:] if sides[arm.letter].results]
    if not others or not any(result.valid for result in base.results):
        return ()
    launch_s = pairing.launch_seconds(sides.values(), launch_records.read_all())
    asked = [(base, other) for other in others]
    return planned.verdicts(asked, metric(default_for(point)), store.read_all(), launch_s=launch_s)


@dataclass(frozen=True)
class Baseline:
    """A decode step without speculation, as it was measured last in one bench."""

    profile: str
    model: str | None
    concurrency: int
    tok_s: float  # a user
    level: str  # L0, L1, L2: of its own replication


def baselines(host: str) -> tuple[Baseline, ...]:
    """What is stored of a host without speculation, newest first. Reads files.

    Where a configuration was measured by several benches, each stands for itself.
    """
    found = []
    for one in configurations(host):
        if one.speculative or any(result.server.spec is not None for result in one.results):
            continue
        for point in dict.fromkeys(result.point for result in one.results):
            runs = pairing.launches([r for r in one.results if r.point == point], metric(DEFAULT))
            if runs and point.concurrency is not None:
                model = one.results[-1].server.model
                found.append(
                    Baseline(one.profile, model, point.concurrency, pairing.mean_of(runs), pairing.level_of(runs))
                )
    return tuple(found)
