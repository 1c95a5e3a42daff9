"""A campaign as a stranger reads it, in Markdown: what was tried, what won and how sure, what was slower, what failed and why.

Knows a record with its results; must not know who asks. What comes from a host or a profile is escaped.
"""

from collections.abc import Mapping

from tui.core.errors import UsageError
from tui.core.experiment.export.markdown import escaped
from tui.core.experiment.record import Dropped, ExperimentRecord
from tui.core.experiment.screening import ending
from tui.core.experiment.so_far import side_of_arm
from tui.core.masking.written import mask_text
from tui.core.model.experiment import ArmState, ArmStatus, ExperimentState
from tui.core.model.profile import REFERENCE
from tui.core.model.verdict import Verdict, VerdictKind
from tui.core.speculation.from_results import payoff
from tui.core.verdicts.pairing import Side
from tui.core.verdicts.sentences import about, count, sets_words, two

_SPEED = "EAGLETUI_DEMO_SPEED"
_OUTCOME = {
    VerdictKind.FASTER: "What won, and how sure",
    VerdictKind.SLOWER: f"Nothing beats {REFERENCE}",
    VerdictKind.EQUIVALENT: f"Nothing beats {REFERENCE} by more than the margin",
    VerdictKind.INDISTINCT: "Nothing won for sure",
}


def report(record: ExperimentRecord, state: ExperimentState, hopes: Mapping[str, str | None]) -> str:
    """The Markdown of a halving, over or not.

    Args:
        state: of the same moment.
        hopes: by letter, what each arm's profile hopes for.
    """
    arms = {arm.letter: arm for arm in state.arms}
    dropped = {one.arm: one for one in record.dropped}
    failed = [arm for arm in state.arms if arm.status is ArmStatus.FAILED]
    slower = [arms[one.arm] for one in record.dropped if arms[one.arm] not in failed]
    lines = [f"# {escaped(record.name)} on {escaped(record.host)}", "", *_simulated(state)]
    lines += [f"Question: {escaped(text)}?" for text in (record.profile.hypothesis,) if text]
    lines += ["", _extent(record, arms[REFERENCE])]
    lines += _confirmed(record, state)
    if slower:
        lines += ["", "## What was not faster", ""]
        lines += ["Screened, so these are no verdicts: who was left behind, and when.", ""]
        lines += [_left_behind(record, state, arm, dropped[arm.letter], hopes.get(arm.letter)) for arm in slower]
    if failed:
        lines += ["", "## What failed, and why", "", *(_dead_end(record, arm, hopes.get(arm.letter)) for arm in failed)]
    return mask_text("\n".join(lines))


def _simulated(state: ExperimentState) -> list[str]:
    speeds = {result.server.env.get(_SPEED) for arm in state.arms for result in arm.results} - {None}
    if not speeds:
        return []
    speed = escaped(" and ".join(sorted(map(str, speeds))))
    return [
        f"SIMULATED host: its figures are computed, and time is compressed, loading is {speed} times as fast as it "
        "would be. Tokens take their real time.",
        "",
    ]


def _extent(record: ExperimentRecord, reference: ArmState) -> str:
    made = [cell for cell in record.cells if cell.run_id is not None]
    fresh = sum(cell.rung is None for cell in made)
    took = f" in {about(record.spent_s)}" if record.spent_s else ""
    return (
        f"{len(record.profile.arms)} configurations, {count(len(made), 'launch', 'launches')}{took}: "
        f"{len(made) - fresh} to choose one, {fresh} to confirm it. All are compared with {_name(reference)}. "
        f"Measured with {escaped(record.bench.name)}, seed {record.seed}."
    )


def _confirmed(record: ExperimentRecord, state: ExperimentState) -> list[str]:
    verdicts = [one for one in state.verdicts if record.finalist is not None and one.b.ref == record.finalist]
    if not verdicts:
        words = ending(record) if state.finished else "the screening is under way"
        return ["", "## Nothing was confirmed", "", f"{words[0].upper()}{words[1:]}."]
    arm = next(arm for arm in state.arms if arm.letter == record.finalist)
    lines = ["", f"## {_OUTCOME.get(verdicts[0].verdict, 'No verdict')}", "", f"**{_name(arm)}**"]
    for verdict in verdicts:
        lines += ["", escaped(verdict.text), *_limits(verdict)]
    fresh = sum(cell.rung is None and cell.run_id is not None for cell in record.cells)
    lines += [
        "",
        f"This rests on {count(fresh, 'launch', 'launches')} made after {arm.letter} was chosen, none of which had a part in "
        "the choice: the best of several looks better than it is, so the figures that chose it are not used.",
    ]
    return lines


def _limits(verdict: Verdict) -> list[str]:
    return [f"- {escaped(text)}" for text in (*verdict.facts, *verdict.reasons)]


def _left_behind(
    record: ExperimentRecord, state: ExperimentState, arm: ArmState, one: Dropped, hope: str | None
) -> str:
    said = f"- **{_name(arm)}**: {escaped(one.reason)}; left behind on rung {one.rung}."
    return said + _pays(record, state, arm) + _hoped(hope)


def _pays(record: ExperimentRecord, state: ExperimentState, arm: ArmState) -> str:
    """Whether speculation pays in an arm, against the best that does not speculate; "" where nothing says it."""
    won = any(one.b.ref == record.finalist and one.verdict is VerdictKind.FASTER for one in state.verdicts)
    results = [result for other in state.arms for result in other.results]
    for letter in (record.finalist, REFERENCE) if won else (REFERENCE,):
        try:
            base, spec = (side_of_arm(record, name, results) for name in (letter or REFERENCE, arm.letter))
            found = payoff(_plain(base), spec).economics
        except UsageError:
            continue
        if found.tau is not None:
            verb = "pays" if found.tau > found.breakeven_tau else "does not pay"
            return (
                f" Speculation {verb}: {two(found.tau)} tokens a step are accepted, against {letter} it pays from "
                f"{two(found.breakeven_tau)}."
            )
    return ""


def _plain(side: Side) -> Side:
    return Side(side.name, side.ref, side.results)


def _dead_end(record: ExperimentRecord, arm: ArmState, hope: str | None) -> str:
    cells = [cell for cell in record.cells if cell.arm == arm.letter and cell.status is ArmStatus.FAILED]
    where = f" in {escaped(arm.phase.replace('_', ' '))}" if arm.phase else ""
    said = f"- **{_name(arm)}**: {escaped(arm.cause or 'unknown')}{where}, {_times(len(cells))}: {_ended(arm.reason or '')}"
    advice = next((cell.advice[0] for cell in cells if cell.advice), None)
    return said + (f" Advice: {_ended(advice)}" if advice else "") + _hoped(hope)


def _times(number: int) -> str:
    return "once" if number == 1 else "twice" if number == 2 else f"{number} times"


def _hoped(hope: str | None) -> str:
    return f" Hoped: {_ended(hope)}" if hope else ""


def _ended(text: str) -> str:
    """A sentence with its full stop, however it came."""
    return escaped(text).rstrip(" .") + "."


def _name(arm: ArmState) -> str:
    sets = f" with {sets_words(arm.sets)}" if arm.sets else ""
    return f"{arm.letter}, {escaped(arm.profile + sets)}"
