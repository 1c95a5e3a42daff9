"""All runs: every launch this machine knows, with a filter; the one under the cursor in depth, causes, start-up times."""

import asyncio
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal
from textual.timer import Timer
from textual.widgets import Input

from tui import format as fmt
from tui.core.errors import UsageError
from tui.core.journal.query import KEYS
from tui.core.model.run import short_id
from tui.core.text import one_line
from tui.panel.host_view import Board
from tui.panel.keys import bindings, keys
from tui.panel.protocol import Subject
from tui.panel.run_filter import complete, plain_words
from tui.panel.screens.journal_mode import JournalMode
from tui.panel.screens.journal_rows import card_rows, compare_rows, day, marked, outcome_words
from tui.panel.server_view import outcome_badge
from tui.panel.widgets.footer import Keys
from tui.panel.widgets.paint import Run, join
from tui.panel.widgets.row_list import RowList, column
from tui.panel.widgets.rows import AnyRow, Line, Prose, Row, Rows, Single, Title
from tui.panel.widgets.run_charts import RunCharts

if TYPE_CHECKING:
    from tui.core.journal.model import RunRow

_TYPED_S = 0.08  # what is typed faster is looked for once
_WIDE, _NARROW = 130, 100


class FilterLine(Input):
    """Words and `key:value`; Tab completes the last one."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("filter field")

    def action_complete(self) -> None:
        """As far as it is clear; what it may become is said beside it."""
        if isinstance(self.screen, Runs):
            self.screen.complete_filter()


class Runs(JournalMode):
    """A list of any length; below it a preview and two charts, as far as there are rows."""

    NAME = "Journal"
    AUTO_FOCUS = "RowList"
    CSS_PATH: ClassVar[list[str]] = ["journal.tcss"]  # type: ignore[assignment]
    BINDINGS: ClassVar[list[BindingType]] = bindings("runs")

    def __init__(self, board: Board) -> None:
        super().__init__(board)
        self.shown: Sequence[RunRow] = ()
        self._of: object = None  # what `shown` was made of
        self._only: tuple[frozenset[str], str] | None = None  # some runs alone, and of what they are
        self._problem: str | None = None  # what is wrong with the filter
        self._offered: tuple[str, ...] = ()  # by Tab
        self._compared: RunRow | None = None
        self._timer: Timer | None = None
        self._drawn: object = None
        self._charted: object = None

    def content(self) -> ComposeResult:
        yield Prose(id="runsline")
        with Horizontal(id="filterline"):
            yield Prose([[("/", "accent!")]], id="slash")
            yield FilterLine(placeholder="words, key:value", id="filter")
            yield Prose(id="found")
        yield Prose(id="runsheads")
        yield RowList()
        yield Prose(id="run")
        yield RunCharts()

    def on_resize(self) -> None:
        self._drawn = None
        self.call_after_refresh(self.update)

    # -- what is shown ---------------------------------------------------------------------------------------------

    @property
    def run(self) -> "RunRow | None":
        """The run under the cursor."""
        at = self.query_one(RowList).at
        return self.shown[at] if at < len(self.shown) else None

    @property
    def _every(self) -> "Sequence[RunRow]":
        return self.board.whole.runs if self.board.whole is not None else ()

    def show_only(self, run_ids: frozenset[str], of: str) -> None:
        """These runs alone; Esc shows all again."""
        self._only = run_ids, of
        self.query_one(FilterLine).value = ""
        self.update()

    def update(self) -> None:
        if not self.is_mounted:
            return
        text = self.query_one(FilterLine).value
        wanted = (self.board.whole, text, self._only)
        if wanted != self._of:
            self._of = wanted
            self._filter(text)
        self._show()
        super().update()

    @work(exclusive=True, group="filter", exit_on_error=False)
    async def _filter(self, text: str) -> None:
        from tui.core.journal.reading import all_runs

        whole, only = self.board.whole, self._only
        if whole is None:
            return
        try:
            found: Sequence[RunRow] = await asyncio.to_thread(all_runs, text, whole)
        except UsageError as error:  # half a filter is typed
            self._problem = error.message + (f": {error.hint}" if error.hint else "")
        else:
            self._problem = None
            before = self.run.run_id if self.run is not None else None
            self.shown = [run for run in found if only is None or run.run_id in only[0]]
            at = next((place for place, run in enumerate(self.shown) if run.run_id == before), 0)
            self._show_list(at)
        self._drawn = None
        self._show()

    def _show_list(self, at: int | None = None) -> None:
        listing = self.query_one(RowList)
        columns = _Columns(listing.size.width, self.shown, plain_words(self.query_one(FilterLine).value))
        self.query_one("#runsheads", Prose).show(
            [Title("Runs", [("newest first", "muted")], focus=listing.has_focus), columns.heads()]
        )
        listing.show(
            len(self.shown), lambda place: columns.row(self.shown[place], self._log_mark(self.shown[place])), at=at
        )

    def _show(self) -> None:
        run = self.run
        drawn = (
            self.shown,
            run,
            self._problem,
            self._offered,
            self.size,
            self._compared,
            self._log_mark(run) if run else "",
        )
        if drawn == self._drawn:
            return
        self._drawn = drawn
        self._show_list()
        self.query_one("#found", Prose).show([self._found()])
        charts, preview = self.query_one(RunCharts), self.query_one("#run", Prose)
        if self._charted is not self.shown:
            self._charted = self.shown
            charts.show(self.shown, self.board.host)
            self.query_one("#runsline", Prose).show([self._line()])
        room = self.size.height - 8  # of header, lines over the list, heads and footer
        rows = self._preview(run) if run is not None else []
        high = len(Rows(rows).lines(max(20, self.size.width - 2)))
        preview.display = self.size.width >= _NARROW and bool(rows) and room - high >= 8
        preview.show(rows)
        left = room - (high if preview.display else 0)
        wanted = charts.wanted_height()
        charts.display = self.size.width >= _NARROW and wanted > 0 and left - wanted - 1 >= 6
        charts.styles.height = max(1, wanted)

    def _line(self) -> Single:
        """What there is in all."""
        every = self._every
        if not every:
            return Single(
                [("All runs", "strong!"), ("  none yet: ", "muted"), ("l", "accent!"), (" launches one", "muted")]
            )
        hosts = len({run.host for run in every})
        ready = [run for run in every if run.ready_after_s is not None]
        crashed = sum(run.outcome == "crashed" for run in every)
        parts: list[list[Run]] = [
            [
                (f"{len(every):,}", "strong"),
                (" on ", "muted"),
                (fmt.plural(hosts, "host"), "text"),
                (f" since {day(every[-1].started_at)}", "muted"),
            ],
            [(str(len(ready)), "text"), (" reached ready", "muted")],
            [(str(crashed), "text"), (" crashed", "muted")],
            [(fmt.duration(sum(run.ready_after_s or 0.0 for run in ready)), "text"), (" of starting", "muted")],
        ]
        return Single([("All runs  ", "strong!"), *join(parts)])

    def _found(self) -> Line:
        """How many there are now, or what is wrong with the filter, or what Tab offers."""
        if self._problem is not None:
            return [("▲ ", "warn"), (one_line(self._problem, 120), "text")]
        if self._offered:
            return [
                ("Tab: ", "muted"),
                (" ".join(self._offered[:8]) + (" …" if len(self._offered) > 8 else ""), "text"),
            ]
        count: Line = [(f"{len(self.shown):,}", "strong"), (f" of {fmt.plural(len(self._every), 'run')}", "muted")]
        if self._only is not None:
            of = one_line(self._only[1], 60)
            return [*count, (" · ", "muted"), ("Esc", "accent!"), (f" shows all · of {of}", "muted")]
        return [
            *count,
            (" · ", "muted"),
            ("Tab", "accent!"),
            (" completes " + " ".join(f"{key}:" for key in KEYS), "muted"),
        ]

    def _preview(self, run: "RunRow") -> list[AnyRow]:
        until = f" to {fmt.day_clock(run.ended_at)}" if run.ended_at else ""
        facts = f"{run.profile} on {run.host} · {fmt.day_clock(run.started_at)}{until}"
        rows: list[AnyRow] = [
            [],
            Title(f"Run {short_id(run.run_id)}", [(facts, "muted")]),
            *card_rows(run, apart=self.size.height > 40),
        ]
        lead: list[Run] = []
        for key, verb in (("Enter", "card"), ("2", "its log"), ("c", "compare"), ("l", "launch again"), ("n", "note")):
            lead += [(f" {key} ", "accent!/accbg"), (f" {verb}   ", "text")]
        return [*rows, [], Row([*lead, (" y ", "accent!/accbg"), (" copy command", "text")], hang=0), []]

    def _log_mark(self, run: "RunRow") -> str:
        """Whether its host has the log: `●`, `–`, and nothing where that is not known."""
        board = next((one for one in self.eagle.boards if one.host == run.host), None)
        if board is None or not board.runs_read:
            return ""
        return "●" if any(one.run_id == run.run_id and one.log_path for one in board.runs) else "–"

    def footer_keys(self) -> Keys:
        if self._compared is not None:
            return (("c", f"compare with {short_id(self._compared.run_id)}"), ("Esc", "drop"), *keys("?", "q"))
        return keys("Enter", "2", "l", "c", "n", "y", "/", "R", "?", "^P", "q", where="runs")

    def field_keys(self) -> Keys:
        return (("Enter", "done"), ("Tab", "complete"), ("Esc", "back"))

    def about(self) -> Subject:
        """The run under the cursor."""
        run = self.run
        if run is None:
            return super().about()
        return Subject(f"run:{run.run_id}", f"run {short_id(run.run_id)}, {run.profile} on {run.host}")

    # -- the filter ------------------------------------------------------------------------------------------------

    def action_search(self) -> None:
        """The filter line."""
        self.set_focus(self.query_one(FilterLine))

    def on_input_changed(self) -> None:
        self._offered = ()
        if self._timer is not None:
            self._timer.stop()
        self._timer = self.set_timer(_TYPED_S, self.update)

    def on_input_submitted(self) -> None:
        self.set_focus(self.query_one(RowList))
        self.update()

    def complete_filter(self) -> None:
        """Completes the last word of the filter."""
        line = self.query_one(FilterLine)
        text, found = complete(line.value, tuple(KEYS), self._every)
        with self.prevent(Input.Changed):
            line.value = text
        line.cursor_position = len(text)
        self._offered = found if len(found) > 1 else ()
        self._drawn = None
        self.update()

    @on(RowList.Moved)
    def _moved(self) -> None:
        self._show()

    # -- actions ---------------------------------------------------------------------------------------------------

    def action_back(self) -> None:
        """Out of the filter, out of a comparison; the filter is dropped, then the choice of runs; then the journal."""
        line = self.query_one(FilterLine)
        if line.has_focus:
            self.set_focus(self.query_one(RowList))
        elif self._compared is not None:
            self._compared = None
        elif line.value:
            line.value = ""
        elif self._only is not None:
            self._only = None
        else:
            self.eagle.show_mode("journal")
            return
        self.update()

    def action_open(self) -> None:
        """All that is kept of the run under the cursor."""
        from tui.panel.screens.dialog import Facts

        run = self.run
        if run is not None:
            self.app.push_screen(Facts(f"Run {short_id(run.run_id)}", card_rows(run)))

    def action_log(self) -> None:
        """Its log, as long as the host has it."""
        if self.run is not None:
            self.eagle.kept.show_log(self.run)

    def action_again(self) -> None:
        """The launch dialog with its profile and its flags."""
        if self.run is not None:
            self.eagle.kept.launch_again(self.run)

    def action_compare(self) -> None:
        """The first run is kept, the second one is compared with it."""
        from tui.core.server.earlier_starts import difference
        from tui.panel.screens.dialog import Facts

        run, first = self.run, self._compared
        if run is None or first is None or first.run_id == run.run_id:
            self._compared = None if first is not None else run
            if self._compared is not None:
                self.eagle.say("Move to a second run, then c again; Esc drops it")
        else:
            self._compared = None
            title = f"{short_id(first.run_id)} and {short_id(run.run_id)}"
            self.app.push_screen(Facts(title, compare_rows(first, run, difference(_flags(first), _flags(run)))))
        self.update()

    def copied_text(self) -> tuple[str, str] | None:
        """The command of the run as its host knows it, else the one that launches the same."""
        run = self.run
        if run is None:
            return None
        known = next((one for board in self.eagle.boards for one in board.runs if one.run_id == run.run_id), None)
        if known is not None and known.argv:
            return shlex.join(known.argv), "command"
        sets = [word for text in fmt.overrides_of(run.sets) for word in ("--set", text)]
        return shlex.join(
            ["eagletui", "launch", run.profile, "--host", run.host, *sets]
        ), "command that launches the same"


def _flags(run: "RunRow") -> dict[str, object]:
    return {**run.args, **run.sets}


class _Columns:
    """Where the parts of a row are at a width."""

    def __init__(self, width: int, runs: "Sequence[RunRow]", sought: Sequence[str]) -> None:
        self.wide, self.narrow = width >= _WIDE, width < _NARROW
        self._sought = sought
        self.profile = min(34 if self.wide else 26, max([12, *(len(run.profile) for run in runs[:500])]) + 2)
        room = width - 2 - 14 - 8 - self.profile - 2 - (33 if self.wide else 8 if self.narrow else 19)
        self.sets = min(36, room * 2 // 5) if self.wide else 0
        self.outcome = max(12, room - self.sets)

    def heads(self) -> Single:
        """What stands over the columns."""
        changed = [column("changed for this run", self.sets, "muted")] if self.sets else []
        lead = [column("started", 14, "muted"), column("run", 8, "muted"), column("profile", self.profile, "muted")]
        tail = f"{'tok/s':>8}" if self.narrow else f"{'ready in':>10} {'tok/s':>8}"
        tail += "   level    log" if self.wide else ""
        return Single([*lead, *changed, ("outcome", "muted")], [(tail, "muted")])

    def row(self, run: "RunRow", log: str) -> Single:
        """A run in one row."""
        badge = outcome_badge(run.outcome)
        left: list[Run] = [column(fmt.day_clock(run.started_at), 14, "muted"), column(short_id(run.run_id), 8)]
        left += marked(column(run.profile, self.profile, ""), self._sought)
        if self.sets:
            left += marked(column(" ".join(fmt.overrides_of(run.sets)), self.sets, "warn"), self._sought)
        came = run.cause or run.outcome if self.narrow else f"{badge.word}  {outcome_words(run)}"
        left += [(f"{badge.glyph} ", badge.color), *marked(column(came, self.outcome - 2, "text"), self._sought)]
        right: list[Run] = [(f"{fmt.tok_s(run.tok_s):>8}", "strong" if run.tok_s is not None else "muted")]
        if not self.narrow:
            right = [(f"{fmt.duration(run.ready_after_s):>10} ", "text"), *right]
        if self.wide:
            right += [(f"   {run.level or fmt.NONE:<5}", "muted"), (f"   {log:>3}", "ok" if log == "●" else "muted")]
        return Single(left, right)
