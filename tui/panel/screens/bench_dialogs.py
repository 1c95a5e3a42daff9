"""What is measured: a bench of the running server, an experiment, or stored configurations side by side."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from textual import work
from textual.binding import BindingType

from tui import format as fmt
from tui.core.errors import EagletuiError
from tui.core.model.phases import Outcome
from tui.core.model.profile import SIDE_BY_SIDE, BenchProfile
from tui.core.server.finding import Level
from tui.core.text import one_line
from tui.core.verdicts.sentences import limits_words, search_words
from tui.panel.host_view import run_name
from tui.panel.keys import bindings, keys
from tui.panel.protocol import Panel
from tui.panel.screens.dialog import Picker, entry
from tui.panel.screens.plan_rows import error_rows, finding_row, listed
from tui.panel.widgets.bench.head import load_words
from tui.panel.widgets.paint import Run, cells, join
from tui.panel.widgets.rows import AnyRow, KeyRow, Line, Row, Single

if TYPE_CHECKING:
    from tui.core.experiment.history import Configuration
    from tui.core.profiles.load import ProfileEntry
    from tui.core.server.server_state import ServerState
    from tui.panel.bench_view import Preview


def heading(mark: str, title: str, host: str) -> Line:
    """First row of a dialog: what it is about."""
    return [(mark, "accent!"), ("   ", "text"), (title, "strong!"), ("  on ", "muted"), (host, "text")]


def entries_of(panel: Panel, kind: str) -> "list[ProfileEntry]":
    """Profiles of one kind; a broken one is listed too."""
    return [found for found in panel.profile_entries() if found.kind == kind]


def why_not(panel: Panel) -> str | None:
    """Why nothing can be measured now, whatever it is."""
    if not panel.board.connected:
        return f"{panel.board.host} is not connected"
    if panel.measure.under_way and (state := panel.board.experiment) is not None and state.driver is not None:
        return f"{one_line(state.name, 60)} is run by PID {state.driver}"
    return "a measurement is running; S stops it" if panel.measure.under_way else None


def nothing_found(kind: str) -> Line:
    """What an empty list says."""
    return [
        (f"No {kind} profile was found. ", "text"),
        ("eagletui profiles", "strong"),
        (" says where it looks.", "muted"),
    ]


def labelled(label: str, runs: Sequence[Run]) -> Row:
    """A label and what it is; long rows hang under their text."""
    return Row([(f"{label:<8}  ", "muted"), *runs], hang=10)


def warning_rows(texts: Sequence[str]) -> list[AnyRow]:
    """Warnings, one paragraph each."""
    return [[("▲  ", "warn"), (text, "text")] for text in texts]


def bench_rows(bench: BenchProfile) -> list[AnyRow]:
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
        self.found: list[ProfileEntry] = []

    def on_mount(self) -> None:
        self.found = entries_of(self.panel, "bench")
        last = self.panel.measure.last_bench
        names = [found.name for found in self.found]
        self.show(names.index(last) if last in names else self._first(names))
        self.moved()
        self.show_chosen()

    def _first(self, names: Sequence[str]) -> int:
        """Real prompts for a server with speculation, else one user."""
        state = self.panel.board.state
        wanted = "speculation" if state is not None and speculates(state) else "bs1"
        return next((at for at, name in enumerate(names) if wanted in name), 0)

    def moved(self) -> None:
        self._bench = self._error = None
        if self.found:
            from tui.core.profiles.load import load_bench

            try:
                self._bench = load_bench(self.found[self.at].name, self.panel.profile_dirs())
            except EagletuiError as error:
                self._error = error

    def _why_not(self) -> str | None:
        """Why nothing can be measured now."""
        board, bench = self.panel.board, self._bench
        state = board.state
        if (blocked := why_not(self.panel)) is not None:
            return blocked
        group = self.panel.group
        if state is None or (group.outcome if group is not None else state.outcome) is not Outcome.READY:
            return "no server is ready; l launches one"
        if state.suspicion is not None:
            return f"the server may hang: {state.suspicion}"
        if bench is not None and bench.driver != "eagletui":
            return f"{bench.name} measures with driver {bench.driver}: eagletui bench {bench.name} runs it"
        return None

    def summary(self) -> list[AnyRow]:
        state = self.panel.board.state
        head = heading("● BENCH", "Measure the running server", self.panel.board.host)
        why = self._why_not()
        if why is not None or state is None:
            return [head, [("✗ ", "err"), (why or "", "text")]]
        run, group = state.run, self.panel.group
        name: list[Run] = [(run_name(run), "strong!")]
        facts = [name, [("run ", "muted"), (run.short_id, "text")], [("port ", "muted"), (str(run.port), "text")]]
        if group is not None:
            facts[1:] = [[("group ", "muted"), (group.short_id, "text")], [(" + ".join(group.group.hosts), "text")]]
        return [head, [("server  ", "muted"), *join(facts)]]

    def entries(self) -> list[Single]:
        return listed(self.found)

    def chosen(self) -> list[AnyRow]:
        if self._error is not None or self._bench is None:
            return error_rows(self._error) if self._error is not None else [nothing_found("bench")]
        state = self.panel.board.state
        warnings = bench_warnings(self._bench, speculative=state is not None and speculates(state))
        return [*bench_rows(self._bench), *warning_rows(warnings)]

    def keys(self) -> KeyRow:
        can = self._bench is not None and self._why_not() is None
        return KeyRow(
            (("j k", "choose"), ("Esc", "back")), [(" Enter ", "accent!/accbg"), (" measure", "text")] if can else []
        )

    def action_go(self) -> None:
        why = self._why_not()
        if why is not None:
            self.panel.say(why, severity="warning")
        elif self._bench is not None:
            self.dismiss(self._bench)


class ExperimentDialog(Picker["tuple[Preview, bool]"]):
    """An experiment profile, with its order and time; Enter opens its plan, `r` resumes an unfinished one.

    The answer is which one, and whether what is left of an unfinished one is meant.
    """

    BINDINGS: ClassVar[list[BindingType]] = bindings("experiment dialog")

    def __init__(self) -> None:
        super().__init__()
        self.found: list[ProfileEntry] = []
        self._preview: Preview | None = None
        self._error: EagletuiError | None = None

    def on_mount(self) -> None:
        self.found = entries_of(self.panel, "experiment")
        self.moved()
        self.show()

    def moved(self) -> None:
        self._preview = self._error = None
        if self.found:
            self._read(self.found[self.at].name)

    @work(exclusive=True, group="experiment-preview", exit_on_error=False)
    async def _read(self, name: str) -> None:
        try:
            self._preview = await self.panel.measure.preview(name)
        except EagletuiError as error:
            self._error = error
        self.show_chosen()

    def _why_not(self) -> str | None:
        return why_not(self.panel) or (self._preview.known.held if self._preview is not None else None)

    def summary(self) -> list[AnyRow]:
        board = self.panel.board
        head = heading("≡ EXPERIMENT", "Launch and measure alternately", board.host)
        why = self._why_not()
        if why is not None:
            return [head, [("✗ ", "err"), (why, "text")]]
        running = board.live_servers()
        if not running:
            return [head]
        names = ", ".join(f"{run_name(run)} ({run.short_id})" for run in running[:3])
        return [
            head,
            Row([("■ ", "warn"), ("will first stop what is in its way: ", "text"), (names, "strong!")], hang=2),
        ]

    def entries(self) -> list[Single]:
        return listed(self.found)

    def chosen(self) -> list[AnyRow]:
        if not self.found:
            return [nothing_found("experiment")]
        if self._error is not None:
            return error_rows(self._error)
        preview = self._preview
        if preview is None:
            return [[("reading…", "muted")]]
        profile = preview.profile
        lines: list[AnyRow] = []
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
        lines += [finding_row(finding) for finding in preview.plan.findings if finding.level is not Level.OK]
        if preview.unfinished is not None:
            record = preview.unfinished
            done = sum(cell.over for cell in record.cells)
            said = f"unfinished since {fmt.day_clock(record.started_at)}, {done} of {len(record.cells)} launches done: "
            lines.append([("□ ", "warn"), (said, "text"), ("r", "accent!"), (" resumes it", "muted")])
        return lines

    @staticmethod
    def _course(preview: "Preview") -> list[AnyRow]:
        """Order, bench and time."""
        profile, bench, plan = preview.profile, preview.wanted.bench, preview.plan
        count = profile.pairs * len(profile.arms)
        letters = [arm.letter for arm in profile.arms]
        rounds = " ".join(fmt.order_words(letters[:: 1 - 2 * (number % 2)]) for number in range(min(6, profile.pairs)))
        order = f"{count} launches in {fmt.plural(profile.pairs, 'round')}, every second one mirrored: "
        if profile.method == "halving":
            from tui.core.experiment.course import planned_launches

            order = f"{len(planned_launches(profile, 0))} launches where nothing fails: "
            rounds = f"one of each, the worse half is dropped, again; then {fmt.plural(profile.pairs, 'fresh pair')} of the best and A"
        loads = ", ".join(load_words(point)[1] for point in bench.points)
        load = search_words(bench.search) if bench.search else f"{load_words(bench.points[0])[0]} {loads}"
        what = f"{load}, {fmt.runs_words(bench)}"
        length = f"about {long_words(plan.total_s)}"
        length += ", an estimate, as not every arm was started here before" if plan.estimated else ""
        takes: list[Run] = [(length, "text")]
        if profile.budget_h is not None:
            takes.append((f", ends before {profile.budget_h:g} h are spent", "muted"))
        on = [labelled("hosts", [(", ".join(one_line(name, 60) for name in plan.hosts), "text")])]
        return [
            *(on if len(plan.hosts) > 1 else ()),
            labelled("order", [(order + rounds, "text"), (" (who begins is drawn)", "muted")]),
            labelled("bench", [(profile.bench, "text"), (f": {what}", "muted")]),
            labelled("takes", takes),
        ]

    def keys(self) -> KeyRow:
        unfinished = self._preview is not None and self._preview.unfinished is not None
        can = self._preview is not None and self._why_not() is None
        return KeyRow(
            (*(keys("r", where="experiment dialog") if unfinished else ()), ("j k", "choose"), ("Esc", "back")),
            [(" Enter ", "accent!/accbg"), (" its plan", "text")] if can else [],
        )

    def _leave(self, *, resume: bool) -> None:
        why = self._why_not()
        if why is not None:
            self.panel.say(why, severity="warning")
        elif self._preview is not None:
            self.dismiss((self._preview, resume))

    def action_go(self) -> None:
        self._leave(resume=False)

    def action_resume(self) -> None:
        """Resumes the unfinished one."""
        if self._preview is not None and self._preview.unfinished is not None:
            self._leave(resume=True)


class ArmsDialog(Picker["tuple[Configuration, ...]"]):
    """Up to four stored configurations side by side: those of one bench, host and model."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("stored results")

    def __init__(self, found: "Sequence[Configuration]") -> None:
        super().__init__()
        self._found = tuple(found)
        self._chosen: list[int] = []

    def summary(self) -> list[AnyRow]:
        head: Line = [("≡ STORED", "accent!"), ("   ", "text"), ("Which configurations side by side?", "strong!")]
        return [[*head, ("  up to four of one bench", "muted")]]

    def entries(self) -> list[Single]:
        names = [self._label(one) for one in self._found]
        wide = min(70, max(map(cells, names), default=0) + 2)
        return [
            entry(name, self._about(one), wide=wide, mark=self._mark(at))
            for at, (name, one) in enumerate(zip(names, self._found, strict=True))
        ]

    @staticmethod
    def _label(one: "Configuration") -> str:
        return one_line(fmt.configured(one.profile, one.results[-1].server.sets), 160)

    @staticmethod
    def _about(one: "Configuration") -> str:
        valid = sum(result.valid for result in one.results)
        runs = f"{valid} of {fmt.plural(len(one.results), 'run')} valid"
        return f"{one_line(one.bench, 60)} · {runs} · {fmt.day_clock(one.newest)}"

    def _mark(self, at: int) -> str:
        return "●" if at in self._chosen else "–" if not self._fits(at) else "○"

    def _fits(self, at: int) -> bool:
        from tui.core.experiment.history import comparable

        return not self._chosen or comparable(self._found[self._chosen[0]], self._found[at])

    def chosen(self) -> list[AnyRow]:
        if self._fits(self.at):
            return []
        return [[("– ", "muted"), ("another bench, model or workload than what is chosen: not comparable", "text")]]

    def keys(self) -> KeyRow:
        count = len(self._chosen)
        verb = f" show {fmt.plural(count, 'arm')}" if count else " show this one"
        pairs = (*keys("space", where="stored results"), ("j k", "move"), ("Esc", "back"))
        return KeyRow(pairs, [(" Enter ", "accent!/accbg"), (verb, "text")])

    def action_mark(self) -> None:
        """Chooses what is under the cursor, or not."""
        if self.at in self._chosen:
            self._chosen.remove(self.at)
        elif not self._fits(self.at):
            self.panel.say("Not comparable with what is chosen", severity="warning")
        elif len(self._chosen) == SIDE_BY_SIDE:
            self.panel.say(f"{SIDE_BY_SIDE} stand side by side at most", severity="warning")
        else:
            self._chosen.append(self.at)
        self.show()

    def action_go(self) -> None:
        wanted = self._chosen or [self.at]
        self.dismiss(tuple(self._found[at] for at in wanted))
