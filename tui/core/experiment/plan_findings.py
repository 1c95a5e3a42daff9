"""What is said against an experiment before its first launch: above all, what can never give a verdict.

What would only be found out after hours of launches is found here, from the profiles, this machine's records and the pre-flight.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from tui.core.bench.guards import WINDOW_S, WINDOW_TOKENS
from tui.core.bench.workload import DEFAULT_INPUT_LEN
from tui.core.experiment.ahead import ArmAhead
from tui.core.experiment.failure import Failure
from tui.core.experiment.record import configuration_sum
from tui.core.experiment.wanted import Wanted
from tui.core.model.profile import BenchProfile, LoadPoint
from tui.core.profiles.launch_profile import LaunchProfile
from tui.core.profiles.resolve import as_compared
from tui.core.profiles.secrets import public_sets
from tui.core.server.earlier_starts import difference
from tui.core.server.finding import Finding, Level, ordered
from tui.core.server.forecast import forecast
from tui.core.server.launch_records import LaunchRecord
from tui.core.sglang.server_info import FORCED_ACCEPT_LENGTH
from tui.core.text import as_whole, one_line
from tui.core.verdicts import pairing
from tui.core.verdicts.sentences import amount_words, count

_DRAFTED_REQUESTS = 48  # that SGLang runs at once with speculation, where nobody says otherwise

Rates = Mapping[tuple[str, LoadPoint], float]  # tokens a second and user as measured here, by arm and load


@dataclass(frozen=True)
class _Asked:
    """What all checks look at."""

    wanted: Wanted
    records: Sequence[LaunchRecord]  # newest first
    versions: Mapping[str, str]  # of SGLang on the host where an arm is measured, by letter

    @property
    def bench(self) -> BenchProfile:
        return self.wanted.bench


def findings_of(
    wanted: Wanted,
    records: Sequence[LaunchRecord],
    ahead: Sequence[ArmAhead],
    rates: Rates,
    ends_s: Sequence[float],
    *,
    held: Sequence[str] = (),
    aa: bool = False,
) -> tuple[Finding, ...]:
    """Everything, what blocks first.

    What dooms an arm blocks where no comparison is left without it, else it warns: the others go on.

    Args:
        ends_s: of each launch, from the start of the experiment.
        held: what runs on the hosts already, one sentence each.
        aa: arms that are equal are meant.
    """
    versions = {arm.letter: version for arm in ahead if (version := _version(arm)) is not None}
    asked = _Asked(wanted, records, versions)
    doomed = {letter: tuple(_doomed(asked, letter)) for letter in wanted.launches}
    asks = [(arm.against, arm.letter) for arm in wanted.profile.arms if arm.against]
    alive = any(not doomed[a] and not doomed[b] for a, b in asks)
    found = [Finding("lock", Level.BLOCK, one_line(text), hint="wait until it ends") for text in held]
    for letter, reasons in doomed.items():
        level = Level.WARN if alive else Level.BLOCK
        found += [replace(reason, level=level, arm=letter) for reason in reasons]
    for arm in ahead:
        told = any(finding.check in ("memory", "crashed") for finding in doomed.get(arm.letter, ()))
        found += _of_preflight(arm, memory_told=told)
    found += _of_bench(asked, rates)
    found += _between(asked, aa=aa)
    found += _of_pairs(wanted, ends_s)
    return ordered(found)


def _version(arm: ArmAhead) -> str | None:
    facts = getattr(arm.plan, "facts", None)
    return facts.sglang if facts is not None else None


def speculates(launch: LaunchProfile) -> bool:
    """Whether the server, or a member of the group, decodes with a draft."""
    members = (member.args.get("speculative-algorithm") for member in launch.group)
    return launch.arg("speculative-algorithm") is not None or any(members)


# -- an arm that gives nothing ----------------------------------------------------------------------------------------


def _doomed(asked: _Asked, letter: str) -> Iterator[Finding]:
    launch, bench = asked.wanted.launches[letter], asked.bench
    if speculates(launch) and bench.dataset.startswith("random"):
        text = (
            "it decodes with a draft, and the prompts are random token ids: what a draft accepts of those says nothing"
        )
        yield _block("draft", text, "choose a bench with real prompts")
    if forced := launch.env.get(FORCED_ACCEPT_LENGTH):
        text = f"{FORCED_ACCEPT_LENGTH}={forced} makes the acceptance up; such runs are never compared"
        yield _block("draft", text, "leave it out, or use eagletui breakeven")
    context = as_whole(launch.arg("context-length"))
    needed = bench.output_len + ((bench.input_len or DEFAULT_INPUT_LEN) if bench.dataset.startswith("random") else 0)
    if context is not None and needed > context:
        text = f"{bench.name} asks for {needed} tokens a request, context-length is {context}: the server refuses them"
        yield _block("context", text, "make input_len or output_len smaller, or context-length larger")
    if not launch.several:
        crashed = _crashed_before(asked, letter)
        if crashed is not None:
            yield crashed
        elif not launch.command and (made := forecast(asked.wanted.host, launch.args, asked.records)) is not None:
            instead = f"set mem-fraction-static={made.suggestion:g}" if made.suggestion is not None else None
            if made.fits is False:
                yield _block("memory", made.text, instead or "shrink the draft, the graphs or the weights")


def _crashed_before(asked: _Asked, letter: str) -> Finding | None:
    """The newest start of the same configuration, where it crashed for a cause that will be the same again."""
    launch = asked.wanted.launches[letter]
    arm = next(arm for arm in asked.wanted.profile.arms if arm.letter == letter)
    sets = as_compared(public_sets(arm.sets))
    same = (
        record
        for record in asked.records
        if (record.kind, record.host, record.profile) == ("server", asked.wanted.host, launch.name)
        and as_compared(record.sets) == sets
        and not difference(record.args, launch.public_args)
        and record.outcome is not None
        and record.sglang == asked.versions.get(letter, record.sglang)
    )
    ended = [record for record in same if record.ready_after_s is not None or record.cause is not None]
    if not ended or ended[0].ready_after_s is not None or not Failure(ended[0].cause or "unknown", "").certain:
        return None
    last = ended[0]
    times = sum(record.cause == last.cause for record in ended)
    often = f", {times} times" if times > 1 else ""
    day = one_line(last.launched_at, 10)
    text = f"the same configuration crashed here with {last.cause} on {day}{often}"
    return _block("crashed", text, f"eagletui diagnose {last.run_id} says why; change the arm")


def _block(check: str, text: str, hint: str | None = None) -> Finding:
    return Finding(check, Level.BLOCK, one_line(text), hint=hint)


def _warn(check: str, text: str, hint: str | None = None) -> Finding:
    return replace(_block(check, text, hint), level=Level.WARN)


def _of_preflight(arm: ArmAhead, *, memory_told: bool) -> Iterator[Finding]:
    """What the host says; a forecast that dooms the arm is not said twice."""
    if arm.plan is None:
        yield replace(_block("preflight", arm.error or "it cannot be planned"), arm=arm.letter)
    for finding in arm.findings:
        if finding.check != "memory" or not memory_told:
            yield replace(finding, arm=arm.letter)


# -- the bench --------------------------------------------------------------------------------------------------------


def _of_bench(asked: _Asked, rates: Rates) -> Iterator[Finding]:
    bench = asked.bench
    if bench.search is None and bench.duration_s < WINDOW_S:
        text = f"a window of {bench.duration_s:g} s: a run counts from {WINDOW_S:g} s on"
        yield _block("window", text, f"set duration_s={WINDOW_S:g} or more")
    for letter, launch in asked.wanted.launches.items():
        limit = as_whole(launch.arg("max-running-requests")) or (_DRAFTED_REQUESTS if speculates(launch) else None)
        for point in bench.points:
            if limit is not None and point.concurrency is not None and point.concurrency > limit:
                text = f"the server runs {limit} requests at once: of {point.concurrency} users the rest wait"
                yield replace(_warn("users", text, "raise max-running-requests, or ask for fewer users"), arm=letter)
    for (letter, point), rate in rates.items():
        if point.search is None and point.concurrency is not None:
            yield replace(_feasible(bench, point, point.concurrency, rate), arm=letter)


def _feasible(bench: BenchProfile, point: LoadPoint, users: int, rate: float) -> Finding:
    """Whether a run gets the tokens that it needs, as fast as the server was."""
    tokens = users * rate * bench.duration_max_s
    load = amount_words(point.concurrency, point.rate)
    if tokens < WINDOW_TOKENS:
        text = (
            f"{load}: at {rate:.3g} tok/s {bench.duration_max_s:g} s bring {tokens:.0f} tokens, {WINDOW_TOKENS} count"
        )
        return _block("feasible", text, "set a larger duration_s")
    begun = users + int(users * rate * bench.duration_s / bench.output_len)
    text = f"{load}: at {rate:.3g} tok/s a run of {bench.duration_s:g} s begins {begun} requests"
    return Finding("feasible", Level.OK, text)


# -- the arms beside each other ---------------------------------------------------------------------------------------


def _between(asked: _Asked, *, aa: bool) -> Iterator[Finding]:
    launches = asked.wanted.launches
    for a, b in combinations(launches, 2) if not aa else ():
        if configuration_sum(launches[a]) == configuration_sum(launches[b]):
            text = f"{b} launches exactly what {a} does: their difference is noise"
            yield _block("same", text, "change the arm; eagletui bench aa measures noise")
    for word, of_arms in (
        ("models", {letter: launch.arg("model-path") for letter, launch in launches.items()}),
        ("SGLang", asked.versions),
        ("numbers of GPUs", {k: len(x.gpus) for k, x in launches.items() if x.gpus is not None}),
        ("hosts", {k: ", ".join(x.nodes.hosts) for k, x in launches.items() if x.nodes is not None}),
    ):
        if len(set(of_arms.values())) > 1:
            each = ", ".join(f"{letter} {value}" for letter, value in of_arms.items())
            yield _warn("unlike", f"the arms differ in {word}: {each}", "the verdict is about that, too")


# -- pairs and time ---------------------------------------------------------------------------------------------------


def _of_pairs(wanted: Wanted, ends_s: Sequence[float]) -> Iterator[Finding]:
    profile = wanted.profile
    if profile.pairs < pairing.L2_LAUNCHES:
        text = f"{count(profile.pairs, 'pair')}: a screening, never a verdict"
        yield _warn("pairs", text, f"--pairs {pairing.L2_LAUNCHES} or more")
    if profile.budget_h is not None:
        fit = sum(end_s <= profile.budget_h * 3600 for end_s in ends_s)
        if fit < len(ends_s):
            text = f"{profile.budget_h:g} h are enough for {fit} of {len(ends_s)} launches"
            yield _warn("budget", text, "fewer pairs, or a larger --budget")
