"""What the comparison says: one sentence an arm, with its level of replication."""

import re
from typing import ClassVar

from tui import format as fmt
from tui.core.model.experiment import ArmStatus
from tui.core.model.verdict import VerdictKind
from tui.core.text import one_line
from tui.core.verdicts.same_text import mark
from tui.core.verdicts.sentences import answer_words, limits_words
from tui.panel.bench_view import ArmView, Comparison
from tui.panel.widgets.paint import Canvas, Painted, Run, cells, clip_runs, join, width_of, words

GLYPHS = {
    VerdictKind.FASTER: ("↑", "ok"),
    VerdictKind.SLOWER: ("↓", "warn"),
    VerdictKind.LOOKS_FASTER: ("↗", "text"),
    VerdictKind.LOOKS_SLOWER: ("↘", "text"),
    VerdictKind.EQUIVALENT: ("≡", "text"),
    VerdictKind.INDISTINCT: ("≈", "text"),
    VerdictKind.INVALID: ("✗", "err"),
}
_SCREENING = "A screening gives no verdict"
_CONFIRMED = ": its best is confirmed or refuted on fresh launch pairs with A"
_PARTS = re.compile(r"([^(]*?)\s*(\([^()]*\))(.*)")


def sentence(text: str) -> tuple[str, str, str]:
    """A verdict's first line in three: what it says, its interval in brackets, and what follows."""
    first = one_line(text.split("\n")[0])
    match = _PARTS.fullmatch(first)
    if match is None:
        return first, "", ""
    return match.group(1), match.group(2), match.group(3).strip()


def sentence_runs(glyph: Run, text: str, width: int) -> list[Run]:
    """A sentence in at most `width` cells: what is in brackets gives way first, then what follows it."""
    said, interval, rest = sentence(text)
    head: list[Run] = [glyph, (said, "strong!")]
    tail: list[Run] = [(rest if rest[0] in ".,;:" else f"   {rest}", "text")] if rest else []
    apart = "   " if rest and rest[0] not in ".,;:" else " "
    middle: list[Run] = [(f"{apart}{interval}", "muted")] if interval else []
    for runs in ([*head, *middle, *tail], [*head, *tail], [*head, *middle], head):
        if width_of(runs) <= width:
            return runs
    return words(head, width)


def verdict_runs(view: ArmView, pairs: int, width: int) -> list[Run]:
    """What there is to say of an arm against another, in at most `width` cells."""
    if view.verdict is not None:
        glyph, color = ("◐", "accent") if view.waiting else GLYPHS[view.verdict.verdict]
        found, text = view.verdict.same_text, view.verdict.text
        if found is None or not found.changes:
            return sentence_runs((f"{glyph} ", color), text, width)
        warning: Run = (mark(view.letter), "warn!")
        said = sentence_runs((f"{glyph} ", color), text.removesuffix(warning[0]), width - cells(warning[0]))
        return [*said, warning]
    if view.arm.status in (ArmStatus.FAILED, ArmStatus.SKIPPED):
        glyph, color = ("✗", "err") if view.arm.status is ArmStatus.FAILED else ("–", "muted")
        why = one_line(view.arm.reason or (view.arm.cause or "").replace("_", " "))
        head: list[Run] = [(f"{glyph} ", color), (f"{view.letter}: no result", "strong!")]
        return words([*head, (f"   {why}" if why else "", "text")], width)
    glyph, color = ("◐", "accent") if view.results or view.live else ("○", "muted")
    return sentence_runs((f"{glyph} ", color), pending(view, max(1, pairs)), width)


def pending(view: ArmView, needed: int) -> str:
    """Why there is no verdict yet."""
    noun = "launch pair" if needed == 1 else "launch pairs"
    text = f"{view.letter} against {view.arm.against}: {needed} {noun} needed for a verdict, {view.pairs} measured"
    if view.ratio is None:
        return text
    share = (view.ratio - 1) * 100
    return f"{text}. So far {fmt.decimals(abs(share), 1)} % {'higher' if share >= 0 else 'lower'}: screening only"


def alone(view: ArmView) -> list[Run]:
    """A single arm is no comparison; what its runs amount to, or its search found."""
    answered = next((r.capacity for r in reversed(view.results) if r.capacity is not None), None)
    if answered is not None:
        said = f"{view.letter} {answer_words(answered)}"
        return [("· ", "muted"), (said, "strong!"), (f", with {limits_words(answered.search.limits)}", "text")]
    level = view.level
    if level == "L0":
        said = "a single run has no error bar"
    elif level == "L1":
        said = f"{fmt.plural(view.valid, 'run')} on one launch: how much a restart changes is not measured"
    elif level == "L2":
        said = f"{len(view.launches)} launches"
    else:
        said = f"{fmt.plural(view.valid, 'run')} so far" if view.valid else "no run is complete yet"
    if view.none_counts:
        said = f"none of {fmt.plural(len(view.results), 'run')} counts, Enter says why"
    return [("· ", "muted"), ("One configuration, nothing to compare it with", "strong!"), (f": {said}", "text")]


def _judged(comparison: Comparison) -> list[ArmView]:
    """The arms that get a verdict: of a screening, the one that it chose."""
    if any(comparison.state.rungs):
        return [view for view in comparison.arms if view.letter == comparison.state.finalist]
    return [view for view in comparison.arms if view.arm.against is not None]


class VerdictStrip(Painted):
    """A title and a row a verdict, on `surface`."""

    GROUND = "surface"
    DEFAULT_CSS: ClassVar[str] = "VerdictStrip { height: 1; width: 100%; }"

    def __init__(self) -> None:
        super().__init__(id="verdicts")
        self.comparison: Comparison | None = None
        self.selected: str | None = None

    def show(self, comparison: Comparison | None, selected: str | None) -> None:
        """Another state of the verdicts; the row of the selected arm stays where rows are few."""
        self.comparison, self.selected = comparison, selected

    @staticmethod
    def wanted_height(comparison: Comparison) -> int:
        """Title and a row a compared arm."""
        return 1 + max(1, len(_judged(comparison)))

    def draw(self, canvas: Canvas) -> None:
        comparison = self.comparison
        if comparison is None:
            return
        end = canvas.width - 1
        canvas.put(1, 0, "Verdict", "strong!")
        facts = self._facts(comparison)
        while facts and width_of(join(facts)) > end - 10:
            facts.pop()
        canvas.right_runs(end, 0, clip_runs(join(facts), end - 10))
        views = _judged(comparison)
        if any(comparison.state.rungs) and not views:
            runs = words([("○ ", "muted"), (_SCREENING, "strong!"), (_CONFIRMED, "text")], end - 2)
            canvas.runs(1, 1, runs)
        elif not views and comparison.arms:
            canvas.runs(1, 1, words(alone(comparison.arms[0]), end - 5))
            canvas.right(end, 1, comparison.arms[0].level or fmt.NONE, "strong!")
        rows = canvas.height - 1
        if len(views) > rows:
            views = sorted(views, key=lambda view: view.letter != self.selected)[:rows]
        for row, view in enumerate(views, 1):
            level = view.level or fmt.NONE
            canvas.right(end, row, level, "strong!" if view.level else "muted")
            room = end - 1 - cells(level) - 2
            canvas.runs(1, row, verdict_runs(view, comparison.state.pairs, room))

    def _facts(self, comparison: Comparison) -> list[list[Run]]:
        floors = [v.noise_floor for v in comparison.state.verdicts if v.noise_floor is not None]
        facts: list[list[Run]] = []
        if floors:
            share = fmt.decimals(floors[0] * 100, 1)
            facts.append([("host noise floor ", "muted"), (f"±{share} %", "text")])
        if any(view.arm.against is not None for view in comparison.arms):
            facts.append([("paired by launch, t on log ratio", "muted")])
        return facts
