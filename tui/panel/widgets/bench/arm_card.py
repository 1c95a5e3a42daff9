"""The arms of a comparison: a card each, side by side; below 100 columns a row each, and the selected one in depth."""

from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar

from tui import format as fmt
from tui.core.model.experiment import ArmStatus, LiveRun
from tui.core.model.result import Distribution, Result
from tui.core.model.verdict import VerdictKind
from tui.core.text import one_line
from tui.core.verdicts.sentences import answer_words
from tui.panel.bench_view import UNDER_WAY, ArmView, Comparison, Launch, Mark, SearchedLoad, per_user
from tui.panel.widgets.bench import chart
from tui.panel.widgets.paint import Canvas, Painted, Run, cells, join, width_of, words, wrap

CARDS_FROM = 100  # columns
_GAP = 2
_PAIRED = 34  # columns of a card that holds two figures a row
_DOTS = {
    Mark.MEASURED: ("●", "text"),
    Mark.INVALID: ("✗", "err"),
    Mark.LIVE: ("◐", "accent"),
    Mark.QUEUED: ("○", "muted"),
    Mark.SKIPPED: ("–", "muted"),
}
_STATUS = {
    ArmStatus.QUEUED: ("○", "QUEUED", "muted"),
    ArmStatus.LAUNCHING: ("◐", "STARTING", "accent"),
    ArmStatus.RUNNING: ("◐", "RUNNING", "accent"),
    ArmStatus.MEASURED: ("✓", "DONE", "ok"),
    ArmStatus.FAILED: ("✗", "FAILED", "err"),
    ArmStatus.SKIPPED: ("–", "SKIPPED", "muted"),
}
SERIES_S = 120  # most seconds that a live run carries


def status(view: ArmView, *, paused: bool = False) -> tuple[str, str, str]:
    """Glyph, word and colour of where an arm is."""
    if view.arm.status is ArmStatus.RUNNING:
        if paused:
            return "■", "PAUSED", "warn"
        if view.arm.live is not None and view.arm.live.phase == "warmup":
            return "◐", "WARM-UP", "accent"
    if view.arm.status is ArmStatus.QUEUED and view.arm.launches_done:
        return "○", "WAITING", "muted"
    if view.arm.status is ArmStatus.MEASURED and view.none_counts:
        return "✗", "NONE COUNTS", "err"
    return _STATUS[view.arm.status]


def ratio_color(view: ArmView) -> str:
    """Green and amber only for what is faster or slower; the number says it too."""
    if view.ratio is None:
        return "muted"
    kind = view.verdict.verdict if view.verdict is not None else None
    return "ok" if kind is VerdictKind.FASTER else "warn" if kind is VerdictKind.SLOWER else "text"


def dots(launches: Sequence[Launch], room: int) -> list[Run]:
    """One mark a run, launches apart; closer together where there is less room, and the newest ones where there is none."""
    groups = [[_DOTS[run.mark] for run in launch.runs] for launch in launches if launch.runs]
    for between, apart in ((" ", "   "), ("", "  "), ("", " ")):
        runs: list[Run] = []
        for number, group in enumerate(groups):
            runs += [(apart, "text")] if number else []
            for position, mark in enumerate(group):
                runs += [(between, "text")] if position and between else []
                runs.append(mark)
        if width_of(runs) <= room:
            return runs
    while groups and width_of(runs) > room - 2:
        groups = groups[1:]
        runs = [mark for group in groups for mark in (*group, (" ", "text"))]
    return [("… ", "muted"), *runs[:-1]] if groups else [("…", "muted")]


def figures(view: ArmView) -> tuple[tuple[str, str, str], ...]:
    """Label, value and unit of an arm's figures, in the order they are shown."""
    power, unit = fmt.whole(view.power_w), "W"
    if view.power_w is not None and view.power_w >= 1000:
        power, unit = fmt.decimals(view.power_w / 1000, 2), "kW"
    return (
        ("accept", fmt.accept(view.accept), ""),
        ("cycle", fmt.decimals(view.cycle_ms, 1), "ms"),
        ("TPOT p50", fmt.decimals(view.tpot_ms, 2), "ms"),
        ("TTFT", fmt.whole(view.ttft_ms), "ms"),
        ("power", power, unit),
        ("memory", fmt.gib(view.memory_mib), "GiB"),
        ("level", view.level or fmt.NONE, ""),
    )


def guard_runs(view: ArmView, *, short: bool = False) -> list[Run]:
    """`✓ 9 of 9 valid`; what does not count is marked by more than a colour."""
    done, valid = len(view.results), view.valid
    if not done:
        return [(fmt.NONE, "text")]
    glyph: Run = ("✓ ", "ok") if valid == done else ("✗ ", "err")
    words_ = f"{valid}/{done}" if short else f"{valid} of {done} valid"
    return [glyph, (words_, "text" if valid == done else "strong!")]


def run_place(view: ArmView, result: Result) -> str:
    """`run 2 of launch 3`, as the dots count."""
    for number, launch in enumerate(view.launches, 1):
        for position, other in enumerate(launch.results, 1):
            if other.result_id == result.result_id:
                return f"run {position} of launch {number}" if len(view.launches) > 1 else f"run {position}"
    return "a run"


def note(view: ArmView, *, card: bool) -> list[Run]:
    """What deserves a look on an arm: the guard that failed, or, where no card says it, why it has no result."""
    head: Run = (f"{view.letter} ", f"{view.color}!")
    on_card = card and not view.results
    if view.arm.status in (ArmStatus.FAILED, ArmStatus.SKIPPED) and view.arm.reason and not on_card:
        glyph: Run = ("✗ ", "err") if view.arm.status is ArmStatus.FAILED else ("– ", "muted")
        return [glyph, head, (one_line(view.arm.reason), "text")]
    fault = view.fault
    if fault is not None:
        result, guard = fault
        more = len(view.results) - view.valid - 1
        others = f"; so {'does' if more == 1 else 'do'} {more} more" if more else ""
        said = f"{run_place(view, result)} does not count{others}: {one_line(guard.text)}"
        return [("✗ ", "err"), head, (said, "text")]
    suspicious = next((text for result in view.results for text in result.suspicious), None)
    if suspicious is not None:
        return [("▲ ", "warn"), head, (one_line(suspicious), "text")]
    return []


def _folded(runs: Sequence[Run], width: int) -> list[list[Run]]:
    """A note in two rows at most; the second hangs under its sentence."""
    *head, (said, spec) = runs
    hang = width_of(head)
    first, *rest = wrap(said, max(10, width - hang))
    rows: list[list[Run]] = [[*head, (first, spec)]]
    if rest:
        rows.append([(" " * hang, spec), *words([(" ".join(rest), spec)], max(10, width - hang))])
    return rows


class Arms(Painted):
    """Up to four arms of a comparison."""

    DEFAULT_CSS: ClassVar[str] = "Arms { height: 1fr; width: 100%; }"

    def __init__(self) -> None:
        super().__init__(id="arms")
        self.comparison: Comparison | None = None
        self.selected: str | None = None

    def show(self, comparison: Comparison | None, selected: str | None) -> None:
        """Another state of the arms, or another one selected; drawn with the next `repaint`."""
        self.comparison, self.selected = comparison, selected

    def wanted_height(self, comparison: Comparison, width: int, room: int) -> int:
        """Rows for so many columns, at most `room`."""
        noted = max((len(rows) for rows in self._notes(comparison, width).values()), default=0)
        live = comparison.live is not None
        if width < CARDS_FROM:
            return min(room, 1 + len(comparison.arms) + 2 + (1 if live else 0) + noted)
        paired = self._card_width(width, len(comparison.arms)) >= _PAIRED
        rows = 6 + (4 if paired else 8) + (2 if live else 0) + (2 if paired else 0)
        return min(room, rows + noted)

    @staticmethod
    def _notes(comparison: Comparison, width: int) -> dict[str, list[list[Run]]]:
        """Rows of what deserves a look, by arm: as many for the longest as fit, two at most."""
        found = {view.letter: note(view, card=width >= CARDS_FROM) for view in comparison.arms}
        return {letter: _folded(runs, width - 2) for letter, runs in found.items() if runs}

    @staticmethod
    def _card_width(width: int, count: int) -> int:
        # one arm does not get figures at two ends of the screen
        return min(50, (width - 2 - _GAP * (count - 1)) // max(1, count))

    def draw(self, canvas: Canvas) -> None:
        comparison = self.comparison
        if comparison is None:
            return
        selected = comparison.arm(self.selected)
        notes = self._notes(comparison, canvas.width)
        rows = canvas.height - max((len(lines) for lines in notes.values()), default=0)
        if notes:
            shown = notes.get(self.selected or "", next(iter(notes.values())))
            for offset, line in enumerate(shown):
                canvas.runs(1, rows + offset, line)
        if canvas.width < CARDS_FROM:
            self._table(canvas, rows, comparison, selected)
            return
        width = self._card_width(canvas.width, len(comparison.arms))
        for number, view in enumerate(comparison.arms):
            x = 1 + number * (width + _GAP)
            if view is selected and len(comparison.arms) > 1:
                for y in range(rows):
                    canvas.put(x - 1, y, "▌", view.color)
            self._card(canvas, x, width, rows, view)
        if len(comparison.arms) == 1 and canvas.width - width >= 66:
            beside = width + 6
            draw = self._loads if len(comparison.state.bench.points) > 1 else self._runs
            if comparison.state.bench.search is not None:
                draw = self._searched
            draw(canvas, beside, min(canvas.width - 1 - beside, 84), rows, comparison)

    # -- cards -----------------------------------------------------------------------------------------------------

    def _card(self, canvas: Canvas, x: int, width: int, rows: int, view: ArmView) -> None:
        assert self.comparison is not None
        end = x + width
        paused = self.comparison.state.paused
        glyph, word, color = status(view, paused=paused)
        begin = canvas.right_runs(end, 0, [(f"{glyph} ", color), (word, "text" if color == "ok" else color)])
        at = canvas.put(x, 0, view.letter, f"{view.color}!") + 2
        at = canvas.put(at, 0, view.title, "strong!", begin - at - 1)
        canvas.put(at + 1, 0, "─" * (begin - at - 2), view.color if view.arm.status in UNDER_WAY else "line")
        canvas.runs(x, 1, words([(view.changes, "muted")], width))
        paired = width >= _PAIRED
        spare = rows - (6 + (4 if paired else 8) + (2 if self.comparison.live is not None else 0))
        y = 2 + (1 if spare >= 1 else 0)
        if view.arm.status in (ArmStatus.FAILED, ArmStatus.SKIPPED) and not view.results:
            self._no_result(canvas, x, y, width, rows, view)
            return
        self._headline(canvas, x, y, width, view)
        y += 3 + (1 if spare >= 2 else 0)
        count: list[Run] = [(f"{len(view.results)} of {view.planned} runs", "muted")]
        begin = canvas.right_runs(end, y, count)
        canvas.runs(x, y, dots(view.launches, begin - x - 1))
        y += 1
        if paired:
            self._pairs(canvas, x, y, width, view)
            y += 4
        else:
            for offset, (label, value, unit) in enumerate(figures(view)):
                canvas.put(x, y + offset, label, "muted")
                tail: list[Run] = [(f" {unit}", "muted")] if unit and value != fmt.NONE else []
                canvas.right_runs(end, y + offset, [(value, "text"), *tail])
            canvas.put(x, y + 7, "guards", "muted")
            canvas.right_runs(end, y + 7, guard_runs(view))
            y += 8
        if view.live is not None:
            self._now(canvas, x, y, width, max(1, min(2, rows - y)), view)

    @staticmethod
    def _no_result(canvas: Canvas, x: int, y: int, width: int, rows: int, view: ArmView) -> None:
        canvas.put(x, y, one_line(view.arm.cause or "no result", 60), "strong!", width)
        if view.arm.phase:
            canvas.put(x, y + 1, f"in {_phase(view)}", "muted", width)
        parts = wrap(one_line(view.arm.reason or ""), width)
        room = max(0, rows - y - 3)
        for offset, part in enumerate(parts[:room]):
            last = offset == room - 1 and len(parts) > room
            canvas.put(x, y + 3 + offset, f"{part} …" if last else part, "text", width)

    def _headline(self, canvas: Canvas, x: int, y: int, width: int, view: ArmView) -> None:
        end = x + width
        live = per_user(view.live) if view.live is not None else None
        value = view.tok_s if view.tok_s is not None else live
        if value is None and view.arm.status is ArmStatus.LAUNCHING:
            canvas.put(x, y + 1, _phase(view), "strong!", width)
            return
        answered = next((r.capacity for r in reversed(view.results) if r.capacity is not None), None)
        if view.tok_s is None and answered is not None:
            canvas.put(x, y + 1, answer_words(answered), "strong!", width)
            return
        assert self.comparison is not None
        metric = self.comparison.metric
        shown = view.tok_s is not None and metric.of_search
        places = metric.digits if shown else 1 if value is not None and value < 1000 else 0
        text = fmt.decimals(value, places).replace(",", "")
        at = canvas.figure(x, y, text, "strong" if value is not None else "muted")
        unit = metric.unit if shown else "tok/s" if view.tok_s is not None or value is None else "tok/s now"
        canvas.put(at + 1, y + 2, unit, "muted")
        canvas.right_runs(end, y, self._ratio(view))
        against = view.arm.against
        if against is None:
            return
        if view.ratio is not None:
            so_far = " so far" if view.so_far else ""
            canvas.right(end, y + 1, f"of {against}{so_far}", "muted")
        if view.best:
            canvas.right_runs(end, y + 2, [("✓ ", "ok"), ("BEST", "strong!")])

    def _ratio(self, view: ArmView) -> list[Run]:
        assert self.comparison is not None
        if view.arm.against is None:
            alone = len(self.comparison.arms) == 1
            return [] if alone else [("reference", "muted")]
        if view.ratio is None:
            return [(f"no pair with {view.arm.against} yet", "muted")]
        return [(fmt.ratio(view.ratio), f"{ratio_color(view)}!")]

    def _pairs(self, canvas: Canvas, x: int, y: int, width: int, view: ArmView) -> None:
        half = (width - 2) * 11 // 20
        cells_ = figures(view)
        for number, (label, value, unit) in enumerate(cells_):
            left, row = number % 2 == 0, y + number // 2
            begin, end = (x, x + half) if left else (x + half + 2, x + width)
            canvas.put(begin, row, label, "muted")
            # values of a column end where the longest unit of it begins
            room = 3 if left else 4
            canvas.right(end - room, row, value, "text")
            if value != fmt.NONE:
                canvas.put(end - room + 1, row, unit, "muted")
        canvas.right_runs(x + width, y + len(cells_) // 2, guard_runs(view))

    def _now(self, canvas: Canvas, x: int, y: int, width: int, rows: int, view: ArmView) -> None:
        assert view.live is not None
        at = canvas.put(x, y, "now  ", "muted")
        at = canvas.put(at, y, fmt.tok_s(view.live.tok_s), "strong!")
        users = view.live.point.concurrency
        canvas.put(at, y, " tok/s" if users == 1 else " in all", "muted")
        if rows > 1:
            canvas.runs(x, y + 1, words(live_facts(view), 18))
        spark(canvas, x + 19, y, width - 19, rows, view, self._duration_s)

    @property
    def _duration_s(self) -> float:
        return self.comparison.state.bench.duration_s if self.comparison is not None else 0.0

    # -- beside a single card --------------------------------------------------------------------------------------

    _FIGURES: ClassVar[tuple[tuple[str, int], ...]] = (
        ("tok/s", 9),
        ("all users", 11),
        ("TTFT", 8),
        ("TPOT", 8),
        ("accept", 8),
        ("power W", 9),
    )

    def _beside(
        self, canvas: Canvas, x: int, y: int, width: int, name: str, rows: Sequence[tuple[Run, Sequence[Result]]]
    ) -> None:
        """A table of means: what a row is, its figures, and whether it counts."""
        canvas.put(x, y, name, "muted")
        columns = _fitting(self._FIGURES, width - 20)
        at = x + 10
        for title, size in columns:
            at += size
            canvas.right(at, y, title, "muted")
        for line, (label, results) in enumerate(rows, y + 1):
            canvas.put(x, line, *label)
            valid = [result for result in results if result.valid]
            at = x + 10
            for title, size in columns:
                at += size
                canvas.right(at, line, _mean_of(title, valid or results), "text" if valid else "muted")
            if results:
                if len(valid) == len(results):
                    mark: Run = ("✓ valid", "ok")
                else:
                    mark = ("✗ not valid" if not valid else f"✗ {len(valid)} of {len(results)} valid", "err")
                canvas.runs(at + 3, line, [(mark[0][:2], mark[1]), (mark[0][2:], "text")])

    def _runs(self, canvas: Canvas, x: int, width: int, rows: int, comparison: Comparison) -> None:
        view = comparison.arms[0]
        canvas.title(x, 0, width, "Runs", [(f"of {view.planned}", "muted")])
        found = view.results[-(rows - 2) :]
        first = len(view.results) - len(found) + 1
        table = [((f"run {first + at}", "text"), [result]) for at, result in enumerate(found)]
        self._beside(canvas, x, 1, width, "", table)

    def _loads(self, canvas: Canvas, x: int, width: int, rows: int, comparison: Comparison) -> None:
        state = comparison.state
        canvas.title(x, 0, width, "Loads", [("mean of the runs that count", "muted")])
        results = state.arms[0].results
        table: list[tuple[Run, list[Result]]] = []
        for point in state.bench.points[: rows - 2]:
            here = point == comparison.point
            label = f"{'▌ ' if here else '  '}{point.concurrency if point.rate is None else f'{point.rate:g}/s'}"
            table.append(((label, "strong!" if here else "text"), [r for r in results if r.point == point]))
        self._beside(canvas, x, 1, width, "  users" if state.bench.points[0].rate is None else "  rate", table)

    _HELD: ClassVar[tuple[tuple[str, int], ...]] = (
        ("within", 9),
        ("goodput", 10),
        ("TTFT", 11),
        ("TPOT", 11),
        ("tok/s", 9),
    )

    def _searched(self, canvas: Canvas, x: int, width: int, rows: int, comparison: Comparison) -> None:
        """The loads of a search, those around the knee where not all find room."""
        view, search = comparison.arms[0], comparison.state.bench.search
        assert search is not None
        canvas.title(x, 0, width, "Loads", [("replies within the limits, and goodput a second", "muted")])
        loads, room = view.loads, max(1, rows - 2)
        holding = sum(one.held.holds for one in loads)
        first = max(0, min(holding - room // 2, len(loads) - room))
        columns = _fitting(self._HELD, width - 20)
        word = "users" if comparison.point.search == "concurrency" else "rate"
        canvas.put(x, 1, f"  {word}", "muted")
        tail = search.limits.tail
        for line, one in enumerate([None, *loads[first : first + room]], 1):
            at = x + 8
            for title, size in columns:
                at += size
                name = f"{title} {tail}" if title in ("TTFT", "TPOT") else title
                said = name if one is None else _held_of(title, one)
                canvas.right(at, line, said, "text" if one else "muted")
            if one is None:
                continue
            knee = one.load == view.knee
            canvas.put(x, line, f"{'◆' if knee else ' '} {one.load:g}", "strong!" if knee else "text")
            glyph, word = (("✓ ", "ok"), "holds") if one.held.holds else (("✗ ", "err"), "fails")
            canvas.runs(at + 3, line, [glyph, (word if one.held.sure else f"{word}, just", "text")])

    # -- rows ------------------------------------------------------------------------------------------------------

    _COLUMNS: ClassVar[tuple[tuple[str, int], ...]] = (
        ("tok/s", 8),
        ("ratio", 7),
        ("accept", 8),
        ("cycle", 7),
        ("TPOT", 7),
        ("TTFT", 6),
        ("level", 7),
        ("valid", 8),
    )

    def _table(self, canvas: Canvas, rows: int, comparison: Comparison, selected: ArmView | None) -> None:
        width = canvas.width
        columns = list(self._COLUMNS)
        least = 4 + 26
        for dropped in ("TPOT", "TTFT", "cycle", "level", "accept", "ratio", "valid"):
            if least + sum(size for _, size in columns) <= width - 1:
                break
            columns = [column for column in columns if column[0] != dropped]
        begin = max(4, width - 1 - sum(size for _, size in columns))
        x = begin
        for name, size in columns:
            x += size
            searched = name == "tok/s" and comparison.point.search is not None
            canvas.right(x, 0, "holds" if searched else name, "muted")
        for number, view in enumerate(comparison.arms):
            y = 1 + number
            if y >= rows:
                return
            here = view is selected
            if here:
                canvas.fill(0, y, width, 1, "raised")
                canvas.put(0, y, "▌", f"{view.color}/raised")
            self._row(canvas, y, begin, columns, view, "/raised" if here else "")
        if selected is not None:
            self._depth(canvas, 1 + len(comparison.arms), rows, selected)

    def _row(
        self, canvas: Canvas, y: int, begin: int, columns: Sequence[tuple[str, int]], view: ArmView, ground: str
    ) -> None:
        assert self.comparison is not None
        canvas.put(1, y, view.letter, f"{view.color}!{ground}")
        glyph, word, color = status(view, paused=self.comparison.state.paused)
        canvas.put(3, y, glyph, color + ground)
        alike = sum(other.title == view.title for other in self.comparison.arms) > 1
        name = view.changes if alike and view.changes else view.title
        canvas.runs(5, y, words([(name, "strong!" + ground if ground else "text")], begin - 5))
        if view.tok_s is None and view.arm.status not in (ArmStatus.RUNNING, ArmStatus.QUEUED):
            said = word.lower() if view.arm.status is not ArmStatus.LAUNCHING else "starting"
            cause = one_line(view.arm.cause, 60) if view.arm.cause else _phase(view) if view.arm.phase else ""
            text = f"{said}, {cause}" if cause else said
            canvas.runs(begin + 2, y, words([(text, "text" + ground)], canvas.width - begin - 3))
            return
        values = {label: value for label, value, _ in figures(view)}
        live = per_user(view.live) if view.live is not None else None
        metric, figure = self.comparison.metric, fmt.tok_s(view.tok_s if view.tok_s is not None else live)
        if metric.of_search and view.tok_s is not None:
            figure = metric.show(view.tok_s)
        runs: dict[str, list[Run]] = {
            "tok/s": [(figure, "strong!" + ground)],
            "ratio": [(fmt.ratio(view.ratio), ratio_color(view) + "!" + ground)],
            "accept": [(values["accept"], "text" + ground)],
            "cycle": [(values["cycle"], "text" + ground)],
            "TPOT": [(values["TPOT p50"], "text" + ground)],
            "TTFT": [(values["TTFT"], "text" + ground)],
            "level": [(values["level"], "text" + ground)],
            "valid": [(text, spec + ground) for text, spec in guard_runs(view, short=True)],
        }
        x = begin
        for column, size in columns:
            x += size
            canvas.right_runs(x, y, runs[column])

    def _depth(self, canvas: Canvas, y: int, rows: int, view: ArmView) -> None:
        """The selected arm: its runs, power and memory, and what it does now."""
        end = canvas.width - 1
        if y < rows:
            values = {label: (value, unit) for label, value, unit in figures(view)}
            facts = join(
                [[(f"{label} ", "muted"), (f"{values[label][0]} ", "text"), (values[label][1], "muted")]
                 for label in ("power", "memory") if values[label][0] != fmt.NONE]
            )  # fmt: skip
            begin = canvas.right_runs(end, y, facts)
            at = canvas.runs(1, y, dots(view.launches, max(8, begin - 22)))
            said = f"  {len(view.results)} of {view.planned} runs"
            if at + cells(said) < begin - 1:
                canvas.put(at, y, said, "muted")
        if y + 1 < rows - (1 if view.live is not None else 0):
            about = join(
                [[(one_line(view.arm.profile, 120), "text")], [(view.changes, "muted")] if view.changes else []]
            )
            canvas.runs(1, y + 1, words(about, canvas.width - 2))
        if view.live is not None and rows > y + 1:
            line = rows - 1
            at = canvas.put(1, line, "now ", "muted")
            at = canvas.put(at, line, fmt.tok_s(view.live.tok_s), "strong!")
            at = canvas.put(at, line, " tok/s  " if view.live.point.concurrency == 1 else " in all  ", "muted")
            room = end - at
            facts = words(live_facts(view), 24)
            begin = canvas.right_runs(end, line, facts) - 2 if room > 50 else end
            spark(canvas, at, line, begin - at, 1, view, self._duration_s)


def _fitting(columns: Sequence[tuple[str, int]], room: int) -> list[tuple[str, int]]:
    """As many columns as fit, the first ones."""
    kept = list(columns)
    while sum(size for _, size in kept) > room:
        kept.pop()
    return kept


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _held_of(column: str, one: SearchedLoad) -> str:
    """A figure of a load of a search, as a table shows it."""
    tail = one.held.limits.tail

    def latency(of: Distribution | None) -> float | None:
        return {"p50": of.p50, "p90": of.p90, "p95": of.p95, "p99": of.p99}.get(tail) if of is not None else None

    if column == "within":
        share = one.held.share
        return f"{share * 100:.1f} %" if share is not None else fmt.NONE
    if column == "goodput":
        return fmt.decimals(_mean(r.throughput.goodput_req_s for r in one.results), 2)
    if column == "TTFT":
        return fmt.whole(_mean(latency(r.latencies.ttft) for r in one.results))
    if column == "TPOT":
        return fmt.decimals(_mean(latency(r.latencies.tpot) for r in one.results), 1)
    return fmt.tok_s(_mean(r.throughput.per_user_tok_s for r in one.results))


_MEANS: dict[str, tuple[Callable[[Result], float | None], Callable[[float | None], str]]] = {
    "tok/s": (lambda r: r.throughput.per_user_tok_s, fmt.tok_s),
    "all users": (lambda r: r.throughput.output_tok_s, fmt.tok_s),
    "TTFT": (lambda r: r.latencies.ttft.p50 if r.latencies.ttft else None, fmt.whole),
    "TPOT": (lambda r: r.latencies.tpot.p50 if r.latencies.tpot else None, lambda value: fmt.decimals(value, 2)),
    "accept": (lambda r: r.speculation.tau if r.speculation else None, fmt.accept),
    "power W": (lambda r: r.gpu.power_w if r.gpu else None, fmt.whole),
}


def _mean_of(column: str, results: Sequence[Result]) -> str:
    """A figure of some runs, as a table shows it."""
    value, text = _MEANS[column]
    return text(_mean(value(result) for result in results))


def _phase(view: ArmView) -> str:
    """The phase of a launch in words."""
    return one_line(view.arm.phase or "launch", 40).replace("_", " ")


def live_facts(view: ArmView) -> list[Run]:
    """`run 2, 41 s left`: where the current run is."""
    live = view.live
    assert live is not None
    parts: list[list[Run]] = [[("run ", "muted"), (str(live.run_index), "text")]]
    if live.phase != "window":
        parts.append([(one_line(live.phase, 20), "text")])
    elif live.completed:
        parts.append([(f"{live.completed} ", "text"), ("done", "muted")])
    if live.errors:
        parts.insert(0, [("▲ ", "warn"), (fmt.plural(live.errors, "error"), "text")])
    return join(parts, ", ")


def spark(canvas: Canvas, x: int, y: int, width: int, rows: int, view: ArmView, duration_s: float) -> None:
    """Tok/s of the current run from its first second, from zero to its highest value: it fills while the run continues."""
    live = view.live
    if live is None or width < 4 or rows < 1:
        return
    known = [value for value in live.series if value is not None]
    if known:
        series = [chart.Series(tuple(enumerate(live.series)), view.ink, filled=True)]
        up = (0.0, max(known) or 1.0)
        chart.plot(canvas, x, y, width, rows, series, (0.0, seconds(live, duration_s)), up)


def seconds(live: LiveRun, duration_s: float) -> float:
    """How long the axis of a run is: its window, or what was seen of a longer one."""
    return max(10.0, min(duration_s, SERIES_S), float(len(live.series) - 1))
