"""What is measured: a bench of the running server, an experiment, or stored configurations side by side."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, VerticalScroll

from tui import format as fmt
from tui.core.errors import EagletuiError
from tui.core.model.phases import Outcome
from tui.core.model.profile import ARM_LETTERS, BenchProfile
from tui.core.text import one_line
from tui.core.verdicts.sentences import limits_words, search_words
from tui.panel.hints import in_panel
from tui.panel.host_view import run_name
from tui.panel.protocol import Panel, panel_of
from tui.panel.screens.dialogs import Dialog, Folded, Line, Lines, key_row
from tui.panel.widgets.bench.head import load_words
from tui.panel.widgets.paint import Run, cells, clip, join, words

if TYPE_CHECKING:
    from tui.core.experiment.history import Configuration
    from tui.core.server.server_state import ServerState
    from tui.panel.bench_view import Preview

T = TypeVar("T")


@dataclass(frozen=True)
class Entry:
    """A row of a list: a mark before the name, and what it is."""

    name: str
    about: str = ""
    broken: bool = False
    mark: str = ""


class Picker(Dialog[T], Generic[T]):
    """A list, and below it what is under the cursor; Enter takes it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j,down", "move(1)", "down", show=False),
        Binding("k,up", "move(-1)", "up", show=False),
        Binding("enter", "go", "take", show=False),
    ]
    AUTO_FOCUS = "VerticalScroll"
    MARK: ClassVar[str] = "● BENCH"

    def __init__(self) -> None:
        super().__init__()
        self.at = 0

    @property
    def eagle(self) -> Panel:
        return panel_of(self)

    def compose(self) -> ComposeResult:
        with Container(classes="dialog -launch"):
            yield Folded(id="head")
            yield Lines(id="list")
            with VerticalScroll():
                yield Folded(id="body")
            yield Lines(id="keys")

    def on_mount(self) -> None:
        super().on_mount()
        self.show()

    def on_resize(self) -> None:
        super().on_resize()
        self.show()

    # -- what a dialog says ----------------------------------------------------------------------------------------

    def head(self) -> list[Line]:
        """Rows over the list."""
        raise NotImplementedError

    def entries(self) -> Sequence[Entry]:
        """Rows of the list."""
        raise NotImplementedError

    def body(self) -> list[Line]:
        """What is under the cursor, in depth."""
        raise NotImplementedError

    def keys(self) -> Line:
        """Keys and their verbs."""
        raise NotImplementedError

    @property
    def width(self) -> int:
        """Columns of a row: frame, padding and scrollbar are beside it."""
        return max(30, min(130, int(self.app.size.width * 0.96)) - (7 if self.short else 9))

    def show(self) -> None:
        """Draws it anew."""
        if not self.is_mounted:
            return
        blank: list[Line] = [] if self.short else [[]]
        self.query_one("#head", Folded).set_lines([*self.head(), *blank])
        entries = self.entries()
        most = max(3, self.app.size.height // 3)
        first = max(0, min(self.at - most // 2, len(entries) - most))
        self.query_one("#list", Lines).set_lines([*self._rows(entries, first, most), *blank])
        self.query_one("#body", Folded).set_lines(self.body())
        self.query_one("#keys", Lines).set_lines([*blank, self.keys()])
        used = len(self.head()) + min(most, max(1, len(entries))) + 1 + 3 * len(blank) + (2 if self.short else 4)
        self.query_one(VerticalScroll).styles.max_height = max(2, self.app.size.height - used)

    def _rows(self, entries: Sequence[Entry], first: int, most: int) -> list[Line]:
        wide = min(max((cells(entry.name) for entry in entries), default=0) + 2, self.width // 2)
        lines: list[Line] = []
        for position, entry in enumerate(entries[first : first + most], first):
            here = position == self.at
            ground = "/raised" if here else ""
            mark = f"{entry.mark} " if any(other.mark for other in entries) else ""
            name = clip(entry.name, wide - 2)
            about = "".join(text for text, _ in words([(entry.about, "")], max(0, self.width - wide - 2 - len(mark))))
            lines.append(
                [
                    ("▌ " if here else "  ", "accent" + ground),
                    (mark, "accent!" + ground),
                    (name + " " * (wide - cells(name)), ("strong!" if here else "text") + ground),
                    (about, ("err" if entry.broken else "muted") + ground),
                ]
            )
        return lines

    def action_move(self, step: int) -> None:
        """Down or up the list."""
        count = len(self.entries())
        if count:
            self.at = (self.at + step) % count
            self.moved()
            self.show()

    def moved(self) -> None:
        """Another row is under the cursor."""

    def action_go(self) -> None:
        """Takes what is under the cursor."""
        raise NotImplementedError


def error_lines(error: EagletuiError) -> list[Line]:
    """An error with its hint; every fault of a broken profile a row."""
    details = getattr(error, "errors", ()) or (error.message,)
    lines: list[Line] = [[("✗ ", "err"), (str(detail), "text")] for detail in details]
    if error.hint:
        lines.append([("  ", "text"), (in_panel(error.hint), "muted")])
    return lines


def entries_of(eagle: Panel, kind: str) -> list[Entry]:
    """Profiles of one kind; a broken one is listed too."""
    return [
        Entry(
            entry.name,
            f"{fmt.plural(len(entry.errors), 'error')}, see 3" if entry.errors else entry.description or "",
            bool(entry.errors),
        )
        for entry in eagle.profile_entries()
        if entry.kind == kind
    ]


def nothing_found(kind: str) -> list[Line]:
    """What an empty list says."""
    said: list[Run] = [(f"No {kind} profile was found. ", "text"), ("eagletui profiles", "strong")]
    return [[*said, (" says where it looks.", "muted")]]


def labelled(label: str, runs: Sequence[Run]) -> Line:
    """A label and what it is; long rows hang under their text."""
    return [(f"{label:<8}  ", "muted"), *runs]


def warning_lines(texts: Sequence[str]) -> list[Line]:
    """Warnings, one paragraph each."""
    return [[("▲  ", "warn"), (text, "text")] for text in texts]


def bench_lines(bench: BenchProfile) -> list[Line]:
    """What a bench asks of a server, and how long it takes."""
    from tui.core.experiment.state import bench_length_s

    word = load_words(bench.points[0])[0]
    loads = ", ".join(load_words(point)[1] for point in bench.points)
    if bench.search is not None:
        word, loads = search_words(bench.search), ""
    lengths = f", prompts of {bench.input_len} tokens" if bench.input_len else ""
    lines = [
        labelled("load", [(f"{word} {loads}", "text")]),
        *([labelled("holds", [(limits_words(bench.search.limits), "text")])] if bench.search else ()),
        labelled("runs", [(fmt.runs_words(bench), "text")]),
        labelled(
            "workload",
            [
                (one_line(bench.dataset, 120), "text"),
                (f", replies of {bench.output_len} tokens at most{lengths}", "muted"),
            ],
        ),
        labelled("takes", [(f"about {long_words(bench_length_s(bench))}", "text")]),
    ]
    if bench.driver != "eagletui":
        lines.insert(0, labelled("driver", [(bench.driver, "text")]))
    for label, text in (("expects", bench.hypothesis), ("known", bench.known)):
        if text:
            lines.append(labelled(label, [(one_line(text), "text")]))
    return lines


def long_words(seconds: float) -> str:
    """`4 min`, `2 h 20 min`."""
    minutes = max(1, round(seconds / 60))
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def speculates(state: "ServerState") -> bool:
    """Whether a server decodes with a draft."""
    arguments = state.startup.server_args or {}
    return bool(arguments.get("speculative_algorithm")) or "--speculative-algorithm" in state.run.argv


def bench_warnings(bench: BenchProfile, *, speculative: bool) -> list[str]:
    """What makes the figures of a bench say less than they seem to."""
    found = []
    if speculative and bench.dataset.startswith("random"):
        found.append(
            "random tokens with speculation: the draft was made for text, so accept length and tok/s say nothing about real "
            "prompts; choose a bench on prompts"
        )
    if bench.runs < 2:
        found.append("one run has no error bar: its level is L0")
    if bench.duration_s < 10:
        found.append(f"a window of {bench.duration_s:g} s is shorter than the 10 s that a run needs to count")
    return found


class BenchDialog(Picker[BenchProfile]):
    """A bench profile for the server that is ready."""

    def __init__(self) -> None:
        super().__init__()
        self._bench: BenchProfile | None = None
        self._error: EagletuiError | None = None
        self._found: list[Entry] = []

    def on_mount(self) -> None:
        self._found = entries_of(self.eagle, "bench")
        last = self.eagle.measure.last_bench
        names = [entry.name for entry in self._found]
        self.at = names.index(last) if last in names else self._first(names)
        self.moved()
        super().on_mount()

    def _first(self, names: Sequence[str]) -> int:
        """Real prompts for a server with speculation, else one user."""
        state = self.eagle.board.state
        wanted = "speculation" if state is not None and speculates(state) else "bs1"
        return next((at for at, name in enumerate(names) if wanted in name), 0)

    def moved(self) -> None:
        self._bench = self._error = None
        if self._found:
            try:
                self._bench = self.eagle.measure.load_bench(self._found[self.at].name)
            except EagletuiError as error:
                self._error = error

    def _why_not(self) -> str | None:
        """Why nothing can be measured now."""
        board = self.eagle.board
        if not board.connected:
            return f"{board.host} is not connected"
        if self.eagle.measure.under_way:
            return "a measurement is under way; S stops it"
        if board.state is None or board.state.outcome is not Outcome.READY:
            return "no server is ready; l launches one"
        if board.state.suspicion is not None:
            return f"the server may hang: {board.state.suspicion}"
        if self._bench is not None and self._bench.driver != "eagletui":
            return f"{self._bench.name} measures with driver {self._bench.driver}: eagletui bench {self._bench.name} runs it"
        return None

    def head(self) -> list[Line]:
        board = self.eagle.board
        lines: list[Line] = [[(self.MARK, "accent!"), ("   ", "text"), ("Measure the running server", "strong!"), ("  on ", "muted"),
                              (board.host, "text")]]  # fmt: skip
        why = self._why_not()
        if why is not None:
            return [*lines, [("✗ ", "err"), (why, "text")]]
        assert board.state is not None
        run = board.state.run
        facts = join(
            [
                [(run_name(run), "strong!")],
                [("run ", "muted"), (run.short_id, "text")],
                [("port ", "muted"), (str(run.port), "text")],
            ]
        )
        return [*lines, [("server  ", "muted"), *facts]]

    def entries(self) -> Sequence[Entry]:
        return self._found

    def body(self) -> list[Line]:
        if not self._found:
            return nothing_found("bench")
        if self._error is not None:
            return error_lines(self._error)
        if self._bench is None:
            return []
        state = self.eagle.board.state
        warnings = bench_warnings(self._bench, speculative=state is not None and speculates(state))
        return [*bench_lines(self._bench), *warning_lines(warnings)]

    def keys(self) -> Line:
        lead: list[Run] = []
        if self._bench is not None and self._why_not() is None:
            lead = [(" Enter ", "accent!/accbg"), (" measure", "text")]
        return key_row(lead, (("j k", "choose"), ("Esc", "back")), self.width)

    def action_go(self) -> None:
        why = self._why_not()
        if why is not None:
            self.eagle.say(why, severity="warning")
        elif self._bench is not None:
            self.dismiss(self._bench)


class ExperimentDialog(Picker["tuple[Preview, bool]"]):
    """An experiment profile, with its order and time; `r` goes on with an unfinished one.

    The answer is what to run, and whether that is what is left of an unfinished one.
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("r", "resume", "go on", show=False)]
    MARK = "≡ EXPERIMENT"

    def __init__(self) -> None:
        super().__init__()
        self._found: list[Entry] = []
        self._preview: Preview | None = None
        self._error: EagletuiError | None = None

    def on_mount(self) -> None:
        self._found = entries_of(self.eagle, "experiment")
        self.moved()
        super().on_mount()

    def moved(self) -> None:
        self._preview = self._error = None
        if self._found:
            self._read(self._found[self.at].name)

    @work(exclusive=True, group="experiment-preview", exit_on_error=False)
    async def _read(self, name: str) -> None:
        try:
            self._preview = await self.eagle.measure.preview(name)
        except EagletuiError as error:
            self._error = error
        self.show()

    def _why_not(self) -> str | None:
        board = self.eagle.board
        if not board.connected:
            return f"{board.host} is not connected"
        if self.eagle.measure.under_way:
            return "a measurement is under way; S stops it"
        return self._preview.running if self._preview is not None else None

    def head(self) -> list[Line]:
        board = self.eagle.board
        lines: list[Line] = [[(self.MARK, "accent!"), ("   ", "text"), ("Launch and measure by turns", "strong!"), ("  on ", "muted"),
                              (board.host, "text")]]  # fmt: skip
        why = self._why_not()
        if why is not None:
            lines.append([("✗ ", "err"), (why, "text")])
        elif running := board.live_servers():
            names = ", ".join(f"{run_name(run)} ({run.short_id})" for run in running[:3])
            lines.append([("■ ", "warn"), ("stops first what is in its way: ", "text"), (names, "strong!")])
        return lines

    def entries(self) -> Sequence[Entry]:
        return self._found

    def body(self) -> list[Line]:
        if not self._found:
            return nothing_found("experiment")
        if self._error is not None:
            return error_lines(self._error)
        preview = self._preview
        if preview is None:
            return [[("reading", "muted")]]
        profile = preview.profile
        lines: list[Line] = []
        for label, text in (("asks", profile.hypothesis), ("known", profile.known)):
            if text:
                lines.append(labelled(label, [(one_line(text), "text")]))
        for arm in profile.arms:
            sets = ", ".join(f"{one_line(key, 60)} = {one_line(str(value), 60)}" for key, value in arm.sets.items())
            against = f"against {arm.against}" if arm.against else "reference"
            parts: list[list[Run]] = [
                [(one_line(arm.profile, 120), "strong!")],
                [(sets, "text")] if sets else [],
                [(against, "muted")],
            ]
            lines.append(labelled(f"arm {arm.letter}", join(parts)))
        lines += self._course(preview)
        lines += warning_lines(bench_warnings(preview.bench, speculative=preview.speculative))
        if preview.unfinished is not None:
            record = preview.unfinished
            done = sum(cell.over for cell in record.cells)
            said = f"unfinished since {fmt.day_clock(record.started_at)}, {done} of {len(record.cells)} launches done: "
            lines.append([("□ ", "warn"), (said, "text"), ("r", "accent!"), (" goes on with it", "muted")])
        return lines

    @staticmethod
    def _course(preview: "Preview") -> list[Line]:
        """Order, bench and time."""
        profile, bench = preview.profile, preview.bench
        count = profile.pairs * len(profile.arms)
        letters = "".join(arm.letter for arm in profile.arms)
        rounds = " ".join(letters if number % 2 == 0 else letters[::-1] for number in range(min(6, profile.pairs)))
        order = f"{count} launches in {fmt.plural(profile.pairs, 'round')}, every second one mirrored: "
        loads = ", ".join(load_words(point)[1] for point in bench.points)
        load = search_words(bench.search) if bench.search else f"{load_words(bench.points[0])[0]} {loads}"
        what = f"{load}, {fmt.runs_words(bench)}"
        length = "not known, as not every arm was started here before"
        if preview.length_s is not None:
            length = f"about {long_words(preview.length_s)}"
        takes: list[Run] = [(length, "text")]
        if profile.budget_h is not None:
            takes.append((f", ends before {profile.budget_h:g} h are spent", "muted"))
            if preview.length_s is not None and preview.length_s > profile.budget_h * 3600:
                takes.append(("   ▲ that is not enough for all of it", "warn"))
        return [
            labelled("order", [(order + rounds, "text"), (" (who begins is drawn at the start)", "muted")]),
            labelled("bench", [(profile.bench, "text"), (f": {what}", "muted")]),
            labelled("takes", takes),
        ]

    def keys(self) -> Line:
        lead: list[Run] = []
        if self._preview is not None and self._why_not() is None:
            lead = [(" Enter ", "accent!/accbg"), (" start", "text")]
        pairs = [("j k", "choose"), ("Esc", "back")]
        if self._preview is not None and self._preview.unfinished is not None:
            pairs.insert(0, ("r", "go on with the unfinished one"))
        return key_row(lead, pairs, self.width)

    def _leave(self, *, resume: bool) -> None:
        why = self._why_not()
        if why is not None:
            self.eagle.say(why, severity="warning")
        elif self._preview is not None:
            self.dismiss((self._preview, resume))

    def action_go(self) -> None:
        self._leave(resume=False)

    def action_resume(self) -> None:
        """Goes on with the unfinished one."""
        if self._preview is not None and self._preview.unfinished is not None:
            self._leave(resume=True)


class ArmsDialog(Picker["tuple[Configuration, ...]"]):
    """Up to four stored configurations side by side: those of one bench, host and model."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("space", "mark", "choose", show=False)]
    MARK = "≡ STORED"

    def __init__(self, found: "Sequence[Configuration]") -> None:
        super().__init__()
        self._found = tuple(found)
        self._chosen: list[int] = []

    def head(self) -> list[Line]:
        return [
            [
                (self.MARK, "accent!"),
                ("   ", "text"),
                ("Which configurations side by side?", "strong!"),
                ("  up to four of one bench", "muted"),
            ]
        ]

    def entries(self) -> Sequence[Entry]:
        entries = []
        for at, one in enumerate(self._found):
            sets = ", ".join(
                f"{one_line(key, 40)}={one_line(str(value), 40)}" for key, value in one.results[-1].server.sets.items()
            )
            valid = sum(result.valid for result in one.results)
            about = f"{one_line(one.bench, 60)} · {valid} of {fmt.plural(len(one.results), 'run')} valid · {fmt.day_clock(one.newest)}"
            mark = "●" if at in self._chosen else "–" if not self._fits(at) else "○"
            entries.append(Entry(one_line(one.profile, 120) + (f" +{sets}" if sets else ""), about, mark=mark))
        return entries

    def _fits(self, at: int) -> bool:
        from tui.core.experiment.history import comparable

        return not self._chosen or comparable(self._found[self._chosen[0]], self._found[at])

    def body(self) -> list[Line]:
        if not self._fits(self.at):
            return [[("– ", "muted"), ("another bench, model or workload than what is chosen: not comparable", "text")]]
        return []

    def keys(self) -> Line:
        count = len(self._chosen)
        lead: list[Run] = [
            (" Enter ", "accent!/accbg"),
            (f" show {fmt.plural(count, 'arm')}" if count else " show this one", "text"),
        ]
        return key_row(lead, (("space", "choose"), ("j k", "move"), ("Esc", "back")), self.width)

    def action_mark(self) -> None:
        """Chooses what is under the cursor, or not."""
        if self.at in self._chosen:
            self._chosen.remove(self.at)
        elif not self._fits(self.at):
            self.eagle.say("Not comparable with what is chosen", severity="warning")
        elif len(self._chosen) == len(ARM_LETTERS):
            self.eagle.say(f"{len(ARM_LETTERS)} stand side by side at most", severity="warning")
        else:
            self._chosen.append(self.at)
        self.show()

    def action_go(self) -> None:
        wanted = self._chosen or [self.at]
        self.dismiss(tuple(self._found[at] for at in wanted))
