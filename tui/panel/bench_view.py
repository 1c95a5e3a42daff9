"""What a comparison looks like to a person, worked out once from its frozen state. Free of Textual.

A figure of an arm is the geometric mean over its launches, as in a verdict; a ratio before the verdict is that of the
complete launch pairs alone, and there is none before the first one is complete.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from tui import format as fmt
from tui.core.errors import UsageError
from tui.core.model.experiment import ArmState, ArmStatus, ExperimentState, LiveRun
from tui.core.model.profile import LoadPoint
from tui.core.model.result import Guard, GuardStatus, Held, Result
from tui.core.model.verdict import Verdict, VerdictKind
from tui.core.speculation.economics import Economics
from tui.core.speculation.from_results import payoff
from tui.core.text import one_line
from tui.core.verdicts.metric import Metric, default_for, metric
from tui.core.verdicts.pairing import Side, pair_up
from tui.core.verdicts.pairing import launches as measured_launches

if TYPE_CHECKING:
    from tui.core.experiment.ahead import ArmAhead
    from tui.core.experiment.plan import ExperimentPlan, Known
    from tui.core.experiment.record import ExperimentRecord
    from tui.core.experiment.wanted import Wanted
    from tui.core.model.profile import ExperimentProfile

COLORS = {"A": "muted", "B": "accent", "C": "violet", "D": "teal"}
UNDER_WAY = (ArmStatus.LAUNCHING, ArmStatus.RUNNING)


@dataclass(frozen=True)
class Preview:
    """An experiment before it is begun."""

    wanted: "Wanted"
    record: "ExperimentRecord"  # as it would be begun: its seed decides the order
    known: "Known"
    plan: "ExperimentPlan"
    ahead: "tuple[ArmAhead, ...] | None" = None  # None: its hosts were not asked
    unfinished: "ExperimentRecord | None" = None  # one of this name that can be resumed

    @property
    def profile(self) -> "ExperimentProfile":
        return self.wanted.profile

    @property
    def host(self) -> str:
        """That it is begun on: of a first arm over several hosts, where it is measured."""
        return self.wanted.host


class Mark(StrEnum):
    """A run in a row of runs."""

    MEASURED = "measured"
    INVALID = "invalid"
    LIVE = "live"
    QUEUED = "queued"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class RunMark:
    """One run: whether it counts, and the figure that arms are compared by."""

    mark: Mark
    tok_s: float | None = None  # per-user tok/s; of a search, the highest load that holds


@dataclass(frozen=True)
class Launch:
    """The runs of one launch of an arm at one load."""

    runs: tuple[RunMark, ...]
    results: tuple[Result, ...] = ()
    complete: bool = False


@dataclass(frozen=True)
class SearchedLoad:
    """One load that searches of an arm measured, all of them together."""

    load: float
    results: tuple[Result, ...]

    @property
    def held(self) -> Held:
        """Its replies against the limits."""
        found = [result.slo for result in self.results if result.slo is not None]
        return Held(found[0].limits, sum(one.replies for one in found), sum(one.met for one in found))


@dataclass(frozen=True)
class ArmView:
    """One arm at one load, or with what its searches found."""

    arm: ArmState
    title: str
    changes: str  # what differs from its profile
    launches: tuple[Launch, ...]
    tok_s: float | None = None  # per-user tok/s; of searches, the highest load that holds
    loads: tuple[SearchedLoad, ...] = ()  # of searches, growing
    ratio: float | None = None  # to the arm it is compared with
    pairs: int = 0  # complete ones
    verdict: Verdict | None = None
    waiting: bool = False  # what the verdict says is provisional: pairs are to come
    best: bool = False
    live: LiveRun | None = None
    accept: float | None = None
    cycle_ms: float | None = None
    tpot_ms: float | None = None
    ttft_ms: float | None = None
    power_w: float | None = None
    memory_mib: float | None = None

    @property
    def knee(self) -> float | None:
        """The highest load that holds, of all searches together; None before the first has its answer."""
        fails = min((one.load for one in self.loads if not one.held.holds), default=math.inf)
        holding = [one.load for one in self.loads if one.held.holds and one.load < fails]
        return max(holding, default=None) if self.results else None

    @property
    def letter(self) -> str:
        return self.arm.letter

    @property
    def color(self) -> str:
        return COLORS.get(self.arm.letter, "text")

    @property
    def ink(self) -> str:
        """Colour of what is drawn of it: grey reads as not there."""
        return "text" if self.color == "muted" else self.color

    @property
    def results(self) -> tuple[Result, ...]:
        return tuple(result for launch in self.launches for result in launch.results)

    @property
    def valid(self) -> int:
        return sum(result.valid for result in self.results)

    @property
    def none_counts(self) -> bool:
        """Whether it was measured, and no run counts."""
        return bool(self.results) and not self.valid

    @property
    def planned(self) -> int:
        """Runs, done and to come."""
        return sum(len(launch.runs) for launch in self.launches)

    @property
    def complete(self) -> bool:
        """Whether every launch that was planned is measured."""
        return bool(self.results) and all(launch.complete for launch in self.launches)

    @property
    def so_far(self) -> bool:
        """Whether the ratio is that of some of the pairs alone."""
        return self.ratio is not None and (self.verdict is None or self.waiting)

    @property
    def level(self) -> str | None:
        """Level of replication: that of the verdict, else of the runs there are; None while they are not complete."""
        if self.verdict is not None and not self.waiting:
            return self.verdict.level if self.verdict.verdict is not VerdictKind.INVALID else None
        if self.arm.against is not None or not self.complete or not self.valid:
            return None
        counting = [launch for launch in self.launches if any(result.valid for result in launch.results)]
        return "L2" if len(counting) >= 3 else "L1" if self.valid > 1 else "L0"

    @property
    def fault(self) -> tuple[Result, Guard] | None:
        """The first run that does not count, and the guard that says why."""
        for result in self.results:
            for guard in result.guards:
                if not result.valid and guard.status is GuardStatus.FAILED:
                    return result, guard
        return None


@dataclass(frozen=True)
class ArmEconomics:
    """What speculation costs and gives in one arm, against an arm without it."""

    view: ArmView
    base: ArmView
    economics: Economics

    @property
    def speedup(self) -> float | None:
        """The measured ratio where there is one to the same arm, so that one screen does not show two figures."""
        if self.economics.tau is None:
            return None
        same = self.view.arm.against == self.base.letter
        return self.view.ratio if same and self.view.ratio is not None else self.economics.speedup


@dataclass(frozen=True)
class Comparison:
    """All arms at one load."""

    state: ExperimentState
    point: LoadPoint
    arms: tuple[ArmView, ...]
    economics: tuple[ArmEconomics, ...] = ()  # of the arms with speculation

    @property
    def metric(self) -> Metric:
        """What the arms are compared by."""
        return metric(default_for(self.point))

    def arm(self, letter: str | None) -> ArmView | None:
        """The arm of a letter."""
        return next((view for view in self.arms if view.letter == letter), None)

    @property
    def live(self) -> ArmView | None:
        """The arm that is launched or measured now."""
        return next((view for view in self.arms if view.arm.status in UNDER_WAY), None)


def compare(state: ExperimentState, point: LoadPoint | None = None) -> Comparison:
    """The comparison at one of the loads of its bench; without one, at the first."""
    points = state.bench.points or (LoadPoint(concurrency=1),)
    at = point if point in points else points[0]
    titles = short_names([one_line(arm.profile, 120) for arm in state.arms])
    views = {arm.letter: _view(state, arm, title, at) for arm, title in zip(state.arms, titles, strict=True)}
    best = _best(tuple(views.values()))
    found = []
    for view in views.values():
        base = views.get(view.arm.against) if view.arm.against else None
        ratio, pairs = (None, 0) if base is None else _so_far(base, view, metric(default_for(at)))
        waiting = False
        if view.verdict is not None:
            ratio, pairs = view.verdict.ratio, view.verdict.n_pairs
            waiting = not state.finished and view.verdict.verdict is VerdictKind.INDISTINCT and pairs < state.pairs
        found.append(replace(view, ratio=ratio, pairs=pairs, waiting=waiting, best=view.letter == best))
    # Two searches end at two loads: a cycle at one is no match for a step at the other.
    return Comparison(state, at, tuple(found), _economics(found) if at.search is None else ())


def _view(state: ExperimentState, arm: ArmState, title: str, point: LoadPoint) -> ArmView:
    results = [result for result in arm.results if result.point == point]
    live = arm.live if arm.live is not None and (point.search or arm.live.point == point) else None
    yardstick = metric(default_for(point))
    launches = _launches(state, arm, results, live, yardstick)
    valid = [result for result in results if result.valid]
    accept, cycle = _speculation(valid)
    peaks = [r.gpu.memory_peak_mib for r in valid if r.gpu and r.gpu.memory_peak_mib is not None]
    view = ArmView(
        arm=arm,
        title=title,
        changes=", ".join(f"{one_line(key, 60)} = {fmt.value_text(value)}" for key, value in arm.sets.items()),
        launches=launches,
        tok_s=_figure(launches, yardstick),
        loads=_searched(arm.results) if point.search else (),
        verdict=verdict_of(state, arm, point),
        live=live,
        accept=accept,
        cycle_ms=cycle,
        tpot_ms=_mean([r.latencies.tpot.p50 for r in valid if r.latencies.tpot]),
        ttft_ms=_mean([r.latencies.ttft.p50 for r in valid if r.latencies.ttft]),
        power_w=_mean([r.gpu.power_w for r in valid if r.gpu]),
        memory_mib=max(peaks, default=None),
    )
    if live is None or results:
        return view
    return replace(  # before its first run is done, an arm shows what is seen
        view,
        accept=live.accept_length,
        tpot_ms=live.tpot_ms,
        ttft_ms=live.ttft_ms,
        power_w=live.power_w,
        memory_mib=live.memory_used_mib,
    )


def _searched(results: Sequence[Result]) -> tuple[SearchedLoad, ...]:
    groups: dict[float, list[Result]] = {}
    for result in results:
        load = result.load.rate if result.load.concurrency is None else result.load.concurrency
        if load is not None and result.slo is not None:
            groups.setdefault(float(load), []).append(result)
    return tuple(SearchedLoad(load, tuple(groups[load])) for load in sorted(groups))


def _launches(
    state: ExperimentState, arm: ArmState, results: Sequence[Result], live: LiveRun | None, yardstick: Metric
) -> tuple[Launch, ...]:
    """Runs by launch, those to come too."""
    groups: dict[object, list[Result]] = {}
    for result in sorted(results, key=lambda r: (r.started_at or "", r.run_index)):
        launch = result.server.run_id or result.bench_run_id or result.launch_number
        groups.setdefault(launch, []).append(result)
    launches: list[Launch] = []
    under_way = arm.status in UNDER_WAY
    total = max(len(groups), arm.launches_total if not state.finished else 0)
    done = list(groups.values())
    for number in range(total):
        own = done[number] if number < len(done) else []
        marks = [RunMark(Mark.MEASURED if result.valid else Mark.INVALID, yardstick.of(result)) for result in own]
        complete = state.finished or number < arm.launches_done
        if not complete:
            if live is not None and under_way and number == arm.launches_done:
                seen = live.phase == "window" and not yardstick.of_search
                marks.append(RunMark(Mark.LIVE, per_user(live) if seen else None))
            later = Mark.SKIPPED if arm.status in (ArmStatus.FAILED, ArmStatus.SKIPPED) else Mark.QUEUED
            marks += [RunMark(later)] * (state.bench.runs - len(marks))
        launches.append(Launch(tuple(marks), tuple(own), complete and bool(own)))
    return tuple(launches)


def per_user(live: LiveRun) -> float | None:
    """Tok/s of one user in the run under way: what finished runs are compared by."""
    if live.tpot_ms:
        return 1000 / live.tpot_ms
    return live.tok_s / live.active if live.tok_s is not None and live.active else live.tok_s


def launch_means(launches: Sequence[Launch], yardstick: Metric) -> list[float]:
    """Mean of the logarithm of the figure over the runs of each launch that count."""
    results = [result for launch in launches for result in launch.results]
    return [launch.datum for launch in measured_launches(results, yardstick)]


def _figure(launches: Sequence[Launch], yardstick: Metric) -> float | None:
    means = launch_means(launches, yardstick)
    return math.exp(statistics.fmean(means)) if means else None


def _so_far(base: ArmView, view: ArmView, yardstick: Metric) -> tuple[float | None, int]:
    """Ratio of the complete launch pairs, and how many there are."""
    sides = [
        measured_launches([r for launch in side.launches if launch.complete for r in launch.results], yardstick)
        for side in (base, view)
    ]
    differences = pair_up(*sides).differences
    return (math.exp(statistics.fmean(differences)) if differences else None), len(differences)


def _best(views: Sequence[ArmView]) -> str | None:
    """The fastest arm, where a verdict says that it is faster than what it is compared with."""
    known = [view for view in views if view.tok_s is not None]
    if not known:
        return None
    fastest = max(known, key=lambda view: view.tok_s or 0.0)
    proven = fastest.verdict is not None and fastest.verdict.verdict is VerdictKind.FASTER
    return fastest.letter if proven else None


def _speculation(results: Sequence[Result]) -> tuple[float | None, float | None]:
    """Accept length as a ratio of sums, and the mean cycle."""
    found = [r.speculation for r in results if r.speculation is not None]
    counted = [s for s in found if s.verify_steps and s.correct_drafts is not None]
    steps = sum(s.verify_steps or 0 for s in counted)
    tokens = sum((s.correct_drafts or 0) + (s.verify_steps or 0) for s in counted)
    accept = tokens / steps if steps else _mean([s.tau for s in found])
    return accept, _mean([s.cycle_ms for s in found])


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def verdict_of(state: ExperimentState, arm: ArmState, point: LoadPoint) -> Verdict | None:
    """The verdict of an arm against the one it is compared with, at a load; None before there is anything to judge."""
    of_arm = (v for v in state.verdicts if v.b.ref == arm.letter and v.a.ref == arm.against)
    found = next((verdict for verdict in of_arm if verdict.point in (None, point)), None)
    early = found is not None and found.verdict is VerdictKind.INVALID and not found.n_pairs
    return None if early and not state.finished and arm.status is not ArmStatus.FAILED else found


def short_names(names: Sequence[str]) -> list[str]:
    """Names without the words that all of them begin with: what tells arms apart stands at the end of a name."""
    if len(set(names)) < 2:
        return list(names)
    words = [name.split("-") for name in names]
    shared = 0
    while all(len(own) > shared + 1 and own[shared] == words[0][shared] for own in words):
        shared += 1
    return ["-".join(own[shared:]) for own in words]


def _economics(views: Sequence[ArmView]) -> tuple[ArmEconomics, ...]:
    """Of each arm with speculation, where an arm without it is measured too."""
    plain = [view for view in views if view.valid and not _speculates(view)]
    found = []
    for view in views:
        if not plain or not _speculates(view):
            continue
        base = next((other for other in plain if other.letter == view.arm.against), plain[0])
        sides = [Side(side.letter, side.letter, side.results) for side in (base, view)]
        try:
            found.append(ArmEconomics(view, base, payoff(*sides).economics))
        except UsageError:
            continue  # figures are missing so far
    return tuple(found)


def _speculates(view: ArmView) -> bool:
    return any(result.speculation is not None or result.server.spec is not None for result in view.results)
