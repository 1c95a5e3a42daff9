"""From stored results to launch pairs that may be compared: what belongs together, and in which order it was measured."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from tui.core.errors import Slug, UsageError
from tui.core.hints import Action, Hint
from tui.core.model.profile import Limits, LoadPoint
from tui.core.model.result import Result
from tui.core.model.verdict import Noise
from tui.core.profiles.resolve import as_compared
from tui.core.server.launch_records import LaunchRecord
from tui.core.sglang import server_info
from tui.core.text import one_line
from tui.core.verdicts.metric import Metric
from tui.core.verdicts.sentences import limits_words, load_words
from tui.core.verdicts.stats import components

L2_LAUNCHES = 3  # the fewest launches, or pairs of them, that a verdict takes


@dataclass(frozen=True)
class Side:
    """One side of a comparison: all its runs, those that do not count included."""

    name: str  # in a sentence: the letter of an arm, A or B
    ref: str  # as the user named it
    results: tuple[Result, ...] = ()
    failures: tuple[LaunchRecord, ...] = ()  # launches that never got as far as a measurement


def of_bench(side: Side, bench: str | None) -> Side:
    """A side cut to the results of one bench; None: all stay. Raises UsageError (slug not_comparable) where it has none."""
    if bench is None or not side.results:
        return side
    kept = tuple(result for result in side.results if result.bench == bench)
    if not kept:
        raise UsageError(
            f"{side.name} ({one_line(side.ref, 80)}) was not measured with {one_line(bench, 60)}",
            f"it was with {', '.join(sorted({one_line(result.bench, 40) for result in side.results}))}",
            slug=Slug.NOT_COMPARABLE,
        )
    return replace(side, results=kept)


def _known(value: object) -> str:
    return "unknown" if value is None else str(value)


@dataclass(frozen=True)
class Setting:
    """What must be the same on both sides."""

    host: str
    model: str | None
    bench: str
    point: LoadPoint
    dataset: str
    dataset_sha: str | None
    lengths: tuple[int | None, int | None]  # input, output
    ignore_eos: bool | None
    temperature: float | None
    tool: tuple[str, str | None]  # name, backend
    limits: Limits | None = None

    @property
    def words(self) -> tuple[tuple[str, str], ...]:
        """Each part with its value, for a message."""
        return (
            ("host", self.host),
            ("model", _known(self.model)),
            ("bench", self.bench),
            ("load", load_words(self.point)),
            ("dataset", self.dataset),
            ("dataset", f"{self.dataset} {(self.dataset_sha or '')[:8]}"),
            ("lengths", "input {}, output {}".format(*map(_known, self.lengths))),
            ("ignore_eos", _known(self.ignore_eos)),
            ("temperature", _known(self.temperature)),
            ("tool", " ".join(filter(None, self.tool))),
            ("limits", limits_words(self.limits) if self.limits else "none"),
        )


@dataclass(frozen=True)
class Launch:
    """One launch of a server at one load: the unit of replication."""

    key: str  # "" where nobody knows which launch it was
    began: datetime  # of its first run that counts
    values: tuple[float, ...]  # the metric of each run, in logs
    results: tuple[Result, ...] = ()
    experiment: str | None = None
    place: int | None = None  # in the experiment's order
    pair: int | None = None

    @property
    def nodes(self) -> frozenset[str]:
        """Of a cluster, where it ran; none of a server that is no job."""
        return frozenset(node for result in self.results for node in result.server.nodes)

    @property
    def datum(self) -> float:
        return statistics.fmean(self.values)


def level_of(launches: Sequence[Launch]) -> str:
    """What a figure rests on: L0 one run; L1 restarts are not told apart; L2 at least three launches."""
    if len(launches) >= L2_LAUNCHES:
        return "L2"
    return "L1" if sum(len(launch.values) for launch in launches) > 1 else "L0"


def mean_of(launches: Iterable[Launch]) -> float:
    """The geometric mean of launches; there is one at least."""
    return math.exp(statistics.fmean(launch.datum for launch in launches))


Pair = tuple[Launch, Launch]


@dataclass(frozen=True)
class Pairs:
    """The launches of two sides, paired."""

    pairs: tuple[Pair, ...]
    a: tuple[Launch, ...]  # all of them, also those without a partner
    b: tuple[Launch, ...]
    experiment: bool = False  # paired by an experiment
    order: str = ""  # ABBA…: who was measured first, pair by pair
    interleaved: bool = False  # each pair was measured before the next one began

    @property
    def apart(self) -> tuple[Pair, ...]:
        """Those whose launches ran on different nodes of a cluster; an arm with fewer nodes may have some of the other's."""
        return tuple((a, b) for a, b in self.pairs if not (a.nodes <= b.nodes or b.nodes <= a.nodes))

    @property
    def balanced(self) -> bool:
        """Whether A and B went first equally often, as far as the number of pairs allows."""
        first = self.order[::2]
        return abs(first.count("A") - first.count("B")) <= 1

    def first(self, number: int) -> "Pairs":
        """The first pairs alone."""
        kept = self.pairs[:number]
        a, b = tuple(one for one, _ in kept), tuple(other for _, other in kept)
        return replace(self, pairs=kept, a=a, b=b, order=self.order[: 2 * number])

    @property
    def differences(self) -> list[float]:
        """log(b / a) of each pair."""
        return [b.datum - a.datum for a, b in self.pairs]


NO_PAIRS = Pairs((), (), ())


def setting(result: Result) -> Setting:
    load = result.load
    return Setting(
        host=result.server.host,
        model=result.server.model,
        bench=result.bench,
        point=result.point,
        dataset=load.dataset,
        dataset_sha=load.dataset_sha,
        lengths=(load.input_len, load.output_len),
        ignore_eos=load.ignore_eos,
        temperature=load.temperature,
        tool=(result.tool.name, result.tool.backend),
        limits=result.capacity.search.limits if result.capacity else result.slo.limits if result.slo else None,
    )


def configuration(result: Result) -> tuple[str | None, frozenset[tuple[str, str]], str | None]:
    """What makes a server another one: the profile with its overrides, else the arguments it resolved."""
    server = result.server
    return configured_as(server.profile, server.sets, server.args_sha)


def configured_as(
    profile: str | None, sets: Mapping[str, object], args_sha: str | None = None
) -> tuple[str | None, frozenset[tuple[str, str]], str | None]:
    """The same of a launch that is to be made."""
    return profile, frozenset(as_compared(sets).items()), args_sha if profile is None else None


def when(text: str | None) -> datetime:
    """An ISO 8601 time; what is none counts as older than all others."""
    try:
        found = datetime.fromisoformat(text or "")
    except ValueError:
        return datetime.fromtimestamp(0).astimezone()
    return found if found.tzinfo else found.astimezone()


def matched(a: Side, b: Side, point: LoadPoint | None = None, host: str | None = None) -> list[tuple[Side, Side]]:
    """Both sides cut to what can be compared: for each load they share, the runs of one setting; loads grow.

    Of a search that both have made, its answer is compared; the loads on its way where `point` names one. Where several settings are shared (another bench, other prompts), the one measured last counts.

    Raises:
        UsageError: nothing can be compared (slug not_comparable, says in what they differ), or several hosts can
            (slug ambiguous_host).
    """
    settings_a, settings_b = _newest(a, host, point), _newest(b, host, point)
    shared = {key: min(begun, settings_b[key]) for key, begun in settings_a.items() if key in settings_b}
    if not shared:
        raise _nothing(a, b, settings_a, settings_b, point, host)
    hosts = sorted({key.host for key in shared})
    if len(hosts) > 1:
        raise UsageError(
            f"the results are of {', '.join(one_line(name, 60) for name in hosts)}",
            "choose with --host",
            slug=Slug.AMBIGUOUS_HOST,
        )
    bench = max(shared, key=lambda key: shared[key]).bench
    by_point: dict[LoadPoint, Setting] = {}
    for key in sorted((key for key in shared if key.bench == bench), key=lambda key: shared[key]):
        by_point[key.point] = key
    if any(at.search for at in by_point) and point is None:
        by_point = {at: key for at, key in by_point.items() if at.search}
    points = sorted(by_point, key=lambda at: (at.concurrency or 0, at.rate or 0.0))
    return [(_only(a, by_point[at]), _only(b, by_point[at])) for at in points]


def _newest(side: Side, host: str | None, point: LoadPoint | None) -> dict[Setting, datetime]:
    found: dict[Setting, datetime] = {}
    for result in side.results:
        key = setting(result)
        if (host is None or key.host == host) and (point is None or key.point == point):
            found[key] = max(when(result.started_at), found.get(key, when(None)))
    return found


def _only(side: Side, key: Setting) -> Side:
    return replace(side, results=tuple(result for result in side.results if setting(result) == key))


def _nothing(
    a: Side,
    b: Side,
    settings_a: Mapping[Setting, datetime],
    settings_b: Mapping[Setting, datetime],
    point: LoadPoint | None,
    host: str | None,
) -> UsageError:
    for side, settings in ((a, settings_a), (b, settings_b)):
        if not settings:
            where = (f" at {load_words(point)}" if point else "") + (f" on {one_line(host, 60)}" if host else "")
            loads = sorted({load_words(result.point) for result in side.results})
            return UsageError(
                f"{side.name} ({one_line(side.ref, 80)}) has no result{where}",
                "it was measured at " + ", ".join(loads[:6]) if loads and point else Hint(Action.BENCH),
                slug=Slug.NOT_COMPARABLE,
            )
    # The two settings that have most in common say best what is missing.
    nearest = max(
        ((one, other) for one in settings_a for other in settings_b),
        key=lambda both: sum(x == y for x, y in zip(both[0].words, both[1].words, strict=True)),
    )
    name, of_a, of_b = next(
        (name, x, y) for (name, x), (_, y) in zip(nearest[0].words, nearest[1].words, strict=True) if x != y
    )
    return UsageError(
        f"{a.name} and {b.name} cannot be compared: {name} {one_line(of_a, 60)} against {one_line(of_b, 60)}",
        "measure both with one bench profile, on one host and model",
        slug=Slug.NOT_COMPARABLE,
    )


def launches(results: Iterable[Result], metric: Metric) -> tuple[Launch, ...]:
    """The launches of one side by time, from the runs that count and have the metric."""
    grouped: dict[str, list[Result]] = {}
    for result in results:
        counted = result.counts.ok
        if result.valid and metric.of(result) is not None and (counted is None or counted >= metric.needs):
            grouped.setdefault(_launch_key(result), []).append(result)
    found = []
    for key, runs in grouped.items():
        runs.sort(key=lambda run: (when(run.started_at), run.run_index))
        values = tuple(math.log(value) for run in runs if (value := metric.of(run)) is not None)
        one = runs[0]
        began = when(one.started_at)
        found.append(Launch(key, began, values, tuple(runs), one.experiment, one.launch_number, one.pair_number))
    return tuple(sorted(found, key=lambda launch: launch.began))


def _launch_key(result: Result) -> str:
    server = result.server
    if server.run_id:
        return server.run_id
    # A server that we did not launch: its start, where it is known, else all of it counts as one launch.
    return f"{server.url} {server.launched_at}" if server.launched_at else ""


def pair_up(a: Sequence[Launch], b: Sequence[Launch]) -> Pairs:
    """Pairs by experiment where both sides share one or more, else the i-th launch of A with the i-th of B."""
    shared = {launch.experiment for launch in a if launch.experiment} & {launch.experiment for launch in b}
    pairs: list[Pair] = []
    if shared:
        starts = {launch.experiment: launch.began for launch in reversed(a)}
        for experiment in sorted((name for name in shared if name), key=lambda name: starts[name]):
            pairs += _of_experiment(
                [launch for launch in a if launch.experiment == experiment],
                [launch for launch in b if launch.experiment == experiment],
            )
    else:
        pairs = list(zip(a, b, strict=False))
    pairs.sort(key=lambda pair: min(launch.began for launch in pair))
    order = "".join("AB" if _before(first, second) else "BA" for first, second in pairs)
    ends = [max(launch.began for launch in pair) for pair in pairs]
    begins = [min(launch.began for launch in pair) for pair in pairs]
    apart = all(end < begin for end, begin in zip(ends, begins[1:], strict=False))
    known = all(launch.key for pair in pairs for launch in pair)
    return Pairs(tuple(pairs), tuple(a), tuple(b), bool(shared), order, apart and known)


def _of_experiment(a: list[Launch], b: list[Launch]) -> list[Pair]:
    if all(launch.pair is not None for launch in (*a, *b)):
        rounds_a = {launch.pair: launch for launch in a}  # of a launch that was repeated, the last one
        rounds_b = {launch.pair: launch for launch in b}
        return [(rounds_a[number], rounds_b[number]) for number in rounds_a if number in rounds_b]
    return list(zip(a, b, strict=False))


def _before(one: Launch, other: Launch) -> bool:
    if one.place is not None and other.place is not None and one.experiment == other.experiment:
        return one.place < other.place
    return one.began < other.began


def noise_of(results: Iterable[Result], metric: Metric, like: Setting) -> Noise | None:
    """How launches of one configuration differ in this setting, from all stored results of it; A/A experiments first of all.

    None with fewer than two degrees of freedom: three launches of one configuration, or two of each of two.
    """
    groups: dict[tuple[object, ...], list[Result]] = {}
    for result in results:
        if result.valid and setting(result) == like:
            groups.setdefault(configuration(result), []).append(result)
    layout = [launches(group, metric) for group in groups.values()]
    found = components([[launch.values for launch in group if launch.key] for group in layout])
    if found is None or found.df < 2:
        return None
    times = [result.started_at for group in groups.values() for result in group if result.started_at]
    return Noise(found.launch, found.run, found.launches, found.df, max(times, default=None))


def launch_seconds(sides: Iterable[Side], records: Iterable[LaunchRecord]) -> float | None:
    """What one launch with its runs takes here: to ready as recorded, then first run to last; the median, or None."""
    ready = {record.run_id: record.ready_after_s for record in records if record.ready_after_s is not None}
    took = []
    by_run: dict[str, list[Result]] = {}
    for side in sides:
        for result in side.results:
            if result.server.run_id in ready:
                by_run.setdefault(str(result.server.run_id), []).append(result)
    for run_id, runs in by_run.items():
        begin = min(when(run.started_at) for run in runs)
        end = max(when(run.started_at).timestamp() + (run.duration_s or 0.0) for run in runs)
        took.append((ready[run_id] or 0.0) + end - begin.timestamp())
    return statistics.median(took) if took else None


def forced_accept_length(result: Result) -> float | None:
    """The accept length that was forced on the server; None where it was the draft's own."""
    return server_info.forced_accept_length(result.server.env)


def random_tokens(result: Result) -> bool:
    """Whether the prompts were random token ids, which no draft model was made for."""
    return result.load.dataset.startswith("random")


def lost_launches(side: Side, guard: str) -> tuple[int, int]:
    """(launches of a side that lost a run to this guard, all its launches)."""
    lost = {
        _launch_key(result)
        for result in side.results
        if not result.valid and any(one.id == guard for one in result.failed_guards)
    }
    return len(lost), len({_launch_key(result) for result in side.results})


def not_counted(side: Side) -> tuple[int, tuple[str, ...]]:
    """How many runs of a side do not count, and why: each reason once, with how often."""
    invalid = [result for result in side.results if not result.valid]
    why: dict[str, list[str]] = {}
    for result in invalid:
        for guard in result.failed_guards:
            why.setdefault(guard.id, []).append(one_line(guard.text, 160))
        if not result.failed_guards:
            why.setdefault("", []).append("; ".join(one_line(note, 80) for note in result.notes) or "no reason stored")
    return len(invalid), tuple(texts[0] + (f" ({len(texts)} runs)" if len(texts) > 1 else "") for texts in why.values())
