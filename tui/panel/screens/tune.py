"""Tune: the search for the settings of one profile that this panel runs, as it goes."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType

from tui.core.text import one_line
from tui.panel.keys import bindings, keys
from tui.panel.screens.base import Mode
from tui.panel.widgets.footer import Keys
from tui.panel.widgets.rows import AnyRow, Row
from tui.panel.widgets.tune_view import TuneView


class Tune(Mode):
    """One picture; the tune itself is the host's (`panel/tuning`), and goes on whatever is shown."""

    NAME = "Bench"
    BINDINGS: ClassVar[list[BindingType]] = bindings("tune")

    def content(self) -> ComposeResult:
        yield TuneView(self.board)

    def footer_keys(self) -> Keys:
        if self.board.tune is None:
            return keys("3", "?", "^P", "q")
        going = ("space", "S") if self.eagle.tuning.under_way else ()
        return keys(*going, "Enter", "y", "2", "3", "?", "^P", "q", where="tune")

    # -- actions ---------------------------------------------------------------------------------------------------

    def action_pause(self) -> None:
        """Pauses once the current launch is measured, or continues."""
        paused = self.eagle.tuning.pause()
        if paused is None:
            self.eagle.say("No tune is running: nothing to pause")
        elif paused:
            self.eagle.say("Pauses when this launch is measured; space continues")
        self.update()

    def action_stop(self) -> None:
        """Ends the tune; else stops the current server, as everywhere."""
        state = self.board.tune
        if state is None or not self.eagle.tuning.under_way:
            self.app.run_worker(self.app.run_action("app.stop"))
            return
        from tui.panel.screens.dialog import Confirm

        after = "The measurement and the server that was launched for it end. What was found stays; t on the profile resumes."
        dialog = Confirm(
            ("■ STOP", "warn!"),
            f"End the tune of {one_line(state.record.profile, 60)} on {self.board.host}?",
            [Row([(after, "muted")])],
            "No, let it run",
            "Yes, end it",
        )
        self.app.push_screen(dialog, lambda yes: self.eagle.tuning.stop() if yes else None)

    def action_open(self) -> None:
        """What was found, every step, and what was not tried."""
        state = self.board.tune
        if state is None:
            return
        from tui.panel.screens.dialog import Facts

        self.app.push_screen(Facts("Tune", self._report()))

    def action_back(self) -> None:
        self.eagle.show_mode("profiles")

    def _report(self) -> list[AnyRow]:
        from tui.core.tune import report

        assert self.board.tune is not None
        record = self.board.tune.record
        rows: list[AnyRow] = [Row([("range  ", "muted"), (report.range_words(record), "text")])]
        if (said := report.so_far(record)) is not None:
            rows.append(Row([("cells  ", "muted"), (said, "text")]))
        if record.message:
            rows.append(Row([("end  ", "muted"), (one_line(record.message, 400), "strong!")]))
        rows.append([])
        rows += [
            Row(
                [
                    (f"{taken.number:>2}  ", "muted"),
                    (f"{taken.step.title}: ", "strong"),
                    (one_line(taken.words, 400), "text"),
                ]
            )
            for taken in record.steps
        ]
        rows += [[], [("Not tried", "strong!")]]
        return [*rows, *(Row([("·  ", "muted"), (text, "text")]) for text in report.not_tried(record))]

    def copied_text(self) -> tuple[str, str] | None:
        """The command that continues it, or begins it again."""
        if self.board.tune is None:
            return None
        record = self.board.tune.record
        resume = " --resume" if record.outcome != "done" else ""
        words = (
            f"eagletui tune {record.profile} --for {record.goal} --workload {record.bench.name} --host {record.host}"
        )
        return words + resume, "command"
