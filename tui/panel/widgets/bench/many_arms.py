"""More arms than stand side by side: every launch in a row, a table with a row an arm, and why each is where it is."""

from collections.abc import Sequence
from typing import ClassVar

from tui import format as fmt
from tui.core.model.experiment import ArmStatus, ExperimentState
from tui.core.model.profile import SIDE_BY_SIDE
from tui.core.model.verdict import VerdictKind
from tui.core.text import one_line
from tui.panel.bench_view import UNDER_WAY, ArmView, Comparison, per_user
from tui.panel.widgets.bench.arm_card import ratio_color, status
from tui.panel.widgets.bench.of_comparison import OfComparison
from tui.panel.widgets.paint import Canvas, Run, width_of, words

_WIDE = 120  # columns: from here on the bar, and the reason beside its arm
_BAR = 18
_MARKS = {
    ArmStatus.MEASURED: ("●", "text"),
    ArmStatus.FAILED: ("✗", "err"),
    ArmStatus.SKIPPED: ("–", "muted"),
    ArmStatus.QUEUED: ("○", "muted"),
}


def many(comparison: Comparison | None) -> bool:
    """Whether these arms are shown in a table, whatever the width."""
    return comparison is not None and len(comparison.arms) > SIDE_BY_SIDE


def stage(state: ExperimentState) -> list[Run]:
    """Where a screening is: `screening, rung 2`, `confirming B`."""
    if state.finalist is not None:
        return [("confirming ", "muted"), (f"{state.finalist} against A", "text")]
    rungs = [rung for rung in state.rungs if rung is not None]
    return [("screening, ", "muted"), (f"rung {max(rungs)}", "text")] if rungs else []


def outcome(view: ArmView, state: ExperimentState) -> Run:
    """Glyph and words of where an arm is, in a word or two."""
    arm = view.arm
    if arm.status in UNDER_WAY:
        glyph, word, color = status(view, paused=state.paused)
        phase = f", {arm.phase.replace('_', ' ')}" if arm.phase and arm.status is ArmStatus.LAUNCHING else ""
        return f"{glyph} {word.lower()}{phase}", color
    if arm.status is ArmStatus.FAILED:
        return f"✗ {one_line(arm.cause or 'failed', 30)}", "err"
    if arm.dropped:
        return "↓ left behind", "muted"
    if view.letter == state.finalist:
        kind = view.verdict.verdict if view.verdict is not None and state.finished else None
        said = {VerdictKind.FASTER: ("↑ best, confirmed", "ok"), VerdictKind.SLOWER: ("↓ slower", "warn")}
        return said.get(kind, ("◆ chosen", "text")) if kind else ("◆ chosen", "accent")
    if arm.status is ArmStatus.MEASURED or arm.launches_done:
        return "● measured", "text"
    return "○ queued" if arm.status is ArmStatus.QUEUED else "– skipped", "muted"


def why(view: ArmView) -> str:
    """One sentence of why an arm is where it is; "" where there is none."""
    if view.arm.status is ArmStatus.FAILED:
        return one_line(view.arm.reason or "")
    if view.arm.dropped:
        return one_line(view.arm.dropped)
    return one_line(view.changes)


def level(view: ArmView) -> str:
    """Of what there is so far, a screening too."""
    if view.verdict is None or view.verdict.verdict is VerdictKind.INVALID or not view.verdict.n_pairs:
        return view.level or fmt.NONE
    return view.verdict.level


class ManyArms(OfComparison):
    """The launches, and the arms in a table whose rows follow the selected one where there are more than fit."""

    ID = "manyarms"
    DEFAULT_CSS: ClassVar[str] = "ManyArms { height: 1fr; width: 100%; }"

    def __init__(self) -> None:
        super().__init__()
        self.selected: str | None = None

    @staticmethod
    def wanted_height(comparison: Comparison, width: int, room: int) -> int:
        """Rows for so many columns, at most `room`."""
        strip = 3 if width >= _WIDE else 1
        return min(room, strip + 1 + len(comparison.arms) + (0 if width >= _WIDE else 2))

    def draw(self, canvas: Canvas) -> None:
        comparison = self.comparison
        if comparison is None:
            return
        wide = canvas.width >= _WIDE
        y = 0
        if wide:
            canvas.title(1, 0, canvas.width - 2, "Launches", stage(comparison.state))
            y = 1
        self._strip(
            canvas, y, comparison.state, [view.arm.letter for view in comparison.arms if view is comparison.live]
        )
        y += 2 if wide else 1
        foot = 0 if wide else 2
        self._table(canvas, y, canvas.height - foot, comparison, wide)
        chosen = comparison.arm(self.selected)
        if foot and chosen is not None and why(chosen):
            runs: list[Run] = [(f"{chosen.letter}  ", "strong!"), (why(chosen), "text")]
            canvas.runs(1, canvas.height - 1, words(runs, canvas.width - 2))

    # -- launches --------------------------------------------------------------------------------------------------

    @staticmethod
    def _strip(canvas: Canvas, y: int, state: ExperimentState, live: Sequence[str]) -> None:
        groups: list[tuple[str, list[Run]]] = []
        for number, letter in enumerate(state.order[: len(state.statuses)]):
            rung = state.rungs[number]
            name = f"rung {rung}" if rung is not None else "fresh pairs" if any(state.rungs) else "all"
            if not groups or groups[-1][0] != name:
                groups.append((name, []))
            now = number == state.at and letter in live
            mark = ("◐", "accent") if now else _MARKS.get(state.statuses[number], _MARKS[ArmStatus.QUEUED])
            groups[-1][1].extend([mark, (f"{letter} ", "strong!" if now else "muted")])
        runs: list[Run] = []
        for name, marks in groups:
            runs += [(f"{name} ", "muted"), *marks, ("  ", "muted")]
        room = canvas.width - 2
        while groups and width_of(runs) > room and len(runs) > 3:
            runs = [("… ", "muted"), *runs[3:]]
        canvas.runs(1, y, words(runs, room))

    # -- arms ------------------------------------------------------------------------------------------------------

    def _table(self, canvas: Canvas, y: int, end: int, comparison: Comparison, wide: bool) -> None:
        arms = comparison.arms
        names = [_named(view, arms) for view in arms]
        name_w = min(max(len(name) for name in names), 34 if wide else 22)
        state_w = 26 if wide else 20
        at = {"letter": 1, "name": 5, "outcome": 5 + name_w + 2}
        at["tok/s"] = at["outcome"] + state_w + 6
        at["bar"] = at["tok/s"] + 3
        at["ratio"] = (at["bar"] + _BAR + 8) if wide else at["tok/s"] + 8
        at["lv"] = at["ratio"] + 5
        for name in ("name", "outcome"):
            canvas.put(at[name], y, "profile" if name == "name" else name, "muted")
        for name in ("tok/s", "ratio", "lv"):
            canvas.right(at[name], y, name, "muted")
        if wide and at["lv"] + 12 < canvas.width:
            canvas.put(at["lv"] + 3, y, "why", "muted")
        rows = max(0, end - y - 1)
        chosen = next((number for number, view in enumerate(arms) if view.letter == self.selected), 0)
        first = max(0, min(chosen - rows // 2, len(arms) - rows))
        top = max((view.tok_s or 0.0 for view in arms), default=0.0)
        for row, view in enumerate(arms[first : first + rows], y + 1):
            ground = "/raised" if view.letter == self.selected else ""
            if ground:
                canvas.fill(0, row, canvas.width, 1, "raised")
            self._row(canvas, row, at, view, names[arms.index(view)], ground, name_w, state_w)
            if wide and view.tok_s and top:
                canvas.bar(at["bar"], row, _BAR, view.tok_s / top)
            if wide:
                canvas.runs(at["lv"] + 3, row, words([(why(view), "muted" + ground)], canvas.width - at["lv"] - 4))

    def _row(
        self,
        canvas: Canvas,
        y: int,
        at: dict[str, int],
        view: ArmView,
        name: str,
        ground: str,
        name_w: int,
        state_w: int,
    ) -> None:
        assert self.comparison is not None
        canvas.put(1, y, view.letter, f"{view.color}!{ground}")
        canvas.put(at["name"], y, name, ("strong!" if ground else "text") + ground, name_w)
        said, color = outcome(view, self.comparison.state)
        canvas.put(at["outcome"], y, said, color + ground, state_w)
        figure = _figure(self.comparison, view)
        canvas.right(at["tok/s"], y, fmt.tok_s(figure), f"strong!{ground}")
        ratio = "ref" if view.arm.against is None else fmt.ratio(view.ratio)
        canvas.right(at["ratio"], y, ratio, ("muted" if ratio == "ref" else ratio_color(view)) + ground)
        canvas.right(at["lv"], y, level(view), "muted" + ground)


def _figure(comparison: Comparison, view: ArmView) -> float | None:
    """Tok/s of an arm; of the two that a verdict compares, from the launches that it rests on."""
    state = comparison.state
    final = next((one for one in state.verdicts if state.finalist and one.b.ref == state.finalist), None)
    sides = {side.ref: side.tok_s for side in (final.a, final.b)} if final is not None and final.level == "L2" else {}
    if (said := sides.get(view.letter)) is not None:
        return said
    return view.tok_s if view.tok_s is not None else per_user(view.live) if view.live is not None else None


def _named(view: ArmView, arms: Sequence[ArmView]) -> str:
    """What tells an arm from the others: of one profile with several overrides, those."""
    alike = sum(other.title == view.title for other in arms) > 1
    return (view.changes if alike and view.changes else view.title) or fmt.NONE
