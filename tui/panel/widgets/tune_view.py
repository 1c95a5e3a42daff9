"""A tune: its budget, the range over the forecast, the map of steps by top-k, what is best so far, next, and not tried."""

from typing import TYPE_CHECKING, ClassVar

from tui import format as fmt
from tui.core.text import one_line
from tui.panel.host_view import Board
from tui.panel.widgets.paint import Canvas, Painted, Run, clip_runs, words, wrap

if TYPE_CHECKING:
    from tui.core.tune.decide import Spot
    from tui.core.tune.record import Taken
    from tui.core.tune.runner import TuneState

_WIDE = 140  # columns from which on the words stand beside the map
_TALL = 34  # rows from which on cells have two rows, and launches a table
_SIDE = 50  # columns of the words
_AXIS = 0.06  # of the fraction, shown beyond what was tried


class TuneView(Painted):
    """The whole screen between header and footer."""

    DEFAULT_CSS: ClassVar[str] = "TuneView { height: 1fr; width: 100%; }"

    def __init__(self, board: Board) -> None:
        super().__init__(id="tuneview")
        self.board = board

    def draw(self, canvas: Canvas) -> None:
        state = self.board.tune
        if state is None:
            canvas.title(1, 1, canvas.width - 2, "Tune", [("nothing is tuned on ", "muted"), (self.board.host, "text")])
            lead: list[Run] = [
                ("t", "accent!"),
                ("  on a profile: which fraction starts, which speculation pays", "muted"),
            ]
            canvas.runs(1, 3, words(lead, canvas.width - 2))
            return
        _Picture(canvas, state).draw()


class _Picture:
    """One drawing of a state."""

    def __init__(self, canvas: Canvas, state: "TuneState") -> None:
        from tui.core.tune import decide, ranges

        self.canvas, self.state, self.record = canvas, state, state.record
        self.end = canvas.width - 1
        self.wide, self.tall = canvas.width >= _WIDE, canvas.height >= _TALL
        self.known = ranges.found(state.record)
        self.spots = decide.spots(state.record)
        self.base = decide.baseline(state.record)
        last = state.record.steps[-1] if state.record.steps else None
        self.now: Taken | None = last if last is not None and last.status == "running" else None

    def draw(self) -> None:
        y = self._head()
        y = self._range(y + self.tall)
        top = y + self.tall
        bottom = self._map(top)
        if self.wide:
            self._words(self.end - _SIDE, top, _SIDE)
        else:
            self._words(1, bottom + self.tall, self.end - 1)

    def _head(self) -> int:
        from tui.core.tune import decide, report

        canvas, record = self.canvas, self.record
        used = fmt.duration(record.spent_s)
        budget = f" of {record.budget_h:g} h" if record.budget_h is not None else ""
        facts: list[Run] = [
            (f"launch {record.launches}", "strong"),
            (f" of at most {decide.MOST_LAUNCHES} · ", "muted"),
            (f"{used}{budget}", "strong"),
        ]
        if self.state.paused:
            facts = [("paused · ", "warn!"), *facts]
        begin = canvas.right_runs(self.end, 0, clip_runs(facts, canvas.width // 2))
        point = record.bench.points[0]
        load = f" at concurrency {point.concurrency}" if point.concurrency else f" at {point.label}"
        what: list[Run] = [
            ("tune ", "strong!"), (one_line(record.profile, 60), "strong!"), ("  for ", "muted"),
            (report.GOAL_WORDS[record.goal] + load, "text"), (" on ", "muted"), (one_line(record.bench.name, 60), "text"),
        ]  # fmt: skip
        canvas.runs(1, 0, words(what, begin - 3))
        return self._budget(2) if self.tall else 1

    def _budget(self, y: int) -> int:
        """What each phase has used, by launches or hours, and what is kept for the last."""
        from tui.core.tune import decide
        from tui.core.tune.record import Phase

        canvas, record = self.canvas, self.record
        hours = record.budget_h is not None
        whole = (record.budget_h or 0) * 3600 if hours else float(decide.MOST_LAUNCHES)
        kept = min(whole, decide.kept_s(record) if hours else float(decide.CONFIRM_LAUNCHES))
        x, width = 10, self.end - 10
        canvas.put(1, y, "budget", "muted")
        canvas.bar(x, y, width, 0.0)
        at = x
        for phase, name, spec in zip(
            Phase, ("1 range", "2 speculation", "3 confirm"), ("ok", "accent", "violet"), strict=True
        ):
            used = (
                record.spent_in(phase)
                if hours
                else float(sum(t.launches for t in record.steps if t.step.phase is phase))
            )
            size = min(x + width - at, round(width * used / whole)) if whole else 0
            canvas.put(at, y, "▆" * size, spec)
            label = f"{name} {fmt.duration(used) if hours else _launches(round(used))}"
            if used:
                canvas.put(at, y + 1, label, "muted", max(0, max(size, len(label)) - 1))
            at += size
        if not record.of(Phase.CONFIRM):
            mark = round(width * (1 - kept / whole)) if whole else width
            canvas.put(min(self.end - 1, x + mark), y, "│", "text")
            canvas.right(self.end, y + 1, f"3 confirm, kept {fmt.duration(kept) if hours else round(kept)}", "muted")
        return y + 2

    # -- the range ---------------------------------------------------------------------------------------------------

    def _range(self, y: int) -> int:
        from tui.core.tune.record import Phase

        canvas, record, known = self.canvas, self.record, self.known
        tries = [taken for taken in record.steps if taken.step.phase is Phase.RANGE and taken.step.fraction is not None]
        facts: list[Run] = [("not known yet", "muted")]
        if known.low is not None and known.high is not None:
            used = f" · {known.used:.2f} is used on" if known.used is not None else ""
            mark: Run = ("✓ ", "ok") if known.exact else ("· ", "muted")
            facts = [
                mark,
                (f"{known.low:.2f} to {known.high:.2f}", "strong!"),
                (f" in {_launches(len(tries))}{used}", "muted"),
            ]
        canvas.title(1, y, self.end - 1, "1  Which mem-fraction-static starts", facts)
        if not tries:
            return y + 1
        y = self._axis(y + 1 + self.tall, [taken.step.fraction or 0.0 for taken in tries], tries)
        return self._tries(y + 1, tries) if self.tall else y

    def _axis(self, y: int, fractions: list[float], tries: "list[Taken]") -> int:
        """The forecast over what was launched, on one scale."""
        canvas, bounds = self.canvas, self.record.bounds
        ends = [*fractions, *(value for value in (bounds.least, bounds.most) if value is not None)]
        low, high = max(0.0, min(ends) - _AXIS), min(1.0, max(ends) + _AXIS)
        x, width = 12, self.end - 13

        def column(fraction: float) -> int:
            return x + round((fraction - low) / (high - low) * (width - 1))

        canvas.put(1, y, "forecast", "muted")
        canvas.put(1, y + 1, "launched", "muted")
        canvas.put(x, y + 1, "─" * width, "line")
        if bounds.least is not None:
            least = column(bounds.least)
            canvas.put(x, y, "·" * (least - x), "err")
            canvas.put(x + 1, y, f" no room for the pool below {bounds.least:.2f} "[: max(0, least - x - 2)], "muted")
            most = column(bounds.most) if bounds.most is not None else x + width - 1
            canvas.put(least, y, "·" * (most - least + 1), "ok")
            canvas.put(most + 1, y, "·" * (x + width - 1 - most), "err" if bounds.most is not None else "faint")
        if self.known.low is not None and self.known.high is not None:
            first = column(self.known.low)
            canvas.put(first, y + 1, "▆" * (column(self.known.high) - first + 1), "ok")
        for fraction, taken in zip(fractions, tries, strict=True):
            mark, spec = _mark(taken)
            canvas.put(column(fraction), y + 1, mark, spec)
        free = 0
        for fraction in sorted(set(fractions)):
            if column(fraction) - 2 >= free:
                free = canvas.put(column(fraction) - 2, y + 2, f"{fraction:.2f}", "muted") + 1
        return y + 3

    def _tries(self, y: int, tries: "list[Taken]") -> int:
        canvas = self.canvas
        canvas.put(1, y, "#   fraction  outcome", "muted")
        canvas.put(57, y, "KV tokens  free GiB   why this one", "muted")
        for row, taken in enumerate(tries, y + 1):
            mark, spec = _mark(taken)
            outcome = str(taken.cause) if taken.cause else "under way" if taken.status == "running" else "serves"
            after = f" in {taken.phase.replace('_', ' ')}" if taken.phase and taken.cause else ""
            if taken.ready_after_s is not None:
                after = f", ready after {fmt.duration(taken.ready_after_s)}"
            canvas.put(1, row, str(taken.number), "muted")
            canvas.put(5, row, f"{taken.step.fraction:.2f}", "strong")
            canvas.put(15, row, mark, spec)
            canvas.runs(17, row, [(one_line(outcome, 24), "text"), (after, "muted")], 39)
            canvas.right(66, row, fmt.whole(taken.kv_tokens), "text")
            canvas.right(76, row, fmt.gib_of(taken.free_gib), "text")
            canvas.runs(79, row, words([(one_line(taken.step.why), "muted")], self.end - 79))
        return y + 1 + len(tries)

    # -- the map -----------------------------------------------------------------------------------------------------

    def _map(self, y: int) -> int:
        from tui.core.tune.decide import TOPKS

        canvas = self.canvas
        width = (self.end - _SIDE - 3 if self.wide else self.end) - 1
        about = f"tok/s · ratio to no speculation {fmt.tok_s(self.base)}" if self.base is not None else "not begun"
        at = f" · at {self.known.used:.2f}" if self.known.used is not None else ""
        canvas.title(1, y, width, "2  Steps × top-k", [(about + at, "muted")])
        if not self.spots:
            why = "the profile does not speculate" if self.record.start is None else ""
            canvas.put(1, y + 1, why, "muted")
            return y + 2
        left = 10
        column = (width - left) // len(TOPKS)
        for place, topk in enumerate(TOPKS):
            canvas.put(left + place * column, y + 1, f"top-k {topk}", "muted")
        best = max((spot.estimate.rate for spot in self.spots.values() if _measured(spot)), default=None)  # type: ignore[union-attr]
        rows = 3 if self.tall and self.canvas.height >= 44 else 2 if self.tall else 1
        for line, steps in enumerate(dict.fromkeys(place[0] for place in self.spots)):
            row = y + 2 + line * rows
            canvas.put(1, row, fmt.plural(steps, "step"), "text")
            for place, topk in enumerate(TOPKS):
                if (spot := self.spots.get((steps, topk))) is not None:
                    self._field(left + place * column, row, column - 2, min(rows, 2), spot, best)
        return y + 2 + len({place[0] for place in self.spots}) * rows

    def _field(self, x: int, y: int, width: int, rows: int, spot: "Spot", best: float | None) -> None:
        """A field in one row or two: a figure with its ratio, accept of break-even and level; or why there is none."""
        from tui.core.tune import report

        canvas, now = self.canvas, self.now
        draft = now.step.draft if now is not None and now.step.phase == "speculation" else None
        if draft is not None and (draft.steps, draft.topk) == (spot.steps, spot.topk):
            canvas.fill(x, y, width, rows, "accbg")
            canvas.put(x, y, "◐ under way", "accent!/accbg", width)
            if rows > 1:
                canvas.put(x + 2, y + 1, f"{draft.tokens} draft tokens", "muted/accbg", width - 2)
            return
        if not _measured(spot) or spot.estimate is None:
            self._empty_field(x, y, width, rows, spot)
            return
        rate, leads = spot.estimate.rate, spot.estimate.rate == best
        near = rate / best if best else 0.0
        ground = "accbg" if near >= 0.97 else "raised" if near >= 0.85 else "surface"
        canvas.fill(x, y, width, rows, ground)
        level = report.level_of(self.record, spot.draft)
        dot: Run = ("◆ ", f"ok!/{ground}") if leads else ("● ", f"text/{ground}")
        best_word = (" best" if leads and rows > 1 else "", f"ok!/{ground}")
        after = canvas.runs(x, y, [dot, (fmt.tok_s(rate), f"strong!/{ground}"), best_word], width)
        ratio = fmt.ratio(rate / self.base) if self.base else fmt.NONE
        if rows == 1:
            said = f"{ratio} {level}" if x + width - after > len(ratio) + len(level) + 1 else ratio
            canvas.right(x + width, y, said if x + width - after > len(said) else "", f"text/{ground}")
            return
        canvas.right(x + width, y, ratio, f"text/{ground}")
        need = report.breakeven(self.record, spot)
        canvas.put(
            x + 2,
            y + 1,
            f"{fmt.accept(spot.estimate.accept_length)} of {fmt.accept(need)} {level}",
            f"text/{ground}",
            width - 2,
        )

    def _empty_field(self, x: int, y: int, width: int, rows: int, spot: "Spot") -> None:
        """A field without a figure; in one row the reason alone."""
        canvas = self.canvas
        mark, word, spec = {"failed": ("✗", "failed", "err"), "skipped": ("–", "skipped", "muted")}.get(
            spot.state, ("○", "open", "text")
        )
        why = spot.why or (f"estimate {spot.estimate.rate:.1f}" if spot.estimate is not None else "")
        if rows == 1:
            word = (
                why.replace("at most", "≤").replace("estimate", "est.").partition(" ±")[0].removesuffix(" tok/s")
                or word
            )
        canvas.runs(x, y, words([(f"{mark} ", spec), (word, "muted")], width), width)
        if rows > 1:
            canvas.runs(x + 2, y + 1, words([(why, "muted")], width - 2), width - 2)

    # -- words -------------------------------------------------------------------------------------------------------

    def _words(self, x: int, y: int, width: int) -> None:
        """So far, next, not tried: as far as there are rows."""
        from tui.core.tune import report

        parts: list[tuple[str, list[tuple[str, str]]]] = []
        if (said := report.so_far(self.record)) is not None:
            parts.append(("So far", [(said, "text")]))
        title = "End" if self.state.finished else "Now" if self.now is not None else "Next"
        parts.append((title, [self._next()]))
        parts.append(("Not tried", [(f"· {text}", "muted") for text in report.not_tried(self.record, fields=False)]))
        for title, lines in parts:
            if y >= self.canvas.height - 1:
                return
            self.canvas.title(x, y, width, title)
            y += 1
            for text, spec in lines:
                for row in wrap(one_line(text, 400), width):
                    self.canvas.put(x, y, row, spec, width)
                    y += 1
            y += self.tall

    def _next(self) -> tuple[str, str]:
        from tui.core.tune.record import Step

        ahead, experiment = self.state.ahead, self.state.experiment
        if self.state.finished:
            spec = "strong!" if self.record.outcome == "done" else "warn!"
            resume = "; t on the profile resumes it" if self.record.outcome in ("stopped", "budget") else ""
            return f"{self.record.message}{resume}", spec
        if self.now is None:
            return (f"{ahead.title}: {ahead.why}", "text") if isinstance(ahead, Step) else ("", "text")
        arms = (
            [arm for arm in experiment.arms if arm.status in ("launching", "running")] if experiment is not None else []
        )
        doing = (arms[0].phase or arms[0].status).replace("_", " ") if arms else "preparing"
        if arms and arms[0].live is not None:
            doing = f"run {arms[0].live.run_index}, {arms[0].live.phase}, {fmt.tok_s(arms[0].live.tok_s)} tok/s"
        waits = f", {experiment.message}" if experiment is not None and experiment.message and not arms else ""
        return f"◐ {self.now.step.title}: {doing}{waits}. {self.now.step.why}", "accent"


def _measured(spot: "Spot") -> bool:
    return spot.state == "measured" and spot.estimate is not None


def _launches(count: int) -> str:
    return f"{count} launch{'es' * (count != 1)}"


def _mark(taken: "Taken") -> Run:
    return {"done": ("●", "ok"), "failed": ("✗", "err")}.get(taken.status, ("◐", "accent"))
