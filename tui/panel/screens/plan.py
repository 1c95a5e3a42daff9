"""The plan of an experiment: what it asks, can see and takes, and what is against it; knobs change it, Enter begins it."""

import shlex
import time
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal
from textual.widgets import Input

from tui.core.errors import EagletuiError
from tui.core.experiment.overrides import Overrides
from tui.panel.bench_view import Preview
from tui.panel.host_view import Board
from tui.panel.keys import bindings, keys
from tui.panel.screens.base import Mode
from tui.panel.screens.bench_dialogs import entries_of, why_not
from tui.panel.screens.dialog import Box
from tui.panel.screens.editing import edited
from tui.panel.screens.experiment_rows import (
    before_rows,
    blocked_by,
    head_row,
    how_rows,
    knob_rows,
    launch_rows,
    question_rows,
    sight_rows,
)
from tui.panel.widgets.footer import Keys
from tui.panel.widgets.rows import Prose

if TYPE_CHECKING:
    from tui.core.model.profile import BenchProfile

_WIDE = 120  # from there on two columns
_WIDTHS = [(0, "-narrow"), (_WIDE, "-wide")]
_SET = {"t": "duration_s", "r": "runs", "u": "concurrency"}  # knobs that change a key of the bench
_ASKS = {
    "p": "launch pairs",
    "t": "seconds a run",
    "r": "runs a launch",
    "u": "users at once, such as 1,4",
    "w": "bench profile",
    "B": "budget in hours, 0 for none",
}


class Plan(Mode):
    """Two columns from 120 columns on, one below the other on less; all of it scrolls."""

    NAME = "Bench"
    AUTO_FOCUS = "Box"
    CSS_PATH: ClassVar[list[str]] = ["plan.tcss"]  # type: ignore[assignment]
    BINDINGS: ClassVar[list[BindingType]] = bindings("plan")
    HORIZONTAL_BREAKPOINTS = _WIDTHS

    def __init__(self, board: Board, preview: Preview) -> None:
        super().__init__(board)
        self.preview = preview
        self._looking: str | EagletuiError | None = None
        self._knob: str | None = None
        self._benches: tuple[BenchProfile, ...] = ()
        self._drawn: tuple[object, ...] = ()

    def content(self) -> ComposeResult:
        yield Prose(id="planhead")
        yield Horizontal(Prose(id="knob"), Input(), id="knobline")
        with Box(id="planbody"):
            yield Horizontal(Prose(id="question"), Prose(id="sight"), classes="pair")
            yield Prose(id="launches")
            yield Horizontal(Prose(id="knobs"), Prose(id="before"), classes="pair")
            yield Prose(id="how")

    def on_mount(self) -> None:
        self._look()
        self._read_benches()

    # -- what is shown ---------------------------------------------------------------------------------------------

    def update(self) -> None:
        if not self.is_mounted:
            return
        super().update()
        preview, plan = self.preview, self.preview.plan
        drawn = (preview, self._looking, self._benches, self._why_not(), self.size, int(time.time() // 60))
        if drawn == self._drawn:
            return
        self._drawn = drawn
        width = self.query_one("#planbody").scrollable_content_region.width or self.size.width - 3
        half = (width - 4) // 2 if self.size.width >= _WIDE else width
        for name, rows in (
            ("planhead", [head_row(plan, width)]),
            ("question", question_rows(preview)),
            ("sight", sight_rows(plan, half)),
            ("launches", launch_rows(plan, width)),
            ("knobs", knob_rows(preview, self._benches)),
            ("before", before_rows(preview, self._looking)),
            ("how", how_rows(preview, self._why_not())),
        ):
            self.query_one(f"#{name}", Prose).show(rows)

    def on_resize(self) -> None:
        self.call_after_refresh(self.update)

    def footer_keys(self) -> Keys:
        start = () if self._why_not() else ("Enter",)
        return keys(*start, "p", "t", "r", "u", "w", "B", "e", "y", "Esc", "?", "q", where="plan")

    def field_keys(self) -> Keys:
        return (("Enter", "apply"), ("Esc", "back"))

    def _why_not(self) -> str | None:
        """Why Enter starts nothing now, one sentence."""
        if (why := why_not(self.eagle)) is not None:
            return why
        if isinstance(self._looking, EagletuiError):
            return self._looking.message
        return blocked_by(self.preview.plan)

    # -- what is asked ---------------------------------------------------------------------------------------------

    @work(exclusive=True, group="look", exit_on_error=False)
    async def _look(self) -> None:
        """The pre-flight of all arms."""
        if self.preview.ahead is not None:
            return
        self._looking = "pre-flight of all arms…"
        self.update()
        try:
            seen = await self.eagle.measure.look_ahead(self.preview)
            # the knobs may have been turned meanwhile: what was seen is of the arms, the plan is of now
            name, overrides = self.preview.profile.name, self.preview.wanted.overrides
            self.preview = await self.eagle.measure.preview(name, overrides, replace(seen, record=self.preview.record))
            self._looking = None
        except EagletuiError as error:
            self._looking = error
        except Exception as error:
            self._looking = self.eagle.report_fault(error)
        self.update()

    @work(exclusive=True, group="benches", exit_on_error=False)
    async def _read_benches(self) -> None:
        """The benches that may be chosen instead."""
        from tui.core.profiles.load import load_bench

        found = []
        for one in entries_of(self.eagle, "bench"):
            if not one.errors and (bench := load_bench(one.name, self.eagle.profile_dirs())).driver == "eagletui":
                found.append(bench)
        self._benches = tuple(found)
        self.update()

    def action_knob(self, key: str) -> None:
        """Asks for another value."""
        bench = self.preview.wanted.bench
        if key == "u" and bench.search is not None:
            self.eagle.say(f"{bench.name} searches for the load: it has no number of users")
            return
        self._knob = key
        word = "requests a second, such as 2.5" if key == "u" and bench.points[0].rate is not None else _ASKS[key]
        self.query_one("#knob", Prose).show([[(f"{key}  ", "accent!"), (word, "text")]])
        self.add_class("-asks")
        field = self.query_one(Input)
        field.value = ""
        field.placeholder = ", ".join(one.name for one in self._benches) if key == "w" else ""
        field.focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        key, text = self._knob, event.value.strip()
        if key is not None and text:
            try:
                self._change(self._changed(key, text))
            except ValueError:
                self.eagle.say(f"{text} is not a value for {_ASKS[key]}", severity="warning")
                return
        self._close()

    def _changed(self, key: str, text: str) -> Overrides:
        """The overrides with another value. Raises ValueError."""
        now = self.preview.wanted.overrides
        if key == "p":
            if not 1 <= int(text) <= 1000:
                raise ValueError
            return replace(now, pairs=int(text))
        if key == "B":
            hours = float(text.rstrip("h"))
            if not 0 < hours < float("inf"):
                raise ValueError
            return replace(now, budget_h=hours)
        if key == "w":
            return replace(now, bench=text)
        name = _SET[key]
        if key == "u" and self.preview.wanted.bench.points[0].rate is not None:
            name = "rate"
        value = f"[{','.join(f'{float(part):g}' for part in text.split(','))}]" if key == "u" else f"{float(text):g}"
        kept = (one for one in now.sets if one.partition("=")[0].strip() != name)
        return replace(now, sets=(*kept, f"{name}={value}"))

    @work(exclusive=True, group="change", exit_on_error=False)
    async def _change(self, overrides: Overrides, name: str | None = None) -> None:
        try:
            name = name or self.preview.profile.name
            self.preview = await self.eagle.measure.preview(name, overrides, self.preview)
        except EagletuiError as error:
            self.eagle.tell(error)
        self._look()  # where the arms are others now
        self.update()

    def _close(self) -> None:
        self._knob = None
        self.remove_class("-asks")
        self.query_one(Box).focus()

    # -- actions ---------------------------------------------------------------------------------------------------

    def action_open(self) -> None:
        """Begins it, where nothing is against it."""
        if (why := self._why_not()) is not None:
            self.eagle.say(f"Nothing is started: {why}", severity="warning")
            return
        preview = self.preview
        self.dismiss()
        self.eagle.start_experiment(preview, resume=False)

    def action_edit(self) -> None:
        """Its file, with the profile and the overrides of each arm, in $EDITOR; then the plan of what it says now."""
        path = self.preview.profile.path
        found = edited(self.eagle, self.app, path) if path is not None else None
        if found is not None:
            self._change(self.preview.wanted.overrides, found.stem)

    def action_back(self) -> None:
        """Closes the field, else the plan."""
        if self._knob is not None:
            self._close()
        else:
            self.dismiss()

    def copied_text(self) -> tuple[str, str]:
        """The command that begins it."""
        preview = self.preview
        name, host = preview.profile.name, preview.host
        words = ("eagletui", "experiment", name, "--host", host, *preview.wanted.overrides.public.words)
        return shlex.join((*words, "--seed", str(preview.record.seed))), "command"
