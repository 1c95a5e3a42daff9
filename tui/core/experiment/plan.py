"""An experiment before its first launch: every launch in order with its times, and what so many pairs can see.

Free of files and hosts: `known_of` reads what is stored, `plan` says what follows from it.
"""

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath

from tui.core.errors import EagletuiError, Slug
from tui.core.experiment.ahead import ArmAhead, refused
from tui.core.experiment.course import planned_launches
from tui.core.experiment.plan_findings import findings_of
from tui.core.experiment.record import ExperimentRecord
from tui.core.experiment.state import STOP_S, bench_length_s
from tui.core.experiment.wanted import Wanted
from tui.core.groups import planning
from tui.core.model.profile import REFERENCE, BenchProfile, ExperimentArm, ExperimentProfile, LoadPoint
from tui.core.model.result import Result
from tui.core.model.verdict import Noise
from tui.core.profiles.secrets import public_sets
from tui.core.results import store
from tui.core.server import launch_records
from tui.core.server.finding import Finding, Level
from tui.core.server.launch_records import LaunchRecord, PhaseHistory
from tui.core.verdicts import pairing, stats
from tui.core.verdicts.comparison import launch_sd
from tui.core.verdicts.metric import default_for, metric
from tui.core.verdicts.pairing import Launch, Setting

PAIRS = (1, 2, 3, 4, 5, 8)  # for which it is said what they can see
ASSUMED_START_S = 300.0  # where no start of the model is known here


@dataclass(frozen=True)
class Known:
    """What is stored of the host that bears on a plan."""

    results: tuple[Result, ...] = ()
    records: tuple[LaunchRecord, ...] = ()  # newest first
    usual: Mapping[str, PhaseHistory | None] = field(
        default_factory=dict
    )  # by letter: starts of exactly this configuration
    held: str | None = None  # what runs on one of the hosts already, one sentence


@dataclass(frozen=True)
class StartUp:
    """How long an arm takes from launch to ready."""

    seconds: float
    starts: int  # that it rests on; 0: it is assumed
    estimate: str | None = None  # None: from starts of exactly this configuration; else what it is taken from


@dataclass(frozen=True)
class ArmPlanned:
    """An arm with what is known of it here."""

    letter: str
    profile: str
    sets: Mapping[str, object]  # secrets masked
    against: str | None
    start: StartUp
    tok_s: float | None = None  # of the first load, as it was measured here; None: never
    level: str | None = None  # of that figure: L0, L1, L2


@dataclass(frozen=True)
class LaunchPlanned:
    """One launch in its place; seconds from the start of the experiment."""

    number: int
    arm: str | None  # letter; None: one of those that are left, or the best of them: the figures decide
    pair: int
    begins_s: float
    ready_s: float
    measured_s: float
    ends_s: float
    rung: int | None = None  # of a screening, from 1; None: it counts for a verdict


@dataclass(frozen=True)
class Sight:
    """What so many pairs can see."""

    pairs: int
    total_s: float
    level: str  # L0, L1, L2
    sees: float | None  # smallest effect found nine times in ten, as a share; None: no verdict, or no noise is known


@dataclass(frozen=True)
class Expected:
    """What earlier runs here say about one comparison."""

    a: str
    b: str
    point: LoadPoint
    ratio: float  # b / a
    level: str
    pairs: int | None  # that would see it; None: more than twenty, or no noise is known
    seen: bool | None  # whether the planned pairs would; None: no noise is known


@dataclass(frozen=True)
class ExperimentPlan:
    """All of it. Nothing is launched yet."""

    profile: ExperimentProfile  # secrets masked
    host: str
    hosts: tuple[str, ...]
    bench: BenchProfile
    arms: tuple[ArmPlanned, ...]
    launches: tuple[LaunchPlanned, ...]
    sights: tuple[Sight, ...]
    noise: Noise | None
    expected: tuple[Expected, ...]
    findings: tuple[Finding, ...]  # those that block first
    seed: int  # of the order
    overrides: str = ""  # what the asker changed, as options of the command line

    @property
    def name(self) -> str:
        return self.profile.name

    @property
    def pairs(self) -> int:
        return self.profile.pairs

    @property
    def total_s(self) -> float:
        return self.launches[-1].ends_s if self.launches else 0.0

    @property
    def starting_s(self) -> float:
        """Of the total, the seconds of start-ups."""
        return sum(one.ready_s - one.begins_s for one in self.launches)

    @property
    def estimated(self) -> bool:
        """Whether the start of an arm is an estimate."""
        return any(arm.start.estimate for arm in self.arms)

    @property
    def blocking(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.level is Level.BLOCK)

    @property
    def sight(self) -> Sight:
        """Of the pairs that are planned."""
        return next(one for one in self.sights if one.pairs == self.pairs)

    def arm(self, letter: str) -> ArmPlanned:
        """Raises KeyError."""
        return {arm.letter: arm for arm in self.arms}[letter]


class PlanRefused(EagletuiError):
    """The experiment was not begun: it could not give a verdict."""

    slug = Slug.PREFLIGHT

    def __init__(self, plan: ExperimentPlan) -> None:
        said = "; ".join(finding.sentence for finding in plan.blocking)
        hints = [str(finding.hint) for finding in plan.blocking if finding.hint]
        super().__init__(f"nothing was launched: {said}", hints[0] if hints else None)
        self.details = {"findings": [finding.json() for finding in plan.findings]}


def known_of(wanted: Wanted) -> Known:
    """What is stored here. Reads files."""
    held = None
    try:
        wanted.free()
    except EagletuiError as error:
        held = error.message
    usual = {
        arm.letter: planning.usual_start(wanted.launches[arm.letter], wanted.host, public_sets(arm.sets))
        for arm in wanted.profile.arms
    }
    return Known(tuple(store.read_all()), tuple(launch_records.read_all()), usual, held)


def plan(
    wanted: Wanted, record: ExperimentRecord, known: Known, ahead: Iterable[ArmAhead] = (), *, aa: bool = False
) -> ExperimentPlan:
    """What an experiment will do, take and see.

    Args:
        record: from `runner.begin`: it has the order.
        ahead: the pre-flight of the arms, where the host was asked.
        aa: one configuration is compared with itself on purpose.
    """
    profile, bench = wanted.profile, wanted.bench
    starts = {arm.letter: _start_up(wanted, known, arm.letter) for arm in profile.arms}
    launches = tuple(_course(profile, record.seed, starts, bench))
    settings = {point: like for point in bench.points if (like := _setting(wanted, known, point)) is not None}
    noise = _noise(known, settings, bench)
    figures = {
        (arm.letter, point): measured
        for arm in profile.arms
        for point, like in settings.items()
        if (measured := _measured(known, like, arm.profile, arm.sets))
    }
    rates = {key: pairing.mean_of(measured) for key, measured in figures.items()}
    held = (known.held,) if known.held else ()
    return ExperimentPlan(
        profile=record.profile,
        host=record.host,
        hosts=record.all_hosts,
        bench=bench,
        arms=tuple(
            _arm(arm, starts[arm.letter], figures.get((arm.letter, bench.points[0]), ())) for arm in profile.arms
        ),
        launches=launches,
        sights=_sights(wanted, record.seed, starts, noise),
        noise=noise,
        expected=tuple(_expected(wanted, figures, noise)),
        findings=findings_of(
            wanted, known.records, tuple(ahead), rates, [one.ends_s for one in launches], held=held, aa=aa
        ),
        seed=record.seed,
        overrides=str(wanted.overrides),
    )


def refused_plan(wanted: Wanted, record: ExperimentRecord) -> Callable[[tuple[ArmAhead, ...]], None]:
    """What `ExperimentRunner` asks before the first launch: raises ArmsRefused or PlanRefused where nothing would come of it."""

    def judge(ahead: tuple[ArmAhead, ...]) -> None:
        refused(ahead)
        made = plan(wanted, record, replace(known_of(wanted), held=None), ahead)
        if made.blocking:
            raise PlanRefused(made)

    return judge


def _arm(arm: ExperimentArm, start: StartUp, measured: Sequence[Launch]) -> ArmPlanned:
    known = (pairing.mean_of(measured), pairing.level_of(measured)) if measured else (None, None)
    return ArmPlanned(arm.letter, arm.profile, public_sets(arm.sets), arm.against, start, *known)


def _noise(known: Known, settings: Mapping[LoadPoint, Setting], bench: BenchProfile) -> Noise | None:
    """Of the load where launches differ most."""
    every = (pairing.noise_of(known.results, metric(default_for(at)), like) for at, like in settings.items())
    return max((one for one in every if one is not None), key=lambda one: launch_sd(one, bench.runs), default=None)


def _start_up(wanted: Wanted, known: Known, letter: str) -> StartUp:
    """From starts of this configuration, else of this profile, else of its model on this host, else assumed."""
    usual = known.usual.get(letter)
    if usual is not None:
        return StartUp(usual.median_s, usual.n)
    launch = wanted.launches[letter]
    ready = [one for one in known.records if one.host in wanted.hosts and one.ready_after_s is not None]
    model = launch.arg("model-path")
    for what, these in (
        ("the profile with other overrides", [one for one in ready if one.profile == launch.name]),
        ("other profiles of its model", [one for one in ready if model is not None and one.model == model]),
    ):
        if took := [one.ready_after_s for one in these if one.ready_after_s is not None]:
            return StartUp(statistics.median(took), len(took), what)
    return StartUp(ASSUMED_START_S, 0, "no start of its model is known here")


def length_s(plan: ExperimentPlan, *, pairs: int | None = None, bench: BenchProfile | None = None) -> float:
    """What it would take with so many pairs, or another bench, seconds."""
    starts = {arm.letter: arm.start for arm in plan.arms}
    profile = replace(plan.profile, pairs=pairs or plan.profile.pairs)
    return max((one.ends_s for one in _course(profile, plan.seed, starts, bench or plan.bench)), default=0.0)


def _course(
    profile: ExperimentProfile, seed: int, starts: Mapping[str, StartUp], bench: BenchProfile
) -> Iterator[LaunchPlanned]:
    others = [start.seconds for letter, start in starts.items() if letter != REFERENCE]
    at_s = 0.0
    for one in planned_launches(profile, seed):
        start_s = starts[one.arm].seconds if one.arm is not None else statistics.fmean(others)
        ready_s = at_s + start_s
        measured_s = ready_s + bench_length_s(bench)
        yield LaunchPlanned(one.number, one.arm, one.pair, at_s, ready_s, measured_s, measured_s + STOP_S, one.rung)
        at_s = measured_s + STOP_S


def _setting(wanted: Wanted, known: Known, point: LoadPoint) -> Setting | None:
    """What the newest results of this bench at this load have in common with those to come."""
    bench = wanted.bench
    arms = {pairing.configured_as(arm.profile, arm.sets) for arm in wanted.profile.arms}
    models = {launch.arg("model-path") for launch in wanted.launches.values()}
    alike = [
        result
        for result in known.results
        if result.valid
        and (result.server.host, result.bench, result.point) == (wanted.host, bench.name, point)
        and result.load.output_len == bench.output_len
        and PurePath(result.load.dataset).name == PurePath(bench.dataset).name
        and (pairing.configuration(result) in arms or result.server.model in models)
    ]
    newest = max(alike, key=lambda result: pairing.when(result.started_at), default=None)
    return pairing.setting(newest) if newest is not None else None


def _measured(known: Known, like: Setting, profile: str, sets: Mapping[str, object]) -> tuple[Launch, ...]:
    """The launches of a configuration that were measured in a setting."""
    same = pairing.configured_as(profile, public_sets(sets))
    own = (r for r in known.results if pairing.configuration(r) == same and pairing.setting(r) == like)
    return pairing.launches(own, metric(default_for(like.point)))


def _alpha(wanted: Wanted) -> float:
    """The error that one comparison may make: all of them share 5 %, and the looks of each share that."""
    looks, halving = wanted.profile.looks, wanted.profile.method == "halving"
    of_looks = stats.look_alphas(looks)[looks[-1]] if looks else stats.ALPHA
    return of_looks / (1 if halving else max(1, sum(arm.against is not None for arm in wanted.profile.arms)))


def _seen(noise: Noise, bench: BenchProfile, pairs: int, alpha: float) -> float:
    return stats.minimum_detectable(math.sqrt(2) * launch_sd(noise, bench.runs), pairs, alpha)


def _sights(wanted: Wanted, seed: int, starts: Mapping[str, StartUp], noise: Noise | None) -> tuple[Sight, ...]:
    bench, profile = wanted.bench, wanted.profile
    found = []
    for pairs in sorted({*PAIRS, profile.pairs}):
        decides = pairs >= pairing.L2_LAUNCHES
        level = "L2" if decides else "L1" if pairs * bench.runs > 1 else "L0"
        sees = math.expm1(_seen(noise, bench, pairs, _alpha(wanted))) if decides and noise is not None else None
        course = _course(replace(profile, pairs=pairs), seed, starts, bench)
        found.append(Sight(pairs, max(one.ends_s for one in course), level, sees))
    return tuple(found)


def _expected(
    wanted: Wanted, figures: Mapping[tuple[str, LoadPoint], Sequence[Launch]], noise: Noise | None
) -> Iterator[Expected]:
    bench, pairs = wanted.bench, wanted.profile.pairs
    for arm in wanted.profile.arms:
        for point in bench.points:
            a, b = (figures.get((letter or "", point)) for letter in (arm.against, arm.letter))
            if not a or not b:
                continue
            effect = math.log(pairing.mean_of(b) / pairing.mean_of(a))
            needed, seen = None, None
            if noise is not None:
                needed = stats.pairs_needed(effect, math.sqrt(2) * launch_sd(noise, bench.runs), _alpha(wanted))
                seen = pairs >= pairing.L2_LAUNCHES and abs(effect) >= _seen(noise, bench, pairs, _alpha(wanted))
            level = min(pairing.level_of(a), pairing.level_of(b))
            yield Expected(arm.against or "", arm.letter, point, math.exp(effect), level, needed, seen)
